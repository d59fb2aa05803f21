//! What is in flight on a shard: how many requests and how many bytes of them. Beyond the limits requests are shed.

use std::cell::Cell;
use std::rc::Rc;

/// Counts of one shard against its limits.
#[derive(Debug)]
pub(super) struct ShardLimits {
    requests_max: usize,
    bytes_max: usize,
    requests: Cell<usize>,
    bytes: Cell<usize>,
    shed: Rc<reactor::metrics::Counter>,
}

impl ShardLimits {
    pub(super) fn new(requests_max: usize, bytes_max: usize) -> Rc<Self> {
        let shed = reactor::metrics::counter(
            "scylla_transport_requests_shed",
            "Requests answered with OVERLOADED because of a limit on what is in flight",
            &[],
        );
        Rc::new(Self { requests_max, bytes_max, requests: Cell::new(0), bytes: Cell::new(0), shed })
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
