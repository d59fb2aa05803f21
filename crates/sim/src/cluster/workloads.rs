//! Which kinds of work the clients of a run do: the seed chooses some of them, so that runs stay short and
//! clients meet.

/// A kind of work, with a table of its own and a model that says what answers may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Workload {
    /// Elements are inserted and stay.
    Elements,
    /// Cells are written, overwritten and deleted with timestamps of the client.
    Cells,
    /// Tables are made, altered and dropped.
    Schema,
    /// Registers are set if they are what they were seen to be.
    Registers,
    /// Elements are inserted into several partitions by one logged batch.
    Batches,
    /// Counters are counted up and down.
    Counters,
    /// Elements are inserted into a table that is truncated now and then.
    Truncation,
    /// Rows are inserted that expire.
    Expiry,
    /// The keyspace gets another replication factor now and then.
    Replication,
}

impl Workload {
    pub(super) const ALL: [Self; 9] = [
        Self::Elements,
        Self::Cells,
        Self::Schema,
        Self::Registers,
        Self::Batches,
        Self::Counters,
        Self::Truncation,
        Self::Expiry,
        Self::Replication,
    ];

    /// The name of its table and the definition of its columns; none where clients make the tables, or use
    /// none.
    pub(super) fn table(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Elements => Some(("elements", "p int, e int, PRIMARY KEY (p, e)")),
            Self::Cells => Some(("cells", "k int, c int, a bigint, b bigint, PRIMARY KEY (k, c)")),
            Self::Schema | Self::Replication => None,
            Self::Registers => Some(("registers", "k int PRIMARY KEY, v int")),
            Self::Batches => Some(("batched", "p int, e int, PRIMARY KEY (p, e)")),
            Self::Counters => Some(("counters", "k int PRIMARY KEY, n counter")),
            Self::Truncation => Some(("passing", "p int, e int, PRIMARY KEY (p, e)")),
            Self::Expiry => Some(("fading", "p int, e int, PRIMARY KEY (p, e)")),
        }
    }

    /// The kinds that `number` chooses: each of them or not, and always at least two that write rows.
    pub(super) fn chosen(number: u64) -> Vec<Self> {
        let is_chosen = |at: usize| number & (1 << at) != 0;
        let mut chosen: Vec<Self> = Self::ALL
            .into_iter()
            .enumerate()
            .filter(|(at, _)| is_chosen(*at))
            .map(|(_, kind)| kind)
            .collect();
        let first = (number >> Self::ALL.len()) as usize;
        let works = chosen.iter().filter(|kind| **kind != Self::Replication).count();
        let most = chosen.len() - works + 2;
        for at in first..first + Self::ALL.len() {
            let kind = Self::ALL[at % Self::ALL.len()];
            if chosen.len() < most && kind != Self::Replication && !chosen.contains(&kind) {
                chosen.push(kind);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::Workload;

    #[test]
    fn every_number_chooses_two_kinds_that_write_and_every_kind_is_chosen() {
        let mut seen = Vec::new();
        for number in 0..1 << 13 {
            let chosen = Workload::chosen(number);
            let works = chosen.iter().filter(|kind| **kind != Workload::Replication).count();
            assert!(works >= 2, "{number}: {chosen:?}");
            seen.extend(chosen);
        }
        assert!(Workload::ALL.iter().all(|kind| seen.contains(kind)));
    }
}
