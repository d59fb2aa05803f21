//! Time as the shard sees it: monotonic instants, deadlines, sleeping, and the wall clock.
//!
//! Both clocks come from the driver, so that under simulation they are virtual and exact.

use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::shard;
use crate::timer::TimerKey;

/// A moment on the monotonic clock, in nanoseconds since an origin that means nothing outside this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub(crate) u64);

impl Instant {
    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Time passed since `earlier`, zero if `earlier` lies in the future.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time passed from this instant until now.
    pub fn elapsed(self) -> Duration {
        now().since(self)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// The monotonic clock's present value.
pub fn now() -> Instant {
    shard::with(|shard| shard.now())
}

/// The monotonic clock at the start of the present slice of the core. It is behind [`now`] by the age of the
/// slice, and costs a load from memory. For uses that tolerate half a millisecond of delay: checking whether
/// a deadline has passed, or whether it is time to measure.
#[inline]
pub fn coarse_now() -> Instant {
    shard::with(|shard| Instant(shard.sched.clock_ns.get()))
}

/// Has [`coarse_now`] and [`Deadline::about`] go by the present moment: for the end of work that took a good
/// part of a slice or more, behind which a deadline would count time that was not its own. Does nothing
/// outside of a shard.
pub fn refresh_clock() {
    shard::try_with(|shard| shard.sched.clock_ns.set(shard.now().0));
}

/// Microseconds since the Unix epoch; virtual under simulation.
pub fn wall_clock_us() -> i64 {
    shard::with(|shard| shard.wall_clock_us())
}

/// About [`wall_clock_us`]: the wall clock as read within the last millisecond or slice of the core, plus the
/// time since then by [`coarse_now`]. Costs loads from memory; a change of the wall clock is seen up to a
/// millisecond later.
#[inline]
pub fn coarse_wall_clock_us() -> i64 {
    shard::with(|shard| shard.coarse_wall_clock_us())
}

/// A moment after which an answer is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline that does not come.
    pub const NEVER: Deadline = Deadline(Instant(u64::MAX));

    /// The deadline `duration` from now.
    pub fn after(duration: Duration) -> Self {
        Self(now() + duration)
    }

    /// The deadline `duration` after the start of the present slice of the core ([`coarse_now`]), so less
    /// than a millisecond early. For deadlines that every request needs, and for operations that take long
    /// anyway.
    #[inline]
    pub fn about(duration: Duration) -> Self {
        Self(coarse_now() + duration)
    }

    /// The deadline at `instant`.
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// Whether the deadline has come.
    pub fn is_past(self) -> bool {
        self != Self::NEVER && now() >= self.0
    }

    /// The moment itself; far in the future for [`Deadline::NEVER`].
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// Time left, zero if past.
    pub fn remaining(self) -> Duration {
        self.0.since(now())
    }
}

/// The deadline came before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct TimedOut;

/// Completes once `duration` has passed; not before.
pub async fn sleep(duration: Duration) {
    sleep_until(now() + duration).await;
}

/// Completes once the monotonic clock reads `instant` or later.
pub async fn sleep_until(instant: Instant) {
    Sleep { until: instant, key: None }.await;
}

/// Runs `future` until it is done or `deadline` has come, whichever is first; a late future is dropped.
///
/// # Errors
/// [`TimedOut`] when the deadline came first.
pub fn timeout<F: Future>(deadline: Deadline, future: F) -> Timeout<F> {
    let sleep = (deadline != Deadline::NEVER).then_some(Sleep { until: deadline.0, key: None });
    Timeout { future, sleep }
}

/// Future of [`timeout`]. As an `async fn` it would hold its argument twice, and requests nest several.
pub struct Timeout<F> {
    future: F,
    sleep: Option<Sleep>,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, TimedOut>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is only ever reached through this pin and not moved out; `sleep` is `Unpin`.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above, `this.future` stays where the pinned `self` is.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        if let Poll::Ready(output) = future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        match this.sleep.as_mut() {
            Some(sleep) => Pin::new(sleep).poll(context).map(|()| Err(TimedOut)),
            None => Poll::Pending,
        }
    }
}

/// A timer; registered with the shard's wheel at its first poll, taken out when dropped.
struct Sleep {
    until: Instant,
    key: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        shard::with(|shard| {
            // The slice's clock: a timer that is due since then fires in the next turn, and arming one, as
            // each request does that has to wait, asks no clock.
            if shard.sched.clock_ns.get() >= this.until.0 {
                return Poll::Ready(());
            }
            let mut timers = shard.timers.borrow_mut();
            let kept = this.key.is_some_and(|key| timers.set_waker(key, context.waker()));
            if !kept {
                this.key = Some(timers.insert(this.until, context.waker().clone()));
            }
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            shard::try_with(|shard| shard.timers.borrow_mut().remove(key));
        }
    }
}
