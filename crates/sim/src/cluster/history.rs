//! One history: whatever command a node has applied last, its state is that of every other node that has
//! been there.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use cluster::ControlPlane;
use cluster::consensus::Role;

type Nodes = BTreeMap<usize, Rc<ControlPlane>>;

/// The states that nodes were seen in.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Hash of the state by the last command in it, and the node that was there first.
    states: BTreeMap<u64, (u64, usize)>,
    /// The last command that each node was seen with.
    last: BTreeMap<usize, u64>,
}

impl History {
    /// Looks at all nodes that are open.
    ///
    /// # Errors
    /// Two nodes that differ.
    pub(super) fn look(&mut self, nodes: &Nodes) -> Result<(), String> {
        self.last.retain(|at, _| nodes.contains_key(at));
        for (at, control) in nodes {
            let state = control.group().state();
            let command = state.last_command();
            match self.last.insert(*at, command) {
                Some(before) if before == command => continue,
                Some(before) if before > command => {
                    return Err(format!("node {at} went back from command {before} to {command}"));
                }
                _ => {}
            }
            let hash = hash_of(&state.encode());
            let (first, by) = *self.states.entry(command).or_insert((hash, *at));
            if first != hash {
                return Err(format!("one_history: after command {command} nodes {by} and {at} differ"));
            }
        }
        Ok(())
    }
}

/// Whether all nodes are in one state, under one leader.
///
/// # Errors
/// What is not so.
pub(super) fn agree(nodes: &Nodes) -> Result<(), String> {
    let leaders = nodes.iter().filter(|(_, control)| control.group().status().role == Role::Leader);
    let leaders: Vec<usize> = leaders.map(|(at, _)| *at).collect();
    if leaders.len() != 1 {
        return Err(format!("nodes {leaders:?} lead"));
    }
    let states: Vec<_> = nodes.iter().map(|(at, control)| (*at, control.group().state())).collect();
    let all = states.windows(2).all(|pair| pair[0].1.encode() == pair[1].1.encode());
    let commands: Vec<_> = states.iter().map(|(at, state)| (*at, state.last_command())).collect();
    if all { Ok(()) } else { Err(format!("nodes and their last commands: {commands:?}")) }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
