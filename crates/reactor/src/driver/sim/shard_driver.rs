//! The driver of one simulated shard: hands operations to the world and collects what is done.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::core::{Core, Event, Port};
use super::{flow, net};
use crate::driver::chunk::{ChunkPool, FreeList, RecvChunk};
use crate::driver::{Driver, Finished, Handle, HandleKind, Harvest, ListenOptions, Op, OpId, Output, Wait};
use crate::sched::Group;
use crate::time::Instant;

pub(super) struct SimDriver {
    pub(super) core: Rc<Core>,
    pub(super) port: Rc<Port>,
    pub(super) pool: Rc<ChunkPool<FreeList>>,
    pub(super) poll_cost_ns: u64,
    /// Whether the scheduler's choices are left to chance now and then.
    pub(super) shuffle: bool,
}

fn kind_of(op: &Op) -> &'static str {
    match op {
        Op::Read { .. } => "read",
        Op::Write { .. } => "write",
        Op::Sync { .. } => "sync",
        Op::Writeback { .. } => "writeback",
        Op::Allocate { .. } => "allocate",
        Op::Truncate { .. } => "truncate",
        Op::Size { .. } => "size",
        Op::Path(_) => "path",
        Op::Accept { .. } => "accept",
        Op::Connect { .. } => "connect",
        Op::Send { .. } => "send",
    }
}

impl SimDriver {
    fn start(&mut self, id: OpId, op: &mut Op) -> Option<io::Result<Output>> {
        let core = &self.core;
        match op {
            Op::Accept { socket } => net::accept(core, &self.port, id, socket.descriptor()),
            Op::Connect { from, peer } => net::connect(core, &self.port, id, *from, *peer),
            Op::Send { .. } => flow::send(core, &self.port, id, op),
            _ => {
                match op {
                    Op::Write { buf, at, .. } => core.note_content(&buf[*at..]),
                    Op::Path(path) => core.note_content(format!("{path:?}").as_bytes()),
                    _ => {}
                }
                let mut disks = core.disks.borrow_mut();
                let disk = &mut disks[self.port.node];
                let mark = disk.sync_mark(op);
                let busy = disk.busy_ns(op, core.now_ns.get());
                let (low, high) = disk.faults.latency_ns;
                drop(disks);
                let delay = busy + core.between(low, high);
                core.schedule(delay, Event::Disk { port: self.port.clone(), id, mark });
                None
            }
        }
    }
}

impl Driver for SimDriver {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn now(&self) -> Instant {
        Instant(self.core.now_ns.get())
    }

    fn wall_clock_us(&self) -> i64 {
        self.core.wall_us(self.port.node)
    }

    fn entropy(&mut self) -> u64 {
        self.core.random()
    }

    fn submit(&mut self, id: OpId, mut op: Op, group: Group) -> Option<Finished> {
        if self.port.dead.get() {
            return Some((op, Err(io::Error::from_raw_os_error(libc::EIO))));
        }
        let place = (self.port.node as u64) << 32 | self.port.shard as u64;
        self.core.note(kind_of(&op), [place, id.slot() as u64 | u64::from(group.0) << 32, op.bytes() as u64]);
        match self.start(id, &mut op) {
            Some(result) => Some((op, result)),
            None => {
                self.port.keep(id, op, group);
                None
            }
        }
    }

    fn cancel(&mut self, id: OpId) {
        let socket = match self.port.flights.borrow().get(id.slot()) {
            Some(Some((held, op, _))) if *held == id => match op {
                Op::Accept { socket } | Op::Send { socket, .. } => Some(socket.descriptor()),
                Op::Connect { .. } => None,
                // A disk request is served at its time, wanted or not.
                _ => return,
            },
            _ => return,
        };
        if let Some(socket) = socket {
            net::forget(&self.core, &self.port, id, socket);
        }
        self.core.complete(&self.port, id, Err(io::Error::from_raw_os_error(libc::ECANCELED)));
    }

    fn flush(&mut self, _harvest: &mut Harvest) {}

    fn poll(&mut self, _wait: Wait, harvest: &mut Harvest) {
        if self.port.dead.get() {
            // The machine is off: what it was doing ends here.
            for (id, op, _) in self.port.flights.borrow_mut().drain(..).flatten() {
                let result = Err(io::Error::from_raw_os_error(libc::EIO));
                harvest.completions.push(crate::driver::Completion { id, op, result });
            }
        }
        harvest.completions.extend(self.port.ready.borrow_mut().drain(..));
        harvest.wakes.append(&mut self.port.woken.borrow_mut());
    }

    fn completions_pending(&self) -> bool {
        self.port.is_ready()
    }

    fn listen(&mut self, address: SocketAddr, options: ListenOptions) -> io::Result<(Handle, SocketAddr)> {
        if self.port.dead.get() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.core.net.borrow_mut().listen(self.port.node, address, options)
    }

    fn poll_recv(
        &mut self,
        socket: &Handle,
        waker: &Waker,
        _group: Group,
    ) -> Poll<io::Result<Option<RecvChunk>>> {
        if self.port.dead.get() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        flow::receive(&self.core, &self.port, &self.pool, socket.descriptor(), waker)
    }

    fn shutdown(&mut self, socket: &Handle) {
        if !self.port.dead.get() {
            net::finish(&self.core, socket.descriptor(), false);
        }
    }

    fn adopt(&mut self, _socket: &Handle) -> io::Result<()> {
        Ok(())
    }

    fn release(&mut self, _socket: &Handle) {}

    fn close(&mut self, descriptor: i32, kind: HandleKind) {
        if self.port.dead.get() {
            return;
        }
        match kind {
            HandleKind::SimFile => self.core.disks.borrow_mut()[self.port.node].close(descriptor),
            HandleKind::SimSocket => net::finish(&self.core, descriptor, true),
            HandleKind::File | HandleKind::Socket => crate::driver::handle::close_now(descriptor),
        }
    }

    fn choose(&mut self, alternatives: u32) -> Option<u32> {
        self.shuffle.then(|| self.core.below(u64::from(alternatives)) as u32)
    }

    fn poll_cost_ns(&self) -> Option<u64> {
        Some(self.poll_cost_ns)
    }

    fn log_line(&mut self, line: &str) -> bool {
        self.core.log_line(self.port.node, line);
        true
    }
}
