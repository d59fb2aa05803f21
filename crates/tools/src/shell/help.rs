//! The texts of HELP.

use super::table;

/// The commands, each with its forms and what they do.
const TOPICS: [(&str, &str); 17] = [
    (
        "CAPTURE",
        "CAPTURE 'file'\n  appends results to a file instead of showing them.\nCAPTURE OFF\n  shows them again.\nCAPTURE\n  tells where they go.",
    ),
    ("CLEAR", "CLEAR, CLS\n  clears the terminal."),
    (
        "CONSISTENCY",
        "CONSISTENCY [level]\n  tells or sets the consistency level of statements: ANY, ONE, TWO, THREE, QUORUM, ALL, LOCAL_ONE,\n  LOCAL_QUORUM, EACH_QUORUM, and for reads SERIAL and LOCAL_SERIAL. It is ONE at first.",
    ),
    (
        "COPY",
        "COPY table [(columns)] TO 'file'|STDOUT [WITH option = value AND ...]\nCOPY table [(columns)] FROM 'file'|STDIN [WITH option = value AND ...]\n  writes rows as lines of CSV, and reads them. In both directions: HEADER, DELIMITER, NULL, QUOTE,\n  ESCAPE, BOOLSTYLE, ENCODING, MAXATTEMPTS. FROM: CHUNKSIZE, INGESTRATE, MINBATCHSIZE, MAXBATCHSIZE,\n  MAXERRORS, MAXPARSEERRORS, MAXINSERTERRORS, MAXROWS, SKIPROWS, SKIPCOLS, ERRFILE, TTL.\n  TO: PAGESIZE, MAXREQUESTS, BEGINTOKEN, ENDTOKEN. docs/shell.md tells what they do.\n  Lines on STDIN end with \\. on a line by itself.",
    ),
    (
        "DESCRIBE",
        "DESCRIBE CLUSTER | KEYSPACES | TABLES | TYPES | FUNCTIONS | AGGREGATES\nDESCRIBE [FULL] SCHEMA\nDESCRIBE [ONLY] KEYSPACE [name]\nDESCRIBE TABLE | TYPE | FUNCTION | AGGREGATE | INDEX [keyspace.]name\nDESCRIBE [keyspace.]name\n  shows names, or the statements that make things. DESC is short for it.",
    ),
    ("EXIT", "EXIT, QUIT\n  ends the shell, as Ctrl-D does."),
    ("EXPAND", "EXPAND [ON|OFF]\n  shows each row as a list of its columns."),
    ("HELP", "HELP [command]\n  lists the commands, or explains one."),
    ("HISTORY", "HISTORY [count]\n  shows the last statements, 50 without a count."),
    ("LOGIN", "LOGIN user 'password'\n  goes on as another user, where the server has users."),
    (
        "PAGING",
        "PAGING [ON|OFF|rows]\n  tells, switches or sets the pages of results. They have 100 rows at first.",
    ),
    (
        "SERIAL",
        "SERIAL CONSISTENCY [SERIAL|LOCAL_SERIAL]\n  tells or sets the level of the agreement in conditional writes.",
    ),
    ("SHOW", "SHOW VERSION | HOST\n  tells what is connected.\nSHOW SESSION id\n  shows a trace again."),
    ("SOURCE", "SOURCE 'file'\n  runs the statements of a file. One that fails does not end it."),
    ("TIMING", "TIMING [ON|OFF]\n  tells after each statement how many milliseconds it took."),
    ("TRACING", "TRACING [ON|OFF]\n  shows after each statement what each node did for it."),
    ("USE", "USE keyspace\n  sets the keyspace of names without one."),
];

/// The explanations of these commands, or the list of all.
pub(super) fn texts(topics: &[String]) -> Vec<String> {
    if topics.is_empty() {
        let names: Vec<String> = TOPICS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut lines = vec![
            String::new(),
            "Commands of the shell; HELP COMMAND explains one:".to_owned(),
            String::new(),
        ];
        lines.extend(table::columns(&names));
        let about = "Everything else goes to the server: statements of CQL, which end with a semicolon and may have several\n\
                     lines. TAB completes commands, keywords, keyspaces, tables and columns. Ctrl-C drops a statement.";
        lines.extend([String::new(), about.to_owned(), String::new()]);
        return lines;
    }
    let explain = |topic: &String| {
        let wanted = match topic.to_ascii_uppercase().as_str() {
            "CLS" => "CLEAR".to_owned(),
            "DESC" => "DESCRIBE".to_owned(),
            "QUIT" => "EXIT".to_owned(),
            "?" => "HELP".to_owned(),
            other => other.to_owned(),
        };
        let found = TOPICS.iter().find(|(name, _)| *name == wanted);
        found.map_or_else(
            || {
                format!(
                    "No help on {topic}: HELP lists the commands. Statements of CQL are those of Cassandra 5"
                )
            },
            |(_, text)| format!("\n{text}\n"),
        )
    };
    topics.iter().map(explain).collect()
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    #[test]
    fn each_command_is_explained() {
        for name in command::NAMES {
            let text = texts(&[name.to_lowercase()]).remove(0);
            assert!(!text.contains("No help"), "{name}");
        }
        assert!(texts(&["nothing".to_owned()])[0].contains("No help on nothing"));
        assert!(texts(&[]).iter().any(|line| line.contains("CONSISTENCY")));
    }
}
