//! Finds partitions of files without `Index.db`: those of Cassandra 5's format `bti`, whose tries are not
//! read.
//!
//! The data of both formats is the same, one partition behind the other. The first lookup walks over all of
//! it from head to head and notes the start of a partition about every 64 KiB; lookups walk on from there.
//! That suits files that are read once, from their beginning, and then rewritten as `me`, as by
//! `storage::import`. A table is not served from such files. Invariant: places ascend by token and by
//! position, and the first is the beginning of the data.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;

use model::clustering::Slice;
use model::partition_key::compare_decorated;
use model::token::{Token, murmur3_token};

use crate::data::long_rows::RowRoom;
use crate::data::stream::Stream;
use crate::data::window::READ_BYTES_MAX;
use crate::descriptor::Component;
use crate::error::{Malformed, SstableError};
use crate::scan::PartitionBound;
use crate::table_file::Inner;

/// Initial number of bytes of data between two noted places.
const SPACING_BYTES: u64 = 64 << 10;
/// Most noted places; beyond it every other one is left out.
const PLACES_MAX: usize = 1 << 16;

/// Start of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    token: Token,
    at: u64,
}

/// Places in the data; none before the first lookup.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    places: RefCell<Option<Rc<[Place]>>>,
}

/// Collects places, further and further apart if there are many.
struct Notes {
    places: Vec<Place>,
    spacing: u64,
    limit: usize,
}

impl Notes {
    fn add(&mut self, place: Place) {
        if self.places.last().is_some_and(|last| place.at - last.at < self.spacing) {
            return;
        }
        self.places.push(place);
        if self.places.len() > self.limit {
            let mut even = false;
            self.places.retain(|_| {
                even = !even;
                even
            });
            self.spacing *= 2;
        }
    }
}

impl Walked {
    /// The partition of a key, opened; `None` if the file does not have it.
    ///
    /// # Errors
    /// [`SstableError::Io`] and [`SstableError::Corrupt`].
    pub(crate) async fn find(
        &self,
        (inner, room): (&Rc<Inner>, Option<&Rc<RowRoom>>),
        (token, key): (Token, &[u8]),
        slices: &[Slice],
        reversed: bool,
    ) -> Result<Option<Stream>, SstableError> {
        let mut at = self.before(inner, token).await?;
        let mut stream =
            Stream::new(Rc::clone(inner), slices, reversed, inner.data.chunk_length()).in_room(room);
        while at < inner.data.length() {
            stream.open_partition(at).await?;
            let found = (murmur3_token(stream.key()), stream.key());
            match compare_decorated(found, (token, key)) {
                Ordering::Less => at = stream.skip_rest().await?,
                Ordering::Equal => return Ok(Some(stream)),
                Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Start of the first partition behind `bound`.
    ///
    /// # Errors
    /// As [`Walked::find`].
    pub(crate) async fn position_behind(
        &self,
        inner: &Rc<Inner>,
        bound: &PartitionBound,
    ) -> Result<Option<u64>, SstableError> {
        let mut at = self.before(inner, bound.token()).await?;
        let mut stream = Stream::new(Rc::clone(inner), &[], false, inner.data.chunk_length());
        while at < inner.data.length() {
            stream.open_partition(at).await?;
            if bound.is_before(murmur3_token(stream.key()), stream.key()) {
                return Ok(Some(at));
            }
            at = stream.skip_rest().await?;
        }
        Ok(None)
    }

    /// The last place before all partitions with this token, or the first place of all.
    async fn before(&self, inner: &Rc<Inner>, token: Token) -> Result<u64, SstableError> {
        let known = self.places.borrow().clone();
        let places = match known {
            Some(places) => places,
            None => {
                let walked: Rc<[Place]> = walk(inner, PLACES_MAX).await?.into();
                self.places.borrow_mut().insert(walked).clone()
            }
        };
        let number = places.partition_point(|place| place.token < token);
        Ok(places.get(number.saturating_sub(1)).map_or(0, |place| place.at))
    }
}

/// Walks over all partitions, which have to ascend and to end with the last key of Statistics.
async fn walk(inner: &Rc<Inner>, limit: usize) -> Result<Vec<Place>, SstableError> {
    let corrupt = |at, what| Malformed::invalid(at, what).of(Component::Data, &inner.data.path);
    let mut stream = Stream::new(Rc::clone(inner), &[], false, READ_BYTES_MAX);
    let mut notes = Notes { places: Vec::new(), spacing: SPACING_BYTES, limit };
    let (mut at, mut last) = (0, None::<(Token, Vec<u8>)>);
    while at < inner.data.length() {
        stream.open_partition(at).await?;
        let token = murmur3_token(stream.key());
        if let Some((last_token, last_key)) = &last
            && compare_decorated((*last_token, last_key), (token, stream.key())).is_ge()
        {
            return Err(corrupt(at, "partitions are out of order"));
        }
        notes.add(Place { token, at });
        let (last_token, key) = last.get_or_insert((token, Vec::new()));
        *last_token = token;
        key.clear();
        key.extend_from_slice(stream.key());
        at = stream.skip_rest().await?;
        reactor::maybe_yield().await;
    }
    if last.as_ref().map(|(_, key)| key.as_slice()) != Some(inner.last_key()) {
        return Err(corrupt(at, "the last partition is not the one that the statistics name"));
    }
    Ok(notes.places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_stay_few_and_keep_the_first() {
        let mut notes = Notes { places: Vec::new(), spacing: 10, limit: 8 };
        for number in 0..1000 {
            notes.add(Place { token: Token(number), at: number as u64 * 7 });
        }
        assert!(notes.places.len() <= 8 && notes.places.len() >= 4, "{:?}", notes.places);
        assert_eq!(notes.places[0], Place { token: Token(0), at: 0 });
        let apart =
            |pair: &[Place]| pair[0].token < pair[1].token && pair[1].at - pair[0].at >= notes.spacing / 2;
        assert!(notes.places.windows(2).all(apart), "{:?}", notes.places);
    }
}
