//! The options of STARTUP and their effect on a connection (native_protocol_v5.spec §4.1.1).

use crate::compression::Compression;
use crate::extensions::Extensions;
use crate::protocol_error::{ProtocolError, quoted};
use crate::values::StringMap;
use crate::version::ProtocolVersion;

/// The options as sent. Unknown ones are kept, for `system_views.clients` to show.
#[derive(Debug, Clone, Copy)]
pub struct Startup<'a> {
    /// All options.
    pub options: StringMap<'a>,
}

/// The properties of a connection after STARTUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Compression of bodies (versions 3 and 4) or of segments (version 5).
    pub compression: Option<Compression>,
    /// Whether overload is answered with OVERLOADED; otherwise the server stops reading.
    pub throw_on_overload: bool,
    /// Protocol extensions that both sides support.
    pub extensions: Extensions,
}

impl<'a> Startup<'a> {
    pub(crate) fn new(options: StringMap<'a>) -> Self {
        Self { options }
    }

    /// `DRIVER_NAME`, free text.
    pub fn driver_name(&self) -> Option<&'a str> {
        self.options.get("DRIVER_NAME")
    }

    /// `DRIVER_VERSION`, free text.
    pub fn driver_version(&self) -> Option<&'a str> {
        self.options.get("DRIVER_VERSION")
    }

    /// Checks the options and returns the properties of the connection.
    ///
    /// # Errors
    /// [`ProtocolError`] if `CQL_VERSION` is missing or older than 3, or the compression is unknown or not
    /// one of this version.
    pub fn negotiate(&self, version: ProtocolVersion) -> Result<ConnectionOptions, ProtocolError> {
        let cql_version = self.options.get("CQL_VERSION").ok_or(ProtocolError::MissingCqlVersion)?;
        if !is_cql_3(cql_version) {
            return Err(ProtocolError::UnsupportedCqlVersion { version: quoted(cql_version) });
        }
        let compression = match self.options.get("COMPRESSION") {
            None => None,
            Some(name) if name.eq_ignore_ascii_case("lz4") => Some(Compression::Lz4),
            Some(name) if name.eq_ignore_ascii_case("snappy") => {
                if version >= ProtocolVersion::V5 {
                    return Err(ProtocolError::SnappyInV5);
                }
                Some(Compression::Snappy)
            }
            Some(name) => return Err(ProtocolError::UnknownCompression { name: quoted(name) }),
        };
        Ok(ConnectionOptions {
            compression,
            throw_on_overload: self.options.get("THROW_ON_OVERLOAD") == Some("1"),
            extensions: Extensions::from_startup(&self.options),
        })
    }
}

/// Whether `version` is `major.minor` or `major.minor.patch`, with any suffix, and at least 2.99, which
/// Cassandra accepts as the predecessor of 3.0.
fn is_cql_3(version: &str) -> bool {
    let mut parts = version.splitn(3, '.').map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part[..digits].parse::<u32>().ok()
    });
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= (2, 99),
        _ => false,
    }
}
