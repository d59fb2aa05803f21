//! The interface to the outside world: one narrow trait, three implementations.
//!
//! A driver takes operations by value, including buffers and handles, and returns each in exactly one
//! [`Completion`]. Until then the memory belongs to the driver, even if the future that requested it is gone:
//! this makes dropping a future safe. Between `poll` calls a driver touches nothing. Invariant: for every
//! `submit` that returned `None` there is one completion, also after `cancel`. `op` relies on it to free
//! slots; `file` and `net` give the operations their names.

pub(crate) mod ambient;
pub(crate) mod blocking;
pub(crate) mod chunk;
pub(crate) mod handle;
pub(crate) mod poll;
pub mod sim;
pub(crate) mod socket;
pub(crate) mod uring;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::task::{Poll, Waker};

pub use blocking::read_text_now;
pub use chunk::RecvChunk;
pub use handle::{Handle, HandleKind};

use crate::file::{AlignedBuf, DirEntry, OpenOptions, Place};
use crate::sched::{GROUPS, Group};
use crate::time::Instant;

/// Names one operation in flight: slot in the low half, generation in the high half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(u64);

impl OpId {
    /// Generations wrap here, so that two bits of an id stay free for the io_uring driver.
    pub(crate) const GENERATION_MASK: u32 = (1 << 30) - 1;

    pub(crate) fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    /// Number of the slot; small and dense, unique among the operations in flight.
    pub fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The whole as one number, below 2^62.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// An operation, with all it needs.
#[derive(Debug)]
pub enum Op {
    /// Reads into `buf[at..len]` from `offset + at`. Output: count of bytes, 0 at the end of the file.
    Read {
        /// The source.
        file: Handle,
        /// Position in the file of the buffer's first byte.
        offset: u64,
        /// The destination.
        buf: AlignedBuf,
        /// Bytes of the buffer that are already read.
        at: usize,
    },
    /// Writes `buf[at..len]` to `offset + at`. Output: count of bytes.
    Write {
        /// The destination.
        file: Handle,
        /// Position in the file of the buffer's first byte.
        offset: u64,
        /// The bytes to be written.
        buf: AlignedBuf,
        /// Bytes of the buffer that are already written.
        at: usize,
    },
    /// Makes written data durable; with `data_only`, only the metadata needed for reading.
    Sync {
        /// The file.
        file: Handle,
        /// fdatasync rather than fsync.
        data_only: bool,
    },
    /// Makes the kernel begin to write `len` dirty bytes of its page cache; makes nothing durable.
    Writeback {
        /// The file.
        file: Handle,
        /// Position of the first byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Reserves space for `len` bytes from `offset`, and makes the file reach that far at least.
    Allocate {
        /// Which file.
        file: Handle,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Sets the length.
    Truncate {
        /// The file.
        file: Handle,
        /// Bytes.
        len: u64,
    },
    /// Asks for the length. Output: number.
    Size {
        /// Which file.
        file: Handle,
    },
    /// An operation on names.
    Path(Box<PathOp>),
    /// Waits for a connection. Output: connection.
    Accept {
        /// The listening socket.
        socket: Handle,
    },
    /// Opens a connection. Output: connection.
    Connect {
        /// The address of this end; the system chooses one without it.
        from: Option<IpAddr>,
        /// To whom.
        peer: SocketAddr,
    },
    /// Sends `buf[at..]`, all of it. Output: the position up to which the buffer is sent.
    Send {
        /// To whom.
        socket: Handle,
        /// The bytes to be sent.
        buf: Vec<u8>,
        /// Bytes already sent.
        at: usize,
    },
}

impl Op {
    /// Whether dropping the future stops the operation; operations that change the disk always run to their
    /// end.
    pub fn is_cancellable(&self) -> bool {
        matches!(self, Op::Read { .. } | Op::Accept { .. } | Op::Connect { .. } | Op::Send { .. })
    }

    /// Payload bytes, for accounting.
    pub fn bytes(&self) -> usize {
        match self {
            Op::Read { buf, at, .. } | Op::Write { buf, at, .. } => buf.len() - at,
            Op::Send { buf, at, .. } => buf.len() - at,
            _ => 0,
        }
    }
}

/// An operation on names in the file system.
#[derive(Debug, Clone)]
pub enum PathOp {
    /// Opens a file. Output: file.
    Open(PathBuf, OpenOptions),
    /// Renames a file, replacing one that has the new name.
    Rename(PathBuf, PathBuf),
    /// Removes a file's name.
    RemoveFile(PathBuf),
    /// Creates a directory and its parents.
    CreateDirAll(PathBuf),
    /// Removes a directory with all it holds.
    RemoveDirAll(PathBuf),
    /// Removes an empty directory.
    RemoveDir(PathBuf),
    /// Gives a file a second name.
    HardLink(PathBuf, PathBuf),
    /// Makes a directory's entries durable.
    SyncDir(PathBuf),
    /// Lists a directory, sorted by name. Output: entries.
    ReadDir(PathBuf),
    /// Asks for a file's length. Output: number.
    MetadataSize(PathBuf),
    /// Asks for the bytes an unprivileged user may still write there. Output: number.
    AvailableSpace(PathBuf),
    /// Follows symbolic links, and returns the identities of the place and of each folder above it.
    /// Output: ancestry.
    Ancestry(PathBuf),
    /// Opens or creates a file and takes its exclusive lock; fails if the lock is taken. Output: file.
    Lock(PathBuf),
}

/// A connected socket.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub handle: Handle,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
}

/// The result of an operation. Small, because every completion is moved several times: rare results are
/// boxed.
#[derive(Debug)]
pub enum Output {
    /// Success without a value.
    Done,
    /// A count of bytes or a size.
    Number(u64),
    /// An open file; `direct` if it bypasses the page cache.
    File {
        /// The file.
        handle: Handle,
        /// Whether O_DIRECT was granted.
        direct: bool,
        /// Offsets and lengths of reads have to be multiples of this, in bytes: at most
        /// [`crate::file::ALIGNMENT`].
        read_alignment: u32,
        /// The number of its device, as by stat(2); 0 under simulation.
        device: u64,
    },
    /// A directory's contents.
    Entries(Vec<DirEntry>),
    /// A place and the folders above it, innermost first.
    Ancestry(Vec<Place>),
    /// A connection.
    Connection(Box<Connection>),
}

/// An operation that is over, given back with its buffers.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub id: OpId,
    /// The submitted operation.
    pub op: Op,
    /// Its result.
    pub result: io::Result<Output>,
}

/// How long `poll` may sleep for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until then.
    Until(Instant),
    /// Until something happens.
    Forever,
}

/// An operation given back with its result.
pub type Finished = (Op, io::Result<Output>);

/// The results of `poll`.
#[derive(Debug, Default)]
pub struct Harvest {
    /// Operations that are over.
    pub completions: Vec<Completion>,
    /// Wakers of readers whose connections have bytes now.
    pub wakes: Vec<Waker>,
    /// Kernel time per scheduling group, for the groups whose operations were submitted in this call.
    pub charges_ns: [u64; GROUPS],
}

impl Harvest {
    /// Moves `done` in; exchanges the vectors if possible.
    pub(crate) fn take(&mut self, done: &mut Vec<Completion>) {
        if self.completions.is_empty() {
            std::mem::swap(&mut self.completions, done);
        } else {
            self.completions.append(done);
        }
    }
}

/// How a listener is set up.
#[derive(Debug, Clone, Copy)]
pub struct ListenOptions {
    /// Several shards bind the same address and the kernel spreads connections.
    pub reuse_port: bool,
    /// Connections that the kernel queues for `accept`.
    pub backlog: u32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { reuse_port: false, backlog: 1024 }
    }
}

/// One shard's way to clock, chance, disk and network.
pub trait Driver {
    /// Name for logs: `uring`, `poll`, `sim`.
    fn name(&self) -> &'static str;

    /// Nanoseconds on the monotonic clock.
    fn now(&self) -> Instant;

    /// Microseconds since the Unix epoch.
    fn wall_clock_us(&self) -> i64;

    /// 64 random bits; from the seed under simulation.
    fn entropy(&mut self) -> u64;

    /// Starts an operation. `Some` if it was over at once: then there will be no completion.
    ///
    /// # Errors
    /// It never panics: an operation that cannot be started is returned with its error.
    fn submit(&mut self, id: OpId, op: Op, group: Group) -> Option<Finished>;

    /// Requests an early end; the completion still comes, with `ECANCELED` or with the result if that was
    /// quicker.
    fn cancel(&mut self, id: OpId);

    /// Hands submissions that are still queued to the kernel, without waiting.
    fn flush(&mut self, harvest: &mut Harvest);

    /// Submits, collects completions, and sleeps for them if `wait` allows.
    fn poll(&mut self, wait: Wait, harvest: &mut Harvest);

    /// Whether completions are known to be pending; one memory load.
    fn completions_pending(&self) -> bool;

    /// Opens a listening socket.
    ///
    /// # Errors
    /// As the socket calls: address in use, not available, no permission.
    fn listen(&mut self, address: SocketAddr, options: ListenOptions) -> io::Result<(Handle, SocketAddr)>;

    /// Bytes of a connection that have arrived, or `None` once the peer has ended its side in order. If there
    /// is neither, `waker` is registered for the reader, replacing an earlier one, and comes back once in
    /// [`Harvest::wakes`].
    ///
    /// This is not an operation: ten thousand connections wait like this, and each request begins so.
    fn poll_recv(
        &mut self,
        socket: &Handle,
        waker: &Waker,
        group: Group,
    ) -> Poll<io::Result<Option<RecvChunk>>>;

    /// Ends a connection in both directions; pending operations on it complete.
    fn shutdown(&mut self, socket: &Handle);

    /// Takes over a socket that another shard of this process detached.
    ///
    /// # Errors
    /// When the kernel refuses to watch it.
    fn adopt(&mut self, socket: &Handle) -> io::Result<()>;

    /// Gives up a socket without closing it.
    fn release(&mut self, socket: &Handle);

    /// Closes a descriptor that is not referred to any more.
    fn close(&mut self, descriptor: i32, kind: HandleKind);

    /// A choice of the scheduler, for drivers that want to make it; `None` leaves it to the shares.
    fn choose(&mut self, _alternatives: u32) -> Option<u32> {
        None
    }

    /// Longest slice of a background group, for drivers that cannot cheaply check for pending completions.
    fn background_slice_ns(&self) -> u64 {
        crate::sched::QUANTUM_NS
    }

    /// Virtual cost of one poll of a task; `None` if real time is measured.
    fn poll_cost_ns(&self) -> Option<u64> {
        None
    }

    /// Takes one log line instead of standard error; returns true if it did.
    fn log_line(&mut self, _line: &str) -> bool {
        false
    }
}
