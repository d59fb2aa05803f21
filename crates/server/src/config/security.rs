//! Keys of authentication, authorization, encryption and auditing, and the consequence if such a feature is
//! missing.
//!
//! Such a key must not be accepted and then ignored: a node that is configured for passwords and starts
//! without is open. A key that asks for a missing feature stops the start, unless the file accepts that
//! (`ignore_authentication` and similar). A key that asks for nothing, or whose lack makes nothing less
//! secure, lets the node start; the latter gives a warning.
//! Invariant: every known key whose name relates to security is in the table; a test checks this.

use super::Config;
use super::value::Value;

/// A kind of missing feature that the configuration may accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// Passwords, permissions, and other restrictions of clients.
    Authentication,
    /// Encryption of connections and of files.
    Encryption,
    /// A record of clients' actions.
    Audit,
}

impl Lack {
    /// The key that accepts the lack.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Authentication => "ignore_authentication",
            Self::Encryption => "ignore_encryption",
            Self::Audit => "ignore_audit",
        }
    }

    /// Whether the configuration accepts the lack.
    pub(super) fn is_accepted(self, config: &Config) -> bool {
        match self {
            Self::Authentication => config.ignores_authentication,
            Self::Encryption => config.ignores_encryption,
            Self::Audit => config.ignores_audit,
        }
    }
}

/// The values of a key that ask for its feature.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// Classes other than this one; null asks for nothing.
    ClassBut(&'static str),
    /// Maps with the option `enabled` on.
    Enabled,
    /// Maps with the option `enabled` on and `optional` off: plain connections are to be refused.
    EnabledForAll,
    /// Maps in which this option has a value other than `none`.
    OptionButNone(&'static str),
    /// A word other than `none` and `ignore`.
    WordButNone,
    /// True.
    On,
    /// False.
    Off,
    /// Any value except null, false, 0, `none`, `ignore`, and an empty text, list or map.
    Set,
}

/// The consequence if a value asks for a missing feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    /// The start stops, unless the lack is accepted; the text states the danger.
    Stops(Lack, &'static str),
    /// The node starts with this warning.
    Warns(&'static str),
    /// No consequence: the key only configures a feature that another key asks for.
    Nothing,
}

use Asks::{ClassBut, Enabled, EnabledForAll, Off, On, OptionButNone, Set, WordButNone};
use Follows::{Nothing, Stops, Warns};
use Lack::{Audit, Authentication, Encryption};

const NO_USERS: &str = "there are no users";
const NO_ALTERNATOR: &str = "there is no DynamoDB API";
const NOT_RECORDED: &str = "what clients do is not recorded";
const NO_TLS_PORT: &str = "no port for encrypted connections is opened";

/// Keys, the values that ask for a feature, and the consequence; the first matching row of a key counts.
#[rustfmt::skip]
const TABLE: &[(&str, Asks, Follows)] = &[
    // Authentication and authorization.
    ("authenticator", ClassBut("AllowAllAuthenticator"), Stops(Authentication, "clients need no password")),
    ("authorizer", ClassBut("AllowAllAuthorizer"), Stops(Authentication, "clients may do everything")),
    ("role_manager", ClassBut("CassandraRoleManager"), Stops(Authentication, "there are no roles that it could manage")),
    ("network_authorizer", ClassBut("AllowAllNetworkAuthorizer"), Stops(Authentication, "clients may use every data center")),
    ("cidr_authorizer", ClassBut("AllowAllCIDRAuthorizer"), Stops(Authentication, "clients may connect from every address")),
    (
        "internode_authenticator",
        ClassBut("AllowAllInternodeAuthenticator"),
        Stops(Authentication, "other nodes need no password"),
    ),
    ("maintenance_mode", On, Stops(Authentication, "clients may connect as at any time")),
    ("native_transport_allow_older_protocols", Off, Warns("clients may speak every version of the protocol from 3 on")),
    ("partition_denylist_enabled", On, Warns("a list of denied partitions is not supported")),
    ("auth_certificate_role_queries", Set, Stops(Authentication, "clients are not asked for a certificate")),
    ("auth_superuser_name", Set, Warns(NO_USERS)),
    ("auth_superuser_salted_password", Set, Warns(NO_USERS)),
    ("auth_cache_warming_enabled", Set, Nothing),
    ("auth_read_consistency_level", Set, Nothing),
    ("auth_write_consistency_level", Set, Nothing),
    ("authenticator_user", Set, Warns(NO_USERS)),
    ("authenticator_password", Set, Warns(NO_USERS)),
    ("credentials_cache_active_update", Set, Nothing),
    ("credentials_cache_max_entries", Set, Nothing),
    ("credentials_update_interval", Set, Nothing),
    ("credentials_update_interval_in_ms", Set, Nothing),
    ("credentials_validity", Set, Nothing),
    ("credentials_validity_in_ms", Set, Nothing),
    ("permissions_cache_active_update", Set, Nothing),
    ("permissions_cache_max_entries", Set, Nothing),
    ("permissions_update_interval", Set, Nothing),
    ("permissions_update_interval_in_ms", Set, Nothing),
    ("permissions_validity", Set, Nothing),
    ("permissions_validity_in_ms", Set, Nothing),
    ("roles_cache_active_update", Set, Nothing),
    ("roles_cache_max_entries", Set, Nothing),
    ("roles_update_interval", Set, Nothing),
    ("roles_update_interval_in_ms", Set, Nothing),
    ("roles_validity", Set, Nothing),
    ("roles_validity_in_ms", Set, Nothing),
    ("native_transport_max_auth_threads", Set, Nothing),
    ("traverse_auth_from_root", Set, Nothing),
    ("ldap_attr_role", Set, Warns(NO_USERS)),
    ("ldap_bind_dn", Set, Warns(NO_USERS)),
    ("ldap_bind_passwd", Set, Warns(NO_USERS)),
    ("ldap_hosts", Set, Warns(NO_USERS)),
    ("ldap_url_template", Set, Warns(NO_USERS)),
    ("saslauthd_socket_path", Set, Warns(NO_USERS)),
    ("alternator_enforce_authorization", On, Warns(NO_ALTERNATOR)),
    ("dynamic_data_masking_enabled", On, Warns("columns cannot be masked")),
    // User functions are restricted in time and memory whatever these keys say.
    ("allow_insecure_udfs", On, Nothing),
    ("allow_extra_insecure_udfs", On, Nothing),
    // A missing socket lets nobody in.
    ("maintenance_socket", WordButNone, Warns("there is no maintenance socket")),
    ("maintenance_socket_group", Set, Nothing),
    ("maintenance_reader_concurrency_semaphore_count_limit", Set, Nothing),
    // Encryption of connections.
    ("client_encryption_options", EnabledForAll, Stops(Encryption, "connections of clients are not encrypted")),
    ("client_encryption_options", Enabled, Warns("connections of clients cannot be encrypted, plain ones are taken")),
    ("native_transport_port_ssl", Set, Stops(Encryption, NO_TLS_PORT)),
    ("native_shard_aware_transport_port_ssl", Set, Stops(Encryption, NO_TLS_PORT)),
    (
        "server_encryption_options",
        OptionButNone("internode_encryption"),
        Stops(Encryption, "messages between nodes are not encrypted"),
    ),
    ("ssl_storage_port", Set, Nothing),
    ("alternator_https_port", Set, Warns(NO_ALTERNATOR)),
    ("vector_store_encryption_options", Set, Nothing),
    ("crypto_provider", Set, Nothing),
    // Encryption of files.
    ("transparent_data_encryption_options", Enabled, Stops(Encryption, "the commit log is not encrypted")),
    ("system_info_encryption", Enabled, Stops(Encryption, "the commit log is not encrypted")),
    ("user_info_encryption", Enabled, Stops(Encryption, "table files are not encrypted")),
    ("config_encryption_active", On, Stops(Encryption, "encrypted values of the configuration cannot be read")),
    ("config_encryption_key_name", Set, Nothing),
    ("system_key_directory", Set, Nothing),
    ("kmip_hosts", Set, Nothing),
    ("kms_hosts", Set, Nothing),
    ("azure_hosts", Set, Nothing),
    ("gcp_hosts", Set, Nothing),
    // Auditing.
    ("audit", WordButNone, Stops(Audit, NOT_RECORDED)),
    ("audit_logging_options", Enabled, Stops(Audit, NOT_RECORDED)),
    ("audit_categories", Set, Warns(NOT_RECORDED)),
    ("audit_keyspaces", Set, Warns(NOT_RECORDED)),
    ("audit_tables", Set, Warns(NOT_RECORDED)),
    ("audit_syslog_write_buffer_size", Set, Nothing),
    ("audit_unix_socket_path", Set, Nothing),
    ("full_query_logging_options", Set, Warns(NOT_RECORDED)),
];

/// The consequence of `key: value`; `None` if the key is not in the table, and [`Follows::Nothing`] if the
/// value asks for no feature.
pub(super) fn follows(key: &str, value: &Value) -> Option<Follows> {
    let mut rows = TABLE.iter().filter(|(name, ..)| *name == key).peekable();
    rows.peek()?;
    Some(rows.find(|(_, asks, _)| asks.hold(value)).map_or(Nothing, |(.., follows)| *follows))
}

impl Asks {
    fn hold(self, value: &Value) -> bool {
        let is_on = |value: Option<&Value>| match value {
            Some(Value::Bool(on)) => *on,
            Some(Value::Integer(number)) => *number != 0,
            Some(Value::Text(text)) => {
                ["true", "yes", "on", "all"].iter().any(|yes| text.eq_ignore_ascii_case(yes))
            }
            _ => false,
        };
        let is_none = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Text(text) => {
                text.is_empty() || text.eq_ignore_ascii_case("none") || text.eq_ignore_ascii_case("ignore")
            }
            _ => false,
        };
        match self {
            Self::ClassBut(name) => match option(value, "class_name").unwrap_or(value) {
                Value::Text(text) => text.rsplit('.').next() != Some(name),
                Value::Null => false,
                _ => true,
            },
            Self::Enabled => is_on(option(value, "enabled")),
            Self::EnabledForAll => is_on(option(value, "enabled")) && !is_on(option(value, "optional")),
            Self::OptionButNone(name) => option(value, name).is_some_and(|value| !is_none(value)),
            Self::WordButNone => !is_none(value),
            Self::On => is_on(Some(value)),
            Self::Off => !is_on(Some(value)) && *value != Value::Null,
            Self::Set => match value {
                Value::List(list) => !list.is_empty(),
                Value::Map(options) => !options.is_empty(),
                Value::Integer(number) => *number != 0,
                value => !is_none(value),
            },
        }
    }
}

/// An option of a map, or of the first map in a list, a form that `cassandra.yaml` uses for some keys.
fn option<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Map(options) => options.iter().find(|(key, _)| key == name).map(|(_, value)| value),
        Value::List(list) => list.first().and_then(|first| option(first, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::super::known::KEYS;
    use super::*;

    #[test]
    fn every_key_that_has_to_do_with_security_is_in_the_table() {
        const WORDS: [&str; 24] = [
            "auth",
            "encrypt",
            "ssl",
            "https",
            "audit",
            "permission",
            "role",
            "credential",
            "passw",
            "ldap",
            "kmip",
            "kms",
            "gcp",
            "azure",
            "security",
            "crypto",
            "certificate",
            "cidr",
            "sasl",
            "insecure",
            "maintenance",
            "superuser",
            "masking",
            "query_logging",
        ];
        let of_security = |key: &&&str| WORDS.iter().any(|word| key.contains(word));
        let missing: Vec<&&str> = KEYS
            .iter()
            .filter(of_security)
            .filter(|key| keys::setter(key).is_none() && TABLE.iter().all(|(name, ..)| name != *key))
            .collect();
        assert_eq!(missing, Vec::<&&str>::new(), "decide what each of them means");
    }

    #[test]
    fn every_key_that_stops_the_start_says_what_would_be_open() {
        for (key, _, follows) in TABLE {
            assert!(KEYS.contains(key), "{key} is no known key");
            if let Stops(_, consequence) | Warns(consequence) = follows {
                assert!(!consequence.is_empty(), "{key}");
            }
        }
    }
}
