//! Parses the command line: a command with its parameters, then options with theirs.
//!
//! Words may be split or joined around `,`, `=` and parentheses in any way, since people quote them in any
//! way. Commands and options are case-insensitive and may occur only once.

use super::StressError;

/// The parameters of each command and option, in the order given.
#[derive(Debug)]
pub(super) struct Arguments(Vec<(String, Vec<String>)>);

impl Arguments {
    /// Parses `words`.
    ///
    /// # Errors
    /// [`StressError::Usage`] if a command or option occurs twice.
    pub(super) fn new(words: &[String]) -> Result<Self, StressError> {
        let mut arguments: Vec<(String, Vec<String>)> = Vec::new();
        for word in repair(&words.join(" ")).split(' ').filter(|word| !word.is_empty()) {
            match arguments.last_mut() {
                Some((_, parameters)) if !word.starts_with('-') => parameters.push(word.to_owned()),
                _ => {
                    let name = word.to_lowercase();
                    if arguments.iter().any(|(known, _)| *known == name) {
                        return Err(StressError::Usage(format!(
                            "{name} is defined multiple times. Each option/command can be specified at most once."
                        )));
                    }
                    arguments.push((name, Vec::new()));
                }
            }
        }
        Ok(Self(arguments))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the parameters of one of `names`.
    pub(super) fn take(&mut self, names: &[&str]) -> Option<Vec<String>> {
        let place = self.0.iter().position(|(name, _)| names.contains(&name.as_str()))?;
        Some(self.0.remove(place).1)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The arguments that were not taken.
    pub(super) fn rest(&self) -> impl Iterator<Item = &(String, Vec<String>)> {
        self.0.iter()
    }
}

/// Closes up the spaces in front of `,`, `=`, `(`, `)` and behind `,`, `=`, `(`.
fn repair(line: &str) -> String {
    let mut repaired = String::with_capacity(line.len());
    let mut space = false;
    for character in line.chars() {
        if character.is_whitespace() {
            space = true;
            continue;
        }
        if space && !matches!(character, ',' | '=' | '(' | ')') && !repaired.ends_with([',', '=', '(']) {
            repaired.push(' ');
        }
        space = false;
        repaired.push(character);
    }
    repaired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_around_signs_do_not_matter() {
        let check = |line: &str, expected: &str| assert_eq!(repair(line), expected);
        check("mixed ratio( read = 2 , write=1 ) n=1", "mixed ratio(read=2,write=1) n=1");
        check("write  n=1   -pop seq=1..2", "write n=1 -pop seq=1..2");
        check("-schema replication (factor=3) keyspace=a", "-schema replication(factor=3) keyspace=a");
    }

    #[test]
    fn parameters_belong_to_what_precedes_them() {
        let words: Vec<String> =
            ["WRITE", "n=1 cl=ONE", "-Rate", "threads=4 limit=5/s"].map(str::to_owned).into();
        let mut arguments = Arguments::new(&words).unwrap();
        assert_eq!(arguments.take(&["insert", "write"]).unwrap(), ["n=1", "cl=ONE"]);
        assert_eq!(arguments.take(&["-rate"]).unwrap(), ["threads=4", "limit=5/s"]);
        assert!(arguments.is_empty());
        let twice: Vec<String> = ["write", "-rate", "-rate"].map(str::to_owned).into();
        assert!(
            Arguments::new(&twice).unwrap_err().to_string().starts_with("-rate is defined multiple times.")
        );
    }
}
