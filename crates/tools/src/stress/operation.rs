//! The engine's interface to an operation: a frame to send, and the judgement of its answer.

use std::rc::Rc;

use model::Token;
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody};
use wire::frame::HEADER_BYTES;
use wire::{Compressor, Consistency, ProtocolVersion, ValueRef};

use super::StressError;
use super::seeds::{Seed, SeedManager};
use crate::client::pipe::set_length;
use crate::client::{ClientError, Prepared};

/// Operations still allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permits {
    /// `None` until they are stopped.
    left: Option<i64>,
    stopped: bool,
}

impl Permits {
    pub(super) fn new(count: Option<i64>) -> Self {
        Self { left: count, stopped: false }
    }

    /// Takes up to `count` of them; returns how many there were.
    #[inline]
    pub(super) fn take(&mut self, count: i64) -> i64 {
        if self.stopped {
            return 0;
        }
        let Some(left) = &mut self.left else { return count };
        let taken = count.min(*left);
        *left -= taken;
        taken
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }
}

/// A worker's operation, kept until it is done.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// The whole frame, with stream 0; sent again unchanged if a try fails.
    pub(super) frame: Vec<u8>,
    /// The token of its partition, if that is known.
    pub(super) token: Option<Token>,
    /// The partition of a predefined operation.
    pub(super) seed: i64,
    /// The partitions of a user's operation, their keys in hexadecimal for messages.
    pub(super) seeds: Vec<Rc<Seed>>,
    /// Partitions and rows that count when it succeeds.
    pub(super) partitions: u64,
    pub(super) rows: u64,
    /// Frames that follow this one.
    pub(super) more: Vec<Vec<u8>>,
    /// Rows that the answer must hold, each value serialised.
    pub(super) expected: Vec<Vec<Option<Vec<u8>>>>,
    /// Index of the statement, or the progress in a series of pages.
    pub(super) step: usize,
    pub(super) from: Vec<u8>,
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The expected answer.
    Done,
    /// Not the data that was written.
    Invalid,
    /// The next frame is to be sent.
    Again,
}

/// A kind of operation. One value serves all workers, one after the other.
pub(super) trait Operation {
    /// Under which name it is measured.
    fn name(&self) -> &str;

    /// Prepares the next operation in `job`; returns how many permits it took, 0 if there is none.
    fn begin(&mut self, job: &mut Job, seeds: &mut SeedManager, permits: &mut Permits) -> i64;

    /// Judges the answer to `job`.
    fn answer(&mut self, job: &mut Job, body: &ResponseBody<'_>) -> Verdict;

    /// The keys of `job`, for messages.
    fn key(&mut self, job: &Job) -> String;
}

/// An EXECUTE frame into which values are put.
#[derive(Debug, Clone)]
pub(super) struct Template {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// How frames are made for all connections, which are all alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    pub(super) connection: ClientConnection,
    pub(super) consistency: Consistency,
}

impl Dialect {
    /// The parameters of every request.
    pub(super) fn parameters(&self) -> Parameters<'static> {
        if self.consistency.is_serial() {
            let level = Consistency::One;
            return Parameters { serial_consistency: Some(self.consistency), ..Parameters::at(level) };
        }
        Parameters::at(self.consistency)
    }

    /// A frame, not compressed.
    pub(super) fn frame(&self, request: &ClientRequest<'_>) -> Result<Vec<u8>, StressError> {
        let mut frame = Vec::new();
        let plain = ClientConnection { compression: None, ..self.connection };
        let options = RequestOptions::default();
        let appended = plain.append_request(&mut frame, 0, request, &options, &mut Compressor::default());
        appended.map_err(ClientError::from)?;
        Ok(frame)
    }

    /// The template of a prepared statement with `values` values.
    pub(super) fn template(
        &self,
        prepared: &Prepared,
        values: usize,
        page_size: Option<i32>,
        skip_metadata: bool,
    ) -> Result<Template, StressError> {
        let none = vec![ValueRef::Null; values];
        let bare = self.execute(prepared, &[], page_size, skip_metadata)?;
        let whole = self.execute(prepared, &none, page_size, skip_metadata)?;
        // Values come last but for the options, whose bytes end both frames.
        let count_bytes = if values == 0 { 0 } else { 2 };
        let tail_bytes = whole.len() - 4 * values - self.values_at(prepared) - count_bytes;
        let head = whole[..whole.len() - tail_bytes - 4 * values].to_vec();
        debug_assert!(bare.ends_with(&whole[whole.len() - tail_bytes..]));
        Ok(Template { head, tail: whole[whole.len() - tail_bytes..].to_vec() })
    }

    /// Place of the number of values in an EXECUTE frame.
    fn values_at(&self, prepared: &Prepared) -> usize {
        let is_v5 = self.connection.version >= ProtocolVersion::V5;
        let metadata_id = if self.connection.extensions.has_metadata_id(self.connection.version) {
            2 + prepared.result_metadata_id.len()
        } else {
            0
        };
        HEADER_BYTES + 2 + prepared.id.len() + metadata_id + 2 + if is_v5 { 4 } else { 1 }
    }

    pub(super) fn execute(
        &self,
        prepared: &Prepared,
        values: &[ValueRef<'_>],
        page_size: Option<i32>,
        skip_metadata: bool,
    ) -> Result<Vec<u8>, StressError> {
        let parameters = Parameters { values, page_size, skip_metadata, ..self.parameters() };
        let result_metadata_id = &prepared.result_metadata_id;
        self.frame(&ClientRequest::Execute { id: &prepared.id, result_metadata_id, parameters: &parameters })
    }
}

impl Template {
    /// Begins a frame in `out`, which it empties.
    #[inline]
    pub(super) fn begin(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.head);
    }

    /// Completes a frame whose values were appended.
    #[inline]
    pub(super) fn finish(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tail);
        set_length(out);
    }
}

/// Appends a value written by `fill`, preceded by its length; returns its place.
#[inline]
pub(super) fn append_value(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) -> std::ops::Range<usize> {
    let start = out.len() + 4;
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = (out.len() - start) as i32;
    out[start - 4..start].copy_from_slice(&length.to_be_bytes());
    start..out.len()
}

/// Appends null.
#[inline]
pub(super) fn append_null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use wire::frame::Frame;
    use wire::request::{Request, decode};

    use super::*;

    #[test]
    fn templates_are_requests_with_values_in_their_place() {
        let id = Prepared { id: vec![7; 16], result_metadata_id: vec![8; 16], ..Prepared::default() };
        for version in ProtocolVersion::ALL {
            for consistency in [Consistency::Quorum, Consistency::Serial] {
                for page_size in [None, Some(77)] {
                    let dialect = Dialect { connection: ClientConnection::new(version), consistency };
                    let template = dialect.template(&id, 2, page_size, true).unwrap();
                    let mut frame = Vec::new();
                    template.begin(&mut frame);
                    append_value(&mut frame, |out| out.extend_from_slice(b"key"));
                    append_null(&mut frame);
                    template.finish(&mut frame);
                    let cut = Frame::cut(&frame, 1 << 20).unwrap().unwrap();
                    assert_eq!(cut.header.frame_bytes(), frame.len());
                    let request = decode(&cut.header, cut.body, &wire::Extensions::default()).unwrap();
                    let Request::Execute { id, parameters, .. } = request.request else { panic!() };
                    assert_eq!(id, [7; 16]);
                    assert_eq!(parameters.page_size.map(u32::cast_signed), page_size);
                    let values: Vec<_> = parameters.values.iter().map(|(_, value)| value).collect();
                    assert_eq!(values, [ValueRef::Bytes(b"key"), ValueRef::Null]);
                }
            }
        }
    }

    #[test]
    fn permits_run_out_or_are_stopped() {
        let mut permits = Permits::new(Some(3));
        assert_eq!((permits.take(2), permits.take(2), permits.take(2)), (2, 1, 0));
        let mut permits = Permits::new(None);
        assert_eq!(permits.take(5), 5);
        permits.stop();
        assert_eq!(permits.take(5), 0);
    }
}
