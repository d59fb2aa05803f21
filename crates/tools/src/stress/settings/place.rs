//! The servers and the protocol options: `-node`, `-port`, `-mode`, `-transport`, `-jmx`,
//! `-credentials-file`.

use std::time::Duration;

use wire::{Compression, ProtocolVersion};

use super::groups_or_help;
use crate::client::Options;
use crate::stress::StressError;
use crate::stress::arguments::Arguments;
use crate::stress::options::{ANYTHING, DIGITS, Group, Pattern, SOMETHING, flag, simple};

/// The servers.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Nodes {
    /// Names or addresses, some with a port, in the order given; read from `file` if that is set.
    pub(in crate::stress) list: Vec<String>,
    /// A file with one on each line.
    pub(in crate::stress) file: Option<String>,
    /// Use no other servers.
    pub(in crate::stress) is_white_list: bool,
    datacenter: Option<String>,
}

const NODES: Pattern = Pattern {
    text: "[^=,]+(,[^=,]+)*",
    accepts: |text| text.split(',').all(|node| !node.is_empty() && !node.contains('=')),
};

pub(super) fn node_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple("datacenter=", SOMETHING, None, "Datacenter used for DCAwareRoundRobinLoadPolicy"),
        flag("whitelist", "Limit communications to the provided nodes"),
        simple("file=", ANYTHING, None, "Node file (one per line)"),
        simple("", NODES, Some("localhost"), "comma delimited list of nodes"),
    ])]
}

/// How long one step of setting up may take.
const STEP_TIME_MAX: Duration = Duration::from_secs(30);

impl Mode {
    /// How its connections are made.
    pub(in crate::stress) fn client(&self) -> Options {
        Options {
            driver: "ceto stress",
            version: self.version,
            compression: self.compression,
            wants_tablets: true,
            user: self.user.clone(),
            password: self.password.clone(),
            may_be_nobody: true,
            step_time: STEP_TIME_MAX,
        }
    }
}

impl Nodes {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-node"]).unwrap_or_default();
        let group = groups_or_help("-node", &parameters, node_groups(), &node_groups())?;
        Ok(Self {
            list: group.value("").unwrap_or_default().split(',').map(str::to_owned).collect(),
            file: group.value("file=").map(str::to_owned),
            is_white_list: group.is_set("whitelist"),
            datacenter: group.value("datacenter=").map(str::to_owned),
        })
    }

    /// The data center whose nodes are used, if only one is.
    pub(in crate::stress) fn datacenter(&self) -> Option<&str> {
        self.datacenter.as_deref()
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Node:".to_owned());
        lines.push(format!("  Nodes: [{}]", self.list.join(", ")));
        lines.push(format!("  Is White List: {}", self.is_white_list));
        lines.push(format!("  Datacenter: {}", self.datacenter().unwrap_or("null")));
    }
}

/// How it is spoken to them.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Mode {
    /// The version; `None` for the newest that the server supports.
    pub(in crate::stress) version: Option<ProtocolVersion>,
    pub(in crate::stress) is_prepared: bool,
    pub(in crate::stress) compression: Option<Compression>,
    pub(in crate::stress) user: Option<String>,
    pub(in crate::stress) password: Option<String>,
    pub(in crate::stress) requests_per_connection: usize,
    pub(in crate::stress) connections_per_host: usize,
    is_simple_native: bool,
    auth_provider: Option<String>,
    /// Parameters that newer versions of the tool ignore.
    pub(in crate::stress) deprecated: Vec<String>,
}

const VERSION: Pattern =
    Pattern { text: "[2-5]+", accepts: |text| matches!(text, "3" | "4" | "5" | "V3" | "V4" | "V5") };
const COMPRESSION: Pattern = Pattern {
    text: "none|lz4|snappy",
    accepts: |text| ["none", "lz4", "snappy"].contains(&&*text.to_lowercase()),
};
const POSITIVE: Pattern = Pattern {
    text: "[0-9]+",
    accepts: |text| text.parse::<usize>().is_ok_and(|n| (1..=CONNECTION_LIMIT).contains(&n)),
};
/// Most connections to a host, and most requests in flight on one: stream ids have 15 bits.
const CONNECTION_LIMIT: usize = 32_000;

pub(super) fn mode_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple(
            "user=",
            SOMETHING,
            None,
            "CQL user, when specified, it will override the value in credentials file for key 'cql.username'",
        ),
        simple(
            "password=",
            SOMETHING,
            None,
            "CQL password, when specified, it will override the value in credentials file for key 'cql.password'",
        ),
        simple("port=", DIGITS, Some("9046"), ""),
        simple(
            "auth-provider=",
            ANYTHING,
            None,
            "Fully qualified implementation of com.datastax.driver.core.AuthProvider",
        ),
        simple("maxPending=", POSITIVE, Some("128"), "Maximum pending requests per connection"),
        simple("compression=", COMPRESSION, Some("none"), ""),
        simple("connectionsPerHost=", POSITIVE, Some("8"), "Number of connections per host"),
        flag("prepared", "use prepared statements"),
        flag("unprepared", "force use of unprepared statements"),
        simple("protocolVersion=", VERSION, None, "CQL Protocol Version"),
        flag("simplenative", ""),
    ])]
}

impl Mode {
    pub(super) fn take(arguments: &mut Arguments, credentials: &Credentials) -> Result<Self, StressError> {
        let mut parameters = arguments.take(&["-mode"]).unwrap_or_default();
        let deprecated: Vec<String> =
            parameters.extract_if(.., |word| word == "cql3" || word == "native").collect();
        let group = groups_or_help("-mode", &parameters, mode_groups(), &mode_groups())?;
        if group.is_set("prepared") && group.is_set("unprepared") {
            let message = "can't have both prepared and unprepared set, choose one.";
            return Err(StressError::Usage(message.to_owned()));
        }
        let text = |prefix: &str| group.value(prefix).map(str::to_owned);
        let auth_provider = text("auth-provider=");
        if auth_provider.as_deref().is_some_and(|class| !class.ends_with("PlainTextAuthProvider")) {
            let message = format!("Invalid auth provider class: {}", auth_provider.unwrap_or_default());
            return Err(StressError::Usage(message));
        }
        Ok(Self {
            version: group.value("protocolVersion=").map(|text| match text.trim_start_matches('V') {
                "3" => ProtocolVersion::V3,
                "4" => ProtocolVersion::V4,
                _ => ProtocolVersion::V5,
            }),
            is_prepared: !group.is_set("unprepared"),
            compression: match &*group.value("compression=").unwrap_or("none").to_lowercase() {
                "lz4" => Some(Compression::Lz4),
                "snappy" => Some(Compression::Snappy),
                _ => None,
            },
            user: text("user=").or_else(|| credentials.user.clone()),
            password: text("password=").or_else(|| credentials.password.clone()),
            requests_per_connection: group.integer("maxPending=")?,
            connections_per_host: group.integer("connectionsPerHost=")?,
            is_simple_native: group.is_set("simplenative"),
            auth_provider,
            deprecated,
        })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        let text = |option: &Option<String>| option.clone().unwrap_or_else(|| "null".to_owned());
        let api = if self.is_simple_native { "SIMPLE_NATIVE" } else { "JAVA_DRIVER_NATIVE" };
        let style = if self.is_prepared { "CQL_PREPARED" } else { "CQL" };
        let compression =
            self.compression.map_or_else(|| "NONE".to_owned(), |kind| kind.name().to_uppercase());
        let version = match self.version {
            Some(ProtocolVersion::V3) => "V3",
            Some(ProtocolVersion::V4) => "V4",
            _ => "V5",
        };
        lines.push("Mode:".to_owned());
        lines.push(format!("  API: {api}"));
        lines.push(format!("  Connection Style: {style}"));
        lines.push(format!("  Protocol Version: {version}"));
        lines.push(format!("  Username: {}", text(&self.user)));
        let password = if self.password.is_some() { "*suppressed*" } else { "null" };
        lines.push(format!("  Password: {password}"));
        lines.push(format!("  Auth Provide Class: {}", text(&self.auth_provider)));
        lines.push(format!("  Max Pending Per Connection: {}", self.requests_per_connection));
        lines.push(format!("  Connections Per Host: {}", self.connections_per_host));
        lines.push(format!("  Compression: {compression}"));
    }
}

/// The ports.
#[derive(Debug, Clone, Copy)]
pub(in crate::stress) struct Ports {
    pub(in crate::stress) native: u16,
    jmx: u16,
}

const PORT: Pattern = Pattern { text: "[0-9]+", accepts: |text| text.parse::<u16>().is_ok() };

pub(super) fn port_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple("native=", PORT, Some("9042"), "Use this port for the Cassandra native protocol"),
        simple("thrift=", PORT, Some("9160"), "Use this port for the thrift protocol"),
        simple("jmx=", PORT, Some("7199"), "Use this port for retrieving statistics over jmx"),
    ])]
}

impl Ports {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-port"]).unwrap_or_default();
        let group = groups_or_help("-port", &parameters, port_groups(), &port_groups())?;
        Ok(Self { native: group.integer("native=")?, jmx: group.integer("jmx=")? })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("Port:".to_owned());
        lines.push(format!("  Native Port: {}", self.native));
        lines.push(format!("  JMX Port: {}", self.jmx));
    }
}

/// Encryption, which is not supported: kept only to be printed with the settings.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Transport(Group);

const CIPHERS: &str = "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_RSA_WITH_AES_256_CBC_SHA";

pub(super) fn transport_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple(
            "factory=",
            ANYTHING,
            None,
            "Fully-qualified transport factory class name for creating a connection",
        ),
        simple("truststore=", ANYTHING, None, "SSL: full path to truststore"),
        simple("truststore-password=", ANYTHING, None, "SSL: truststore password"),
        simple("keystore=", ANYTHING, None, "SSL: full path to keystore"),
        simple("keystore-password=", ANYTHING, None, "SSL: keystore password"),
        simple("ssl-protocol=", ANYTHING, Some("TLS"), "SSL: connection protocol to use"),
        simple("ssl-alg=", ANYTHING, None, "SSL: algorithm"),
        simple("store-type=", ANYTHING, Some("JKS"), "SSL: keystore format"),
        simple(
            "ssl-ciphers=",
            ANYTHING,
            Some(CIPHERS),
            "SSL: comma delimited list of encryption suites to use",
        ),
    ])]
}

impl Transport {
    /// # Errors
    /// [`StressError::Unsupported`] when encryption is asked for.
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-transport"]).unwrap_or_default();
        let group = groups_or_help("-transport", &parameters, transport_groups(), &transport_groups())?;
        if group.is_set("truststore=") || group.is_set("keystore=") {
            return Err(StressError::Unsupported("-transport: connections cannot be encrypted".to_owned()));
        }
        Ok(Self(group))
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        let value = |prefix: &str| self.0.value(prefix).unwrap_or("null").to_owned();
        lines.push("Transport:".to_owned());
        for (label, prefix) in [
            ("Truststore", "truststore="),
            ("Truststore Password", "truststore-password="),
            ("Keystore", "keystore="),
            ("Keystore Password", "keystore-password="),
            ("SSL Protocol", "ssl-protocol="),
            ("SSL Algorithm", "ssl-alg="),
            ("SSL Ciphers", "ssl-ciphers="),
        ] {
            lines.push(format!("  {label}: {}", value(prefix)));
        }
    }
}

/// Java's management interface, which no server here needs: kept only to be printed with the settings.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Jmx(Option<String>, bool);

pub(super) fn jmx_groups() -> Vec<Group> {
    vec![Group::new(vec![
        simple("user=", SOMETHING, None, "Username for JMX connection"),
        simple("password=", SOMETHING, None, "Password for JMX connection"),
    ])]
}

impl Jmx {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-jmx"]).unwrap_or_default();
        let group = groups_or_help("-jmx", &parameters, jmx_groups(), &jmx_groups())?;
        Ok(Self(group.value("user=").map(str::to_owned), group.is_set("password=")))
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        lines.push("JMX:".to_owned());
        lines.push(format!("  Username: {}", self.0.as_deref().unwrap_or("null")));
        lines.push(format!("  Password: {}", if self.1 { "*suppressed*" } else { "*not set*" }));
    }
}

/// The client's credentials, from a file of properties.
#[derive(Debug, Clone, Default)]
pub(in crate::stress) struct Credentials {
    file: Option<String>,
    user: Option<String>,
    password: Option<String>,
}

impl Credentials {
    /// Takes the option; `read` returns the text of a file.
    pub(super) fn take(
        arguments: &mut Arguments,
        read: &dyn Fn(&str) -> Result<String, StressError>,
    ) -> Result<Self, StressError> {
        let Some(parameters) = arguments.take(&["-credentials-file"]) else { return Ok(Self::default()) };
        let [file] = &parameters[..] else {
            let message = "-credentials-file takes the path of one file".to_owned();
            return Err(StressError::Usage(message));
        };
        let text = read(file)?;
        let property = |key: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once('=')?;
                (name.trim() == key).then(|| value.trim().to_owned())
            })
        };
        Ok(Self {
            file: Some(file.clone()),
            user: property("cql.username"),
            password: property("cql.password"),
        })
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        let text = |option: &Option<String>| option.clone().unwrap_or_else(|| "*not set*".to_owned());
        let hidden = if self.password.is_some() { "*suppressed*" } else { "*not set*" };
        lines.push("Credentials file:".to_owned());
        lines.push(format!("  File: {}", text(&self.file)));
        lines.push(format!("  CQL username: {}", text(&self.user)));
        lines.push(format!("  CQL password: {hidden}"));
        lines.push("  JMX username: *not set*".to_owned());
        lines.push("  JMX password: *not set*".to_owned());
        lines.push("  Transport truststore password: *not set*".to_owned());
        lines.push("  Transport keystore password: *not set*".to_owned());
    }
}
