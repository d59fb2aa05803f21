//! Output: the supervisor's own lines on standard output, those of nodes and mistakes on standard error.
//!
//! Each line is one write, so that lines of several threads do not mix. A reader that has gone is ignored:
//! the nodes are not ended by it.

use std::io::{IsTerminal, Write};

/// Colours of names, one node after another: numbers of ECMA-48 "select graphic rendition".
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// Prints a line of the supervisor.
pub(super) fn tell(line: &str) {
    print(&format!("ceto local: {line}\n"));
}

/// Prints text to standard output.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a mistake.
pub(super) fn complain(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("ceto local: {line}\n").as_bytes());
}

/// The name in front of a node's lines.
#[derive(Debug, Clone)]
pub(super) struct Label {
    prefix: String,
}

impl Label {
    /// The label of a node; coloured if standard error is a terminal and `NO_COLOR` is not set.
    pub(super) fn new(name: &str, number: usize) -> Self {
        let is_coloured = std::io::stderr().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { prefix: prefix(name, number, is_coloured) }
    }

    /// Prints a line of the node, with its line end if it has one.
    pub(super) fn print(&self, line: &[u8]) {
        let mut text = self.prefix.clone().into_bytes();
        text.extend_from_slice(line.trim_ascii_end());
        text.push(b'\n');
        let _ = std::io::stderr().lock().write_all(&text);
    }
}

fn prefix(name: &str, number: usize, is_coloured: bool) -> String {
    if !is_coloured {
        return format!("{name} | ");
    }
    format!("\x1b[{}m{name} |\x1b[0m ", COLOURS[(number.max(1) - 1) % COLOURS.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_coloured_only_where_that_was_asked_for() {
        assert_eq!(prefix("node-2", 2, false), "node-2 | ");
        assert_eq!(prefix("node-2", 2, true), "\x1b[33mnode-2 |\x1b[0m ");
        assert_eq!(prefix("node-7", 7, true), "\x1b[36mnode-7 |\x1b[0m ");
    }
}
