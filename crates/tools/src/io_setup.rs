//! `ceto io-setup`: measures a disk and writes `io_properties.yaml` for the server's I/O scheduler.
//!
//! Four figures: reads and writes of 4 KiB at random places per second, bytes read and written in long runs
//! per second. They are measured in turn in short rounds, so that each covers the same moments of a disk that
//! others use too, until its better rounds agree or all rounds are used; `rounds` decides, `file` is the
//! written file. The measuring itself is `reactor::io::measure`, on a file that has no name and so cannot be
//! left behind. Invariant: at most a minute, and never more than a quarter of the free space.

mod file;
mod rounds;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use reactor::io::DiskModel;
use reactor::io::measure::{self, OPERATION_BYTES, Pattern};
use reactor::{Config, Group, run_one};
use rounds::Rounds;

/// Bytes of the file that is measured on, if there is room.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// With a smaller file the device's cache would be measured.
const FILE_BYTES_MIN: u64 = 64 << 20;
/// Bytes of a request that measures bandwidth, and the number of them at a time.
const RUN_BYTES: usize = 512 << 10;
const RUN_DEPTH: usize = 16;
/// Requests of 4 KiB at a time.
const OPERATION_DEPTH: usize = 128;
/// Longest time spent writing the file.
const LAYOUT: Duration = Duration::from_secs(12);
/// Each round, and the rounds of a figure at most: 4 x 20 x 0.5 s and the layout stay below a minute.
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS_MAX: usize = 20;
/// Time after which no more rounds begin.
const MEASURING: Duration = Duration::from_secs(42);

/// Options of `ceto io-setup`.
#[derive(Debug, Args)]
pub struct IoSetupOptions {
    /// The node's work directory: its disk is measured, and io_properties.yaml written into it
    #[arg(long, value_name = "DIR", default_value = "ceto-data")]
    pub workdir: PathBuf,
    /// Measure the disk of this directory instead [default: the work directory's]
    #[arg(long, visible_alias = "evaluation-directory", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Write to this file instead [default: io_properties.yaml in the work directory]
    #[arg(long, visible_alias = "properties-file", value_name = "FILE")]
    pub io_properties_file: Option<PathBuf>,
}

/// Why a disk could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum IoSetupError {
    /// The directory cannot be written to.
    #[error("cannot measure in {}: {source}{}", directory.display(), if source.kind() == io::ErrorKind::Unsupported { "; its file system has no direct I/O, so there is no disk to measure" } else { "" })]
    Measure {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The disk is too full.
    #[error(
        "{} has {free_bytes} bytes free: measuring takes a quarter of that, and {FILE_BYTES_MIN} at least",
        directory.display()
    )]
    NoSpace {
        /// The directory.
        directory: PathBuf,
        /// Free bytes.
        free_bytes: u64,
    },
    /// The file with the figures could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl IoSetupOptions {
    /// Measures and writes the file; returns 0 if it was written.
    pub fn run(self) -> ExitCode {
        let config = Config { name: "io-setup".into(), ..Config::default() };
        match run_one(config, set_up(self)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ceto io-setup: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

async fn set_up(options: IoSetupOptions) -> Result<(), IoSetupError> {
    let is_named = options.directory.is_some();
    let directory = options.directory.unwrap_or_else(|| options.workdir.clone());
    let path = options.io_properties_file.unwrap_or_else(|| options.workdir.join(file::NAME));
    let directory = std::path::absolute(&directory).unwrap_or(directory);
    let failed = |source| IoSetupError::Measure { directory: directory.clone(), source };
    // A directory that is named is there: another one would be on another disk.
    if !is_named {
        reactor::file::create_dir_all(&directory).await.map_err(failed)?;
    }
    let (model, doubts) = measure_disk(&directory).await?;
    let text = file::text(&directory, &model);
    let written = |source| IoSetupError::Write { path: path.clone(), source };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        reactor::file::create_dir_all(parent).await.map_err(written)?;
    }
    reactor::file::write_all_atomic(&path, text.as_bytes()).await.map_err(written)?;
    let mut out = crate::output::Output::new();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.extend(doubts);
    lines.push(format!("written to {}", path.display()));
    lines
        .iter()
        .try_for_each(|line| out.line(line))
        .and_then(|()| out.finish())
        .map_err(|source| IoSetupError::Write { path: PathBuf::from("standard output"), source })
}

/// The four figures, and a line for each that did not settle.
async fn measure_disk(directory: &Path) -> Result<(DiskModel, Vec<String>), IoSetupError> {
    let failed = |source| IoSetupError::Measure { directory: directory.to_owned(), source };
    let scratch = measure::scratch(directory).await.map_err(failed)?;
    let free_bytes = reactor::file::available_space(directory).await.map_err(failed)?;
    let file_bytes = (free_bytes / 4).min(FILE_BYTES_MAX) / RUN_BYTES as u64 * RUN_BYTES as u64;
    if file_bytes < FILE_BYTES_MIN {
        return Err(IoSetupError::NoSpace { directory: directory.to_owned(), free_bytes });
    }
    let progress = Progress::new();
    let file_bytes = lay_out(&scratch, file_bytes, &progress).await.map_err(failed)?;
    let mut figures = FIGURES.map(|figure| (figure, Rounds::default()));
    let end = reactor::now() + MEASURING;
    for turn in 0..ROUNDS_MAX {
        // A slow disk ends each round late; each figure has one at least.
        if turn > 0 && reactor::now() > end {
            break;
        }
        for (figure, rounds) in figures.iter_mut().filter(|(_, rounds)| !rounds.is_settled()) {
            let rate = measure::run(&scratch, file_bytes, figure.pattern(), ROUND).await.map_err(failed)?;
            rounds.add(if figure.operations { rate.iops() } else { rate.bandwidth() });
            progress.round(turn, figure, rounds.value());
        }
    }
    let mut doubts = Vec::new();
    for (figure, rounds) in &figures {
        progress.done(figure, rounds.value());
        if !rounds.is_settled() {
            doubts.push(format!(
                "{}: rounds differ by more than 5 %, as where others use the disk",
                figure.what
            ));
        }
    }
    let [write_bandwidth, write_iops, read_bandwidth, read_iops] =
        figures.map(|(_, rounds)| rounds.value() as u64);
    Ok((DiskModel { read_iops, read_bandwidth, write_iops, write_bandwidth }, doubts))
}

/// One of the four figures.
#[derive(Debug, Clone, Copy)]
struct Figure {
    what: &'static str,
    read: bool,
    operations: bool,
}

const FIGURES: [Figure; 4] = [
    Figure { what: "write bandwidth", read: false, operations: false },
    Figure { what: "write operations", read: false, operations: true },
    Figure { what: "read bandwidth", read: true, operations: false },
    Figure { what: "read operations", read: true, operations: true },
];

impl Figure {
    fn pattern(self) -> Pattern {
        let (bytes, depth) =
            if self.operations { (OPERATION_BYTES, OPERATION_DEPTH) } else { (RUN_BYTES, RUN_DEPTH) };
        Pattern { read: self.read, random: self.operations, bytes, depth }
    }
}

/// Writes the file from end to end, or as much of it as there is time for; how much that is.
async fn lay_out(scratch: &reactor::file::File, file_bytes: u64, progress: &Progress) -> io::Result<u64> {
    let end = reactor::now() + LAYOUT;
    let places = file_bytes / RUN_BYTES as u64;
    let next = std::rc::Rc::new(std::cell::Cell::new(0u64));
    let tasks: Vec<_> = (0..RUN_DEPTH)
        .map(|_| {
            let (scratch, next) = (scratch.clone(), next.clone());
            reactor::spawn(Group::ADMIN, async move {
                let mut buf = reactor::file::AlignedBuf::with_len(RUN_BYTES);
                for word in buf.chunks_exact_mut(8) {
                    word.copy_from_slice(&reactor::random_u64().to_le_bytes());
                }
                // Each round writes one place; bounded by the file and, once the least size is written, by
                // the time.
                while next.get() < places
                    && (reactor::now() < end || next.get() * (RUN_BYTES as u64) < FILE_BYTES_MIN)
                {
                    let place = next.get();
                    next.set(place + 1);
                    let (written, back) = scratch.write_at(place * RUN_BYTES as u64, buf).await;
                    written?;
                    buf = back;
                }
                Ok::<(), io::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(io::Error::other)??;
        progress.laid_out(next.get() as f64 / places as f64);
    }
    scratch.fdatasync().await?;
    Ok(next.get() * RUN_BYTES as u64)
}

/// A bar on a terminal, lines elsewhere; to standard error.
struct Progress {
    bar: bool,
}

/// Characters of the bar.
const BAR: usize = 30;

impl Progress {
    fn new() -> Self {
        let progress = Self { bar: io::stderr().is_terminal() };
        if !progress.bar {
            eprintln!("measuring, a minute or less");
        }
        progress.show(0.0, "writing the file");
        progress
    }

    /// Shows the share `done` of the work, and the present activity.
    fn show(&self, done: f64, what: &str) {
        if !self.bar {
            return;
        }
        let filled = (BAR as f64 * done) as usize;
        eprint!("\r\x1b[K[{}{}] {what}", "#".repeat(filled), ".".repeat(BAR - filled.min(BAR)));
        // A terminal that is gone needs no bar.
        let _ = io::stderr().flush();
    }

    fn laid_out(&self, share: f64) {
        self.show(share / 5.0, &format!("writing the file {:.0} %", share * 100.0));
    }

    fn round(&self, turn: usize, figure: &Figure, value: f64) {
        // A few rounds are enough if they agree.
        let done = 1.0 - 0.8 * 0.8f64.powi(turn as i32);
        self.show(done, &format!("{} {}", figure.what, file::spoken(value, figure.operations)));
    }

    fn done(&self, figure: &Figure, value: f64) {
        let clear = if self.bar { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{}: {}", figure.what, file::spoken(value, figure.operations));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_directory_that_is_not_there_is_refused_and_not_made() {
        let folder = tempfile::tempdir().expect("a directory");
        let missing = folder.path().join("mistyped");
        let options = IoSetupOptions {
            workdir: folder.path().to_owned(),
            directory: Some(missing.clone()),
            io_properties_file: None,
        };
        let error = run_one(Config::default(), set_up(options)).expect_err("there is nothing to measure");
        assert!(error.to_string().contains("mistyped: No such file or directory"), "{error}");
        assert!(!missing.exists());
    }
}
