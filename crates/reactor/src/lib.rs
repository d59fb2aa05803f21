//! One core, one loop: executor, drivers, files, sockets, timers, cross-shard calls, metrics.
