//! Admission of a connection's requests: they need memory, a place among those in flight, and a client that
//! reads its answers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use reactor::{Deadline, Permit};
use wire::frame::FrameHeader;

use super::super::dispatch;
use super::super::limits::{Answers, Demand, Held, InFlight, Refusal};
use super::Connection;

/// Bytes of answers, unread or expected, beyond which a client's next request does not start.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Heavy requests (those to be parsed and prepared, and long ones) of one connection that may run at once. No
/// further request is read until one of them is done, so that other connections get a turn.
const HEAVY_PER_CONNECTION_MAX: usize = 32;

impl Connection {
    /// Whether the client reads so far behind that events for it would only pile up.
    pub(in super::super) fn is_far_behind(&self) -> bool {
        let held = self.session.output.borrow().held_bytes();
        held > OUTPUT_BYTES_MAX || (held > 0 && self.session.native.limits.answers.are_full())
    }

    /// Reserves memory for a long frame before more of it is received. Returns false if that ends the
    /// connection.
    pub(super) async fn reserve(&self, bytes: Demand, reserved: &mut Option<Permit>) -> bool {
        // The old permit is returned first: connections that hold a part while they wait for more could
        // deadlock.
        drop(reserved.take());
        *reserved = self.wait_for_memory(bytes).await;
        if reserved.is_none() && !self.stopping.get() {
            self.session.native.limits.count_shed();
            reactor::warn_limited!(
                "no memory for a long request came free in its time: its connection is closed"
            );
        }
        reserved.is_some()
    }

    /// Queues for memory of a request, but not longer than the request timeout.
    async fn wait_for_memory(&self, bytes: Demand) -> Option<Permit> {
        self.wait_in_time(self.session.native.limits.wait_for_memory(bytes)).await
    }

    /// Queues for room for an answer that is likely to be as long as the last ones. If none becomes free in
    /// time, the client gets an error.
    pub(super) async fn wait_for_room(&self, header: FrameHeader) -> Option<Permit> {
        let limits = &self.session.native.limits;
        let usual = self.session.output.borrow().usual_bytes();
        let text = if self.session.throws_on_overload.get() {
            limits.answers_text()
        } else {
            match self.wait_in_time(limits.wait_for_answer(usual)).await {
                Some(room) => return Some(room),
                None => dispatch::TOO_LATE.to_owned(),
            }
        };
        limits.count_shed();
        dispatch::overloaded(&self.session, header, &text);
        None
    }

    async fn wait_in_time(&self, permit: impl Future<Output = Option<Permit>>) -> Option<Permit> {
        let deadline = Deadline::after(self.session.native.config.request_timeout);
        let mut waited = pin!(reactor::timeout(deadline, permit));
        poll_fn(|context| {
            if self.stop.poll_until(context, || self.stopping.get()).is_ready() {
                return Poll::Ready(None);
            }
            waited.as_mut().poll(context).map(|waited| waited.ok().flatten())
        })
        .await
    }

    /// Admits a request that found no memory, after waiting; if it cannot be admitted, the client gets an
    /// error.
    pub(super) async fn admit_later(&self, header: FrameHeader, bytes: Demand) -> Option<InFlight> {
        let limits = &self.session.native.limits;
        if self.session.throws_on_overload.get() {
            limits.count_shed();
            dispatch::overloaded(&self.session, header, &limits.memory_text());
            return None;
        }
        let Some(memory) = self.wait_for_memory(bytes).await else {
            limits.count_shed();
            dispatch::overloaded(&self.session, header, dispatch::TOO_LATE);
            return None;
        };
        match limits.admit_with(memory) {
            Ok(admitted) => Some(admitted),
            Err(refusal) => {
                self.shed(header, &refusal);
                None
            }
        }
    }

    pub(super) fn shed(&self, header: FrameHeader, refusal: &Refusal) {
        let text = match refusal {
            Refusal::Shed(text) => text.clone(),
            Refusal::Memory => self.session.native.limits.memory_text(),
        };
        dispatch::overloaded(&self.session, header, &text);
    }

    /// The permits of an admitted request.
    #[inline]
    pub(super) fn hold(&self, admitted: InFlight, room: Option<Permit>) -> Held {
        let expected = self.session.output.borrow().usual_bytes();
        Held::new(Answers::expect(&self.session.native.limits.answers, expected), admitted, room)
    }

    /// Admits a request that is to begin in the receive buffer; `None` if it has to take the usual way.
    pub(super) fn admit_at_once(&self, bytes: usize) -> Option<Option<Held>> {
        if self.session.in_flight.get() >= self.session.native.config.requests_per_connection_max {
            return None;
        }
        // The request is prepared, so it is not a text.
        let demand = Demand { bytes, is_text: false };
        Some(Some(self.hold(self.session.native.limits.admit_now(demand)?, None)))
    }

    /// Whether the next request of this client may begin.
    pub(super) fn may_go_on(&self) -> bool {
        self.stopping.get() || (self.session.heavy.get() < HEAVY_PER_CONNECTION_MAX && self.may_read_on())
    }

    /// Whether the client's unread answers are within the limits: its own, and those of all clients of the
    /// shard together. Running requests count as answers of the usual length, so that thousands started
    /// together do not all put long answers into memory.
    fn may_read_on(&self) -> bool {
        let (waiting, usual) = {
            let output = self.session.output.borrow();
            (output.held_bytes(), output.usual_bytes())
        };
        let running = self.session.in_flight.get();
        if waiting == 0 && running == 0 {
            return true;
        }
        !self.session.native.limits.answers.are_too_many()
            && waiting.saturating_add(running.saturating_mul(usual)) <= OUTPUT_BYTES_MAX
    }
}
