//! Calls from the administration thread to the shards: a bounded queue to shard 0, and one reply for each
//! call.
//!
//! Only tokio's channels are shared by the two sides. A shard's waker may be woken from any thread, so a task
//! of shard 0 waits on the queue like on anything else, and an idle node costs nothing.
//! Invariant: each accepted call gets one reply; if the shard ends first, the reply is an error that says so.

use std::future::Future;
use std::pin::Pin;

use reactor::Group;
use tokio::sync::{mpsc, oneshot};

use super::error::ApiError;

/// Most calls queued for shard 0; further calls wait on the HTTP side.
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
    /// Opens the queue of calls and hands its sender to the administration thread. Call once, on shard 0.
    pub fn calls(&self) -> Calls {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        // An error means that the administration thread has ended, and then no calls come.
        let _ = self.0.try_send(Bridge(sender));
        Calls(receiver)
    }
}

impl Bridge {
    /// Runs `work` as a task of shard 0 and returns its result. The work goes on if the caller is dropped.
    ///
    /// # Errors
    /// [`ApiError::unavailable`] if the node is ending; the errors of `work`.
    pub(super) async fn call<F, Fut, R>(&self, work: F) -> Result<R, ApiError>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, ApiError>> + 'static,
        R: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let call: Call = Box::new(move || {
            Box::pin(async move {
                // The caller may have been dropped.
                let _ = answer.send(work().await);
            })
        });
        let ending = |_| ApiError::unavailable("the node is ending");
        self.0.send(call).await.map_err(|_| ApiError::unavailable("the node is ending"))?;
        answered.await.map_err(ending)?
    }
}

impl Calls {
    /// Serves calls until the administration thread has ended. Call on shard 0.
    pub async fn serve(mut self) {
        while let Some(call) = self.0.recv().await {
            reactor::spawn(Group::ADMIN, call()).detach();
        }
    }
}
