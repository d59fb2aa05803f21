//! A node of one process for tests: shards over real storage, statements in, text out.
#![allow(clippy::disallowed_types, reason = "a test hands results out of shards")]
#![allow(unreachable_pub, reason = "a module of each test binary")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use model::CqlType;
use model::collection::{Components, Elements, Entries, VectorElements};
use query::{ClientState, Engine, EngineConfig, QueryError, Response};
use reactor::{Config, DriverChoice};
use storage::StorageConfig;
use wire::consistency::Consistency;
use wire::extensions::Extensions;
use wire::frame::{Flags, FrameHeader, Opcode};
use wire::reader::Reader;
use wire::request::{QueryParameters, Request};
use wire::types::read_option;
use wire::version::ProtocolVersion;

/// Version the tests speak.
pub const VERSION: ProtocolVersion = ProtocolVersion::V5;
/// Turns one shard waits for another to have started.
const TURNS_MAX: usize = 1_000_000;

/// Parameters of a request without values.
pub fn parameters() -> QueryParameters<'static> {
    QueryParameters::at(Consistency::One, VERSION)
}

/// A client that uses keyspace `ks`.
pub fn client() -> ClientState {
    ClientState { keyspace: Some("ks".into()), version: VERSION, ..ClientState::new(None, "anonymous") }
}

/// The RESULT body of a statement.
pub async fn body(engine: &Engine, text: &str) -> Result<Vec<u8>, QueryError> {
    let mut out = Response::default();
    engine.query(&client(), text, &parameters(), &mut out).await?;
    Ok(out.body)
}

/// Runs a statement that must succeed.
pub async fn run(engine: &Engine, text: &str) -> Vec<u8> {
    body(engine, text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The rows of a SELECT as text, without the line of names.
pub async fn rows(engine: &Engine, text: &str) -> Vec<String> {
    Rows::parse(&run(engine, text).await).rows
}

/// Changes to the configurations of a node.
#[derive(Clone, Copy)]
pub struct Adjust {
    pub engine: fn(&mut EngineConfig),
    pub storage: fn(&mut StorageConfig),
}

async fn open(workdir: PathBuf, shard: usize, shards: usize, adjust: Adjust) -> Engine {
    let mut storage = StorageConfig::new(workdir, 16 << 20);
    (adjust.storage)(&mut storage);
    let mut config = EngineConfig::new([7; 16], shards);
    // How long things take on a slow machine is no result; tests of deadlines set their own.
    for timeout in [&mut config.read_timeout, &mut config.range_timeout, &mut config.write_timeout] {
        *timeout = Duration::from_secs(300);
    }
    (adjust.engine)(&mut config);
    let engine = query::node::open(storage, config).await.unwrap();
    if shard == 0 {
        query::node::all_opened().await;
    }
    engine
}

/// Starts `shards` shards in `workdir`; shard 0 makes keyspace `ks`, runs `work` and returns its result.
pub fn node<T, Fut>(workdir: &Path, shards: usize, work: fn(Engine) -> Fut) -> T
where
    T: Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    node_with(workdir, shards, |_| {}, work)
}

/// As [`node`], with a configuration that `adjust` changes.
pub fn node_with<T, Fut>(
    workdir: &Path,
    shards: usize,
    adjust: fn(&mut EngineConfig),
    work: fn(Engine) -> Fut,
) -> T
where
    T: Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    node_of(workdir, shards, Adjust { engine: adjust, storage: |_| {} }, work)
}

/// As [`node`], with configurations that `adjust` changes.
pub fn node_of<T, Fut>(workdir: &Path, shards: usize, adjust: Adjust, work: fn(Engine) -> Fut) -> T
where
    T: Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let (sender, receiver) = mpsc::channel();
    let workdir = workdir.to_owned();
    let config = Config { shards, driver: DriverChoice::Poll, pin: false, ..Config::default() };
    let running = reactor::start(config, move |shard| {
        let (sender, workdir) = (sender.clone(), workdir.clone());
        async move {
            let engine = open(workdir, shard.id, shard.count, adjust).await;
            if shard.id == 0 {
                run(&engine, CREATE_KEYSPACE).await;
                let done = work(engine).await;
                sender.send(done).unwrap();
            }
        }
    })
    .unwrap();
    running.join().unwrap();
    receiver.recv().unwrap()
}

const CREATE_KEYSPACE: &str = "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

/// A ROWS body as text.
#[derive(Debug, PartialEq, Eq)]
pub struct Rows {
    /// Names of the columns; empty if the metadata was skipped.
    pub names: Vec<String>,
    /// Values of each row, joined by ` | `; without metadata in hexadecimal digits.
    pub rows: Vec<String>,
    /// The paging state of the next page.
    pub paging_state: Option<Vec<u8>>,
    /// The new id, if the metadata changed.
    pub new_metadata_id: Option<Vec<u8>>,
}

impl Rows {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Self {
        let mut reader = Reader::new(body);
        assert_eq!(reader.int().unwrap(), 2, "a ROWS body");
        let flags = reader.int().unwrap();
        let columns = reader.int().unwrap() as usize;
        let paging_state =
            if flags & 2 != 0 { Some(reader.bytes().unwrap().unwrap().to_vec()) } else { None };
        let new_metadata_id =
            if flags & 8 != 0 { Some(reader.short_bytes().unwrap().to_vec()) } else { None };
        let (mut names, mut types) = (Vec::new(), Vec::new());
        if flags & 4 == 0 {
            assert_eq!(flags & 1, 1, "one table");
            reader.string().unwrap();
            reader.string().unwrap();
            for _ in 0..columns {
                names.push(reader.string().unwrap().to_owned());
                types.push(read_option(&mut reader).unwrap());
            }
        }
        let mut rows = Vec::new();
        for _ in 0..reader.int().unwrap() {
            let values: Vec<String> = (0..columns)
                .map(|at| {
                    let value = reader.bytes().unwrap();
                    value.map_or("null".to_owned(), |value| {
                        show(types.get(at).unwrap_or(&CqlType::Blob), value)
                    })
                })
                .collect();
            rows.push(values.join(" | "));
        }
        reader.finish("ROWS").unwrap();
        Self { names, rows, paging_state, new_metadata_id }
    }
}

/// A value as text, in the notation of the files under `testdata`.
pub fn show(ty: &CqlType, value: &[u8]) -> String {
    let number = |bytes: usize| {
        assert_eq!(value.len(), bytes, "a {ty}");
        let fill = if value[0] >= 0x80 { 0xff } else { 0 };
        let mut wide = [fill; 16];
        wide[16 - bytes..].copy_from_slice(value);
        i128::from_be_bytes(wide)
    };
    let part = |ty: &CqlType, value: Option<&[u8]>| value.map_or("null".to_owned(), |value| show(ty, value));
    match ty {
        _ if value.is_empty() && !matches!(ty, CqlType::Ascii | CqlType::Text) => "0x".to_owned(),
        CqlType::Ascii | CqlType::Text => format!("'{}'", std::str::from_utf8(value).unwrap()),
        CqlType::Tinyint => number(1).to_string(),
        CqlType::Smallint => number(2).to_string(),
        CqlType::Int => number(4).to_string(),
        CqlType::Bigint | CqlType::Counter => number(8).to_string(),
        CqlType::Varint => num_bigint::BigInt::from_signed_bytes_be(value).to_string(),
        CqlType::Boolean => (value != [0]).to_string(),
        CqlType::Float => format!("{:?}", f32::from_be_bytes(value.try_into().unwrap())),
        CqlType::Double => format!("{:?}", f64::from_be_bytes(value.try_into().unwrap())),
        CqlType::Date => {
            let mut text = String::new();
            let days = u32::from_be_bytes(value.try_into().unwrap());
            text.push_str(&statement::terms::time::date_text(days));
            text
        }
        CqlType::Uuid | CqlType::Timeuuid => uuid::Uuid::from_slice(value).unwrap().to_string(),
        CqlType::List { element, .. } => {
            let parts: Vec<String> = null_elements(value).iter().map(|e| part(element, *e)).collect();
            format!("[{}]", parts.join(", "))
        }
        CqlType::Set { element, .. } => {
            let parts: Vec<String> =
                Elements::parse(value).unwrap().map(|e| show(element, e.unwrap())).collect();
            format!("{{{}}}", parts.join(", "))
        }
        CqlType::Map { key, value: ty, .. } => {
            let parts: Vec<String> = Entries::parse(value)
                .unwrap()
                .map(|entry| {
                    let (k, v) = entry.unwrap();
                    format!("{}: {}", show(key, k), show(ty, v))
                })
                .collect();
            format!("{{{}}}", parts.join(", "))
        }
        CqlType::Tuple(types) => components(types.iter(), value),
        CqlType::Udt(udt) => components(udt.fields.iter().map(|(_, ty)| ty), value),
        CqlType::Vector { element, dimension } => {
            let parts: Vec<String> =
                VectorElements::new(element, *dimension, value).map(|e| show(element, e.unwrap())).collect();
            format!("[{}]", parts.join(", "))
        }
        _ => format!("0x{}", value.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

fn components<'t>(types: impl Iterator<Item = &'t CqlType>, value: &[u8]) -> String {
    let mut values = Components::new(value);
    let parts: Vec<String> = types
        .map(|ty| {
            values.next().and_then(Result::unwrap_or_default).map_or("null".to_owned(), |v| show(ty, v))
        })
        .collect();
    format!("({})", parts.join(", "))
}

/// Elements of a list that may hold nulls, as `writetime` of a collection does.
fn null_elements(value: &[u8]) -> Vec<Option<&[u8]>> {
    let mut reader = Reader::new(value);
    let count = reader.int().unwrap();
    (0..count).map(|_| reader.bytes().unwrap()).collect()
}

/// A bound value of a test.
#[derive(Debug, Clone)]
pub enum Bound {
    /// Null.
    Null,
    /// Left out.
    Unset,
    /// Serialised.
    Bytes(Vec<u8>),
}

/// An int.
pub fn int(value: i32) -> Bound {
    Bound::Bytes(value.to_be_bytes().to_vec())
}

/// A text.
pub fn text(value: &str) -> Bound {
    Bound::Bytes(value.as_bytes().to_vec())
}

/// Options of a request.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Values, with names if they are bound by name.
    pub values: Vec<(Option<&'static str>, Bound)>,
    /// Rows of a page.
    pub page_size: Option<i32>,
    /// The paging state to continue from.
    pub paging_state: Option<Vec<u8>>,
    /// Skip the metadata.
    pub skip_metadata: bool,
    /// Default timestamp.
    pub timestamp: Option<i64>,
    /// Seconds that count as now.
    pub now: Option<i32>,
    /// Consistency level by number; 0 stands for ONE.
    pub consistency: u16,
    /// Serial consistency level by number.
    pub serial_consistency: Option<u16>,
}

impl Options {
    /// These values, by position.
    pub fn values(values: impl IntoIterator<Item = Bound>) -> Self {
        Self { values: values.into_iter().map(|value| (None, value)).collect(), ..Self::default() }
    }

    fn append(&self, out: &mut Vec<u8>) {
        let consistency = if self.consistency == 0 { 1 } else { self.consistency };
        out.extend_from_slice(&consistency.to_be_bytes());
        let named = self.values.iter().any(|(name, _)| name.is_some());
        let flag = |set: bool, bit: i32| if set { bit } else { 0 };
        let flags = flag(!self.values.is_empty(), 1)
            | flag(self.skip_metadata, 2)
            | flag(self.page_size.is_some(), 4)
            | flag(self.paging_state.is_some(), 8)
            | flag(self.serial_consistency.is_some(), 0x10)
            | flag(self.timestamp.is_some(), 0x20)
            | flag(named, 0x40)
            | flag(self.now.is_some(), 0x100);
        out.extend_from_slice(&flags.to_be_bytes());
        if !self.values.is_empty() {
            append_values(out, &self.values);
        }
        if let Some(rows) = self.page_size {
            out.extend_from_slice(&rows.to_be_bytes());
        }
        if let Some(state) = &self.paging_state {
            out.extend_from_slice(&(state.len() as i32).to_be_bytes());
            out.extend_from_slice(state);
        }
        if let Some(consistency) = self.serial_consistency {
            out.extend_from_slice(&consistency.to_be_bytes());
        }
        if let Some(timestamp) = self.timestamp {
            out.extend_from_slice(&timestamp.to_be_bytes());
        }
        if let Some(now) = self.now {
            out.extend_from_slice(&now.to_be_bytes());
        }
    }
}

fn append_values(out: &mut Vec<u8>, values: &[(Option<&'static str>, Bound)]) {
    out.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for (name, value) in values {
        if let Some(name) = name {
            out.extend_from_slice(&(name.len() as u16).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        match value {
            Bound::Null => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            Bound::Unset => out.extend_from_slice(&(-2_i32).to_be_bytes()),
            Bound::Bytes(bytes) => {
                out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// The body of a QUERY.
pub fn query_body(statement: &str, options: &Options) -> Vec<u8> {
    let mut out = (statement.len() as i32).to_be_bytes().to_vec();
    out.extend_from_slice(statement.as_bytes());
    options.append(&mut out);
    out
}

/// The body of an EXECUTE.
pub fn execute_body(id: &[u8], metadata_id: &[u8], options: &Options) -> Vec<u8> {
    let mut out = Vec::new();
    for bytes in [id, metadata_id] {
        out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        out.extend_from_slice(bytes);
    }
    options.append(&mut out);
    out
}

/// One statement of a BATCH: its text or its id, and values.
pub type BatchPart = (Result<&'static str, Vec<u8>>, Vec<Bound>);

/// The body of a BATCH.
pub fn batch_body(kind: u8, parts: &[BatchPart], options: &Options) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend_from_slice(&(parts.len() as u16).to_be_bytes());
    for (statement, values) in parts {
        match statement {
            Ok(text) => {
                out.push(0);
                out.extend_from_slice(&(text.len() as i32).to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Err(id) => {
                out.push(1);
                out.extend_from_slice(&(id.len() as u16).to_be_bytes());
                out.extend_from_slice(id);
            }
        }
        let values: Vec<_> = values.iter().map(|value| (None, value.clone())).collect();
        append_values(&mut out, &values);
    }
    options.append(&mut out);
    out
}

/// Sends a request's body to the engine as the server would.
pub async fn send(
    engine: &Engine,
    opcode: Opcode,
    body: &[u8],
    out: &mut Response,
) -> Result<(), QueryError> {
    send_as(engine, &client(), opcode, body, out).await
}

/// Sends a request's body to the engine for a client.
pub async fn send_as(
    engine: &Engine,
    client: &ClientState,
    opcode: Opcode,
    body: &[u8],
    out: &mut Response,
) -> Result<(), QueryError> {
    let header =
        FrameHeader { version: VERSION, flags: Flags(0), stream: 0, opcode, body_length: body.len() as u32 };
    let envelope = wire::request::decode(&header, body, &Extensions::default()).unwrap();
    match envelope.request {
        Request::Query { query, parameters } => engine.query(client, query, &parameters, out).await,
        Request::Execute { id, result_metadata_id, parameters } => {
            engine.execute(client, id, result_metadata_id, &parameters, out).await
        }
        Request::Batch { kind, statements, parameters } => {
            engine.batch(client, kind, statements, &parameters, out).await
        }
        other => panic!("{other:?} is no statement"),
    }
}

/// Executes a text with options.
pub async fn query(engine: &Engine, statement: &str, options: &Options) -> Result<Vec<u8>, QueryError> {
    let mut out = Response::default();
    send(engine, Opcode::Query, &query_body(statement, options), &mut out).await?;
    Ok(out.body)
}

/// A prepared statement as PREPARED shows it.
#[derive(Debug)]
pub struct Prepared {
    /// Its id.
    pub id: Vec<u8>,
    /// Id of the metadata of its rows.
    pub metadata_id: Vec<u8>,
    /// Places of the markers bound to the partition key.
    pub partition_key: Vec<u16>,
    /// Markers as `name type`.
    pub markers: Vec<String>,
}

/// Prepares a statement.
pub async fn prepare(engine: &Engine, statement: &str) -> Result<Prepared, QueryError> {
    let mut out = Response::default();
    engine.prepare(&client(), statement, None, &mut out).await?;
    let mut reader = Reader::new(&out.body);
    assert_eq!(reader.int().unwrap(), 4, "a PREPARED body");
    let id = reader.short_bytes().unwrap().to_vec();
    let metadata_id = reader.short_bytes().unwrap().to_vec();
    let flags = reader.int().unwrap();
    let count = reader.int().unwrap();
    let keys = reader.int().unwrap();
    let partition_key = (0..keys).map(|_| reader.short().unwrap()).collect();
    if flags & 1 != 0 {
        reader.string().unwrap();
        reader.string().unwrap();
    }
    let markers = (0..count)
        .map(|_| {
            if flags & 1 == 0 {
                reader.string().unwrap();
                reader.string().unwrap();
            }
            let name = reader.string().unwrap().to_owned();
            format!("{name} {}", read_option(&mut reader).unwrap())
        })
        .collect();
    Ok(Prepared { id, metadata_id, partition_key, markers })
}

impl Prepared {
    /// Executes it.
    pub async fn execute(&self, engine: &Engine, options: &Options) -> Result<Vec<u8>, QueryError> {
        let mut out = Response::default();
        let body = execute_body(&self.id, &self.metadata_id, options);
        send(engine, Opcode::Execute, &body, &mut out).await?;
        Ok(out.body)
    }
}
