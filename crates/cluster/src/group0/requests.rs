//! Outcomes of the latest commands, by their ids: a command that is asked for again is not applied again.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use minicbor::{Decode, Encode};

use super::command::{Outcome, Refusal, RequestId};

/// How many outcomes are kept.
pub const OUTCOMES_MAX: usize = 4096;

/// A command that was applied or refused.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Done {
    /// Its identity.
    #[n(0)]
    pub id: RequestId,
    /// Index of its entry in the log.
    #[n(1)]
    pub index: u64,
    /// The reason for which it changed nothing; `None` if it was applied.
    #[n(2)]
    pub refusal: Option<Refusal>,
}

impl Done {
    /// The outcome.
    pub fn outcome(&self) -> Outcome {
        self.refusal.clone().map_or(Ok(()), Err)
    }
}

/// The latest outcomes; copies share them until one changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requests(Rc<Kept>);

#[derive(Debug, Clone, Default, PartialEq)]
struct Kept {
    in_order: VecDeque<Done>,
    /// Indexes by id.
    places: BTreeMap<RequestId, u64>,
}

impl Requests {
    /// The outcome of a command, if it is among the latest.
    pub fn find(&self, id: RequestId) -> Option<&Done> {
        let index = *self.0.places.get(&id)?;
        let place = self.0.in_order.binary_search_by_key(&index, |done| done.index).ok()?;
        self.0.in_order.get(place)
    }

    /// Keeps an outcome and forgets the oldest beyond [`OUTCOMES_MAX`].
    ///
    /// # Panics
    /// If the index does not follow on those before it.
    pub fn keep(&mut self, done: Done) {
        let kept = Rc::make_mut(&mut self.0);
        let last = kept.in_order.back().map_or(0, |done| done.index);
        assert!(last < done.index, "an outcome of {} is kept behind one of {last}", done.index);
        kept.places.insert(done.id, done.index);
        kept.in_order.push_back(done);
        if kept.in_order.len() > OUTCOMES_MAX
            && let Some(oldest) = kept.in_order.pop_front()
        {
            kept.places.remove(&oldest.id);
        }
        assert_eq!(kept.in_order.len(), kept.places.len(), "two outcomes of one command");
    }

    /// Outcomes from the oldest on.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Done> {
        self.0.in_order.iter()
    }
}
