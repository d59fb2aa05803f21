//! Table files in Cassandra's big format.
