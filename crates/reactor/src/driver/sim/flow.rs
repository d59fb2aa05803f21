//! Bytes on the simulated network: sending within a window, arriving in order, receiving in pieces.
//!
//! Invariant: the first `arrived` bytes of an inbox may be read, the rest is still on the wire.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::core::{Core, Event, Port};
use super::net::{PARTED_RETRY_NS, break_connection, error, node_of, wake};
use crate::driver::chunk::{ChunkPool, FreeList, RECV_BUFFER_BYTES, RecvChunk};
use crate::driver::{Op, OpId, Output};

/// Bytes one direction of a connection holds, on the wire and unread.
const WINDOW_BYTES: usize = 256 << 10;

/// Bytes that have arrived, or the end; else `waker` stands for who waits for them.
pub(super) fn receive(
    core: &Core,
    port: &Rc<Port>,
    pool: &Rc<ChunkPool<FreeList>>,
    socket: i32,
    waker: &Waker,
) -> Poll<io::Result<Option<RecvChunk>>> {
    let mut net = core.net.borrow_mut();
    let split = net.faults.split;
    let Some(stream) = net.stream(socket) else { return Poll::Ready(Err(error(libc::EBADF))) };
    if !stream.has_news() {
        stream.receiver = Some((port.clone(), waker.clone()));
        return Poll::Pending;
    }
    if stream.reset {
        return Poll::Ready(Err(error(libc::ECONNRESET)));
    }
    if stream.arrived == 0 {
        return Poll::Ready(Ok(None));
    }
    let most = stream.arrived.min(RECV_BUFFER_BYTES);
    let count = if split && core.below(4) == 0 { core.between(1, most as u64) as usize } else { most };
    stream.arrived -= count;
    let chunk = take_chunk(pool, &mut stream.inbox, count);
    let peer = stream.peer;
    let waiting = peer.and_then(|peer| net.stream(peer)).and_then(|peer| peer.sender.take());
    drop(net);
    core.note_content(&chunk);
    core.note("received", [port.node as u64, socket as u64, count as u64]);
    if let Some((sender, id)) = waiting {
        resume_send(core, &sender, id);
    }
    Poll::Ready(Ok(Some(chunk)))
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

/// Puts as much on the wire as there is room for; `Some` when all of it is, or the connection is broken.
pub(super) fn send(core: &Core, port: &Rc<Port>, id: OpId, op: &mut Op) -> Option<io::Result<Output>> {
    let Op::Send { socket, buf, at } = op else { return Some(Err(error(libc::EINVAL))) };
    let number = socket.descriptor();
    let reset = core.net.borrow().faults.reset;
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
        let link = net.link_from(number)?;
        let arrival = net.arrival_ns(core, link, count);
        let far = net.stream(peer)?;
        far.inbox.extend(&buf[*at..*at + count]);
        core.note_content(&buf[*at..*at + count]);
        *at += count;
        let arrival = arrival.max(far.last_arrival_ns);
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

/// Something arrives at a socket.
pub(super) fn arrive(core: &Core, event: Event) {
    let (Event::Arrive { socket, .. } | Event::Finish { socket } | Event::Reset { socket }) = event else {
        return;
    };
    let mut net = core.net.borrow_mut();
    let Some(stream) = net.stream(socket) else { return };
    let now = core.now_ns.get();
    let held = stream.held_until_ns;
    let (node, far) = (stream.node, node_of(stream.remote.ip(), stream.node));
    if now < held {
        core.schedule(held - now, event);
        return;
    }
    let parted = far.is_some_and(|far| net.is_cut(far, node));
    let Some(stream) = net.stream(socket) else { return };
    if parted {
        stream.held_until_ns = now + PARTED_RETRY_NS;
        core.schedule(PARTED_RETRY_NS, event);
        return;
    }
    let mut sender = None;
    match event {
        Event::Arrive { count, .. } => stream.arrived = (stream.arrived + count).min(stream.inbox.len()),
        Event::Finish { .. } => stream.finished = true,
        _ => {
            stream.reset = true;
            stream.peer = None;
            sender = stream.sender.take();
        }
    }
    if stream.has_news() {
        wake(stream.receiver.take());
    }
    drop(net);
    if let Some((port, id)) = sender {
        core.complete(&port, id, Err(error(libc::ECONNRESET)));
    }
}
