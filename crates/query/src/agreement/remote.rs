//! A schema statement between nodes: as text with the session's keyspace to the leader, and its outcome back.
//!
//! The leader parses the text, so that its version decides what a statement means. Format: CBOR with numbered
//! fields, because nodes of other versions read it.

use cluster::group0::RequestId;
use cluster::{Answered, ClusterError, ControlPlane, Turn};
use minicbor::{Decode, Encode};
use reactor::Deadline;

use super::{ChangeRequest, Failure, Refusal};
use crate::QueryError;
use crate::engine::Engine;
use statement::schema_events::{Change, SchemaEvent, Target};

/// How long a statement may take on its way to the leader and back.
const WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

/// A statement on its way to the leader.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct Question {
    /// The statement as text.
    #[n(0)]
    text: String,
    /// The session's keyspace.
    #[n(1)]
    keyspace: Option<String>,
}

/// The outcome on its way back.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct Outcome {
    /// The event; `None` if the schema was already as the statement wants it.
    #[n(0)]
    event: Option<Event>,
    /// Why the statement was refused.
    #[n(1)]
    refusal: Option<Refused>,
    /// Warnings for the client.
    #[n(2)]
    warnings: Vec<String>,
}

/// A [`SchemaEvent`].
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct Event {
    /// 0 created, 1 updated, 2 dropped.
    #[n(0)]
    change: u8,
    /// 0 keyspace, 1 table, 2 type, 3 function, 4 aggregate.
    #[n(1)]
    target: u8,
    #[n(2)]
    keyspace: String,
    #[n(3)]
    name: String,
    #[n(4)]
    arguments: Vec<String>,
}

/// A [`Refusal`] as its kind and texts.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct Refused {
    /// The kind: its place among those of [`Refusal`].
    #[n(0)]
    kind: u8,
    #[n(1)]
    message: String,
    /// Keyspace and table of what exists already.
    #[n(2)]
    existing: Option<(String, String)>,
}

/// Asks the leader, whoever it is; returns once this node has applied the change.
///
/// # Errors
/// The statement's error; [`QueryError::Overloaded`] without a majority.
pub(super) async fn ask(
    control: &ControlPlane,
    request: &ChangeRequest,
    warnings: &mut Vec<String>,
) -> Result<Option<SchemaEvent>, QueryError> {
    let question = Question { text: request.statement.to_string(), keyspace: request.keyspace.clone() };
    let bytes = minicbor::to_vec(&question).expect("writing to memory does not fail");
    let answered = control.ask(bytes, Deadline::after(WITHIN)).await?;
    if answered.outcome.is_empty() {
        // The change was made, and the answer that told of it was lost.
        return Ok(None);
    }
    let outcome: Outcome = minicbor::decode(&answered.outcome)
        .map_err(|error| QueryError::Internal(format!("the leader's answer cannot be read: {error}")))?;
    warnings.extend(outcome.warnings);
    if let Some(refused) = outcome.refusal {
        return Err(refused.into_refusal().into());
    }
    outcome.event.map(Event::into_event).transpose()
}

/// Plans what another node asks for, in a turn.
///
/// # Errors
/// [`ClusterError`] where the outcome is not known or another leader has to plan; the statement's own error
/// is an outcome.
pub(super) async fn plan(turn: Turn, id: RequestId, request: Vec<u8>) -> Result<Answered, ClusterError> {
    let (mut warnings, index) = (Vec::new(), turn.index());
    let outcome = match planned(turn, id, &request, &mut warnings).await {
        Ok((event, index)) => (index, Outcome { event: event.map(Event::of), refusal: None, warnings }),
        Err(Failure::Cluster(error)) => return Err(error),
        Err(Failure::Statement(error)) => {
            let refusal = Some(Refused::of(Refusal::from(error)));
            (index, Outcome { event: None, refusal, warnings })
        }
    };
    let (index, outcome) = outcome;
    Ok(Answered { index, outcome: minicbor::to_vec(outcome).expect("writing to memory does not fail") })
}

async fn planned(
    turn: Turn,
    id: RequestId,
    request: &[u8],
    warnings: &mut Vec<String>,
) -> Result<(Option<SchemaEvent>, u64), Failure> {
    let invalid =
        |error: minicbor::decode::Error| QueryError::Invalid(format!("a statement of another node: {error}"));
    let Question { text, keyspace } = minicbor::decode(request).map_err(invalid)?;
    let statement = cql::parse_statement(&text).map_err(QueryError::from)?.statement;
    let engine =
        Engine::here().ok_or_else(|| QueryError::NotReady("the node has not started yet".to_owned()))?;
    super::change(&engine, turn, Some(id), &ChangeRequest { statement, keyspace }, warnings).await
}

impl Event {
    fn of(event: SchemaEvent) -> Self {
        let SchemaEvent { change, target, keyspace, name, arguments } = event;
        let change = match change {
            Change::Created => 0,
            Change::Updated => 1,
            Change::Dropped => 2,
        };
        let target = match target {
            Target::Keyspace => 0,
            Target::Table => 1,
            Target::Type => 2,
            Target::Function => 3,
            Target::Aggregate => 4,
        };
        Self { change, target, keyspace, name, arguments }
    }

    fn into_event(self) -> Result<SchemaEvent, QueryError> {
        let unknown =
            |number: u8| QueryError::Internal(format!("the leader tells of a change of kind {number}"));
        let change = match self.change {
            0 => Change::Created,
            1 => Change::Updated,
            2 => Change::Dropped,
            other => return Err(unknown(other)),
        };
        let target = match self.target {
            0 => Target::Keyspace,
            1 => Target::Table,
            2 => Target::Type,
            3 => Target::Function,
            4 => Target::Aggregate,
            other => return Err(unknown(other)),
        };
        let Self { keyspace, name, arguments, .. } = self;
        Ok(SchemaEvent { change, target, keyspace, name, arguments })
    }
}

impl Refused {
    fn of(refusal: Refusal) -> Self {
        let mut existing = None;
        let (kind, message) = match refusal {
            Refusal::Syntax(error) => (0, error.to_string()),
            Refusal::Invalid(message) => (1, message),
            Refusal::Guardrail(message) => (2, message),
            Refusal::Config(message) => (3, message),
            Refusal::Unauthorized(message) => (4, message),
            Refusal::AlreadyExists { keyspace, table, message } => {
                existing = Some((keyspace, table));
                (5, message)
            }
            Refusal::NotReady(message) => (6, message),
            Refusal::Failed(message) => (7, message),
        };
        Self { kind, message, existing }
    }

    fn into_refusal(self) -> Refusal {
        let Self { kind, message, existing } = self;
        match kind {
            0 => Refusal::Syntax(cql::SyntaxError { position: None, message }),
            1 => Refusal::Invalid(message),
            2 => Refusal::Guardrail(message),
            3 => Refusal::Config(message),
            4 => Refusal::Unauthorized(message),
            5 => {
                let (keyspace, table) = existing.unwrap_or_default();
                Refusal::AlreadyExists { keyspace, table, message }
            }
            6 => Refusal::NotReady(message),
            _ => Refusal::Failed(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_refusals_come_back_as_they_were() {
        for change in [Change::Created, Change::Updated, Change::Dropped] {
            for target in [Target::Keyspace, Target::Table, Target::Type, Target::Function, Target::Aggregate]
            {
                let event = SchemaEvent {
                    change,
                    target,
                    keyspace: "k".to_owned(),
                    name: "n".to_owned(),
                    arguments: vec!["int".to_owned()],
                };
                let bytes = minicbor::to_vec(Event::of(event.clone())).unwrap();
                let back: Event = minicbor::decode(&bytes).unwrap();
                assert_eq!(back.into_event().unwrap(), event);
            }
        }
        let message = || "why".to_owned();
        let exists = Refusal::AlreadyExists { keyspace: "k".into(), table: "t".into(), message: message() };
        let all = [
            Refusal::Syntax(cql::SyntaxError { position: None, message: message() }),
            Refusal::Invalid(message()),
            Refusal::Guardrail(message()),
            Refusal::Config(message()),
            Refusal::Unauthorized(message()),
            exists,
            Refusal::NotReady(message()),
            Refusal::Failed(message()),
        ];
        for refusal in all {
            let text = format!("{refusal:?}");
            let bytes = minicbor::to_vec(Refused::of(refusal)).unwrap();
            let back: Refused = minicbor::decode(&bytes).unwrap();
            assert_eq!(format!("{:?}", back.into_refusal()), text);
        }
        assert!(Event { change: 9, ..Event::of(SchemaEvent::of(&drop_it())) }.into_event().is_err());
    }

    fn drop_it() -> model::schema::SchemaChange {
        model::schema::SchemaChange::DropKeyspace { name: "k".to_owned() }
    }
}
