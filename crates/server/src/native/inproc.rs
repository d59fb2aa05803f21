//! A client inside the process: frame bytes in, frame bytes out, no socket. Benches that count instructions
//! use it, and administration for statements that come by HTTP.

use std::rc::Rc;

use query::Left;
use reactor::GateHold;
use wire::frame::FrameHeader;

use super::framing::{Input, Next};
use super::session::{Phase, Session};
use super::{Native, dispatch};

/// A client without a socket. Requests are answered one after the other.
pub struct InProcess {
    session: Rc<Session>,
    input: Input,
    /// Has the closing of the shard wait for this client.
    _hold: Option<GateHold>,
}

/// The bytes cannot be parsed as frames any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a frame: {0}")]
pub struct NotAFrame(String);

impl InProcess {
    /// A client of `native`'s shard.
    pub fn new(native: &Rc<Native>) -> Self {
        Self {
            session: Rc::new(Session::new(Rc::clone(native), None)),
            input: Input::new(native.config.frame_bytes_max),
            _hold: None,
        }
    }

    /// As [`Self::new`], for a client that a closing shard waits for; `None` if the shard is closing.
    pub(crate) fn entered(native: &Rc<Native>) -> Option<Self> {
        let hold = native.gate.enter().ok()?;
        Some(Self { _hold: Some(hold), ..Self::new(native) })
    }

    /// Answers the requests in `bytes` and appends the answers to `out`.
    ///
    /// # Errors
    /// [`NotAFrame`] for bytes that would close a connection.
    pub async fn exchange(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), NotAFrame> {
        self.input.feed(bytes);
        loop {
            let session = &self.session;
            let at_once = |header: &FrameHeader, body: &[u8]| match session.phase.get() {
                Phase::Ready => dispatch::answer_at_once(session, header, body, || Some(None)),
                _ => Err(Left::Untried),
            };
            let next = self.input.next_frame(at_once, || session.native.take_buffer());
            let next = next.map_err(|error| NotAFrame(error.to_string()))?;
            let (header, body, left) = match next {
                Some(Next::Frame(header, body, left)) => (header, body, left),
                Some(Next::Taken) => continue,
                None => break,
            };
            if self.session.phase.get() == Phase::Ready {
                reactor::in_place!(dispatch::answer(
                    &self.session,
                    (header, body, reactor::coarse_now()),
                    left
                ));
            } else {
                dispatch::answer_in_turn(&self.session, header, body, &mut self.input).await;
            }
        }
        self.session.drained.wait_until(|| self.session.in_flight.get() == 0).await;
        let mut output = self.session.output.borrow_mut();
        while output.has_pending()
            && let Some(answers) = output.take()
        {
            out.extend_from_slice(&answers);
            output.sent();
            self.session.native.give_buffer(answers);
        }
        Ok(())
    }
}
