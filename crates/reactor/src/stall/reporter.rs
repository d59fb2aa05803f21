//! The thread that gives stalls their names: woken by the handler, at the lowest priority, one for the
//! process.
//!
//! Finding names reads the program's debug information, which takes long the first time and memory while it
//! lasts, or where there is little memory only its table of symbols (`symbols`); neither is felt by a shard.
//! Invariant: the thread touches a pulse's slot only while it is marked
//! full.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::symbols::{Symbols, of_library};
use super::{Pulse, Stall, StallKind};
use crate::sched::Group;

/// Each shard's pulse, the function for its reports, and whether they name inlined functions.
type Watched = Vec<(Weak<Pulse>, fn(&Stall), bool)>;

/// Frames named in one report.
const NAMES_MAX: usize = 32;
/// Trailing parts of a file's path that a name is given: enough for `crate/src/room/file.rs`.
const PARTS_OF_PATH: usize = 4;

static WATCHED: Mutex<Watched> = Mutex::new(Vec::new());
static BELL: OnceLock<OwnedFd> = OnceLock::new();

/// Makes the thread look after `pulse`; starts it if it does not run yet.
pub(super) fn register(pulse: &Arc<Pulse>, report: fn(&Stall), inlined: bool) -> io::Result<()> {
    let mut watched = WATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if BELL.get().is_none() {
        // Under the lock, so no other shard does this at the same time.
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        let bell = BELL.get_or_init(|| bell).as_fd();
        std::thread::Builder::new().name("stalls".to_owned()).spawn(move || work(bell))?;
    }
    watched.retain(|(pulse, ..)| pulse.strong_count() > 0);
    watched.push((Arc::downgrade(pulse), report, inlined));
    Ok(())
}

/// Wakes the thread: from the handler, so only a write.
pub(super) fn call() {
    if let Some(bell) = BELL.get() {
        let one = 1u64;
        // SAFETY: a descriptor that is never closed, and eight bytes of a local. Fails only when the counter
        // is full, and then the thread has been called.
        unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}

fn work(bell: BorrowedFd<'static>) {
    crate::start::unpin();
    // SAFETY: no memory is involved. At its own priority the thread would compete with the shard it reports
    // on.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    let mut count = [0; 8];
    // One round per call; ends only if the descriptor is broken.
    while matches!(rustix::io::read(bell, &mut count), Ok(_) | Err(rustix::io::Errno::INTR)) {
        let watched: Watched =
            WATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().cloned().collect();
        for (pulse, report, inlined) in watched {
            if let Some(stall) = pulse.upgrade().and_then(|pulse| take(&pulse, inlined)) {
                report(&stall);
            }
        }
        // Frees the memory of the debug information.
        backtrace::clear_symbol_cache();
    }
}

fn take(pulse: &Pulse, inlined: bool) -> Option<Stall> {
    let slot = &pulse.slot;
    if !slot.full.load(Ordering::Acquire) {
        return None;
    }
    let addresses: Vec<usize> = slot.frames[..slot.count.load(Ordering::Relaxed)]
        .iter()
        .map(|at| at.load(Ordering::Relaxed))
        .collect();
    let group = slot.group.load(Ordering::Relaxed);
    let task = slot.task.load(Ordering::Relaxed);
    // SAFETY: null or a `&'static Identity`, as stored by `begin_poll`.
    let task = unsafe { task.as_ref() }.map(|identity| identity.name());
    let kind = StallKind::ALL.into_iter().find(|kind| *kind as u8 == slot.kind.load(Ordering::Relaxed));
    let stall = Stall {
        shard: pulse.shard,
        held: Duration::from_nanos(slot.held_ns.load(Ordering::Relaxed)),
        kind: kind.unwrap_or(StallKind::Task),
        group: Group::all().find(|known| known.0 == group).map(Group::name),
        task,
        trace: Vec::new(),
        left_out: slot.left_out.load(Ordering::Relaxed),
    };
    slot.full.store(false, Ordering::Release);
    let trace = if inlined { names(&addresses) } else { functions(&addresses) };
    Some(Stall { trace, ..stall })
}

/// The functions at `addresses`, inlined ones included, up to where the executor called the task.
fn names(addresses: &[usize]) -> Vec<String> {
    let mut names = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        // All addresses but the innermost are return addresses: `resolve` looks one byte before the address
        // it is given.
        let address = address + usize::from(number == 0);
        let mut own = true;
        let mut any = false;
        backtrace::resolve(ptr::without_provenance_mut::<c_void>(address), |symbol| {
            let name = symbol.name().map_or_else(|| "unknown".to_owned(), |name| format!("{name:#}"));
            any = true;
            own &= !is_executor(&name, symbol.filename());
            if own && names.len() < NAMES_MAX && !is_plumbing(&name) {
                names.push(placed(name, symbol.filename(), symbol.lineno()));
            }
        });
        if !any && names.len() < NAMES_MAX {
            names.push(format!("{address:#x}"));
        }
        if !own {
            break;
        }
    }
    names
}

/// As [`names`], without inlined functions: from the table of symbols.
fn functions(addresses: &[usize]) -> Vec<String> {
    // All addresses but the innermost are return addresses, and the call may be a function's last
    // instruction.
    let called = |(number, address): (usize, &usize)| address.saturating_sub(usize::from(number > 0));
    let addresses: Vec<usize> = addresses.iter().enumerate().map(called).collect();
    let found = Symbols::open().and_then(|symbols| symbols.functions(&addresses));
    let found = found.unwrap_or_else(|_| vec![None; addresses.len()]);
    let mut names = Vec::new();
    for (address, name) in addresses.iter().zip(found) {
        let name = name.or_else(|| of_library(*address)).unwrap_or_else(|| format!("{address:#x}"));
        if is_executor(&name, None) || names.len() == NAMES_MAX {
            break;
        }
        if !is_plumbing(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a frame is the executor's. Names of inlined functions come without a path, so the file is checked
/// too.
fn is_executor(name: &str, file: Option<&Path>) -> bool {
    name.contains("reactor::task::TaskCell")
        || name.starts_with("reactor::shard::turn")
        || file.is_some_and(|file| {
            file.ends_with("reactor/src/task/mod.rs") || file.ends_with("reactor/src/shard/turn.rs")
        })
}

/// A name, with file and line if it has no path of its own, as those of inlined functions and blocks.
fn placed(name: String, file: Option<&Path>, line: Option<u32>) -> String {
    if name.contains("::") && !name.starts_with('{') {
        return name;
    }
    let Some(file) = file else { return name };
    let parts: Vec<_> = file.iter().rev().take(PARTS_OF_PATH).map(|part| part.to_string_lossy()).collect();
    let parts: Vec<_> = parts.into_iter().rev().collect();
    format!("{name} ({}:{})", parts.join("/"), line.unwrap_or(0))
}

/// Frames that every task has, so that they do not identify a task.
fn is_plumbing(name: &str) -> bool {
    name.starts_with("std::panicking::")
        || name.starts_with("std::panic::")
        || name.starts_with("__rust_try")
        || name.contains("AssertUnwindSafe")
        || name.contains("core::ops::function::FnOnce::call_once")
}
