//! The beginning of a connection, at both ends: first messages are exchanged and judged.
//!
//! The opener sends its first message and nothing more before the other's has come. The acceptor, on shard 0,
//! reads it, has it judged, and hands the silent connection to the shard that it is for, which answers.
//! Invariant: before a peer is admitted it costs one place among [`STRANGERS_MAX`] and 4 KiB, for
//! [`HANDSHAKE_TIME`].

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use reactor::Deadline;
use reactor::net::Stream;
use wire::node::frame::{FrameFlags, FrameHeader, Verb, WorkGroup, append_frame};
use wire::node::hello::{HELLO_BYTES_MAX, HELLO_VERSION, Hello, decode_refusal, encode_refusal};

use super::error::{NetError, PeerName};
use super::pipe::{Ended, FrameReader};
use crate::handshake::Refusal;

/// Time for the first messages.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Time for the system to connect.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Connections whose first message is awaited, at a time.
pub(super) const STRANGERS_MAX: usize = 64;

/// Letters of a refusal: of four bytes each, they fit a first message.
const REFUSAL_CHARS_MAX: usize = 1000;

/// The header of a first message.
pub(super) fn header(flags: FrameFlags) -> FrameHeader {
    let (verb, group) = (Verb::Hello, WorkGroup::Control);
    FrameHeader { verb, flags, group, version: HELLO_VERSION, stream: 0, left_ms: 0 }
}

fn frame(flags: FrameFlags, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append_frame(&mut out, header(flags), None, |out| out.extend_from_slice(body));
    out
}

/// The body of a first message.
pub(super) fn encoded(hello: &Hello) -> Vec<u8> {
    let mut body = Vec::new();
    hello.encode(&mut body);
    // A long name of the cluster leaves less room for addresses that are only passed on.
    if body.len() > HELLO_BYTES_MAX {
        body.clear();
        Hello { heard: Vec::new(), ..hello.clone() }.encode(&mut body);
    }
    body
}

/// Reads the first frame, and that nothing is behind it.
async fn first_frame(reader: &mut FrameReader, deadline: Deadline) -> Result<(FrameHeader, Vec<u8>), Ended> {
    loop {
        if let Some((header, body)) = reader.cut()? {
            if header.verb != Verb::Hello || header.version != HELLO_VERSION {
                return Err(Ended::Protocol("its first message is another one"));
            }
            if reader.has_rest() {
                return Err(Ended::Protocol("more than a first message came"));
            }
            return Ok((header, body));
        }
        let filled = reactor::timeout(deadline, reader.fill()).await;
        filled.map_err(|_| Ended::Here("no first message came in time"))??;
    }
}

/// What an opened connection said first.
pub(super) struct Opened {
    pub(super) stream: Rc<Stream>,
    pub(super) reader: FrameReader,
    pub(super) theirs: Hello,
}

/// Connects and exchanges first messages.
pub(super) async fn open(
    peer: PeerName,
    from: Option<IpAddr>,
    address: SocketAddr,
    own: &Hello,
) -> Result<Opened, NetError> {
    let failed = |reason: String, is_refused| {
        let reason = format!("{address}: {reason}");
        NetError::Unreachable { peer, reason, is_refused }
    };
    let unreachable = |reason: String| failed(reason, false);
    let connecting = reactor::timeout(Deadline::after(CONNECT_TIME), Stream::connect_from(from, address));
    let stream = match connecting.await {
        Ok(connected) => connected.map_err(|error| {
            failed(error.to_string(), error.kind() == std::io::ErrorKind::ConnectionRefused)
        })?,
        Err(_) => return Err(unreachable("no answer to the connection request".to_owned())),
    };
    let deadline = Deadline::after(HANDSHAKE_TIME);
    let sent = reactor::timeout(deadline, stream.send(frame(FrameFlags::NONE, &encoded(own)))).await;
    match sent {
        Ok((Ok(()), _)) => {}
        Ok((Err(error), _)) => return Err(unreachable(error.to_string())),
        Err(_) => return Err(unreachable("it took no first message".to_owned())),
    }
    let stream = Rc::new(stream);
    let mut reader = FrameReader::new(Rc::clone(&stream), HELLO_BYTES_MAX, None);
    let first = first_frame(&mut reader, deadline).await;
    let (header, body) = first.map_err(|why| unreachable(why.to_string()))?;
    if header.flags.has(FrameFlags::ERROR) {
        let reason = decode_refusal(&body).map_err(|error| unreachable(error.to_string()))?;
        return Err(NetError::RefusedBy { peer, reason });
    }
    let theirs = Hello::decode(&body).map_err(|error| unreachable(error.to_string()))?;
    Ok(Opened { stream, reader, theirs })
}

/// The first message of a connection that was accepted; the stream is silent from then on.
pub(super) async fn receive_first(stream: Stream, deadline: Deadline) -> Result<(Stream, Hello), Ended> {
    let stream = Rc::new(stream);
    let mut reader = FrameReader::new(Rc::clone(&stream), HELLO_BYTES_MAX, None);
    let (_, body) = first_frame(&mut reader, deadline).await?;
    let hello = Hello::decode(&body)?;
    drop(reader);
    let stream = Rc::into_inner(stream).expect("the reader was its only other holder");
    Ok((stream, hello))
}

/// Tells a peer why it is refused.
pub(super) async fn refuse(stream: &Stream, refusal: &Refusal, deadline: Deadline) {
    let mut body = Vec::new();
    // Names that a configuration chose are in it.
    let text: String = refusal.to_string().chars().take(REFUSAL_CHARS_MAX).collect();
    encode_refusal(&text, &mut body);
    // A peer that does not take its refusal gets none.
    let sent = stream.send(frame(FrameFlags::REPLY.with(FrameFlags::ERROR), &body));
    let _told = reactor::timeout(deadline, sent).await;
}
