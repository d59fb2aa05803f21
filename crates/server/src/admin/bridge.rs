//! The way from the administration thread to the shards: calls in a bounded queue to shard 0, answers one by one.
//!
//! tokio's channels are the only thing the two worlds share: a shard's waker may be woken from any thread, so a task of
//! shard 0 waits in the queue like for anything else, and an idle node costs nothing. Invariant: a call that was taken
//! has one answer; where the shard ends first, the answer is that it did.

use std::future::Future;
use std::pin::Pin;

use reactor::Group;
use tokio::sync::{mpsc, oneshot};

use super::error::ApiError;

/// Calls that wait for shard 0; beyond it the HTTP side waits.
const WAITING_MAX: usize = 64;

type Call = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The administration thread's end.
#[derive(Clone)]
pub(super) struct Bridge(mpsc::Sender<Call>);

/// Shard 0's end.
pub struct Calls(mpsc::Receiver<Call>);

/// Lets shard 0 attach itself to the administration thread.
#[derive(Clone)]
pub struct Attach(mpsc::Sender<Bridge>);

pub(super) fn new() -> (Attach, mpsc::Receiver<Bridge>) {
    let (attach, attached) = mpsc::channel(1);
    (Attach(attach), attached)
}

impl Attach {
    /// The calls of the administration thread, from now on; on shard 0, once.
    pub fn calls(&self) -> Calls {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        // Where the thread is gone nobody calls.
        let _ = self.0.try_send(Bridge(sender));
        Calls(receiver)
    }
}

impl Bridge {
    /// Runs `work` as a task of shard 0 and brings its result back. It goes on when the caller goes away.
    ///
    /// # Errors
    /// [`ApiError::unavailable`] when the node is ending; what the work says.
    pub(super) async fn call<F, Fut, R>(&self, work: F) -> Result<R, ApiError>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, ApiError>> + 'static,
        R: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let call: Call = Box::new(move || {
            Box::pin(async move {
                // Nobody may be waiting any more.
                let _ = answer.send(work().await);
            })
        });
        let ending = |_| ApiError::unavailable("the node is ending");
        self.0.send(call).await.map_err(|_| ApiError::unavailable("the node is ending"))?;
        answered.await.map_err(ending)?
    }
}

impl Calls {
    /// Serves calls until the other end is gone; on shard 0.
    pub async fn serve(mut self) {
        while let Some(call) = self.0.recv().await {
            reactor::spawn(Group::ADMIN, call()).detach();
        }
    }
}
