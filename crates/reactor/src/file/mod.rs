//! Files: aligned buffers by value, direct I/O, and the names of the file system.
//!
//! An operation takes its buffer and returns it. Dropping the future leaves both with the driver until the
//! kernel is done. Reads are cancelled then; operations that change the disk run to their end. A path
//! operation is durable only after `sync_dir` of the directory that has the name.

pub(crate) mod buffer;
mod names;

use std::cell::Cell;
use std::io;
use std::path::Path;

pub use buffer::{ALIGNMENT, AlignedBuf, AlignedBytes, RangeBuf, aligned_bytes, forget_most_aligned_bytes};
pub use names::{
    DirEntry, FileIdentity, LockedFile, Place, ancestry, available_space, create_dir_all, exists, hard_link,
    lock, metadata_size, read_all, read_dir, remove_dir, remove_dir_all, remove_file, rename, sync_dir,
    write_all_atomic,
};

pub use crate::driver::read_text_now;
use crate::driver::{Handle, Op, Output, PathOp};
use crate::op::OpFuture;
use crate::sched::{GROUPS, Group};
use crate::shard;

/// Most bytes that one call may read or write: offsets and lengths may come from damaged files, and memory is
/// finite.
pub const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// Options for opening a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) direct: bool,
}

impl OpenOptions {
    /// Nothing set.
    pub const fn new() -> Self {
        Self { read: false, write: false, create: false, create_new: false, truncate: false, direct: false }
    }

    /// For reading.
    #[must_use]
    pub const fn read(mut self, yes: bool) -> Self {
        self.read = yes;
        self
    }

    /// For writing.
    #[must_use]
    pub const fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// Creates the file if it does not exist.
    #[must_use]
    pub const fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Creates the file and fails if there is one.
    #[must_use]
    pub const fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Empties the file.
    #[must_use]
    pub const fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Bypasses the page cache if the file system supports it; offsets and lengths of writes are then
    /// multiples of 4096, those of reads of [`File::read_alignment`].
    #[must_use]
    pub const fn direct(mut self, yes: bool) -> Self {
        self.direct = yes;
        self
    }
}

/// Operations and bytes this shard has sent to the disk, per scheduling group.
pub(crate) struct DiskCounters {
    operations: [Cell<u64>; GROUPS],
    bytes: [Cell<u64>; GROUPS],
    /// Syncs of files, and of directories.
    syncs: [Cell<u64>; 2],
    /// Whether the log has the message that a file system refuses direct I/O.
    told_buffered: Cell<bool>,
}

impl DiskCounters {
    pub(crate) fn new() -> Self {
        Self {
            operations: std::array::from_fn(|_| Cell::new(0)),
            bytes: std::array::from_fn(|_| Cell::new(0)),
            syncs: std::array::from_fn(|_| Cell::new(0)),
            told_buffered: Cell::new(false),
        }
    }

    pub(crate) fn count(&self, group: Group, op: &Op) {
        if matches!(op, Op::Sync { .. }) {
            self.syncs[0].set(self.syncs[0].get() + 1);
        }
        if matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Sync { .. }) {
            let number = group.0 as usize;
            self.operations[number].set(self.operations[number].get() + 1);
            self.bytes[number].set(self.bytes[number].get() + op.bytes() as u64);
        }
    }

    /// Counts a sync of a directory, which no group is charged for.
    fn count_directory(&self) {
        self.syncs[1].set(self.syncs[1].get() + 1);
    }
}

/// Reads, writes and syncs this shard has asked for on behalf of `group`, and the bytes of the first two.
pub fn disk_usage(group: Group) -> (u64, u64) {
    let number = group.0 as usize;
    shard::with(|shard| (shard.disk.operations[number].get(), shard.disk.bytes[number].get()))
}

/// Syncs this shard has asked the disk for: of files, and of directories.
pub fn syncs() -> (u64, u64) {
    shard::with(|shard| (shard.disk.syncs[0].get(), shard.disk.syncs[1].get()))
}

fn unexpected(output: &Output) -> io::Error {
    io::Error::other(format!("the driver answered with {output:?}"))
}

async fn run(op: Op) -> (Op, io::Result<Output>) {
    OpFuture::new(op).await
}

async fn run_path(op: PathOp) -> io::Result<Output> {
    run(Op::Path(Box::new(op))).await.1
}

/// An open file. Clones are the same file; it closes when the last one and the last operation are gone.
#[derive(Debug, Clone)]
pub struct File {
    handle: Handle,
    direct: bool,
    read_alignment: u32,
}

impl File {
    /// Opens a regular file. If the file system refuses direct I/O the file is buffered; the shard's first
    /// such file is logged.
    ///
    /// # Errors
    /// As open(2); for a directory, FIFO, socket or device, an error that names its kind.
    pub async fn open(path: impl AsRef<Path>, options: OpenOptions) -> io::Result<File> {
        match run_path(PathOp::Open(path.as_ref().to_owned(), options)).await? {
            Output::File { handle, direct, read_alignment, device } => {
                handle.set_disk(shard::with(|shard| shard.io.borrow().disk_of(device)));
                let first =
                    options.direct && !direct && shard::with(|shard| !shard.disk.told_buffered.replace(true));
                if first {
                    crate::info!("direct I/O is refused here, using the page cache"; path = path.as_ref().display());
                }
                Ok(File { handle, direct, read_alignment })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Offsets and lengths of direct reads are multiples of this, in bytes: 4096 or a power of two below it.
    pub fn read_alignment(&self) -> usize {
        self.read_alignment as usize
    }

    /// Reads `len` bytes at `offset`, fewer at the end of the file. Direct files: both multiples of
    /// [`File::read_alignment`].
    ///
    /// # Errors
    /// As pread(2); `InvalidInput` when a direct read is not aligned, or longer than [`TRANSFER_BYTES_MAX`].
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        self.check(offset, len, self.read_alignment())?;
        let mut buf = AlignedBuf::with_len(len);
        let piece = self.piece_bytes(true);
        let mut at = 0;
        // Each round reads at least one byte or ends.
        while at < len {
            buf.set_len(len.min(at + piece));
            let (op, result) = run(Op::Read { file: self.handle.clone(), offset, buf, at }).await;
            let Op::Read { buf: back, .. } = op else { panic!("the driver gave back another operation") };
            buf = back;
            match result? {
                Output::Number(0) => break,
                Output::Number(count) => at += (count as usize).min(len - at),
                other => return Err(unexpected(&other)),
            }
            if self.direct && !at.is_multiple_of(self.read_alignment()) {
                break; // a direct read stops short of alignment only at the end of the file
            }
        }
        buf.set_len(at);
        Ok(buf)
    }

    /// Reads exactly `offset..offset + len`, cut at the end of the file, whatever the alignment.
    ///
    /// # Errors
    /// As pread(2).
    pub async fn read_range(&self, offset: u64, len: usize) -> io::Result<RangeBuf> {
        let alignment = self.read_alignment();
        let start = offset - offset % alignment as u64;
        let skip = (offset - start) as usize;
        let whole = skip
            .checked_add(len)
            .and_then(|end| end.checked_next_multiple_of(alignment))
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let buf = self.read_at(start, whole).await?;
        Ok(RangeBuf::new(buf, skip, skip + len))
    }

    /// Writes the whole buffer at `offset`, and gives it back. Direct files: both multiples of 4096.
    ///
    /// # Errors
    /// As pwrite(2); some of the bytes may then be written.
    pub async fn write_at(&self, offset: u64, buf: AlignedBuf) -> (io::Result<()>, AlignedBuf) {
        if let Err(error) = self.check(offset, buf.len(), ALIGNMENT) {
            return (Err(error), buf);
        }
        let len = buf.len();
        let piece = self.piece_bytes(false);
        let mut buf = buf;
        let mut at = 0;
        // Each round writes at least one byte or ends.
        while at < len {
            buf.set_len(len.min(at + piece));
            let (op, result) = run(Op::Write { file: self.handle.clone(), offset, buf, at }).await;
            let Op::Write { buf: back, .. } = op else { panic!("the driver gave back another operation") };
            buf = back;
            buf.set_len(len);
            match result {
                Ok(Output::Number(0)) => return (Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(Output::Number(count)) => at += (count as usize).min(len - at),
                Ok(other) => return (Err(unexpected(&other)), buf),
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Makes written bytes durable, with the metadata needed to read them.
    ///
    /// # Errors
    /// As fdatasync(2). A second attempt may then succeed without the data being on the disk.
    pub async fn fdatasync(&self) -> io::Result<()> {
        run(Op::Sync { file: self.handle.clone(), data_only: true }).await.1.map(drop)
    }

    /// Makes written bytes and all metadata durable.
    ///
    /// # Errors
    /// As fsync(2).
    pub async fn sync_all(&self) -> io::Result<()> {
        run(Op::Sync { file: self.handle.clone(), data_only: false }).await.1.map(drop)
    }

    /// Makes the kernel begin to write `len` bytes from `offset` on of a buffered file's cached data, and
    /// does not wait for the disk. This makes nothing durable; errors are reported by the next
    /// [`File::fdatasync`].
    ///
    /// # Errors
    /// As sync_file_range(2).
    pub async fn start_writeback(&self, offset: u64, len: u32) -> io::Result<()> {
        run(Op::Writeback { file: self.handle.clone(), offset, len }).await.1.map(drop)
    }

    /// Reserves space for `len` bytes from `offset`; the file then reaches that far at least, and reads zeros
    /// there.
    ///
    /// # Errors
    /// As fallocate(2), `StorageFull` when there is no space.
    pub async fn fallocate(&self, offset: u64, len: u64) -> io::Result<()> {
        run(Op::Allocate { file: self.handle.clone(), offset, len }).await.1.map(drop)
    }

    /// Sets the length to `len` bytes.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        run(Op::Truncate { file: self.handle.clone(), len }).await.1.map(drop)
    }

    /// The length in bytes.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn size(&self) -> io::Result<u64> {
        match run(Op::Size { file: self.handle.clone() }).await.1? {
            Output::Number(size) => Ok(size),
            other => Err(unexpected(&other)),
        }
    }

    /// Drops this clone. Errors of written data are reported by `fdatasync`, not by closing.
    pub async fn close(self) {
        drop(self);
    }

    /// Bytes of one request, so that no other request waits behind a long one.
    fn piece_bytes(&self, read: bool) -> usize {
        shard::with(|shard| shard.io.borrow().disk(self.handle.disk()).piece_bytes(read))
    }

    fn check(&self, offset: u64, len: usize, alignment: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64);
        if len > TRANSFER_BYTES_MAX || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a transfer of {len} bytes at {offset}: at most {TRANSFER_BYTES_MAX} below 2^63"),
            ));
        }
        if self.direct && !(offset.is_multiple_of(alignment as u64) && len.is_multiple_of(alignment)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("direct I/O of {len} bytes at {offset}: both must be multiples of {alignment}"),
            ));
        }
        Ok(())
    }
}
