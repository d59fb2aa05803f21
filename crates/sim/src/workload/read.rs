//! Reads at random, and what they should find.

use std::collections::BTreeMap;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use model::{ColumnId, RowView, TableId, Token};
use reactor::{Group, mesh};
use storage::{Flow, PartitionBound, PartitionRange, ReadCommand, RowConsumer, Storage};

use super::{COMPONENTS, KEYS, Worker, below, seconds};
use crate::history::{SeenPartition, SeenRow, SeenTable, describe};
use crate::table::{Bound, MAP, Row, STATIC, key_bytes, parse_clustering, regulars, token, value};

/// The beginning of every failure that a fault of the disk does not excuse.
pub(super) const WRONG: &str = "WRONG";

/// A read that travels to the shard that does it.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) table: TableId,
    pub(super) key: Option<u8>,
    pub(super) tokens: (Token, Token),
    pub(super) slices: Vec<(Bound, Bound)>,
    pub(super) reversed: bool,
    pub(super) now: u32,
    pub(super) stop_after: usize,
}

/// Partitions in the order they came.
pub(super) type Answer = Vec<(u8, SeenPartition, Vec<(i16, i16)>)>;

struct Collector {
    regulars: [ColumnId; 2],
    answer: Answer,
    rows: usize,
    stop_after: usize,
    problem: Option<String>,
    ended: bool,
}

impl RowConsumer for Collector {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        if key.len() != 2 || model::token::murmur3_token(key) != token {
            self.problem = Some(format!("a key {key:?} with token {token}"));
        }
        if !std::mem::replace(&mut self.ended, false) {
            self.problem = Some("a partition begins before the one before ended".to_owned());
        }
        let statics = static_row.and_then(|row| row.cell(STATIC)).and_then(|cell| self.number(cell.value()));
        self.answer.push((key[1], SeenPartition { statics, rows: BTreeMap::new() }, Vec::new()));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let rank = parse_clustering(clustering).rank();
        let cells = self.regulars.map(|column| row.cell(column).and_then(|cell| self.number(cell.value())));
        let mut seen = SeenRow { cells, map: BTreeMap::new() };
        for cell in row.cells().filter(|cell| cell.column == MAP) {
            match (cell.path, self.number(cell.value())) {
                (Some([0, 0, 0, element]), Some(number)) => drop(seen.map.insert(*element, number)),
                // A reader is not shown what is deleted.
                _ => self.problem = Some(format!("an element {:?} of a map", cell.path)),
            }
        }
        match self.answer.last_mut() {
            Some((_, partition, order)) => {
                partition.rows.insert(rank, seen);
                order.push(rank);
            }
            None => self.problem = Some("a row before any partition".to_owned()),
        }
        self.rows += 1;
        if self.rows >= self.stop_after { Flow::Stop } else { Flow::Continue }
    }

    fn partition_end(&mut self) -> Flow {
        self.ended = true;
        Flow::Continue
    }
}

impl Collector {
    fn number(&mut self, bytes: Option<&[u8]>) -> Option<u32> {
        let bytes = bytes?;
        let number = bytes.first_chunk::<4>().map(|head| u32::from_be_bytes(*head));
        if number.is_none_or(|number| value(number) != bytes) {
            self.problem = Some(format!("a value of {} bytes that was never written", bytes.len()));
        }
        number
    }
}

async fn ask_here(question: Question) -> Result<Answer, String> {
    let storage = reactor::local::<Storage>().ok_or("no storage")?;
    let table = storage.schema().table_by_id(question.table).cloned().ok_or("no table")?;
    let bound = |token, inclusive| PartitionBound { token, key: None, inclusive };
    let command = ReadCommand {
        table,
        range: match question.key {
            Some(key) => PartitionRange::Key(DecoratedKey::new(key_bytes(key))),
            None => PartitionRange::Between {
                from: bound(question.tokens.0, true),
                to: bound(question.tokens.1, true),
            },
        },
        slices: question
            .slices
            .iter()
            .map(|(start, end)| {
                let (from, to) = (start.prefix(), end.prefix());
                Slice { start: start.position(&from).to_owned(), end: end.position(&to).to_owned() }
            })
            .collect(),
        reversed: question.reversed,
        now: question.now,
        bypass_cache: false,
    };
    let mut collector = Collector {
        regulars: regulars(&command.table),
        answer: Vec::new(),
        rows: 0,
        stop_after: question.stop_after,
        problem: None,
        ended: true,
    };
    storage.read(&command, &mut collector).await.map_err(|error| error.to_string())?;
    collector.problem.map_or(Ok(collector.answer), |problem| Err(format!("{WRONG}: {problem}")))
}

impl Worker {
    pub(super) async fn ask(&self, shard: usize, question: Question) -> Result<Option<Answer>, String> {
        let asked = mesh::call(shard, Group::STATEMENT, move || ask_here(question));
        match asked.await.map_err(|error| error.to_string())? {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.starts_with(WRONG) => Err(error),
            // A disk that returns errors may return them to readers.
            Err(error) => self.unless_faulty(&format!("a read failed: {error}")).map(|()| None),
        }
    }

    pub(super) async fn read(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        let key = below(u64::from(KEYS)) as u8;
        let now = seconds();
        let slices = slices();
        let reversed = below(2) == 0;
        let question = Question {
            table,
            key: Some(key),
            tokens: (Token::MINIMUM, Token::MAXIMUM),
            slices: slices.clone(),
            reversed,
            now,
            stop_after: usize::MAX,
        };
        let Some(answer) = self.ask(self.owner(slot, key), question).await? else { return Ok(()) };
        let mut expected = self.shared.borrow().history.seen(slot, now);
        expected.retain(|other, _| *other == key);
        check(slot, expected, &slices, reversed, answer)
    }

    pub(super) async fn scan(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        // A tablet that has not left yet is read by a scan of its old shard.
        if !self.moved().await? {
            return Ok(());
        }
        let now = seconds();
        let slices = if below(2) == 0 { whole() } else { slices() };
        let (a, b) = (token(below(u64::from(KEYS)) as u8), token(below(u64::from(KEYS)) as u8));
        let tokens = if below(2) == 0 { (Token::MINIMUM, Token::MAXIMUM) } else { (a.min(b), a.max(b)) };
        let reversed = below(4) == 0;
        for shard in 0..self.shards {
            let question = Question {
                table,
                key: None,
                tokens,
                slices: slices.clone(),
                reversed,
                now,
                stop_after: usize::MAX,
            };
            let Some(answer) = self.ask(shard, question).await? else { return Ok(()) };
            if !answer.is_sorted_by_key(|(key, _, _)| token(*key)) {
                return Err("partitions do not come in token order".to_owned());
            }
            let mut expected = self.shared.borrow().history.seen(slot, now);
            expected.retain(|key, _| {
                self.owner(slot, *key) == shard && (tokens.0..=tokens.1).contains(&token(*key))
            });
            check(slot, expected, &slices, reversed, answer)?;
        }
        Ok(())
    }
}

pub(super) fn whole() -> Vec<(Bound, Bound)> {
    let end = |behind| Bound { outer: None, inner: None, behind };
    vec![(end(false), end(true))]
}

/// Disjoint slices in order; sometimes all, sometimes none.
fn slices() -> Vec<(Bound, Bound)> {
    if below(4) == 0 {
        return if below(4) == 0 { Vec::new() } else { whole() };
    }
    let single = |outer: u8, inner: Option<u8>| {
        let at = |behind| Bound { outer: Some(outer), inner, behind };
        (at(false), at(true))
    };
    let mut slices = Vec::new();
    for outer in 0..COMPONENTS as u8 {
        match below(5) {
            0 => slices.push(single(outer, None)),
            1 => slices.push(single(outer, Some(below(COMPONENTS) as u8))),
            2 => {
                let (a, b) = (below(COMPONENTS) as u8, below(COMPONENTS) as u8);
                let at = |inner, behind| Bound { outer: Some(outer), inner: Some(inner), behind };
                // Descending: the greater one comes first.
                slices.push((at(a.max(b), false), at(a.min(b), true)));
            }
            _ => {}
        }
    }
    slices
}

fn check(
    slot: usize,
    mut expected: SeenTable,
    slices: &[(Bound, Bound)],
    reversed: bool,
    answer: Answer,
) -> Result<(), String> {
    for partition in expected.values_mut() {
        partition.rows.retain(|rank, _| {
            let row = Row { outer: rank.0 as u8, inner: (-rank.1) as u8 };
            slices.iter().any(|(start, end)| start.is_before(row) && !end.is_before(row))
        });
    }
    expected.retain(|_, partition| partition.statics.is_some() || !partition.rows.is_empty());
    let mut found = SeenTable::new();
    for (key, partition, order) in answer {
        let sorted =
            if reversed { order.is_sorted_by(|a, b| a > b) } else { order.is_sorted_by(|a, b| a < b) };
        if !sorted {
            return Err(format!(
                "table {slot}, partition {key}: rows come as {order:?}, reversed: {reversed}"
            ));
        }
        if found.insert(key, partition).is_some() {
            return Err(format!("table {slot}: partition {key} comes twice"));
        }
    }
    if expected == found {
        Ok(())
    } else {
        Err(format!("{}; slices {slices:?}, reversed: {reversed}", describe(slot, &expected, &found)))
    }
}
