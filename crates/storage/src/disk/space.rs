//! Measures free space, more often the less there is, and closes and opens the node for writes.
//!
//! On the disk of table files, the mark has to stay free, plus the bytes in memtables, plus the bytes the log
//! may take until the next measurement: all acknowledged writes can then be flushed, however full the disk
//! is. Compactions may use the mark's part, but not the others.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::{Deadline, Group, metrics};

use crate::error::StorageError;
use crate::shard::Storage;

/// Longest time between two measurements.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(10);
/// Shortest time between two measurements, which also applies while writes are refused.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(250);
/// Upper bound on the bytes by which a disk fills in a second; decides when to measure next.
const FILLED_PER_SECOND: u64 = 2 << 30;
/// Writes are taken again when free space is this part (one in so many) of the mark above the mark.
const RETURN_PART: u64 = 16;

/// Segments that a shard's log may begin between two measurements.
const LOG_SEGMENTS: u64 = 2;

/// The bytes of a disk that have to stay free for writes to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskMark {
    /// A folder on the disk.
    pub path: PathBuf,
    /// Bytes that have to be free.
    pub free_bytes_min: u64,
}

/// The result of a measurement.
struct Space {
    /// The first disk with too little space, with the bytes that are free and that should be.
    found: Option<(PathBuf, u64, u64)>,
    /// Free bytes beyond those that have to stay free, on the disk with the fewest.
    headroom: u64,
    /// Bytes that compactions may fill.
    room: u64,
}

impl Storage {
    /// Starts the measuring task; only shard 0 has it, and only if there is a mark.
    pub(crate) fn start_watching_space(&self) {
        if self.0.shard != 0 || self.0.config.disk_marks.is_empty() {
            return;
        }
        let Ok(gate) = self.0.tasks.enter() else { return };
        let storage = self.clone();
        reactor::spawn(Group::BACKGROUND, async move {
            storage.watch_space().await;
            drop(gate);
        })
        .detach();
    }

    async fn watch_space(&self) {
        let mut full: Option<PathBuf> = None;
        while !self.0.draining.get() {
            let stopped = self.0.stopped.wait();
            let held = self
                .on_every_shard(Group::ADMIN, (), async |storage, ()| Ok(storage.0.throttle.dirty() as u64));
            // While a shard starts it cannot be called: the next measurement will do.
            let held = held.await.map_or(0, |held| held.into_iter().sum());
            let Space { found, headroom, room } = self.look_at_space(full.as_ref(), held).await;
            if found.as_ref().map(|(path, ..)| path) != full.as_ref() {
                match &found {
                    Some((path, free, min)) => {
                        reactor::error!("the disk is nearly full: writes are refused until there is space";
                        path = path.display(), free_bytes = free, free_bytes_min = min)
                    }
                    None => reactor::info!("the disk has space again: writes are taken"),
                }
                full = found.as_ref().map(|(path, ..)| path.clone());
            }
            let told = self.on_every_shard(Group::ADMIN, (found, room), async |storage, (found, room)| {
                storage.0.disk.set_full(found);
                storage.0.disk.room.set(room);
                Ok(())
            });
            if let Err(error) = told.await
                && full.is_some()
            {
                reactor::warn_limited!("a shard was not told of the disk's space"; error = error);
            }
            let pause = match full {
                Some(_) => LOOK_EVERY_MIN,
                None => next_look(headroom),
            };
            let _ = reactor::timeout(Deadline::after(pause), stopped).await;
        }
    }

    /// Measures all disks; `held` is the number of bytes in the memtables of all shards.
    async fn look_at_space(&self, full: Option<&PathBuf>, held: u64) -> Space {
        let (mut headroom, mut room, mut found) = (u64::MAX, u64::MAX, None);
        let config = &self.0.config;
        let log =
            LOG_SEGMENTS.saturating_mul(config.segment_bytes as u64).saturating_mul(self.0.shards as u64);
        for mark in &config.disk_marks {
            let free = match reactor::file::available_space(&mark.path).await {
                Ok(free) => free,
                Err(error) => {
                    // The free space is unknown: a write that finds the disk full reports it.
                    let error = StorageError::io("look at the free space of", &mark.path, error);
                    reactor::warn_limited!("free space is not known"; error = error);
                    continue;
                }
            };
            let held = log.saturating_add(if mark.path == config.data_dir { held } else { 0 });
            let least = mark.free_bytes_min.saturating_add(held);
            publish(&mark.path, free, least);
            let again = if full == Some(&mark.path) { least / RETURN_PART } else { 0 };
            let min = least.saturating_add(again);
            if free < min {
                found = found.or(Some((mark.path.clone(), free, least)));
            }
            headroom = headroom.min(free.saturating_sub(min));
            if mark.path == config.data_dir {
                room = free.saturating_sub(held);
            }
        }
        Space { found, headroom, room }
    }
}

/// Shows a disk's free bytes, and how many of them have to stay free for writes to be taken.
fn publish(folder: &Path, free: u64, least: u64) {
    let folder = folder.display().to_string();
    for (name, help, bytes) in [
        ("ceto_disk_free_bytes", "Bytes free on the disk of the folder, when last measured.", free),
        ("ceto_disk_free_bytes_min", "Free bytes below which writes are refused.", least),
    ] {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        metrics::gauge(name, help, &[("folder", &folder)]).set(bytes);
    }
}

fn next_look(headroom: u64) -> Duration {
    Duration::from_millis((headroom / (FILLED_PER_SECOND / 1000)).min(60_000))
        .clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_room_the_sooner_the_next_look() {
        assert_eq!(next_look(0), LOOK_EVERY_MIN);
        assert_eq!(next_look(2 << 30), Duration::from_millis(1000));
        assert_eq!(next_look(u64::MAX), LOOK_EVERY_MAX);
    }
}
