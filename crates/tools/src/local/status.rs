//! The table of `ceto local status`.

use std::net::IpAddr;
use std::time::Duration;

use super::agreement::list;
use super::watch::Answer;
use crate::ctl::text::Table;

/// A node, for its line in the table.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) number: usize,
    pub(super) address: IpAddr,
    /// Of its process, if it runs.
    pub(super) pid: Option<u32>,
    /// How it is, in a word or two.
    pub(super) state: String,
    /// How long it has run.
    pub(super) uptime: Option<Duration>,
    /// Its view of the cluster; `None` if it was not asked.
    pub(super) answer: Option<&'a Answer>,
}

/// All nodes as a table, a line each.
pub(super) fn table(lines: &[Line<'_>]) -> String {
    let mut table = Table::new("  ");
    table.row(["NODE", "ADDRESS", "PID", "STATE", "UPTIME", "SCHEMA", "OTHERS"]);
    for line in lines {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let view = line.answer.and_then(|answer| answer.as_ref().ok());
        table.row([
            line.number.to_string(),
            line.address.to_string(),
            or_none(line.pid.map(|pid| pid.to_string())),
            line.state.clone(),
            or_none(line.uptime.map(duration)),
            or_none(view.map(|view| view.schema[..4].iter().map(|byte| format!("{byte:02x}")).collect())),
            others(line, lines),
        ]);
    }
    let text = table.print();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A node's word about the others: which have joined the cluster, and which of those do not answer now.
fn others(line: &Line<'_>, lines: &[Line<'_>]) -> String {
    let view = match line.answer {
        None => return "-".to_owned(),
        Some(Err(reason)) => return format!("does not answer: {reason}"),
        Some(Ok(view)) => view,
    };
    let (mut up, mut down, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for other in lines.iter().filter(|other| other.number != line.number) {
        let kind = match (view.named.contains(&other.address), other.answer) {
            (false, _) => &mut unknown,
            (true, Some(Ok(_))) => &mut up,
            (true, _) => &mut down,
        };
        kind.push(other.number);
    }
    let kinds = [("up", up), ("down", down), ("not joined", unknown)];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(_, numbers)| !numbers.is_empty())
        .map(|(word, numbers)| format!("{} {word}", list("node", numbers)))
        .collect();
    if parts.is_empty() { "alone".to_owned() } else { parts.join("; ") }
}

/// A duration in its two largest units.
fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::watch::View;
    use super::*;

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, number).into()
    }

    fn view(named: &[u8]) -> Answer {
        Ok(View { named: named.iter().map(|number| address(*number)).collect(), schema: [0xAB; 16] })
    }

    #[test]
    fn each_node_has_a_line_with_its_word_about_the_others() {
        let (first, second) = (view(&[1, 2]), Err("no answer within 2 s".to_owned()));
        let line = |number: usize, answer| Line {
            number,
            address: address(number as u8),
            pid: Some(100 + number as u32),
            state: "runs".to_owned(),
            uptime: Some(Duration::from_secs(61)),
            answer: Some(answer),
        };
        let ended =
            Line { pid: None, state: "killed".to_owned(), uptime: None, answer: None, ..line(3, &first) };
        let expected = "\
NODE  ADDRESS    PID  STATE   UPTIME  SCHEMA    OTHERS
1     127.0.0.1  101  runs    1m 1s   abababab  node 2 down; node 3 not joined
2     127.0.0.2  102  runs    1m 1s   -         does not answer: no answer within 2 s
3     127.0.0.3  -    killed  -       -         -
";
        assert_eq!(table(&[line(1, &first), line(2, &second), ended]), expected);
        let all = view(&[1, 2, 3]);
        let lines = [line(1, &all), line(2, &all), line(3, &all)];
        assert!(table(&lines).contains("nodes 2, 3 up\n"), "{}", table(&lines));
        assert!(table(&[line(1, &first)]).contains("alone\n"));
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m 0s"), (3599, "59m 59s"), (90_061, "25h 1m")]
        {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
