//! File operations on helper threads, for calls that the kernel offers only as blocking ones.
//!
//! The poll driver runs all file operations here, the io_uring driver only those on names (open, rename,
//! list, ...). Jobs carry raw addresses of buffers that the driver keeps until the job's result is back.
//! Invariant: every job brings exactly one result, even if it panics.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::{Handle, HandleKind, Op, OpId, Output, PathOp};
use crate::file::buffer::SECTOR_BYTES;
use crate::file::{ALIGNMENT, DirEntry, FileIdentity, OpenOptions, Place};
use crate::waker::Remote;

/// Most waiting jobs; beyond it `submit` refuses, and the operation fails with `ResourceBusy`.
const JOBS_MAX: usize = 1 << 16;

/// Memory a job reads into or writes from.
struct Span {
    start: *mut u8,
    len: usize,
}

// SAFETY: the driver owns the operation, and with it the memory, until the job's result is back; nobody else
// touches it meanwhile.
unsafe impl Send for Span {}

/// A blocking call, ready to be made by any thread.
enum Call {
    Read { descriptor: i32, offset: u64, span: Span },
    Write { descriptor: i32, offset: u64, span: Span },
    Sync { descriptor: i32, data_only: bool },
    Writeback { descriptor: i32, offset: u64, len: u32 },
    Allocate { descriptor: i32, offset: u64, len: u64 },
    Truncate { descriptor: i32, len: u64 },
    Size { descriptor: i32 },
    Close { descriptor: i32 },
    Path(PathOp),
}

/// The result of a thread; becomes an `Output` on the shard.
enum Raw {
    Done,
    Number(u64),
    File { descriptor: OwnedFd, direct: bool, read_alignment: u32, device: u64 },
    Entries(Vec<DirEntry>),
    Ancestry(Vec<Place>),
}

struct Shared {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    results: Mutex<Vec<(OpId, io::Result<Raw>)>>,
    remote: Arc<Remote>,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<(Option<OpId>, Call)>,
    stop: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Helper threads of one shard, started with the first job.
pub(crate) struct FileThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    wanted: usize,
    name: String,
    pending: usize,
    arrived: Vec<(OpId, io::Result<Raw>)>,
}

impl FileThreads {
    pub(crate) fn new(name: String, wanted: usize, remote: Arc<Remote>) -> Self {
        let shared = Shared {
            jobs: Mutex::new(Jobs::default()),
            arrived: Condvar::new(),
            results: Mutex::new(Vec::new()),
            remote,
        };
        Self { shared: Arc::new(shared), threads: Vec::new(), wanted, name, pending: 0, arrived: Vec::new() }
    }

    /// Queues the blocking call of a file operation.
    pub(crate) fn submit(&mut self, id: OpId, op: &mut Op) -> io::Result<()> {
        let call = match op {
            Op::Read { file, offset, buf, at } => Call::Read {
                descriptor: file.descriptor(),
                offset: *offset + *at as u64,
                span: Span { start: buf[*at..].as_mut_ptr(), len: buf.len() - *at },
            },
            Op::Write { file, offset, buf, at } => Call::Write {
                descriptor: file.descriptor(),
                offset: *offset + *at as u64,
                span: Span { start: buf[*at..].as_mut_ptr(), len: buf.len() - *at },
            },
            Op::Sync { file, data_only } => {
                Call::Sync { descriptor: file.descriptor(), data_only: *data_only }
            }
            Op::Writeback { file, offset, len } => {
                Call::Writeback { descriptor: file.descriptor(), offset: *offset, len: *len }
            }
            Op::Allocate { file, offset, len } => {
                Call::Allocate { descriptor: file.descriptor(), offset: *offset, len: *len }
            }
            Op::Truncate { file, len } => Call::Truncate { descriptor: file.descriptor(), len: *len },
            Op::Size { file } => Call::Size { descriptor: file.descriptor() },
            Op::Path(path) => Call::Path((**path).clone()),
            Op::Accept { .. } | Op::Connect { .. } | Op::Send { .. } => {
                return Err(io::ErrorKind::Unsupported.into());
            }
        };
        if self.pending >= JOBS_MAX {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.start_threads()?;
        self.pending += 1;
        self.enqueue(Some(id), call);
        Ok(())
    }

    /// Closes a file on a thread, since closing may take long.
    pub(crate) fn close(&mut self, descriptor: i32) {
        if self.threads.is_empty() {
            super::handle::close_now(descriptor);
        } else {
            self.enqueue(None, Call::Close { descriptor });
        }
    }

    fn enqueue(&self, id: Option<OpId>, call: Call) {
        lock(&self.shared.jobs).queue.push_back((id, call));
        self.shared.arrived.notify_one();
    }

    fn start_threads(&mut self) -> io::Result<()> {
        while self.threads.len() < self.wanted {
            let shared = self.shared.clone();
            let name = format!("{}-file{}", self.name, self.threads.len());
            match std::thread::Builder::new().name(name).spawn(move || {
                crate::start::unpin();
                work(&shared);
            }) {
                Ok(thread) => self.threads.push(thread),
                Err(_) if !self.threads.is_empty() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands over the results that have arrived.
    pub(crate) fn collect(&mut self, mut take: impl FnMut(OpId, io::Result<Output>)) {
        if self.pending == 0 {
            return;
        }
        std::mem::swap(&mut self.arrived, &mut *lock(&self.shared.results));
        for (id, result) in self.arrived.drain(..) {
            self.pending -= 1;
            take(id, result.map(to_output));
        }
    }
}

impl Drop for FileThreads {
    fn drop(&mut self) {
        lock(&self.shared.jobs).stop = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A helper catches its panics; joining fails only if that failed, and then there is nothing to
            // free.
            let _ = thread.join();
        }
    }
}

fn to_output(raw: Raw) -> Output {
    match raw {
        Raw::Done => Output::Done,
        Raw::Number(number) => Output::Number(number),
        Raw::File { descriptor, direct, read_alignment, device } => {
            let handle = Handle::new(descriptor.into_raw_fd(), HandleKind::File);
            Output::File { handle, direct, read_alignment, device }
        }
        Raw::Entries(entries) => Output::Entries(entries),
        Raw::Ancestry(places) => Output::Ancestry(places),
    }
}

fn work(shared: &Shared) {
    loop {
        let (id, call) = {
            let mut jobs = lock(&shared.jobs);
            loop {
                if let Some(job) = jobs.queue.pop_front() {
                    break job;
                }
                if jobs.stop {
                    return;
                }
                jobs = shared.arrived.wait(jobs).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        };
        let result = catch_unwind(AssertUnwindSafe(|| perform(call)))
            .unwrap_or_else(|panic| Err(io::Error::other(crate::task::panic_message(&*panic))));
        if let Some(id) = id {
            lock(&shared.results).push((id, result));
            shared.remote.notify();
        }
    }
}

fn borrow<'any>(descriptor: i32) -> BorrowedFd<'any> {
    // SAFETY: the operation in the driver's table holds the descriptor open until this job's result is back.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

fn perform(call: Call) -> io::Result<Raw> {
    match call {
        Call::Read { descriptor, offset, span } => {
            let offset = signed(offset)?;
            // SAFETY: see `Span`: the memory is the driver's until the result is back.
            let count = unsafe { libc::pread(descriptor, span.start.cast(), span.len, offset) };
            counted(count)
        }
        Call::Write { descriptor, offset, span } => {
            let offset = signed(offset)?;
            // SAFETY: see `Span`: the memory is the driver's until the result is back.
            let count = unsafe { libc::pwrite(descriptor, span.start.cast(), span.len, offset) };
            counted(count)
        }
        Call::Sync { descriptor, data_only: true } => {
            rustix::fs::fdatasync(borrow(descriptor))?;
            Ok(Raw::Done)
        }
        Call::Sync { descriptor, data_only: false } => {
            rustix::fs::fsync(borrow(descriptor))?;
            Ok(Raw::Done)
        }
        Call::Writeback { descriptor, offset, len } => {
            // SAFETY: the descriptor is held open as for `borrow`, and the call touches no memory of ours.
            let result = unsafe {
                libc::sync_file_range(descriptor, signed(offset)?, len.into(), libc::SYNC_FILE_RANGE_WRITE)
            };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Raw::Done) }
        }
        Call::Allocate { descriptor, offset, len } => {
            rustix::fs::fallocate(borrow(descriptor), rustix::fs::FallocateFlags::empty(), offset, len)?;
            Ok(Raw::Done)
        }
        Call::Truncate { descriptor, len } => {
            rustix::fs::ftruncate(borrow(descriptor), len)?;
            Ok(Raw::Done)
        }
        Call::Size { descriptor } => {
            let stat = rustix::fs::fstat(borrow(descriptor))?;
            Ok(Raw::Number(u64::try_from(stat.st_size).unwrap_or(0)))
        }
        Call::Close { descriptor } => {
            super::handle::close_now(descriptor);
            Ok(Raw::Done)
        }
        Call::Path(op) => perform_path(op),
    }
}

fn signed(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn counted(count: isize) -> io::Result<Raw> {
    if count < 0 { Err(io::Error::last_os_error()) } else { Ok(Raw::Number(count as u64)) }
}

fn perform_path(op: PathOp) -> io::Result<Raw> {
    match op {
        PathOp::Open(path, options) => open(&path, options),
        PathOp::Rename(from, to) => fs::rename(from, to).map(|()| Raw::Done),
        PathOp::RemoveFile(path) => fs::remove_file(path).map(|()| Raw::Done),
        PathOp::CreateDirAll(path) => fs::create_dir_all(path).map(|()| Raw::Done),
        PathOp::RemoveDirAll(path) => fs::remove_dir_all(path).map(|()| Raw::Done),
        PathOp::RemoveDir(path) => fs::remove_dir(path).map(|()| Raw::Done),
        PathOp::HardLink(from, to) => {
            use rustix::fs::{AtFlags, CWD, linkat};
            linkat(CWD, &from, CWD, &to, AtFlags::SYMLINK_FOLLOW)?;
            Ok(Raw::Done)
        }
        PathOp::SyncDir(path) => {
            // Anything but a directory fails at once: to open a FIFO would wait for its other end.
            let directory = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)?;
            directory.sync_all().map(|()| Raw::Done)
        }
        PathOp::ReadDir(path) => read_dir(&path),
        PathOp::MetadataSize(path) => fs::metadata(path).map(|metadata| Raw::Number(metadata.len())),
        PathOp::AvailableSpace(path) => {
            let stat = rustix::fs::statvfs(&path)?;
            Ok(Raw::Number(stat.f_bavail.saturating_mul(stat.f_frsize)))
        }
        PathOp::Ancestry(path) => ancestry(&path),
        PathOp::Lock(path) => lock_file(&path),
    }
}

fn open(path: &Path, options: OpenOptions) -> io::Result<Raw> {
    let mut open = fs::OpenOptions::new();
    open.read(options.read).write(options.write);
    open.create(options.create).create_new(options.create_new).truncate(options.truncate);
    if options.direct {
        match open_regular(path, &open, libc::O_DIRECT) {
            Ok(file) => {
                let read_alignment = if options.read { read_alignment(&file) } else { ALIGNMENT as u32 };
                return opened(file, true, read_alignment);
            }
            // The file system has no direct I/O (tmpfs, some overlays). With `create_new` the file may be
            // there now.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                if options.create_new && fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0) {
                    open.create_new(false).create(true);
                }
            }
            Err(error) => return Err(error),
        }
    }
    opened(open_regular(path, &open, 0)?, false, SECTOR_BYTES)
}

/// Opens a regular file, or returns an error that names the other kind of file; never waits for the other end
/// of a FIFO.
///
/// # Errors
/// As open(2); `InvalidInput` if the name is not that of a regular file.
fn open_regular(path: &Path, options: &fs::OpenOptions, flags: i32) -> io::Result<fs::File> {
    let file = options.clone().custom_flags(flags | libc::O_NONBLOCK).open(path).map_err(|error| {
        // The codes of open(2) for a directory opened for writing, and for a FIFO or socket without another
        // end.
        let is_other = matches!(error.raw_os_error(), Some(libc::EISDIR | libc::ENXIO));
        let kind = fs::metadata(path).ok().filter(|_| is_other).map(|metadata| metadata.file_type());
        kind.and_then(not_regular).unwrap_or(error)
    })?;
    if let Some(error) = not_regular(file.metadata()?.file_type()) {
        return Err(error);
    }
    // With this flag io_uring would fail requests that it otherwise lets wait.
    let marked = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, marked - rustix::fs::OFlags::NONBLOCK)?;
    Ok(file)
}

/// The error for opening a file that is not regular.
fn not_regular(kind: fs::FileType) -> Option<io::Error> {
    let found = match kind {
        _ if kind.is_file() => return None,
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO (named pipe)",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_block_device() => "a block device",
        _ if kind.is_char_device() => "a character device",
        _ => "of an unknown kind",
    };
    Some(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {found}, where a regular file has to be: move it away or put the file back"),
    ))
}

/// The whole text of a small file, read on the calling thread: for the time before any shard runs.
///
/// # Errors
/// As open(2) and read(2); `InvalidInput` if the name is not that of a regular file; `FileTooLarge` beyond
/// `bytes_max`; `InvalidData` if the text is not UTF-8.
pub fn read_text_now(path: &Path, bytes_max: u64) -> io::Result<String> {
    let file = open_regular(path, fs::OpenOptions::new().read(true), 0)?;
    let mut text = String::new();
    file.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn opened(file: fs::File, direct: bool, read_alignment: u32) -> io::Result<Raw> {
    let device = rustix::fs::fstat(&file)?.st_dev;
    Ok(Raw::File { descriptor: file.into(), direct, read_alignment, device })
}

/// Direct reads of a file have to be multiples of this: usually the device's logical block, if the kernel
/// (6.1 and later) and the file system report it; otherwise a page, which every device accepts.
fn read_alignment(file: &fs::File) -> u32 {
    let page = ALIGNMENT as u32;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
        let told = told.filter(|stat| {
            stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_mem_align <= page
        });
        if let Some(stat) = told
            && stat.stx_dio_offset_align.is_power_of_two()
        {
            return stat.stx_dio_offset_align.clamp(SECTOR_BYTES, page);
        }
    }
    let _ = file;
    page
}

fn read_dir(path: &Path) -> io::Result<Raw> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // A symbolic link counts as the file it leads to; a broken one is listed as well.
        match fs::metadata(entry.path()).or_else(|_| entry.metadata()) {
            Ok(metadata) => {
                entries.push(DirEntry { name, is_dir: metadata.is_dir(), size: metadata.len() });
            }
            // Removed between the listing and the question: it is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    entries.sort();
    Ok(Raw::Entries(entries))
}

fn ancestry(path: &Path) -> io::Result<Raw> {
    let path = fs::canonicalize(path)?;
    let place = |path: &Path| {
        let metadata = fs::metadata(path)?;
        let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
        Ok(Place { path: path.to_owned(), identity })
    };
    path.ancestors().map(place).collect::<io::Result<_>>().map(Raw::Ancestry)
}

fn lock_file(path: &Path) -> io::Result<Raw> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = open_regular(path, &options, 0)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    debug_assert!(file.as_raw_fd() >= 0);
    opened(file, false, SECTOR_BYTES)
}
