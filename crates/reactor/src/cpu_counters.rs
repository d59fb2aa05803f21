//! Processor counters of the calling thread: instructions and cycles, of its own code only
//! (perf_event_open(2)).
//!
//! Many virtual machines have no such counters and many kernels refuse them, so callers must do without.
//! Linux only; on other systems there are none. `ceto perf` uses this.

use std::io;

/// Processor counts of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuCounts {
    /// Instructions retired in user mode.
    pub instructions: u64,
    /// Cycles in user mode.
    pub cycles: u64,
}

impl CpuCounts {
    /// The counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(earlier.instructions),
            cycles: self.cycles.saturating_sub(earlier.cycles),
        }
    }
}

/// Counters of one thread.
#[derive(Debug)]
pub struct CpuCounters {
    instructions: linux::Counter,
    cycles: linux::Counter,
}

impl CpuCounters {
    /// Counters of the calling thread, from now on.
    ///
    /// # Errors
    /// As perf_event_open(2): `NotFound` if the processor has none, `PermissionDenied` if
    /// `kernel.perf_event_paranoid` or a sandbox forbids them, `Unsupported` on other systems.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            instructions: linux::Counter::open(linux::HARDWARE, linux::INSTRUCTIONS)?,
            cycles: linux::Counter::open(linux::HARDWARE, linux::CYCLES)?,
        })
    }

    /// The counts so far.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self) -> io::Result<CpuCounts> {
        Ok(CpuCounts { instructions: self.instructions.read()?, cycles: self.cycles.read()? })
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io::{self, Read};
    use std::os::fd::{FromRawFd, RawFd};

    /// `PERF_TYPE_HARDWARE` and two of its events.
    pub(super) const HARDWARE: u32 = 0;
    pub(super) const CYCLES: u64 = 0;
    pub(super) const INSTRUCTIONS: u64 = 1;
    /// `exclude_kernel` and `exclude_hv` of the attribute's flags.
    const USER_ONLY: u64 = 1 << 5 | 1 << 6;
    const FD_CLOEXEC: libc::c_ulong = 8;

    /// `struct perf_event_attr` as its first version has it; later kernels take the shorter one.
    #[repr(C)]
    struct Attribute {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        wakeup_events: u32,
        breakpoint_kind: u32,
        breakpoint_address: u64,
    }

    #[derive(Debug)]
    pub(super) struct Counter(File);

    impl Counter {
        pub(super) fn open(kind: u32, config: u64) -> io::Result<Self> {
            let attribute = Attribute {
                kind,
                size: size_of::<Attribute>() as u32,
                config,
                sample_period: 0,
                sample_type: 0,
                read_format: 0,
                flags: USER_ONLY,
                wakeup_events: 0,
                breakpoint_kind: 0,
                breakpoint_address: 0,
            };
            let (this_thread, any_cpu, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (0, -1, -1);
            // SAFETY: the kernel reads `size` bytes of the attribute, which lives until the call is over.
            let fd = unsafe {
                libc::syscall(
                    libc::SYS_perf_event_open,
                    &raw const attribute,
                    this_thread,
                    any_cpu,
                    no_group,
                    FD_CLOEXEC,
                )
            };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor is fresh and nobody else's.
            Ok(Self(unsafe { File::from_raw_fd(fd as RawFd) }))
        }

        pub(super) fn read(&self) -> io::Result<u64> {
            let mut count = [0; 8];
            (&self.0).read_exact(&mut count)?;
            Ok(u64::from_ne_bytes(count))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// `PERF_TYPE_SOFTWARE` and its clock of a thread's running time: there without any hardware.
        const SOFTWARE: u32 = 1;
        const TASK_CLOCK: u64 = 1;

        #[test]
        fn a_counter_grows_while_its_thread_works() {
            // Sandboxes forbid the call itself.
            let Ok(counter) = Counter::open(SOFTWARE, TASK_CLOCK) else { return };
            let before = counter.read().unwrap();
            let mut after = before;
            for _ in 0..1_000_000 {
                after = counter.read().unwrap();
                if after > before {
                    break;
                }
            }
            assert!(after > before);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use std::io;

    pub(super) const HARDWARE: u32 = 0;
    pub(super) const CYCLES: u64 = 0;
    pub(super) const INSTRUCTIONS: u64 = 1;

    #[derive(Debug)]
    pub(super) struct Counter(std::convert::Infallible);

    impl Counter {
        pub(super) fn open(_: u32, _: u64) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn read(&self) -> io::Result<u64> {
            match self.0 {}
        }
    }
}
