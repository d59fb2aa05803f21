//! One shard's durable truth: commit log, memtable, tablets, flush, compaction, read merge.
