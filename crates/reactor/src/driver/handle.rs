//! A descriptor that is closed when its last holder, including futures and the driver, drops it.
//!
//! Operations hold a clone, so that a descriptor's number cannot be reused while the kernel still works on
//! it. The closing itself is queued with the shard and done by the driver between polls of tasks.

use std::cell::Cell;
use std::rc::Rc;

use crate::shard;

/// Kinds of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleKind {
    /// A file of the operating system.
    File,
    /// A socket of the operating system.
    Socket,
    /// A file of a simulated node.
    SimFile,
    /// A socket of a simulated node.
    SimSocket,
}

#[derive(Debug)]
struct Inner {
    descriptor: i32,
    kind: HandleKind,
    owned: Cell<bool>,
    /// Number of the disk a file lies on; see [`crate::io`].
    disk: Cell<u8>,
}

/// A reference-counted descriptor of one shard.
#[derive(Debug, Clone)]
pub struct Handle(Rc<Inner>);

impl Handle {
    pub(crate) fn new(descriptor: i32, kind: HandleKind) -> Self {
        Self(Rc::new(Inner { descriptor, kind, owned: Cell::new(true), disk: Cell::new(0) }))
    }

    /// The number: a file descriptor, or a simulated node's own.
    pub fn descriptor(&self) -> i32 {
        self.0.descriptor
    }

    /// Its kind.
    pub fn kind(&self) -> HandleKind {
        self.0.kind
    }

    /// Number of its disk, for files.
    pub(crate) fn disk(&self) -> u8 {
        self.0.disk.get()
    }

    pub(crate) fn set_disk(&self, disk: u8) {
        self.0.disk.set(disk);
    }

    /// Gives up ownership: the descriptor stays open when the last clone is dropped.
    pub(crate) fn disown(&self) -> (i32, HandleKind) {
        self.0.owned.set(false);
        (self.0.descriptor, self.0.kind)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owned.get() {
            return;
        }
        let queued = shard::try_with(|shard| shard.close_later(self.descriptor, self.kind));
        if queued.is_none() && matches!(self.kind, HandleKind::File | HandleKind::Socket) {
            close_now(self.descriptor);
        }
    }
}

/// Closes a descriptor of the operating system.
pub(crate) fn close_now(descriptor: i32) {
    // SAFETY: called once per owned descriptor, by its last holder.
    unsafe { libc::close(descriptor) };
}
