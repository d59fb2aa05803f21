//! The ring itself: set-up with the best flags the kernel grants, queueing, and the one system call.
//!
//! With DEFER_TASKRUN completions appear only inside an enter with GETEVENTS, and the kernel raises a flag in
//! shared memory when there are some: `pending` is one load. Submissions beyond the queue's size wait in an
//! overflow list. Invariant: created, used and dropped on one thread (SINGLE_ISSUER).

use std::collections::VecDeque;
use std::io;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};

use crate::driver::Wait;
use crate::driver::ambient::monotonic_ns;

const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 8192;
/// Helper threads of the kernel per ring, for calls that block: fsync above all.
const KERNEL_WORKERS_MAX: u32 = 8;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 8;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

pub(super) struct Ring {
    ring: IoUring,
    overflow: VecDeque<squeue::Entry>,
    enter_flags: u32,
}

impl Ring {
    /// # Errors
    /// When the kernel has no io_uring, forbids it, or lacks multishot receive (before 6.0).
    pub(super) fn new() -> io::Result<Self> {
        let mut refused = None;
        // SINGLE_ISSUER came with kernel 6.0, as did multishot receive, so every set of flags includes it.
        for (defer, no_array) in [(true, true), (true, false), (false, false)] {
            let mut builder = IoUring::builder();
            builder.setup_clamp().setup_cqsize(COMPLETIONS).setup_submit_all();
            builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag().dontfork();
            if defer {
                builder.setup_defer_taskrun();
            }
            if no_array {
                builder.setup_no_sqarray();
            }
            match builder.build(SUBMISSIONS) {
                Ok(ring) => return Self::with(ring),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
    }

    fn with(ring: IoUring) -> io::Result<Self> {
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"));
        }
        let mut workers = [KERNEL_WORKERS_MAX, KERNEL_WORKERS_MAX];
        // Kernels that cannot limit them use their own limit.
        let _ = ring.submitter().register_iowq_max_workers(&mut workers);
        if let Some(cpus) = crate::start::allowed_cpus() {
            // A pinned shard's helpers would sit on its own core.
            let _ = ring.submitter().register_iowq_aff(&cpus);
        }
        let mut enter_flags = ENTER_GETEVENTS;
        if ring.params().is_feature_no_iowait() {
            enter_flags |= ENTER_NO_IOWAIT;
        }
        Ok(Self { ring, overflow: VecDeque::new(), enter_flags })
    }

    pub(super) fn raw(&self) -> &IoUring {
        &self.ring
    }

    /// Queues a submission.
    ///
    /// # Safety
    /// The memory that the entry points to stays valid and in place until its completion.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.overflow.is_empty() {
            // SAFETY: passed on to the caller.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.overflow.push_back(entry);
    }

    fn refill(&mut self) {
        while let Some(entry) = self.overflow.front() {
            // SAFETY: `push` was promised that the entry stays valid.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return;
            }
            self.overflow.pop_front();
        }
    }

    /// Submissions not yet with the kernel.
    pub(super) fn queued(&mut self) -> usize {
        self.ring.submission().len() + self.overflow.len()
    }

    /// Whether completions have arrived or can be had by an enter: loads from shared memory only.
    pub(super) fn pending(&self) -> bool {
        // SAFETY: queues are made and dropped within one method of this type, on one thread: no other one
        // lives.
        let submission = unsafe { self.ring.submission_shared() };
        if submission.taskrun() || submission.cq_overflow() {
            return true;
        }
        drop(submission);
        // SAFETY: as above.
        let completion = unsafe { self.ring.completion_shared() };
        !completion.is_empty()
    }

    /// Hands queued submissions over without running completions.
    pub(super) fn submit(&mut self) {
        // Each round hands over at least one or stops.
        while self.queued() > 0 {
            self.refill();
            let count = self.ring.submission().len();
            if self.enter(count, 0, 0, None) == 0 {
                return;
            }
        }
    }

    /// Submits, runs completions, and waits for one if allowed. Skips the call when there is nothing to gain.
    pub(super) fn turn(&mut self, wait: Wait) {
        self.refill();
        let count = self.ring.submission().len();
        let wait = if self.ring.completion().is_empty() { wait } else { Wait::No };
        match wait {
            Wait::No if count == 0 && !self.pending() => {}
            Wait::No => {
                self.enter(count, 0, self.enter_flags, None);
            }
            Wait::Forever => {
                self.enter(count, 1, self.enter_flags, None);
            }
            Wait::Until(at) => {
                let left = at.0.saturating_sub(monotonic_ns());
                let timespec = Timespec::new().sec(left / 1_000_000_000).nsec((left % 1_000_000_000) as u32);
                self.enter(count, 1, self.enter_flags, Some(&timespec));
            }
        }
        if !self.overflow.is_empty() {
            self.submit();
        }
    }

    fn enter(&mut self, count: usize, want: u32, flags: u32, timespec: Option<&Timespec>) -> usize {
        let submitter = self.ring.submitter();
        let entered = match timespec {
            Some(timespec) => {
                let args = SubmitArgs::new().timespec(timespec);
                // SAFETY: EXT_ARG goes with an argument of exactly this type, alive during the call.
                unsafe { submitter.enter(count as u32, want, flags | ENTER_EXT_ARG, Some(&args)) }
            }
            // SAFETY: no argument, and the flags ask for none.
            None => unsafe { submitter.enter::<libc::sigset_t>(count as u32, want, flags, None) },
        };
        match entered {
            Ok(submitted) => submitted,
            Err(error) => match error.raw_os_error() {
                // A signal, the time limit, or a kernel short of memory or completion space: the next turn
                // continues.
                Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => 0,
                _ => panic!("io_uring_enter: {error}"),
            },
        }
    }

    /// Moves the arrived completions into `into`.
    pub(super) fn reap(&mut self, into: &mut Vec<cqueue::Entry>) {
        into.extend(self.ring.completion());
    }
}
