//! Tells clients that asked for it which shard owns the tablet of their request.

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
    let shard = engine.replicator().shard_of_tablet(table, tablet);
    if shard == reactor::shard_id() {
        return;
    }
    let (first, last) = tablets.range(tablet);
    let mut out = Vec::new();
    // The payload's first token is excluded; before the ring's first there is only the minimum, which no key
    // has.
    let replicas = std::iter::once((engine.config().host_id, shard as i32));
    append_tablet(&mut out, first.0.saturating_sub(1), last.0, replicas);
    *payload = Some(out);
}
