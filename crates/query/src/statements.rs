//! Counts of the statements that this shard carries out, published under ScyllaDB's names.
//!
//! A statement counts once, on its coordinator, when its execution begins; one that is refused before, for a
//! wrong value for instance, may not count. A statement of a batch counts as the batch's only.

use std::cell::Cell;
use std::rc::Rc;

use reactor::metrics::{self, Counter, Gauge};
use statement::prepare::Plan;
use statement::prepare::modify::ModifyPlan;
use statement::prepare::select::SelectPlan;
use statement::restrictions::StatementKind;
use wire::request::{BatchKind, QueryParameters};

/// Counters of statements without a condition, and with one.
type ByCondition = [Rc<Counter>; 2];

/// Counts of statements of one row that were carried out at once and are not in the counters yet: the many
/// prepared requests pay an addition for each.
#[derive(Debug, Default)]
struct AtOnce {
    reads: Cell<u64>,
    rows: Cell<u64>,
    unpaged: Cell<u64>,
    /// By [`StatementKind`].
    writes: [Cell<u64>; 4],
}

/// Kinds of requests that are refused because too few replicas are alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A read, of a range too.
    Read,
    /// A read at a serial level.
    CasRead,
    /// A write without a condition.
    Write,
    /// A conditional write.
    CasWrite,
}

/// One shard's counters.
#[derive(Debug)]
pub(crate) struct Statements {
    at_once: AtOnce,
    reads: Rc<Counter>,
    inserts: ByCondition,
    updates: ByCondition,
    deletes: ByCondition,
    batches: ByCondition,
    logged: Rc<Counter>,
    unlogged: Rc<Counter>,
    in_batches: ByCondition,
    rows_read: Rc<Counter>,
    tombstones: Rc<Counter>,
    unpaged: Rc<Counter>,
    reversed: Rc<Counter>,
    bypass_cache: Rc<Counter>,
    filtered: Rc<Counter>,
    condition_not_met: Rc<Counter>,
    /// By [`Refused`].
    unavailable: [Rc<Counter>; 4],
    queries: Rc<Counter>,
    evictions: Rc<Counter>,
    cached: Rc<Gauge>,
    cached_bytes: Rc<Gauge>,
    prepared: Rc<Counter>,
}

impl Statements {
    pub(crate) fn new() -> Self {
        let counter = |name: &str, help: &str| metrics::counter(&format!("scylla_{name}"), help, &[]);
        let by_condition = |name: &str, help: &str| {
            ["no", "yes"]
                .map(|label| metrics::counter(&format!("scylla_cql_{name}"), help, &[("conditional", label)]))
        };
        let gauge = |name: &str, help: &str| metrics::gauge(&format!("scylla_{name}"), help, &[]);
        Self {
            at_once: AtOnce::default(),
            reads: counter("cql_reads", "SELECT statements, each page of one."),
            inserts: by_condition("inserts", "INSERT statements outside of batches."),
            updates: by_condition("updates", "UPDATE statements outside of batches."),
            deletes: by_condition("deletes", "DELETE statements outside of batches."),
            batches: by_condition("batches", "Batches."),
            logged: counter("cql_batches_pure_logged", "Logged batches without a condition."),
            unlogged: counter("cql_batches_pure_unlogged", "Unlogged batches without a condition."),
            in_batches: by_condition("statements_in_batches", "Statements of batches."),
            rows_read: counter("cql_rows_read", "Rows of the answers to SELECT statements."),
            tombstones: metrics::counter(
                "ceto_coordinator_tombstones_read",
                "Tombstones that SELECT statements passed.",
                &[],
            ),
            unpaged: counter("cql_unpaged_select_queries", "SELECT statements without a size of pages."),
            reversed: counter("cql_reverse_queries", "SELECT statements against the clustering order."),
            bypass_cache: counter("cql_select_bypass_caches", "SELECT statements with BYPASS CACHE."),
            filtered: counter("cql_filtered_read_requests", "SELECT statements that filter rows."),
            condition_not_met: counter(
                "storage_proxy_coordinator_cas_write_condition_not_met",
                "Conditional statements and batches whose condition did not hold.",
            ),
            unavailable: ["read", "cas_read", "write", "cas_write"].map(|kind| {
                let name = format!("storage_proxy_coordinator_{kind}_unavailable");
                counter(&name, "Requests refused because too few replicas were alive for their level.")
            }),
            queries: counter("query_processor_queries", "Statements, prepared or not, batches aside."),
            evictions: counter("cql_prepared_cache_evictions", "Prepared statements forgotten for others."),
            cached: gauge("cql_prepared_cache_size", "Prepared statements."),
            cached_bytes: gauge("cql_prepared_cache_memory_footprint", "Bytes of prepared statements."),
            prepared: counter("query_processor_statements_prepared", "Statements that were prepared."),
        }
    }

    /// Counts a read of one row that was answered at once.
    #[inline]
    pub(crate) fn point_read(&self, plan: &SelectPlan, parameters: &QueryParameters<'_>, rows: usize) {
        let AtOnce { reads, rows: all, unpaged, .. } = &self.at_once;
        reads.set(reads.get() + 1);
        all.set(all.get() + rows as u64);
        unpaged.set(unpaged.get() + u64::from(parameters.page_size.is_none()));
        if plan.bypass_cache | plan.reversed {
            self.look(plan);
        }
    }

    /// Counts a write of one row that began at once, without a condition.
    #[inline]
    pub(crate) fn point_write(&self, plan: &ModifyPlan) {
        let writes = &self.at_once.writes[plan.kind as usize];
        writes.set(writes.get() + 1);
    }

    /// Counts a statement that is about to run; batches are counted by [`Self::batch`].
    pub(crate) fn begin(&self, plan: &Plan, parameters: &QueryParameters<'_>) {
        match plan {
            Plan::Select(plan) => {
                self.reads.inc();
                self.unpaged.add(u64::from(parameters.page_size.is_none()));
                self.look(plan);
            }
            Plan::Modify(plan) => self.of_kind(plan.kind)[usize::from(plan.condition.is_some())].inc(),
            _ => {}
        }
    }

    #[cold]
    fn look(&self, plan: &SelectPlan) {
        for (holds, counter) in [
            (plan.reversed, &self.reversed),
            (plan.bypass_cache, &self.bypass_cache),
            (!plan.restrictions.filters.is_empty(), &self.filtered),
        ] {
            counter.add(u64::from(holds));
        }
    }

    fn of_kind(&self, kind: StatementKind) -> &ByCondition {
        match kind {
            StatementKind::Insert => &self.inserts,
            StatementKind::Update => &self.updates,
            StatementKind::Select | StatementKind::Delete => &self.deletes,
        }
    }

    /// Counts a batch of these statements.
    pub(crate) fn batch<'p>(
        &self,
        kind: BatchKind,
        statements: impl Iterator<Item = &'p ModifyPlan> + Clone,
    ) {
        let conditional = statements.clone().any(|plan| plan.condition.is_some());
        self.batches[usize::from(conditional)].inc();
        self.in_batches[usize::from(conditional)].add(statements.count() as u64);
        match kind {
            _ if conditional => {}
            BatchKind::Logged => self.logged.inc(),
            BatchKind::Unlogged => self.unlogged.inc(),
            BatchKind::Counter => {}
        }
    }

    /// Counts rows of an answer, and returns their number.
    pub(crate) fn rows_read(&self, rows: usize) -> usize {
        self.rows_read.add(rows as u64);
        rows
    }

    /// Counts tombstones that a read passed.
    pub(crate) fn tombstones_read(&self, tombstones: u64) {
        self.tombstones.add(tombstones);
    }

    /// Counts a condition that did not hold.
    pub(crate) fn condition_not_met(&self) {
        self.condition_not_met.inc();
    }

    /// Counts a request that too few live replicas could answer.
    pub(crate) fn unavailable(&self, kind: Refused) {
        self.unavailable[kind as usize].inc();
    }

    /// Counts a statement that was prepared and is kept.
    pub(crate) fn prepared(&self) {
        self.prepared.inc();
    }

    /// Publishes what was counted at once, and figures that others keep: statements executed; of the cache of
    /// prepared ones the evictions, the number and the bytes.
    pub(crate) fn settle(&self, queries: u64, (evicted, cached, cached_bytes): (u64, usize, usize)) {
        let to = |counter: &Counter, count: u64| counter.add(count.saturating_sub(counter.get()));
        to(&self.queries, queries);
        to(&self.evictions, evicted);
        self.cached.set(cached as i64);
        self.cached_bytes.set(cached_bytes as i64);
        self.reads.add(self.at_once.reads.take());
        self.rows_read.add(self.at_once.rows.take());
        self.unpaged.add(self.at_once.unpaged.take());
        for kind in [StatementKind::Insert, StatementKind::Update, StatementKind::Delete] {
            self.of_kind(kind)[0].add(self.at_once.writes[kind as usize].take());
        }
    }
}
