//! `verify`: whether a table file is undamaged and its components agree.
//!
//! Checked, in this order: every component named in TOC.txt exists; the digest of the data; the checksums in
//! Ceto.db of the other components; every component opens; every chunk's checksum, as the whole data is read;
//! partitions ascend by token and key, rows by clustering; the filter has every key; the index lists the same
//! keys in the same order, and leads to each of them; the statistics' number of partitions and range of
//! timestamps are correct. Problems are reported as they are found.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::sstable::{Component, Extras, Format, PartitionBound, Sstable};
use model::clustering::{OwnedPosition, Slice};
use model::hex;
use model::partition_key::compare_decorated;
use model::row::RowView;
use model::token::Token;
use model::{Table, Unfiltered};
use reactor::file::{File, OpenOptions, exists, read_all};
use reactor::{Group, spawn};

use self::index_walk::IndexWalk;
use super::ToolError;
use super::progress::Progress;
use super::target::Target;

mod index_walk;

/// Bytes of the data that are read at a time for the digest.
const READ_BYTES: usize = 1 << 20;
/// Largest TOC.txt and Digest.crc32 that are read.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Largest Ceto.db that is read.
const CETO_BYTES_MAX: usize = 16 << 20;
/// Lookups through the index under way at once.
const LOOKUPS_AT_ONCE: usize = 32;
/// With `--quick`, one partition in so many is looked up.
const QUICK_EVERY: u64 = 256;
/// Most problems of one kind that are reported; more are only counted.
const TOLD_MAX: usize = 20;

/// Collects the problems of one file.
struct Findings {
    path: PathBuf,
    count: usize,
}

impl Findings {
    fn tell(&mut self, problem: &str) {
        self.count += 1;
        match self.count {
            ..=TOLD_MAX => eprintln!("{}: {problem}", self.path.display()),
            _ if self.count == TOLD_MAX + 1 => eprintln!("{}: more problems follow", self.path.display()),
            _ => {}
        }
    }

    fn tell_of(&mut self, path: PathBuf, problem: &str) {
        let own = std::mem::replace(&mut self.path, path);
        self.tell(problem);
        self.path = own;
    }

    fn tell_error(&mut self, error: &ToolError) {
        self.count += 1;
        eprintln!("{error}"); // it names the file itself
    }
}

/// Checks one table file; an error when anything does not hold.
pub(super) async fn verify(target: &Target, quick: bool) -> Result<(), ToolError> {
    let path = target.path(Component::Data);
    let mut findings = Findings { path: path.clone(), count: 0 };
    if let Err(error) = components(target, &mut findings).await {
        findings.tell_error(&error);
    }
    if let Err(error) = digest(target, &mut findings).await {
        findings.tell_error(&error);
    }
    if let Err(error) = checksums(target, &mut findings).await {
        findings.tell_error(&error);
    }
    let partitions = match contents(target, quick, &mut findings).await {
        Ok(partitions) => partitions,
        Err(error) => {
            findings.tell_error(&error);
            0
        }
    };
    match findings.count {
        0 => {
            println!("{}: {partitions} partitions, all well", path.display());
            Ok(())
        }
        count => Err(ToolError::Problems { path, count }),
    }
}

/// Checks that every component in the list exists.
async fn components(target: &Target, findings: &mut Findings) -> Result<(), ToolError> {
    let path = target.path(Component::Toc);
    let list = read_all(&path, SMALL_BYTES_MAX).await.map_err(ToolError::io(&path))?;
    for name in String::from_utf8_lossy(&list).lines().filter(|name| !name.is_empty()) {
        let Some(component) = Component::parse(name) else { continue };
        let component_path = target.path(component);
        if !exists(&component_path).await.map_err(ToolError::io(&component_path))? {
            findings.tell_of(component_path, "missing, TOC.txt names it");
        }
    }
    Ok(())
}

/// The digest is that of all bytes of the data file.
async fn digest(target: &Target, findings: &mut Findings) -> Result<(), ToolError> {
    let digest_path = target.path(Component::Digest);
    if !exists(&digest_path).await.map_err(ToolError::io(&digest_path))? {
        return Ok(()); // where the list names it, that has been told
    }
    let recorded = read_all(&digest_path, SMALL_BYTES_MAX).await.map_err(ToolError::io(&digest_path))?;
    let recorded = String::from_utf8_lossy(&recorded).trim().parse::<u32>();
    let Ok(recorded) = recorded else {
        findings.tell_of(digest_path, "not a 32-bit number in decimal");
        return Ok(());
    };
    let path = target.path(Component::Data);
    let (found, length) = checksum(&path, "digest").await?;
    if found != recorded {
        findings.tell(&format!("digest of its {length} bytes is {found}, Digest.crc32 says {recorded}"));
    }
    Ok(())
}

/// CRC32 and length of a file.
async fn checksum(path: &Path, what: &str) -> Result<(u32, u64), ToolError> {
    let file =
        File::open(path, OpenOptions::new().read(true).direct(true)).await.map_err(ToolError::io(path))?;
    let length = file.size().await.map_err(ToolError::io(path))?;
    let mut progress = Progress::new(format!("{}: {what} of bytes", path.display()), length);
    let (mut crc, mut at) = (crc32fast::Hasher::new(), 0);
    while at < length {
        let bytes = file.read_at(at, READ_BYTES).await.map_err(ToolError::io(path))?;
        if bytes.is_empty() {
            break;
        }
        crc.update(&bytes);
        at += bytes.len() as u64;
        progress.at(at);
    }
    Ok((crc.finalize(), length))
}

/// Checks every component against its checksum in `Ceto.db`; files of other programs have none.
async fn checksums(target: &Target, findings: &mut Findings) -> Result<(), ToolError> {
    let path = target.path(Component::Ceto);
    if !exists(&path).await.map_err(ToolError::io(&path))? {
        return Ok(());
    }
    let bytes = read_all(&path, CETO_BYTES_MAX).await.map_err(ToolError::io(&path))?;
    let extras = match Extras::decode(&bytes) {
        Ok(extras) => extras,
        Err(problem) => {
            findings.tell_of(path, &problem.to_string());
            return Ok(());
        }
    };
    for (component, recorded) in extras.checksums {
        let path = target.path(component);
        // The digest covers the data, and was checked; missing components were reported.
        if matches!(component, Component::Data | Component::Digest)
            || !exists(&path).await.map_err(ToolError::io(&path))?
        {
            continue;
        }
        let (found, length) = checksum(&path, "checksum").await?;
        if found != recorded {
            let problem = format!("checksum of its {length} bytes is {found}, Ceto.db says {recorded}");
            findings.tell_of(path, &problem);
        }
    }
    Ok(())
}

/// Reads everything; the number of partitions.
async fn contents(target: &Target, quick: bool, findings: &mut Findings) -> Result<u64, ToolError> {
    let opened = target.open().await?;
    let sstable = &opened.sstable;
    let expected = u64::try_from(sstable.stats().partition_sizes.count()).unwrap_or(0);
    let path = target.path(Component::Data);
    let mut progress = Progress::new(format!("{}: partitions", path.display()), expected);
    // Tries are not read.
    let mut index = match target.descriptor.version.format() {
        Format::Big => Some(IndexWalk::open(target.path(Component::Index)).await?),
        Format::Bti => None,
    };
    let mut lookups = Lookups { sstable: sstable.clone(), keys: Vec::new() };
    let mut partition = PartitionCheck::new(sstable, opened.table.clone());
    let (start, end) = (PartitionBound::START, PartitionBound::END);
    let mut scanner = sstable.scan(&start, &end, &[Slice::all()]).await?;
    let (mut count, mut last): (u64, Option<(Token, Vec<u8>)>) = (0, None);
    while scanner.next_partition().await? {
        let (token, key) = (scanner.token(), scanner.key());
        if let Some((last_token, last_key)) = &last
            && compare_decorated((*last_token, last_key), (token, key)).is_ge()
        {
            findings.tell(&format!("partition {} stands behind {}", hex::blob(key), hex::blob(last_key)));
        }
        if !sstable.may_contain(token, key) {
            findings.tell_of(
                target.path(Component::Filter),
                &format!("partition {} is not in it, or outside the summary's keys", hex::blob(key)),
            );
        }
        if let Some(index) = &mut index {
            let problem = match index.next().await? {
                Some(entry) if entry.key == key => None,
                Some(entry) => Some(format!(
                    "key {} at byte {}, the data has {}",
                    hex::blob(entry.key),
                    entry.at,
                    hex::blob(key)
                )),
                None => Some(format!("ends before key {}, which the data has", hex::blob(key))),
            };
            problem.iter().for_each(|problem| findings.tell_of(target.path(Component::Index), problem));
        }
        if !quick || count.is_multiple_of(QUICK_EVERY) {
            lookups.add(token, key, findings).await?;
        }
        last = Some((token, key.to_vec()));
        partition.begin(key);
        partition.timestamp(scanner.deletion().timestamp, findings);
        if let Some(row) = scanner.static_row() {
            partition.row(row, findings);
        }
        while let Some(unfiltered) = scanner.next().await? {
            partition.check(&unfiltered, findings);
        }
        count += 1;
        progress.at(count);
    }
    lookups.finish(findings).await?;
    if let Some(index) = &mut index
        && let Some(entry) = index.next().await?
    {
        let problem = format!("key {} at byte {}, the data ends before it", hex::blob(entry.key), entry.at);
        findings.tell_of(target.path(Component::Index), &problem);
    }
    if count != expected {
        let problem = format!("says {expected} partitions, there are {count}");
        findings.tell_of(target.path(Component::Statistics), &problem);
    }
    let ends = last.as_ref().map(|(_, key)| key.as_slice());
    if ends.is_some_and(|key| key != sstable.last_key().1) {
        findings.tell_of(target.path(Component::Summary), "its last key is not the data's");
    }
    Ok(count)
}

/// Checks rows of one partition after another.
struct PartitionCheck {
    table: Rc<Table>,
    timestamps: std::ops::RangeInclusive<i64>,
    key: Vec<u8>,
    last: Option<OwnedPosition>,
}

impl PartitionCheck {
    fn new(sstable: &Sstable, table: Rc<Table>) -> Self {
        let stats = sstable.stats();
        Self { table, timestamps: stats.min_timestamp..=stats.max_timestamp, key: Vec::new(), last: None }
    }

    fn begin(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.last = None;
    }

    fn check(&mut self, unfiltered: &Unfiltered<'_>, findings: &mut Findings) {
        let position = unfiltered.position();
        if let Some(last) = &self.last
            && last.as_ref().compare(position, self.table.clustering_orders()).is_ge()
        {
            let (key, clustering) = (hex::blob(&self.key), hex::blob(position.prefix.0));
            findings.tell(&format!("partition {key}: clustering {clustering} stands out of order"));
        }
        match &mut self.last {
            Some(last) => {
                last.prefix.clear();
                last.prefix.extend_from_slice(position.prefix.0);
                last.weight = position.weight;
            }
            None => self.last = Some(position.to_owned()),
        }
        match unfiltered {
            Unfiltered::Row { row, .. } => self.row(*row, findings),
            Unfiltered::Change { deletion, .. } => self.timestamp(deletion.timestamp, findings),
        }
    }

    fn row(&mut self, row: RowView<'_>, findings: &mut Findings) {
        self.timestamp(row.liveness().timestamp, findings);
        self.timestamp(row.deletion().timestamp, findings);
        row.cells().for_each(|cell| self.timestamp(cell.timestamp, findings));
    }

    fn timestamp(&mut self, timestamp: i64, findings: &mut Findings) {
        if timestamp != model::deletion::NO_TIMESTAMP && !self.timestamps.contains(&timestamp) {
            let (key, range) = (hex::blob(&self.key), &self.timestamps);
            findings.tell(&format!(
                "partition {key}: timestamp {timestamp} is not within the statistics' {} to {}",
                range.start(),
                range.end()
            ));
        }
    }
}

/// Looks partitions up through filter, summary and index, several at once.
struct Lookups {
    sstable: Sstable,
    keys: Vec<(Token, Vec<u8>)>,
}

impl Lookups {
    async fn add(&mut self, token: Token, key: &[u8], findings: &mut Findings) -> Result<(), ToolError> {
        self.keys.push((token, key.to_vec()));
        if self.keys.len() < LOOKUPS_AT_ONCE { Ok(()) } else { self.finish(findings).await }
    }

    async fn finish(&mut self, findings: &mut Findings) -> Result<(), ToolError> {
        let look_up = |(token, key): (Token, Vec<u8>)| {
            let sstable = self.sstable.clone();
            let lookup = async move {
                let found = sstable.partition(token, &key, &[Slice::all()], false).await;
                (found.map(|reader| reader.is_some_and(|reader| reader.key() == key)), key)
            };
            spawn(Group::ADMIN, lookup)
        };
        let tasks: Vec<_> = self.keys.drain(..).map(look_up).collect();
        for task in tasks {
            let (found, key) = task.await.unwrap_or_else(|panicked| panic!("{panicked}"));
            match found {
                Ok(true) => {}
                Ok(false) => {
                    findings.tell(&format!("the index does not lead to partition {}", hex::blob(&key)))
                }
                Err(error) => findings.tell_error(&error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
