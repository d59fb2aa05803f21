//! Whole nodes under a seed: world, nemesis, workloads, checkers.
