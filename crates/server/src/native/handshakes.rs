//! Limits to connections in handshake: how many at a time on a shard, and how long each.
//!
//! A new connection waits for a place before anything of it is read, so that ten thousand connections that
//! come together, or that never send anything, take neither processor time nor memory from established ones.
//! Places are given in order of arrival. A client has [`HANDSHAKE_TIME`] for its handshake, and while few
//! places are left only [`HANDSHAKE_TIME_PRESSED`].

use std::rc::Rc;
use std::time::Duration;

use reactor::metrics::{self, Counter};
use reactor::{Instant, Permit, Semaphore};

/// Connections of a shard that may be in handshake at a time.
const HANDSHAKES_MAX: usize = 512;
/// Connections that may wait for a place; further ones are closed.
const WAITING_MAX: usize = 1 << 16;
/// Time for the handshake of a client.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Time for the handshake while few places are left.
const HANDSHAKE_TIME_PRESSED: Duration = Duration::from_millis(900);

/// The places for handshakes of one shard.
pub(super) struct Handshakes {
    places: Semaphore,
    blocked: Rc<Counter>,
    shed: Rc<Counter>,
}

impl Handshakes {
    pub(super) fn new() -> Self {
        Self {
            places: Semaphore::with_waiters_max(HANDSHAKES_MAX, WAITING_MAX),
            blocked: metrics::counter(
                "scylla_transport_connections_blocked",
                "Connections that waited because too many others were shaking hands",
                &[],
            ),
            shed: metrics::counter(
                "scylla_transport_connections_shed",
                "Connections closed because too many waited to shake hands",
                &[],
            ),
        }
    }

    /// Waits for a place; `None` if too many connections wait.
    pub(super) async fn place(&self) -> Option<Permit> {
        if let Some(place) = self.places.try_acquire(1) {
            return Some(place);
        }
        self.blocked.inc();
        let place = self.places.acquire(1).await.ok();
        if place.is_none() {
            self.shed.inc();
        }
        place
    }

    /// Whether the time for the handshake of a connection that came at `since` is over.
    pub(super) fn is_over(&self, since: Instant) -> bool {
        let pressed = self.places.available() < HANDSHAKES_MAX / 2;
        since.elapsed() >= if pressed { HANDSHAKE_TIME_PRESSED } else { HANDSHAKE_TIME }
    }
}

#[cfg(test)]
mod tests {
    use reactor::sim;

    use super::*;

    #[test]
    fn clients_that_say_nothing_have_less_time_while_places_are_few() {
        sim::run_one(1, || async {
            let handshakes = Handshakes::new();
            let since = reactor::now();
            let mut places = Vec::new();
            for _ in 0..HANDSHAKES_MAX / 2 {
                places.push(handshakes.place().await.expect("a place"));
            }
            reactor::sleep(HANDSHAKE_TIME_PRESSED).await;
            assert!(!handshakes.is_over(since));
            places.push(handshakes.place().await.expect("a place"));
            assert!(handshakes.is_over(since));
            drop(places);
            assert!(!handshakes.is_over(since));
            reactor::sleep(HANDSHAKE_TIME).await;
            assert!(handshakes.is_over(since));
        });
    }
}
