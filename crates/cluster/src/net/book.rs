//! Where the nodes were last heard of, and a file that keeps it, on shard 0.
//!
//! All addresses of a cluster may change at once. A node that has found one other node learns from it where
//! the rest are: first messages and pongs pass entries on. An entry gives way to one of a later start of its
//! node only; for the same start it stays. Invariant: entries are bounded, and one is kept only for a member
//! once members are known.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use wire::node::hello::{Heard, Uuid};

/// Entries of the book.
const ENTRIES_MAX: usize = 4096;
/// Longest file that is read.
const FILE_BYTES_MAX: usize = 1 << 20;

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    address: SocketAddr,
    generation: u64,
    /// Grows with each change of any entry.
    changed: u64,
}

/// Where nodes were last heard of.
#[derive(Debug, Default)]
pub(super) struct Book {
    places: BTreeMap<Uuid, Place>,
    changes: u64,
}

/// A line of the file: host id, address, generation.
fn line(host_id: &Uuid, place: &Place) -> String {
    format!("{} {} {}\n", model::hex::text(host_id), place.address, place.generation)
}

fn parse_line(line: &str) -> Option<(Uuid, SocketAddr, u64)> {
    let mut words = line.split(' ');
    let host_id = model::hex::parse(words.next()?)?.try_into().ok()?;
    let address = words.next()?.parse().ok()?;
    let generation = words.next()?.parse().ok()?;
    words.next().is_none().then_some((host_id, address, generation))
}

impl Book {
    /// The book in a file's bytes. A damaged file is an empty book: it holds only hints.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, crc) = text.rsplit_once("crc: ")?;
        if u32::from_str_radix(crc.trim_end(), 16) != Ok(crc32fast::hash(body.as_bytes())) {
            return None;
        }
        let mut book = Self::default();
        for line in body.lines() {
            let (host_id, address, generation) = parse_line(line)?;
            book.hear(host_id, address, generation);
        }
        Some(book)
    }

    pub(super) fn encode(&self) -> String {
        let body: String = self.places.iter().map(|(host_id, place)| line(host_id, place)).collect();
        format!("{body}crc: {:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    /// The book in a file, or an empty one where there is none or it is damaged.
    pub(super) async fn read(path: &Path) -> Self {
        match reactor::file::read_all(path, FILE_BYTES_MAX).await {
            Ok(bytes) => Self::decode(&bytes).unwrap_or_else(|| {
                reactor::warn!("the addresses of other nodes are damaged and start empty"; path = path.display());
                Self::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(error) => {
                reactor::warn!("the addresses of other nodes cannot be read: {error}"; path = path.display());
                Self::default()
            }
        }
    }

    /// Notes where a node was heard of; true if that is new.
    pub(super) fn hear(&mut self, host_id: Uuid, address: SocketAddr, generation: u64) -> bool {
        let is_new = match self.places.get(&host_id) {
            Some(place) => generation > place.generation,
            None => self.places.len() < ENTRIES_MAX,
        };
        if is_new {
            self.changes += 1;
            self.places.insert(host_id, Place { address, generation, changed: self.changes });
        }
        is_new
    }

    pub(super) fn address(&self, host_id: &Uuid) -> Option<SocketAddr> {
        self.places.get(host_id).map(|place| place.address)
    }

    /// Forgets nodes that are no members.
    pub(super) fn keep(&mut self, members: &BTreeSet<Uuid>) {
        self.places.retain(|host_id, _| members.contains(host_id));
    }

    /// The entries that changed last, at most `count`.
    pub(super) fn newest(&self, count: usize) -> Vec<Heard> {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|(_, place)| std::cmp::Reverse(place.changed));
        places
            .into_iter()
            .take(count)
            .map(|(host_id, place)| Heard {
                host_id: *host_id,
                address: place.address.to_string(),
                generation: place.generation,
            })
            .collect()
    }
}

/// Writes the book whenever it has changed, until the network stops; a burst of changes is one write.
pub(super) async fn keep_file(door: &super::door::Door, path: PathBuf) {
    let mut written = String::new();
    while door.book_changed().await {
        let text = door.book_text();
        if text == written {
            continue;
        }
        match reactor::file::write_all_atomic(&path, text.as_bytes()).await {
            Ok(()) => written = text,
            // The next change tries again: without the file a start asks the seeds.
            Err(error) => {
                reactor::warn_limited!("cannot keep the addresses of other nodes: {error}"; path = path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 7000))
    }

    #[test]
    fn a_later_start_replaces_an_address_and_an_earlier_one_does_not() {
        let mut book = Book::default();
        assert!(book.hear([1; 16], at(1), 5));
        assert!(!book.hear([1; 16], at(2), 5) && !book.hear([1; 16], at(2), 4));
        assert_eq!(book.address(&[1; 16]), Some(at(1)));
        assert!(book.hear([1; 16], at(3), 6));
        assert!(book.hear([2; 16], at(4), 1));
        assert_eq!(book.newest(1).iter().map(|heard| heard.host_id).collect::<Vec<_>>(), [[2; 16]]);
        book.keep(&[[1; 16]].into());
        assert_eq!((book.address(&[1; 16]), book.address(&[2; 16])), (Some(at(3)), None));
    }

    #[test]
    fn the_book_comes_back_from_its_file_and_damage_is_noticed() {
        let mut book = Book::default();
        book.hear([1; 16], at(1), 5);
        book.hear([2; 16], "[::1]:7000".parse().unwrap(), u64::MAX);
        let text = book.encode();
        let again = Book::decode(text.as_bytes()).expect("a whole book");
        assert_eq!(again.encode(), text);
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Book::decode(&bytes).is_none(), "byte {at}");
        }
    }

    #[test]
    fn the_book_is_bounded() {
        let mut book = Book::default();
        for number in 0..2 * ENTRIES_MAX as u128 {
            book.hear(number.to_be_bytes(), at(1), 1);
        }
        assert_eq!(book.places.len(), ENTRIES_MAX);
        assert_eq!(book.newest(16).len(), 16);
    }
}
