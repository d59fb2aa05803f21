//! Messages between shards while they start: what shard 0 found out, the phase each has reached, and
//! failures.
//!
//! A shard's [`Boot`] is made at its first use, by the shard itself or by a peer's call. Every wait ends when
//! a shard failed, and none by a deadline: one shard's log may be long where another's is short, and a
//! Cassandra node's files may be many. Waits are logged from time to time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use model::TableId;
use model::schema::SchemaChange;
use reactor::{Deadline, Event, Group, mesh};

use super::schema::Opened;
use crate::agreed::{OwnParts, OwnTablets};
use crate::error::StorageError;
use crate::tablet::Folder;

/// How often a waiting start logs the reason.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// A shard's state of the start, which its peers read and write.
#[derive(Default)]
pub(super) struct Boot {
    /// What shard 0 found out for all shards.
    pub(super) opened: RefCell<Option<Rc<Opened>>>,
    pub(super) ready: Cell<bool>,
    /// Shards that have reached each [`Phase`].
    pub(super) reached: RefCell<[Vec<usize>; 3]>,
    pub(super) failed: RefCell<Option<(usize, String)>>,
    pub(super) changed: Event,
}

/// A step that all shards complete before any goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Interrupted truncations are finished, and their generations noted: from now on files may be written.
    Truncated,
    /// Old logs are replayed: from now on reads are correct.
    Replayed,
    /// Another database's data is taken in, if there was any: from now on reads find all data.
    TakenOver,
}

impl Phase {
    /// Describes the state once a shard has completed the phase.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Truncated => "interrupted truncations are finished",
            Self::Replayed => "commit logs are replayed",
            Self::TakenOver => "another database's data is taken in",
        }
    }
}

impl Boot {
    /// This shard's state of the start, made at its first use by the shard itself or by a peer's call.
    pub(super) fn here() -> Rc<Boot> {
        reactor::local::<Boot>().unwrap_or_else(|| {
            let boot = Rc::new(Boot::default());
            reactor::set_local(Rc::clone(&boot));
            boot
        })
    }

    /// Waits for `condition` without a limit of time; ends early when another shard failed.
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

/// The results of shard 0, from there; of the table files only this shard's.
pub(super) async fn fetch_opened(shard: usize, shards: usize) -> Result<Opened, StorageError> {
    let asked = mesh::call(0, Group::ADMIN, move || async move {
        let boot = Boot::here();
        let known = boot.wait("the schema is read", |boot| boot.opened.borrow().is_some());
        known.await.map_err(|error| error.to_string())?;
        let opened = boot.opened.borrow().clone().ok_or("no schema")?;
        let changes: Vec<_> = opened.changes.iter().map(SchemaChange::encode).collect();
        let tables: Vec<(TableId, OwnParts, Folder)> = (opened.tables.iter())
            .map(|(table, (own, folder))| (*table, own.to_parts(), folder.of_shard(own, shard, shards)))
            .collect();
        Ok((changes, opened.epoch, tables))
    });
    let failed = |reason: String| StorageError::Shard { shard: 0, reason };
    let (encoded, epoch, tables) = asked.await.map_err(|e| failed(e.to_string()))?.map_err(failed)?;
    let changes: Result<Vec<_>, _> = encoded.iter().map(|bytes| SchemaChange::decode(bytes)).collect();
    let changes = changes.map_err(|error| StorageError::Shard { shard, reason: error.to_string() })?;
    let tables =
        tables.into_iter().map(|(table, own, folder)| (table, (OwnTablets::from_parts(own), folder)));
    Ok(Opened { changes: Rc::new(changes), epoch, tables: tables.collect() })
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

/// Reports to every shard, including this one, the phase this one reached, or its failure.
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
