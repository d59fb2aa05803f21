//! Statements to an engine, and the rows of its answers.

use query::{ClientState, Engine, QueryError, Response};
use wire::consistency::Consistency;
use wire::reader::Reader;
use wire::request::QueryParameters;
use wire::types::read_option;
use wire::version::ProtocolVersion;

/// A value of a row; `None` for null.
pub type Value = Option<Vec<u8>>;

/// Kind, flags (native_protocol_v5.spec §4.2.5.2).
const ROWS: i32 = 2;
const GLOBAL_TABLE: i32 = 1;
const HAS_MORE_PAGES: i32 = 2;

/// Rows, and where the next page begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// The paging state; `None` for the last page.
    pub next: Option<Vec<u8>>,
}

/// How a statement is sent.
#[derive(Debug, Clone, Copy)]
pub struct Sending<'a> {
    /// The level.
    pub level: Consistency,
    /// The serial level of conditional writes; `None` for SERIAL.
    pub serial: Option<Consistency>,
    /// Rows of a page; `None` for all of them.
    pub page: Option<u32>,
    /// Where the page begins; `None` for the first one.
    pub state: Option<&'a [u8]>,
}

impl Sending<'_> {
    /// All rows in one page.
    pub fn at(level: Consistency) -> Self {
        Self { level, serial: None, page: None, state: None }
    }
}

/// Runs a statement; `None` for an answer that has no rows.
///
/// # Errors
/// As [`Engine::query`].
pub async fn execute(engine: &Engine, text: &str, sent: Sending<'_>) -> Result<Option<Rows>, QueryError> {
    let at = QueryParameters::at(sent.level, ProtocolVersion::LATEST);
    let parameters = QueryParameters {
        page_size: sent.page,
        paging_state: sent.state,
        serial_consistency: sent.serial,
        ..at
    };
    let mut response = Response::default();
    engine.query(&ClientState::internal(), text, &parameters, &mut response).await?;
    Ok(parse(&response.body))
}

/// The rows of a ROWS body; `None` for other kinds.
fn parse(body: &[u8]) -> Option<Rows> {
    let mut reader = Reader::new(body);
    if reader.int().ok()? != ROWS {
        return None;
    }
    let flags = reader.int().ok()?;
    let columns = reader.int().ok()?;
    let next = match flags & HAS_MORE_PAGES {
        0 => None,
        _ => reader.bytes().ok()?.map(<[u8]>::to_vec),
    };
    if flags & GLOBAL_TABLE != 0 {
        reader.string().ok()?;
        reader.string().ok()?;
    }
    for _ in 0..columns {
        if flags & GLOBAL_TABLE == 0 {
            reader.string().ok()?;
            reader.string().ok()?;
        }
        reader.string().ok()?;
        read_option(&mut reader).ok()?;
    }
    let count = reader.int().ok()?;
    let row = |_| (0..columns).map(|_| Some(reader.bytes().ok()?.map(<[u8]>::to_vec))).collect();
    Some(Rows { rows: (0..count).map(row).collect::<Option<_>>()?, next })
}

/// A value as an `int`.
pub fn int(value: Option<&Value>) -> Option<u32> {
    let bytes = value?.as_deref()?;
    bytes.try_into().ok().map(u32::from_be_bytes)
}

/// A value as a `bigint`.
pub fn bigint(value: Option<&Value>) -> Option<u64> {
    let bytes = value?.as_deref()?;
    bytes.try_into().ok().map(u64::from_be_bytes)
}
