//! What shards tell each other while they start: the schema, how far they are, and that one failed.
//!
//! Whoever comes first makes a shard's [`Boot`], the shard itself or a peer's call. Every wait ends when a shard failed, and none
//! with time alone: one shard's log may be long where another's is short, and a Cassandra node's files may be many. The log
//! says now and then what is waited for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use model::schema::SchemaChange;
use reactor::{Deadline, Event, Group, mesh};

use crate::error::StorageError;

/// How often a start that waits says so in the log.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// What shards tell each other while they start.
#[derive(Default)]
pub(super) struct Boot {
    /// The changes, and which logs of the manifest count.
    pub(super) schema: RefCell<Option<(Rc<Vec<SchemaChange>>, u64)>>,
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

impl Phase {
    /// What has happened once a shard is there.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Truncated => "interrupted truncations are finished",
            Self::Replayed => "commit logs are replayed",
            Self::TakenOver => "another database's data is taken in",
        }
    }
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

    /// Waits for `condition`, as long as it takes; ends early when another shard failed.
    pub(super) async fn wait(
        &self,
        what: &'static str,
        condition: impl Fn(&Boot) -> bool,
    ) -> Result<(), StorageError> {
        let began = reactor::now();
        loop {
            let done = self.changed.wait_until(|| condition(self) || self.failed.borrow().is_some());
            if reactor::timeout(Deadline::after(TOLD_EVERY), done).await.is_ok() {
                return self.outcome();
            }
            reactor::info!("the start waits for another shard"; until = what, seconds = began.elapsed().as_secs());
        }
    }

    fn outcome(&self) -> Result<(), StorageError> {
        match &*self.failed.borrow() {
            Some((shard, reason)) => Err(StorageError::Shard { shard: *shard, reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

/// The schema changes and the manifest's epoch, from shard 0.
pub(super) async fn fetch_schema(shard: usize) -> Result<(Rc<Vec<SchemaChange>>, u64), StorageError> {
    let asked = mesh::call(0, Group::ADMIN, || async {
        let boot = Boot::here();
        let known = boot.wait("the schema is read", |boot| boot.schema.borrow().is_some());
        known.await.map_err(|error| error.to_string())?;
        match &*boot.schema.borrow() {
            Some((changes, epoch)) => {
                Ok((changes.iter().map(SchemaChange::encode).collect::<Vec<_>>(), *epoch))
            }
            None => Err("no schema".to_owned()),
        }
    });
    let failed = |reason: String| StorageError::Shard { shard: 0, reason };
    let (encoded, epoch) = asked.await.map_err(|e| failed(e.to_string()))?.map_err(failed)?;
    let changes: Result<Vec<_>, _> = encoded.iter().map(|bytes| SchemaChange::decode(bytes)).collect();
    changes
        .map(|changes| (Rc::new(changes), epoch))
        .map_err(|error| StorageError::Shard { shard, reason: error.to_string() })
}

/// Waits until another shard takes writes.
pub(super) async fn ready_on(shard: usize) -> Result<(), StorageError> {
    let called = mesh::call(shard, Group::ADMIN, || async {
        let ready = Boot::here().wait("its tables are open", |boot| boot.ready.get()).await;
        ready.map_err(|error| error.to_string())
    });
    let failed = |reason: String| StorageError::Shard { shard, reason };
    called.await.map_err(|error| failed(error.to_string()))?.map_err(failed)
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
