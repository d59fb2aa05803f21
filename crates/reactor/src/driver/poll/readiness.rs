//! Readiness of sockets by epoll, edge-triggered, with the shard's eventfd among them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::epoll;

/// A socket that may now be read or written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) descriptor: i32,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

pub(super) struct Readiness {
    epoll: OwnedFd,
    wake: RawFd,
    events: Vec<epoll::Event>,
}

fn borrow<'any>(descriptor: RawFd) -> BorrowedFd<'any> {
    // SAFETY: the driver's caller keeps the descriptor open during the call.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

impl Readiness {
    /// Watches `wake`, an eventfd, beside the sockets.
    pub(super) fn new(wake: RawFd) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(wake as u64);
        epoll::add(&epoll, borrow(wake), data, epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake, events: Vec::new() })
    }

    pub(super) fn add(&self, descriptor: i32) -> io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(descriptor as u64);
        Ok(epoll::add(&self.epoll, borrow(descriptor), data, flags)?)
    }

    pub(super) fn remove(&self, descriptor: i32) {
        // It may never have been added; then there is nothing to remove.
        let _ = epoll::delete(&self.epoll, borrow(descriptor));
    }

    /// Waits `timeout_ns` (for ever if `None`) for at most `limit` sockets.
    pub(super) fn wait(&mut self, timeout_ns: Option<u64>, limit: usize, ready: &mut Vec<Ready>) {
        self.events.clear();
        self.events.reserve(limit);
        let timeout = timeout_ns.map(|ns| rustix::time::Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        let waited =
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref());
        match waited {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return,
            // The descriptor is ours and the arguments are valid.
            Err(error) => panic!("epoll_wait on {:?}: {error}", self.epoll.as_fd().as_raw_fd()),
        }
        for event in &self.events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == self.wake as u64 {
                let mut count = [0; 8];
                // Empty already: then the signal is one we have seen.
                let _ = rustix::io::read(borrow(self.wake), &mut count);
                continue;
            }
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            ready.push(Ready {
                descriptor: data as i32,
                readable: failed || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
                writable: failed || flags.contains(epoll::EventFlags::OUT),
            });
        }
    }
}
