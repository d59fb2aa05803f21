//! Writes rows of a profile's table: whole partitions, or the rows of a visit, in one statement or a batch.

use model::hex;
use wire::ValueRef;
use wire::client::{ClientRequest, ResponseBody};
use wire::request::{BatchKind, BatchStatementKind};

use super::{BATCH_STATEMENTS_MAX, Profile, ROWS_WITHOUT_WARNING, quoted, routing_key};
use crate::client::{Client, Prepared};
use crate::stress::StressError;
use crate::stress::cluster::token_of;
use crate::stress::console::tell;
use crate::stress::distribution::{Distribution, Ratio};
use crate::stress::operation::{Dialect, Job, Operation, Permits, Verdict};
use crate::stress::partition::{Partition, PartitionGenerator, Place, Row, Share};
use crate::stress::random::JavaRandom;
use crate::stress::seeds::SeedManager;
use crate::stress::settings::Settings;

/// Seeds tried for a partition of which something is left to write.
const ATTEMPTS_MAX: u32 = 10_000;

/// Writes rows.
pub(super) struct Insert {
    generator: PartitionGenerator,
    prepared: Prepared,
    places: Vec<Place>,
    dialect: Dialect,
    batch: BatchKind,
    partitions: Distribution,
    select: Ratio,
    populated: Ratio,
    random: JavaRandom,
}

/// Values as the protocol sends them.
fn refer(values: &[Option<Vec<u8>>]) -> Vec<ValueRef<'_>> {
    values.iter().map(|value| value.as_deref().map_or(ValueRef::Null, ValueRef::Bytes)).collect()
}

/// The statement that writes a row.
fn statement(profile: &Profile) -> Result<String, StressError> {
    let table = profile.table()?;
    let keys: Vec<&String> = table.keys.iter().chain(&table.clustering).map(|(name, _)| name).collect();
    let name = quoted(&profile.table);
    if table.values.is_empty() {
        let columns: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
        let marks = vec!["?"; columns.len()].join(", ");
        return Ok(format!("INSERT INTO {name} ({}) values({marks})", columns.join(", ")));
    }
    let sets: Vec<String> = table
        .values
        .iter()
        .map(|(column, ty)| {
            let column = quoted(column);
            let adds = ty.is_counter() || ty.is_multi_cell();
            if adds { format!("{column} = {column} + ?") } else { format!("{column} = ?") }
        })
        .collect();
    let wheres: Vec<String> = keys.iter().map(|key| format!("{} = ?", quoted(key))).collect();
    Ok(format!("UPDATE {name} SET {} WHERE {}", sets.join(","), wheres.join(" AND ")))
}

impl Insert {
    pub(super) async fn prepare(
        profile: &Profile,
        generator: PartitionGenerator,
        settings: &Settings,
        clients: &mut [Client],
        dialect: Dialect,
        seed: i64,
    ) -> Result<Self, StressError> {
        let known = ["partitions", "select", "row-population", "batchtype"];
        if let Some((key, value)) = profile.insert.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            return Err(profile.wrong(format!("Unrecognised insert option(s): {{{key}={value}}}")));
        }
        let partitions =
            profile.insert_distribution(&settings.insert.partitions, "partitions", "fixed(1)")?.build(seed);
        let select = profile.insert_ratio(&settings.insert.select, "select")?.build(seed);
        let populated = profile.insert_ratio(&settings.insert.row_population, "row-population")?.build(seed);
        let batch = settings.insert.batch_type.as_ref().or_else(|| profile.insert.get("batchtype"));
        let batch = match batch.map(|kind| kind.to_uppercase()).as_deref() {
            None | Some("LOGGED") => BatchKind::Logged,
            Some("UNLOGGED") => BatchKind::Unlogged,
            Some("COUNTER") => BatchKind::Counter,
            Some(other) => return Err(profile.wrong(format!("No batch type {other}"))),
        };
        let visits = settings.insert.visits.build(seed);
        let (fewest, most) = generator.row_counts();
        let (few, many) = (partitions.min() as f64, partitions.max() as f64);
        if !profile.is_told.replace(true) {
            tell(&format!(
                "Generating batches with [{few}..{many}] partitions and [{:.0}..{:.0}] rows (of [{:.0}..{:.0}] total rows \
             in the partitions)",
                select.min() * few * fewest / visits.max().max(1) as f64,
                select.max() * many * most / visits.min().max(1) as f64,
                few * fewest,
                many * most
            ));
        }
        if most > ROWS_WITHOUT_WARNING {
            eprintln!(
                "WARNING: You have defined a schema that permits very large partitions ({most:.0} max rows (>100M))"
            );
        }
        let batch_rows = select.max() * many * most / visits.min().max(1) as f64;
        if batch == BatchKind::Logged && batch_rows > BATCH_STATEMENTS_MAX as f64 {
            return Err(profile.wrong(format!(
                "ERROR: You have defined a workload that generates batches with more than 65k rows ({batch_rows:.0}), \
                 but have required the use of LOGGED batches. There is a 65k row limit on a single batch."
            )));
        }
        let text = statement(profile)?;
        let (prepared, places) = profile.prepare(&text, clients, &generator).await?;
        let random = JavaRandom::new(seed);
        Ok(Self { generator, prepared, places, dialect, batch, partitions, select, populated, random })
    }

    /// The frames that write `rows`, each with its partition key.
    fn frames(&self, rows: &[(std::rc::Rc<Vec<Vec<u8>>>, Row)]) -> Vec<Vec<u8>> {
        let bind = |(key, row): &(std::rc::Rc<Vec<Vec<u8>>>, Row)| -> Vec<Option<Vec<u8>>> {
            let value = |place: &Place| match *place {
                Place::Key(index) => key.get(index).cloned(),
                Place::Row(index) => row.get(index).cloned().flatten(),
            };
            self.places.iter().map(value).collect()
        };
        let mut frames = Vec::new();
        for chunk in rows.chunks(BATCH_STATEMENTS_MAX) {
            let bound: Vec<Vec<Option<Vec<u8>>>> = chunk.iter().map(bind).collect();
            let frame = if rows.len() == 1 {
                self.dialect.execute(&self.prepared, &refer(&bound[0]), None, false)
            } else {
                let values: Vec<Vec<ValueRef<'_>>> = bound.iter().map(|values| refer(values)).collect();
                let statements: Vec<_> = values
                    .iter()
                    .map(|values| (BatchStatementKind::Prepared(&self.prepared.id), &values[..]))
                    .collect();
                let request = ClientRequest::Batch(self.batch, &statements, &self.dialect.parameters());
                self.dialect.frame(&request)
            };
            // Only a frame beyond 2 GiB cannot be made; the server would not take one of a tenth.
            frames.extend(frame);
        }
        frames
    }
}

impl Operation for Insert {
    fn name(&self) -> &str {
        "insert"
    }

    fn begin(&mut self, job: &mut Job, seeds: &mut SeedManager, permits: &mut Permits) -> i64 {
        let wanted = permits.take(self.partitions.next().max(0));
        let mut rows = Vec::new();
        job.seeds.clear();
        for _ in 0..wanted {
            let mut attempts = 0;
            loop {
                attempts += 1;
                let Some(seed) = seeds.next(true).filter(|_| attempts < ATTEMPTS_MAX) else { break };
                let (share, populated) = (Share::Chance(self.select.next()), self.populated.next());
                let visit = Partition::visit(
                    &mut self.generator,
                    seeds,
                    seed.clone(),
                    share,
                    populated,
                    true,
                    &mut self.random,
                );
                let Some(mut visit) = visit else { continue };
                let key = std::rc::Rc::new(visit.key.clone());
                while let Some(row) = visit.next(seeds, &mut self.random) {
                    rows.push((key.clone(), row));
                }
                if job.seeds.is_empty() {
                    job.token = Some(token_of(&routing_key(&key)));
                    job.from = hex::text(&key.concat()).into_bytes();
                }
                job.seeds.push(seed);
                break;
            }
        }
        let mut frames = self.frames(&rows);
        if frames.is_empty() {
            return 0;
        }
        job.frame = frames.remove(0);
        job.more = frames;
        (job.partitions, job.rows) = (job.seeds.len() as u64, rows.len() as u64);
        job.seeds.len() as i64
    }

    fn answer(&mut self, job: &mut Job, body: &ResponseBody<'_>) -> Verdict {
        if !matches!(body, ResponseBody::Void | ResponseBody::Rows(_)) {
            return Verdict::Invalid;
        }
        match job.more.pop() {
            Some(frame) => {
                job.frame = frame;
                Verdict::Again
            }
            None => Verdict::Done,
        }
    }

    fn key(&mut self, job: &Job) -> String {
        format!("[{}]", String::from_utf8_lossy(&job.from))
    }
}
