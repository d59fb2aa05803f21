//! The process of a node: started, signalled, and never left behind.
//!
//! A child is this program once more. It first asks the kernel for SIGKILL when its supervisor ends, in
//! whatever way, then becomes `ceto server` by exec(2), which keeps that request (prctl(2),
//! `PR_SET_PDEATHSIG`): a call between fork and exec would be unsafe code. The kernel means the thread that
//! forked, so only the supervisor's own thread, the process's first, may start nodes. Each node has a process
//! group of its own: Ctrl-C reaches the supervisor alone, which ends the nodes in order.
//!
//! Invariant: only the supervisor's thread reaps and signals a child, so a signal never reaches another
//! process that got its number.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::LocalError;
use super::console::Label;
use super::event::Event;
use super::plan::Node;

/// Longest line of a node that is printed as one.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Lines of a node's end that are kept of each of its two outputs.
const LAST_LINES: usize = 8;

/// Starts a node; `events` is told when its process has ended.
///
/// # Errors
/// [`LocalError::System`]; nothing runs then.
pub(super) fn start(program: &Path, node: &Node, events: SyncSender<Event>) -> Result<Child, LocalError> {
    let mut command = Command::new(program);
    command.args(["local", "run-node", "--parent", &std::process::id().to_string(), "--"]);
    command.args(&node.arguments).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let action = format!("start {} as {}", node.name(), program.display());
    let mut child = command.spawn().map_err(LocalError::system(action))?;
    match watch(&mut child, node, events) {
        Ok(()) => Ok(child),
        Err(source) => {
            // Both fail only if the process has ended and was reaped.
            let _ = child.kill();
            let _ = child.wait();
            Err(LocalError::System { action: format!("watch {}", node.name()), source })
        }
    }
}

/// Passes on what the child prints, and reports its end behind its last line.
fn watch(child: &mut Child, node: &Node, events: SyncSender<Event>) -> io::Result<()> {
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both outputs of {} were asked for", node.name());
    };
    let label = Label::new(&node.name(), node.number);
    let own = label.clone();
    let outputs = thread::Builder::new()
        .name(format!("{}-out", node.name()))
        .spawn(move || pass_on(out, |line| own.print(line)))?;
    let number = node.number;
    let pid = pid(child);
    thread::Builder::new().name(node.name()).spawn(move || {
        let errors = pass_on(err, |line| label.print(line));
        let mut last_lines = outputs.join().unwrap_or_default();
        last_lines.extend(errors);
        // Without reaping it: the number stays this process's until the supervisor knows of the end.
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {}
        // The supervisor has ended: so does its process.
        let _ = events.send(Event::Exited { number, last_lines: last_lines.into() });
    })?;
    Ok(())
}

/// Has `print` print lines until there are no more, and returns the last ones.
fn pass_on(from: impl Read, print: impl Fn(&[u8])) -> VecDeque<String> {
    let mut from = BufReader::new(from);
    let (mut line, mut last) = (Vec::new(), VecDeque::new());
    loop {
        line.clear();
        match (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return last,
            Ok(_) => {}
        }
        print(&line);
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Sends a signal to a child that was not reaped yet.
///
/// # Errors
/// [`LocalError::System`].
pub(super) fn send(child: &Child, signal: Signal) -> Result<(), LocalError> {
    let action = format!("send {signal:?} to process {}", child.id());
    rustix::process::kill_process(pid(child), signal)
        .map_err(|errno| LocalError::system(action)(errno.into()))
}

/// Becomes a node that the kernel ends together with `parent`; returns only if that fails.
pub(super) fn become_node(parent: i32, arguments: &[OsString]) -> LocalError {
    if let Err(errno) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return LocalError::system("tie the node to its supervisor")(errno.into());
    }
    // A parent that ended before that line is not noticed by the kernel any more.
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now != Some(parent) {
        return LocalError::Usage("a node is run by `ceto local` alone, which has ended".to_owned());
    }
    match std::env::current_exe() {
        Ok(program) => LocalError::system("become a node")(Command::new(program).args(arguments).exec()),
        Err(source) => LocalError::system("find this program")(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_are_cut() {
        let check = |text: &[u8], expected: &[&str]| {
            let printed = std::cell::Cell::new(0);
            let last = pass_on(text, |line| printed.set(printed.get() + line.len()));
            assert_eq!(Vec::from(last), expected);
            assert_eq!(printed.get(), text.len(), "every byte is passed on");
        };
        check(b"", &[]);
        check(b"one\ntwo\r\nthree", &["one", "two", "three"]);
        let numbers: String = (0..20).map(|n| format!("{n}\n")).collect();
        check(numbers.as_bytes(), &["12", "13", "14", "15", "16", "17", "18", "19"]);
        check(b"a\xFFb\n", &["a\u{FFFD}b"]);
        let long = "x".repeat(LINE_BYTES_MAX as usize);
        check(format!("{long}y\n").as_bytes(), &[&long, "y"]);
    }

    #[test]
    fn a_node_does_not_run_without_its_supervisor() {
        // No process has this number: the check ends before anything is executed.
        let error = become_node(i32::MAX, &[]).to_string();
        assert!(error.contains("run by `ceto local` alone"), "{error}");
    }
}
