//! Writes to replicas what a read has shown that they lack.
//!
//! Invariant: a read at a level is answered only after all replicas that it counts have what it returns, so
//! that later reads at that level never go back behind it (Cassandra's blocking read repair).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use model::tablet::Replica;
use reactor::Deadline;
use smallvec::SmallVec;

use crate::error::ReplicationError;
use crate::plan::{Plan, Planned};
use crate::replicator::Replicator;
use crate::write::send::{self, Sent};

/// Writes each mutation to its replica, and waits until all have them.
///
/// # Errors
/// [`ReplicationError::TimedOut`] if some of them did not get it by the deadline: the data was read, and may
/// be lost to the next reader. It counts those that failed, as Cassandra's `BlockingReadRepair`.
pub(super) async fn write(
    replicator: &Replicator,
    plan: &Plan,
    lacking: Vec<(Planned, Vec<u8>)>,
    deadline: Deadline,
) -> Result<(), ReplicationError> {
    let born_us = reactor::wall_clock_us();
    let mut under_way: SmallVec<[(Planned, Sent); 5]> = SmallVec::new();
    for (planned, mutation) in lacking {
        let mutation: Rc<[u8]> = mutation.into();
        let sent = send::to(replicator, (&planned, plan.version()), &mutation, born_us, deadline);
        under_way.push((planned, sent));
    }
    let mut failed: SmallVec<[Replica; 5]> = SmallVec::new();
    let finished = poll_fn(|context| {
        under_way.retain(|(planned, sent)| match sent.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(failure)) => {
                let error = failure.at(planned.replica, plan.required);
                reactor::warn_limited!("a replica was not told what a read has shown that it lacks";
                    error = error);
                failed.push(planned.replica);
                false
            }
        });
        if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    // Those that do not answer in time have failed as well.
    let _in_time = reactor::timeout(deadline, finished).await;
    failed.extend(under_way.iter().map(|(planned, _)| planned.replica));
    failed.sort_unstable();
    failed.dedup();
    if failed.is_empty() {
        return Ok(());
    }
    let required = plan.required;
    let received = required.saturating_sub(failed.len() as u32);
    Err(ReplicationError::TimedOut { received, required, data_present: true })
}
