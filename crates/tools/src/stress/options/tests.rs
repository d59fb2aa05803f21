//! Command lines that cassandra-stress accepts, and those it refuses.

use super::*;

fn groups() -> Vec<Group> {
    let threads = simple("threads=", DIGITS, None, "run this many clients concurrently").required();
    let throttle = simple("throttle=", ANYTHING, Some("0/s"), "throttle").also(&["limit="]);
    vec![
        Group::new(vec![flag("auto", "stop increasing")]),
        Group::new(vec![threads, throttle, distribution("dist=", Some("fixed(1)"), "of what")]),
    ]
}

fn select_words(words: &str) -> Result<Option<Group>, String> {
    let parameters: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    select(&parameters, groups()).map_err(|error| error.to_string())
}

#[test]
fn the_first_group_that_takes_all_counts() {
    let group = select_words("THREADS=4 limit=5/s").unwrap().unwrap();
    assert_eq!((group.value("threads="), group.value("throttle=")), (Some("4"), Some("5/s")));
    assert!(select_words("auto").unwrap().unwrap().is_set("auto"));
    assert!(select_words("auto threads=4").unwrap().is_none());
    assert!(select_words("limit=5/s").unwrap().is_none(), "threads= is required");
}

#[test]
fn what_is_wrong_is_said_as_the_original_says_it() {
    let check = |words: &str, expected: &str| assert_eq!(select_words(words).unwrap_err(), expected);
    check("thread=4", "Invalid parameter thread=4");
    check("threads=x", "Invalid value x; must match pattern [0-9]+");
    check("threads=1 threads=2", "Suboption threads= has been specified more than once");
}

#[test]
fn parentheses_hold_suboptions_and_pairs() {
    let declared = || {
        let inner = vec![simple("factor=", DIGITS, Some("1"), "The number of replicas")];
        vec![Group::new(vec![multi("replication", inner, true, "")])]
    };
    let group = select(&["Replication(factor=3,dc1=2)".to_owned()], declared()).unwrap().unwrap();
    let (inner, extra) = group.multi("replication");
    assert_eq!(inner.value("factor="), Some("3"));
    assert_eq!(extra, [("dc1".to_owned(), "2".to_owned())]);
    for (wrong, expected) in [
        ("replication(factor=1,,x=1)", "Invalid replication specification: replication(factor=1,,x=1)"),
        ("replication(x)", "Invalid replication specification: x"),
        ("replication(x=1,x=2)", "x set twice"),
    ] {
        let error = select(&[wrong.to_owned()], declared()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{wrong}");
    }
}

#[test]
fn usage_shows_every_way_and_every_suboption_once() {
    let text = usage("-rate", &groups());
    assert!(
        text.starts_with(
            "\nUsage: -rate [auto]\n OR \nUsage: -rate threads=? [throttle=?] [dist=DIST(?)]\n\n"
        )
    );
    assert!(text.contains("  throttle=? (default=0/s)                 throttle\n"));
    assert!(text.contains("\n      UNIFORM(min..max)                    A uniform distribution over"));
}
