//! What is in flight on a shard: how many requests, how many bytes of them, and how many bytes of answers that wait for
//! their clients. Beyond the limits requests are shed, and clients that leave answers unread are not read from.

use std::cell::Cell;
use std::rc::Rc;

/// Counts of one shard against its limits.
#[derive(Debug)]
pub(super) struct ShardLimits {
    requests_max: usize,
    bytes_max: usize,
    requests: Cell<usize>,
    bytes: Cell<usize>,
    pub(super) answers: Rc<Answers>,
    shed: Rc<reactor::metrics::Counter>,
}

impl ShardLimits {
    pub(super) fn new(requests_max: usize, bytes_max: usize) -> Rc<Self> {
        let shed = reactor::metrics::counter(
            "scylla_transport_requests_shed",
            "Requests answered with OVERLOADED because of a limit on what is in flight",
            &[],
        );
        Rc::new(Self {
            requests_max,
            bytes_max,
            requests: Cell::new(0),
            bytes: Cell::new(0),
            answers: Rc::new(Answers::new(bytes_max)),
            shed,
        })
    }

    /// Counts a request of `bytes` bytes in, or says which limit forbids it.
    ///
    /// A request is let in whatever its size where nothing else is in flight, so that a limit below the largest frame
    /// does not refuse it for ever.
    pub(super) fn admit(self: &Rc<Self>, bytes: usize) -> Result<InFlight, String> {
        let (requests, in_flight) = (self.requests.get(), self.bytes.get());
        let refusal = if requests >= self.requests_max {
            Some(format!(
                "Too many requests in flight on this shard: {requests} (max_concurrent_requests_per_shard)"
            ))
        } else if requests > 0 && in_flight.saturating_add(bytes) > self.bytes_max {
            Some(format!(
                "Too many bytes of requests in flight on this shard: {in_flight} \
                 (native_transport_max_request_data_in_flight)"
            ))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.shed.inc();
            return Err(refusal);
        }
        self.requests.set(requests + 1);
        self.bytes.set(in_flight + bytes);
        Ok(InFlight { limits: Rc::clone(self), bytes })
    }

    /// Counts a request that another limit refused.
    pub(super) fn count_shed(&self) {
        self.shed.inc();
    }
}

/// A request counted in; dropping it counts it out.
#[derive(Debug)]
pub(super) struct InFlight {
    limits: Rc<ShardLimits>,
    bytes: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.limits.requests.set(self.limits.requests.get() - 1);
        self.limits.bytes.set(self.limits.bytes.get() - self.bytes);
    }
}

/// Answers of a shard that are being made or wait for their clients.
#[derive(Debug)]
pub(super) struct Answers {
    bytes_max: usize,
    bytes: Cell<usize>,
}

impl Answers {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: Cell::new(0) }
    }

    /// A connection has `after` bytes unread, of which `before` are counted.
    pub(super) fn count(&self, before: usize, after: usize) {
        self.bytes.set(self.bytes.get() - before + after);
    }

    /// Counts an answer that is being made and likely to have `bytes`, until what is returned is dropped.
    pub(super) fn expect(this: &Rc<Self>, bytes: usize) -> Expected {
        this.count(0, bytes);
        Expected { answers: Rc::clone(this), bytes }
    }

    /// Whether all clients together have too much of them: whoever has any must read it first.
    pub(super) fn are_too_many(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }
}

/// An answer in the making.
#[derive(Debug)]
pub(super) struct Expected {
    answers: Rc<Answers>,
    bytes: usize,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.answers.count(self.bytes, 0);
    }
}
