//! Plain socket calls shared by the drivers of the operating system.
//!
//! Sockets close on exec and send small frames at once (TCP_NODELAY). For the poll driver they are
//! non-blocking; for io_uring they are not, because it answers EAGAIN for a non-blocking one instead of
//! waiting itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{IntoRawFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::{Handle, HandleKind, ListenOptions};

/// A bound, listening socket and the address it got.
pub(crate) fn listen(
    address: SocketAddr,
    options: ListenOptions,
    nonblocking: bool,
) -> io::Result<(Handle, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(nonblocking)?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    let local = to_std(&socket.local_addr()?)?;
    Ok((Handle::new(socket.into_raw_fd(), HandleKind::Socket), local))
}

/// An unconnected socket for `peer`'s family, bound to the address `from` if there is one.
pub(crate) fn unconnected(from: Option<IpAddr>, peer: SocketAddr, nonblocking: bool) -> io::Result<Handle> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(nonblocking)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    Ok(Handle::new(socket.into_raw_fd(), HandleKind::Socket))
}

/// Wraps an accepted descriptor; it has inherited the listener's TCP_NODELAY.
pub(crate) fn accepted(descriptor: i32) -> io::Result<(Handle, SocketAddr, SocketAddr)> {
    let handle = Handle::new(descriptor, HandleKind::Socket);
    let (local, peer) = addresses(&handle)?;
    Ok((handle, local, peer))
}

/// Both ends of a connected socket.
pub(crate) fn addresses(handle: &Handle) -> io::Result<(SocketAddr, SocketAddr)> {
    let socket = borrow(handle);
    let reference = SockRef::from(&socket);
    Ok((to_std(&reference.local_addr()?)?, to_std(&reference.peer_addr()?)?))
}

/// The error a non-blocking connect ended with, if any.
pub(crate) fn take_error(handle: &Handle) -> io::Result<()> {
    match SockRef::from(&borrow(handle)).take_error()? {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Whether an accept failed only because that one client has gone again: then the next one is to be waited
/// for.
pub(crate) fn client_has_gone(error: &io::Error) -> bool {
    let gone = [libc::ECONNABORTED, libc::ENOTCONN, libc::ECONNRESET, libc::EINTR, libc::EPROTO];
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
}

/// Starts to connect; `true` when connected at once.
pub(crate) fn connect(handle: &Handle, peer: SocketAddr) -> io::Result<bool> {
    match SockRef::from(&borrow(handle)).connect(&peer.into()) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Accepts one waiting connection.
pub(crate) fn accept(handle: &Handle) -> io::Result<(Handle, SocketAddr, SocketAddr)> {
    let (socket, peer) = SockRef::from(&borrow(handle)).accept()?;
    socket.set_nonblocking(true)?;
    let local = to_std(&socket.local_addr()?)?;
    let peer = to_std(&peer)?;
    socket.set_tcp_nodelay(true)?;
    Ok((Handle::new(socket.into_raw_fd(), HandleKind::Socket), local, peer))
}

/// Makes a socket of another driver one of this driver.
pub(crate) fn set_nonblocking(handle: &Handle, nonblocking: bool) -> io::Result<()> {
    SockRef::from(&borrow(handle)).set_nonblocking(nonblocking)
}

pub(crate) fn shutdown(handle: &Handle) {
    // Fails only if the peer is already gone, and then the connection is closed as intended.
    let _ = SockRef::from(&borrow(handle)).shutdown(std::net::Shutdown::Both);
}

/// One recv(2) into `buffer`.
pub(crate) fn recv(handle: &Handle, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are those of a live, exclusive slice.
    let result = unsafe {
        libc::recv(handle.descriptor(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// One send(2) of `bytes`; never raises SIGPIPE.
pub(crate) fn send(handle: &Handle, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: pointer and length are those of a live slice.
    let result = unsafe { libc::send(handle.descriptor(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

fn to_std(address: &SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an internet address"))
}

fn borrow(handle: &Handle) -> std::os::fd::BorrowedFd<'_> {
    // SAFETY: the handle keeps the descriptor open for as long as it is borrowed.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(handle.descriptor()) }
}

/// An eventfd that readers do not block on.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    use rustix::event::EventfdFlags;
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}
