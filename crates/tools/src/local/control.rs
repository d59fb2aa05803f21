//! Requests of other terminals, through a Unix socket in the cluster's directory.
//!
//! A request is one line of JSON, the answer is JSON up to the end of the connection. The socket is reached
//! through the open directory in `/proc/self/fd`, because a socket's path may have 107 bytes only (unix(7)).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LocalError;
use super::event::Event;

const SOCKET: &str = "local.sock";
/// How long either side may take to write or read its part.
const MESSAGE_TIME: Duration = Duration::from_secs(5);
/// How long an answer may take: longer than the supervisor waits for a node.
const ANSWER_TIME: Duration = Duration::from_secs(150);
const REQUEST_BYTES_MAX: u64 = 4 << 10;
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Pause after a connection could not be taken, as without free descriptors.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A request to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub(super) enum Request {
    /// The table of nodes.
    Status,
    /// SIGKILL.
    Kill {
        /// The node.
        node: usize,
    },
    /// SIGTERM.
    Stop {
        /// The node.
        node: usize,
    },
    /// A new process.
    Start {
        /// The node.
        node: usize,
    },
    /// SIGSTOP.
    Pause {
        /// The node.
        node: usize,
    },
    /// SIGCONT.
    Resume {
        /// The node.
        node: usize,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Reply {
    is_done: bool,
    text: String,
}

/// The other end of a request; dropped without an answer, the client is told that there is none.
#[derive(Debug)]
pub(super) struct Asker {
    stream: UnixStream,
}

impl Asker {
    /// Sends the answer: text to print, or why the request is refused.
    pub(super) fn answer(self, outcome: Result<String, String>) {
        let reply = match outcome {
            Ok(text) => Reply { is_done: true, text },
            Err(text) => Reply { is_done: false, text },
        };
        let bytes = serde_json::to_vec(&reply).expect("a flag and a text");
        // A client that has gone needs no answer; a short answer fits into the socket's buffer.
        let _ = (&self.stream).write_all(&bytes);
    }
}

/// The socket's path through an open directory.
fn path_in(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(SOCKET)
}

/// Makes the socket, and passes requests on to `events` from a thread of its own.
///
/// # Errors
/// [`LocalError::File`]; [`LocalError::System`] without a thread.
pub(super) fn serve(directory: &Path, events: SyncSender<Event>) -> Result<(), LocalError> {
    remove(directory).map_err(LocalError::file(directory.join(SOCKET)))?;
    let opened = File::open(directory).map_err(LocalError::file(directory))?;
    let listener = UnixListener::bind(path_in(&opened)).map_err(LocalError::file(directory.join(SOCKET)))?;
    let accept = move || {
        loop {
            let request = match listener.accept() {
                Ok((stream, _)) => receive(stream),
                Err(_) => {
                    std::thread::sleep(RETRY_AFTER);
                    continue;
                }
            };
            if let Some((request, asker)) = request
                && events.send(Event::Asked(request, asker)).is_err()
            {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("local-control".to_owned());
    thread.spawn(accept).map_err(LocalError::system("start a thread"))?;
    Ok(())
}

/// Removes the socket, also that of a supervisor that was killed. The caller has the directory's lock.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(directory.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads a request; one that is not valid is answered here.
fn receive(stream: UnixStream) -> Option<(Request, Asker)> {
    stream.set_read_timeout(Some(MESSAGE_TIME)).ok()?;
    stream.set_write_timeout(Some(MESSAGE_TIME)).ok()?;
    let mut line = String::new();
    let read = BufReader::new(&stream).take(REQUEST_BYTES_MAX).read_line(&mut line);
    let asker = Asker { stream };
    let request = read.map_err(|error| error.to_string());
    match request.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string())) {
        Ok(request) => Some((request, asker)),
        Err(reason) => {
            asker.answer(Err(format!("not a request: {reason}")));
            None
        }
    }
}

/// Sends a request to the supervisor of a directory; its answer.
///
/// # Errors
/// [`LocalError::NotRunning`], [`LocalError::Refused`], [`LocalError::Silent`].
pub(super) fn ask(directory: &Path, request: &Request) -> Result<String, LocalError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            LocalError::NotRunning { directory: directory.to_owned() }
        }
        _ => LocalError::Silent { directory: directory.to_owned(), source },
    };
    let opened = File::open(directory).map_err(failed)?;
    let mut stream = UnixStream::connect(path_in(&opened)).map_err(failed)?;
    let mut bytes = serde_json::to_vec(request).expect("a verb and a number");
    bytes.push(b'\n');
    let mut text = String::new();
    let mut exchange = || {
        stream.set_write_timeout(Some(MESSAGE_TIME))?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        stream.write_all(&bytes)?;
        (&stream).take(ANSWER_BYTES_MAX).read_to_string(&mut text)
    };
    exchange().map_err(|source| LocalError::Silent { directory: directory.to_owned(), source })?;
    match serde_json::from_str(&text) {
        Ok(Reply { is_done: true, text }) => Ok(text),
        Ok(Reply { is_done: false, text }) => Err(LocalError::Refused(text)),
        Err(_) => Err(LocalError::Refused("it ended before it answered".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn requests_reach_the_supervisor_and_answers_the_client() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than a socket's path may be.
        let directory = folder.path().join("d".repeat(200));
        std::fs::create_dir(&directory).unwrap();
        assert!(matches!(ask(&directory, &Request::Status), Err(LocalError::NotRunning { .. })));
        let (events, received) = sync_channel(4);
        serve(&directory, events).unwrap();
        let outcomes = [Ok("node 2 was killed\n"), Err("there is no node 2")];
        for expected in outcomes {
            let asked = std::thread::scope(|scope| {
                let asked = scope.spawn(|| ask(&directory, &Request::Kill { node: 2 }));
                let Event::Asked(request, asker) = received.recv().unwrap() else { panic!("not a request") };
                assert_eq!(request, Request::Kill { node: 2 });
                asker.answer(expected.map(str::to_owned).map_err(str::to_owned));
                asked.join().unwrap()
            });
            assert_eq!(
                asked.map_err(|error| error.to_string()),
                expected.map(str::to_owned).map_err(str::to_owned)
            );
        }
        let lost = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&directory, &Request::Status));
            drop(received.recv().unwrap());
            asked.join().unwrap().unwrap_err().to_string()
        });
        assert_eq!(lost, "it ended before it answered");
        remove(&directory).unwrap();
        assert!(matches!(ask(&directory, &Request::Status), Err(LocalError::NotRunning { .. })));
    }

    #[test]
    fn wrong_requests_are_refused_and_harm_no_other() {
        let check = |sent: &[u8], expected: Option<Request>| {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(sent).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let received = receive(server);
            assert_eq!(received.as_ref().map(|(request, _)| *request), expected, "{sent:?}");
            drop(received);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer.contains("not a request"), expected.is_none(), "{sent:?}: {answer}");
        };
        check(b"{\"verb\":\"status\"}\n", Some(Request::Status));
        check(b"{\"verb\":\"stop\",\"node\":3}\n", Some(Request::Stop { node: 3 }));
        check(b"", None);
        check(b"{\"verb\":\"stop\"}\n", None);
        check(b"{\"verb\":\"stop\",\"node\":-1}\n", None);
        check(b"{\"verb\":\"halt\",\"node\":1}\n", None);
        check(b"\xFF\xFE\n", None);
        check(&[b' '; 8 << 10], None);
    }
}
