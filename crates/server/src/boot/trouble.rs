//! Reactions to disk failures: `disk_failure_policy` and `commit_failure_policy`.
//!
//! The storage of a shard reports trouble; shard 0 decides for the node. Unless a policy says otherwise, a
//! request that meets a damaged file fails and the node continues; `storage::tablet::damage` decides about
//! the file. A commit log that could not be synced accepts no more writes until a restart, whatever the
//! policy: otherwise lost writes could be acknowledged.

use std::rc::Rc;

use reactor::{Group, mesh};
use storage::{FailurePolicy, Trouble};

use super::Shard;
use crate::admin::node::{self, NodeState};

/// Exit code of a node that ended because its disk failed.
const DIED: i32 = 1;

/// Watches this shard's storage; the task ends with the shard.
pub(super) fn watch(shard: &Rc<Shard>) {
    let storage = shard.storage().clone();
    reactor::spawn(Group::ADMIN, async move {
        loop {
            let trouble = storage.next_trouble().await;
            let told = mesh::call(0, Group::ADMIN, move || act(trouble));
            if told.await.is_err() {
                return;
            }
        }
    })
    .detach();
}

/// The consequence of trouble under a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consequence {
    /// Only the request fails.
    None,
    /// Writes fail until a restart; reads continue.
    StopWrites,
    /// The native transport is turned off.
    Stop,
    /// The process ends.
    Die,
}

fn consequence(trouble: &Trouble, disk: FailurePolicy, commit: FailurePolicy) -> Consequence {
    let of = |policy: FailurePolicy| match policy {
        FailurePolicy::Die => Consequence::Die,
        FailurePolicy::Stop | FailurePolicy::StopParanoid => Consequence::Stop,
        FailurePolicy::StopCommit | FailurePolicy::BestEffort | FailurePolicy::Ignore => Consequence::None,
    };
    match trouble {
        Trouble::Data { .. } => of(disk),
        // A damaged file does not mean a damaged disk: only the requests that need the file fail, except
        // under the strictest policies.
        Trouble::Corrupt { .. } => match disk {
            FailurePolicy::Die | FailurePolicy::StopParanoid => of(disk),
            _ => Consequence::None,
        },
        Trouble::Commitlog { .. } if commit == FailurePolicy::StopCommit => Consequence::StopWrites,
        Trouble::Commitlog { .. } => of(commit),
    }
}

async fn act(trouble: Trouble) {
    // Before the node serves, an error stops the start anyway.
    let Ok(state) = NodeState::here() else { return };
    let admin = &state.config.admin;
    let (event, key, reason) = match &trouble {
        Trouble::Data { reason } => ("a disk failed", "disk_failure_policy", reason),
        Trouble::Corrupt { reason } => ("a table file is damaged", "disk_failure_policy", reason),
        Trouble::Commitlog { reason } => ("the commit log's disk failed", "commit_failure_policy", reason),
    };
    match consequence(&trouble, admin.disk_failure_policy, admin.commit_failure_policy) {
        Consequence::None => {
            reactor::error_limited!("{event}: requests that need it fail, the node goes on ({key})"; reason = reason)
        }
        Consequence::StopWrites => {
            reactor::error_limited!("the commit log failed: writes fail until a restart, reads go on ({})", key; reason = reason);
            for shard in 0..reactor::shard_count() {
                let stop = || async {
                    if let Some(shard) = reactor::local::<Shard>() {
                        shard.storage().stop_writes();
                    }
                };
                // A shard that does not answer has ended, and accepts no writes.
                let _ = mesh::call(shard, Group::ADMIN, stop).await;
            }
        }
        Consequence::Stop => {
            if state.listeners.borrow().is_empty() {
                return;
            }
            reactor::error!("{event}: clients are sent away until `ceto ctl enablebinary` ({key})"; reason = reason);
            if let Err(error) = node::disable_native_transport().await {
                reactor::error!("the native transport cannot be stopped"; error = format!("{error:?}"));
            }
        }
        Consequence::Die => {
            reactor::error!("{event}: the node ends ({key})"; reason = reason);
            // Nothing is flushed: the commit log has the contents of memtables, and the disk cannot be
            // trusted.
            std::process::exit(DIED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_follow_cassandras_words() {
        use FailurePolicy::{BestEffort, Die, Ignore, Stop, StopCommit, StopParanoid};
        let reason = || "f".to_owned();
        let of = |trouble: Trouble, disk, commit| consequence(&trouble, disk, commit);
        for (policy, expected) in [
            (Die, Consequence::Die),
            (StopParanoid, Consequence::Stop),
            (Stop, Consequence::Stop),
            (BestEffort, Consequence::None),
            (Ignore, Consequence::None),
        ] {
            assert_eq!(of(Trouble::Data { reason: reason() }, policy, Ignore), expected);
        }
        for (policy, expected) in
            [(Die, Consequence::Die), (StopParanoid, Consequence::Stop), (Stop, Consequence::None)]
        {
            assert_eq!(of(Trouble::Corrupt { reason: reason() }, policy, Ignore), expected);
        }
        for (policy, expected) in [
            (Die, Consequence::Die),
            (Stop, Consequence::Stop),
            (StopCommit, Consequence::StopWrites),
            (Ignore, Consequence::None),
        ] {
            assert_eq!(of(Trouble::Commitlog { reason: reason() }, Ignore, policy), expected);
        }
    }
}
