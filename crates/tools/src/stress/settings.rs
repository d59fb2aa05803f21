//! The contents of the command line, checked, with the defaults filled in.
//!
//! One file for each kind of option; each declares its suboptions once, for reading, for usage and for help.
//! The settings are printed as cassandra-stress prints them.

mod command;
mod data;
mod load;
mod output;
mod place;

use super::StressError;
use super::arguments::Arguments;
use super::options::{Group, select, usage};

pub(super) use command::{
    COMMANDS, Command, End, Predefined, Truncate, Work, help as command_help, print_distribution, print_help,
};
pub(super) use data::{Columns, Schema};
pub(super) use load::{Errors, Insert, Order, Population, Rate, Seeds, Threads, TokenRanges};
pub(super) use output::{Graph, Level, Log, Reporting};
use place::{Credentials, Jmx, Transport};
pub(super) use place::{Mode, Nodes, Ports};

/// The settings of a call.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) command: Command,
    pub(super) rate: Rate,
    pub(super) population: Population,
    pub(super) insert: Insert,
    pub(super) columns: Columns,
    pub(super) errors: Errors,
    pub(super) log: Log,
    pub(super) mode: Mode,
    pub(super) nodes: Nodes,
    pub(super) schema: Schema,
    transport: Transport,
    pub(super) ports: Ports,
    jmx: Jmx,
    pub(super) graph: Graph,
    pub(super) token_ranges: TokenRanges,
    credentials: Credentials,
    pub(super) reporting: Reporting,
}

type Groups = fn() -> Vec<Group>;

/// The options, with their help texts and suboptions.
const OPTIONS: [(&str, &str, Groups); 17] = [
    ("pop", "Population distribution and intra-partition visit order", load::population_groups),
    (
        "insert",
        "Insert specific options relating to various methods for batching and splitting partition updates",
        load::insert_groups,
    ),
    (
        "col",
        "Column details such as size and count distribution, data generator, names, comparator and if super columns \
         should be used",
        data::column_groups,
    ),
    ("rate", "Thread count, rate limit or automatic mode (default is auto)", load::rate_groups),
    ("mode", "CQL mode options", place::mode_groups),
    ("errors", "How to handle errors when encountered during stress", load::errors_groups),
    ("schema", "Replication settings, compression, compaction, etc.", data::schema_groups),
    ("node", "Nodes to connect to", place::node_groups),
    ("log", "Where to log progress to, and the interval at which to do it", output::log_groups),
    ("transport", "Custom transport factories", place::transport_groups),
    ("port", "The port to connect to cassandra nodes on", place::port_groups),
    ("jmx", "Username and password for JMX connection", place::jmx_groups),
    ("graph", "Graph recorded metrics", output::graph_groups),
    ("tokenrange", "Token range settings", load::token_range_groups),
    ("credentials-file", "Credentials file for CQL, JMX and transport", Vec::new),
    ("reporting", "Frequency of printing statistics and header for stress output", output::reporting_groups),
    ("sendto", "Specify a stress server to send this command to", Vec::new),
];

/// The group that takes all parameters; otherwise the usage of the option.
fn groups_or_help(
    name: &str,
    parameters: &[String],
    groups: Vec<Group>,
    shown: &[Group],
) -> Result<Group, StressError> {
    // No parameters is not a use of the option: the defaults of the way without required ones count.
    select(parameters, groups)?.ok_or_else(|| StressError::Help {
        text: usage(name, shown),
        message: format!("Invalid {name} options provided, see output for valid options"),
    })
}

impl Settings {
    /// Reads a command line; `read` returns the text of a file named there.
    ///
    /// # Errors
    /// [`StressError::Usage`], [`StressError::Help`] or [`StressError::Unsupported`].
    pub(super) fn parse(
        mut arguments: Arguments,
        read: &dyn Fn(&str) -> Result<String, StressError>,
    ) -> Result<Self, StressError> {
        let command = Command::take(&mut arguments)?;
        if arguments.take(&["-sendto", "-send-to"]).is_some() {
            let message = "-sendto: there is no stress server to send this command to; start one ceto stress on \
                           each machine instead";
            return Err(StressError::Unsupported(message.to_owned()));
        }
        let credentials = Credentials::take(&mut arguments, read)?;
        let mut settings = Self {
            rate: Rate::take(&mut arguments, &command)?,
            population: Population::take(&mut arguments, &command)?,
            insert: Insert::take(&mut arguments)?,
            columns: Columns::take(&mut arguments)?,
            errors: Errors::take(&mut arguments)?,
            log: Log::take(&mut arguments)?,
            mode: Mode::take(&mut arguments, &credentials)?,
            nodes: Nodes::take(&mut arguments)?,
            schema: Schema::take(&mut arguments, &command)?,
            transport: Transport::take(&mut arguments)?,
            ports: Ports::take(&mut arguments)?,
            jmx: Jmx::take(&mut arguments)?,
            graph: Graph::take(&mut arguments, &command)?,
            token_ranges: TokenRanges::take(&mut arguments)?,
            reporting: Reporting::take(&mut arguments)?,
            credentials,
            command,
        };
        // Options of older versions that have no effect any more.
        arguments.take(&["-sample"]);
        if !arguments.is_empty() {
            let mut message =
                "Error processing command line arguments. The following were ignored:".to_owned();
            for (name, parameters) in arguments.rest() {
                message.push('\n');
                message.push_str(name);
                for parameter in parameters {
                    message.push(' ');
                    message.push_str(parameter);
                }
            }
            return Err(StressError::Help { text: general_help(), message });
        }
        settings.columns.check(&settings.command)?;
        if let Some(file) = &settings.nodes.file {
            let text = read(file)?;
            let nodes = text.lines().map(str::trim).filter(|line| !line.is_empty());
            settings.nodes.list = nodes.map(str::to_owned).collect();
            if settings.nodes.list.is_empty() {
                return Err(StressError::Usage(format!("{file} names no node")));
            }
        }
        Ok(settings)
    }

    /// The settings as they are printed, without a profile's own.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut lines = vec!["******************** Stress Settings ********************".to_owned()];
        self.command.describe(&mut lines);
        self.rate.describe(&mut lines);
        self.population.describe(&mut lines);
        self.insert.describe(&mut lines);
        self.columns.describe(&mut lines);
        self.errors.describe(&mut lines);
        self.log.describe(&mut lines);
        self.mode.describe(&mut lines);
        self.nodes.describe(&mut lines);
        self.schema.describe(&mut lines);
        self.transport.describe(&mut lines);
        self.ports.describe(&mut lines);
        self.jmx.describe(&mut lines);
        self.graph.describe(&mut lines);
        self.token_ranges.describe(&mut lines);
        self.credentials.describe(&mut lines);
        self.reporting.describe(&mut lines);
        lines
    }
}

/// The list of commands and options.
pub(super) fn general_help() -> String {
    let mut text = "Usage:      cassandra-stress <command> [options]\n\
                    Help usage: cassandra-stress help <command>\n\n---Commands---\n"
        .to_owned();
    for (names, description) in COMMANDS {
        text.push_str(&format!("{:<20} : {description}\n", names[0]));
    }
    text.push_str("\n---Options---\n");
    for (name, description, _) in OPTIONS {
        text.push_str(&format!("-{name:<20} : {description}\n"));
    }
    text
}

/// Help for one command or option; `None` if there is no such thing.
pub(super) fn help_for(name: &str) -> Option<String> {
    let name = name.to_lowercase();
    if let Some((names, _)) = COMMANDS.iter().find(|(names, _)| names.contains(&&*name)) {
        return Some(match names[0] {
            "help" => help_of_help(),
            "print" => print_help(),
            "version" => String::new(),
            command => command_help(command),
        });
    }
    let option = name.strip_prefix('-')?;
    let (name, _, groups) = OPTIONS.iter().find(|(known, ..)| *known == option)?;
    Some(match *name {
        "sendto" => {
            "Usage: -sendto <host>\n\nSpecify a host running the stress server to send this stress command \
                     to\n"
                .to_owned()
        }
        "credentials-file" => "Usage: -credentials-file <file>\n".to_owned(),
        name => usage(&format!("-{name}"), &groups()),
    })
}

fn help_of_help() -> String {
    let mut text = "Usage: ./bin/cassandra-stress help <command|option>\nCommands:\n".to_owned();
    for (names, _) in COMMANDS {
        text.push_str(&format!("    {}\n", names.join(", ")));
    }
    text.push_str("Options:\n");
    for (name, ..) in OPTIONS {
        let other = if name == "sendto" { ", -send-to" } else { "" };
        text.push_str(&format!("    -{name}{other}\n"));
    }
    text
}

#[cfg(test)]
mod tests;
