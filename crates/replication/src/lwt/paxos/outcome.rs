//! What is certain about a conditional write when a step of its round fails: one table, which the tests read.
//!
//! From the first ACCEPT that was sent a proposal may survive at an acceptor and be taken up by another
//! coordinator. Only an answer that says no, from each acceptor that was asked, tells that it does not; a
//! failure tells nothing, whatever its cause. A round of the same write that is completed later decides about
//! its earlier proposals (`round`).

/// A step of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Promises are asked for.
    Prepare,
    /// A proposal is made.
    Accept,
    /// A chosen proposal is shown to readers.
    Learn,
}

/// How a step at one acceptor ended without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// The acceptor has seen a later round.
    Refused,
    /// The acceptor knows another routing, or had no room, or could not be reached, or failed.
    Failed,
    /// No answer came in time.
    Silent,
}

/// What is known of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It did not happen, and will not by this proposal.
    NotWritten,
    /// It may have happened, or may still.
    Unknown,
    /// It happened; some readers may not see it yet.
    Written,
}

/// The steps and failures with what is certain.
pub(super) const CERTAINTIES: [(Step, Failing, Certainty); 9] = [
    (Step::Prepare, Failing::Refused, Certainty::NotWritten),
    (Step::Prepare, Failing::Failed, Certainty::NotWritten),
    (Step::Prepare, Failing::Silent, Certainty::NotWritten),
    (Step::Accept, Failing::Refused, Certainty::NotWritten),
    (Step::Accept, Failing::Failed, Certainty::Unknown),
    (Step::Accept, Failing::Silent, Certainty::Unknown),
    (Step::Learn, Failing::Refused, Certainty::Written),
    (Step::Learn, Failing::Failed, Certainty::Written),
    (Step::Learn, Failing::Silent, Certainty::Written),
];

/// What is certain after a step ended so at an acceptor.
pub(super) fn certainty(step: Step, failing: Failing) -> Certainty {
    let found = CERTAINTIES.iter().find(|(a, b, _)| (*a, *b) == (step, failing));
    found.expect("the table has every step and failure").2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_and_failure_has_its_certainty() {
        for step in [Step::Prepare, Step::Accept, Step::Learn] {
            for failing in [Failing::Refused, Failing::Failed, Failing::Silent] {
                let rows = CERTAINTIES.iter().filter(|(a, b, _)| (*a, *b) == (step, failing));
                assert_eq!(rows.count(), 1, "{step:?} {failing:?}");
            }
        }
        assert_eq!(certainty(Step::Accept, Failing::Failed), Certainty::Unknown);
    }
}
