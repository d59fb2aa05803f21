//! The port for other nodes, on shard 0: accepts connections, has first messages judged, and hands each
//! connection to the shard that it is for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use reactor::net::{Listener, Stream};
use reactor::{Deadline, Group, Semaphore, mesh};
use wire::node::hello::{Class, Hello};

use super::dial::{HANDSHAKE_TIME, STRANGERS_MAX, encoded, receive_first, refuse};
use super::door::{Door, Ends, Process};
use super::provisional::Claim;
use super::serve::{Arrival, Asker};
use super::{Admission, Network, verbs};

/// Of the connections whose first message is awaited, those from one address.
const STRANGERS_PER_ADDRESS_MAX: usize = 16;
/// Connections that the system may queue before they are accepted.
pub(super) const BACKLOG: u32 = 512;
/// Pause in accepting after an error such as too many open files.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Connections whose first message is awaited, by address.
#[derive(Default)]
struct Strangers(RefCell<BTreeMap<IpAddr, usize>>);

/// A place for one of them.
struct Place {
    strangers: Rc<Strangers>,
    address: IpAddr,
    _permit: reactor::Permit,
}

impl Strangers {
    fn place(self: &Rc<Self>, places: &Semaphore, address: IpAddr) -> Option<Place> {
        let permit = places.try_acquire(1)?;
        let mut by_address = self.0.borrow_mut();
        let here = by_address.entry(address).or_insert(0);
        if *here >= STRANGERS_PER_ADDRESS_MAX {
            return None;
        }
        *here += 1;
        Some(Place { strangers: Rc::clone(self), address, _permit: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self.strangers.0.borrow_mut();
        let here = by_address.get_mut(&self.address).expect("a place was counted");
        *here -= 1;
        if *here == 0 {
            by_address.remove(&self.address);
        }
    }
}

/// Accepts until the network stops.
pub(super) async fn accept(network: Rc<Network>, door: Rc<Door>, listener: Listener) {
    let (places, strangers) = (Semaphore::new(STRANGERS_MAX), Rc::new(Strangers::default()));
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => match strangers.place(&places, address.ip()) {
                    Some(place) => {
                        let (network, door) = (Rc::clone(&network), Rc::clone(&door));
                        network.spawn_held(Group::CONTROL, move |network| async move {
                            shake_hands(&network, &door, stream, address).await;
                            drop(place);
                        });
                    }
                    None => reactor::warn_limited!(
                        "a connection of a node was closed: too many others have not said who they are";
                        peer = address
                    ),
                },
                Err(error) => {
                    reactor::warn_limited!("cannot accept connections of nodes: {error}");
                    reactor::sleep(ACCEPT_REST).await;
                }
            }
        }
    };
    let (mut accepting, mut stopped) = (pin!(accepting), pin!(network.until_stopped()));
    poll_fn(|context| match stopped.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => accepting.as_mut().poll(context),
    })
    .await;
}

/// Reads and judges the first message, and hands the connection over.
async fn shake_hands(network: &Rc<Network>, door: &Rc<Door>, stream: Stream, address: SocketAddr) {
    let deadline = Deadline::after(HANDSHAKE_TIME);
    let (stream, theirs) = match receive_first(stream, deadline).await {
        Ok(received) => received,
        Err(why) => {
            reactor::warn_limited!("a connection to the port for nodes is closed: {why}"; peer = address);
            return;
        }
    };
    let shards = reactor::shard_count();
    let shard = match theirs.class {
        Class::Control => 0,
        Class::Statement | Class::Bulk => theirs.to_shard.map_or(0, |shard| usize::from(shard) % shards),
    };
    let ends = Ends {
        expected: Some(theirs.host_id),
        class: theirs.class,
        shard: shard as u16,
        to_shard: Some(theirs.shard),
    };
    let own = door.hello(ends);
    let admission = match network.admit_at(door, &own, &theirs) {
        Ok(admission) => admission,
        Err(refusal) => {
            reactor::warn_limited!("a node is refused: {refusal}"; peer = address, host_id = crate::handshake::id(&theirs.host_id));
            refuse(&stream, &refusal, deadline).await;
            return;
        }
    };
    hand_over(network, shard, stream, admission, &own, &theirs).await;
}

async fn hand_over(
    network: &Rc<Network>,
    shard: usize,
    stream: Stream,
    admission: Admission,
    own: &Hello,
    theirs: &Hello,
) {
    let (class, process, body) = (theirs.class, Process::of(theirs), encoded(own));
    let claim = Claim::of(theirs).filter(|_| admission.node.is_none());
    let asker = Asker {
        node: admission.node,
        provisional: None,
        host_id: theirs.host_id,
        generation: theirs.generation,
        shard: theirs.shard,
        address: stream.peer_addr(),
    };
    let socket = stream.detach_silent();
    let arrival = Arrival { asker, class, process, claim };
    let handed = mesh::call(shard, verbs::carrier(class), move || async move {
        let network = reactor::local::<Network>();
        let taken = network.map(|network| network.serve_connection(socket, arrival, admission, body));
        taken.unwrap_or(false)
    });
    if handed.await != Ok(true) {
        network.departed(process).await;
    }
}
