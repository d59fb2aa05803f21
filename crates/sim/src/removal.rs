//! Names that go missing between two lives, and what a start may answer to that.
//!
//! After a crash one name of the node's disk, a file or a folder with all that is in it, is taken away now
//! and then. The start that follows either is refused with words that name the loss, or its reads are
//! (`disk_failure_policy`): then the name is put back, and the next life finds everything as it was, which
//! shows that the refused start destroyed nothing. Or it goes on, because the name was not needed: then the
//! name stays away, and every later answer has to be right without it.

use std::path::{Path, PathBuf};

use reactor::sim::{NodeId, TakenAway, World};
use storage::FailurePolicy;

use crate::workload::{Answer, Shared, WORKDIR};

/// One restart in so many finds a name missing.
const ONE_IN: u64 = 4;

/// How often names were taken away, and what the starts answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removals {
    /// Names that were taken away.
    pub taken: u64,
    /// Starts that were refused for it.
    pub refused: u64,
    /// Starts that went on and whose reads were refused for it.
    pub reads_refused: u64,
    /// Starts that went on without, with all that had to be there.
    pub went_on: u64,
}

impl std::ops::AddAssign for Removals {
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        self.refused += other.refused;
        self.reads_refused += other.reads_refused;
        self.went_on += other.went_on;
    }
}

/// The names that are taken away from one node.
#[derive(Default)]
pub(crate) struct Remover {
    /// A name that is away, until a start has answered.
    away: Option<TakenAway>,
    /// A start went on without it, and was cut off before all was looked at.
    has_started: bool,
    /// How often that was.
    pub(crate) removals: Removals,
    /// The names that were taken away, and the outcome.
    told: Vec<String>,
}

impl Remover {
    /// Whether a name is away and no start has answered yet.
    pub(crate) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Looks at what the start answered to a name that is away, and puts it back where it was refused; else
    /// takes one away, by chance. To be called between a crash and the restart.
    ///
    /// # Errors
    /// The fault of a refusal, in words.
    pub(crate) fn between_lives(
        &mut self,
        world: &mut World,
        id: NodeId,
        shared: &mut Shared,
    ) -> Result<(), String> {
        let Some(away) = self.away.take() else {
            let chosen = world.random_u64().is_multiple_of(ONE_IN);
            if chosen && !shared.is_flipped() {
                self.take(world, id, shared);
            }
            return Ok(());
        };
        let path = away.path().display();
        let answer = std::mem::take(&mut shared.answer);
        match &answer {
            // Cut off before all was looked at: the next start is asked the same.
            Answer::None | Answer::Asked | Answer::Started => {
                self.has_started |= answer == Answer::Started;
                shared.ask(shared.policy);
                self.away = Some(away);
                return Ok(());
            }
            Answer::WentOn => {
                self.removals.went_on += 1;
                self.told.push(format!("{path}: went on"));
            }
            Answer::Refused(words) | Answer::ReadsRefused(words) => {
                if !names(words, away.path()) {
                    return Err(format!("refused without {path}, in words that do not name it: {words}"));
                }
                let is_start = matches!(answer, Answer::Refused(_));
                if is_start && self.has_started {
                    return Err(format!(
                        "a start went on without {path}, and the next one is refused: {words}"
                    ));
                }
                if !world.put_back(id, &away) {
                    return Err(format!("the folder that {path} was in is gone after a refused start"));
                }
                self.removals.refused += u64::from(is_start);
                self.removals.reads_refused += u64::from(!is_start);
                self.told.push(format!("{path}: {}refused", if is_start { "" } else { "reads " }));
            }
        }
        self.has_started = false;
        Ok(())
    }

    fn take(&mut self, world: &mut World, id: NodeId, shared: &mut Shared) {
        let mut names: Vec<PathBuf> = world.names(id).into_iter().filter(|path| may_go(path)).collect();
        if world.random_u64().is_multiple_of(2) {
            // There are a few dozen names in folders of tables for one of any other kind.
            let tables = Path::new(WORKDIR).join("data/sim");
            names.retain(|path| !path.starts_with(&tables) || *path == tables);
        }
        if names.is_empty() {
            return;
        }
        let path = &names[(world.random_u64() % names.len() as u64) as usize];
        let Some(away) = world.take_away(id, path) else { return };
        if away.paths().any(|path| path.components().any(|part| part.as_os_str() == "snapshots")) {
            // No start needs them, and the workload is not to take in what is no more.
            shared.forget_snapshots();
        }
        self.away = Some(away);
        self.removals.taken += 1;
        let policies = [FailurePolicy::Die, FailurePolicy::Ignore];
        shared.ask(policies[(world.random_u64() % policies.len() as u64) as usize]);
    }

    /// Each removal with its outcome, in order.
    pub(crate) fn into_told(mut self) -> Vec<String> {
        self.told.extend(self.away.map(|away| format!("{}: away", away.path().display())));
        self.told
    }
}

/// Whether a loss of that name can be noticed: a node without its whole work directory is a new one.
fn may_go(path: &Path) -> bool {
    path.starts_with(WORKDIR) && path != Path::new(WORKDIR)
}

/// Whether words name what is away: the name, something in it, or a folder that it was in, below the work
/// directory.
fn names(words: &str, away: &Path) -> bool {
    let starts = words.match_indices(WORKDIR).map(|(at, _)| &words[at..]);
    let mut said = starts.map(|rest| {
        let end = rest.find(|c: char| c.is_whitespace() || ":,;()\"'".contains(c)).unwrap_or(rest.len());
        Path::new(&rest[..end])
    });
    said.any(|said| said.starts_with(away) || may_go(said) && away.starts_with(said))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Removals, names};
    use crate::run::run;

    #[test]
    fn words_name_what_is_away_by_its_own_name_one_below_or_a_folder_above() {
        let away = Path::new("/ceto/data/sim/t");
        for words in [
            "/ceto/data/sim/t: cannot list",
            "shard 1 failed: /ceto/data/sim/t/me-1-big-Data.db: cannot use",
            "something that must be there is missing (/ceto/data, /ceto/schema)",
        ] {
            assert!(names(words, away), "{words}");
        }
        for words in
            ["", "/ceto: is empty", "/ceto/data/sim/t2: cannot list", "/ceto/schema/schema.log: gone"]
        {
            assert!(!names(words, away), "{words}");
        }
    }

    #[test]
    fn names_go_missing_and_starts_are_refused_or_go_on() {
        let mut sum = Removals::default();
        for seed in 0..40 {
            let outcome = run(seed, 150);
            assert_eq!(outcome.failure, None, "seed {seed}, without {:?}", outcome.taken_away);
            sum += outcome.removals;
        }
        assert!(sum.refused > 5 && sum.reads_refused > 0 && sum.went_on > 2, "{sum:?} say little");
    }
}
