//! Reads the manifest of an earlier process, and begins the logs of this one.

use std::collections::BTreeMap;
use std::path::Path;

use super::check::Missing;
use super::format::{self, Current};
use super::{FileKey, FileState, Manifest, State};
use crate::error::StorageError;
use crate::records::{self, Parsed};

const CURRENT: &str = "current";
const CURRENT_BYTES_MAX: usize = 4096;
/// If the logs together have more bytes, a start rewrites them.
const LOGS_BYTES_MAX: usize = 1 << 20;

/// The manifest of an earlier process, all shards together.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// `None` if there is no manifest yet.
    pub(crate) current: Option<Current>,
    pub(crate) state: State,
    /// The part of each log.
    by_shard: Vec<State>,
    bytes: usize,
    /// Whether one of its logs is missing.
    is_incomplete: bool,
}

/// The shard that a table file belongs to, whose log lists it. Shard 0 lists those that are not in it.
pub(crate) type Placement = BTreeMap<FileKey, usize>;

/// Applies the edits in the bytes of a log.
pub(super) fn replay<'b>(bytes: &'b [u8], path: &Path) -> Result<(State, Parsed<'b>), StorageError> {
    let corrupt = |offset: usize, reason: String| StorageError::ManifestCorrupt {
        path: path.to_owned(),
        offset: offset as u64,
        reason,
    };
    let parsed = records::parse(bytes, format::MAGIC).map_err(|d| corrupt(d.offset, d.reason))?;
    let mut state = State::default();
    for (payload, offset) in parsed.payloads.iter().zip(&parsed.offsets) {
        let edits = format::decode(payload)
            .ok_or_else(|| corrupt(*offset, "its record is none of this version".to_owned()))?;
        edits.into_iter().for_each(|edit| state.apply(edit));
    }
    Ok((state, parsed))
}

impl Listed {
    /// Reads all shards' logs; a log that is not there is `missing`.
    ///
    /// # Errors
    /// [`StorageError::ManifestCorrupt`]; file errors.
    pub(crate) async fn read(directory: &Path, missing: &mut Missing) -> Result<Self, StorageError> {
        let path = directory.join(CURRENT);
        let exists = reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))?;
        if !exists {
            return Ok(Self::default());
        }
        let bytes = reactor::file::read_all(&path, CURRENT_BYTES_MAX)
            .await
            .map_err(StorageError::of("read", &path))?;
        let current = Current::decode(&bytes).ok_or_else(|| StorageError::ManifestCorrupt {
            path,
            offset: 0,
            reason: "its checksum is wrong".to_owned(),
        })?;
        let mut listed = Self { current: Some(current), ..Self::default() };
        for shard in 0..current.shards {
            let path = Manifest::path_of(directory, current.epoch, shard);
            let exists = reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))?;
            if !exists {
                missing.add(format!("{}: a log of the manifest", path.display()));
                listed.is_incomplete = true;
                listed.by_shard.push(State::default());
                continue;
            }
            let bytes = records::read(&path).await?;
            let (state, parsed) = replay(&bytes, &path)?;
            listed.bytes += parsed.end;
            for (key, file) in &state.files {
                // Two logs list a file whose tablet was handed over when the process ended.
                let known = listed.state.files.entry(*key).or_insert(*file);
                *known = if *file == FileState::Removing { *file } else { *known };
            }
            listed.state.segments.extend(state.segments.iter().copied());
            listed.state.agreed = listed.state.agreed.max(state.agreed);
            listed.state.tenancies = listed.state.tenancies.iter().chain(state.tenancies.iter()).collect();
            listed.by_shard.push(state);
        }
        Ok(listed)
    }

    /// Makes logs with the contents of `parts`, one for each shard, unless the present logs have just that.
    /// Each table file is in the log of its shard, which will note its removal there. Returns the epoch of
    /// the valid logs.
    ///
    /// If the disk is full and there are logs for as many shards, they stay in use if each file is in the log
    /// of its shard and none that they list is about to leave (`keeps_files`); their surplus entries are
    /// removed at a later start.
    ///
    /// # Errors
    /// File errors.
    pub(crate) async fn go_on_with(
        &self,
        directory: &Path,
        parts: &[State],
        keeps_files: bool,
    ) -> Result<u64, StorageError> {
        let usable = self.current.filter(|c| c.shards == parts.len() && !self.is_incomplete);
        if let Some(current) = usable
            && parts == self.by_shard
            && self.bytes < LOGS_BYTES_MAX
        {
            return Ok(current.epoch);
        }
        let has_all =
            |(part, log): (&State, &State)| part.files.keys().all(|key| log.files.contains_key(key));
        let may_stay = keeps_files && parts.iter().zip(&self.by_shard).all(has_all);
        match (self.write(directory, parts).await, usable.filter(|_| may_stay)) {
            (Err(StorageError::DiskFull { path }), Some(current)) => {
                reactor::warn!("the disk is full: the manifest stays as it is"; path = path.display());
                Ok(current.epoch)
            }
            (written, _) => written,
        }
    }

    async fn write(&self, directory: &Path, parts: &[State]) -> Result<u64, StorageError> {
        crate::directory::ensure(directory).await?;
        let epoch = self.current.map_or(1, |current| current.epoch + 1);
        for (shard, part) in parts.iter().enumerate() {
            let path = Manifest::path_of(directory, epoch, shard);
            let bytes = part.encode();
            reactor::file::write_all_atomic(&path, &bytes).await.map_err(StorageError::of("write", &path))?;
        }
        let path = directory.join(CURRENT);
        let text = Current { epoch, shards: parts.len() }.encode();
        reactor::file::write_all_atomic(&path, text.as_bytes())
            .await
            .map_err(StorageError::of("write", &path))?;
        for entry in reactor::file::read_dir(directory).await.map_err(StorageError::of("list", directory))? {
            let of_epoch = entry.name.split_once('-').and_then(|(epoch, _)| epoch.parse::<u64>().ok());
            if of_epoch.is_some_and(|other| other != epoch) {
                // A leftover that cannot be removed is ignored, and a later start removes it.
                drop(reactor::file::remove_file(directory.join(&entry.name)).await);
            }
        }
        Ok(epoch)
    }
}

impl Manifest {
    /// The manifest of a new directory for one shard.
    ///
    /// # Errors
    /// File errors.
    pub(crate) async fn of_new(directory: &Path) -> Result<Self, StorageError> {
        let epoch = Listed::default().go_on_with(directory, &[State::default()], true).await?;
        Self::open(directory, epoch, 0).await
    }
}

impl State {
    /// The part of each shard: its tablets' files, its logs' segments, and the tenancies in its logs.
    pub(crate) fn parts(&self, placement: &Placement, shards: usize) -> Vec<State> {
        let mut parts = vec![State::default(); shards];
        for (key, file) in &self.files {
            let shard = placement.get(key).copied().unwrap_or(0);
            assert!(shard < shards, "file {key:?} is of shard {shard} of {shards}");
            parts[shard].files.insert(*key, *file);
        }
        for (log, slot) in &self.segments {
            parts[*log as usize % shards].segments.insert((*log, *slot));
        }
        for (key, tenancy) in self.tenancies.iter() {
            parts[key.0 as usize % shards].tenancies.insert(key, tenancy);
        }
        parts[0].agreed = self.agreed;
        parts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::manifest::Edit;

    async fn listed(directory: &Path) -> Listed {
        let mut missing = Missing::default();
        let listed = Listed::read(directory, &mut missing).await.unwrap();
        missing.settle(&[]).unwrap();
        listed
    }

    fn parts(state: &State, shards: usize) -> Vec<State> {
        state.parts(&Placement::new(), shards)
    }

    #[test]
    fn another_number_of_shards_begins_a_new_epoch_that_says_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        reactor::run_one(reactor::Config::default(), async move {
            let mut said = State { agreed: 3, ..State::default() };
            let mut epochs = BTreeSet::new();
            for (round, shards) in [1usize, 1, 3, 3, 2].into_iter().enumerate() {
                let before = listed(&path).await;
                assert_eq!(before.state, if round == 0 { State::default() } else { said.clone() }, "{round}");
                let epoch = before.go_on_with(&path, &parts(&said, shards), true).await.unwrap();
                let again = listed(&path).await.go_on_with(&path, &parts(&said, shards), true).await.unwrap();
                assert_eq!(again, epoch, "nothing has changed");
                epochs.insert(epoch);
                for shard in 0..shards {
                    let manifest = Manifest::open(&path, epoch, shard).await.unwrap();
                    let edit = Edit::Segment((shard as u32, round as u64));
                    manifest.note(&[edit]).await.unwrap();
                    said.apply(edit);
                }
                assert_eq!(reactor::file::read_dir(&path).await.unwrap().len(), 1 + shards, "{round}");
            }
            assert_eq!(epochs.len(), 3);
            let last = *epochs.last().unwrap();
            reactor::file::remove_file(Manifest::path_of(&path, last, 1)).await.unwrap();
            let mut missing = Missing::default();
            Listed::read(&path, &mut missing).await.unwrap();
            let told = missing.settle(&[]).unwrap_err().to_string();
            assert!(told.contains(&format!("{last}-1.log")), "{told}");
        });
    }

    #[test]
    fn notes_of_many_share_a_record_and_a_long_log_is_shortened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        reactor::run_one(reactor::Config::default(), async move {
            let manifest = Manifest::of_new(&path).await.unwrap();
            let before = manifest.records();
            let notes: Vec<_> = (0..64)
                .map(|slot| {
                    let manifest = manifest.clone();
                    reactor::spawn(reactor::current_group(), async move {
                        manifest.note(&[Edit::Segment((0, slot))]).await
                    })
                })
                .collect();
            for note in notes {
                note.await.unwrap().unwrap();
            }
            assert!(manifest.records() - before <= 3, "{} records", manifest.records() - before);
            let many: Vec<Edit> =
                (100..60_000).flat_map(|s| [Edit::Segment((0, s)), Edit::SegmentGone((0, s))]).collect();
            manifest.note(&many).await.unwrap();
            drop(manifest);
            let listed = listed(&path).await;
            assert_eq!(listed.state.segments, (0..64).map(|slot| (0, slot)).collect::<BTreeSet<_>>());
            let length = reactor::file::metadata_size(Manifest::path_of(&path, 1, 0)).await.unwrap();
            assert!(length < 1 << 18, "{length} bytes");
        });
    }
}
