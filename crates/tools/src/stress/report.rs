//! Output of a run's measurements: as lines, as a log of histograms, and as a page.
//!
//! Numbers are counted per kind of operation and interval, and added up. Lines have the format of
//! cassandra-stress, which people and scripts parse; the numbers of garbage collections are always zero.

mod format;
mod graph;
mod histogram_log;
mod interval;

pub(super) use format::{HEADER, grouped, row, summary};
pub(super) use graph::{Sample, page};
pub(super) use histogram_log::HistogramLog;
pub(super) use interval::{Interval, Uncertainty};
