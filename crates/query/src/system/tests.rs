//! Made-up tables against what a Cassandra 5.0.6 showed of the same schema.
