//! The driver for kernels that refuse io_uring: readiness for sockets, helper threads for files.
//!
//! Sockets are tried first and watched only if they would block; edge-triggered, so a socket is registered
//! once in its life. `readiness` hides the kernel's interface (epoll here; kqueue has the same shape).
//! Invariant: a socket whose operation waits has been tried since the last edge, so no edge is missed.

mod readiness;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::ambient::{Entropy, monotonic_ns, wall_us};
use super::blocking::FileThreads;
use super::chunk::{ChunkPool, FreeList, RECV_BUFFER_BYTES, RecvChunk};
use super::{
    Completion, Connection, Driver, Finished, Handle, HandleKind, Harvest, ListenOptions, Op, OpId, Output,
    Wait, socket,
};
use crate::sched::Group;
use crate::time::Instant;
use crate::waker::Remote;
use readiness::{Readiness, Ready};

/// Helper threads for files: enough to keep a device busy, few enough not to disturb the shards.
const FILE_THREADS: usize = 4;
/// Sockets served per call before the shard's tasks run again.
const EVENTS_MAX: usize = 512;

/// Checking the readiness of sockets costs a system call, so background work is cut short by the clock
/// instead.
const BACKGROUND_SLICE_NS: u64 = 100_000;

/// The operations and readers that wait for one socket.
#[derive(Default)]
struct Watched {
    recv: Option<Waker>,
    send: Option<OpId>,
    connect: Option<OpId>,
    accepts: VecDeque<OpId>,
}

pub(crate) struct PollDriver {
    readiness: Readiness,
    files: FileThreads,
    /// The waiting operations, by slot.
    ops: Vec<Option<(OpId, Op)>>,
    /// By descriptor.
    watched: Vec<Option<Watched>>,
    /// Sockets being connected, by slot of the operation.
    connecting: Vec<Option<(OpId, Handle)>>,
    done: Vec<Completion>,
    woken: Vec<Waker>,
    pool: Rc<ChunkPool<FreeList>>,
    ready: Vec<Ready>,
    entropy: Entropy,
}

impl PollDriver {
    pub(crate) fn new(name: String, remote: Arc<Remote>) -> io::Result<Self> {
        let wake = remote.eventfd().ok_or_else(|| io::Error::other("a shard without an eventfd"))?;
        Ok(Self {
            readiness: Readiness::new(wake)?,
            files: FileThreads::new(name, FILE_THREADS, remote),
            ops: Vec::new(),
            watched: Vec::new(),
            connecting: Vec::new(),
            done: Vec::new(),
            woken: Vec::new(),
            pool: ChunkPool::new(FreeList::full()),
            ready: Vec::new(),
            entropy: Entropy::from_kernel(),
        })
    }

    fn watch(&mut self, socket: &Handle) -> io::Result<()> {
        let descriptor = socket.descriptor();
        let at = usize::try_from(descriptor).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        if self.watched.len() <= at {
            self.watched.resize_with(at + 1, || None);
        }
        if self.watched[at].is_none() {
            self.readiness.add(descriptor)?;
            self.watched[at] = Some(Watched::default());
        }
        Ok(())
    }

    fn watched(&mut self, socket: &Handle) -> io::Result<&mut Watched> {
        self.watch(socket)?;
        self.watched[socket.descriptor() as usize].as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn keep(&mut self, id: OpId, op: Op) {
        if self.ops.len() <= id.slot() {
            self.ops.resize_with(id.slot() + 1, || None);
        }
        self.ops[id.slot()] = Some((id, op));
    }

    fn take(&mut self, id: OpId) -> Option<Op> {
        let entry = self.ops.get_mut(id.slot())?;
        if entry.as_ref().is_some_and(|(held, _)| *held == id) {
            entry.take().map(|(_, op)| op)
        } else {
            None
        }
    }

    fn finish(&mut self, id: OpId, result: io::Result<Output>) {
        if let Some(op) = self.take(id) {
            self.done.push(Completion { id, op, result });
        }
    }

    fn receive(&self, socket: &Handle) -> Poll<io::Result<Option<RecvChunk>>> {
        match self.pool.lender.take() {
            Some(number) => {
                let start = self.pool.buffer(number);
                // SAFETY: the free list has just given this buffer to us alone; it is initialised memory.
                let buffer = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), RECV_BUFFER_BYTES) };
                let result = socket::recv(socket, buffer);
                let len = result.as_ref().map_or(0, |len| *len);
                let chunk = RecvChunk::pooled(self.pool.clone(), number, len);
                received(result, chunk)
            }
            None => {
                let mut bytes = vec![0; RECV_BUFFER_BYTES];
                let result = socket::recv(socket, &mut bytes);
                bytes.truncate(result.as_ref().map_or(0, |len| *len));
                received(result, RecvChunk::heap(bytes))
            }
        }
    }

    /// Sends until all is sent or the socket would block; the operation's `at` moves along.
    fn send(op: &mut Op) -> Option<io::Result<Output>> {
        let Op::Send { socket, buf, at } = op else { return Some(Err(io::ErrorKind::InvalidInput.into())) };
        let mut sent = *at;
        // Each round sends at least one byte or ends.
        while sent < buf.len() {
            match socket::send(socket, &buf[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *at = sent;
                    return None;
                }
                Err(error) => return Some(Err(error)),
            }
        }
        *at = sent;
        Some(Ok(Output::Number(sent as u64)))
    }

    /// Starts an operation; `Some` if it is over at once, otherwise it has to be kept.
    fn start(&mut self, id: OpId, op: &mut Op) -> Option<io::Result<Output>> {
        let waiting = match op {
            Op::Send { .. } => match Self::send(op) {
                Some(result) => return Some(result),
                None => {
                    let Op::Send { socket, .. } = op else { return None };
                    self.watched(socket).and_then(|watched| stand_in(&mut watched.send, id))
                }
            },
            Op::Accept { socket } => match self.accept(socket) {
                Some(result) => return Some(result),
                None => self.watched(socket).map(|watched| watched.accepts.push_back(id)),
            },
            Op::Connect { from, peer } => match self.connect(id, *from, *peer) {
                Ok(Some(output)) => return Some(Ok(output)),
                other => other.map(drop),
            },
            Op::Read { .. }
            | Op::Write { .. }
            | Op::Sync { .. }
            | Op::Writeback { .. }
            | Op::Allocate { .. }
            | Op::Truncate { .. }
            | Op::Size { .. }
            | Op::Path(_) => self.files.submit(id, op),
        };
        waiting.err().map(Err)
    }

    fn accept(&mut self, listener: &Handle) -> Option<io::Result<Output>> {
        loop {
            // Each round takes a connection out of the kernel's backlog or ends.
            match socket::accept(listener) {
                Ok((handle, local, peer)) => {
                    let watched = self.watch(&handle);
                    let connection = Connection { handle, local, peer };
                    return Some(watched.map(|()| Output::Connection(Box::new(connection))));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if socket::client_has_gone(&error) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn connect(&mut self, id: OpId, from: Option<IpAddr>, peer: SocketAddr) -> io::Result<Option<Output>> {
        let handle = socket::unconnected(from, peer, true)?;
        if socket::connect(&handle, peer)? {
            self.watch(&handle)?;
            let (local, peer) = socket::addresses(&handle)?;
            return Ok(Some(Output::Connection(Box::new(Connection { handle, local, peer }))));
        }
        self.watched(&handle)?.connect = Some(id);
        if self.connecting.len() <= id.slot() {
            self.connecting.resize_with(id.slot() + 1, || None);
        }
        self.connecting[id.slot()] = Some((id, handle));
        Ok(None)
    }

    fn collect_files(&mut self) {
        let (ops, done) = (&mut self.ops, &mut self.done);
        self.files.collect(|id, result| {
            let entry = ops.get_mut(id.slot()).and_then(Option::take);
            if let Some((held, op)) = entry {
                assert_eq!(held, id, "a file thread answered for another operation");
                done.push(Completion { id, op, result });
            }
        });
    }

    fn serve(&mut self, ready: Ready) {
        let at = ready.descriptor as usize;
        let Some(Some(watched)) = self.watched.get_mut(at) else { return };
        if ready.readable {
            self.woken.extend(watched.recv.take());
        }
        if ready.writable {
            if let Some(id) = watched.connect.take() {
                self.finish_connect(id);
                return;
            }
            if let Some(id) = watched.send {
                self.resume_send(at, id);
            }
        }
        if ready.readable {
            self.resume_accept(at);
        }
    }

    fn finish_connect(&mut self, id: OpId) {
        // The slot may belong to another operation by now: a cancelled connect's socket can still report.
        let Some(place) = self.connecting.get_mut(id.slot()) else { return };
        let Some((_, handle)) = place.take_if(|(held, _)| *held == id) else { return };
        let result = socket::take_error(&handle)
            .and_then(|()| socket::addresses(&handle))
            .map(|(local, peer)| Output::Connection(Box::new(Connection { handle, local, peer })));
        self.finish(id, result);
    }

    fn resume_send(&mut self, at: usize, id: OpId) {
        let Some(mut op) = self.take(id) else { return };
        match Self::send(&mut op) {
            None => self.keep(id, op),
            Some(result) => {
                if let Some(watched) = self.watched[at].as_mut() {
                    watched.send = None;
                }
                self.done.push(Completion { id, op, result });
            }
        }
    }

    fn resume_accept(&mut self, at: usize) {
        // One connection per waiting accept; each round ends one or stops.
        while let Some(id) = self.watched[at].as_ref().and_then(|watched| watched.accepts.front().copied()) {
            let Some(Some((_, Op::Accept { socket }))) = self.ops.get(id.slot()) else { return };
            let socket = socket.clone();
            let Some(result) = self.accept(&socket) else { return };
            if let Some(watched) = self.watched[at].as_mut() {
                watched.accepts.pop_front();
            }
            self.finish(id, result);
        }
    }
}

/// Takes the only place for a kind of operation at a socket.
fn stand_in(place: &mut Option<OpId>, id: OpId) -> io::Result<()> {
    if place.is_some() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    *place = Some(id);
    Ok(())
}

fn received(result: io::Result<usize>, chunk: RecvChunk) -> Poll<io::Result<Option<RecvChunk>>> {
    match result {
        Ok(0) => Poll::Ready(Ok(None)),
        Ok(_) => Poll::Ready(Ok(Some(chunk))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl Driver for PollDriver {
    fn name(&self) -> &'static str {
        "poll"
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

    fn submit(&mut self, id: OpId, mut op: Op, _group: Group) -> Option<Finished> {
        match self.start(id, &mut op) {
            Some(result) => Some((op, result)),
            None => {
                self.keep(id, op);
                None
            }
        }
    }

    fn cancel(&mut self, id: OpId) {
        let socket = match self.ops.get(id.slot()) {
            Some(Some((held, op))) if *held == id => match op {
                Op::Send { socket, .. } | Op::Accept { socket } => Some(socket.clone()),
                Op::Connect { .. } => {
                    if let Some(handle) = self.connecting.get_mut(id.slot()) {
                        drop(handle.take());
                    }
                    None
                }
                // A helper thread may be at it: it runs to its end.
                _ => return,
            },
            _ => return,
        };
        if let Some(watched) = socket
            .and_then(|socket| self.watched.get_mut(socket.descriptor() as usize))
            .and_then(Option::as_mut)
        {
            watched.send = watched.send.filter(|waiting| *waiting != id);
            watched.accepts.retain(|waiting| *waiting != id);
        }
        self.finish(id, Err(io::Error::from_raw_os_error(libc::ECANCELED)));
    }

    fn flush(&mut self, _harvest: &mut Harvest) {}

    fn poll(&mut self, wait: Wait, harvest: &mut Harvest) {
        // Results that arrived while the shard was awake have no signal left to end its sleep: they are
        // collected before it.
        self.collect_files();
        let wait = if self.completions_pending() { Wait::No } else { wait };
        let mut ready = std::mem::take(&mut self.ready);
        let timeout = match wait {
            Wait::No => Some(0),
            Wait::Until(at) => Some(at.0.saturating_sub(monotonic_ns())),
            Wait::Forever => None,
        };
        self.readiness.wait(timeout, EVENTS_MAX, &mut ready);
        for event in ready.drain(..) {
            self.serve(event);
        }
        self.ready = ready;
        self.collect_files();
        harvest.take(&mut self.done);
        harvest.wakes.append(&mut self.woken);
    }

    fn completions_pending(&self) -> bool {
        !self.done.is_empty() || !self.woken.is_empty()
    }

    fn background_slice_ns(&self) -> u64 {
        BACKGROUND_SLICE_NS
    }

    fn listen(&mut self, address: SocketAddr, options: ListenOptions) -> io::Result<(Handle, SocketAddr)> {
        let (handle, local) = socket::listen(address, options, true)?;
        self.watch(&handle)?;
        Ok((handle, local))
    }

    fn poll_recv(
        &mut self,
        socket: &Handle,
        waker: &Waker,
        _group: Group,
    ) -> Poll<io::Result<Option<RecvChunk>>> {
        let received = self.receive(socket);
        if received.is_pending() {
            self.watched(socket)?.recv = Some(waker.clone());
        }
        received
    }

    fn shutdown(&mut self, socket: &Handle) {
        socket::shutdown(socket);
    }

    fn adopt(&mut self, socket: &Handle) -> io::Result<()> {
        socket::set_nonblocking(socket, true)?;
        self.watch(socket)
    }

    fn release(&mut self, socket: &Handle) {
        if let Some(watched) = self.watched.get_mut(socket.descriptor() as usize) {
            *watched = None;
        }
        self.readiness.remove(socket.descriptor());
    }

    fn close(&mut self, descriptor: i32, kind: HandleKind) {
        match kind {
            HandleKind::Socket => {
                if let Some(watched) = self.watched.get_mut(descriptor as usize) {
                    *watched = None;
                }
                super::handle::close_now(descriptor);
            }
            HandleKind::File => self.files.close(descriptor),
            HandleKind::SimFile | HandleKind::SimSocket => {}
        }
    }
}
