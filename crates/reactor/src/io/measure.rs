//! Measures the speed of a disk: keeps requests of one kind in flight for some time, and counts them.
//!
//! The requests go through the usual queue, so with a model set the model would be measured rather than the
//! disk: measure before [`super::set_model`]. Invariant: at most `depth` requests are in flight, and a run
//! ends soon after its time.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::DiskModel;
use crate::file::{ALIGNMENT, AlignedBuf, File, OpenOptions};
use crate::time::Instant;

/// Bytes of a request that measures operations.
pub const OPERATION_BYTES: usize = ALIGNMENT;
/// Most requests in flight.
pub const DEPTH_MAX: usize = 1024;

/// A pattern of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Reads; otherwise writes.
    pub read: bool,
    /// At random places; otherwise one after the other.
    pub random: bool,
    /// Bytes of each, a multiple of 4096.
    pub bytes: usize,
    /// Number of requests at a time, 1 to [`DEPTH_MAX`].
    pub depth: usize,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rate {
    /// Requests that were served.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time they took, the last ones included.
    pub seconds: f64,
}

impl Rate {
    /// Requests per second.
    pub fn iops(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    /// Bytes per second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// Makes requests of `pattern` within the first `file_bytes` of `file` for `time`.
///
/// # Errors
/// The first error of any request.
///
/// # Panics
/// When the pattern does not fit the file or its own limits: the caller chooses both.
pub async fn run(file: &File, file_bytes: u64, pattern: Pattern, time: Duration) -> io::Result<Rate> {
    let places = file_bytes / pattern.bytes.max(1) as u64;
    assert!(places > 0 && (1..=DEPTH_MAX).contains(&pattern.depth), "{pattern:?} in {file_bytes} bytes");
    let begin = crate::now();
    let shared = Rc::new(Shared {
        next: Cell::new(0),
        operations: Cell::new(0),
        failure: RefCell::new(None),
        end: begin + time,
    });
    let group = crate::current_group();
    let tasks: Vec<_> = (0..pattern.depth)
        .map(|_| crate::spawn(group, requests(file.clone(), places, pattern, shared.clone())))
        .collect();
    for task in tasks {
        task.await.map_err(io::Error::other)?;
    }
    let operations = shared.operations.get();
    match shared.failure.take() {
        Some(error) => Err(error),
        None => Ok(Rate {
            operations,
            bytes: operations * pattern.bytes as u64,
            seconds: begin.elapsed().as_secs_f64(),
        }),
    }
}

struct Shared {
    next: Cell<u64>,
    operations: Cell<u64>,
    failure: RefCell<Option<io::Error>>,
    end: Instant,
}

async fn requests(file: File, places: u64, pattern: Pattern, shared: Rc<Shared>) {
    let mut buf = AlignedBuf::with_len(pattern.bytes);
    // Some devices serve zeros without looking.
    for word in buf.chunks_mut(8) {
        word.copy_from_slice(&crate::random_u64().to_le_bytes()[..word.len()]);
    }
    // Each round is a request; bounded by the time.
    while crate::now() < shared.end && shared.failure.borrow().is_none() {
        let place = if pattern.random {
            crate::random_u64() % places
        } else {
            let next = shared.next.get();
            shared.next.set((next + 1) % places);
            next
        };
        let offset = place * pattern.bytes as u64;
        let done = if pattern.read {
            file.read_at(offset, pattern.bytes).await.map(drop)
        } else {
            let (written, back) = file.write_at(offset, buf).await;
            buf = back;
            written
        };
        match done {
            Ok(()) => shared.operations.set(shared.operations.get() + 1),
            Err(error) => {
                shared.failure.borrow_mut().get_or_insert(error);
            }
        }
    }
}

/// A file for measuring in `directory`: open, direct, and already without a name, so that it cannot be left
/// behind.
///
/// # Errors
/// As open(2); `Unsupported` if the file system has no direct I/O: the page cache would be measured.
pub async fn scratch(directory: &std::path::Path) -> io::Result<File> {
    let path = directory.join(format!("ceto-io-{:016x}", crate::random_u64()));
    let options = OpenOptions::new().read(true).write(true).create_new(true).direct(true);
    let file = File::open(&path, options).await?;
    crate::file::remove_file(&path).await?;
    if file.is_direct() { Ok(file) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Bytes a probe writes and reads.
const PROBE_BYTES: u64 = 8 << 20;
/// Time of each of a probe's four parts.
const PROBE_PART: Duration = Duration::from_millis(5);
/// The result of a probe is multiplied by this: the probe saw one moment, perhaps a bad one. A model that is
/// too slow costs throughput for good, while one that is too fast costs a little latency.
const PROBE_FACTOR: u64 = 2;
/// The slowest result of a probe that is accepted.
const SLOWEST: DiskModel =
    DiskModel { read_iops: 1000, read_bandwidth: 100 << 20, write_iops: 1000, write_bandwidth: 100 << 20 };

/// Estimates the speed of the disk of `directory` in some 20 ms, on the generous side.
///
/// # Errors
/// As [`scratch`], and those of reading and writing.
pub async fn probe(directory: &std::path::Path) -> io::Result<DiskModel> {
    let file = scratch(directory).await?;
    file.fallocate(0, PROBE_BYTES).await?;
    let part = async |read: bool, bytes: usize, depth: usize| {
        let pattern = Pattern { read, random: bytes == OPERATION_BYTES, bytes, depth };
        run(&file, PROBE_BYTES, pattern, PROBE_PART).await
    };
    let written = part(false, 256 << 10, 4).await?;
    let writes = part(false, OPERATION_BYTES, 32).await?;
    let read = part(true, 256 << 10, 4).await?;
    let reads = part(true, OPERATION_BYTES, 32).await?;
    let generous = |seen: f64, least: u64| (seen as u64).saturating_mul(PROBE_FACTOR).max(least);
    Ok(DiskModel {
        read_iops: generous(reads.iops(), SLOWEST.read_iops),
        read_bandwidth: generous(read.bandwidth(), SLOWEST.read_bandwidth),
        write_iops: generous(writes.iops(), SLOWEST.write_iops),
        write_bandwidth: generous(written.bandwidth(), SLOWEST.write_bandwidth),
    })
}
