//! Reads a table file only to find damage: every component against its checksum, the index against itself and
//! the data.
//!
//! Nothing in memory is trusted: all components are read from the disk again. The checks, from the cheapest
//! on: the components that are read whole and their checksums; `Index.db` entry by entry, in order and within
//! the data, ending with the key that the summary names; `Data.db` against `Digest.crc32`. If rows are
//! requested or there is no digest, every chunk, partition and row is read, and each partition must be at its
//! position from the index.

use std::path::Path;
use std::rc::Rc;

use model::clustering::Slice;
use model::deletion::DeletionTime;
use model::{Table, Unfiltered, partition_key};
use reactor::file::{File, read_all};

use crate::descriptor::{Component, Descriptor};
use crate::error::{Malformed, Problem, SstableError};
use crate::index::reader::Entries;
use crate::scan::PartitionBound;
use crate::table_file::Sstable;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Longest `Digest.crc32` and `TOC.txt`.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// How much of a table file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerifyDepth {
    /// The components besides the data.
    Quick,
    /// The data's bytes too, against its digest.
    Digest,
    /// Every row too.
    Rows,
}

impl Sstable {
    /// Looks for damage in a table file. `go_on` is called with the number of bytes of the data read so far,
    /// several times, up to twice the data's size, and returns whether to continue. Returns whether the check
    /// ran to its end.
    ///
    /// # Errors
    /// [`SstableError`] naming the first component that is damaged or cannot be read.
    pub async fn verify(
        dir: &Path,
        descriptor: Descriptor,
        table: &Rc<Table>,
        depth: VerifyDepth,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<bool, SstableError> {
        check_contents(dir, descriptor).await?;
        // Reads and checks the parts it keeps: statistics, summary, filter, the offsets of chunks and our own
        // component.
        let sstable = Self::open(dir, descriptor, table).await?;
        sstable.verify_index().await?;
        if depth == VerifyDepth::Quick {
            return Ok(true);
        }
        let (has_digest, ended) = verify_digest(dir, descriptor, &mut go_on).await?;
        if !ended || has_digest && depth < VerifyDepth::Rows {
            return Ok(ended);
        }
        sstable.verify_rows(go_on).await
    }

    /// Goes through the index: keys ascend, data lies where data is, the last key is the summary's.
    async fn verify_index(&self) -> Result<(), SstableError> {
        let Some((index, counter)) = self.index_file() else { return Ok(()) };
        if let Some(recorded) = self.extras().checksum(Component::Index) {
            let (found, _) = checksum(&index.file, &index.path, &mut |_| true).await?;
            check(found, recorded).map_err(|problem| index.malformed(Malformed { offset: 0, problem }))?;
        }
        let mut entries = Entries::new((index, counter));
        let mut before: Option<(Vec<u8>, u64)> = None;
        loop {
            let at = entries.offset();
            let Some((key, position)) = entries.next().await? else { break };
            let is_behind = before.as_ref().is_none_or(|(last, last_position)| {
                let (a, b) = (model::token::murmur3_token(last), model::token::murmur3_token(key));
                *last_position < position && partition_key::compare_decorated((a, last), (b, key)).is_lt()
            });
            if !is_behind {
                return Err(index.malformed(Malformed::invalid(at, "the entry is out of order")));
            }
            if position >= self.data_bytes() {
                let data = self.data_bytes();
                return Err(index.malformed(Malformed::over(at, "place of a partition", position, data)));
            }
            let last = before.get_or_insert_default();
            last.0.clear();
            last.0.extend_from_slice(key);
            last.1 = position;
            reactor::maybe_yield().await;
        }
        let last = before.map(|(key, _)| key);
        if last.as_deref() != Some(self.last_key().1) {
            let what = "the last entry is not the one the summary names";
            return Err(index.malformed(Malformed::invalid(entries.offset(), what)));
        }
        Ok(())
    }

    /// Reads every row, and checks that each partition is where the index says, in order.
    async fn verify_rows(&self, mut go_on: impl FnMut(u64) -> bool) -> Result<bool, SstableError> {
        let path = self.descriptor().path(self.dir(), Component::Data);
        let damage = |at: u64, what| Malformed::invalid(at, what).of(Component::Data, &path);
        let mut entries = self.index_file().map(Entries::new);
        let mut scanner = self.scan(&PartitionBound::START, &PartitionBound::END, &[Slice::all()]).await?;
        let mut last: Option<Vec<u8>> = None;
        loop {
            let more = scanner.next_partition().await?;
            let at = scanner.position();
            if let Some(entries) = &mut entries {
                match (entries.next().await?, more) {
                    (None, false) => return Ok(true),
                    (Some((key, position)), true) if key == scanner.key() && position == at => {}
                    (Some(_), true) => return Err(damage(at, "another partition than the index says")),
                    (None, true) => return Err(damage(at, "a partition that the index does not have")),
                    (Some(_), false) => return Err(damage(at, "the index has more partitions")),
                }
            }
            if !more {
                return Ok(true);
            }
            if !self.may_contain(scanner.token(), scanner.key()) {
                let path = self.descriptor().path(self.dir(), Component::Filter);
                return Err(Malformed::invalid(0, "a partition of the data is not in it")
                    .of(Component::Filter, &path));
            }
            if let Some(last) = &last {
                let (a, b) = (model::token::murmur3_token(last), scanner.token());
                if partition_key::compare_decorated((a, last), (b, scanner.key())).is_ge() {
                    return Err(damage(at, "the partition is out of order"));
                }
            }
            last = Some(scanner.key().to_vec());
            let mut open = DeletionTime::LIVE;
            while let Some(next) = scanner.next().await? {
                if let Unfiltered::Change { deletion, .. } = next {
                    open = deletion;
                }
                reactor::maybe_yield().await;
            }
            if !open.is_live() {
                return Err(damage(at, "a range deletion has no end"));
            }
            if !go_on(at) {
                return Ok(false);
            }
            reactor::maybe_yield().await;
        }
    }
}

/// Looks whether all components are there that `TOC.txt` names.
async fn check_contents(dir: &Path, descriptor: Descriptor) -> Result<(), SstableError> {
    let path = descriptor.path(dir, Component::Toc);
    let toc = read_all(&path, TEXT_BYTES_MAX).await.map_err(SstableError::io(&path))?;
    let toc = String::from_utf8_lossy(&toc);
    let damage = |what| Malformed::invalid(0, what).of(Component::Toc, &path);
    let named: Vec<&str> = toc.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if !named.contains(&Component::Data.name()) {
        return Err(damage("it does not name the data"));
    }
    for component in descriptor.components().iter().filter(|component| named.contains(&component.name())) {
        let path = descriptor.path(dir, *component);
        if !reactor::file::exists(&path).await.map_err(SstableError::io(&path))? {
            return Err(Malformed::invalid(0, "it is named by TOC.txt and not there").of(*component, &path));
        }
    }
    Ok(())
}

/// Checks the data against the checksum of `Digest.crc32`. Returns whether there is a digest, and whether the
/// data was read to its end.
async fn verify_digest(
    dir: &Path,
    descriptor: Descriptor,
    go_on: &mut impl FnMut(u64) -> bool,
) -> Result<(bool, bool), SstableError> {
    let path = descriptor.path(dir, Component::Digest);
    let text = match read_all(&path, TEXT_BYTES_MAX).await {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((false, true)),
        Err(error) => return Err(SstableError::io(&path)(error)),
    };
    let recorded = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let Some(recorded) = recorded else {
        return Err(Malformed::invalid(0, "it is no number").of(Component::Digest, &path));
    };
    let path = descriptor.path(dir, Component::Data);
    let options = reactor::file::OpenOptions::new().read(true).direct(true);
    let file = File::open(&path, options).await.map_err(SstableError::io(&path))?;
    let (found, ended) = checksum(&file, &path, go_on).await?;
    if ended {
        check(found, recorded)
            .map_err(|problem| Malformed { offset: 0, problem }.of(Component::Data, &path))?;
    }
    Ok((true, ended))
}

/// CRC32 of a file. `go_on` is called with the number of bytes read so far. The second value is whether the
/// file was read to its end.
pub(crate) async fn checksum(
    file: &File,
    path: &Path,
    go_on: &mut impl FnMut(u64) -> bool,
) -> Result<(u32, bool), SstableError> {
    let length = file.size().await.map_err(SstableError::io(path))?;
    let (mut hasher, mut at) = (crc32fast::Hasher::new(), 0);
    while at < length {
        let wanted = usize::try_from(length - at).unwrap_or(usize::MAX).min(READ_BYTES);
        let bytes = file.read_range(at, wanted).await.map_err(SstableError::io(path))?;
        if bytes.is_empty() {
            break;
        }
        hasher.update(&bytes);
        at += bytes.len() as u64;
        if !go_on(at) {
            return Ok((0, false));
        }
        reactor::maybe_yield().await;
    }
    Ok((hasher.finalize(), true))
}

pub(crate) fn check(found: u32, recorded: u32) -> Result<(), Problem> {
    if found == recorded { Ok(()) } else { Err(Problem::Checksum { recorded, found }) }
}
