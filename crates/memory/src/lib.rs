//! Where cached bytes live: segments, handles, budgets.
