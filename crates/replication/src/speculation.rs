//! When a read asks one more replica than its level needs: the table option `speculative_retry`.
//!
//! `policy` has the option's meanings, `latencies` how long other nodes took for a table's pages when this
//! shard asked them. Cassandra measures whole reads, so that its percentile grows by the waits for a node
//! that does not answer. Until a node has answered a percentile is half the time that the read has, as in
//! Cassandra. Pages of one partition and of ranges are measured apart, because those of ranges take longer.
//! Only reads that ask another node come here (`read::copies`). Invariant: there are as many entries as
//! tables at most, and those of tables that were dropped since the latest entry was made.

mod latencies;
mod policy;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use model::{Schema, Table, TableId};
use reactor::metrics::{self, Counter};

use latencies::Latencies;
use policy::Policy;

/// When a read asks one more replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Not at all.
    Never,
    /// With the others.
    AtOnce,
    /// After so long without enough answers.
    After(Duration),
}

/// The extent of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One partition.
    Partition,
    /// A range.
    Range,
}

/// The option of one table, and how long its pages took.
struct OfTable {
    option: String,
    policy: Policy,
    partitions: Latencies,
    ranges: Latencies,
}

impl OfTable {
    fn new() -> Self {
        let now = reactor::coarse_now();
        let (partitions, ranges) = (Latencies::new(now), Latencies::new(now));
        Self { option: String::new(), policy: Policy::DEFAULT, partitions, ranges }
    }

    /// Goes by another text of the option.
    #[cold]
    fn follow(&mut self, option: &str) {
        option.clone_into(&mut self.option);
        self.policy = Policy::parse(option).unwrap_or_else(|| {
            reactor::warn_limited!("a table's speculative_retry is not known; 99p is taken"; option = option);
            Policy::DEFAULT
        });
        if let Some(percentile) = self.policy.percentile() {
            self.partitions.take(percentile);
            self.ranges.take(percentile);
        }
    }

    fn latencies(&mut self, kind: Kind) -> &mut Latencies {
        match kind {
            Kind::Partition => &mut self.partitions,
            Kind::Range => &mut self.ranges,
        }
    }
}

/// The options and the latencies of each table's reads, as one shard knows them.
pub(crate) struct Speculation {
    tables: RefCell<BTreeMap<TableId, OfTable>>,
    data_reads: Rc<Counter>,
    digest_reads: Rc<Counter>,
    helped: Rc<Counter>,
}

impl Speculation {
    pub(crate) fn new() -> Self {
        let proxy = |name: &str, help: &str| {
            metrics::counter(&format!("scylla_storage_proxy_coordinator_{name}"), help, &[])
        };
        Self {
            tables: RefCell::default(),
            data_reads: proxy("speculative_data_reads", "Requests for data to one replica more than needed"),
            digest_reads: proxy(
                "speculative_digest_reads",
                "Requests for digests to one replica more than needed",
            ),
            helped: metrics::counter(
                "ceto_coordinator_speculative_reads_helped",
                "Reads that were answered with what one replica more sent before one of the others",
                &[],
            ),
        }
    }

    /// When a read of `table` that may take so long asks one more replica.
    pub(crate) fn retry(&self, schema: &Schema, table: &Table, kind: Kind, may_take: Duration) -> Retry {
        let mut tables = self.tables.borrow_mut();
        if !tables.contains_key(&table.id()) {
            tables.retain(|id, _| schema.table_by_id(*id).is_some());
            tables.insert(table.id(), OfTable::new());
        }
        let of_table = tables.get_mut(&table.id()).expect("it was made above");
        let option = &table.options().speculative_retry;
        if of_table.option != *option {
            of_table.follow(option);
        }
        let policy = of_table.policy;
        policy.retry(of_table.latencies(kind).percentile().unwrap_or(may_take / 2))
    }

    /// Notes how long another node took for a page of `table`.
    pub(crate) fn note(&self, table: &Table, kind: Kind, took: Duration) {
        let mut tables = self.tables.borrow_mut();
        let Some(of_table) = tables.get_mut(&table.id()) else { return };
        if let Some(percentile) = of_table.policy.percentile() {
            of_table.latencies(kind).record(took, percentile, reactor::coarse_now());
        }
    }

    /// Counts a request to one replica more.
    pub(crate) fn sent(&self, is_digest: bool) {
        if is_digest { self.digest_reads.inc() } else { self.data_reads.inc() }
    }

    /// Counts a read that ended sooner by it.
    pub(crate) fn helped(&self) {
        self.helped.inc();
    }
}
