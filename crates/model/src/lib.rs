//! What data is: CQL types and values, keys, tokens, schema, cells, rows, mutations and the one reconcile.
