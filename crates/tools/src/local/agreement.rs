//! Whether all nodes agree: each answers, names all the others, and shows one version of the schema.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::watch::{Answer, View};

/// Returns a sentence for each thing that keeps `nodes` from agreeing; none once they agree.
pub(super) fn missing(nodes: &[(usize, IpAddr)], answers: &BTreeMap<usize, Answer>) -> Vec<String> {
    let mut missing = Vec::new();
    let mut views = Vec::new();
    for (number, _) in nodes {
        match answers.get(number) {
            Some(Ok(view)) => views.push((*number, view)),
            _ => missing.push(format!("node {number} does not answer yet")),
        }
    }
    for (number, view) in &views {
        let unseen = unseen(view, nodes);
        if !unseen.is_empty() {
            missing.push(format!("node {number} does not see {} yet", list("node", &unseen)));
        }
    }
    // Versions are compared only once everyone is seen: before that they differ for that reason.
    if missing.is_empty()
        && let Some((first, expected)) = views.first()
    {
        let others: Vec<usize> = views
            .iter()
            .filter(|(_, view)| view.schema != expected.schema)
            .map(|(number, _)| *number)
            .collect();
        if !others.is_empty() {
            let verb = if others.len() == 1 { "shows" } else { "show" };
            missing.push(format!("{} {verb} another schema than node {first}", list("node", &others)));
        }
    }
    missing
}

/// The nodes that a view does not name.
pub(super) fn unseen(view: &View, nodes: &[(usize, IpAddr)]) -> Vec<usize> {
    nodes.iter().filter(|(_, address)| !view.named.contains(address)).map(|(number, _)| *number).collect()
}

/// `node 2`, or `nodes 2, 3`.
pub(super) fn list(noun: &str, numbers: &[usize]) -> String {
    let plural = if numbers.len() == 1 { "" } else { "s" };
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("{noun}{plural} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, number).into()
    }

    /// `answers`: for each node the nodes that it names and its schema's version, or nothing.
    fn check(answers: &[Option<(&[u8], u8)>], expected: &[&str]) {
        let nodes: Vec<_> = (1..=answers.len()).map(|n| (n, address(n as u8))).collect();
        let answers = answers.iter().enumerate().filter_map(|(index, answer)| {
            let (named, schema) = (*answer)?;
            let named = named.iter().map(|number| address(*number)).collect();
            Some((index + 1, Ok(View { named, schema: [schema; 16] })))
        });
        assert_eq!(missing(&nodes, &answers.collect()), expected);
    }

    #[test]
    fn what_is_missing_is_said_until_nothing_is() {
        check(&[Some((&[1], 0))], &[]);
        check(&[None], &["node 1 does not answer yet"]);
        check(&[Some((&[1, 2, 3], 0)), Some((&[1, 2, 3], 0)), Some((&[1, 2, 3], 0))], &[]);
        check(
            &[Some((&[1], 0)), Some((&[1, 2], 5)), None],
            &[
                "node 3 does not answer yet",
                "node 1 does not see nodes 2, 3 yet",
                "node 2 does not see node 3 yet",
            ],
        );
        check(&[Some((&[1, 2], 0)), Some((&[1, 2], 1))], &["node 2 shows another schema than node 1"]);
        let all: &[u8] = &[1, 2, 3];
        check(
            &[Some((all, 0)), Some((all, 1)), Some((all, 2))],
            &["nodes 2, 3 show another schema than node 1"],
        );
        // Nodes of an earlier, larger cluster are no obstacle.
        check(&[Some((&[1, 9], 0))], &[]);
    }

    #[test]
    fn an_error_is_no_answer() {
        let answers = BTreeMap::from([(1, Err("refused".to_owned()))]);
        assert_eq!(missing(&[(1, address(1))], &answers), ["node 1 does not answer yet"]);
    }
}
