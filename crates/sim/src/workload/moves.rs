//! Tablets move between shards. A life begins with them where a node that is alone has them.

use std::time::Duration;

use model::tablet::TabletId;
use reactor::Deadline;
use storage::{AgreedChanges, OwnTablet, OwnTablets};

use super::{MAP, Worker, below};

/// Longest time that moves take on a disk without faults.
const MOVED_WITHIN: Duration = Duration::from_secs(30);

impl Worker {
    /// Has tablets of a table move to other shards, and now and then waits for it.
    pub(super) async fn move_tablets(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        // What is in doubt is looked for on the shard that began it.
        let is_in_doubt = self.shared.borrow().history.is_in_doubt(|other| other == slot);
        if self.shards == 1 || is_in_doubt || !self.sync().await? {
            return Ok(());
        }
        let places: Vec<usize> = MAP
            .tablets()
            .map(|tablet| {
                let now = self.place(slot, tablet);
                if below(2) == 0 { now } else { below(self.shards as u64) as usize }
            })
            .collect();
        let own = places
            .iter()
            .enumerate()
            .map(|(tablet, shard)| (TabletId(tablet as u32), OwnTablet { shard: *shard as u16, since: 0 }));
        let tablets = [(table, OwnTablets::told(own))].into();
        for (tablet, shard) in places.iter().enumerate() {
            self.shared.borrow_mut().moved.insert((slot, tablet as u32), *shard);
        }
        let agreed = AgreedChanges { tablets, ..AgreedChanges::default() };
        // Nothing was agreed upon that the manifest would have to know.
        if let Err(error) = self.storage.apply_agreed(0, &agreed).await {
            return self.unless_faulty(&format!("tablets could not be told to move: {error}"));
        }
        if below(3) == 0 { self.moved().await.map(|_| ()) } else { Ok(()) }
    }

    /// Waits until no tablet moves; says whether that is so. A disk with faults may hold them up.
    pub(super) async fn moved(&self) -> Result<bool, String> {
        let moved = reactor::timeout(Deadline::after(MOVED_WITHIN), self.storage.tablets_settled()).await;
        match moved {
            Ok(()) => Ok(true),
            Err(_) => self.unless_faulty("tablets do not arrive").map(|()| false),
        }
    }

    /// Makes all writes so far durable: those of a tablet that moves are in the log of another shard than
    /// later ones, and a crash could not be explained by the ends of single logs. Says whether that is so.
    async fn sync(&self) -> Result<bool, String> {
        for shard in 0..self.shards {
            let before = self.shared.borrow().history.len();
            let synced = self
                .on(shard, async |storage| storage.sync_commitlog().await.map_err(|error| error.to_string()))
                .await;
            if let Err(error) = synced {
                return self.unless_faulty(&format!("a log could not be synced: {error}")).map(|()| false);
            }
            let mut shared = self.shared.borrow_mut();
            shared.durable[shard] = before.max(shared.durable[shard]);
        }
        Ok(true)
    }
}
