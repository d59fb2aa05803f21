//! The model of a set: elements are inserted once and never removed, each into one partition.
//!
//! An element is known to be on some number of copies: those that acknowledged its write, or that a read
//! contacted which showed it (a read repairs what it contacted before it is answered). Invariant: a read of
//! `r` copies shows every element that was on more than `COPIES - r` of them when the read began.

use super::{COPIES, Fate};

#[derive(Debug, Clone, Copy)]
struct Element {
    partition: u32,
    fate: Fate,
    /// Copies that are known to have it.
    copies: usize,
    was_shown: bool,
}

/// All elements.
#[derive(Debug, Default)]
pub(super) struct Elements(Vec<Element>);

/// The elements that a read has to show.
#[derive(Debug)]
pub(super) struct Expected {
    elements: Vec<u32>,
    copies: usize,
}

impl Expected {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.elements.len()
    }
}

impl Elements {
    /// An insert begins; the number of the element.
    pub(super) fn begin(&mut self, partition: u32) -> u32 {
        self.0.push(Element { partition, fate: Fate::Doubt, copies: 0, was_shown: false });
        self.0.len() as u32 - 1
    }

    /// Its answer; `copies` acknowledged it.
    ///
    /// # Errors
    /// An element that was refused had been shown.
    pub(super) fn end(&mut self, element: u32, fate: Fate, copies: usize) -> Result<(), String> {
        let known = &mut self.0[element as usize];
        known.fate = fate;
        match fate {
            Fate::Done => known.copies = known.copies.max(copies),
            Fate::Refused if known.was_shown => {
                return Err(format!("element {element} was shown, and then its insert was refused"));
            }
            Fate::Refused | Fate::Doubt => {}
        }
        Ok(())
    }

    /// A read of the elements that `covers` says of their partitions and numbers, by `copies`, begins.
    pub(super) fn expect(&self, copies: usize, covers: impl Fn(u32, u32) -> bool) -> Expected {
        let all = (0..).zip(&self.0);
        let due =
            all.filter(|(at, element)| element.copies + copies > COPIES && covers(element.partition, *at));
        Expected { elements: due.map(|(at, _)| at).collect(), copies }
    }

    /// How many inserts have begun.
    pub(super) fn begun(&self) -> usize {
        self.0.len()
    }

    /// Checks the pairs of partition and element that a read showed.
    ///
    /// # Errors
    /// The contradiction.
    pub(super) fn check(&mut self, expected: &Expected, shown: &[(u32, u32)]) -> Result<(), String> {
        let mut sorted: Vec<u32> = shown.iter().map(|(_, element)| *element).collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("element {} was shown twice", twice[0]));
        }
        for element in &expected.elements {
            if sorted.binary_search(element).is_err() {
                let known = self.0[*element as usize];
                return Err(format!("element {element} is missing: {known:?}"));
            }
        }
        for (partition, element) in shown {
            let Some(known) = self.0.get_mut(*element as usize) else {
                return Err(format!("nobody inserted element {element}"));
            };
            if known.partition != *partition {
                return Err(format!("element {element} was shown in partition {partition}: {known:?}"));
            }
            if known.fate == Fate::Refused {
                return Err(format!("element {element} was refused, and is shown: {known:?}"));
            }
            known.was_shown = true;
            known.copies = known.copies.max(expected.copies);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_missing(elements: &mut Elements, partition: u32, copies: usize) -> bool {
        let expected = elements.expect(copies, |of, _| of == partition);
        elements.check(&expected, &[]).is_err()
    }

    #[test]
    fn an_element_must_be_shown_where_its_copies_and_those_of_the_read_meet() {
        let mut elements = Elements::default();
        let element = elements.begin(4);
        assert!(!is_missing(&mut elements, 4, COPIES), "nothing was acknowledged");
        elements.end(element, Fate::Done, 1).expect("an end");
        assert!(!is_missing(&mut elements, 4, 2) && is_missing(&mut elements, 4, 3));
        let expected = elements.expect(2, |_, _| true);
        elements.check(&expected, &[(4, element)]).expect("it is there");
        assert!(is_missing(&mut elements, 4, 2), "a read of two left it on two copies");
        assert!(!is_missing(&mut elements, 5, 3), "another partition");
    }

    #[test]
    fn what_was_refused_or_never_inserted_or_elsewhere_is_not_shown() {
        let mut elements = Elements::default();
        let (refused, doubtful) = (elements.begin(1), elements.begin(2));
        elements.end(refused, Fate::Refused, 0).expect("it was not shown");
        for (shown, word) in [
            (&[(1, refused)][..], "refused"),
            (&[(1, doubtful)], "partition"),
            (&[(1, 77)], "nobody"),
            (&[(2, doubtful), (2, doubtful)], "twice"),
        ] {
            let expected = elements.expect(2, |_, _| true);
            let error = elements.check(&expected, shown).expect_err("a contradiction");
            assert!(error.contains(word), "{error}");
        }
        assert!(elements.end(doubtful, Fate::Refused, 0).is_ok());
        let late = elements.begin(3);
        let expected = elements.expect(2, |_, _| true);
        elements.check(&expected, &[(3, late)]).expect("in doubt");
        assert!(elements.end(late, Fate::Refused, 0).is_err());
    }
}
