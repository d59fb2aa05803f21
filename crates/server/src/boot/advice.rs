//! Advice about errors of the system when a node does not start: by the error, not by the action that failed.

use std::io::{Error, ErrorKind};

/// Errors that have one cause whatever the action; Linux' numbers.
const TOO_MANY_OPEN_FILES: i32 = 24;
const TOO_MANY_OPEN_FILES_IN_SYSTEM: i32 = 23;
const NO_LOCKS: i32 = 37;
const IO_ERROR: i32 = 5;

fn general(error: &Error) -> Option<&'static str> {
    Some(match (error.raw_os_error(), error.kind()) {
        (Some(TOO_MANY_OPEN_FILES), _) => {
            "raise the limit of open files (`ulimit -n`, LimitNOFILE of the service)"
        }
        (Some(TOO_MANY_OPEN_FILES_IN_SYSTEM), _) => "raise the system's limit of open files (fs.file-max)",
        (Some(IO_ERROR), _) => "the disk fails: look at the kernel's log (`dmesg`)",
        (_, ErrorKind::OutOfMemory) => {
            "the system has no memory for it: raise the limit of locked memory (`ulimit -l`) or free some"
        }
        (_, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => "make room on its disk, or raise the quota",
        _ => return None,
    })
}

/// Advice for a port that cannot be listened on; `other` names the options that choose another one.
pub(crate) fn port(error: &Error, other: &str) -> String {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => {
            return format!(
                "; end the program that has it (`ss -ltnp` names it), or choose another with {other}"
            );
        }
        ErrorKind::PermissionDenied => {
            return format!(
                "; ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose another with {other}"
            );
        }
        ErrorKind::AddrNotAvailable => {
            "no interface of this machine has the address: give one that `ip addr` lists"
        }
        _ => match general(error) {
            Some(advice) => advice,
            None => return String::new(),
        },
    };
    format!("; {advice}")
}

/// Advice for the work directory.
pub(super) fn work_directory(error: &Error) -> String {
    let advice = match error.kind() {
        ErrorKind::WouldBlock => "another ceto runs on it: end it first, or give another with --workdir",
        ErrorKind::PermissionDenied => {
            "give a directory that this user may write to with --workdir or workdir, or change its owner"
        }
        ErrorKind::ReadOnlyFilesystem => "its file system is mounted read-only: mount it for writing",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a file is in its place: give a directory with --workdir or workdir"
        }
        ErrorKind::NotFound => {
            "no directory can be made there: give one on a local disk with --workdir or workdir"
        }
        ErrorKind::Unsupported => "its file system has no locks: give a directory on a local disk",
        _ if error.raw_os_error() == Some(NO_LOCKS) => {
            "its file system has no locks: give a directory on a local disk"
        }
        _ => match general(error) {
            Some(advice) => advice,
            None => return String::new(),
        },
    };
    format!("; {advice}")
}

/// Advice for a thread or another resource that only the system can refuse.
pub(super) fn system(error: &Error) -> String {
    let advice = match error.kind() {
        ErrorKind::WouldBlock => {
            Some("raise the limit of threads (`ulimit -u`, TasksMax of the service, pids.max of the cgroup)")
        }
        _ => general(error),
    };
    advice.map(|advice| format!("; {advice}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::BootError;

    #[test]
    fn advice_is_by_the_error() {
        let listen = |errno: i32| {
            let source = Error::from_raw_os_error(errno);
            BootError::Listen { address: ([127, 0, 0, 1], 9042).into(), source }.to_string()
        };
        let admin = |errno: i32| {
            let (address, source) = (([127, 0, 0, 1], 1).into(), Error::from_raw_os_error(errno));
            BootError::AdminListen { key: "api_port", option: "--api-port", address, source }.to_string()
        };
        let workdir = |errno: i32| {
            BootError::Workdir { path: "/w".into(), source: Error::from_raw_os_error(errno) }.to_string()
        };
        const IN_USE: i32 = 98;
        for (text, part) in [
            (listen(IN_USE), "or choose another with --listen, --port or --shard-aware-port"),
            (admin(IN_USE), "or choose another with --api-port or api_port, 0 for none"),
            (listen(99), "no interface of this machine has the address"),
            (listen(13), "CAP_NET_BIND_SERVICE"),
            (listen(24), "raise the limit of open files"),
            (admin(23), "fs.file-max"),
            (workdir(24), "raise the limit of open files"),
            (workdir(11), "another ceto runs on it"),
            (workdir(13), "that this user may write to"),
            (workdir(28), "make room on its disk"),
            (workdir(30), "mounted read-only"),
            (workdir(20), "a file is in its place"),
            (workdir(37), "has no locks"),
            (workdir(5), "the disk fails"),
            (
                BootError::Administration(Error::from_raw_os_error(11)).to_string(),
                "raise the limit of threads",
            ),
            (BootError::Signals(Error::from_raw_os_error(11)).to_string(), "raise the limit of threads"),
        ] {
            assert!(text.contains(part), "{text}: {part}");
        }
        for text in [listen(24), admin(24)] {
            assert!(!text.contains("choose another"), "{text}");
        }
        assert!(!workdir(24).contains("--workdir"));
    }
}
