//! A trace as a table: what each node did for a statement, and when.
//!
//! Source: `tracing.py` of cqlsh; the tables are `system_traces.sessions` and `events`.

use std::time::Duration;

use model::CqlType;
use statement::terms::time;

use super::error::ShellError;
use super::run::Shell;
use super::session::Row;
use super::style::{CYAN, Color, GREEN, MAGENTA, Text, YELLOW};
use super::table;
use super::value::Printer;

/// How long a trace may take to become whole.
const WAIT_MAX: Duration = Duration::from_secs(10);
const WAIT_STEP: Duration = Duration::from_millis(20);

/// The beginning and the end of a traced statement.
struct Summary {
    request: String,
    /// Milliseconds since the epoch.
    started_ms: i64,
    coordinator: String,
    client: String,
    /// `None` while the statement is at work.
    duration_us: Option<i32>,
}

fn number<const N: usize>(row: &Row, at: usize) -> Option<[u8; N]> {
    row.get(at)?.as_deref()?.try_into().ok()
}

fn text(row: &Row, at: usize, ty: &CqlType) -> String {
    let value = row.get(at).and_then(Option::as_deref);
    Printer::table(false).print(ty, value).text
}

impl Shell {
    /// Prints a trace, once it is whole.
    pub(super) async fn show_trace(&mut self, id: [u8; 16], is_terminal: bool) -> Result<(), ShellError> {
        let name = uuid::Uuid::from_bytes(id).to_string();
        let began = reactor::now();
        let summary = loop {
            let found = self.summary(&name).await?;
            let is_late = began.elapsed() > WAIT_MAX;
            match found {
                Some(summary) if summary.duration_us.is_some() || is_late => break summary,
                None if is_late => return Err(ShellError::command(format!("Session {name} wasn't found."))),
                _ => reactor::sleep(WAIT_STEP).await,
            }
        };
        let wanted = format!(
            "SELECT activity, event_id, source, source_elapsed, thread FROM system_traces.events WHERE session_id = {name}"
        );
        let events = self.session.small_rows(&wanted).await?;
        let rows = self.rows(&summary, &events);
        let has_color = self.out.has_color();
        let names = ["activity", "timestamp", "source", "source_elapsed", "client"];
        let names: Vec<Text> = names.iter().map(|name| Text::of(has_color, MAGENTA, name)).collect();
        let title = self.out.colored(MAGENTA, "Tracing session: ");
        self.out.line("");
        self.out.line(&format!("{title}{name}"));
        self.out.line("");
        for line in table::lines(&names, &rows, true) {
            self.out.line(&line);
        }
        if is_terminal {
            self.out.line("");
        }
        self.out.line("");
        Ok(())
    }

    async fn summary(&mut self, id: &str) -> Result<Option<Summary>, ShellError> {
        let wanted = format!(
            "SELECT request, started_at, coordinator, client, duration FROM system_traces.sessions WHERE session_id = {id}"
        );
        let rows = self.session.small_rows(&wanted).await?;
        Ok(rows.first().map(|row| Summary {
            request: text(row, 0, &CqlType::Text),
            started_ms: number(row, 1).map_or(0, i64::from_be_bytes),
            coordinator: text(row, 2, &CqlType::Inet),
            client: text(row, 3, &CqlType::Inet),
            duration_us: number(row, 4).map(i32::from_be_bytes),
        }))
    }

    fn rows(&self, summary: &Summary, events: &[Row]) -> Vec<Vec<Text>> {
        let has_color = self.out.has_color();
        let line = |activity: &str, micros: i64, source: &str, elapsed: &str| -> Vec<Text> {
            let cells: [(Color, &str); 5] = [
                (YELLOW, activity),
                (YELLOW, &moment(micros)),
                (GREEN, source),
                (GREEN, elapsed),
                (CYAN, &summary.client),
            ];
            cells.map(|(color, text)| Text::of(has_color, color, text)).to_vec()
        };
        let started_us = summary.started_ms.saturating_mul(1000);
        let mut rows = vec![line(&summary.request, started_us, &summary.coordinator, "0")];
        for event in events {
            let activity = format!("{} [{}]", text(event, 0, &CqlType::Text), text(event, 4, &CqlType::Text));
            let id = number(event, 1).map(uuid::Uuid::from_bytes);
            let micros = id.and_then(|id| model::timeuuid::unix_micros(&id)).unwrap_or(started_us);
            let elapsed =
                number(event, 3).map_or("--".to_owned(), |bytes| i32::from_be_bytes(bytes).to_string());
            rows.push(line(&activity, micros, &text(event, 2, &CqlType::Inet), &elapsed));
        }
        if let Some(duration) = summary.duration_us {
            let end = started_us.saturating_add(i64::from(duration));
            rows.push(line("Request complete", end, &summary.coordinator, &duration.to_string()));
        }
        rows
    }
}

/// A point in time in UTC: `2026-01-31 12:00:00.123456`.
fn moment(micros: i64) -> String {
    let text = time::timestamp_text(micros.div_euclid(1000)).replacen('T', " ", 1);
    format!("{}{:03}", text.trim_end_matches('Z'), micros.rem_euclid(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_microseconds() {
        assert_eq!(moment(1_296_705_906_789_012), "2011-02-03 04:05:06.789012");
        assert_eq!(moment(-1), "1969-12-31 23:59:59.999999");
    }
}
