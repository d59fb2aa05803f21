//! Compares the data that a crash left with the history.

use std::collections::BTreeMap;

use model::Token;

use super::read::{Question, WRONG, whole};
use super::{SLOTS, TIMESTAMP_GAP, Worker, place, seconds, tablet_of};
use crate::history::SeenTable;

impl Worker {
    /// Compares what a crash left with the history, and settles what was in doubt.
    pub(super) async fn check_after_start(&self) -> Result<(), String> {
        self.check_schema()?;
        let now = seconds();
        let mut found: BTreeMap<usize, SeenTable> = BTreeMap::new();
        for slot in 0..SLOTS {
            let Some(table) = self.table_id(slot) else { continue };
            for shard in 0..self.shards {
                let question = Question {
                    table,
                    key: None,
                    tokens: (Token::MINIMUM, Token::MAXIMUM),
                    slices: whole(),
                    reversed: false,
                    now,
                    stop_after: usize::MAX,
                };
                let asked = match self.ask(shard, question).await {
                    Err(words)
                        if !words.starts_with(WRONG)
                            && self.shared.borrow_mut().reads_are_refused(&words) =>
                    {
                        None
                    }
                    asked => asked?,
                };
                let Some(answer) = asked else {
                    // The disk failed the check itself, or a name is away: the next life does it.
                    self.shared.borrow_mut().over = true;
                    return std::future::pending().await;
                };
                let seen = found.entry(slot).or_default();
                seen.extend(answer.into_iter().map(|(key, partition, _)| (key, partition)));
            }
        }
        let mut shared = self.shared.borrow_mut();
        let shared = &mut *shared;
        let before = shared.shards.1;
        let moved = std::mem::take(&mut shared.moved);
        let slots: Vec<usize> = (0..SLOTS).filter(|slot| shared.tables[*slot].is_some()).collect();
        let loses = shared.lost_unsynced && !shared.batch;
        for shard in 0..before {
            let owns = |slot: usize, key: u8| place((slot, tablet_of(key)), before, &moved) == shard;
            let durable = shared.durable[shard];
            shared.history.settle(shard, durable, loses, &slots, now, &found, &owns)?;
        }
        shared.history.all_settled();
        // What was settled without being seen (a deletion of nothing) must not matter to what comes.
        shared.timestamps += TIMESTAMP_GAP;
        shared.lost_unsynced = false;
        shared.durable = vec![shared.history.len(); self.shards];
        shared.shards.1 = self.shards;
        Ok(())
    }

    pub(super) fn check_schema(&self) -> Result<(), String> {
        let schema = self.storage.schema();
        let mut shared = self.shared.borrow_mut();
        if shared.keyspace && schema.keyspace("sim").is_none() {
            return Err("the keyspace is gone".to_owned());
        }
        for slot in 0..SLOTS {
            let there =
                schema.table("sim", &format!("t{slot}")).map(|table| u128::from_be_bytes(table.id().0));
            let known = shared.tables[slot];
            match shared.doubtful {
                _ if there == known => {}
                Some((doubtful, table)) if doubtful == slot && there == table => {
                    shared.tables[slot] = there;
                    shared.history.forget(slot);
                }
                _ => return Err(format!("table {slot}: the schema has {there:?}, it should have {known:?}")),
            }
        }
        shared.doubtful = None;
        if let Some((slot, dropped)) = shared.altering.take()
            && let Some(table) = schema.table("sim", &format!("t{slot}"))
        {
            let known = shared.history.dropped(slot).map_or(0, |known| known.times);
            match table.definition().revision {
                revision if revision == u64::from(dropped.times) => shared.history.drop_second(slot, dropped),
                revision if revision == u64::from(known) => {}
                other => return Err(format!("table {slot} has revision {other}, not {known} or one more")),
            }
        }
        Ok(())
    }
}
