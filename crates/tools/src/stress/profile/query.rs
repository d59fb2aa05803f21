//! A query of a profile, its markers bound to values of rows that are there.

use model::hex;
use wire::ValueRef;
use wire::client::{ClientRequest, Parameters, ResponseBody};

use super::{PAGE_ROWS, routing_key};
use crate::client::Prepared;
use crate::stress::cluster::token_of;
use crate::stress::distribution::Ratio;
use crate::stress::operation::{Dialect, Job, Operation, Permits, Verdict};
use crate::stress::partition::{Partition, PartitionGenerator, Place, Row, Share};
use crate::stress::random::JavaRandom;
use crate::stress::seeds::SeedManager;
use crate::stress::settings::Settings;

/// Executes a query.
pub(super) struct Query {
    name: String,
    generator: PartitionGenerator,
    prepared: Prepared,
    places: Vec<Place>,
    /// All markers take values of one row; otherwise each of any of some rows.
    is_same_row: bool,
    populated: Option<Ratio>,
    dialect: Dialect,
    random: JavaRandom,
}

impl Query {
    #[expect(clippy::too_many_arguments, reason = "what a query is made of, passed once")]
    pub(super) fn new(
        name: &str,
        generator: PartitionGenerator,
        prepared: Prepared,
        places: Vec<Place>,
        is_same_row: bool,
        settings: &Settings,
        dialect: Dialect,
        seed: i64,
    ) -> Self {
        let populated = settings.insert.row_population.as_ref().map(|ratio| ratio.build(seed));
        let random = JavaRandom::new(seed);
        let name = name.to_owned();
        Self { name, generator, prepared, places, is_same_row, populated, dialect, random }
    }
}

/// The frame for one page of a prepared query.
pub(super) fn page_frame(
    dialect: &Dialect,
    prepared: &Prepared,
    values: &[Option<Vec<u8>>],
    paging_state: Option<&[u8]>,
) -> Vec<u8> {
    let values: Vec<ValueRef<'_>> =
        values.iter().map(|value| value.as_deref().map_or(ValueRef::Null, ValueRef::Bytes)).collect();
    let parameters =
        Parameters { values: &values, page_size: Some(PAGE_ROWS), paging_state, ..dialect.parameters() };
    let request = ClientRequest::Execute {
        id: &prepared.id,
        result_metadata_id: &prepared.result_metadata_id,
        parameters: &parameters,
    };
    // Values are far below the limit of a frame.
    dialect.frame(&request).unwrap_or_default()
}

impl Operation for Query {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&mut self, job: &mut Job, seeds: &mut SeedManager, permits: &mut Permits) -> i64 {
        if permits.take(1) == 0 {
            return 0;
        }
        let Some(seed) = seeds.next(false) else { return 0 };
        let rows_wanted = if self.is_same_row { 1 } else { self.places.len().max(1) };
        let populated = self.populated.as_mut().map_or(1.0, Ratio::next);
        let share = Share::Count(rows_wanted as i64);
        let visit = Partition::visit(
            &mut self.generator,
            seeds,
            seed.clone(),
            share,
            populated,
            false,
            &mut self.random,
        );
        let Some(mut visit) = visit else { return 0 };
        let mut rows: Vec<Row> = Vec::new();
        while rows.len() < rows_wanted {
            let Some(row) = visit.next(seeds, &mut self.random) else { break };
            rows.push(row);
        }
        let key = std::mem::take(&mut visit.key);
        drop(visit);
        let values: Vec<Option<Vec<u8>>> = self
            .places
            .iter()
            .map(|place| match *place {
                Place::Key(index) => key.get(index).cloned(),
                Place::Row(index) => {
                    let row = rows.get(self.random.below(rows.len()))?;
                    row.get(index).cloned().flatten()
                }
            })
            .collect();
        job.frame = page_frame(&self.dialect, &self.prepared, &values, None);
        job.expected.clear();
        job.expected.push(values);
        job.token = Some(token_of(&routing_key(&key)));
        job.from = hex::text(&key.concat()).into_bytes();
        (job.partitions, job.rows) = (0, 0);
        1
    }

    fn answer(&mut self, job: &mut Job, body: &ResponseBody<'_>) -> Verdict {
        match body {
            ResponseBody::Rows(rows) => {
                job.rows += rows.row_count as u64;
                job.partitions = job.rows.min(1);
                match rows.paging_state {
                    Some(state) => {
                        let values = job.expected.first().map_or(&[][..], Vec::as_slice);
                        job.frame = page_frame(&self.dialect, &self.prepared, values, Some(state));
                        Verdict::Again
                    }
                    None => Verdict::Done,
                }
            }
            ResponseBody::Void => Verdict::Done,
            _ => Verdict::Invalid,
        }
    }

    fn key(&mut self, job: &Job) -> String {
        format!("[{}]", String::from_utf8_lossy(&job.from))
    }
}
