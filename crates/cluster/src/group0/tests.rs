//! Commands applied to states: pure, once each, the same from bytes.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::schema::{KeyspaceOptions, SchemaChange};
use proptest::prelude::*;

use super::{Change, ClusterState, Command, OUTCOMES_MAX, Refusal, RequestId, apply};

fn create(name: &str) -> SchemaChange {
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
    SchemaChange::CreateKeyspace { name: name.to_owned(), options }
}

fn drop_it(name: &str) -> SchemaChange {
    SchemaChange::DropKeyspace { name: name.to_owned() }
}

fn command(sequence: u64, state: &ClusterState, changes: &[SchemaChange]) -> Command {
    Command {
        id: RequestId { node: 1, life: 7, sequence },
        schema: Some(state.schema().version()),
        changes: changes.iter().cloned().map(Change::Schema).collect(),
        topology: None,
    }
}

fn refusal(state: &ClusterState, command: &Command) -> Option<Refusal> {
    state.requests().find(command.id).expect("an outcome").refusal.clone()
}

#[test]
fn a_command_is_applied_once_and_all_or_nothing() {
    let empty = ClusterState::default();
    let both = command(1, &empty, &[create("a"), create("b")]);
    let first = apply(&empty, 5, &both);
    assert_eq!((refusal(&first, &both), first.last_command()), (None, 5));
    assert_eq!(first.schema().keyspaces().count(), 2);
    // Asked for again: the first outcome stands.
    let again = apply(&first, 6, &both);
    assert_eq!(again.encode(), first.encode());
    // Its second change does not follow on its first.
    let half = command(2, &first, &[create("c"), create("a")]);
    let refused = apply(&first, 7, &half);
    assert!(matches!(refusal(&refused, &half), Some(Refusal::Misfit(_))));
    assert!(Rc::ptr_eq(refused.schema(), first.schema()), "nothing of it was applied");
    // Planned before the schema changed.
    let late = command(3, &empty, &[create("d")]);
    let overtaken = apply(&refused, 8, &late);
    assert_eq!(refusal(&overtaken, &late), Some(Refusal::Overtaken));
    assert_eq!((overtaken.last_command(), overtaken.schema().version()), (8, first.schema().version()));
}

#[test]
fn the_latest_outcomes_are_kept_and_older_ones_forgotten() {
    let mut state = ClusterState::default();
    let asked: Vec<Command> =
        (1..=OUTCOMES_MAX as u64 + 3).map(|n| command(n, &state, &[drop_it("no")])).collect();
    for (index, command) in (1..).zip(&asked) {
        state = apply(&state, index, command);
    }
    assert_eq!(state.requests().iter().len(), OUTCOMES_MAX);
    assert!(state.requests().find(asked[2].id).is_none() && state.requests().find(asked[3].id).is_some());
    assert_eq!(ClusterState::decode(&state.encode()).unwrap().encode(), state.encode());
}

#[test]
fn bytes_that_are_no_state_or_command_are_refused() {
    let first = command(1, &ClusterState::default(), &[create("a")]);
    let state = apply(&ClusterState::default(), 1, &first).encode();
    let asked = first.encode();
    for cut in 0..state.len() {
        assert!(ClusterState::decode(&state[..cut]).is_err(), "{cut} bytes");
    }
    for cut in 0..asked.len() {
        assert!(Command::decode(&asked[..cut]).is_err(), "{cut} bytes");
    }
    assert!(Command::decode(&[asked.as_slice(), &[0]].concat()).is_err(), "a byte too much");
    assert_eq!(Command::decode(&asked).unwrap(), first);
}

mod topology;

proptest! {
    /// A node that reads a snapshot in the middle has the state of one that applied everything.
    #[test]
    fn a_state_from_bytes_goes_on_as_the_one_it_was_made_of(
        steps in prop::collection::vec((0u8..6, any::<bool>(), any::<bool>()), 1..40),
        cut in 0usize..40,
    ) {
        let mut state = ClusterState::default();
        let mut read = None;
        for (number, (name, creates, stale)) in steps.into_iter().enumerate() {
            if number == cut {
                read = Some(state.clone());
            }
            let name = format!("k{name}");
            let change = if creates { create(&name) } else { drop_it(&name) };
            let base = if stale { ClusterState::default() } else { state.clone() };
            let asked = command(number as u64, &base, &[change]);
            let index = 2 * number as u64 + 1;
            if let Some(other) = &mut read {
                *other = apply(&ClusterState::decode(&other.encode()).unwrap(), index, &asked);
            }
            state = apply(&state, index, &asked);
            if let Some(other) = &read {
                prop_assert_eq!(other.encode(), state.encode());
            }
        }
    }
}
