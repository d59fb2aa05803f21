//! Tells clients that asked for it which replicas have the tablet of their request.

use model::{Table, Token};
use wire::extensions::append_tablet;

use crate::ClientState;
use crate::engine::Engine;

/// Fills the routing payload where the request came to a shard that does not have the tablet.
#[inline]
pub fn hint(
    engine: &Engine,
    client: &ClientState,
    table: &Table,
    token: Token,
    payload: &mut Option<Vec<u8>>,
) {
    if !client.tablets_routing {
        return;
    }
    let tablets = table.tablets();
    let tablet = tablets.tablet_of(token);
    let (replicator, routing) = (engine.replicator(), engine.replicator().routing(table));
    let replicas = routing.whole(tablet);
    if replicas.contains(&replicator.own()) {
        return;
    }
    let (first, last) = tablets.range(tablet);
    let mut out = Vec::new();
    // The payload's first token is excluded; before the ring's first there is only the minimum, which no key
    // has.
    let replicas = replicas.iter().map(|replica| {
        (replicator.host_id_of(replica.node).unwrap_or(engine.config().host_id), i32::from(replica.shard))
    });
    append_tablet(&mut out, first.0.saturating_sub(1), last.0, replicas);
    *payload = Some(out);
}
