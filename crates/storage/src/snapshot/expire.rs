//! Removes expired snapshots, on shard 0; sleeps until the next one expires.

use std::time::Duration;

use reactor::{Deadline, Event, Group};

use super::list::remove;
use super::{Describer, SnapshotsOf};
use crate::shard::Storage;

/// Longest sleep while a snapshot waits to expire, so that a change of the clock does not matter for long.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A shard's state for snapshots.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Writes tables as CQL.
    pub(super) describer: std::cell::RefCell<Option<Describer>>,
    /// Notified when there may be a snapshot that expires.
    pub(super) expiring: Event,
}

impl Storage {
    /// Sets the function that writes a table as CQL, for `schema.cql`; without it snapshots have no such
    /// file.
    pub fn set_describer(&self, describer: Describer) {
        *self.0.snapshots.describer.borrow_mut() = Some(describer);
    }

    /// Starts the task that removes expired snapshots; only shard 0 has it.
    pub(crate) fn start_expiring(&self) {
        if self.0.shard != 0 {
            return;
        }
        let Ok(gate) = self.0.tasks.enter() else { return };
        let storage = self.clone();
        reactor::spawn(Group::BACKGROUND, async move {
            storage.expire_snapshots().await;
            drop(gate);
        })
        .detach();
    }

    async fn expire_snapshots(&self) {
        while !self.0.draining.get() {
            // Registered before the snapshots are listed, so that no request meanwhile is missed.
            let asked = self.0.snapshots.expiring.wait();
            let now = reactor::wall_clock_us() / 1_000_000;
            let mut next = None;
            match self.snapshots(&SnapshotsOf::default()).await {
                Ok(snapshots) => {
                    for snapshot in snapshots {
                        let Some(end) = snapshot.expires_at_seconds else { continue };
                        if end > now {
                            next = Some(next.map_or(end, |next: i64| next.min(end)));
                        } else if let Err(error) = remove(&snapshot).await {
                            reactor::warn!("a snapshot that is over cannot be removed yet"; error = error);
                            next = Some(now + 1);
                        } else {
                            reactor::info!("a snapshot is over and was removed";
                                tag = snapshot.tag, keyspace = snapshot.keyspace, table = snapshot.table);
                        }
                    }
                }
                Err(error) => reactor::warn!("snapshots cannot be listed"; error = error),
            }
            match next {
                // No snapshot expires: sleep until one with an end is taken.
                None => asked.await,
                Some(end) => {
                    let left = Duration::from_secs(u64::try_from(end - now).unwrap_or(0)).min(LOOK_EVERY);
                    let _ = reactor::timeout(Deadline::after(left.max(Duration::from_secs(1))), asked).await;
                }
            }
        }
    }

    /// Ends the task of [`Storage::start_expiring`], once the shard is draining.
    pub(crate) fn wake_expiring(&self) {
        self.0.snapshots.expiring.notify_all();
    }
}
