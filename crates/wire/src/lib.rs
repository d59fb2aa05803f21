//! Bytes between machines: the CQL native protocol v3 to v5; no sockets.
