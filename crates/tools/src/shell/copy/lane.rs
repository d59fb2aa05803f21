//! A connection with many requests in flight, each awaited by its own task.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Group};
use wire::client::{ClientRequest, RequestOptions, ResponseBody};
use wire::frame::{Direction, Frame};
use wire::{Compressor, Opcode, ProtocolError};

use crate::client::pipe::Pipe;
use crate::client::{Answer, Client, ClientError, FRAME_BYTES_MAX};
use crate::shell::error::{ServerError, ShellError};

/// Requests in flight.
pub(super) const REQUESTS_MAX: usize = 256;

type Waiting = reactor::sync::oneshot::Sender<Answer>;

/// The connection. It ends when it is dropped.
pub(super) struct Lane {
    pipe: Rc<Pipe>,
    waiting: Rc<RefCell<BTreeMap<u32, Waiting>>>,
    next: Cell<u32>,
    request_time: Duration,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.pipe.close();
    }
}

impl Lane {
    /// Puts a set-up connection into use.
    pub(super) fn new(client: &Client, request_time: Duration) -> Self {
        let pipe = Rc::new(Pipe::new(client, REQUESTS_MAX));
        let waiting: Rc<RefCell<BTreeMap<u32, Waiting>>> = Rc::default();
        let sender = pipe.clone();
        reactor::spawn(Group::STATEMENT, async move { sender.send_all().await }).detach();
        let (receiver, answered) = (pipe.clone(), waiting.clone());
        let receiving = async move {
            receiver.receive_all(|bytes| take(&receiver, &answered, bytes)).await;
            receiver.close();
            // Their receivers find that nobody answers.
            answered.borrow_mut().clear();
        };
        reactor::spawn(Group::STATEMENT, receiving).detach();
        Self { pipe, waiting, next: Cell::new(0), request_time }
    }

    /// Sends a request and waits for its answer. Precondition: less than [`REQUESTS_MAX`] are in flight.
    ///
    /// # Errors
    /// The server's, and those of the connection.
    pub(super) async fn ask(&self, request: &ClientRequest<'_>) -> Result<Answer, ShellError> {
        let closed = || ShellError::Client(ClientError::Closed { what: "COPY".to_owned() });
        if self.pipe.is_closed() {
            return Err(closed());
        }
        let mut frame = Vec::new();
        let (connection, options) = (self.pipe.connection(), RequestOptions::default());
        connection.append_request(&mut frame, 0, request, &options, &mut Compressor::default())?;
        let worker = self.next.get();
        // Far below the numbers that mean something else to the pipe.
        self.next.set((worker + 1) % (1 << 30));
        let (sender, receiver) = reactor::oneshot();
        self.waiting.borrow_mut().insert(worker, sender);
        let stream = self.pipe.send(&frame, worker);
        let answer = match reactor::timeout(Deadline::after(self.request_time), receiver).await {
            Ok(answer) => answer.map_err(|_| closed())?,
            Err(_) => {
                self.pipe.abandon(stream);
                self.waiting.borrow_mut().remove(&worker);
                return Err(ShellError::TimedOut { seconds: self.request_time.as_secs_f64() });
            }
        };
        if let ResponseBody::Error { code, message, fields } = answer.read()?.body {
            return Err(ShellError::Server(ServerError::new(code, message, fields)));
        }
        Ok(answer)
    }
}

/// Hands the whole frames of `bytes` to those who wait; returns how many bytes they were.
fn take(
    pipe: &Pipe,
    waiting: &RefCell<BTreeMap<u32, Waiting>>,
    bytes: &[u8],
) -> Result<usize, ProtocolError> {
    let (mut at, mut plain) = (0, Vec::new());
    loop {
        let cut = Frame::cut_direction(&bytes[at..], FRAME_BYTES_MAX, Direction::Response);
        let Some(frame) = cut.map_err(|error| error.error)? else { return Ok(at) };
        at += frame.header.frame_bytes();
        if frame.header.opcode == Opcode::Event {
            continue;
        }
        let (worker, header, body) = pipe.open(&frame, &mut plain)?;
        let sender = worker.and_then(|worker| waiting.borrow_mut().remove(&worker));
        if let Some(sender) = sender {
            let answer = Answer::new(header, body.to_vec(), pipe.connection().extensions);
            // A task that is gone needs no answer.
            let _ = sender.send(answer);
        }
    }
}
