//! `COPY t FROM`: lines of CSV become rows of a prepared statement, with many requests in flight.
//!
//! Neighbouring rows of one partition go together, as one unlogged batch. Rows get growing timestamps in the
//! order of the file, so that of two with the same key the later one wins, whatever the order of arrival. A
//! row that fails is told with its line and kept in the error file; the others go on.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // nothing else runs on the shell's thread

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use model::CqlType;
use model::type_parser::quote_identifier;
use reactor::{Event, Group, Instant};
use wire::ValueRef;
use wire::client::{ClientRequest, Parameters};
use wire::request::{BatchKind, BatchStatementKind};

use super::lane::{Lane, REQUESTS_MAX};
use super::parse::Words;
use super::progress::Progress;
use super::{Copy, csv};
use crate::client::{Client, Prepared};
use crate::shell::error::ShellError;
use crate::shell::output::Out;
use crate::shell::schema::{Column, Kind};
use crate::shell::session::Session;

/// Bytes of a file that are read at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Failures that are told one by one; of the others there is the number.
const FAILURES_TOLD_MAX: usize = 20;

/// A row that is on its way.
struct Row {
    line: u64,
    source: Vec<u8>,
    values: Vec<Option<Vec<u8>>>,
    /// Microseconds since the epoch.
    timestamp: i64,
}

/// A row that failed.
struct Failure {
    line: u64,
    source: Vec<u8>,
    reason: String,
    is_of_parsing: bool,
}

/// The state that an import and its requests share.
struct Import {
    lane: Lane,
    prepared: Prepared,
    copy: Copy,
    /// Places of the key's columns among the values.
    partition_key: Vec<usize>,
    key: Vec<usize>,
    is_of_counters: bool,
    consistency: wire::Consistency,
    rows_in_flight: Cell<usize>,
    requests_in_flight: Cell<usize>,
    answered: Event,
    imported: Cell<u64>,
    failures: RefCell<Vec<Failure>>,
}

/// Bytes of the input, piece by piece; false at the end.
pub(in crate::shell) type Source<'s> = Box<dyn FnMut(&mut Vec<u8>) -> io::Result<bool> + 's>;

/// A file, or several with commas between, read one after the other.
pub(in crate::shell) struct Files {
    left: Vec<String>,
    /// How many were opened.
    pub(in crate::shell) count: usize,
    current: Option<File>,
}

impl Files {
    /// # Errors
    /// If one of them cannot be opened, in words for the user.
    pub(in crate::shell) fn open(names: &str) -> Result<Self, String> {
        let whole = std::path::Path::new(names).exists();
        let mut left: Vec<String> = match whole {
            true => vec![names.to_owned()],
            false => names.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        for name in &left {
            File::open(name).map_err(|error| format!("Can't open '{name}' for reading: {error}"))?;
        }
        left.reverse();
        Ok(Self { left, count: 0, current: None })
    }

    /// Goes on to the next file; false if there is none.
    pub(in crate::shell) fn advance(&mut self) -> io::Result<bool> {
        self.current = self.left.pop().map(File::open).transpose()?;
        self.count += usize::from(self.current.is_some());
        Ok(self.current.is_some())
    }

    /// Appends a piece of the present file; false at its end.
    fn read(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let Some(file) = &mut self.current else { return Ok(false) };
        let start = out.len();
        out.resize(start + PIECE_BYTES, 0);
        let count = file.read(&mut out[start..]);
        out.truncate(start + count.as_ref().copied().unwrap_or(0));
        count.map(|count| count > 0)
    }
}

/// The lines of an import.
pub(in crate::shell) enum Input<'i> {
    Files(Files),
    Standard(Source<'i>),
}

/// Runs the command; `table` has its columns. Returns whether all rows were taken.
///
/// # Errors
/// Failures that concern no row.
pub(in crate::shell) async fn import(
    session: &Session,
    out: &mut Out,
    (copy, keyspace): (Copy, &str),
    table: &[Column],
    mut input: Input<'_>,
) -> Result<bool, ShellError> {
    let names: Vec<String> = match &copy.columns {
        Some(names) => names.clone(),
        None => table.iter().map(|column| column.name.clone()).collect(),
    };
    let taken = taken(&names, &copy, table)?;
    let (mut client, _) = Client::open(session.address, &session.options).await?;
    let plan = plan(keyspace, &copy, table, &taken);
    let prepared = client.prepare(&plan.statement).await?;
    out.tell("");
    out.tell(&format!("Starting copy of {keyspace}.{} with columns [{}].", copy.table, taken.join(", ")));
    out.flush();
    let import = Rc::new(Import {
        lane: Lane::new(&client, session.request_time),
        prepared,
        partition_key: plan.places(table, &[Kind::PartitionKey]),
        key: plan.places(table, &[Kind::PartitionKey, Kind::Clustering]),
        is_of_counters: plan.is_of_counters,
        consistency: session.consistency,
        rows_in_flight: Cell::new(0),
        requests_in_flight: Cell::new(0),
        answered: Event::new(),
        imported: Cell::new(0),
        failures: RefCell::default(),
        copy,
    });
    let order: Vec<usize> =
        plan.markers.iter().filter_map(|marker| names.iter().position(|name| name == marker)).collect();
    let mut run = Run::new(import, names.len(), order, keyspace);
    let ended = run.all(out, &mut input).await;
    run.finish(out, &input).await;
    ended?;
    Ok(run.failed == 0)
}

/// The columns of the file that are written.
fn taken(names: &[String], copy: &Copy, table: &[Column]) -> Result<Vec<String>, ShellError> {
    let skipped = &copy.options.columns_skipped;
    let taken: Vec<String> = names.iter().filter(|name| !skipped.contains(name)).cloned().collect();
    if let Some(unknown) = taken.iter().find(|name| !table.iter().any(|column| column.name == **name)) {
        return Err(ShellError::command(format!("Invalid column name {unknown}")));
    }
    if let Some(at) = (1..taken.len()).find(|at| taken[..*at].contains(&taken[*at])) {
        return Err(ShellError::command(format!("Column {} is named twice", taken[at])));
    }
    let is_key = |column: &&Column| matches!(column.kind, Kind::PartitionKey | Kind::Clustering);
    if let Some(missing) = table.iter().filter(is_key).find(|column| !taken.contains(&column.name)) {
        return Err(ShellError::command(format!("Primary key column '{}' missing or skipped", missing.name)));
    }
    Ok(taken)
}

/// The statement of an import.
struct Plan {
    statement: String,
    /// Columns in the order of its markers; behind them are those of TTL and timestamp.
    markers: Vec<String>,
    is_of_counters: bool,
}

impl Plan {
    /// Places of the columns of these kinds among the markers, in the table's order.
    fn places(&self, table: &[Column], kinds: &[Kind]) -> Vec<usize> {
        let columns = table.iter().filter(|column| kinds.contains(&column.kind));
        columns.filter_map(|column| self.markers.iter().position(|name| *name == column.name)).collect()
    }
}

fn plan(keyspace: &str, copy: &Copy, table: &[Column], taken: &[String]) -> Plan {
    let name = format!("{}.{}", quote_identifier(keyspace), quote_identifier(&copy.table));
    let is_of_counters = table.iter().any(|column| column.ty == "counter");
    if !is_of_counters {
        let names: Vec<_> = taken.iter().map(|name| quote_identifier(name)).collect();
        let ttl = copy.options.ttl_seconds.map(|seconds| format!(" AND TTL {seconds}")).unwrap_or_default();
        let marks = vec!["?"; taken.len()].join(", ");
        let statement =
            format!("INSERT INTO {name} ({}) VALUES ({marks}) USING TIMESTAMP ?{ttl}", names.join(", "));
        return Plan { statement, markers: taken.to_vec(), is_of_counters };
    }
    let is_key = |name: &&String| {
        table.iter().any(|column| {
            column.name == **name && matches!(column.kind, Kind::PartitionKey | Kind::Clustering)
        })
    };
    let (key, counters): (Vec<&String>, Vec<&String>) = taken.iter().partition(is_key);
    let sums: Vec<String> =
        counters.iter().map(|name| format!("{0} = {0} + ?", quote_identifier(name))).collect();
    let terms: Vec<String> = key.iter().map(|name| format!("{} = ?", quote_identifier(name))).collect();
    let statement = format!("UPDATE {name} SET {} WHERE {}", sums.join(", "), terms.join(" AND "));
    Plan { statement, markers: counters.into_iter().chain(key).cloned().collect(), is_of_counters }
}

/// The reading end of an import.
struct Run {
    import: Rc<Import>,
    words: Words,
    field_count: usize,
    /// The field of each marker.
    order: Vec<usize>,
    /// Rows of one partition that go together.
    group: Vec<Row>,
    last_timestamp: i64,
    began: Instant,
    progress: Progress,
    read: u64,
    skipped: u64,
    failed: u64,
    parse_failures: u64,
    insert_failures: u64,
    error_name: String,
    error_file: Option<BufWriter<File>>,
}

impl Run {
    fn new(import: Rc<Import>, field_count: usize, order: Vec<usize>, keyspace: &str) -> Self {
        let options = &import.copy.options;
        let words = Words { null: options.null.clone(), booleans: options.booleans.clone() };
        let error_name = options.error_file.clone();
        let error_name = error_name.unwrap_or_else(|| format!("import_{keyspace}_{}.err", import.copy.table));
        Self {
            import,
            words,
            field_count,
            order,
            group: Vec::new(),
            last_timestamp: 0,
            began: reactor::now(),
            progress: Progress::new(),
            read: 0,
            skipped: 0,
            failed: 0,
            parse_failures: 0,
            insert_failures: 0,
            error_name,
            error_file: None,
        }
    }

    async fn all(&mut self, out: &mut Out, input: &mut Input<'_>) -> Result<(), ShellError> {
        match input {
            Input::Standard(source) => self.one(out, source).await.map(|_| ()),
            Input::Files(files) => {
                let unreadable = |error: io::Error| ShellError::command(format!("cannot read: {error}"));
                while files.advance().map_err(unreadable)? {
                    let mut source: Source<'_> = Box::new(|piece| files.read(piece));
                    if !self.one(out, &mut source).await? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes the records of one file; false if no more are wanted.
    async fn one(&mut self, out: &mut Out, source: &mut Source<'_>) -> Result<bool, ShellError> {
        let options = self.import.copy.options.clone();
        let mut reader = csv::Reader::new(options.dialect, source);
        let mut is_header = options.header;
        loop {
            let unreadable = |error: io::Error| ShellError::command(format!("cannot read: {error}"));
            let Some(record) = reader.next().map_err(unreadable)? else { return Ok(true) };
            if std::mem::take(&mut is_header) {
                continue;
            }
            if options.rows_max.is_some_and(|max| self.read >= max) {
                return Ok(false);
            }
            self.read += 1;
            if self.read <= options.rows_skipped {
                self.skipped += 1;
                continue;
            }
            match self.values(&record) {
                Ok(values) => self.add(record, values).await,
                Err(reason) => {
                    let (line, source) = (record.line, record.source);
                    let failure = Failure { line, source, reason, is_of_parsing: true };
                    self.import.failures.borrow_mut().push(failure);
                }
            }
            self.tell_failures(out);
            if let Some(reason) = self.exceeded() {
                return Err(ShellError::command(reason));
            }
            self.progress.tell(self.import.imported.get());
            self.pace(options.rows_per_second).await;
        }
    }

    /// Keeps to the wanted rate, and lets the other tasks go on.
    async fn pace(&self, rows_per_second: Option<u64>) {
        if let Some(rate) = rows_per_second {
            let due = Duration::from_secs_f64(self.read as f64 / rate as f64);
            let early = due.saturating_sub(self.began.elapsed());
            if !early.is_zero() {
                reactor::sleep(early).await;
            }
        }
        reactor::maybe_yield().await;
    }

    /// The values of a record, in the order of the markers.
    fn values(&self, record: &csv::Record) -> Result<Vec<Option<Vec<u8>>>, String> {
        if record.fields.len() != self.field_count {
            return Err(format!("{} fields where {} are expected", record.fields.len(), self.field_count));
        }
        let import = &self.import;
        let mut values = Vec::with_capacity(self.order.len());
        for (at, (field, (name, ty))) in self.order.iter().zip(&import.prepared.markers).enumerate() {
            let field = &record.fields[*field];
            let text =
                std::str::from_utf8(&field.bytes).map_err(|_| format!("column {name}: it is no UTF-8"))?;
            let value = self
                .words
                .value(ty, text, field.is_quoted)
                .map_err(|error| format!("column {name}: {error}"))?;
            if value.is_none() && import.key.contains(&at) {
                return Err(format!(
                    "column {name}: null in the primary key; to write empty texts, name another word for null by WITH \
                     NULL = 'word'"
                ));
            }
            // A count of nothing changes nothing, where null is no count.
            let is_count = import.is_of_counters && *ty == CqlType::Counter;
            values.push(value.or_else(|| is_count.then(|| 0i64.to_be_bytes().to_vec())));
        }
        Ok(values)
    }

    /// Adds a row to the present group, or sends that and begins another.
    async fn add(&mut self, record: csv::Record, values: Vec<Option<Vec<u8>>>) {
        let import = self.import.clone();
        let is_same = |places: &[usize], row: &Row| places.iter().all(|at| row.values[*at] == values[*at]);
        let fits = self.group.len() < import.copy.options.batch_rows_max
            && self.group.first().is_none_or(|first| is_same(&import.partition_key, first))
            && !self.group.iter().any(|row| is_same(&import.key, row));
        if !fits {
            self.send().await;
        }
        self.last_timestamp = reactor::wall_clock_us().max(self.last_timestamp + 1);
        let (line, source, timestamp) = (record.line, record.source, self.last_timestamp);
        self.group.push(Row { line, source, values, timestamp });
    }

    /// Sends the group, as soon as there is room for it.
    async fn send(&mut self) {
        let rows = std::mem::take(&mut self.group);
        if rows.len() >= self.import.copy.options.batch_rows_min.max(2) {
            self.dispatch(rows).await;
            return;
        }
        for row in rows {
            self.dispatch(vec![row]).await;
        }
    }

    async fn dispatch(&mut self, rows: Vec<Row>) {
        let import = self.import.clone();
        let (count, chunk) = (rows.len(), import.copy.options.chunk_rows);
        let has_room = || {
            let in_flight = import.rows_in_flight.get();
            (in_flight == 0 || in_flight + count <= chunk) && import.requests_in_flight.get() < REQUESTS_MAX
        };
        import.answered.wait_until(has_room).await;
        import.rows_in_flight.set(import.rows_in_flight.get() + count);
        import.requests_in_flight.set(import.requests_in_flight.get() + 1);
        let task = import.clone();
        reactor::spawn(Group::STATEMENT, async move { task.insert(rows).await }).detach();
    }

    /// Tells the failures since the last time, and keeps their lines.
    fn tell_failures(&mut self, out: &mut Out) {
        let failures = std::mem::take(&mut *self.import.failures.borrow_mut());
        for failure in failures {
            self.failed += 1;
            *(if failure.is_of_parsing { &mut self.parse_failures } else { &mut self.insert_failures }) += 1;
            if self.failed <= FAILURES_TOLD_MAX as u64 {
                out.error(&format!("Failed to import line {}: {}", failure.line, failure.reason));
            }
            if let Err(error) = self.keep(&failure.source) {
                out.error(&format!("cannot write to {}: {error}", self.error_name));
            }
        }
    }

    /// Appends a line to the error file. One of an earlier run is renamed first.
    fn keep(&mut self, source: &[u8]) -> io::Result<()> {
        let file = match &mut self.error_file {
            Some(file) => file,
            empty => {
                if std::path::Path::new(&self.error_name).exists() {
                    let now = reactor::wall_clock_us() / 1_000_000;
                    std::fs::rename(&self.error_name, format!("{}.{now}", self.error_name))?;
                }
                empty.insert(BufWriter::new(File::create(&self.error_name)?))
            }
        };
        file.write_all(source)?;
        if source.ends_with(b"\n") { Ok(()) } else { file.write_all(b"\n") }
    }

    /// Why the import ends early, if it does.
    fn exceeded(&self) -> Option<String> {
        let options = &self.import.copy.options;
        let limits = [
            (self.failed, options.errors_max, "errors"),
            (self.parse_failures, options.parse_errors_max, "parse errors"),
            (self.insert_failures, options.insert_errors_max, "insert errors"),
        ];
        let exceeded = limits.iter().find(|(count, max, _)| max.is_some_and(|max| *count > max));
        exceeded.map(|(_, max, what)| format!("Exceeded maximum number of {what} {}", max.unwrap_or(0)))
    }

    /// Waits for all answers, and tells the result.
    async fn finish(&mut self, out: &mut Out, input: &Input<'_>) {
        self.send().await;
        let import = self.import.clone();
        import.answered.wait_until(|| import.requests_in_flight.get() == 0).await;
        self.tell_failures(out);
        if self.failed > FAILURES_TOLD_MAX as u64 {
            out.error(&format!("… and {} more", self.failed - FAILURES_TOLD_MAX as u64));
        }
        if let Some(file) = &mut self.error_file
            && let Err(error) = file.flush()
        {
            out.error(&format!("cannot write to {}: {error}", self.error_name));
        }
        if self.failed > 0 {
            let failed = self.failed;
            out.error(&format!(
                "Failed to process {failed} rows; failed rows written to {}",
                self.error_name
            ));
        }
        let files = if let Input::Files(files) = input { files.count } else { 1 };
        let (time, imported) = (self.progress.end(), self.import.imported.get());
        out.tell("");
        out.tell(&format!(
            "{imported} rows imported from {files} files in {time} ({} skipped).",
            self.skipped
        ));
    }
}

impl Import {
    /// Sends rows of one partition, again where that may help, and notes the outcome.
    async fn insert(&self, rows: Vec<Row>) {
        let mut attempt = 1;
        let outcome = loop {
            match self.try_insert(&rows).await {
                Err(error) if attempt < self.copy.options.attempts_max && self.may_repeat(&error) => {}
                other => break other,
            }
            reactor::sleep(Duration::from_millis(100 << attempt.min(6))).await;
            attempt += 1;
        };
        self.rows_in_flight.set(self.rows_in_flight.get() - rows.len());
        self.requests_in_flight.set(self.requests_in_flight.get() - 1);
        match outcome {
            Ok(()) => self.imported.set(self.imported.get() + rows.len() as u64),
            Err(error) => {
                let failure = |row: Row| Failure {
                    line: row.line,
                    source: row.source,
                    reason: error.to_string(),
                    is_of_parsing: false,
                };
                self.failures.borrow_mut().extend(rows.into_iter().map(failure));
            }
        }
        self.answered.notify_all();
    }

    /// Whether the same rows may be sent again. A count that timed out may be counted already.
    fn may_repeat(&self, error: &ShellError) -> bool {
        let ShellError::Server(error) = error else { return false };
        error.is_temporary() && !(self.is_of_counters && error.code == 0x1100)
    }

    async fn try_insert(&self, rows: &[Row]) -> Result<(), ShellError> {
        let timestamps: Vec<[u8; 8]> = rows.iter().map(|row| row.timestamp.to_be_bytes()).collect();
        let bound = |(row, timestamp)| -> Vec<ValueRef<'_>> {
            let (row, timestamp): (&Row, &[u8; 8]) = (row, timestamp);
            let values =
                row.values.iter().map(|value| value.as_deref().map_or(ValueRef::Null, ValueRef::Bytes));
            let timestamp = (!self.is_of_counters).then_some(ValueRef::Bytes(timestamp));
            values.chain(timestamp).collect()
        };
        let bound: Vec<Vec<ValueRef<'_>>> = rows.iter().zip(&timestamps).map(bound).collect();
        let parameters = Parameters::at(self.consistency);
        if let [values] = &bound[..] {
            let parameters = Parameters { values, ..parameters };
            let request = ClientRequest::Execute {
                id: &self.prepared.id,
                result_metadata_id: &self.prepared.result_metadata_id,
                parameters: &parameters,
            };
            return self.lane.ask(&request).await.map(|_| ());
        }
        let kind = if self.is_of_counters { BatchKind::Counter } else { BatchKind::Unlogged };
        let statements: Vec<_> = bound
            .iter()
            .map(|values| (BatchStatementKind::Prepared(&self.prepared.id), &values[..]))
            .collect();
        self.lane.ask(&ClientRequest::Batch(kind, &statements, &parameters)).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Direction, Options};
    use super::*;

    fn column(name: &str, kind: Kind, ty: &str) -> Column {
        Column { name: name.to_owned(), kind, position: 0, ty: ty.to_owned() }
    }

    fn copy(options: Options) -> Copy {
        let (columns, file, table) = (None, None, "T".to_owned());
        Copy { keyspace: None, table, columns, direction: Direction::From, file, options }
    }

    #[test]
    fn statements_name_columns_in_the_order_of_their_markers() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let table = [column("k", Kind::PartitionKey, "int"), column("V", Kind::Regular, "text")];
        let made = plan(
            "ks",
            &copy(Options { ttl_seconds: Some(5), ..Options::default() }),
            &table,
            &names(&["V", "k"]),
        );
        assert_eq!(
            made.statement,
            "INSERT INTO ks.\"T\" (\"V\", k) VALUES (?, ?) USING TIMESTAMP ? AND TTL 5"
        );
        assert_eq!(made.places(&table, &[Kind::PartitionKey]), [1]);
        let table = [column("k", Kind::PartitionKey, "int"), column("n", Kind::Regular, "counter")];
        let made = plan("ks", &copy(Options::default()), &table, &names(&["k", "n"]));
        assert_eq!(made.statement, "UPDATE ks.\"T\" SET n = n + ? WHERE k = ?");
        assert_eq!((made.markers, made.is_of_counters), (names(&["n", "k"]), true));
    }

    #[test]
    fn columns_have_to_be_there_once_and_the_key_with_them() {
        let table = [column("k", Kind::PartitionKey, "int"), column("v", Kind::Regular, "text")];
        let check = |names: &[&str], expected: Result<&[&str], &str>| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let skipped = Options { columns_skipped: vec!["x".to_owned()], ..Options::default() };
            let found = taken(&names, &copy(skipped), &table).map_err(|error| error.to_string());
            let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        check(&["v", "x", "k"], Ok(&["v", "k"]));
        check(&["k", "y"], Err("Invalid column name y"));
        check(&["k", "k"], Err("Column k is named twice"));
        check(&["v"], Err("Primary key column 'k' missing or skipped"));
    }
}
