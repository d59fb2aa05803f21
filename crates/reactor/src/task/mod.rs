//! Tasks: a future, its output and its waiter, in one pooled block of memory.
//!
//! The shard's slab holds a task until it is done; a `JoinHandle` may hold it longer. The last holder frees
//! the block. Tasks never leave their shard, so nothing here is atomic. Invariant: the future is dropped as
//! soon as it is done or has panicked, before the output is visible. A panic is caught here, logged with its
//! group, counted, and passed to the join handle.

pub(crate) mod pool;
pub(crate) mod slab;

use std::alloc::Layout;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::sched::Group;
use crate::shard;
use pool::TaskPool;

/// The task panicked, or its shard stopped before it was done; `message` is the panic's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("task panicked: {message}")]
pub struct TaskPanicked {
    /// The panic's message.
    pub message: String,
}

/// The identity of a task for reports: the same for all tasks of one future's type.
pub(crate) struct Identity {
    name: fn() -> &'static str,
}

impl Identity {
    /// The type of the task's future.
    pub(crate) fn name(&self) -> &'static str {
        (self.name)()
    }
}

struct VTable {
    identity: Identity,
    poll: unsafe fn(TaskRef, &mut Context<'_>) -> Poll<Result<(), String>>,
    cancel: unsafe fn(TaskRef, String),
    take: unsafe fn(TaskRef, NonNull<()>),
    destroy: unsafe fn(TaskRef),
}

pub(crate) struct Header {
    vtable: &'static VTable,
    pool: Rc<TaskPool>,
    joiner: RefCell<Option<Waker>>,
    /// Changed by `move_to` only.
    pub(crate) group: Cell<Group>,
    done: Cell<bool>,
    in_slab: Cell<bool>,
    has_handle: Cell<bool>,
}

enum Stage<F: Future> {
    Running(F),
    Finished(Result<F::Output, TaskPanicked>),
    Taken,
}

#[repr(C)]
struct TaskCell<F: Future> {
    header: Header,
    stage: UnsafeCell<Stage<F>>,
}

/// A task in memory. Copies are cheap; validity is the business of the slab and of `JoinHandle`.
#[derive(Clone, Copy)]
pub(crate) struct TaskRef(NonNull<Header>);

impl TaskRef {
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: a `TaskRef` exists only while the slab or a join handle keeps the block alive, and nobody
        // takes `&mut` of a header.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn identity(&self) -> &'static Identity {
        &self.header().vtable.identity
    }

    /// Polls the future once. `true` when it is done, also by panic.
    ///
    /// # Safety
    /// The task is in the slab, not done, and not being polled.
    pub(crate) unsafe fn poll(self, context: &mut Context<'_>) -> bool {
        // SAFETY: passed on to the caller.
        match unsafe { (self.header().vtable.poll)(self, context) } {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(message)) => {
                let header = self.header();
                shard::with(|shard| {
                    shard.note_panic(header.group.get(), &message);
                    if !header.has_handle.get() {
                        shard.note_lost_panic(message);
                    }
                });
            }
        }
        self.finish();
        true
    }

    /// Drops the future of a task that will not run again.
    ///
    /// # Safety
    /// As for `poll`.
    pub(crate) unsafe fn cancel(self) {
        // SAFETY: passed on to the caller.
        unsafe { (self.header().vtable.cancel)(self, "the shard stopped".to_owned()) };
        self.finish();
    }

    fn finish(self) {
        self.header().done.set(true);
        let joiner = self.header().joiner.take();
        if let Some(joiner) = joiner {
            joiner.wake();
        }
    }

    /// The slab lets go of the task.
    pub(crate) fn leave_slab(self) {
        self.header().in_slab.set(false);
        self.free_if_last();
    }

    fn free_if_last(self) {
        if !self.header().in_slab.get() && !self.header().has_handle.get() {
            // SAFETY: both holders are gone, so this is the last reference.
            unsafe { (self.header().vtable.destroy)(self) };
        }
    }
}

impl<F: Future> TaskCell<F> {
    const VTABLE: VTable = VTable {
        identity: Identity { name: std::any::type_name::<F> },
        poll: Self::poll,
        cancel: Self::cancel,
        take: Self::take,
        destroy: Self::destroy,
    };

    /// The stage of `task`, which is a `TaskCell<F>`.
    fn stage(task: TaskRef) -> *mut Stage<F> {
        let cell = task.0.cast::<TaskCell<F>>().as_ptr();
        // SAFETY: the block holds a `TaskCell<F>`; the projection makes no reference.
        let stage = unsafe { &raw const (*cell).stage };
        UnsafeCell::raw_get(stage)
    }

    unsafe fn poll(task: TaskRef, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the executor polls a task from one place at a time, so this is the only reference.
            let stage = unsafe { &mut *Self::stage(task) };
            let Stage::Running(future) = stage else { panic!("a finished task was polled") };
            // SAFETY: the future never moves: it is built in its block and dropped there.
            unsafe { Pin::new_unchecked(future) }.poll(context)
        }));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => {
                let dropped = Self::replace(task, Ok(output));
                Poll::Ready(dropped)
            }
            Err(panic) => {
                let message = panic_message(&*panic);
                // A second panic while the future is dropped adds nothing to the first.
                let _ = Self::replace(task, Err(TaskPanicked { message: message.clone() }));
                Poll::Ready(Err(message))
            }
        }
    }

    /// Drops the future in place and puts `output` where it was; the message of a panicking drop is returned.
    fn replace(task: TaskRef, output: Result<F::Output, TaskPanicked>) -> Result<(), String> {
        let stage = Self::stage(task);
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the stage is valid and nobody else refers to it; it is overwritten right below.
            unsafe { std::ptr::drop_in_place(stage) };
        }));
        // SAFETY: the old value is gone (a panicking drop leaves nothing to be dropped again).
        unsafe { stage.write(Stage::Finished(output)) };
        dropped.map_err(|panic| panic_message(&*panic))
    }

    unsafe fn cancel(task: TaskRef, message: String) {
        // The log is the only place for a panic in a destructor of a stopping shard.
        if let Err(message) = Self::replace(task, Err(TaskPanicked { message })) {
            shard::try_with(|shard| shard.note_panic(task.header().group.get(), &message));
        }
    }

    unsafe fn take(task: TaskRef, target: NonNull<()>) {
        let stage = Self::stage(task);
        // SAFETY: the task is done, so no poll holds a reference to the stage.
        let taken = unsafe { std::ptr::replace(stage, Stage::Taken) };
        let Stage::Finished(output) = taken else { panic!("a task's output was taken twice") };
        // SAFETY: the join handle passes a valid, empty place for exactly this type.
        unsafe { target.cast::<Option<Result<F::Output, TaskPanicked>>>().write(Some(output)) };
    }

    unsafe fn destroy(task: TaskRef) {
        let pool = task.header().pool.clone();
        let block = task.0.cast::<TaskCell<F>>();
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the last reference is gone; the block holds a valid `TaskCell<F>`.
            unsafe { std::ptr::drop_in_place(block.as_ptr()) };
        }));
        if let Err(panic) = dropped {
            shard::try_with(|shard| shard.note_panic(Group::ADMIN, &panic_message(&*panic)));
        }
        // SAFETY: the block came from this pool with this layout and is now unused.
        unsafe { pool.release(block.cast(), Layout::new::<TaskCell<F>>()) };
    }
}

/// The text of a panic's payload.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "panic without text".to_owned()
    }
}

/// Builds the task in pooled memory; the caller puts it into the slab.
///
/// The future is made here and by `make`, because it may have kilobytes and `make` does not: each function it
/// were handed through would copy it.
#[inline]
pub(crate) fn create<F: Future + 'static>(
    pool: &Rc<TaskPool>,
    group: Group,
    make: impl FnOnce() -> F,
) -> (TaskRef, JoinHandle<F::Output>) {
    let header = Header {
        vtable: &TaskCell::<F>::VTABLE,
        pool: pool.clone(),
        joiner: RefCell::new(None),
        group: Cell::new(group),
        done: Cell::new(false),
        in_slab: Cell::new(true),
        has_handle: Cell::new(true),
    };
    // Made before there is a block that a panic of `make` would lose.
    let cell = TaskCell { header, stage: UnsafeCell::new(Stage::Running(make())) };
    let block = pool.allocate(Layout::new::<TaskCell<F>>()).cast::<TaskCell<F>>();
    // SAFETY: the block is fresh and laid out for a `TaskCell<F>`.
    unsafe { block.write(cell) };
    let task = TaskRef(block.cast());
    (task, JoinHandle { task, output: PhantomData })
}

/// Starts `future` as a task of `group` on this shard. Dropping the handle detaches the task.
///
/// A task ends early only with its shard. Its panic is logged, counted, and the handle's error.
pub fn spawn<F: Future + 'static>(group: Group, future: F) -> JoinHandle<F::Output> {
    shard::with(|shard| shard.spawn(group, future))
}

/// Creates a detached task of `group` from the future that `make` returns. If the caller's task belongs to
/// that group too, the task is polled once before returning; otherwise it is queued as by [`spawn`].
///
/// Short work is then done at once: thousands of requests that arrive together do not each hold a task's
/// memory while they queue. The caller awaits [`maybe_yield`](crate::maybe_yield) between such calls.
#[inline]
pub fn spawn_now<F: Future + 'static>(group: Group, make: impl FnOnce() -> F) {
    shard::with(|shard| shard.spawn_now(group, make));
}

/// Moves the running task to another group, and waits for a slice of that group; returns at once if it
/// belongs to that group already.
///
/// From then on its time and its disk requests are charged there. For work whose weight shows only after it
/// has begun, such as a request that turns out to be a scan.
pub async fn move_to(group: Group) {
    let moved = shard::with(|shard| shard.move_current(group));
    if moved {
        crate::sched::yield_now().await;
    }
}

/// Drops `parts` one after the other in a background task that yields between them; at once outside of a
/// shard, and if there are few.
///
/// For large values that are freed as a whole: the destructors of a hundred thousand small values take
/// milliseconds.
pub fn drop_in_steps<T: 'static>(parts: Vec<T>) {
    if parts.len() < PARTS_DROPPED_AT_ONCE {
        return;
    }
    shard::try_with(|shard| {
        let task = async move {
            for part in parts {
                drop(part);
                crate::sched::maybe_yield().await;
            }
        };
        shard.spawn(Group::BACKGROUND, task).detach();
    });
}

/// Parts that are not worth a task.
const PARTS_DROPPED_AT_ONCE: usize = 4;

/// Waits for a task: a future of its output.
#[must_use = "dropping the handle detaches the task; say so with `drop`"]
pub struct JoinHandle<T> {
    task: TaskRef,
    output: PhantomData<T>,
}

impl<T> JoinHandle<T> {
    /// Whether the task is done.
    pub fn is_finished(&self) -> bool {
        self.task.header().done.get()
    }

    /// Lets the task run on its own.
    pub fn detach(self) {}
}

impl<T> Unpin for JoinHandle<T> {}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, TaskPanicked>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let header = self.task.header();
        if !header.done.get() {
            header.joiner.replace(Some(context.waker().clone()));
            return Poll::Pending;
        }
        let mut output: Option<Result<T, TaskPanicked>> = None;
        // SAFETY: the task is done, and `output` is a place of the type the task was created with.
        unsafe { (header.vtable.take)(self.task, NonNull::from(&mut output).cast()) };
        Poll::Ready(output.expect("a finished task has an output"))
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        self.task.header().has_handle.set(false);
        self.task.free_if_last();
    }
}
