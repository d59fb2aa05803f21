//! The keeper's half of logged batches: has them in its commit log, and writes out those whose coordinator is
//! silent.
//!
//! A batch is kept until its coordinator says that it is done. One that is not done when its time is over is
//! written to all of its replicas by [`late::everywhere`], and forgotten once each has it, or a durable hint
//! for it exists. A start goes on with the batches that it finds in the log. Invariants: a batch in `kept` is
//! in the commit log; bytes of kept batches are bounded, and beyond it a coordinator has to find another
//! keeper.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use model::mutation::MutationView;
use reactor::metrics::{self, Gauge};
use reactor::{Deadline, Event, Group, Instant, Semaphore};
use storage::{BatchOrigin, LoggedBatch};
use wire::node::batch;
use wire::node::fault::Fault;

use crate::error::ReplicaFailure;
use crate::hints::{Hints, pace};
use crate::replicator::Replicator;
use crate::serve::invalid;
use crate::write::late;

/// Batches that a shard keeps, and their bytes.
const KEPT_MAX: usize = 16 << 10;
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Batches that are written out at once.
const AT_ONCE: usize = 16;
/// How long one attempt to write out one of a batch's mutations may take.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// Shortest time between two looks at what is to be written out.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);
/// Time between two attempts.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A batch that waits for so long moves to the end of the commit log, so that it holds up no segment.
const LOGGED_FOR: Duration = Duration::from_secs(60);

/// Logged batches of coordinators, on one shard.
pub(crate) struct Keeper {
    kept: RefCell<BTreeMap<[u8; 16], Kept>>,
    /// Batches on their way into the log, and whether they are done already.
    coming: RefCell<BTreeMap<[u8; 16], bool>>,
    bytes: Cell<usize>,
    /// Notified when a batch has come, or a place is free.
    changed: Event,
    places: Semaphore,
    gauge: RefCell<Option<Rc<Gauge>>>,
}

impl Default for Keeper {
    fn default() -> Self {
        Self {
            kept: RefCell::default(),
            coming: RefCell::default(),
            bytes: Cell::new(0),
            changed: Event::new(),
            places: Semaphore::new(AT_ONCE),
            gauge: RefCell::default(),
        }
    }
}

/// A batch.
struct Kept {
    origin: BatchOrigin,
    mutations: Vec<Rc<[u8]>>,
    logged: LoggedBatch,
    logged_at: Instant,
    /// When it is written out.
    due: Instant,
    is_under_way: bool,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.mutations.iter().map(|mutation| mutation.len()).sum()
    }
}

/// A batch as its coordinator sends it.
pub(super) struct NewBatch {
    pub(super) id: [u8; 16],
    pub(super) origin: BatchOrigin,
    /// Time until it is written out.
    pub(super) patience: Duration,
    pub(super) mutations: Vec<Rc<[u8]>>,
}

impl Keeper {
    fn insert(&self, id: [u8; 16], kept: Kept) {
        self.bytes.set(self.bytes.get() + kept.bytes());
        let before = self.kept.borrow_mut().insert(id, kept);
        assert!(before.is_none(), "batch {} is kept twice", model::hex::text(&id));
        self.show();
        self.changed.notify_all();
    }

    fn remove(&self, id: &[u8; 16]) -> Option<Kept> {
        let kept = self.kept.borrow_mut().remove(id)?;
        assert!(self.bytes.get() >= kept.bytes(), "{} of {} bytes leave", kept.bytes(), self.bytes.get());
        self.bytes.set(self.bytes.get() - kept.bytes());
        self.show();
        Some(kept)
    }

    fn show(&self) {
        let help = "Logged batches that this shard keeps for coordinators.";
        let mut gauge = self.gauge.borrow_mut();
        let gauge = gauge.get_or_insert_with(|| metrics::gauge("ceto_batchlog_kept", help, &[]));
        gauge.set(self.kept.borrow().len() as i64);
    }

    /// The batches that are to be written out now.
    fn due(&self) -> Vec<[u8; 16]> {
        let now = reactor::now();
        let kept = self.kept.borrow();
        let is_due = |kept: &Kept| kept.due <= now && !kept.is_under_way;
        kept.iter().filter(|(_, kept)| is_due(kept)).map(|(id, _)| *id).collect()
    }

    /// Time until the next batch is to be written out, if there is a place for one.
    fn next_due(&self) -> Option<Duration> {
        if self.places.available() == 0 {
            return None;
        }
        let kept = self.kept.borrow();
        let waiting = kept.values().filter(|kept| !kept.is_under_way);
        waiting.map(|kept| kept.due - reactor::now()).min()
    }
}

impl Replicator {
    /// Logged batches that this shard keeps.
    ///
    /// # Panics
    /// Before [`Replicator::start_keeping`].
    fn keeper(&self) -> Rc<Keeper> {
        reactor::local::<Keeper>().expect("the shard keeps batches from its start on")
    }

    /// Has the task that writes batches out look at once.
    pub(crate) fn wake_keeping(&self) {
        self.keeper().changed.notify_all();
    }

    /// Takes up the batches that an earlier start kept, and writes out batches whose time is over.
    pub(crate) fn start_keeping(&self, hints: &Rc<Hints>) {
        let (hints, keeper) = (Rc::clone(hints), Rc::new(Keeper::default()));
        reactor::set_local(Rc::clone(&keeper));
        keeper.show();
        let (now, patience) = (reactor::now(), hints.config().batch_patience);
        for found in self.storage().take_kept_batches() {
            let mutations = found.mutations.into_iter().map(Rc::from).collect();
            let kept = Kept {
                origin: found.origin,
                mutations,
                logged: found.logged,
                logged_at: now,
                due: now + patience,
                is_under_way: false,
            };
            keeper.insert(found.id, kept);
        }
        let Some(hold) = hints.begin_task() else { return };
        let weak = self.downgrade();
        reactor::spawn(Group::BACKGROUND, async move {
            while let Some(replicator) = weak.get() {
                if hints.is_stopping() {
                    break;
                }
                replicator.begin_due(&hints);
                let keeper = replicator.keeper();
                let time = keeper.next_due().unwrap_or(AGAIN_AFTER).max(LOOK_EVERY_MIN);
                // Ends early when a batch has come, a place is free, or the shard stops.
                let _changed = reactor::timeout(Deadline::after(time), keeper.changed.wait()).await;
            }
            drop(hold);
        })
        .detach();
    }

    /// Begins to write out the batches whose time is over.
    fn begin_due(&self, hints: &Rc<Hints>) {
        for id in self.keeper().due() {
            let Some(hold) = hints.begin_task() else { return };
            let Some(place) = self.keeper().places.try_acquire(1) else { return };
            if let Some(kept) = self.keeper().kept.borrow_mut().get_mut(&id) {
                kept.is_under_way = true;
            }
            let (replicator, hints) = (self.clone(), Rc::clone(hints));
            reactor::spawn(Group::BACKGROUND, async move {
                replicator.write_out(id, &hints).await;
                drop((place, hold));
                replicator.keeper().changed.notify_all();
            })
            .detach();
        }
    }

    /// Writes out one batch, and forgets it if all of it is safe; otherwise it is tried again.
    async fn write_out(&self, id: [u8; 16], hints: &Hints) {
        let Some((origin, mutations)) = self.look_at(&id) else { return };
        let (began, bytes) = (reactor::now(), mutations.iter().map(|mutation| mutation.len() as u64).sum());
        reactor::info!("a logged batch whose coordinator is silent is written out";
            id = model::hex::text(&id), mutations = mutations.len());
        let mut failed = None;
        for mutation in &mutations {
            // The next start writes all of it.
            let written = match hints.is_stopping() {
                true => Err(ReplicaFailure::Stopping),
                false => self.write_one(mutation, origin).await,
            };
            if let Err(failure) = written {
                failed = Some(failure);
            }
        }
        let Some(failure) = failed else {
            if let Some(kept) = self.keeper().remove(&id) {
                self.storage().finish_batch(kept.logged).await;
            }
            let time = pace(self, bytes, hints.config().batch_bytes_per_second);
            hints.wait(time.saturating_sub(began.elapsed())).await;
            return;
        };
        reactor::warn_limited!("a logged batch is written out again later";
            id = model::hex::text(&id), reason = failure.text());
        self.log_again(id, origin, &mutations).await;
        if let Some(kept) = self.keeper().kept.borrow_mut().get_mut(&id) {
            kept.is_under_way = false;
            kept.due = reactor::now() + AGAIN_AFTER;
        }
    }

    fn look_at(&self, id: &[u8; 16]) -> Option<(BatchOrigin, Vec<Rc<[u8]>>)> {
        let keeper = self.keeper();
        let kept = keeper.kept.borrow();
        kept.get(id).map(|kept| (kept.origin, kept.mutations.clone()))
    }

    /// Writes one mutation of a batch to all of its replicas, or leaves them durable hints.
    async fn write_one(&self, mutation: &Rc<[u8]>, origin: BatchOrigin) -> Result<(), ReplicaFailure> {
        let Ok(view) = MutationView::parse(mutation) else {
            reactor::error!("a mutation of a logged batch is damaged, and is left out");
            return Ok(());
        };
        let table = self.storage().borrow_schema().table_by_id(view.table).cloned();
        let Some(table) = table.filter(|table| view.fits(table)) else {
            reactor::warn_limited!("a mutation of a logged batch is of a table that is gone, and is left out";
                table = view.table);
            return Ok(());
        };
        let BatchOrigin { born_us, agreed } = origin;
        if late::is_too_late(self, &table, born_us) {
            late::note_dropped(&table, born_us);
            return Ok(());
        }
        if self.routing(&table).truncated() > agreed {
            reactor::info!("a mutation of a logged batch is of before its table was truncated, and is left out";
                table = view.table);
            return Ok(());
        }
        match late::everywhere(self, &table, mutation, born_us, Deadline::after(WRITE_WITHIN)).await {
            Err(ReplicaFailure::TableGone(_)) => Ok(()),
            written => written,
        }
    }

    /// Moves a batch that waits for long to the end of the log.
    async fn log_again(&self, id: [u8; 16], origin: BatchOrigin, mutations: &[Rc<[u8]>]) {
        let is_old = |kept: &Kept| kept.logged_at.elapsed() >= LOGGED_FOR;
        if !self.keeper().kept.borrow().get(&id).is_some_and(is_old) {
            return;
        }
        let bytes = mutations.iter().map(|mutation| &**mutation);
        match self.storage().keep_batch((id, origin), bytes, Deadline::after(WRITE_WITHIN)).await {
            Ok(logged) => {
                let done_meanwhile = match self.keeper().kept.borrow_mut().get_mut(&id) {
                    Some(kept) => {
                        kept.logged.move_to(logged);
                        kept.logged_at = reactor::now();
                        None
                    }
                    None => Some(logged),
                };
                if let Some(logged) = done_meanwhile {
                    self.storage().finish_batch(logged).await;
                }
            }
            Err(error) => {
                reactor::warn_limited!("a logged batch cannot move on in the commit log"; error = error);
            }
        }
    }

    /// Keeps a batch, and returns once it is as safe here as a write is.
    ///
    /// # Errors
    /// Those of the log; [`ReplicaFailure::Overloaded`] if too much is kept.
    pub(super) async fn keep(&self, batch: NewBatch, deadline: Deadline) -> Result<(), ReplicaFailure> {
        if self.hints().is_none_or(|hints| hints.is_stopping()) {
            return Err(ReplicaFailure::Overloaded("this shard keeps no batches now".to_owned()));
        }
        let keeper = self.keeper();
        let bytes: usize = batch.mutations.iter().map(|mutation| mutation.len()).sum();
        let count = keeper.kept.borrow().len() + keeper.coming.borrow().len();
        if count >= KEPT_MAX || keeper.bytes.get() + bytes > KEPT_BYTES_MAX {
            let text = format!("{count} logged batches with {} bytes are kept here", keeper.bytes.get());
            return Err(ReplicaFailure::Overloaded(text));
        }
        let Some(hold) = self.storage().enter() else { return Err(ReplicaFailure::Stopping) };
        let is_known = keeper.kept.borrow().contains_key(&batch.id);
        if is_known || keeper.coming.borrow_mut().insert(batch.id, false).is_some() {
            return Err(ReplicaFailure::Failed("a batch of this id is kept already".to_owned()));
        }
        // A task of its own: what the log has must be known here, even if nobody waits for it any more.
        let replicator = self.clone();
        let logging = reactor::spawn(Group::STATEMENT, async move {
            let logged = replicator.log(batch, deadline).await;
            drop(hold);
            logged
        });
        logging.await.unwrap_or_else(|error| Err(ReplicaFailure::Failed(error.to_string())))
    }

    async fn log(&self, batch: NewBatch, deadline: Deadline) -> Result<(), ReplicaFailure> {
        let NewBatch { id, origin, patience, mutations } = batch;
        let bytes = mutations.iter().map(|mutation| &**mutation);
        let logged = self.storage().keep_batch((id, origin), bytes, deadline).await;
        let is_done = self.keeper().coming.borrow_mut().remove(&id);
        let logged = logged?;
        if is_done == Some(true) {
            self.storage().finish_batch(logged).await;
            return Ok(());
        }
        let now = reactor::now();
        let kept =
            Kept { origin, mutations, logged, logged_at: now, due: now + patience, is_under_way: false };
        self.keeper().insert(id, kept);
        Ok(())
    }

    /// Forgets a batch whose coordinator says that it is done.
    pub(super) async fn forget(&self, id: [u8; 16]) {
        if self.hints().is_none() {
            // Nothing was kept yet.
            return;
        }
        if let Some(is_done) = self.keeper().coming.borrow_mut().get_mut(&id) {
            *is_done = true;
            return;
        }
        let kept = self.keeper().remove(&id);
        if let Some(kept) = kept {
            self.storage().finish_batch(kept.logged).await;
        }
    }

    /// Serves a coordinator's request to keep a batch.
    pub(crate) async fn serve_batch(&self, body: &[u8], deadline: Deadline) -> Result<Vec<u8>, Fault> {
        let message = batch::decode(body).map_err(invalid)?;
        let batch = NewBatch {
            id: message.id,
            origin: BatchOrigin { born_us: message.born_us, agreed: message.agreed },
            patience: Duration::from_millis(u64::from(message.after_ms)),
            mutations: message.mutations.iter().map(|mutation| mutation.as_bytes().into()).collect(),
        };
        self.keep(batch, deadline).await.map_err(ReplicaFailure::into_fault)?;
        Ok(Vec::new())
    }

    /// Serves a coordinator's word that a batch is done.
    pub(crate) async fn serve_batch_done(&self, body: &[u8]) -> Result<Vec<u8>, Fault> {
        self.forget(batch::decode_done(body).map_err(invalid)?).await;
        Ok(Vec::new())
    }
}
