//! Histories that are known to be right or wrong.

use super::{Condition, Registers};

/// Null, 1, 2; one after the other.
fn chain() -> Registers {
    let mut registers = Registers::default();
    for (old, time) in [(None, 1), (Some(1), 3)] {
        let (number, _) = registers.begin(0, old, time);
        registers.end(number, None, time + 1);
    }
    registers
}

fn check_wrong(registers: &Registers, word: &str) {
    let wrong = registers.check().expect_err("a contradiction");
    assert!(wrong.contains(word), "{wrong}");
}

#[test]
fn a_chain_is_right_and_a_stale_read_is_not() {
    let mut registers = chain();
    registers.read(0, Some(2), 5, 6);
    registers.read(1, None, 5, 6);
    assert_eq!(registers.check(), Ok(()));
    registers.read(0, Some(1), 7, 8);
    check_wrong(&registers, "7..8: read");
}

#[test]
fn reads_side_by_side_may_not_go_back() {
    let mut registers = chain();
    let (number, new) = registers.begin(0, Some(2), 5);
    registers.end(number, None, 20);
    registers.read(0, Some(2), 6, 7);
    registers.read(0, Some(new), 8, 10);
    registers.read(0, Some(2), 9, 12);
    assert_eq!(registers.check(), Ok(()));
    registers.read(0, Some(2), 11, 13);
    check_wrong(&registers, "no order");
}

#[test]
fn two_winners_are_wrong() {
    let mut registers = chain();
    let (number, _) = registers.begin(0, Some(1), 3);
    registers.end(number, None, 9);
    check_wrong(&registers, "no order");
}

#[test]
fn a_lost_update_is_wrong_though_its_loser_was_seen() {
    let mut registers = chain();
    let (number, new) = registers.begin(0, Some(1), 3);
    registers.end(number, Some(Some(2)), 5);
    assert_eq!(registers.check(), Ok(()));
    registers.read(0, Some(new), 6, 7);
    check_wrong(&registers, "nobody wrote");
}

#[test]
fn one_in_doubt_may_have_happened_or_not_and_what_nobody_wrote_may_not() {
    let mut registers = chain();
    let (_, new) = registers.begin(0, Some(2), 5);
    assert_eq!(registers.check(), Ok(()));
    registers.read(0, Some(2), 8, 9);
    registers.read(0, Some(new), 10, 11);
    assert_eq!(registers.check(), Ok(()), "it came late");
    registers.read(0, Some(2), 12, 13);
    check_wrong(&registers, "12..13: read");
    let mut registers = chain();
    registers.read(0, Some(99), 8, 9);
    check_wrong(&registers, "nobody wrote");
}

#[test]
fn one_in_doubt_happens_behind_its_begin_and_once() {
    let mut registers = chain();
    registers.read(0, Some(3), 5, 6);
    let (_, new) = registers.begin(0, Some(2), 7);
    assert_eq!(new, 3);
    check_wrong(&registers, "no order");
    // Twice: a deletion in doubt explains one absence, not two.
    let mut registers = chain();
    registers.erase(0, Condition::Exists, 5);
    registers.read(0, None, 6, 7);
    let (number, new) = registers.begin(0, None, 8);
    registers.end(number, None, 9);
    registers.read(0, Some(new), 10, 11);
    assert_eq!(registers.check(), Ok(()));
    registers.read(0, None, 12, 13);
    check_wrong(&registers, "12..13: read");
}

#[test]
fn what_was_answered_as_never_made_is_not_seen() {
    let mut registers = chain();
    let (number, new) = registers.begin(0, Some(2), 5);
    registers.never(number);
    assert_eq!(registers.check(), Ok(()));
    registers.read(0, Some(new), 6, 7);
    check_wrong(&registers, "nobody wrote");
}

#[test]
fn a_refusal_that_saw_what_was_expected_is_wrong() {
    let mut registers = chain();
    let (number, _) = registers.begin(0, Some(2), 5);
    registers.end(number, Some(Some(2)), 6);
    check_wrong(&registers, "refused");
    let mut registers = chain();
    let number = registers.erase(0, Condition::Exists, 5);
    registers.end(number, Some(Some(2)), 6);
    check_wrong(&registers, "refused");
}

#[test]
fn deletions_and_inserts_take_turns() {
    let mut registers = chain();
    let erased = registers.erase(0, Condition::Is(Some(2)), 5);
    registers.end(erased, None, 8);
    let (inserted, new) = registers.begin(0, None, 6);
    registers.end(inserted, None, 9);
    registers.read(0, None, 7, 9);
    registers.read(0, Some(new), 10, 11);
    assert_eq!(registers.check(), Ok(()));
    let (again, _) = registers.begin(0, None, 12);
    registers.end(again, None, 13);
    check_wrong(&registers, "12..13");
    assert_eq!(registers.counts(), [5, 0, 0]);
    assert_eq!(registers.load(0), (7, 0));
}

#[test]
fn many_in_doubt_at_once_are_searched_in_few_states() {
    let mut registers = chain();
    for time in 0..12 {
        let old = [Some(2), None][time as usize % 2];
        registers.begin(0, old, 5 + time);
        registers.erase(0, Condition::Exists, 5 + time);
    }
    for time in 0..40 {
        registers.read(0, Some(2), 20 + 2 * time, 21 + 2 * time);
    }
    registers.read(0, None, 101, 102);
    registers.read(0, Some(4), 103, 104);
    assert_eq!(registers.check(), Ok(()));
    registers.read(0, Some(2), 105, 106);
    check_wrong(&registers, "no order");
}
