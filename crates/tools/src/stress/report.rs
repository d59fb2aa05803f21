//! What a run measured, as lines, as a log of histograms, and as a page.
//!
//! Numbers are counted per kind of operation and interval, and added up. Lines read as cassandra-stress', which people
//! and scripts parse; garbage collections, which no server here has to tell of, are none.

mod format;
mod graph;
mod histogram_log;
mod interval;

pub(super) use format::{HEADER, grouped, row, summary};
pub(super) use graph::{Sample, page};
pub(super) use histogram_log::HistogramLog;
pub(super) use interval::{Interval, Uncertainty};
