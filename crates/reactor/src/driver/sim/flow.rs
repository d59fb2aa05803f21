//! Bytes on the simulated network: sending within a window, arriving in order, receiving in pieces.
//!
//! Invariant: the first `arrived` bytes of an inbox may be read, the rest is still on the wire.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use super::core::{Core, Event, Port};
use super::net::{PARTED_RETRY_NS, break_connection, error, node_of};
use crate::driver::chunk::{ChunkPool, FreeList, RECV_BUFFER_BYTES, RecvChunk};
use crate::driver::{Op, OpId, Output};

/// Bytes one direction of a connection holds, on the wire and unread.
const WINDOW_BYTES: usize = 256 << 10;

/// Bytes that have arrived, the end, or nothing yet.
pub(super) fn try_receive(
    core: &Core,
    pool: &Rc<ChunkPool<FreeList>>,
    socket: i32,
) -> Option<io::Result<Output>> {
    let split = core.net.borrow().faults.split;
    let (chunk, waiting) = {
        let mut net = core.net.borrow_mut();
        let Some(stream) = net.stream(socket) else { return Some(Err(error(libc::EBADF))) };
        if stream.reset {
            return Some(Err(error(libc::ECONNRESET)));
        }
        if stream.arrived == 0 {
            return stream.finished.then_some(Ok(Output::End));
        }
        let most = stream.arrived.min(RECV_BUFFER_BYTES);
        let count = if split && core.below(4) == 0 { core.between(1, most as u64) as usize } else { most };
        stream.arrived -= count;
        let chunk = take_chunk(pool, &mut stream.inbox, count);
        let peer = stream.peer;
        let waiting = peer.and_then(|peer| net.stream(peer)).and_then(|peer| peer.sender.take());
        (chunk, waiting)
    };
    if let Some((port, id)) = waiting {
        resume_send(core, &port, id);
    }
    Some(Ok(Output::Chunk(chunk)))
}

fn take_chunk(pool: &Rc<ChunkPool<FreeList>>, inbox: &mut VecDeque<u8>, count: usize) -> RecvChunk {
    match pool.lender.take() {
        Some(number) => {
            let start = pool.buffer(number);
            // SAFETY: the free list has just given this buffer to us alone; it is initialised memory.
            let buffer = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), RECV_BUFFER_BYTES) };
            let (front, back) = inbox.as_slices();
            let first = count.min(front.len());
            buffer[..first].copy_from_slice(&front[..first]);
            buffer[first..count].copy_from_slice(&back[..count - first]);
            inbox.drain(..count);
            RecvChunk::pooled(pool.clone(), number, count)
        }
        None => RecvChunk::heap(inbox.drain(..count).collect()),
    }
}

/// Waits for bytes.
pub(super) fn wait_receive(core: &Core, port: &Rc<Port>, id: OpId, socket: i32) -> io::Result<()> {
    let mut net = core.net.borrow_mut();
    let stream = net.stream(socket).ok_or_else(|| error(libc::EBADF))?;
    if stream.receiver.is_some() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    stream.receiver = Some((port.clone(), id));
    Ok(())
}

/// Puts as much on the wire as there is room for; `Some` when all of it is, or the connection is broken.
pub(super) fn send(core: &Core, port: &Rc<Port>, id: OpId, op: &mut Op) -> Option<io::Result<Output>> {
    let Op::Send { socket, buf, at } = op else { return Some(Err(error(libc::EINVAL))) };
    let number = socket.descriptor();
    let (reset, latency) = {
        let net = core.net.borrow();
        (net.faults.reset, net.faults.latency_ns)
    };
    if core.chance(reset) {
        break_connection(core, number);
        return Some(Err(error(libc::ECONNRESET)));
    }
    let mut net = core.net.borrow_mut();
    let Some(stream) = net.stream(number) else { return Some(Err(error(libc::EBADF))) };
    if stream.reset {
        return Some(Err(error(libc::ECONNRESET)));
    }
    let Some(peer) = stream.peer else { return Some(Err(error(libc::EPIPE))) };
    let Some(far) = net.stream(peer) else { return Some(Err(error(libc::EPIPE))) };
    let room = WINDOW_BYTES.saturating_sub(far.inbox.len());
    let count = room.min(buf.len() - *at);
    if count > 0 {
        far.inbox.extend(&buf[*at..*at + count]);
        core.note_content(&buf[*at..*at + count]);
        *at += count;
        let arrival = (core.now_ns.get() + core.between(latency.0, latency.1)).max(far.last_arrival_ns);
        far.last_arrival_ns = arrival;
        core.schedule(arrival - core.now_ns.get(), Event::Arrive { socket: peer, count });
    }
    if *at == buf.len() {
        return Some(Ok(Output::Number(*at as u64)));
    }
    let stream = net.stream(number)?;
    if stream.sender.is_some() {
        return Some(Err(io::ErrorKind::ResourceBusy.into()));
    }
    stream.sender = Some((port.clone(), id));
    None
}

fn resume_send(core: &Core, port: &Rc<Port>, id: OpId) {
    let Some((mut op, group)) = port.take(id) else { return };
    let result = send(core, port, id, &mut op);
    port.keep(id, op, group);
    if let Some(result) = result {
        core.complete(port, id, result);
    }
}

/// Wakes who waits for bytes of `socket`.
fn serve_receiver(core: &Core, socket: i32, pools: &dyn Fn(&Port) -> Option<Rc<ChunkPool<FreeList>>>) {
    let waiter = core.net.borrow_mut().stream(socket).and_then(|stream| stream.receiver.take());
    let Some((port, id)) = waiter else { return };
    let Some(pool) = pools(&port) else { return };
    match try_receive(core, &pool, socket) {
        Some(result) => core.complete(&port, id, result),
        None => {
            if let Some(stream) = core.net.borrow_mut().stream(socket) {
                stream.receiver = Some((port, id));
            }
        }
    }
}

/// Something arrives at a socket.
pub(super) fn arrive(core: &Core, event: Event, pools: &dyn Fn(&Port) -> Option<Rc<ChunkPool<FreeList>>>) {
    let (Event::Arrive { socket, .. } | Event::Finish { socket } | Event::Reset { socket }) = event else {
        return;
    };
    {
        let mut net = core.net.borrow_mut();
        let Some(stream) = net.stream(socket) else { return };
        let now = core.now_ns.get();
        let held = stream.held_until_ns;
        let (node, far) = (stream.node, node_of(stream.remote.ip(), stream.node));
        if now < held {
            core.schedule(held - now, event);
            return;
        }
        if far.is_some_and(|far| net.are_parted(node, far)) {
            if let Some(stream) = net.stream(socket) {
                stream.held_until_ns = now + PARTED_RETRY_NS;
            }
            core.schedule(PARTED_RETRY_NS, event);
            return;
        }
        let Some(stream) = net.stream(socket) else { return };
        match event {
            Event::Arrive { count, .. } => stream.arrived = (stream.arrived + count).min(stream.inbox.len()),
            Event::Finish { .. } => stream.finished = true,
            _ => {
                stream.reset = true;
                stream.peer = None;
            }
        }
    }
    serve_receiver(core, socket, pools);
    if matches!(event, Event::Reset { .. }) {
        let sender = core.net.borrow_mut().stream(socket).and_then(|stream| stream.sender.take());
        if let Some((port, id)) = sender {
            core.complete(&port, id, Err(error(libc::ECONNRESET)));
        }
    }
}
