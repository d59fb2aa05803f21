//! Prepared reads and writes as an exchange: requests from templates, answers checked in place.
//!
//! A request is a copied frame with its stream id, key and value filled in, and most answers are judged by
//! their headers, so that one client core can load a faster server. One answer in [`CHECK_EVERY`] is decoded
//! and compared completely.

use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody, decode};
use wire::frame::{Direction, Frame, HEADER_BYTES};
use wire::{Compressor, Consistency, Opcode, ProtocolVersion, ValueRef};

use super::PerfError;
use super::closed_loop::{Answer, Exchange};
use super::connection::FRAME_BYTES_MAX;
use super::keys::{Keys, Random, fill, is_of};

/// One read in so many has its value compared.
const CHECK_EVERY: u32 = 64;
/// Kind of a RESULT with rows (native_protocol_v4.spec §4.2.5).
const ROWS: [u8; 4] = 2u32.to_be_bytes();
/// Flags of rows: there are further pages; there is no metadata. Without metadata other flags have no
/// meaning.
const MORE_PAGES: u8 = 2;
const NO_METADATA: u8 = 4;

/// An EXECUTE frame into which key and value are filled.
#[derive(Debug, Clone)]
pub(super) struct Template {
    frame: Vec<u8>,
    key_at: usize,
    /// Range of the value, up to the end of the filled part.
    value: Option<std::ops::Range<usize>>,
}

impl Template {
    /// The point read of a prepared statement with one marker, the key.
    pub(super) fn read(id: &[u8]) -> Result<Self, PerfError> {
        let key = [0xA5; 8];
        let parameters = Parameters { skip_metadata: true, ..Parameters::at(Consistency::One) };
        let frame = execute(id, &Parameters { values: &[ValueRef::Bytes(&key)], ..parameters })?;
        // The value is the last thing of the frame: no option follows it.
        Ok(Self { key_at: frame.len() - key.len(), value: None, frame })
    }

    /// The write of a prepared statement with two markers, the key and a value of `value_bytes`.
    pub(super) fn write(id: &[u8], value_bytes: usize) -> Result<Self, PerfError> {
        let (key, value) = ([0; 8], vec![0; value_bytes]);
        let values = [ValueRef::Bytes(&key), ValueRef::Bytes(&value)];
        let frame = execute(id, &Parameters { values: &values, ..Parameters::at(Consistency::One) })?;
        let value = frame.len() - value_bytes..frame.len();
        Ok(Self { key_at: value.start - 4 - key.len(), value: Some(value), frame })
    }

    #[inline]
    fn append(&self, out: &mut Vec<u8>, slot: u16, key: u64) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let frame = &mut out[start..];
        frame[2..4].copy_from_slice(&slot.to_be_bytes());
        frame[self.key_at..self.key_at + 8].copy_from_slice(&key.to_be_bytes());
        if let Some(value) = &self.value {
            fill(key, &mut frame[value.clone()]);
        }
    }
}

fn execute(id: &[u8], parameters: &Parameters<'_>) -> Result<Vec<u8>, PerfError> {
    let mut frame = Vec::new();
    ClientConnection::new(ProtocolVersion::V4).append_request(
        &mut frame,
        0,
        &ClientRequest::Execute { id, result_metadata_id: &[], parameters },
        &RequestOptions::default(),
        &mut Compressor::default(),
    )?;
    Ok(frame)
}

/// Which statements a run executes.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    pub(super) read: Template,
    pub(super) write: Template,
    /// Bytes of each row's value.
    pub(super) value_bytes: usize,
}

/// The share of reads among the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    Read,
    Write,
    /// Half and half, at random.
    Both,
}

/// The request that a slot waits for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    key: u64,
    is_read: bool,
}

/// Requests and answers of one connection.
pub(super) struct CqlExchange {
    statements: std::rc::Rc<Statements>,
    mix: Mix,
    keys: Keys,
    random: Random,
    asked: Vec<Asked>,
    until_check: u32,
}

impl CqlExchange {
    pub(super) fn new(
        statements: std::rc::Rc<Statements>,
        mix: Mix,
        keys: Keys,
        seed: u64,
        depth: u16,
    ) -> Self {
        let asked = vec![Asked { key: 0, is_read: false }; usize::from(depth)];
        Self { statements, mix, keys, random: Random::new(seed), asked, until_check: 0 }
    }

    /// The problem of the answer to `asked`, if any.
    fn judge(&mut self, asked: Asked, frame: &Frame<'_>) -> Result<Option<String>, PerfError> {
        let body = frame.body;
        if frame.header.opcode == Opcode::Result && frame.header.flags.0 == 0 {
            let is_result = if asked.is_read {
                // kind, flags, columns, rows: one row of one column.
                body.len() > 16
                    && body[..4] == ROWS
                    && body[7] & (NO_METADATA | MORE_PAGES) == NO_METADATA
                    && body[12..16] == 1u32.to_be_bytes()
            } else {
                body == 1u32.to_be_bytes()
            };
            let check = asked.is_read && self.until_check == 0;
            self.until_check = self.until_check.checked_sub(1).unwrap_or(CHECK_EVERY - 1);
            if is_result && !check {
                return Ok(None);
            }
        }
        let response = decode(&frame.header, body, &wire::Extensions::default())?;
        Ok(match response.body {
            ResponseBody::Error { code, message, .. } => Some(format!("error {code:#06x}: {message}")),
            ResponseBody::Void if !asked.is_read => None,
            ResponseBody::Rows(rows) if asked.is_read => match rows.values().next() {
                None => Some(format!("partition {} has no row", asked.key)),
                Some(Some(value)) if is_of(asked.key, value, self.statements.value_bytes) => None,
                Some(_) => Some(format!("partition {} holds what was not written there", asked.key)),
            },
            _ => Some(format!("an answer of kind {:?} to another question", frame.header.opcode)),
        })
    }
}

impl Exchange for CqlExchange {
    #[inline]
    fn append(&mut self, out: &mut Vec<u8>, slot: u16) -> bool {
        let Some(key) = self.keys.next() else { return false };
        let is_read = match self.mix {
            Mix::Read => true,
            Mix::Write => false,
            Mix::Both => self.random.next() & 1 == 0,
        };
        let template = if is_read { &self.statements.read } else { &self.statements.write };
        template.append(out, slot, key);
        self.asked[usize::from(slot)] = Asked { key, is_read };
        true
    }

    #[inline]
    fn cut(&mut self, bytes: &[u8]) -> Result<Option<Answer>, PerfError> {
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let frame = Frame::cut_direction(bytes, FRAME_BYTES_MAX, Direction::Response);
        let Some(frame) = frame.map_err(|error| error.error)? else { return Ok(None) };
        let stream = frame.header.stream;
        let asked = usize::try_from(stream).ok().and_then(|slot| self.asked.get(slot).copied());
        let asked = asked.ok_or(PerfError::Stream { stream })?;
        let failure = self.judge(asked, &frame)?;
        Ok(Some(Answer { bytes: frame.header.frame_bytes(), slot: stream.cast_unsigned(), failure }))
    }
}

#[cfg(test)]
mod tests {
    use wire::request::{Request, decode as decode_request};

    use super::*;

    #[test]
    fn templates_are_requests_with_key_and_value_in_their_places() {
        let check = |template: &Template, slot: u16, key: u64, value_bytes: Option<usize>| {
            let mut out = vec![9, 9];
            template.append(&mut out, slot, key);
            let frame = Frame::cut(&out[2..], FRAME_BYTES_MAX).unwrap().unwrap();
            assert_eq!(frame.header.frame_bytes(), out.len() - 2);
            assert_eq!(frame.header.stream, slot.cast_signed());
            let request = decode_request(&frame.header, frame.body, &wire::Extensions::default()).unwrap();
            let Request::Execute { id, parameters, .. } = request.request else { panic!("{request:?}") };
            assert_eq!(id, b"0123456789abcdef");
            let mut values = parameters.values.iter().map(|(_, value)| value.bytes().unwrap());
            assert_eq!(values.next().unwrap(), key.to_be_bytes());
            match value_bytes {
                Some(length) => assert!(is_of(key, values.next().unwrap(), length)),
                None => assert_eq!(values.next(), None),
            }
        };
        let id = b"0123456789abcdef";
        check(&Template::read(id).unwrap(), 3, 0x0102_0304_0506_0708, None);
        for value_bytes in [0, 1, 100, 5000] {
            check(&Template::write(id, value_bytes).unwrap(), 1023, 77, Some(value_bytes));
        }
    }
}
