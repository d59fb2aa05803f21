//! A client inside the process: statements as frames, and prepared requests copied from a template.
//!
//! A request costs its client a copy of some hundred bytes and a check of a few bytes of the answer, so
//! nearly all the cost counted is the server's. An answer is checked by its opcode and its kind of result;
//! the last answer of a run is decoded in full.

use wire::Consistency;
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody};
use wire::compression::Compressor;
use wire::frame::{Direction, Frame, HEADER_BYTES, Opcode};
use wire::values::ValueRef;
use wire::version::ProtocolVersion;

use super::PerfError;
use crate::inproc::Node;
use crate::native::inproc::InProcess;

/// Longest answer that is decoded.
const ANSWER_BYTES_MAX: usize = 1 << 28;
/// Length of a partition key in bytes.
pub(super) const KEY_BYTES: usize = 8;
/// Offset of the opcode in an answer's header (native_protocol_v4.spec §2).
const OPCODE_AT: usize = 4;

/// A prepared request with a placeholder for the key.
#[derive(Debug, Clone)]
pub(super) struct Template {
    frame: Vec<u8>,
    key_at: usize,
    /// Expected kind of RESULT.
    result: u32,
}

/// How many rows a request asks for, and where it continues.
#[derive(Debug, Default)]
pub(super) struct Paged {
    /// Rows of a page; `None` for all at once.
    pub(super) page_size: Option<i32>,
    pub(super) paging_state: Option<Vec<u8>>,
}

/// Kinds of RESULT: without content, and with rows (native_protocol_v4.spec §4.2.5).
const VOID: u32 = 1;
const ROWS: u32 = 2;

/// A client of the shard that made it.
pub(super) struct Client {
    session: InProcess,
    connection: ClientConnection,
    compressor: Compressor,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// Opens a client and completes its handshake.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`].
    pub(super) async fn connect(node: &Node) -> Result<Self, PerfError> {
        let mut client = Self {
            session: node.client(),
            connection: ClientConnection::new(ProtocolVersion::V4),
            compressor: Compressor::default(),
            request: Vec::new(),
            answer: Vec::new(),
        };
        client.ask(&ClientRequest::Startup(&[("CQL_VERSION", "3.0.0")])).await?;
        client.expect("STARTUP", |body| matches!(body, ResponseBody::Ready).then_some(()))?;
        Ok(client)
    }

    async fn ask(&mut self, request: &ClientRequest<'_>) -> Result<(), PerfError> {
        self.request.clear();
        let options = RequestOptions::default();
        self.connection
            .append_request(&mut self.request, 1, request, &options, &mut self.compressor)
            .expect("a request of a bench fits a frame");
        self.exchange().await
    }

    async fn exchange(&mut self) -> Result<(), PerfError> {
        self.answer.clear();
        let exchanged = self.session.exchange(&self.request, &mut self.answer).await;
        exchanged
            .map_err(|error| PerfError::Unexpected { what: "a request".into(), answer: error.to_string() })
    }

    /// Decodes the last answer; an error if `read` returns `None` for it.
    fn expect<T>(
        &self,
        what: &str,
        read: impl FnOnce(&ResponseBody<'_>) -> Option<T>,
    ) -> Result<T, PerfError> {
        let unexpected = |answer: String| PerfError::Unexpected { what: what.to_owned(), answer };
        let frame = Frame::cut_direction(&self.answer, ANSWER_BYTES_MAX, Direction::Response)
            .map_err(|error| unexpected(error.to_string()))?
            .ok_or_else(|| unexpected("half a frame".into()))?;
        let response = wire::client::decode(&frame.header, frame.body, &self.connection.extensions)
            .map_err(|error| unexpected(error.to_string()))?;
        read(&response.body).ok_or_else(|| unexpected(format!("{:?}", response.body)))
    }

    /// Executes a statement that returns no rows.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`].
    pub(super) async fn statement(&mut self, text: &str) -> Result<(), PerfError> {
        self.ask(&ClientRequest::Query(text, &Parameters::at(Consistency::One))).await?;
        self.expect(text, |body| {
            matches!(body, ResponseBody::Void | ResponseBody::SchemaChange(_)).then_some(())
        })
    }

    /// Prepares a statement; returns its id.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`].
    pub(super) async fn prepare_id(&mut self, text: &str) -> Result<Vec<u8>, PerfError> {
        self.ask(&ClientRequest::Prepare(text, None)).await?;
        self.expect(text, |body| match body {
            ResponseBody::Prepared(prepared) => Some(prepared.id.to_vec()),
            _ => None,
        })
    }

    async fn execute_with(&mut self, id: &[u8], values: &[&[u8]], paged: &Paged) -> Result<(), PerfError> {
        let values: Vec<_> = values.iter().map(|value| ValueRef::Bytes(value)).collect();
        let parameters = Parameters {
            values: &values,
            skip_metadata: true,
            page_size: paged.page_size,
            paging_state: paged.paging_state.as_deref(),
            ..Parameters::at(Consistency::One)
        };
        self.ask(&ClientRequest::Execute { id, result_metadata_id: &[], parameters: &parameters }).await
    }

    /// Executes a prepared statement that returns no rows.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`].
    pub(super) async fn execute_values(&mut self, id: &[u8], values: &[&[u8]]) -> Result<(), PerfError> {
        self.execute_with(id, values, &Paged::default()).await?;
        self.expect("a write", |body| matches!(body, ResponseBody::Void).then_some(()))
    }

    /// Executes a prepared SELECT; returns the number of rows of the page and the place of the next one.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`].
    pub(super) async fn rows(
        &mut self,
        id: &[u8],
        values: &[&[u8]],
        paged: &Paged,
    ) -> Result<(usize, Option<Vec<u8>>), PerfError> {
        self.execute_with(id, values, paged).await?;
        self.expect("a read", |body| match body {
            ResponseBody::Rows(rows) => Some((rows.row_count, rows.paging_state.map(<[u8]>::to_vec))),
            _ => None,
        })
    }

    /// Prepares a statement. `values` are those of its markers; the value at index `key` is the key.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`].
    pub(super) async fn prepare(
        &mut self,
        text: &str,
        values: &[&[u8]],
        key: usize,
    ) -> Result<Template, PerfError> {
        let id = self.prepare_id(text).await?;
        // The key's offset in the frame is found by encoding the request with two keys and comparing the
        // results.
        let mut encode = |filler: u8| {
            let placeholder = [filler; KEY_BYTES];
            let values: Vec<ValueRef<'_>> = values
                .iter()
                .enumerate()
                .map(|(at, value)| ValueRef::Bytes(if at == key { &placeholder } else { value }))
                .collect();
            let mut frame = Vec::new();
            let parameters =
                Parameters { values: &values, skip_metadata: true, ..Parameters::at(Consistency::One) };
            let request =
                ClientRequest::Execute { id: &id, result_metadata_id: &[], parameters: &parameters };
            self.connection
                .append_request(&mut frame, 1, &request, &RequestOptions::default(), &mut self.compressor)
                .expect("a request of a bench fits a frame");
            frame
        };
        let (frame, other) = (encode(0), encode(0xff));
        let key_at = frame.iter().zip(&other).position(|(a, b)| a != b).expect("the key is in the frame");
        let result = if text.starts_with("SELECT") { ROWS } else { VOID };
        Ok(Template { frame, key_at, result })
    }

    /// Executes a prepared request; returns whether the answer has the expected kind.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`] if the session cannot continue.
    pub(super) async fn execute(&mut self, template: &Template, key: u64) -> Result<bool, PerfError> {
        self.request.clear();
        self.request.extend_from_slice(&template.frame);
        self.request[template.key_at..template.key_at + KEY_BYTES].copy_from_slice(&key.to_be_bytes());
        self.exchange().await?;
        let kind = self.answer.get(HEADER_BYTES..HEADER_BYTES + 4);
        Ok(self.answer.get(OPCODE_AT) == Some(&Opcode::Result.code())
            && kind == Some(&template.result.to_be_bytes()))
    }

    /// Whether the last request of this client was `template`'s.
    pub(super) fn was_answered(&self, template: &Template) -> bool {
        self.request.len() == template.frame.len()
            && self.request[..template.key_at] == template.frame[..template.key_at]
    }

    /// Decodes the last answer of `template` and checks it: void, or exactly one row.
    ///
    /// # Errors
    /// [`PerfError::Unexpected`].
    pub(super) fn check_last(&self, template: &Template) -> Result<(), PerfError> {
        self.expect("the last request", |body| match body {
            ResponseBody::Void => (template.result == VOID).then_some(()),
            ResponseBody::Rows(rows) => (template.result == ROWS && rows.row_count == 1).then_some(()),
            _ => None,
        })
    }
}
