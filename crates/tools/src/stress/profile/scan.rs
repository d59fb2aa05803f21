//! Reads the table range by range of tokens, a page at a time.

use model::{CqlType, Token};
use wire::client::{ClientRequest, Parameters, ResponseBody};

use super::{Table, quoted};
use crate::stress::operation::{Dialect, Job, Operation, Permits, Verdict};
use crate::stress::seeds::SeedManager;
use crate::stress::settings::Settings;

/// Reads ranges of tokens: an operation is a page.
pub(super) struct Scan {
    name: String,
    statements: Vec<String>,
    next: usize,
    wraps: bool,
    page_rows: i32,
    dialect: Dialect,
}

/// All ranges between the ends of `ring`, each cut into `parts`.
fn ranges(ring: &[Token], parts: u32) -> Vec<(Option<i64>, Option<i64>)> {
    let mut ends: Vec<i64> = ring.iter().map(|token| token.0).collect();
    ends.dedup();
    let mut bounds = vec![i64::MIN];
    for end in ends.into_iter().chain([i64::MAX]) {
        let start = bounds[bounds.len() - 1];
        let width = i128::from(end) - i128::from(start);
        for part in 1..=i128::from(parts) {
            let bound = (i128::from(start) + width * part / i128::from(parts)) as i64;
            if bound > bounds[bounds.len() - 1] {
                bounds.push(bound);
            }
        }
    }
    let last = bounds.len() - 2;
    let pairs = bounds.windows(2).enumerate();
    pairs.map(|(index, pair)| ((index > 0).then_some(pair[0]), (index < last).then_some(pair[1]))).collect()
}

impl Scan {
    #[expect(clippy::too_many_arguments, reason = "what a scan is made of, passed once")]
    pub(super) fn new(
        name: &str,
        table: &Table,
        table_name: &str,
        columns: &str,
        page_rows: i32,
        settings: &Settings,
        dialect: Dialect,
        ring: &[Token],
    ) -> Self {
        let list = |columns: &[(String, CqlType)]| {
            columns.iter().map(|(column, _)| quoted(column)).collect::<Vec<_>>().join(", ")
        };
        let token = format!("token({})", list(&table.keys));
        let columns = if columns == "*" {
            let all = [&table.keys[..], &table.clustering, &table.values].concat();
            list(&all)
        } else {
            columns.to_owned()
        };
        let statements = ranges(ring, settings.token_ranges.split_factor)
            .into_iter()
            .map(|(start, end)| {
                let mut conditions = Vec::new();
                conditions.extend(start.map(|start| format!("{token} > {start}")));
                conditions.extend(end.map(|end| format!("{token} <= {end}")));
                let condition = if conditions.is_empty() {
                    String::new()
                } else {
                    format!(" WHERE {}", conditions.join(" AND "))
                };
                format!("SELECT {token}, {columns} FROM {}{condition}", quoted(table_name))
            })
            .collect();
        Self {
            name: name.to_owned(),
            statements,
            next: 0,
            wraps: settings.token_ranges.wrap,
            page_rows,
            dialect,
        }
    }

    fn frame(&self, range: usize, paging_state: Option<&[u8]>) -> Vec<u8> {
        let parameters =
            Parameters { page_size: Some(self.page_rows), paging_state, ..self.dialect.parameters() };
        let request = ClientRequest::Query(&self.statements[range], &parameters);
        // A statement is far below the limit of a frame.
        self.dialect.frame(&request).unwrap_or_default()
    }
}

impl Operation for Scan {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&mut self, job: &mut Job, _seeds: &mut SeedManager, permits: &mut Permits) -> i64 {
        // A paging state left by the last page: the same range goes on.
        if job.from.is_empty() || job.step >= self.statements.len() {
            if self.next >= self.statements.len() {
                if !self.wraps {
                    return 0;
                }
                self.next = 0;
            }
            job.step = self.next;
            self.next += 1;
            job.from.clear();
            job.expected.clear();
        }
        if permits.take(1) == 0 {
            return 0;
        }
        let state = std::mem::take(&mut job.from);
        job.frame = self.frame(job.step, (!state.is_empty()).then_some(&state[..]));
        job.token = None;
        (job.partitions, job.rows) = (0, 0);
        1
    }

    fn answer(&mut self, job: &mut Job, body: &ResponseBody<'_>) -> Verdict {
        let ResponseBody::Rows(rows) = body else { return Verdict::Invalid };
        job.rows = rows.row_count as u64;
        // Rows come in order of tokens: a partition begins where the token changes.
        let mut last = job.expected.pop().and_then(|mut row| row.pop()).flatten();
        for token in rows.values().step_by(rows.column_count.max(1)) {
            let token = token.map(<[u8]>::to_vec);
            if token != last {
                job.partitions += 1;
                last = token;
            }
        }
        job.expected.push(vec![last]);
        job.from = rows.paging_state.unwrap_or_default().to_vec();
        Verdict::Done
    }

    fn key(&mut self, job: &Job) -> String {
        format!("[{}]", self.statements.get(job.step).map_or("-", String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_tokens_without_overlap() {
        assert_eq!(ranges(&[], 1), [(None, None)]);
        let found = ranges(&[Token(-5), Token(7)], 2);
        assert_eq!(found.len(), 6);
        assert_eq!((found[0].0, found[5].1), (None, None));
        assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].1.is_some()));
        assert!(found.contains(&(Some(1), Some(7))), "{found:?}");
    }
}
