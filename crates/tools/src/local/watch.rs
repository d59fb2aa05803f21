//! Asks nodes over CQL how they see the cluster.
//!
//! Each look is a shard of its own for a moment, on the calling thread, which asks all nodes at once. A node
//! that is paused takes connections and answers nothing: [`LOOK_TIME`] bounds the wait for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reactor::{Config, Deadline, DriverChoice, Group};

use super::CQL_PORT;
use crate::perf::connection::{Connection, Row};

/// How long one node may take to answer both questions.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// The cluster as one node shows it to drivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    /// Addresses of nodes in `system.local` and `system.peers`.
    pub(super) named: Vec<IpAddr>,
    /// `schema_version` of `system.local`.
    pub(super) schema: [u8; 16],
}

/// A node's view, or why there is none.
pub(super) type Answer = Result<View, String>;

/// The answers of nodes, by their numbers.
pub(super) fn look(nodes: Vec<(usize, IpAddr)>) -> Vec<(usize, Answer)> {
    let config = Config { driver: DriverChoice::Poll, name: "local".to_owned(), ..Config::default() };
    reactor::run_one(config, async move {
        let asked: Vec<_> = nodes
            .into_iter()
            .map(|(number, address)| (number, reactor::spawn(Group::ADMIN, ask(address))))
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (number, asked) in asked {
            answers.push((number, asked.await.unwrap_or_else(|_| Err("the question was lost".to_owned()))));
        }
        answers
    })
}

async fn ask(address: IpAddr) -> Answer {
    match reactor::timeout(Deadline::after(LOOK_TIME), view(address)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s", LOOK_TIME.as_secs())),
    }
}

async fn view(address: IpAddr) -> Answer {
    let seconds = u32::try_from(LOOK_TIME.as_secs()).unwrap_or(u32::MAX);
    let opened = Connection::open(SocketAddr::new(address, CQL_PORT), seconds).await;
    let (mut connection, _) = opened.map_err(|error| error.to_string())?;
    let mut rows = async |statement| connection.rows(statement).await.map_err(|error| error.to_string());
    let own = rows("SELECT rpc_address, schema_version FROM system.local WHERE key = 'local'").await?;
    let peers = rows("SELECT rpc_address, peer FROM system.peers").await?;
    read(&own, &peers).ok_or_else(|| "system.local shows no address or no schema_version".to_owned())
}

/// The view in rows of `system.local` and `system.peers`. A peer without an address is none.
fn read(own: &[Row], peers: &[Row]) -> Option<View> {
    let own = own.first()?;
    let mut named = vec![address(own, 0)?];
    named.extend(peers.iter().filter_map(|peer| address(peer, 0).or_else(|| address(peer, 1))));
    named.sort_unstable();
    named.dedup();
    let schema = own.get(1)?.as_deref()?.try_into().ok()?;
    Some(View { named, schema })
}

fn address(row: &Row, column: usize) -> Option<IpAddr> {
    let bytes = row.get(column)?.as_deref()?;
    let address = match <[u8; 4]>::try_from(bytes) {
        Ok(four) => Ipv4Addr::from(four).into(),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
    };
    Some(address).filter(|address: &IpAddr| !address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    #[test]
    fn a_view_names_the_node_and_its_peers() {
        let bytes = |bytes: &[u8]| Some(bytes.to_vec());
        let own = vec![vec![bytes(&[127, 0, 0, 1]), bytes(&[7; 16])]];
        let peers = vec![
            vec![bytes(&[127, 0, 0, 3]), bytes(&[127, 0, 0, 3])],
            vec![None, bytes(&[127, 0, 0, 2])],
            vec![bytes(&[0, 0, 0, 0]), bytes(&[127, 0, 0, 4])],
            vec![bytes(&[1, 2, 3]), None],
            vec![],
        ];
        let expected = View { named: vec![local(1), local(2), local(3), local(4)], schema: [7; 16] };
        assert_eq!(read(&own, &peers), Some(expected));
    }

    #[test]
    fn rows_of_another_form_are_no_view() {
        let bytes = |bytes: &[u8]| Some(bytes.to_vec());
        for own in [
            vec![],
            vec![vec![]],
            vec![vec![bytes(&[127, 0, 0, 1])]],
            vec![vec![bytes(&[127, 0, 0, 1]), bytes(&[7; 15])]],
            vec![vec![None, bytes(&[7; 16])]],
        ] {
            assert_eq!(read(&own, &[]), None, "{own:?}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_an_answer() {
        let nobody = Ipv4Addr::new(127, 255, 255, 254).into();
        let answers = look(vec![(1, nobody), (4, nobody)]);
        assert_eq!(answers.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 4]);
        assert!(answers.iter().all(|(_, answer)| answer.is_err()), "{answers:?}");
        assert_eq!(look(Vec::new()), []);
    }
}
