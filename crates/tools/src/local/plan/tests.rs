//! Which nodes a directory gets, and how they are run.

use super::*;

fn options(nodes: Option<u16>, dcs: &[&str]) -> StartOptions {
    let dcs = (!dcs.is_empty()).then(|| dcs.iter().map(|name| (*name).to_owned()).collect());
    StartOptions { nodes, dcs, ..StartOptions::default() }
}

fn description(first: Ipv4Addr, centers: &[Option<&str>]) -> Description {
    let data_centers = centers.iter().map(|center| center.map(str::to_owned)).collect();
    Description { first, data_centers }
}

fn check_described(options: &StartOptions, known: Option<&Description>, expected: Result<Description, &str>) {
    match (describe(Path::new("d"), options, known), expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{options:?}"),
        (Err(error), Err(part)) => {
            let text = error.to_string();
            assert!(text.contains(part), "{options:?}: '{text}' instead of '{part}'");
        }
        (found, expected) => panic!("{options:?}: {found:?} instead of {expected:?}"),
    }
}

#[test]
fn a_new_directory_gets_the_nodes_asked_for() {
    check_described(&options(None, &[]), None, Ok(description(FIRST, &[None; 3])));
    check_described(&options(Some(1), &[]), None, Ok(description(FIRST, &[None])));
    let two = [Some("a"), Some("b")];
    check_described(&options(None, &["a", "b"]), None, Ok(description(FIRST, &two)));
    check_described(&options(Some(2), &["a", "b"]), None, Ok(description(FIRST, &two)));
    check_described(&options(Some(3), &["a", "b"]), None, Err("contradict"));
    let late = StartOptions { first: Some(Ipv4Addr::new(127, 0, 0, 253)), ..options(Some(2), &[]) };
    check_described(&late, None, Ok(description(Ipv4Addr::new(127, 0, 0, 253), &[None; 2])));
    let beyond = StartOptions { nodes: Some(3), ..late };
    check_described(&beyond, None, Err("not of one network"));
}

#[test]
fn a_directory_keeps_its_nodes_and_may_get_more() {
    let one = description(FIRST, &[None]);
    check_described(&options(None, &[]), Some(&one), Ok(one.clone()));
    check_described(&options(Some(3), &[]), Some(&one), Ok(description(FIRST, &[None; 3])));
    let five = description(FIRST, &[None; 5]);
    check_described(&options(None, &[]), Some(&five), Ok(five.clone()));
    check_described(
        &options(Some(3), &[]),
        Some(&five),
        Err("d was made with 5 nodes from 127.0.0.1 on; 3 were"),
    );
    let elsewhere = StartOptions { first: Some(Ipv4Addr::new(127, 0, 0, 9)), ..options(None, &[]) };
    check_described(&elsewhere, Some(&five), Err("use --first 127.0.0.1"));
}

#[test]
fn nodes_stay_in_their_data_centers() {
    let known = description(FIRST, &[Some("a"), Some("a"), Some("b")]);
    check_described(&options(None, &[]), Some(&known), Ok(known.clone()));
    check_described(&options(Some(4), &[]), Some(&known), Err("say with --dcs where the new nodes are"));
    let more = description(FIRST, &[Some("a"), Some("a"), Some("b"), Some("c")]);
    check_described(&options(None, &["a", "a", "b", "c"]), Some(&known), Ok(more));
    check_described(&options(None, &["a", "b", "b"]), Some(&known), Err("node 2 is in data center a, not b"));
    let plain = description(FIRST, &[None]);
    check_described(
        &options(None, &["a"]),
        Some(&plain),
        Err("node 1 is in data center the default one, not a"),
    );
}

fn words(node: &Node) -> String {
    let words: Vec<_> = node.arguments.iter().map(|word| word.to_str().unwrap()).collect();
    words.join(" ")
}

#[test]
fn each_node_has_its_address_and_folder_and_the_first_is_the_seed() {
    let known = description(Ipv4Addr::new(127, 0, 3, 1), &[Some("a"), None]);
    let found = nodes(Path::new("d"), &options(None, &[]), &known, 1 << 30).unwrap();
    let common = "--smp 1 --memory 1073741824 --overprovisioned";
    let expected = [
        format!("server --workdir d/node-1 --listen 127.0.3.1 --seeds 127.0.3.1 --dc a {common}"),
        format!("server --workdir d/node-2 --listen 127.0.3.2 --seeds 127.0.3.1 {common}"),
    ];
    assert_eq!(found.iter().map(words).collect::<Vec<_>>(), expected);
    assert_eq!((found[1].number, found[1].name()), (2, "node-2".to_owned()));
    assert_eq!(found[1].ports, [9042, 7000, 19042]);
}

#[test]
fn options_of_the_user_take_the_place_of_defaults() {
    let known = description(FIRST, &[None]);
    let check = |line: &str, start: &StartOptions, expected: Result<&str, &str>| {
        let server = line.split_whitespace().map(str::to_owned).collect();
        let found = nodes(Path::new("d"), &StartOptions { server, ..start.clone() }, &known, 64);
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                let words = words(&found[0]);
                assert_eq!(words.split("--seeds 127.0.0.1 ").nth(1), Some(expected), "{line}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{line}: {error}"),
            (found, expected) => panic!("{line}: {found:?} instead of {expected:?}"),
        }
    };
    let plain = StartOptions::default();
    check("", &plain, Ok("--smp 1 --memory 64 --overprovisioned"));
    check("--smp=2", &plain, Ok("--memory 64 --overprovisioned --smp=2"));
    check("--memory 1G --overprovisioned", &plain, Ok("--smp 1 --memory 1G --overprovisioned"));
    let more = StartOptions {
        smp: Some(2),
        memory: Some("1G".to_owned()),
        driver: Some("poll".to_owned()),
        ..plain.clone()
    };
    check("", &more, Ok("--smp 2 --memory 1G --driver poll --overprovisioned"));
    check("--rack r", &more, Ok("--smp 2 --memory 1G --driver poll --overprovisioned --rack r"));
    for own in ["--listen 127.0.0.9", "--seeds=127.0.0.9", "--workdir x", "--port 9043", "--found", "--dc x"]
    {
        check(own, &plain, Err("behind --"));
    }
    let shard_aware = vec!["--shard-aware-port".to_owned(), "0".to_owned()];
    let without = StartOptions { server: shard_aware, ..plain };
    assert_eq!(nodes(Path::new("d"), &without, &known, 64).unwrap()[0].ports, [9042, 7000]);
}
