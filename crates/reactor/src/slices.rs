//! Plain functions that can give way: they run on a stack of their own, which can be left in their middle.
//!
//! A parser or a fold over constants recurses, and cannot await. [`in_slices`] runs such work on a separate
//! stack; where the work calls [`give_way`] and its task should let others run, the stack is left as it
//! stands and the task yields. Elsewhere `give_way` does nothing, so code that is also called without
//! `in_slices` may contain it.
//!
//! Invariants: a stack is left only inside `give_way`, so the work must hold no borrow of a `RefCell` there
//! that others could want; at most [`STACKS_MAX`] works of a shard have begun and not ended, later ones wait
//! in line; works wait for nothing but the core, so the line moves. Dropping the future unwinds its stack, as
//! a panic would.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll};

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::sched::GIVE_WAY_NS;
use crate::shard::{self, Shard};
use crate::sync::semaphore::Semaphore;

/// Works of a shard that have begun and not ended.
const STACKS_MAX: usize = 16;
/// Address space of a stack, of which only touched pages take memory: a thousand nested operators take 10 MB
/// in a build without optimization.
const STACK_BYTES: usize = 32 << 20;
/// Time that a work may have before it gives way, even if its group's slice ends: short works end at once.
const TURN_MIN_NS: u64 = GIVE_WAY_NS;
/// Stacks that are kept for the next works. What the last work touched of one stays in memory.
const STACKS_KEPT_MAX: usize = 2;

type Work<T> = Coroutine<(), (), T, DefaultStack>;

/// The counters of a work that others change while it is away.
pub trait Away {
    /// The work's stack is about to be left.
    fn leave(&self);
    /// The work goes on.
    fn come_back(&self);
}

/// A work without such counters.
impl Away for () {
    fn leave(&self) {}
    fn come_back(&self) {}
}

/// The work whose stack the thread is on.
#[derive(Clone, Copy)]
struct Current {
    /// Leaves the stack.
    yielder: NonNull<Yielder<(), ()>>,
    away: NonNull<dyn Away>,
}

/// The stacks of one shard.
pub(crate) struct Stacks {
    free: RefCell<Vec<DefaultStack>>,
    places: Semaphore,
}

thread_local! {
    /// The work that is running; `None` on the thread's own stack.
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
    /// When the running work was first seen in its turn; 0 before.
    static SEEN_NS: Cell<u64> = const { Cell::new(0) };
}

impl Stacks {
    pub(crate) fn new() -> Self {
        Self { free: RefCell::default(), places: Semaphore::new(STACKS_MAX) }
    }

    fn take(&self) -> DefaultStack {
        let kept = self.free.borrow_mut().pop();
        kept.unwrap_or_else(|| {
            let stack = DefaultStack::new(STACK_BYTES).expect("address space for a stack");
            let (limit, base) = (stack.limit().get(), stack.base().get());
            // SAFETY: the range is this stack's mapping. With huge pages the first touch would take 2 MiB.
            let advised = unsafe { libc::madvise(limit as *mut _, base - limit, libc::MADV_NOHUGEPAGE) };
            // A kernel without huge pages does not know the advice, and needs none.
            debug_assert!(
                advised == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
            );
            stack
        })
    }

    fn put_back(&self, stack: DefaultStack) {
        let mut free = self.free.borrow_mut();
        if free.len() < STACKS_KEPT_MAX {
            free.push(stack);
        }
    }
}

/// Runs `work` on a stack of its own, in slices: it gives way wherever it calls [`give_way`].
///
/// `work` must not block, enter another shard or poll futures, and holds no borrow of shared state while it
/// calls `give_way`; `away` is called around each time that others run. A panic of `work` is the caller's
/// panic.
pub async fn in_slices<T>(away: &dyn Away, work: impl FnOnce() -> T) -> T {
    let stacks = shard::with(|shard| Rc::clone(&shard.stacks));
    let place = stacks.places.acquire(1).await;
    let place = place.expect("the line for stacks has no bound");
    let done = Slices::begin(Rc::clone(&stacks), away, work).await;
    drop(place);
    done
}

/// Lets others run if the task should, when called below [`in_slices`]; otherwise does nothing.
///
/// It reads the clock: call it about once per microsecond of work.
#[inline]
pub fn give_way() {
    if let Some(current) = CURRENT.get() {
        leave_if_time(current);
    }
}

#[cold]
#[inline(never)]
fn leave_if_time(current: Current) {
    if !shard::with(|shard| shard.need_preempt() && has_had_its_turn(shard)) {
        return;
    }
    // SAFETY: it is borrowed by the future that this call is below, which ends or unwinds this stack first.
    let away = unsafe { current.away.as_ref() };
    away.leave();
    // SAFETY: the yielder is that of the running stack, which this call is on: it stands until the work ends.
    unsafe { current.yielder.as_ref() }.suspend(());
    CURRENT.set(Some(current));
    away.come_back();
}

/// Whether the running work has had the core for a while.
fn has_had_its_turn(shard: &Shard) -> bool {
    let now_ns = shard.now().0;
    if SEEN_NS.get() == 0 {
        SEEN_NS.set(now_ns);
    }
    shard.is_simulated() || now_ns - SEEN_NS.get() >= TURN_MIN_NS
}

/// A work and its stack.
struct Slices<'work, T> {
    /// `None` once it has ended.
    work: Option<Work<T>>,
    stacks: Rc<Stacks>,
    /// The work borrows for this long.
    borrows: PhantomData<&'work ()>,
}

impl<'work, T> Slices<'work, T> {
    fn begin(stacks: Rc<Stacks>, away: &'work dyn Away, work: impl FnOnce() -> T + 'work) -> Self {
        let away = NonNull::from(away);
        // SAFETY: this only forgets `'work`: see `give_way`.
        let away = unsafe { std::mem::transmute::<NonNull<dyn Away + 'work>, NonNull<dyn Away>>(away) };
        let first = move |yielder: &Yielder<(), ()>, ()| {
            CURRENT.set(Some(Current { yielder: NonNull::from(yielder), away }));
            work()
        };
        // SAFETY: `first` borrows for `'work`, which outlives this value; dropping it ends or unwinds the
        // coroutine. If it is forgotten its stack is never run again.
        let work = unsafe { Coroutine::with_stack_unchecked(stacks.take(), first) };
        Self { work: Some(work), stacks, borrows: PhantomData }
    }
}

impl<T> Future for Slices<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let work = this.work.as_mut().expect("polled after its end");
        let resumed = {
            let _left = Left { before: CURRENT.take() };
            SEEN_NS.set(0);
            work.resume(())
        };
        match resumed {
            CoroutineResult::Yield(()) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            CoroutineResult::Return(done) => {
                this.stacks.put_back(this.work.take().expect("it has run").into_stack());
                Poll::Ready(done)
            }
        }
    }
}

/// Marks, when it is dropped, that the thread is back on the stack it was on before.
struct Left {
    before: Option<Current>,
}

impl Drop for Left {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}
