//! The command line of `ceto local`: how a cluster is started, and the verbs for one that runs.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::control::Request;
use super::{LocalError, NODES_MAX};

/// `ceto local`.
#[derive(Debug, Args)]
#[command(
    after_help = "Words behind -- go to every node: `ceto local --nodes 1 -- --blocked-reactor-notify-ms 50`."
)]
pub struct LocalCommand {
    /// Directory of the nodes, a folder each
    #[arg(long = "dir", value_name = "DIR", default_value = "ceto-local", global = true)]
    pub(super) directory: PathBuf,
    #[command(flatten)]
    pub(super) start: StartOptions,
    #[command(subcommand)]
    pub(super) verb: Option<Verb>,
}

/// How a cluster is started.
#[derive(Debug, Clone, Args, Default, PartialEq, Eq)]
pub(super) struct StartOptions {
    /// Number of nodes [default: those that the directory has, 3 in a new one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=NODES_MAX as i64))]
    pub(super) nodes: Option<u16>,
    /// Data centers with their numbers of nodes, such as a:2,b:1 [default: all nodes in one]
    #[arg(long, value_name = "NAME:N,...", value_parser = placement)]
    pub(super) dcs: Option<Placement>,
    /// Address of the first node; the others have those that follow [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) first: Option<Ipv4Addr>,
    /// Shards of each node [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) smp: Option<u16>,
    /// Memory of each node, such as 512M [default: half of the machine's, divided by the nodes]
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<String>,
    /// How nodes talk to the kernel [default: auto]
    #[arg(long, value_name = "DRIVER", value_parser = ["auto", "uring", "poll"])]
    pub(super) driver: Option<String>,
    /// Options of `ceto server` for every node
    #[arg(last = true, value_name = "OPTIONS OF EACH NODE")]
    pub(super) server: Vec<String>,
}

/// Requests to a running cluster.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show the nodes and what each says of the others
    Status,
    /// End a node at once, as a crash does (SIGKILL)
    Kill(NodeArgument),
    /// Drain and end a node, and wait until it has ended (SIGTERM)
    Stop(NodeArgument),
    /// Start a node that was ended, with the arguments it had, and wait until it answers
    Start(NodeArgument),
    /// Hold a node as it is: it keeps its connections and answers nothing (SIGSTOP)
    Pause(NodeArgument),
    /// Let a paused node go on (SIGCONT)
    Resume(NodeArgument),
    /// Becomes a node that ends with its supervisor.
    #[command(hide = true)]
    RunNode {
        /// The supervisor.
        #[arg(long)]
        parent: i32,
        /// The command line of the node.
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
}

/// The node that a verb is about.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct NodeArgument {
    /// Number of the node, 1 for the first
    #[arg(value_name = "NODE")]
    pub(super) node: usize,
}

impl Verb {
    /// The request to the supervisor.
    pub(super) fn request(&self) -> Request {
        match self {
            Self::Kill(argument) => Request::Kill { node: argument.node },
            Self::Stop(argument) => Request::Stop { node: argument.node },
            Self::Start(argument) => Request::Start { node: argument.node },
            Self::Pause(argument) => Request::Pause { node: argument.node },
            Self::Resume(argument) => Request::Resume { node: argument.node },
            // A node is run by its supervisor and asks nothing.
            Self::Status | Self::RunNode { .. } => Request::Status,
        }
    }
}

impl StartOptions {
    /// Refuses options of a start together with a verb, which would do nothing.
    pub(super) fn refuse_beside_a_verb(&self) -> Result<(), LocalError> {
        if *self == Self::default() {
            return Ok(());
        }
        Err(LocalError::Usage(
            "a verb takes --dir and the number of a node: other options are for the start of the nodes"
                .to_owned(),
        ))
    }
}

/// The data center of each node, in the order of the nodes.
pub(super) type Placement = Vec<String>;

/// Reads data centers such as `a:2,b:1`.
fn placement(text: &str) -> Result<Placement, String> {
    let mut nodes = Vec::new();
    for part in text.split(',') {
        let wrong = || format!("expected NAME:N such as a:2, found '{part}'");
        let (name, count) = part.rsplit_once(':').ok_or_else(wrong)?;
        let count: usize = count.trim().parse().map_err(|_| wrong())?;
        let name = name.trim();
        if name.is_empty() || count == 0 {
            return Err(wrong());
        }
        if count > NODES_MAX - nodes.len() {
            return Err(format!("more than {NODES_MAX} nodes"));
        }
        if nodes.iter().any(|earlier| earlier == name) {
            return Err(format!("'{name}' is named twice"));
        }
        nodes.extend(std::iter::repeat_n(name.to_owned(), count));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        command: LocalCommand,
    }

    fn parse(line: &str) -> Result<LocalCommand, String> {
        let words = std::iter::once("local").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.command).map_err(|error| error.to_string())
    }

    #[test]
    fn data_centers_are_names_with_numbers_of_nodes() {
        let check = |text: &str, expected: Result<&[&str], &str>| match (placement(text), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{text}: {found}"),
            (found, expected) => panic!("{text}: {found:?} instead of {expected:?}"),
        };
        check("a:2,b:1", Ok(&["a", "a", "b"]));
        check("a:1", Ok(&["a"]));
        check(" a:1, b:1", Ok(&["a", "b"]));
        check("a", Err("found 'a'"));
        check("a:0", Err("found 'a:0'"));
        check("a:-1", Err("found 'a:-1'"));
        check(":2", Err("found ':2'"));
        check("a:2,,b:1", Err("found ''"));
        check("a:1,b:1,a:1", Err("'a' is named twice"));
        check("a:16", Ok(&["a"; 16]));
        check("a:16,b:1", Err("more than 16"));
        check("a:99999999999999999999", Err("found 'a:9"));
    }

    #[test]
    fn options_of_the_start_and_of_the_nodes_are_kept_apart() {
        let command =
            parse("--nodes 3 --dir d --memory 512M --driver poll -- --smp 2 --developer-mode").unwrap();
        assert!(command.verb.is_none());
        assert_eq!(command.directory, PathBuf::from("d"));
        assert_eq!(command.start.nodes, Some(3));
        assert_eq!(command.start.driver.as_deref(), Some("poll"));
        assert_eq!(command.start.server, ["--smp", "2", "--developer-mode"]);
        assert_eq!(parse("").unwrap().directory, PathBuf::from("ceto-local"));
        for wrong in [
            "--nodes 0",
            "--nodes 17",
            "--first here",
            "--driver fast",
            "--smp 0",
            "kill",
            "kill x",
            "halt 1",
        ] {
            parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_verb_takes_the_directory_on_either_side_and_no_option_of_a_start() {
        for line in ["--dir d kill 2", "kill 2 --dir d", "kill --dir d 2"] {
            let command = parse(line).unwrap();
            assert_eq!(command.directory, PathBuf::from("d"), "{line}");
            assert_eq!(command.verb.unwrap().request(), Request::Kill { node: 2 }, "{line}");
            command.start.refuse_beside_a_verb().unwrap();
        }
        let command = parse("--nodes 3 status").unwrap();
        assert!(command.verb.is_some());
        command.start.refuse_beside_a_verb().unwrap_err();
    }
}
