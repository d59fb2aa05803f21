//! `COPY t TO`: reads a table in ranges of its tokens, some at a time, and writes lines as pages arrive.
//!
//! Lines of different ranges come in no order. A table without tokens, of the server's memory, is read whole.

#![allow(clippy::disallowed_types)] // nothing else runs on the shell's thread

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::rc::Rc;
use std::time::Duration;

use model::type_parser::quote_identifier;
use model::{CqlType, Token};
use wire::ValueRef;
use wire::client::{ClientRequest, Parameters, ResponseBody};

use super::lane::Lane;
use super::progress::Progress;
use super::{Copy, csv};
use crate::client::{Client, Prepared};
use crate::shell::error::ShellError;
use crate::shell::output::Out;
use crate::shell::schema::{Column, Kind};
use crate::shell::session::Session;
use crate::shell::value::Printer;

/// Ranges for each request in flight, so that the last ones end together.
const RANGES_PER_REQUEST: usize = 8;

/// The state that the tasks of an export share.
struct Export {
    copy: Copy,
    lane: Lane,
    prepared: Prepared,
    printer: Printer,
    consistency: wire::Consistency,
    ranges: RefCell<Vec<(i64, i64)>>,
    writer: RefCell<Writer>,
    progress: RefCell<Progress>,
    rows: Cell<u64>,
}

/// The output of an export.
enum Writer {
    File(BufWriter<File>),
    Standard(BufWriter<io::Stdout>),
}

impl Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(bytes),
            Self::Standard(out) => out.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Standard(out) => out.flush(),
        }
    }
}

/// Runs the command; `table` has its columns.
///
/// # Errors
/// The first failure; the file then has a part of the rows.
pub(in crate::shell) async fn export(
    session: &Session,
    out: &mut Out,
    (copy, keyspace): (Copy, &str),
    table: &[Column],
) -> Result<(), ShellError> {
    let names: Vec<&str> = match &copy.columns {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => table.iter().map(|column| column.name.as_str()).collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !table.iter().any(|column| column.name == **name)) {
        return Err(ShellError::command(format!("Invalid column name {unknown}")));
    }
    let is_virtual = keyspace.starts_with("system_") && is_virtual(keyspace);
    let statement = statement(keyspace, &copy.table, &names, table, is_virtual);
    let ranges = if is_virtual { vec![(0, 0)] } else { ranges(&copy) };
    let (mut client, _) = Client::open(session.address, &session.options).await?;
    let prepared = client.prepare(&statement).await?;
    out.flush();
    let writer = match &copy.file {
        Some(name) => {
            let file = File::create(name)
                .map_err(|error| ShellError::command(format!("Can't open '{name}' for writing: {error}")))?;
            out.tell("");
            out.tell(&format!(
                "Starting copy of {keyspace}.{} with columns [{}].",
                copy.table,
                names.join(", ")
            ));
            out.flush();
            Writer::File(BufWriter::new(file))
        }
        None => Writer::Standard(BufWriter::new(io::stdout())),
    };
    let printer = Printer::file(copy.options.null.clone(), copy.options.booleans.clone());
    let header: Vec<Option<&str>> = names.iter().map(|name| Some(*name)).collect();
    let export = Rc::new(Export {
        lane: Lane::new(&client, session.request_time),
        prepared,
        printer,
        consistency: session.consistency,
        ranges: RefCell::new(ranges),
        writer: RefCell::new(writer),
        progress: RefCell::new(Progress::new()),
        rows: Cell::new(0),
        copy: copy.clone(),
    });
    if copy.options.header {
        let mut line = Vec::new();
        csv::append(&mut line, &copy.options.dialect, &copy.options.null, &header);
        export.writer.borrow_mut().write(&line).map_err(|error| failed(&copy, &error))?;
    }
    let workers = (0..copy.options.requests_max).map(|_| export.work());
    reactor::side_by_side(workers).await.map_err(|(_, error)| error)?;
    export.writer.borrow_mut().flush().map_err(|error| failed(&copy, &error))?;
    let time = export.progress.borrow().end();
    if copy.file.is_some() {
        out.tell("");
        out.tell(&format!("{} rows exported to 1 files in {time}.", export.rows.get()));
    }
    Ok(())
}

fn failed(copy: &Copy, error: &io::Error) -> ShellError {
    ShellError::command(format!(
        "cannot write to {}: {error}",
        copy.file.as_deref().unwrap_or("standard output")
    ))
}

/// Keyspaces whose tables are in a node's memory.
fn is_virtual(keyspace: &str) -> bool {
    matches!(keyspace, "system_views" | "system_virtual_schema" | "system_metrics")
}

fn statement(keyspace: &str, table: &str, names: &[&str], columns: &[Column], is_virtual: bool) -> String {
    let list =
        |names: &[&str]| names.iter().map(|name| quote_identifier(name)).collect::<Vec<_>>().join(", ");
    let key: Vec<&str> = columns
        .iter()
        .filter(|column| column.kind == Kind::PartitionKey)
        .map(|column| column.name.as_str())
        .collect();
    let mut text =
        format!("SELECT {} FROM {}.{}", list(names), quote_identifier(keyspace), quote_identifier(table));
    if !is_virtual {
        let key = list(&key);
        text.push_str(&format!(" WHERE token({key}) > ? AND token({key}) <= ?"));
    }
    text
}

/// Ranges of tokens, each without its first: all of them, or those asked for.
fn ranges(copy: &Copy) -> Vec<(i64, i64)> {
    // No key has the least token, which leaves it for the place before all.
    let begin = copy.options.begin_token.unwrap_or(i64::MIN);
    let end = copy.options.end_token.unwrap_or(i64::MAX);
    if begin >= end {
        return Vec::new();
    }
    let count = (copy.options.requests_max * RANGES_PER_REQUEST) as i128;
    let width = i128::from(end) - i128::from(begin);
    let bound = |at: i128| i64::try_from(i128::from(begin) + width * at / count).unwrap_or(end);
    (0..count).map(|at| (bound(at), bound(at + 1))).filter(|(from, to)| from < to).rev().collect()
}

impl Export {
    /// Reads ranges until none is left.
    async fn work(&self) -> Result<(), ShellError> {
        loop {
            let Some(range) = self.ranges.borrow_mut().pop() else { return Ok(()) };
            self.range(range).await?;
        }
    }

    async fn range(&self, (from, to): (i64, i64)) -> Result<(), ShellError> {
        let bounds = [Token(from).0.to_be_bytes(), to.to_be_bytes()];
        let values = [ValueRef::Bytes(&bounds[0]), ValueRef::Bytes(&bounds[1])];
        let mut state: Option<Vec<u8>> = None;
        loop {
            let parameters = Parameters {
                values: if self.prepared.markers.is_empty() { &[] } else { &values },
                page_size: Some(self.copy.options.page_rows),
                paging_state: state.as_deref(),
                ..Parameters::at(self.consistency)
            };
            let request = ClientRequest::Execute {
                id: &self.prepared.id,
                result_metadata_id: &self.prepared.result_metadata_id,
                parameters: &parameters,
            };
            let answer = self.page(&request).await?;
            let ResponseBody::Rows(rows) = answer.read()?.body else { return Ok(()) };
            let types: Vec<&CqlType> = self.prepared.columns.iter().map(|(_, ty)| ty).collect();
            let mut lines = Vec::new();
            let values: Vec<Option<&[u8]>> = rows.values().collect();
            for row in values.chunks(rows.column_count.max(1)) {
                self.append(&mut lines, &types, row);
                reactor::maybe_yield().await;
            }
            self.rows.set(self.rows.get() + rows.row_count as u64);
            self.writer.borrow_mut().write(&lines).map_err(|error| failed(&self.copy, &error))?;
            self.progress.borrow_mut().tell(self.rows.get());
            state = rows.paging_state.map(<[u8]>::to_vec);
            if state.is_none() {
                return Ok(());
            }
        }
    }

    /// A page; asked for again where that may help.
    async fn page(&self, request: &ClientRequest<'_>) -> Result<crate::client::Answer, ShellError> {
        let mut attempt = 1;
        loop {
            match self.lane.ask(request).await {
                Err(ShellError::Server(error))
                    if error.is_temporary() && attempt < self.copy.options.attempts_max => {}
                other => return other,
            }
            reactor::sleep(Duration::from_millis(100 << attempt.min(6))).await;
            attempt += 1;
        }
    }

    fn append(&self, lines: &mut Vec<u8>, types: &[&CqlType], row: &[Option<&[u8]>]) {
        let is_null = |ty: &CqlType, value: &[u8]| {
            value.is_empty()
                && !matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_))
        };
        let texts: Vec<Option<String>> = row
            .iter()
            .zip(types)
            .map(|(value, ty)| {
                let value = value.filter(|value| !is_null(ty, value))?;
                Some(self.printer.print(ty, Some(value)).text)
            })
            .collect();
        let fields: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        csv::append(lines, &self.copy.options.dialect, &self.copy.options.null, &fields);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Direction, Options};
    use super::*;

    #[test]
    fn ranges_cover_all_tokens_once() {
        let check = |begin: Option<i64>, end: Option<i64>, ends: (i64, i64)| {
            let options = Options { begin_token: begin, end_token: end, ..Options::default() };
            let copy = Copy {
                keyspace: None,
                table: "t".to_owned(),
                columns: None,
                direction: Direction::To,
                file: None,
                options,
            };
            let mut found = ranges(&copy);
            found.reverse();
            assert_eq!((found.first().unwrap().0, found.last().unwrap().1), ends);
            assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0), "{found:?}");
            found.len()
        };
        assert_eq!(check(None, None, (i64::MIN, i64::MAX)), 48);
        assert_eq!(check(Some(-10), Some(10), (-10, 10)), 20);
    }
}
