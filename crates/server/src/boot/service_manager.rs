//! Messages to the service manager that started the node: systemd with `Type=notify`, as sd_notify(3)
//! describes them.
//!
//! The manager names its socket in `NOTIFY_SOCKET`: a path, or a name in the abstract namespace after an `@`.
//! Without that variable nothing is sent. Messages are datagrams of lines `NAME=value`. Invariant: sending
//! neither waits nor fails the node; a message that the socket has no room for is lost, and the next one is
//! as good.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The variable with the socket's address.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// Longest text of a status, in bytes: managers show it in one line.
const STATUS_BYTES_MAX: usize = 512;

/// The socket of the service manager, if there is one.
pub(super) struct ServiceManager(Option<UnixDatagram>);

impl ServiceManager {
    /// The manager named by the environment.
    pub(super) fn from_environment() -> Self {
        let Some(address) = std::env::var_os(VARIABLE).filter(|address| !address.is_empty()) else {
            return Self(None);
        };
        match connect(&address) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                reactor::warn!("the service manager cannot be told how the node fares"; NOTIFY_SOCKET = address.display(), error = error);
                Self(None)
            }
        }
    }

    /// Whether messages reach anybody.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// The node answers clients.
    pub(super) fn ready(&self, status: &str) {
        self.send(&["READY=1", &status_line(status)]);
    }

    /// The node has been told to end, and may take `time` until the next message.
    pub(super) fn stopping(&self, time: Duration, status: &str) {
        self.send(&["STOPPING=1", &extension(time), &status_line(status)]);
    }

    /// The node makes progress in starting or ending, and may take `time` until the next message.
    pub(super) fn extend(&self, time: Duration, status: &str) {
        self.send(&[&extension(time), &status_line(status)]);
    }

    /// Tells the node's present work, in a few words.
    pub(super) fn status(&self, status: &str) {
        self.send(&[&status_line(status)]);
    }

    fn send(&self, lines: &[&str]) {
        if let Some(socket) = &self.0 {
            // The manager may be restarting, or its queue may be full.
            let _ = socket.send(lines.join("\n").as_bytes());
        }
    }
}

/// A socket that sends to `address`, without ever waiting.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let to = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&to)?;
    Ok(socket)
}

fn extension(time: Duration) -> String {
    format!("EXTEND_TIMEOUT_USEC={}", time.as_micros())
}

/// A status of one line: a line break would begin a message of its own.
fn status_line(status: &str) -> String {
    let mut line: String = status.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.truncate(line.floor_char_boundary(STATUS_BYTES_MAX));
    format!("STATUS={line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 2048];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn messages_reach_sockets_with_a_path_and_abstract_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("ceto-test-{}", std::process::id());
        let of_path = UnixDatagram::bind(&path).unwrap();
        let of_name = SocketAddr::from_abstract_name(&name).unwrap();
        let of_name = UnixDatagram::bind_addr(&of_name).unwrap();
        let at = format!("@{name}");
        for (socket, address) in [(of_path, path.as_os_str()), (of_name, OsStr::new(&at))] {
            let manager = ServiceManager(Some(connect(address).unwrap()));
            manager.ready("Answers\nREADY=0");
            assert_eq!(received(&socket), "READY=1\nSTATUS=Answers READY=0");
            manager.stopping(Duration::from_secs(30), "Drains");
            assert_eq!(received(&socket), "STOPPING=1\nEXTEND_TIMEOUT_USEC=30000000\nSTATUS=Drains");
        }
    }

    #[test]
    fn an_address_that_leads_nowhere_is_an_error_and_a_full_socket_is_none() {
        for address in ["relative", "/nowhere/notify", "@ceto-nobody-listens"] {
            assert!(connect(OsStr::new(address)).is_err(), "{address}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _never_read = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager(Some(connect(path.as_os_str()).unwrap()));
        for _ in 0..10_000 {
            manager.status("Opens its data");
        }
        ServiceManager(None).ready("nobody is told");
    }

    #[test]
    fn a_long_status_ends_between_characters() {
        let line = status_line(&"é".repeat(400));
        assert_eq!(line.len(), "STATUS=".len() + STATUS_BYTES_MAX);
    }
}
