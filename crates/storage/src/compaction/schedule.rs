//! Picks the next compaction on this shard and runs it: a few workers, each with one job at a time.
//!
//! A tablet is examined when its files have changed, and all tablets are once a minute, because tombstones
//! and expired data become due with time alone. Workers go round the tablets, so that none waits for ever
//! behind busier ones.

use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Group};

use super::job::{Ended, Job, Marked};
use super::running::CompactionKind;
use super::strategy::Reason;
use super::view::Facts;
use crate::error::StorageError;
use crate::manifest::Edit;
use crate::shard::Storage;
use crate::tablet::{LeftOut, TableFile, Tablet, quarantine};

/// Time between two checks of tablets whose files have not changed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Time before a failed job is tried again, unless a flush comes first.
const RETRY_AFTER: Duration = Duration::from_secs(10);

impl Storage {
    pub(crate) fn start_compacting(&self) {
        let hold = || self.0.tasks.enter().expect("the gate of a new storage is open");
        if self.0.config.auto_compaction {
            for _ in 0..self.0.config.concurrent_compactors.max(1) {
                let (storage, gate) = (self.clone(), hold());
                drop(reactor::spawn(Group::COMPACTION, async move {
                    storage.compact_when_wanted().await;
                    drop(gate);
                }));
            }
        }
        let (storage, gate) = (self.clone(), hold());
        drop(reactor::spawn(Group::BACKGROUND, async move {
            storage.set_damage_aside().await;
            drop(gate);
        }));
        let (storage, gate) = (self.clone(), hold());
        drop(reactor::spawn(Group::BACKGROUND, async move {
            storage.restore_components().await;
            drop(gate);
        }));
    }

    /// The task that reads components of open files into memory again when room for them has become free.
    async fn restore_components(&self) {
        let components = self.0.cache.components();
        while !self.0.draining.get() {
            components.restore(|| !self.0.draining.get()).await;
            if !self.0.draining.get() {
                components.wait_for_room().await;
            }
        }
    }

    async fn compact_when_wanted(&self) {
        // Index at which the round of the tablets goes on.
        let mut turn = 0usize;
        while !self.0.draining.get() {
            // Registered before the tablets are examined, so that no change meanwhile is missed.
            let wanted = self.0.compaction_wanted.wait();
            match self.find_job(&mut turn).await {
                Some(job) => self.run_wanted(job).await,
                None => {
                    let compactions = &self.0.compactions;
                    compactions.idle.set(compactions.idle.get() + 1);
                    compactions.rested.notify_all();
                    self.wait_for_work(wanted, LOOK_EVERY).await;
                    compactions.idle.set(compactions.idle.get() - 1);
                }
            }
        }
    }

    /// Returns when nothing is due: all files are in the shape that their strategies want.
    ///
    /// Returns at once if compactions are switched off by the configuration, or the shard stops.
    pub async fn compacted(&self) {
        let workers =
            if self.0.config.auto_compaction { self.0.config.concurrent_compactors.max(1) } else { 0 };
        let is_due =
            |tablet: &Rc<Tablet>| tablet.is_to_look_at() && tablet.compacts_itself() && !tablet.is_gone();
        let at_rest = || {
            workers == 0
                || self.0.draining.get()
                || self.0.compactions.idle.get() == workers && !self.tablets().iter().any(is_due)
        };
        self.0.compactions.rested.wait_until(at_rest).await;
    }

    /// Waits for a flush or another change of files; after `time` all tablets are marked to be examined.
    async fn wait_for_work(&self, wanted: impl Future<Output = ()>, time: Duration) {
        self.adjust_shares();
        if reactor::timeout(Deadline::after(time), wanted).await.is_err() {
            self.tablets().iter().for_each(|tablet| tablet.look_again());
        }
    }

    /// The next job of any tablet whose files have changed.
    async fn find_job(&self, turn: &mut usize) -> Option<(Job, reactor::Permit)> {
        let tablets = self.tablets();
        for step in 0..tablets.len() {
            let tablet = &tablets[(*turn + step) % tablets.len()];
            if !tablet.is_to_look_at() {
                continue;
            }
            if let Some(found) = self.plan_job(tablet) {
                *turn = (*turn + step + 1) % tablets.len();
                return Some(found);
            }
            reactor::maybe_yield().await;
            if self.0.draining.get() {
                return None;
            }
        }
        None
    }

    /// The job that the tablet's strategy wants, with the permit to run it.
    fn plan_job(&self, tablet: &Rc<Tablet>) -> Option<(Job, reactor::Permit)> {
        let is_in_doubt = tablet.check_truncation(&self.0.log).is_err();
        if is_in_doubt || tablet.is_gone() || tablet.is_claimed() || !tablet.compacts_itself() {
            return None;
        }
        let table = tablet.table();
        let permit = tablet.compacting.try_acquire(1)?;
        let now = self.now_seconds();
        let flush_bytes = self.0.compactions.flush_bytes.get();
        let facts = Facts::of(tablet, now, self.gc_before(tablet, &table, now), flush_bytes);
        let plan = tablet.with_chooser(
            |chooser| {
                if chooser.is_enabled() { chooser.next(&facts.view()) } else { None }
            },
        );
        let Some(plan) = plan else {
            tablet.looked();
            return None;
        };
        let kind = match plan.reason {
            Reason::Tombstones => CompactionKind::Tombstones,
            _ => CompactionKind::Compaction,
        };
        let inputs = Marked::new(facts.inputs(&plan));
        Some((Job { tablet: Rc::clone(tablet), inputs, level: plan.level, cut: plan.cut, kind }, permit))
    }

    async fn run_wanted(&self, (job, permit): (Job, reactor::Permit)) {
        self.adjust_shares();
        let tablet = Rc::clone(&job.tablet);
        let ended = self.run_job(job).await;
        drop(permit);
        tablet.look_again();
        match ended {
            Ok(Ended::Done) => {
                // Other workers may compact its outputs, or the files it had marked.
                self.0.compaction_wanted.notify_all();
            }
            // The job gave way to a task that wants the tablet, or to the end of the shard.
            Err(StorageError::Draining) => tablet.opened().await,
            // An operator stopped it.
            Ok(Ended::Stopped) => self.wait_for_work(self.0.compaction_wanted.wait(), LOOK_EVERY).await,
            Err(error) => {
                reactor::warn_limited!("a compaction failed, its files stay as they are"; error = error);
                // It would fail again until something changes. A drain has notified already, and does so only
                // once.
                if !self.0.draining.get() {
                    self.wait_for_work(self.0.compaction_wanted.wait(), RETRY_AFTER).await;
                }
            }
        }
    }

    /// The task that takes unreadable files out of their sets, if the policy is to go on without them.
    async fn set_damage_aside(&self) {
        while !self.0.draining.get() {
            let given_up = self.tablets().into_iter().find_map(|tablet| {
                let file = tablet.files().iter().find(|file| file.is_given_up()).cloned();
                file.map(|file| (tablet, file))
            });
            let Some((tablet, file)) = given_up else {
                self.0.damage.found.wait().await;
                continue;
            };
            let Some(_alone) = tablet.alone().await else { return };
            // Another task may have had the tablet to itself meanwhile and removed the file.
            if tablet.is_gone() || !tablet.files().iter().any(|other| Rc::ptr_eq(other, &file)) {
                continue;
            }
            self.set_aside(&tablet, &file).await;
        }
    }

    /// Takes a file out of the tablet's set and moves it away; a failed move is logged. The caller has the
    /// tablet to itself.
    pub(super) async fn set_aside(&self, tablet: &Tablet, file: &Rc<TableFile>) {
        tablet.replace_files(std::slice::from_ref(file), None);
        tablet.set_lacks_rows();
        tablet.forget_cached();
        self.0.damage.count_set_aside();
        let descriptor = file.sstable().descriptor();
        let gone = Edit::Gone((tablet.table().id(), descriptor.generation()));
        let moved = match self.0.manifest.note(&[gone]).await {
            Ok(()) => quarantine(&tablet.directory, descriptor).await,
            Err(error) => Err(error),
        };
        match moved {
            Ok(()) => reactor::error!("a table file was set aside: its data is missing from reads";
                file = descriptor, directory = tablet.directory.display()),
            Err(error) => {
                // A truncation has to find the file, and nothing else may remove it.
                tablet.leave_out(LeftOut { descriptor, refuses: None, is_shared: false });
                reactor::error!("a table file is not read until the next start but could not be moved";
                    file = descriptor, directory = tablet.directory.display(), error = error);
            }
        }
    }
}
