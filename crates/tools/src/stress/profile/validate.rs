//! Reads inserted rows and compares every value: whole partitions, and slices of every depth of clustering.

use std::rc::Rc;

use model::hex;
use wire::client::ResponseBody;

use super::query::page_frame;
use super::{Profile, quoted, routing_key};
use crate::client::{Client, Prepared};
use crate::stress::StressError;
use crate::stress::cluster::token_of;
use crate::stress::operation::{Dialect, Job, Operation, Permits, Verdict};
use crate::stress::partition::{Partition, PartitionGenerator, Place};
use crate::stress::random::JavaRandom;
use crate::stress::seeds::SeedManager;

/// One statement, and whether its results include its bounds.
struct Statement {
    prepared: Prepared,
    includes_start: bool,
    includes_end: bool,
    /// Place of each result column in a row.
    places: Rc<Vec<Place>>,
}

/// Reads and compares slices by the first `depth` clustering columns.
struct Validate {
    generator: PartitionGenerator,
    depth: usize,
    statements: Vec<Statement>,
    dialect: Dialect,
    random: JavaRandom,
}

/// The operations that validate a profile's table.
pub(super) async fn prepare(
    profile: &Profile,
    generator: &PartitionGenerator,
    clients: &mut [Client],
    dialect: Dialect,
    seed: i64,
) -> Result<Vec<Box<dyn Operation>>, StressError> {
    let table = profile.table()?;
    let keys: Vec<String> = table.keys.iter().map(|(name, _)| format!("{} = ?", quoted(name))).collect();
    let base = format!("SELECT * FROM {} WHERE {}", quoted(&profile.table), keys.join(" AND "));
    let mut operations: Vec<Box<dyn Operation>> = Vec::new();
    for depth in 0..=table.clustering.len() {
        let bounds: &[(bool, bool)] = match depth {
            0 => &[(true, true)],
            depth if depth < table.clustering.len() => &[(true, true)],
            _ => &[(true, true), (true, false), (false, true), (false, false)],
        };
        let mut statements = Vec::new();
        for (includes_start, includes_end) in bounds.iter().copied() {
            let mut text = base.clone();
            if depth > 0 {
                let columns: Vec<String> =
                    table.clustering[..depth].iter().map(|(name, _)| quoted(name)).collect();
                let (columns, marks) = (columns.join(","), vec!["?"; depth].join(","));
                let low = if includes_start { ">=" } else { ">" };
                let high = if includes_end { "<=" } else { "<" };
                text.push_str(&format!(" AND ({columns}){low}({marks}) AND ({columns}){high}({marks})"));
            }
            let mut prepared = Prepared::default();
            for client in clients.iter_mut() {
                prepared = client.prepare(&text).await?;
            }
            let places = prepared.columns.iter().map(|(name, _)| {
                generator.place(name).ok_or_else(|| profile.wrong(format!("no column {name}")))
            });
            let places: Result<Vec<Place>, StressError> = places.collect();
            statements.push(Statement { prepared, includes_start, includes_end, places: Rc::new(places?) });
        }
        operations.push(Box::new(Validate {
            generator: generator.clone(),
            depth,
            statements,
            dialect,
            random: JavaRandom::new(seed.wrapping_add(depth as i64)),
        }));
    }
    Ok(operations)
}

impl Operation for Validate {
    fn name(&self) -> &str {
        "validate"
    }

    fn begin(&mut self, job: &mut Job, seeds: &mut SeedManager, permits: &mut Permits) -> i64 {
        if permits.take(1) == 0 {
            return 0;
        }
        let Some(seed) = seeds.next(false) else { return 0 };
        let found =
            Partition::between(&mut self.generator, seeds, seed.clone(), self.depth, &mut self.random);
        let Some((mut visit, low, high)) = found else { return 0 };
        let mut rows = Vec::new();
        while let Some(row) = visit.next(seeds, &mut self.random) {
            rows.push(row);
        }
        let key = std::mem::take(&mut visit.key);
        drop(visit);
        job.step = self.random.below(self.statements.len());
        let statement = &self.statements[job.step];
        // An excluded bound may represent several rows only if bounds are whole keys: then it is one row.
        let start = usize::from(!statement.includes_start).min(rows.len());
        let end = rows.len().saturating_sub(usize::from(!statement.includes_end)).max(start);
        let expected = rows[start..end].iter().map(|row| {
            let value = |place: &Place| match *place {
                Place::Key(index) => key.get(index).cloned(),
                Place::Row(index) => row.get(index).cloned().flatten(),
            };
            statement.places.iter().map(value).collect()
        });
        job.expected = expected.collect();
        job.expected.reverse();
        let values: Vec<Option<Vec<u8>>> = key.iter().chain(&low).chain(&high).cloned().map(Some).collect();
        job.frame = page_frame(&self.dialect, &statement.prepared, &values, None);
        // Expected rows are taken from the end; the bound values stay at the front.
        job.expected.insert(0, values);
        job.token = Some(token_of(&routing_key(&key)));
        job.from = hex::text(&key.concat()).into_bytes();
        (job.partitions, job.rows) = (0, 0);
        1
    }

    fn answer(&mut self, job: &mut Job, body: &ResponseBody<'_>) -> Verdict {
        let ResponseBody::Rows(rows) = body else { return Verdict::Invalid };
        let statement = &self.statements[job.step];
        if rows.column_count != statement.places.len() {
            return Verdict::Invalid;
        }
        let mut values = rows.values();
        for _ in 0..rows.row_count {
            // The first element is the bound values.
            let expected = if job.expected.len() > 1 { job.expected.pop() } else { None };
            let Some(expected) = expected else { return Verdict::Invalid };
            for value in expected {
                if values.next().flatten() != value.as_deref() {
                    return Verdict::Invalid;
                }
            }
            job.rows += 1;
        }
        job.partitions = job.rows.min(1);
        match rows.paging_state {
            Some(state) => {
                let values = job.expected.first().map_or(&[][..], Vec::as_slice);
                job.frame = page_frame(&self.dialect, &statement.prepared, values, Some(state));
                Verdict::Again
            }
            None if job.expected.len() == 1 => Verdict::Done,
            None => Verdict::Invalid,
        }
    }

    fn key(&mut self, job: &Job) -> String {
        format!("[{}]", String::from_utf8_lossy(&job.from))
    }
}
