//! The subcommands beside the server.
