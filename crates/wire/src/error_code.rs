//! Numbers of the ERROR message (native_protocol_v5.spec §9).
//!
//! `error` pairs them with their extra fields and maps those that an older version lacks.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Kind of an ERROR message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum ErrorCode { $($(#[$doc])* $name = $code,)* }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The kind with this number.
            pub const fn from_code(code: i32) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

error_codes! {
    /// Something unexpected happened in the server.
    ServerError = 0x0000,
    /// The client broke the protocol.
    ProtocolError = 0x000A,
    /// Authentication failed.
    BadCredentials = 0x0100,
    /// Not enough replicas are alive to try.
    Unavailable = 0x1000,
    /// The coordinator sheds load.
    Overloaded = 0x1001,
    /// The coordinator is still joining.
    IsBootstrapping = 0x1002,
    /// TRUNCATE failed.
    TruncateError = 0x1003,
    /// Too few replicas acknowledged a write in time.
    WriteTimeout = 0x1100,
    /// Too few replicas answered a read in time.
    ReadTimeout = 0x1200,
    /// Replicas refused a read.
    ReadFailure = 0x1300,
    /// A user-defined function failed.
    FunctionFailure = 0x1400,
    /// Replicas refused a write.
    WriteFailure = 0x1500,
    /// Change data capture has no room.
    CdcWriteFailure = 0x1600,
    /// A conditional write may or may not have been applied.
    CasWriteUnknown = 0x1700,
    /// The statement does not parse.
    SyntaxError = 0x2000,
    /// The user may not do this.
    Unauthorized = 0x2100,
    /// The statement parses and means nothing valid.
    Invalid = 0x2200,
    /// A configuration in a statement is wrong.
    ConfigError = 0x2300,
    /// The keyspace or table exists.
    AlreadyExists = 0x2400,
    /// The prepared statement is not known (any more).
    Unprepared = 0x2500,
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> i32 {
        self as i32
    }
}
