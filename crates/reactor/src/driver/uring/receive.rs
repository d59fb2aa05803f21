//! Receiving: one multishot request per connection that is read from, filling the shard's shared buffers.
//!
//! The kernel fills buffers before anything is requested. A connection that collects too many without being
//! read has its request cancelled until it has been emptied, so a slow consumer holds a limited number of
//! buffers. When the pool is empty a connection falls back to one heap buffer of its own, so that it does not
//! wait for another connection's consumer. Invariant: a request names its connection by descriptor and
//! generation, so one that outlives its descriptor is recognised, and its buffers are returned.

use std::collections::VecDeque;
use std::io;
use std::task::{Poll, Waker};

use io_uring::{cqueue, opcode, types};

use super::{IGNORED, RECEIVE, UringDriver, buffers};
use crate::driver::Handle;
use crate::driver::chunk::{RECV_BUFFER_BYTES, RecvChunk};
use crate::sched::Group;

/// Chunks a connection may hold unread before its request is cancelled.
const UNREAD_MAX: usize = 8;

enum Armed {
    No,
    Multishot,
    /// A single receive into its own buffer.
    Single(Vec<u8>),
}

/// One connection's receiving side.
struct Receiving {
    /// The reader that waits for the next bytes.
    waiter: Option<(Waker, Group)>,
    unread: Unread,
    /// The event after the unread chunks: the end, or an error.
    end: Option<io::Result<()>>,
    armed: Armed,
    cancelled: bool,
    /// The pool was empty at the last try.
    starved: bool,
}

/// Chunks in order of arrival. Usually there is one, which needs no allocation.
#[derive(Default)]
struct Unread {
    first: Option<RecvChunk>,
    more: VecDeque<RecvChunk>,
}

impl Unread {
    fn push(&mut self, chunk: RecvChunk) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.more.push_back(chunk);
        }
    }

    fn pop(&mut self) -> Option<RecvChunk> {
        let chunk = self.first.take()?;
        self.first = self.more.pop_front();
        if self.first.is_none() {
            // Ten thousand waiting connections must not keep memory that they once needed.
            self.more = VecDeque::new();
        }
        Some(chunk)
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }
}

/// By descriptor; the generation distinguishes a descriptor's successive connections.
#[derive(Default)]
pub(super) struct Place {
    generation: u32,
    receiving: Option<Receiving>,
}

/// Bits of a generation inside the user data of a request.
const GENERATION_MASK: u32 = (1 << 30) - 1;

pub(super) fn user_data(descriptor: usize, generation: u32) -> u64 {
    RECEIVE | u64::from(generation & GENERATION_MASK) << 32 | descriptor as u64
}

impl UringDriver {
    fn receiving(&mut self, descriptor: usize) -> &mut Receiving {
        if self.places.len() <= descriptor {
            self.places.resize_with(descriptor + 1, Place::default);
        }
        self.places[descriptor].receiving.get_or_insert_with(|| Receiving {
            waiter: None,
            unread: Unread::default(),
            end: None,
            armed: Armed::No,
            cancelled: false,
            starved: false,
        })
    }

    /// The bytes that have arrived; otherwise `waker` is registered for the reader.
    pub(super) fn receive(
        &mut self,
        socket: &Handle,
        waker: &Waker,
        group: Group,
    ) -> Poll<io::Result<Option<RecvChunk>>> {
        let descriptor = socket.descriptor() as usize;
        let receiving = self.receiving(descriptor);
        if let Some(chunk) = receiving.unread.pop() {
            return Poll::Ready(Ok(Some(chunk)));
        }
        match receiving.end.take() {
            Some(Ok(())) => {
                receiving.end = Some(Ok(()));
                Poll::Ready(Ok(None))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => {
                receiving.waiter = Some((waker.clone(), group));
                self.arm(descriptor, group);
                Poll::Pending
            }
        }
    }

    fn arm(&mut self, descriptor: usize, group: Group) {
        let generation = self.places[descriptor].generation;
        let receiving = self.receiving(descriptor);
        if !matches!(receiving.armed, Armed::No) {
            return;
        }
        receiving.cancelled = false;
        let fd = types::Fd(descriptor as i32);
        let entry = if std::mem::take(&mut receiving.starved) {
            let mut buffer = vec![0u8; RECV_BUFFER_BYTES];
            let entry = opcode::Recv::new(fd, buffer.as_mut_ptr(), buffer.len() as u32).build();
            receiving.armed = Armed::Single(buffer);
            entry
        } else {
            receiving.armed = Armed::Multishot;
            opcode::RecvMulti::new(fd, buffers::GROUP).build()
        };
        self.push(entry.user_data(user_data(descriptor, generation)), group);
    }

    /// Stops the request of a connection that is going away; its own buffer stays until the kernel releases
    /// it.
    pub(super) fn end_receiving(&mut self, descriptor: usize) {
        let Some(place) = self.places.get_mut(descriptor) else { return };
        let data = user_data(descriptor, place.generation);
        place.generation = (place.generation + 1) & GENERATION_MASK;
        let Some(receiving) = place.receiving.take() else { return };
        match receiving.armed {
            Armed::No => return,
            Armed::Multishot => {}
            Armed::Single(buffer) => self.orphan_buffers.push((data, buffer)),
        }
        self.push(opcode::AsyncCancel::new(data).build().user_data(IGNORED), Group::ADMIN);
    }

    /// Files a completion of a receive request.
    pub(super) fn received(&mut self, data: u64, result: i32, flags: u32) {
        let descriptor = (data & 0xffff_ffff) as usize;
        let more = cqueue::more(flags);
        let chunk = cqueue::buffer_select(flags)
            .map(|number| RecvChunk::pooled(self.pool.clone(), number, usize::try_from(result).unwrap_or(0)));
        let current = self.places.get(descriptor).is_some_and(|place| {
            place.receiving.is_some() && user_data(descriptor, place.generation) == data
        });
        if !current {
            if !more {
                self.orphan_buffers.retain(|(orphan, _)| *orphan != data);
            }
            return; // the chunk, if any, goes back to the pool
        }
        let receiving = self.receiving(descriptor);
        let single = match (&receiving.armed, more) {
            (_, true) => None,
            (_, false) => match std::mem::replace(&mut receiving.armed, Armed::No) {
                Armed::Single(buffer) => Some(buffer),
                _ => None,
            },
        };
        match result {
            0 => receiving.end = Some(Ok(())),
            1.. => match (chunk, single) {
                (Some(chunk), _) => receiving.unread.push(chunk),
                (None, Some(mut buffer)) => {
                    buffer.truncate(result as usize);
                    receiving.unread.push(RecvChunk::heap(buffer));
                }
                (None, None) => {
                    receiving.end = Some(Err(io::Error::other("the kernel received bytes into no buffer")));
                }
            },
            _ => match -result {
                libc::ENOBUFS => receiving.starved = true,
                // This driver's own cancellation, or a signal: armed again when a reader waits.
                libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
                code => receiving.end = Some(Err(io::Error::from_raw_os_error(code))),
            },
        }
        self.serve_receiver(descriptor);
    }

    /// Wakes the reader if there is something for it, and requests more if there is nothing; stops receiving
    /// if too much is left unread.
    fn serve_receiver(&mut self, descriptor: usize) {
        let generation = self.places[descriptor].generation;
        let receiving = self.receiving(descriptor);
        let unread = receiving.unread.len();
        if unread == 0 && receiving.end.is_none() {
            if let Some((_, group)) = &receiving.waiter {
                let group = *group;
                self.arm(descriptor, group);
            }
            return;
        }
        let waiter = receiving.waiter.take();
        if unread >= UNREAD_MAX && matches!(receiving.armed, Armed::Multishot) && !receiving.cancelled {
            receiving.cancelled = true;
            let cancel = opcode::AsyncCancel::new(user_data(descriptor, generation)).build();
            self.push(cancel.user_data(IGNORED), Group::ADMIN);
        }
        self.woken.extend(waiter.map(|(waker, _)| waker));
    }
}
