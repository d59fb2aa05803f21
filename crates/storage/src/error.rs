//! Errors of storage, as facts; `server` turns them into protocol codes.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::TableId;
use model::mutation::MutationCorrupt;
use model::schema::ChangeError;

/// Why a request to storage failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// A file operation failed.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Rc<io::Error>,
    },
    /// The disk is full: writes fail until space returns, reads go on.
    #[error(
        "{path}: no space left on the device; drop or truncate tables, clear snapshots, or delete what is not the node's on that disk"
    )]
    DiskFull {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// Free space is below the mark: writes are refused until there is more, reads go on.
    #[error(
        "{}: the disk is nearly full ({free_bytes} bytes free, {free_bytes_min} have to be, for what memory holds and \
         by critical_disk_utilization_level): writes are refused until there is space; drop or truncate tables, or clear \
         snapshots", path.display()
    )]
    DiskNearlyFull {
        /// A folder on the disk.
        path: PathBuf,
        /// Bytes that are free.
        free_bytes: u64,
        /// Bytes that have to be free: for memtables, and for `critical_disk_utilization_level`.
        free_bytes_min: u64,
    },
    /// A compaction would need more space than there is: its files stay as they are.
    #[error(
        "{}: a compaction may need {needed_bytes} bytes, {room_bytes} can be had: it waits until there is space; drop or \
         truncate tables, or clear snapshots", path.display()
    )]
    NoRoomToCompact {
        /// The tablet's folder.
        path: PathBuf,
        /// Bytes it may write before its first input is removed.
        needed_bytes: u64,
        /// Bytes that are free and not kept for memtables.
        room_bytes: u64,
    },
    /// A flush of the commit log failed, and written entries may be lost; or writes were stopped because the
    /// disk failed. Nothing more is written until the process restarts.
    #[error("{path}: the disk failed the commit log; writing has stopped until a restart")]
    CommitlogDead {
        /// The segment.
        path: PathBuf,
    },
    /// The middle of the commit log is damaged.
    #[error(
        "{path}: the commit log is corrupt at offset {offset} ({reason}); restore the file, or start with \
         commitlog_replay_ignore_errors: true to go on without the damaged entries"
    )]
    CommitlogCorrupt {
        /// The segment.
        path: PathBuf,
        /// Offset of the damage.
        offset: u64,
        /// Why this is not a torn tail.
        reason: &'static str,
    },
    /// The log of schema changes is damaged before its end.
    #[error(
        "{path}: the schema log is corrupt at offset {offset} ({reason}); restore the file from a backup"
    )]
    SchemaLogCorrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the damage.
        offset: u64,
        /// The kind of damage.
        reason: String,
    },
    /// The control plane above this storage cannot say which schema was agreed upon.
    #[error("{0}")]
    ControlPlane(Rc<dyn std::error::Error>),
    /// The log of an earlier version's schema does not belong to what was agreed upon.
    #[error(
        "{}: this schema log of an earlier version was changed after this version took its schema over into {}. \
         Either remove the log, and its changes are lost, or remove that folder, and the changes that this \
         version made are lost", path.display(), group0.display()
    )]
    TwoSchemas {
        /// The schema log.
        path: PathBuf,
        /// The folder of group 0.
        group0: PathBuf,
    },
    /// The manifest is damaged.
    #[error("{}: the manifest is corrupt at offset {offset} ({reason}); restore the file from a backup", path.display())]
    ManifestCorrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the damage.
        offset: u64,
        /// The kind of damage.
        reason: String,
    },
    /// A start did not find files that must exist.
    #[error(
        "this node's data is not all there; missing:\n  {}\nPut it back (is every disk mounted? is there a backup?) and start \
         again. To go on without it, and lose for good what it held, start once with --accept-missing {token}",
        what.join("\n  ")
    )]
    Missing {
        /// Names of the missing things.
        what: Vec<String>,
        /// The token that accepts exactly this loss.
        token: String,
    },
    /// A table file is damaged; other files serve.
    #[error("{path}: corrupt table file: {reason}")]
    TableFileCorrupt {
        /// The file.
        path: PathBuf,
        /// The kind of damage.
        reason: String,
    },
    /// Table files cannot be taken in.
    #[error("{}: {reason}", path.display())]
    Import {
        /// Their folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A snapshot cannot be taken.
    #[error("snapshot {tag:?}: {reason}")]
    Snapshot {
        /// Its name.
        tag: String,
        /// The reason.
        reason: String,
    },
    /// A schema change that does not fit the present schema.
    #[error(transparent)]
    Schema(#[from] ChangeError),
    /// Bytes that are not a valid mutation.
    #[error(transparent)]
    Mutation(#[from] MutationCorrupt),
    /// A mutation whose positions do not have the table's shape.
    #[error("a mutation does not fit table {table}")]
    MutationMisfit {
        /// The table.
        table: TableId,
    },
    /// A mutation that is longer than allowed.
    #[error("a mutation of {bytes} bytes is larger than {bytes_max}")]
    MutationTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit: `max_mutation_size`, or half of `commitlog_segment_size`.
        bytes_max: usize,
    },
    /// The shard does not have such a table (any more).
    #[error("there is no table {table}")]
    UnknownTable {
        /// Its id.
        table: TableId,
    },
    /// The tablet belongs to another shard, or to another node.
    #[error(
        "shard {shard} was asked for tablet {tablet} of table {table}, which {}",
        owner.map_or_else(|| "this node does not have".to_owned(), |owner| format!("shard {owner} has"))
    )]
    WrongShard {
        /// The table.
        table: TableId,
        /// The number of the tablet.
        tablet: u32,
        /// This shard.
        shard: usize,
        /// The shard of this node that has it, as far as this shard was told; `None` if no shard has.
        owner: Option<usize>,
    },
    /// Memory for writes stayed full until the deadline.
    #[error("no memory for the write within its time: {used} of {limit} bytes are dirty")]
    Overloaded {
        /// Dirty bytes.
        used: usize,
        /// The limit.
        limit: usize,
    },
    /// Too many reads wait for the disk.
    #[error("too many reads wait for the disk on this shard: {waiting}")]
    TooManyReads {
        /// Number of waiting reads.
        waiting: usize,
    },
    /// The request was planned with another tenancy of the tablet: it was truncated, or left and came back.
    #[error("tablet {tablet} of table {table} is here since command {is}, and not since {planned}")]
    OtherTenancy {
        /// The table.
        table: TableId,
        /// The tablet's number.
        tablet: u32,
        /// The command of the tablet's present tenancy.
        is: u64,
        /// The command that the request names.
        planned: u64,
    },
    /// The commit log had no room until the deadline.
    #[error("the commit log had no room for the write within its time")]
    CommitlogTimedOut,
    /// The tablet stayed closed, by a truncation, a slow flush or a move between shards, until the deadline.
    #[error("a tablet of table {table} was closed for longer than the request may take")]
    TabletBusy {
        /// The table.
        table: TableId,
    },
    /// The shard stops.
    #[error("storage is draining")]
    Draining,
    /// The directory belongs to another cluster.
    #[error("{path}: the data belongs to cluster {found:?}, this node is configured for {configured:?}")]
    ClusterName {
        /// The identity file.
        path: PathBuf,
        /// The name in the file.
        found: String,
        /// The name in the configuration.
        configured: String,
    },
    /// The identity file is damaged.
    #[error("{path}: not an identity file: {reason}")]
    IdentityCorrupt {
        /// The file.
        path: PathBuf,
        /// The kind of damage.
        reason: &'static str,
    },
    /// Another shard failed or is gone.
    #[error("shard {shard}: {reason}")]
    Shard {
        /// The shard.
        shard: usize,
        /// The text of its error.
        reason: String,
    },
}

impl StorageError {
    /// An error of a file operation; a full disk gets its own kind.
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        let path = path.as_ref().to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { action, path, source: Rc::new(source) },
        }
    }

    /// As [`StorageError::io`], for `map_err`.
    pub fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::io(action, path, source)
    }
}
