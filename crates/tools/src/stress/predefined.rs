//! The predefined operations: rows of blobs in `standard1`, counters in `counter1`.

use model::hex;
use wire::client::{ClientRequest, ResponseBody};

use super::StressError;
use super::cluster::token_of;
use super::distribution::{Distribution, Factory, Ratio};
use super::generate::{Generator, Kind, Spread};
use super::operation::{Dialect, Job, Operation, Permits, Template, Verdict, append_null, append_value};
use super::seeds::SeedManager;
use super::settings::{Predefined as What, Settings};
use crate::client::Client;

/// One of the predefined operations.
pub(super) struct Predefined {
    what: What,
    how: How,
    key: Generator,
    columns: Vec<Generator>,
    /// Names of the columns, for statements that are not prepared.
    add: Distribution,
    populated: Option<Ratio>,
    validates: bool,
    /// The current key, and a value that answers are compared with.
    key_bytes: Vec<u8>,
    expected: Vec<u8>,
}

enum How {
    Prepared(Template),
    /// The statement, its markers to be replaced by values.
    Text(String, Dialect),
}

/// The statement of an operation.
pub(super) fn statement(what: What, settings: &Settings) -> String {
    let quoted = |name: &str| {
        let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if is_plain { name.to_owned() } else { format!("\"{name}\"") }
    };
    let names: Vec<String> = settings.columns.names.iter().map(|name| quoted(name)).collect();
    match what {
        What::Write => {
            let timestamp =
                settings.columns.timestamp.map(|at| format!(" USING TIMESTAMP {at}")).unwrap_or_default();
            let sets: Vec<String> = names.iter().map(|name| format!("{name} = ?")).collect();
            format!("UPDATE \"standard1\"{timestamp} SET {} WHERE KEY=?", sets.join(","))
        }
        What::Read => {
            let what = if settings.columns.slice { "*".to_owned() } else { names.join(",") };
            format!("SELECT {what} FROM \"standard1\" WHERE KEY=?")
        }
        What::CounterWrite => {
            let sets: Vec<String> = names.iter().map(|name| format!("{name}={name}+?")).collect();
            format!("UPDATE counter1 SET {} WHERE KEY=?", sets.join(","))
        }
        What::CounterRead => "SELECT * FROM \"counter1\" WHERE KEY=?".to_owned(),
    }
}

impl Predefined {
    /// Prepares the operation's statement on the servers of `clients`.
    pub(super) async fn prepare(
        what: What,
        settings: &Settings,
        clients: &mut [&mut Client],
        dialect: &Dialect,
        random_seed: i64,
    ) -> Result<Self, StressError> {
        let text = statement(what, settings);
        let values = if what.is_write() { settings.columns.names.len() + 1 } else { 1 };
        let how = if settings.mode.is_prepared {
            let mut template = None;
            for client in clients {
                let prepared = client.prepare(&text).await?;
                if prepared.markers.len() != values {
                    return Err(StressError::Unexpected { what: text });
                }
                // A whole row is one of the key and the columns: without metadata it is recognised by its
                // length.
                template = Some(dialect.template(&prepared, values, None, !what.is_write())?);
            }
            How::Prepared(template.ok_or(StressError::Unexpected { what: text })?)
        } else {
            How::Text(text, *dialect)
        };
        let size = Some(Factory::fixed(settings.command.key_size as i64));
        let key = Spread { size, ..Spread::default() };
        let column = Spread { size: Some(settings.columns.size.clone()), ..Spread::default() };
        let columns = settings.columns.names.iter();
        let columns =
            columns.map(|name| Generator::new(Kind::Bytes, None, &format!("randomstr{name}"), &column));
        let populated = settings.insert.row_population.as_ref();
        Ok(Self {
            what,
            how,
            key: Generator::new(Kind::HexBytes, None, "randomstrkey", &key),
            columns: columns.collect(),
            add: settings.command.add.build(random_seed),
            populated: populated.map(|ratio| ratio.build(random_seed)).filter(|ratio| !ratio.is_whole()),
            validates: !settings.errors.skip_read_validation,
            key_bytes: Vec::new(),
            expected: Vec::new(),
        })
    }

    /// Makes the key of a partition; the seed of its columns.
    #[inline]
    fn make_key(&mut self, seed: i64) -> i64 {
        self.key.set_seed(seed);
        self.key_bytes.clear();
        self.key.append(&mut self.key_bytes);
        self.key.child_seed(&self.key_bytes, 0)
    }

    /// How many of the columns have a value.
    fn populated(&mut self) -> usize {
        match &mut self.populated {
            None => self.columns.len(),
            Some(ratio) => {
                let share = ratio.next();
                let all = self.columns.len() as f64;
                (1..=self.columns.len()).take_while(|column| *column as f64 / all <= share).count()
            }
        }
    }

    fn append_values(&mut self, out: &mut Vec<u8>, seed: i64) {
        match self.what {
            What::Read | What::CounterRead => {}
            What::CounterWrite => {
                for _ in 0..self.columns.len() {
                    let add = self.add.next();
                    append_value(out, |out| out.extend_from_slice(&add.to_be_bytes()));
                }
            }
            What::Write => {
                let populated = self.populated();
                for (index, column) in self.columns.iter_mut().enumerate() {
                    if index < populated {
                        column.set_seed(seed);
                        append_value(out, |out| column.append(out));
                    } else {
                        append_null(out);
                    }
                }
            }
        }
        let key = &self.key_bytes;
        append_value(out, |out| out.extend_from_slice(key));
    }

    /// The statement as text, its markers replaced by values.
    fn spell(&mut self, seed: i64) -> Vec<u8> {
        let mut values = Vec::new();
        self.append_values(&mut values, seed);
        let How::Text(text, dialect) = &self.how else { return Vec::new() };
        let is_counter = self.what == What::CounterWrite;
        let mut rest = &values[..];
        let mut statement = String::with_capacity(text.len() + 2 * values.len());
        let mut parts = text.split('?');
        statement.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let (length, tail) = rest.split_first_chunk::<4>().expect("a value for each marker");
            match usize::try_from(i32::from_be_bytes(*length)) {
                Err(_) => {
                    statement.push_str("null");
                    rest = tail;
                }
                Ok(length) => {
                    let (value, tail) = tail.split_at(length);
                    if is_counter && !tail.is_empty() {
                        let number = i64::from_be_bytes(value.try_into().unwrap_or_default());
                        statement.push_str(&number.to_string());
                    } else {
                        statement.push_str("0x");
                        statement.push_str(&hex::text(value));
                    }
                    rest = tail;
                }
            }
            statement.push_str(part);
        }
        // The size follows from the settings, and is far below the limit of a frame.
        dialect.frame(&ClientRequest::Query(&statement, &dialect.parameters())).unwrap_or_default()
    }
}

impl Operation for Predefined {
    fn name(&self) -> &str {
        self.what.name()
    }

    #[inline]
    fn begin(&mut self, job: &mut Job, seeds: &mut SeedManager, permits: &mut Permits) -> i64 {
        if permits.take(1) == 0 {
            return 0;
        }
        let is_write = self.what.is_write();
        if seeds.is_plain() {
            let Some(seed) = seeds.next_value(is_write) else { return 0 };
            job.seed = seed;
        } else {
            let Some(seed) = seeds.next(is_write) else { return 0 };
            job.seed = seed.value;
            job.seeds.clear();
            job.seeds.push(seed.clone());
            if is_write {
                // As in the original, a row counts as written once it is generated: reads that look behind
                // the writes may come a moment too early.
                seeds.first_write_done(&seed, true);
                seeds.last_write_done(&seed);
            }
        }
        let seed = self.make_key(job.seed);
        job.token = Some(token_of(&self.key_bytes));
        if matches!(self.how, How::Text(..)) {
            job.frame = self.spell(seed);
            return 1;
        }
        let mut frame = std::mem::take(&mut job.frame);
        if let How::Prepared(template) = &self.how {
            template.begin(&mut frame);
        }
        self.append_values(&mut frame, seed);
        if let How::Prepared(template) = &self.how {
            template.finish(&mut frame);
        }
        job.frame = frame;
        1
    }

    #[inline]
    fn answer(&mut self, job: &mut Job, body: &ResponseBody<'_>) -> Verdict {
        (job.partitions, job.rows) = (0, 0);
        match (self.what, body) {
            (What::Write | What::CounterWrite, ResponseBody::Void) => {
                (job.partitions, job.rows) = (1, 1);
                Verdict::Done
            }
            (What::CounterRead, ResponseBody::Rows(rows)) => {
                (job.partitions, job.rows) = (rows.row_count as u64, rows.row_count as u64);
                if rows.row_count > 0 || !self.validates { Verdict::Done } else { Verdict::Invalid }
            }
            (What::Read, ResponseBody::Rows(rows)) => {
                (job.partitions, job.rows) = (rows.row_count as u64, rows.row_count as u64);
                if !self.validates {
                    return Verdict::Done;
                }
                // Of a whole row the key comes first.
                let keys = rows.column_count.saturating_sub(self.columns.len());
                if rows.row_count != 1 || keys > 1 {
                    return Verdict::Invalid;
                }
                let seed = self.make_key(job.seed);
                let populated = self.populated();
                let mut values = rows.values().skip(keys);
                for (index, column) in self.columns.iter_mut().enumerate() {
                    self.expected.clear();
                    column.set_seed(seed);
                    column.append(&mut self.expected);
                    let wanted = (index < populated).then_some(&self.expected[..]);
                    if values.next() != Some(wanted) {
                        return Verdict::Invalid;
                    }
                }
                Verdict::Done
            }
            _ => Verdict::Invalid,
        }
    }

    fn key(&mut self, job: &Job) -> String {
        self.make_key(job.seed);
        format!("[{}]", hex::text(&self.key_bytes))
    }
}
