//! The effect of a command on the state: a pure function, total, the same on every node.

use super::command::{Change, Command, Refusal};
use super::requests::Done;
use super::state::ClusterState;

/// The state after the command at `index` of the log. A command that is refused, or that was applied before,
/// leaves everything but its outcome as it was.
pub fn apply(state: &ClusterState, index: u64, command: &Command) -> ClusterState {
    if state.requests.find(command.id).is_some() {
        return state.clone();
    }
    let (mut after, refusal) = match changed(state, command) {
        Ok(after) => (after, None),
        Err(refusal) => (state.clone(), Some(refusal)),
    };
    assert!(state.last_command < index, "command {index} is applied behind {}", state.last_command);
    after.last_command = index;
    after.requests.keep(Done { id: command.id, index, refusal });
    after
}

fn changed(state: &ClusterState, command: &Command) -> Result<ClusterState, Refusal> {
    if command.schema != state.schema.version() {
        return Err(Refusal::Overtaken);
    }
    let mut after = state.clone();
    for change in &command.changes {
        match change {
            Change::Schema(change) => {
                after.change_schema(change).map_err(|error| Refusal::Misfit(error.to_string()))?;
            }
        }
    }
    Ok(after)
}
