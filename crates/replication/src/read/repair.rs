//! Writes to replicas what a read has shown that they lack.
//!
//! Invariant: a read at a level is answered only after all replicas that it counts have what it returns, so
//! that later reads at that level never go back behind it (Cassandra's blocking read repair).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use reactor::Deadline;
use reactor::metrics;
use smallvec::SmallVec;

use crate::error::ReplicationError;
use crate::plan::{Plan, Planned};
use crate::replicator::Replicator;
use crate::write::send::{self, Sent};

/// Writes each mutation to its replica, and waits until all have them.
///
/// # Errors
/// [`ReplicationError::TimedOut`] if one of them did not get it: the data was read, and may be lost to the
/// next reader. Numbers are those of Cassandra's `BlockingReadRepair`.
pub(super) async fn write(
    replicator: &Replicator,
    plan: &Plan,
    lacking: Vec<(Planned, Vec<u8>)>,
    deadline: Deadline,
) -> Result<(), ReplicationError> {
    let born_us = reactor::wall_clock_us();
    let failed = || {
        let help = "Reads that failed because a replica did not get what it lacks";
        metrics::counter("ceto_coordinator_read_repairs_failed", help, &[]).inc();
        let required = plan.required;
        ReplicationError::TimedOut { received: required.saturating_sub(1), required, data_present: true }
    };
    let help = "Writes to replicas of what a read showed that they lack";
    metrics::counter("ceto_coordinator_read_repairs", help, &[]).add(lacking.len() as u64);
    let mut under_way: SmallVec<[(Planned, Sent); 5]> = SmallVec::new();
    for (planned, mutation) in lacking {
        let mutation: Rc<[u8]> = mutation.into();
        let sent = send::to(replicator, (&planned, plan.version()), &mutation, born_us, deadline);
        under_way.push((planned, sent));
    }
    let finished = poll_fn(|context| {
        let mut error = None;
        under_way.retain(|(planned, sent)| match sent.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(failure)) => {
                error = Some(failure.at(planned.replica, plan.required));
                false
            }
        });
        match error {
            Some(error) => Poll::Ready(Err(error)),
            None if under_way.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    });
    match reactor::timeout(deadline, finished).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            reactor::warn_limited!("a replica was not told what a read has shown that it lacks"; error = error);
            Err(failed())
        }
        Err(_) => Err(failed()),
    }
}
