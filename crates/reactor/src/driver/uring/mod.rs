//! The production driver: io_uring, one ring per shard, one enter per turn of the loop.
//!
//! Reads, writes, syncs and sockets go through the ring. Operations on names go to a helper thread, as the
//! ring has no listing and no locking. Kernel time of an enter is charged to the groups whose submissions and
//! completions it handled: sends and receives run inside it, and without the charge a group's shares would
//! not hold. A peer wakes a sleeping shard through its eventfd, on which a poll is armed: measured equal to
//! MSG_RING, and it also works from threads that have no ring. Invariant: an operation's buffer and handle
//! stay in `flights` until its own completion.

mod buffers;
mod receive;
mod ring;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use io_uring::{cqueue, opcode, squeue, types};
use socket2::SockAddr;

use super::ambient::{Entropy, monotonic_ns, wall_us};
use super::blocking::FileThreads;
use super::chunk::{ChunkPool, RecvChunk};
use super::{
    Completion, Connection, Driver, Finished, Handle, HandleKind, Harvest, ListenOptions, Op, OpId, Output,
    Wait, socket,
};
use crate::sched::{GROUPS, Group};
use crate::time::Instant;
use crate::waker::Remote;
use buffers::BufferRing;
use receive::Place;
use ring::Ring;

/// User data: the two highest bits are the kind of completion; they are clear in operation ids.
const KIND_MASK: u64 = 3 << 62;
const RECEIVE: u64 = 1 << 62;
const IGNORED: u64 = 2 << 62;
const WAKE: u64 = 3 << 62;

/// Helper threads for names; there are few such calls.
const FILE_THREADS: usize = 1;
/// Bytes of one read or write request; longer ones take several.
const REQUEST_BYTES_MAX: usize = 1 << 30;
/// Most enters spent on getting back the kernel's buffers when the driver is dropped.
const DRAIN_TURNS_MAX: usize = 10_000;

/// An operation with the driver, and the data that only the kernel needs.
struct Flight {
    id: OpId,
    op: Op,
    group: Group,
    /// For a connect: the address in the kernel's form, at a stable place, and the socket.
    connect: Option<Box<(SockAddr, Handle)>>,
}

pub(crate) struct UringDriver {
    /// First, so that its threads have ended before the descriptors they work on can close.
    files: FileThreads,
    ring: Ring,
    /// By slot of the operation.
    flights: Vec<Option<Flight>>,
    /// By descriptor: connections that are read from.
    places: Vec<Place>,
    /// Buffers of single receives whose connection is gone.
    orphan_buffers: Vec<(u64, Vec<u8>)>,
    pool: Rc<ChunkPool<BufferRing>>,
    done: Vec<Completion>,
    /// Wakers of readers whose bytes have arrived.
    woken: Vec<Waker>,
    reaped: Vec<cqueue::Entry>,
    /// Submissions and completions of each group since the last enter.
    weights: [u64; GROUPS],
    /// Requests whose last completion has not arrived.
    outstanding: usize,
    wake: RawFd,
    entropy: Entropy,
}

impl UringDriver {
    /// # Errors
    /// When the kernel has no io_uring, forbids it (a seccomp profile), or is older than 6.0.
    pub(crate) fn new(name: String, remote: Arc<Remote>) -> io::Result<Self> {
        let wake = remote.eventfd().ok_or_else(|| io::Error::other("a shard without an eventfd"))?;
        let ring = Ring::new()?;
        let pool = buffers::register(ring.raw())?;
        let mut driver = Self {
            ring,
            flights: Vec::new(),
            places: Vec::new(),
            orphan_buffers: Vec::new(),
            pool,
            files: FileThreads::new(name, FILE_THREADS, remote),
            done: Vec::new(),
            woken: Vec::new(),
            reaped: Vec::new(),
            weights: [0; GROUPS],
            outstanding: 0,
            wake,
            entropy: Entropy::from_kernel(),
        };
        driver.arm_wake();
        Ok(driver)
    }

    fn push(&mut self, entry: squeue::Entry, group: Group) {
        self.outstanding += 1;
        self.weights[group.0 as usize] += 1;
        // SAFETY: what an operation points to is in its flight, and what a receive points to in its place or
        // among the orphans, until the completion; both are heap memory that moving the owner does not move.
        unsafe { self.ring.push(entry) };
    }

    fn arm_wake(&mut self) {
        let entry = opcode::PollAdd::new(types::Fd(self.wake), libc::POLLIN as u32).multi(true).build();
        self.push(entry.user_data(WAKE), Group::ADMIN);
    }

    fn keep(&mut self, flight: Flight) {
        let slot = flight.id.slot();
        if self.flights.len() <= slot {
            self.flights.resize_with(slot + 1, || None);
        }
        self.flights[slot] = Some(flight);
    }

    fn finish(&mut self, id: OpId, result: io::Result<Output>) {
        if let Some(flight) = self.flights.get_mut(id.slot()).and_then(Option::take) {
            assert_eq!(flight.id, id, "the kernel answered for another operation");
            self.weights[flight.group.0 as usize] += 1;
            self.done.push(Completion { id, op: flight.op, result });
        }
    }

    /// The ring's request for an operation; `None` for operations that go elsewhere.
    fn entry(op: &mut Op) -> io::Result<Option<squeue::Entry>> {
        Ok(Some(match op {
            Op::Read { file, offset, buf, at } => {
                let offset = *offset + *at as u64;
                let part = &mut buf[*at..];
                let len = part.len().min(REQUEST_BYTES_MAX) as u32;
                opcode::Read::new(types::Fd(file.descriptor()), part.as_mut_ptr(), len).offset(offset).build()
            }
            Op::Write { file, offset, buf, at } => {
                let offset = *offset + *at as u64;
                let part = &buf[*at..];
                let len = part.len().min(REQUEST_BYTES_MAX) as u32;
                opcode::Write::new(types::Fd(file.descriptor()), part.as_ptr(), len).offset(offset).build()
            }
            Op::Sync { file, data_only } => {
                let flags = if *data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
                opcode::Fsync::new(types::Fd(file.descriptor())).flags(flags).build()
            }
            Op::Writeback { file, offset, len } => {
                opcode::SyncFileRange::new(types::Fd(file.descriptor()), *len)
                    .offset(*offset)
                    .flags(libc::SYNC_FILE_RANGE_WRITE)
                    .build()
            }
            Op::Allocate { file, offset, len } => {
                opcode::Fallocate::new(types::Fd(file.descriptor()), *len).offset(*offset).build()
            }
            Op::Accept { socket } => {
                let fd = types::Fd(socket.descriptor());
                opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Op::Send { socket, buf, at } => {
                let part = &buf[*at..];
                let len = part.len().min(REQUEST_BYTES_MAX) as u32;
                opcode::Send::new(types::Fd(socket.descriptor()), part.as_ptr(), len)
                    .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                    .build()
            }
            Op::Truncate { .. } | Op::Size { .. } | Op::Path(_) | Op::Connect { .. } => return Ok(None),
        }))
    }

    fn start(&mut self, id: OpId, mut op: Op, group: Group) -> Option<Finished> {
        let mut connect = None;
        let started = match &mut op {
            Op::Connect { from, peer } => {
                self.start_connect(id, *from, *peer, group).map(|boxed| connect = Some(boxed))
            }
            Op::Truncate { .. } | Op::Size { .. } | Op::Path(_) => self.files.submit(id, &mut op),
            _ => Self::entry(&mut op).map(|entry| {
                if let Some(entry) = entry {
                    self.push(entry.user_data(id.bits()), group);
                }
            }),
        };
        if let Err(error) = started {
            return Some((op, Err(error)));
        }
        self.keep(Flight { id, op, group, connect });
        None
    }

    fn start_connect(
        &mut self,
        id: OpId,
        from: Option<IpAddr>,
        peer: SocketAddr,
        group: Group,
    ) -> io::Result<Box<(SockAddr, Handle)>> {
        let handle = socket::unconnected(from, peer, false)?;
        let boxed = Box::new((SockAddr::from(peer), handle));
        let fd = types::Fd(boxed.1.descriptor());
        let entry = opcode::Connect::new(fd, boxed.0.as_ptr().cast(), boxed.0.len()).build();
        self.push(entry.user_data(id.bits()), group);
        Ok(boxed)
    }

    /// Files the completion of an operation's own request.
    fn completed(&mut self, id: OpId, result: i32) {
        let Some(Some(flight)) = self.flights.get_mut(id.slot()) else { return };
        let outcome = if result < 0 {
            Err(io::Error::from_raw_os_error(-result))
        } else {
            match &flight.op {
                Op::Read { .. } | Op::Write { .. } => Ok(Output::Number(result as u64)),
                Op::Send { at, .. } => Ok(Output::Number(*at as u64 + result as u64)),
                Op::Accept { .. } => socket::accepted(result).map(|(handle, local, peer)| {
                    Output::Connection(Box::new(Connection { handle, local, peer }))
                }),
                Op::Connect { .. } => match flight.connect.take() {
                    Some(boxed) => socket::addresses(&boxed.1).map(|(local, peer)| {
                        Output::Connection(Box::new(Connection { handle: boxed.1, local, peer }))
                    }),
                    None => Err(io::ErrorKind::NotConnected.into()),
                },
                _ => Ok(Output::Done),
            }
        };
        let again = match (&outcome, &mut flight.op) {
            (Err(error), op @ Op::Accept { .. }) if socket::client_has_gone(error) => {
                Self::entry(op).ok().flatten().map(|entry| (entry, flight.group))
            }
            _ => None,
        };
        match again {
            Some((entry, group)) => self.push(entry.user_data(id.bits()), group),
            None => self.finish(id, outcome),
        }
    }

    fn reap(&mut self) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.reap(&mut reaped);
        for entry in reaped.drain(..) {
            let (data, result, flags) = (entry.user_data(), entry.result(), entry.flags());
            if !cqueue::more(flags) {
                self.outstanding -= 1;
            }
            match data & KIND_MASK {
                RECEIVE => self.received(data, result, flags),
                WAKE => {
                    let mut count = [0; 8];
                    // SAFETY: the remote, which outlives this driver, keeps the eventfd open.
                    let wake = unsafe { BorrowedFd::borrow_raw(self.wake) };
                    // Empty already: then the signal is one we have seen.
                    let _ = rustix::io::read(wake, &mut count);
                    if !cqueue::more(flags) {
                        self.arm_wake();
                    }
                }
                IGNORED => {}
                _ => self.completed(OpId::from_bits(data), result),
            }
        }
        self.reaped = reaped;
    }

    fn collect_files(&mut self) {
        let (flights, done) = (&mut self.flights, &mut self.done);
        self.files.collect(|id, result| {
            if let Some(flight) = flights.get_mut(id.slot()).and_then(Option::take) {
                assert_eq!(flight.id, id, "a file thread answered for another operation");
                done.push(Completion { id, op: flight.op, result });
            }
        });
    }

    /// Distributes `ns` over the groups by their submissions and completions in the batch.
    fn charge(&mut self, ns: u64, harvest: &mut Harvest) {
        let total: u64 = self.weights.iter().sum();
        for (weight, charge) in self.weights.iter_mut().zip(&mut harvest.charges_ns) {
            if *weight > 0 {
                *charge += ns * *weight / total;
                *weight = 0;
            }
        }
    }
}

impl Driver for UringDriver {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn now(&self) -> Instant {
        Instant(monotonic_ns())
    }

    fn wall_clock_us(&self) -> i64 {
        wall_us()
    }

    fn entropy(&mut self) -> u64 {
        self.entropy.next()
    }

    fn submit(&mut self, id: OpId, op: Op, group: Group) -> Option<Finished> {
        self.start(id, op, group)
    }

    fn cancel(&mut self, id: OpId) {
        let Some(Some(flight)) = self.flights.get(id.slot()) else { return };
        if flight.id != id {
            return;
        }
        let group = flight.group;
        if matches!(flight.op, Op::Read { .. } | Op::Accept { .. } | Op::Connect { .. } | Op::Send { .. }) {
            self.push(opcode::AsyncCancel::new(id.bits()).build().user_data(IGNORED), group);
        }
    }

    fn flush(&mut self, harvest: &mut Harvest) {
        if self.ring.queued() == 0 {
            return;
        }
        let begin = monotonic_ns();
        self.ring.submit();
        self.charge(monotonic_ns() - begin, harvest);
    }

    fn poll(&mut self, wait: Wait, harvest: &mut Harvest) {
        // Results that arrived while the shard was awake have no signal left to end its sleep: they are
        // collected before it.
        self.collect_files();
        let wait = if self.done.is_empty() { wait } else { Wait::No };
        let begin = monotonic_ns();
        self.ring.turn(wait);
        let spent = monotonic_ns() - begin;
        self.reap();
        self.collect_files();
        // The time of a sleep is not charged: while the shard sleeps no task could run.
        self.charge(if wait == Wait::No { spent } else { 0 }, harvest);
        harvest.take(&mut self.done);
        harvest.wakes.append(&mut self.woken);
    }

    fn completions_pending(&self) -> bool {
        !self.done.is_empty() || self.ring.pending()
    }

    fn listen(&mut self, address: SocketAddr, options: ListenOptions) -> io::Result<(Handle, SocketAddr)> {
        socket::listen(address, options, false)
    }

    fn poll_recv(
        &mut self,
        socket: &Handle,
        waker: &Waker,
        group: Group,
    ) -> Poll<io::Result<Option<RecvChunk>>> {
        self.receive(socket, waker, group)
    }

    fn shutdown(&mut self, socket: &Handle) {
        socket::shutdown(socket);
    }

    fn adopt(&mut self, socket: &Handle) -> io::Result<()> {
        socket::set_nonblocking(socket, false)
    }

    fn release(&mut self, socket: &Handle) {
        self.end_receiving(socket.descriptor() as usize);
    }

    fn close(&mut self, descriptor: i32, kind: HandleKind) {
        match kind {
            HandleKind::Socket => {
                self.end_receiving(descriptor as usize);
                super::handle::close_now(descriptor);
            }
            // Closing the last descriptor of a file without a name frees its space, which takes time in
            // proportion to its size.
            HandleKind::File => self.files.close(descriptor),
            HandleKind::SimFile | HandleKind::SimSocket => {}
        }
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        // The kernel must be done with every buffer before its memory is freed.
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        self.push(cancel.user_data(IGNORED), Group::ADMIN);
        for _ in 0..DRAIN_TURNS_MAX {
            if self.outstanding == 0 {
                break;
            }
            let soon = Instant(monotonic_ns() + 1_000_000);
            self.ring.turn(Wait::Until(soon));
            self.drain_for_drop();
        }
        if self.outstanding > 0 {
            // Losing memory is better than letting the kernel write into memory that is reused.
            std::mem::forget(std::mem::take(&mut self.flights));
            std::mem::forget(std::mem::take(&mut self.places));
            std::mem::forget(std::mem::take(&mut self.orphan_buffers));
            std::mem::forget(self.pool.clone());
            return;
        }
        // This fails only if the ring is gone, and then the buffers are not used any more.
        let _ = self.ring.raw().submitter().unregister_buf_ring(buffers::GROUP);
    }
}

impl UringDriver {
    fn drain_for_drop(&mut self) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.reap(&mut reaped);
        for entry in reaped.drain(..) {
            if !cqueue::more(entry.flags()) {
                self.outstanding -= 1;
            }
            if let Some(number) = cqueue::buffer_select(entry.flags()) {
                drop(RecvChunk::pooled(self.pool.clone(), number, 0));
            }
        }
        self.reaped = reaped;
    }
}
