//! What runs on the simulated node: opens storage, checks what a crash left, then works at random and checks every read.
//!
//! Operations go one after another, so that the order of the commit log is that of the history. The shared
//! state lives outside the node and survives its crashes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use model::schema::{KeyspaceOptions, SchemaChange};
use model::tablet::TabletMap;
use model::{RowView, Table, TableId, Token};
use reactor::{Deadline, Group, ShardInfo, mesh};
use storage::{
    CommitlogSync, Flow, PartitionBound, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig,
};

use crate::history::{Action, History, IN_DOUBT_MAX, SeenPartition, SeenTable, describe};
use crate::table::{
    Bound, Change, REGULARS, Row, STATIC, definition, forgets, key_bytes, mutation, parse_clustering, token,
    value,
};

/// Tables at work.
pub const SLOTS: usize = 3;
const KEYS: u8 = 12;
const COMPONENTS: u64 = 5;
/// More than writes are ever dated back.
const TIMESTAMP_GAP: i64 = 100_000;
/// Longest time between two flushes of the device in periodic mode.
const PERIOD: Duration = Duration::from_millis(200);

/// What outlives the node.
pub struct Shared {
    /// The model.
    pub history: History,
    /// Whether the commit log runs in batch mode.
    pub batch: bool,
    /// Shards of this life, and of the one before.
    pub shards: (usize, usize),
    /// Whether the last crash could lose what was not synced.
    pub lost_unsynced: bool,
    /// Whether this life's disk returns errors.
    pub faulty: bool,
    /// Operations promised to be durable, by shard.
    durable: Vec<usize>,
    /// Table in each slot, and one that may be there instead.
    tables: [Option<u128>; SLOTS],
    doubtful: Option<(usize, Option<u128>)>,
    keyspace: bool,
    next: u32,
    timestamps: i64,
    /// Steps still to do.
    pub steps: u64,
    /// The life is over: done, too much in doubt, or the disk failed at the start.
    pub over: bool,
    /// What the workload is at.
    pub doing: &'static str,
    last: bool,
    last_checked: bool,
    /// Lives that got as far as working.
    pub lives: u64,
    /// What went wrong, in words.
    pub failure: Option<String>,
}

/// A handle on it.
pub type SharedRef = Rc<RefCell<Shared>>;

impl Shared {
    /// Before the first life.
    pub fn new(batch: bool, shards: usize, steps: u64) -> SharedRef {
        Rc::new(RefCell::new(Self {
            history: History::default(),
            batch,
            shards: (shards, shards),
            lost_unsynced: false,
            faulty: false,
            durable: vec![0; shards],
            tables: [None; SLOTS],
            doubtful: None,
            keyspace: false,
            next: 1,
            timestamps: 1_000,
            steps,
            over: false,
            doing: "starting",
            last: false,
            last_checked: false,
            lives: 0,
            failure: None,
        }))
    }

    /// From now on a life checks what it finds, and nothing else.
    pub fn last_check(&mut self) {
        self.last = true;
    }

    /// Whether such a life has come to its end.
    pub fn is_last_checked(&self) -> bool {
        self.last_checked
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
        self.over = true;
    }
}

/// Settings of the simulated node: small, so that everything happens often.
pub fn config(batch: bool) -> StorageConfig {
    let mut config = StorageConfig::new("/ceto", 192 << 10);
    config.segment_bytes = 48 << 10;
    config.commitlog_bytes_max = 480 << 10;
    config.commitlog_sync =
        if batch { CommitlogSync::Batch } else { CommitlogSync::Periodic { period: PERIOD } };
    config
}

/// The node's main, on each shard. Shards beyond those of this life stay idle.
pub async fn node(info: ShardInfo, shared: SharedRef) {
    let (shards, batch) = {
        let shared = shared.borrow();
        (shared.shards.0, shared.batch)
    };
    if info.id < shards {
        match Storage::open(config(batch), info.id, shards).await {
            Ok(storage) if info.id == 0 => {
                let worked = Worker { storage, shared: Rc::clone(&shared), shards }.work().await;
                let mut shared = shared.borrow_mut();
                if let Err(failure) = worked {
                    shared.fail(failure);
                }
                shared.over = true;
            }
            Ok(_) => {}
            Err(error) => {
                let mut shared = shared.borrow_mut();
                if shared.faulty {
                    shared.over = true;
                } else {
                    shared.fail(format!("shard {} does not start: {error}", info.id));
                }
            }
        }
    }
    while !shared.borrow().over {
        reactor::sleep(Duration::from_millis(20)).await;
    }
}

struct Worker {
    storage: Storage,
    shared: SharedRef,
    shards: usize,
}

/// A read that travels to the shard that does it.
#[derive(Debug, Clone)]
struct Question {
    table: TableId,
    key: Option<u8>,
    tokens: (Token, Token),
    slices: Vec<(Bound, Bound)>,
    reversed: bool,
    now: u32,
    stop_after: usize,
}

/// Partitions in the order they came.
type Answer = Vec<(u8, SeenPartition, Vec<(i16, i16)>)>;

struct Collector {
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
        let seen = REGULARS.map(|column| row.cell(column).and_then(|cell| self.number(cell.value())));
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
    };
    let mut collector = Collector {
        answer: Vec::new(),
        rows: 0,
        stop_after: question.stop_after,
        problem: None,
        ended: true,
    };
    storage.read(&command, &mut collector).await.map_err(|error| error.to_string())?;
    collector.problem.map_or(Ok(collector.answer), |problem| Err(format!("WRONG: {problem}")))
}

fn below(limit: u64) -> u64 {
    reactor::random_u64() % limit
}

fn seconds() -> u32 {
    u32::try_from(reactor::wall_clock_us() / 1_000_000).expect("a time before 2106")
}

impl Worker {
    async fn work(&self) -> Result<(), String> {
        self.check_after_start().await?;
        self.shared.borrow_mut().lives += 1;
        if self.shared.borrow().last {
            self.shared.borrow_mut().last_checked = true;
            return Ok(());
        }
        self.make_tables().await?;
        loop {
            {
                let mut shared = self.shared.borrow_mut();
                if shared.steps == 0 || shared.history.in_doubt() >= IN_DOUBT_MAX || shared.doubtful.is_some()
                {
                    break;
                }
                shared.steps -= 1;
            }
            self.step().await?;
        }
        if below(3) == 0 {
            self.shared.borrow_mut().doing = "draining";
            self.drain().await;
        }
        Ok(())
    }

    async fn step(&self) -> Result<(), String> {
        let slot = below(SLOTS as u64) as usize;
        let step = below(40);
        self.shared.borrow_mut().doing = match step {
            0..=23 => "writing",
            24..=33 => "reading",
            34 | 35 => "flushing",
            36 => "compacting",
            37 => "truncating",
            38 => "making a table anew",
            _ => "sleeping",
        };
        match step {
            0..=23 => self.write(slot).await,
            24..=31 => self.read(slot).await,
            32 | 33 => self.scan(slot).await,
            34 | 35 => self.flush(slot).await,
            36 => self.compact(slot).await,
            37 if below(3) == 0 => self.truncate(slot).await,
            38 if below(4) == 0 => self.remake(slot).await,
            _ => {
                let before = self.shared.borrow().history.len();
                reactor::sleep(PERIOD * (1 + below(8) as u32)).await;
                let calm = !self.shared.borrow().faulty;
                if calm && below(2) == 0 {
                    // Two whole periods and the time of a flush have passed for what was written before.
                    reactor::sleep(PERIOD * 3).await;
                    let mut shared = self.shared.borrow_mut();
                    shared.durable.iter_mut().for_each(|durable| *durable = before.max(*durable));
                }
                Ok(())
            }
        }
    }

    fn table_id(&self, slot: usize) -> Option<TableId> {
        self.shared.borrow().tables[slot].map(|id| TableId(id.to_be_bytes()))
    }

    fn table(&self, slot: usize) -> Option<Rc<Table>> {
        self.table_id(slot).and_then(|id| self.storage.schema().table_by_id(id).cloned())
    }

    fn owner(&self, key: u8) -> usize {
        owner(key, self.shards)
    }

    /// Runs something with the storage of a shard; its error in words.
    async fn on<R: Send + 'static>(
        &self,
        shard: usize,
        work: impl AsyncFnOnce(Storage) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let called = mesh::call(shard, Group::STATEMENT, move || async move {
            let storage = reactor::local::<Storage>().ok_or("no storage")?;
            work((*storage).clone()).await
        });
        called.await.map_err(|error| error.to_string())?
    }

    async fn make_tables(&self) -> Result<(), String> {
        if !self.shared.borrow().keyspace {
            let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true };
            let change = SchemaChange::CreateKeyspace { name: "sim".to_owned(), options };
            if self.storage.schema().keyspace("sim").is_none()
                && self.storage.change_schema(&change).await.is_err()
            {
                self.shared.borrow_mut().over = true;
                return self.unless_faulty("the keyspace could not be made");
            }
            self.shared.borrow_mut().keyspace = true;
        }
        for slot in 0..SLOTS {
            // One change in doubt at a time: the next life settles it.
            let missing =
                self.shared.borrow().tables[slot].is_none() && self.shared.borrow().doubtful.is_none();
            if missing {
                self.make(slot).await?;
            }
        }
        Ok(())
    }

    fn unless_faulty(&self, what: &str) -> Result<(), String> {
        if self.shared.borrow().faulty { Ok(()) } else { Err(what.to_owned()) }
    }

    async fn make(&self, slot: usize) -> Result<(), String> {
        let id = (u128::from(reactor::random_u64()) << 64) | u128::from(reactor::random_u64());
        let change = SchemaChange::CreateTable(Box::new(definition(slot, id)));
        self.shared.borrow_mut().doubtful = Some((slot, Some(id)));
        match self.storage.change_schema(&change).await {
            Ok(()) => {
                let mut shared = self.shared.borrow_mut();
                shared.doubtful = None;
                shared.tables[slot] = Some(id);
                Ok(())
            }
            Err(error) => self.unless_faulty(&format!("a table could not be made: {error}")),
        }
    }

    async fn remake(&self, slot: usize) -> Result<(), String> {
        let Some(id) = self.table_id(slot) else { return Ok(()) };
        self.shared.borrow_mut().doubtful = Some((slot, None));
        let change = SchemaChange::DropTable { keyspace: "sim".to_owned(), name: format!("t{slot}"), id };
        match self.storage.change_schema(&change).await {
            Ok(()) => {
                {
                    let mut shared = self.shared.borrow_mut();
                    shared.doubtful = None;
                    shared.tables[slot] = None;
                    shared.history.forget(slot);
                }
                self.make(slot).await
            }
            Err(error) => self.unless_faulty(&format!("a table could not be dropped: {error}")),
        }
    }

    async fn write(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table(slot) else { return Ok(()) };
        let key = below(u64::from(KEYS)) as u8;
        let (now, owner) = (seconds(), self.owner(key));
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..1 + below(4) * below(2) {
            // One timestamp, so one word on each cell.
            let change = self.change(now);
            if !changes.iter().any(|other| change.collides(other)) {
                changes.push(change);
            }
        }
        let timestamp = {
            let mut shared = self.shared.borrow_mut();
            shared.timestamps += 64;
            // Distinct, and now and then older than what was written before.
            let back =
                if forgets(slot) || below(3) > 0 { 0 } else { below(40) as i64 * 64 + 1 + below(60) as i64 };
            shared.timestamps - back
        };
        let bytes = mutation(&table, key, timestamp, now, &changes);
        let operation =
            self.shared.borrow_mut().history.begin(slot, owner, Action::Write { key, timestamp, changes });
        let written = self
            .on(owner, async move |storage| {
                let deadline = Deadline::after(Duration::from_secs(2));
                storage.apply(&bytes, deadline).await.map_err(|error| error.to_string())
            })
            .await;
        match written {
            Ok(()) => self.shared.borrow_mut().history.acknowledge(operation),
            Err(error) => return self.unless_faulty(&format!("a write failed: {error}")),
        }
        Ok(())
    }

    fn change(&self, now: u32) -> Change {
        let row = Row { outer: below(COMPONENTS) as u8, inner: below(COMPONENTS) as u8 };
        let mut written = || {
            let mut shared = self.shared.borrow_mut();
            shared.next += 1;
            if below(5) == 0 { None } else { Some(shared.next) }
        };
        match below(20) {
            0 => Change::DeletePartition,
            1 | 2 => {
                let (a, b) = (bound(), bound());
                Change::DeleteRange(a, b)
            }
            3 | 4 => Change::DeleteRow(row),
            5 | 6 => Change::Static(written()),
            _ => {
                let cells = [(); 2].map(|()| (below(3) > 0).then(&mut written));
                let ttl = (below(6) == 0).then(|| {
                    let ttl = 1 + below(3) as u32;
                    (ttl, now + ttl)
                });
                Change::Cells { row, marker: below(2) == 0, cells, ttl }
            }
        }
    }

    async fn ask(&self, shard: usize, question: Question) -> Result<Option<Answer>, String> {
        let asked = mesh::call(shard, Group::STATEMENT, move || ask_here(question));
        match asked.await.map_err(|error| error.to_string())? {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.starts_with("WRONG") => Err(error),
            // A disk that returns errors may return them to readers.
            Err(error) => self.unless_faulty(&format!("a read failed: {error}")).map(|()| None),
        }
    }

    async fn read(&self, slot: usize) -> Result<(), String> {
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
        let Some(answer) = self.ask(self.owner(key), question).await? else { return Ok(()) };
        let mut expected = self.shared.borrow().history.seen(slot, now);
        expected.retain(|other, _| *other == key);
        check(slot, expected, &slices, reversed, answer)
    }

    async fn scan(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
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
            expected
                .retain(|key, _| self.owner(*key) == shard && (tokens.0..=tokens.1).contains(&token(*key)));
            check(slot, expected, &slices, reversed, answer)?;
        }
        Ok(())
    }

    async fn flush(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        let shard = below(self.shards as u64) as usize;
        let flushed = self
            .on(shard, async move |storage| storage.flush(table).await.map_err(|error| error.to_string()))
            .await;
        // What it says of durability is checked by the crashes that follow: a flush syncs the log before.
        flushed.or_else(|error| self.unless_faulty(&format!("a flush failed: {error}")))
    }

    async fn compact(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        let shard = below(self.shards as u64) as usize;
        let compacted = self
            .on(shard, async move |storage| storage.compact(table).await.map_err(|error| error.to_string()))
            .await;
        compacted.or_else(|error| self.unless_faulty(&format!("a compaction failed: {error}")))
    }

    async fn truncate(&self, slot: usize) -> Result<(), String> {
        let Some(table) = self.table_id(slot) else { return Ok(()) };
        let shard = below(self.shards as u64) as usize;
        let keys = (0..KEYS).filter(|key| self.owner(*key) == shard).collect();
        let operation = self.shared.borrow_mut().history.begin(slot, shard, Action::Truncate { keys });
        let truncated = self
            .on(shard, async move |storage| storage.truncate(table).await.map_err(|error| error.to_string()))
            .await;
        match truncated {
            Ok(()) => {
                let mut shared = self.shared.borrow_mut();
                shared.history.acknowledge(operation);
                shared.durable[shard] = operation + 1;
                Ok(())
            }
            Err(error) => self.unless_faulty(&format!("a truncation failed: {error}")),
        }
    }

    async fn drain(&self) {
        for shard in (0..self.shards).rev() {
            let before = self.shared.borrow().history.len();
            let drained = self
                .on(shard, async move |storage| storage.drain().await.map_err(|error| error.to_string()))
                .await;
            let mut shared = self.shared.borrow_mut();
            match drained {
                Ok(()) => shared.durable[shard] = before,
                Err(_) if shared.faulty => {}
                Err(error) => shared.fail(format!("shard {shard} does not drain: {error}")),
            }
        }
    }

    /// Compares what a crash left with the history, and settles what was in doubt.
    async fn check_after_start(&self) -> Result<(), String> {
        self.check_schema()?;
        let now = seconds();
        let mut found: BTreeMap<usize, SeenTable> = BTreeMap::new();
        for slot in 0..SLOTS {
            let Some(table) = self.table_id(slot) else { continue };
            for shard in 0..self.shards {
                let question = Question {
                    table,
                    key: None,
                    tokens: (Token::MINIMUM, Token::MAXIMUM),
                    slices: whole(),
                    reversed: false,
                    now,
                    stop_after: usize::MAX,
                };
                let Some(answer) = self.ask(shard, question).await? else {
                    // The disk failed the check itself: the next life does it.
                    self.shared.borrow_mut().over = true;
                    return std::future::pending().await;
                };
                let seen = found.entry(slot).or_default();
                seen.extend(answer.into_iter().map(|(key, partition, _)| (key, partition)));
            }
        }
        let mut shared = self.shared.borrow_mut();
        let shared = &mut *shared;
        let before = shared.shards.1;
        let slots: Vec<usize> = (0..SLOTS).filter(|slot| shared.tables[*slot].is_some()).collect();
        let loses = shared.lost_unsynced && !shared.batch;
        for shard in 0..before {
            let owns = |_: usize, key: u8| owner(key, before) == shard;
            let durable = shared.durable[shard];
            shared.history.settle(shard, durable, loses, &slots, now, &found, &owns)?;
        }
        shared.history.all_settled();
        // What was settled without being seen (a deletion of nothing) must not matter to what comes.
        shared.timestamps += TIMESTAMP_GAP;
        shared.lost_unsynced = false;
        shared.durable = vec![shared.history.len(); self.shards];
        shared.shards.1 = self.shards;
        Ok(())
    }

    fn check_schema(&self) -> Result<(), String> {
        let schema = self.storage.schema();
        let mut shared = self.shared.borrow_mut();
        if shared.keyspace && schema.keyspace("sim").is_none() {
            return Err("the keyspace is gone".to_owned());
        }
        for slot in 0..SLOTS {
            let there =
                schema.table("sim", &format!("t{slot}")).map(|table| u128::from_be_bytes(table.id().0));
            let known = shared.tables[slot];
            match shared.doubtful {
                _ if there == known => {}
                Some((doubtful, table)) if doubtful == slot && there == table => {
                    shared.tables[slot] = there;
                    shared.history.forget(slot);
                }
                _ => return Err(format!("table {slot}: the schema has {there:?}, it should have {known:?}")),
            }
        }
        shared.doubtful = None;
        Ok(())
    }
}

/// The shard of a key.
fn owner(key: u8, shards: usize) -> usize {
    let map = TabletMap::new(2);
    map.shard_of(map.tablet_of(token(key)), shards)
}

fn bound() -> Bound {
    let outer = (below(8) > 0).then(|| below(COMPONENTS) as u8);
    let inner = outer.filter(|_| below(2) == 0).map(|_| below(COMPONENTS) as u8);
    Bound { outer, inner, behind: below(2) == 0 }
}

fn whole() -> Vec<(Bound, Bound)> {
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
