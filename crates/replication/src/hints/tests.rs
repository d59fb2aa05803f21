//! Files of hints: what is written is read back, whatever is torn or damaged around it.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use proptest::prelude::*;
use reactor::file::{self, AlignedBuf, File, OpenOptions};
use reactor::sim::World;

use super::HintsError;
use super::format::{BadHeader, Found, HEADER_BYTES, Header, Hint, entry_at};
use super::reader::{Next, Reader};

const SALT: u32 = 0x5a17;
const ENTRY_BYTES_MAX: usize = 1 << 20;

fn hint(number: u64, bytes: usize) -> Hint {
    let mutation: Vec<u8> = (0..bytes).map(|at| (at as u64 * 7 + number) as u8).collect();
    Hint {
        born_us: -(number.cast_signed()),
        version: number + 1,
        since: number + 2,
        attempts: number as u8,
        mutation: mutation.into(),
    }
}

fn header() -> Header {
    Header { host: [3; 16], created_us: 1_700_000_000_000_000, salt: SALT }
}

/// A file of hints, and the offsets at which they begin; the last one is the file's end.
fn file_of(hints: &[Hint]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = header().encode();
    let mut begins = vec![bytes.len()];
    for hint in hints {
        hint.append(SALT, bytes.len() as u64, &mut bytes);
        begins.push(bytes.len());
    }
    (bytes, begins)
}

/// All that a reader finds in a file with these bytes.
fn read(bytes: Vec<u8>, from: u64) -> Result<Vec<Next>, String> {
    let mut world = World::new(1);
    let (found, bytes) = (Rc::new(Cell::new(None)), Rc::new(bytes));
    let of_node = Rc::clone(&found);
    let id = world.add_node(1, move |_| {
        let (found, bytes) = (Rc::clone(&of_node), Rc::clone(&bytes));
        async move {
            let path = Path::new("/hints");
            file::create_dir_all("/").await.expect("a folder");
            let options = OpenOptions::new().write(true).create(true).truncate(true);
            let file = File::open(path, options).await.expect("a file");
            let mut buf = AlignedBuf::with_len(bytes.len());
            buf.copy_from_slice(&bytes);
            file.write_at(0, buf).await.0.expect("a write");
            found.set(Some(all(path, from).await.map_err(|error| error.to_string())));
        }
    });
    let ended = world.run_steps(10_000_000, |world| world.outcome(id).is_some());
    assert!(matches!(world.outcome(id), Some(Ok(()))), "{ended:?}: {:?}", world.outcome(id));
    found.take().expect("the node has read")
}

async fn all(path: &Path, from: u64) -> Result<Vec<Next>, HintsError> {
    let mut reader = Reader::open(path, from, ENTRY_BYTES_MAX).await?;
    let mut found = Vec::new();
    loop {
        let next = reader.next().await?;
        let is_end = matches!(next, Next::End { .. });
        found.push(next);
        if is_end {
            return Ok(found);
        }
    }
}

#[test]
fn a_header_comes_back_and_damage_is_noticed() {
    let bytes = header().encode();
    assert_eq!(bytes.len(), HEADER_BYTES);
    assert_eq!(Header::decode(&bytes), Ok(header()));
    for at in 0..bytes.len() {
        assert_eq!(Header::decode(&bytes[..at]), Err(BadHeader::Cut), "{at} bytes");
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(Header::decode(&damaged), Err(BadHeader::Damaged), "byte {at}");
    }
    assert_eq!(Header::decode(&[0; HEADER_BYTES]), Err(BadHeader::Cut));
}

#[test]
fn an_entry_is_one_only_at_its_place_in_its_file() {
    let hint = hint(9, 30);
    let mut bytes = Vec::new();
    hint.append(SALT, 40, &mut bytes);
    assert_eq!(entry_at(&bytes, SALT, 40, ENTRY_BYTES_MAX), Found::Hint(hint.clone(), bytes.len()));
    assert_eq!(entry_at(&bytes, SALT, 41, ENTRY_BYTES_MAX), Found::Nothing);
    assert_eq!(entry_at(&bytes, SALT + 1, 40, ENTRY_BYTES_MAX), Found::Nothing);
    assert_eq!(
        entry_at(&bytes, SALT, 40, bytes.len() - 1),
        Found::Nothing,
        "longer than any that is written"
    );
    for at in 0..bytes.len() {
        assert!(matches!(entry_at(&bytes[..at], SALT, 40, ENTRY_BYTES_MAX), Found::Begun(_)), "{at} bytes");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(entry_at(&damaged, SALT, 40, ENTRY_BYTES_MAX), Found::Nothing, "byte {at}");
    }
}

#[test]
fn hints_come_back_in_their_order_from_any_of_them_on() {
    // One is longer than the reader's window.
    let hints: Vec<Hint> =
        [0, 1, 100, 400_000, 3].iter().zip(0..).map(|(bytes, n)| hint(n, *bytes)).collect();
    let (bytes, begins) = file_of(&hints);
    for first in 0..hints.len() {
        let from = if first == 0 { 0 } else { begins[first] as u64 };
        let rest = hints.iter().zip(&begins[1..]).skip(first);
        let mut expected: Vec<Next> = rest.map(|(hint, end)| Next::Hint(hint.clone(), *end as u64)).collect();
        expected.push(Next::End { torn_bytes: 0 });
        assert_eq!(read(bytes.clone(), from), Ok(expected), "from hint {first}");
    }
}

/// The corpus of the fuzzer begins with a file that this code wrote.
#[test]
fn the_file_that_the_fuzzer_begins_with_is_read_to_its_end() {
    let corpus = include_bytes!("../../../../fuzz/corpus/hints/file");
    let hints = [hint(1, 40), hint(2, 0)];
    assert_eq!(corpus.as_slice(), file_of(&hints).0);
    super::fuzzing::hints(corpus);
}

#[test]
fn a_damaged_header_is_told_with_its_file() {
    let (mut bytes, _) = file_of(&[hint(1, 10)]);
    bytes[20] ^= 1;
    assert_eq!(read(bytes, 0), Err("/hints is damaged at byte 0".to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A cut costs the hint that it cuts, and is told as the torn end.
    #[test]
    fn a_torn_end_is_cut(sizes in prop::collection::vec(0..300usize, 1..6), cut in 0..2000usize) {
        let hints: Vec<Hint> = sizes.iter().zip(0..).map(|(bytes, n)| hint(n, *bytes)).collect();
        let (mut bytes, begins) = file_of(&hints);
        let cut = HEADER_BYTES + cut % (bytes.len() - HEADER_BYTES);
        bytes.truncate(cut);
        let whole = begins[1..].iter().filter(|end| **end <= cut).count();
        let found = read(bytes, 0).expect("a file that can be read");
        prop_assert_eq!(found.len(), whole + 1);
        let torn_bytes = (cut - begins[whole]) as u64;
        prop_assert_eq!(&found[whole], &Next::End { torn_bytes });
    }

    /// Damage costs the hints that it hits, is told with its place, and no other hint is lost or changed.
    #[test]
    fn damage_costs_what_it_hits(
        sizes in prop::collection::vec(0..300usize, 1..6),
        place in 0..2000usize,
        flip in 1..=255u8,
    ) {
        let hints: Vec<Hint> = sizes.iter().zip(0..).map(|(bytes, n)| hint(n, *bytes)).collect();
        let (mut bytes, begins) = file_of(&hints);
        let place = HEADER_BYTES + place % (bytes.len() - HEADER_BYTES);
        bytes[place] ^= flip;
        let hit = begins[1..].iter().filter(|end| **end <= place).count();
        let mut expected = Vec::new();
        for (at, hint) in hints.iter().enumerate() {
            if at != hit {
                expected.push(Next::Hint(hint.clone(), begins[at + 1] as u64));
            } else if at + 1 < hints.len() {
                let bytes = (begins[at + 1] - begins[at]) as u64;
                expected.push(Next::Damage { offset: begins[at] as u64, bytes });
            }
        }
        let is_last = hit + 1 == hints.len();
        let torn_bytes = if is_last { (begins[hit + 1] - begins[hit]) as u64 } else { 0 };
        expected.push(Next::End { torn_bytes });
        prop_assert_eq!(read(bytes, 0), Ok(expected));
    }

    /// Bytes of a client that look like an entry are none.
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut file = header().encode();
        file.extend_from_slice(&bytes);
        let found = read(file, 0).expect("a file that can be read");
        let is_ended = matches!(found.last(), Some(Next::End { .. }));
        prop_assert!(is_ended, "{:?}", found);
    }
}
