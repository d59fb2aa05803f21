//! Clients of the first shard, one for each version of the protocol.

use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody, decode};
use wire::compression::Compressor;
use wire::consistency::Consistency;
use wire::extensions::{Extensions, TABLETS_ROUTING_V1};
use wire::frame::{Direction, Frame};
use wire::segment::{Decoded, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::values::ValueRef;
use wire::version::ProtocolVersion;

use super::super::Native;
use super::super::inproc::InProcess;

/// Longest answer that is decoded.
const ANSWER_BYTES_MAX: usize = 1 << 28;
/// Longer answers are compared by their beginnings and their hashes.
const COMPARED_BYTES: usize = 8 << 10;

/// A bound value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

impl Value {
    fn borrowed(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Unset => ValueRef::Unset,
            Self::Bytes(bytes) => ValueRef::Bytes(bytes),
        }
    }
}

/// An int.
pub(super) fn int(value: i32) -> Value {
    Value::Bytes(value.to_be_bytes().to_vec())
}

/// A text.
pub(super) fn text(value: &str) -> Value {
    Value::Bytes(value.as_bytes().to_vec())
}

/// A client.
pub(super) struct Client {
    /// Its name in what was asked.
    pub(super) name: &'static str,
    connection: ClientConnection,
    session: InProcess,
    compressor: Compressor,
    segments: Option<(SegmentEncoder, SegmentDecoder)>,
}

impl Client {
    async fn connect(
        native: &Rc<Native>,
        name: &'static str,
        version: ProtocolVersion,
        extensions: Extensions,
    ) -> Self {
        let connection = ClientConnection { extensions, ..ClientConnection::new(version) };
        let (session, compressor) = (InProcess::new(native), Compressor::default());
        let mut client = Self { name, connection, session, compressor, segments: None };
        let mut options = vec![("CQL_VERSION", "3.0.0")];
        if extensions.tablets_routing_v1 {
            options.push((TABLETS_ROUTING_V1, ""));
        }
        client.ask(&ClientRequest::Startup(&options), &RequestOptions::default()).await;
        if version >= ProtocolVersion::V5 {
            let decoder = SegmentDecoder::new(SegmentFormat::Plain, Direction::Response, ANSWER_BYTES_MAX);
            client.segments = Some((SegmentEncoder::new(SegmentFormat::Plain), decoder));
        }
        client
    }

    /// The version it speaks.
    pub(super) fn version(&self) -> ProtocolVersion {
        self.connection.version
    }

    /// All bytes of the answer.
    pub(super) async fn ask(&mut self, request: &ClientRequest<'_>, options: &RequestOptions<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.connection
            .append_request(&mut bytes, 1, request, options, &mut self.compressor)
            .expect("the request fits a frame");
        if let Some((encoder, _)) = &mut self.segments {
            let envelope = std::mem::take(&mut bytes);
            encoder.append(&mut bytes, &envelope);
        }
        let mut answer = Vec::new();
        self.session.exchange(&bytes, &mut answer).await.expect("frames of this client are valid");
        answer
    }

    /// What `read` finds in an answer.
    pub(super) fn read<T>(&mut self, answer: &[u8], read: impl FnOnce(ResponseBody<'_>) -> T) -> T {
        let mut envelope = Vec::new();
        match &mut self.segments {
            None => envelope.extend_from_slice(answer),
            Some((_, decoder)) => {
                let mut rest = answer;
                while !rest.is_empty() {
                    match decoder.decode(rest).expect("a segment") {
                        Decoded::Partial { consumed } => rest = &rest[consumed..],
                        Decoded::Envelopes { consumed, envelopes } => {
                            envelope.extend_from_slice(envelopes);
                            rest = &rest[consumed..];
                        }
                        other => panic!("{other:?} at the end of an answer"),
                    }
                }
            }
        }
        let frame = Frame::cut_direction(&envelope, ANSWER_BYTES_MAX, Direction::Response);
        let frame = frame.expect("a frame").expect("all of it");
        let response = decode(&frame.header, frame.body, &self.connection.extensions);
        read(response.expect("an answer").body)
    }

    /// Runs a statement that must succeed.
    pub(super) async fn run(&mut self, statement: &str, now_in_seconds: Option<u32>) {
        let parameters = Parameters { now_in_seconds, ..Parameters::at(Consistency::One) };
        let answer =
            self.ask(&ClientRequest::Query(statement, &parameters), &RequestOptions::default()).await;
        self.read(&answer, |body| {
            let done = matches!(body, ResponseBody::Void | ResponseBody::SchemaChange(_));
            assert!(done, "{statement}: {body:?}");
        });
    }

    /// Prepares a statement and returns its id, and the id of its result's metadata if the version has them.
    pub(super) async fn prepare(&mut self, statement: &str) -> (Vec<u8>, Vec<u8>) {
        let answer = self.ask(&ClientRequest::Prepare(statement, None), &RequestOptions::default()).await;
        self.read(&answer, |body| match body {
            ResponseBody::Prepared(prepared) => {
                (prepared.id.to_vec(), prepared.result_metadata_id.unwrap_or_default().to_vec())
            }
            body => panic!("{statement}: {body:?}"),
        })
    }

    /// The answer to a prepared statement with these values, short enough to be kept.
    pub(super) async fn execute(
        &mut self,
        (id, metadata_id): (&[u8], &[u8]),
        values: &[Value],
        parameters: &Parameters<'_>,
        options: &RequestOptions<'_>,
    ) -> Vec<u8> {
        let values: Vec<_> = values.iter().map(Value::borrowed).collect();
        let parameters = Parameters { values: &values, ..*parameters };
        let request = ClientRequest::Execute { id, result_metadata_id: metadata_id, parameters: &parameters };
        shortened(self.ask(&request, options).await)
    }

    /// As [`Self::execute`], of a text.
    pub(super) async fn query(
        &mut self,
        statement: &str,
        values: &[Value],
        parameters: &Parameters<'_>,
    ) -> Vec<u8> {
        let values: Vec<_> = values.iter().map(Value::borrowed).collect();
        let parameters = Parameters { values: &values, ..*parameters };
        shortened(self.ask(&ClientRequest::Query(statement, &parameters), &RequestOptions::default()).await)
    }
}

/// An answer, or the beginning and the hash of a long one.
fn shortened(mut answer: Vec<u8>) -> Vec<u8> {
    if answer.len() > COMPARED_BYTES {
        let mut hasher = DefaultHasher::new();
        hasher.write(&answer);
        answer.truncate(COMPARED_BYTES / 64);
        answer.extend_from_slice(&hasher.finish().to_be_bytes());
    }
    answer
}

/// The clients of a test.
pub(super) struct Clients(pub(super) Vec<Client>);

impl Clients {
    /// A client of each version, and one that is told of tablets.
    pub(super) async fn connect(native: &Rc<Native>) -> Self {
        let (none, tablets) =
            (Extensions::default(), Extensions { tablets_routing_v1: true, ..Extensions::default() });
        Self(vec![
            Client::connect(native, "v5", ProtocolVersion::V5, none).await,
            Client::connect(native, "v4", ProtocolVersion::V4, none).await,
            Client::connect(native, "v3", ProtocolVersion::V3, none).await,
            Client::connect(native, "v4 of tablets", ProtocolVersion::V4, tablets).await,
        ])
    }

    /// The client of version 5.
    pub(super) fn latest(&mut self) -> &mut Client {
        &mut self.0[0]
    }
}
