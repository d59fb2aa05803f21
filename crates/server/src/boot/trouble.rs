//! What the node does when a disk fails: `disk_failure_policy` and `commit_failure_policy`.
//!
//! A shard's storage tells of trouble; shard 0 decides for the node. As long as nobody decides otherwise a request that
//! meets a bad file fails and the node lives; what becomes of the file is decided in `storage::tablet::damage`. A commit log that could not be made durable takes no more writes until a
//! restart, whatever the policy: going on could acknowledge what is lost.

use std::rc::Rc;

use reactor::{Group, mesh};
use storage::{FailurePolicy, Trouble};

use super::Shard;
use crate::admin::node::{self, NodeState};

/// Exit code of a node that ended because its disk failed.
const DIED: i32 = 1;

/// Starts listening to this shard's storage; the task ends with the shard.
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

/// What a policy makes of a trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consequence {
    /// The request fails, nothing else.
    None,
    /// Writes fail until a restart, reads go on.
    StopWrites,
    /// Clients are sent away.
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
        // A damaged file is not a damaged disk: what needs it fails, and only the strictest do more.
        Trouble::Corrupt { .. } => match disk {
            FailurePolicy::Die | FailurePolicy::StopParanoid => of(disk),
            _ => Consequence::None,
        },
        Trouble::Commitlog { .. } if commit == FailurePolicy::StopCommit => Consequence::StopWrites,
        Trouble::Commitlog { .. } => of(commit),
    }
}

async fn act(trouble: Trouble) {
    // Before the node serves, an error stops the start by itself.
    let Ok(state) = NodeState::here() else { return };
    let admin = &state.config.admin;
    let (key, reason) = match &trouble {
        Trouble::Data { reason } | Trouble::Corrupt { reason } => ("disk_failure_policy", reason),
        Trouble::Commitlog { reason } => ("commit_failure_policy", reason),
    };
    match consequence(&trouble, admin.disk_failure_policy, admin.commit_failure_policy) {
        Consequence::None => {
            reactor::error_limited!("a disk failed; the node goes on ({})", key; reason = reason)
        }
        Consequence::StopWrites => {
            reactor::error_limited!("the commit log failed: writes fail until a restart, reads go on ({})", key; reason = reason);
            for shard in 0..reactor::shard_count() {
                let stop = || async {
                    if let Some(shard) = reactor::local::<Shard>() {
                        shard.storage().stop_writes();
                    }
                };
                // A shard that does not answer any more has ended, and takes no writes.
                let _ = mesh::call(shard, Group::ADMIN, stop).await;
            }
        }
        Consequence::Stop => {
            if state.listeners.borrow().is_empty() {
                return;
            }
            reactor::error!("a disk failed: clients are sent away until `ceto ctl enablebinary` ({})", key; reason = reason);
            if let Err(error) = node::disable_native_transport().await {
                reactor::error!("the native transport cannot be stopped"; error = format!("{error:?}"));
            }
        }
        Consequence::Die => {
            reactor::error!("a disk failed: the node ends ({})", key; reason = reason);
            // Nothing is flushed: what is in memory is in the commit log, and the disk is not to be trusted.
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
