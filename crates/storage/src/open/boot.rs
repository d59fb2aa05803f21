//! What shards tell each other while they start: the schema, how far they are, and that one failed.
//!
//! Whoever comes first makes a shard's [`Boot`], the shard itself or a peer's call. Every wait ends when a shard failed, or
//! with `start_timeout`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use model::schema::SchemaChange;
use reactor::{Deadline, Event, Group, mesh};

use crate::config::StorageConfig;
use crate::error::StorageError;

/// What shards tell each other while they start.
#[derive(Default)]
pub(super) struct Boot {
    pub(super) schema: RefCell<Option<Result<Rc<Vec<SchemaChange>>, String>>>,
    pub(super) ready: Cell<bool>,
    /// Shards that have come as far, by [`Phase`].
    pub(super) reached: RefCell<[Vec<usize>; 3]>,
    pub(super) failed: RefCell<Option<(usize, String)>>,
    pub(super) changed: Event,
}

/// What all shards do before any goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Interrupted truncations are finished, and their generations known: from now on files may be written.
    Truncated,
    /// Old logs are replayed: from now on reads are right.
    Replayed,
    /// Another database's data is taken in, where there was any: from now on reads find all.
    TakenOver,
}

impl Boot {
    /// This shard's; made by whoever comes first, itself or a peer's call.
    pub(super) fn here() -> Rc<Boot> {
        reactor::local::<Boot>().unwrap_or_else(|| {
            let boot = Rc::new(Boot::default());
            reactor::set_local(Rc::clone(&boot));
            boot
        })
    }

    /// Waits for `condition`; ends early when another shard failed.
    pub(super) async fn wait_until(
        &self,
        shard: usize,
        config: &StorageConfig,
        condition: impl Fn(&Boot) -> bool,
    ) -> Result<(), StorageError> {
        let waited = config.start_timeout;
        let done = self.changed.wait_until(|| condition(self) || self.failed.borrow().is_some());
        reactor::timeout(Deadline::after(waited), done)
            .await
            .map_err(|_| StorageError::StartTimedOut { shard, waited })?;
        self.outcome()
    }

    /// As [`Boot::wait_until`], for as long as it takes.
    pub(super) async fn wait(&self, condition: impl Fn(&Boot) -> bool) -> Result<(), StorageError> {
        self.changed.wait_until(|| condition(self) || self.failed.borrow().is_some()).await;
        self.outcome()
    }

    fn outcome(&self) -> Result<(), StorageError> {
        match &*self.failed.borrow() {
            Some((shard, reason)) => Err(StorageError::Shard { shard: *shard, reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

/// The schema changes, from shard 0.
pub(super) async fn fetch_schema(
    config: &StorageConfig,
    shard: usize,
) -> Result<Rc<Vec<SchemaChange>>, StorageError> {
    let waited = config.start_timeout;
    let asked = mesh::call(0, Group::ADMIN, move || async move {
        let boot = Boot::here();
        let known =
            boot.changed.wait_until(|| boot.schema.borrow().is_some() || boot.failed.borrow().is_some());
        reactor::timeout(Deadline::after(waited), known).await.map_err(|_| "no schema in time".to_owned())?;
        match (&*boot.schema.borrow(), &*boot.failed.borrow()) {
            (Some(Ok(changes)), _) => Ok(changes.iter().map(SchemaChange::encode).collect::<Vec<_>>()),
            (Some(Err(reason)), _) => Err(reason.clone()),
            (None, Some((_, reason))) => Err(reason.clone()),
            (None, None) => Err("no schema".to_owned()),
        }
    });
    let failed = |reason: String| StorageError::Shard { shard: 0, reason };
    let encoded = asked.await.map_err(|e| failed(e.to_string()))?.map_err(failed)?;
    let changes: Result<Vec<_>, _> = encoded.iter().map(|bytes| SchemaChange::decode(bytes)).collect();
    changes.map(Rc::new).map_err(|error| StorageError::Shard { shard, reason: error.to_string() })
}

/// Waits until another shard takes writes.
pub(super) async fn ready_on(shard: usize, config: &StorageConfig) -> Result<(), StorageError> {
    let waited = config.start_timeout;
    let called = mesh::call(shard, Group::ADMIN, move || async move {
        let boot = Boot::here();
        let ready = boot.changed.wait_until(|| boot.ready.get() || boot.failed.borrow().is_some());
        reactor::timeout(Deadline::after(waited), ready).await.is_ok() && boot.ready.get()
    });
    match called.await {
        Ok(true) => Ok(()),
        Ok(false) => Err(StorageError::StartTimedOut { shard, waited }),
        Err(error) => Err(StorageError::Shard { shard, reason: error.to_string() }),
    }
}

/// Tells every shard, this one too, how far this one is, or that it failed.
pub(super) async fn tell_all(shard: usize, shards: usize, news: Result<Phase, String>) {
    for peer in 0..shards {
        let news = news.clone();
        let told = mesh::call(peer, Group::ADMIN, move || async move {
            let boot = Boot::here();
            match news {
                Ok(phase) => boot.reached.borrow_mut()[phase as usize].push(shard),
                Err(reason) => *boot.failed.borrow_mut() = Some((shard, reason)),
            }
            boot.changed.notify_all();
        });
        if let Err(error) = told.await {
            reactor::warn!("a shard could not be told how the start goes"; peer = peer, error = error);
        }
    }
}
