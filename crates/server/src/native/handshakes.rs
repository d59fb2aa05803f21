//! Connections that have not shaken hands yet: so many at once on a shard, each for so long.
//!
//! A fresh connection waits for a place before anything of it is read, so that ten thousand that come together, or
//! that never say anything, take neither the core nor the memory of those that are established. Places are given in the
//! order of coming. A client has [`HANDSHAKE_TIME`]; while few places are left, the look at which it is found out is enough.

use std::rc::Rc;
use std::time::Duration;

use reactor::metrics::{self, Counter};
use reactor::{Instant, Permit, Semaphore};

/// Connections of a shard that shake hands at once.
const HANDSHAKES_MAX: usize = 512;
/// Connections that wait for that; later ones are closed.
const WAITING_MAX: usize = 1 << 16;
/// Time a client has to become ready.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The same, while few places are left.
const HANDSHAKE_TIME_PRESSED: Duration = Duration::from_millis(900);

/// The places of one shard.
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

    /// Waits for a place; `None` where too many wait.
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

    /// Whether a connection that came at `since` has had its time.
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
