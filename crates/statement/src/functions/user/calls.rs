//! Calls of user-defined functions by one execution of a statement, in slices.
//!
//! Evaluation is synchronous. If a call comes to the end of its slice, it is kept here and evaluation fails
//! with a placeholder error. The caller of the evaluation checks [`Calls::is_paused`], lets other tasks run
//! ([`Calls::rest`]) and evaluates again: calls that have ended are answered from here, in the order in which
//! they were made, and the paused one continues. So one step of evaluation makes the same calls each time,
//! and changes nothing until it has succeeded. A paused call is dropped together with its execution.
//! Invariant: of one execution at most one call is paused. Of one shard at most [`PAUSED_MAX`] are paused,
//! and their sandboxes together hold no more memory than the shard has for them.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use reactor::{Deadline, Permit, Semaphore, TimedOut};

use super::slice::Slice;
use super::{CallTimes, Running, Step, UserFunction};
use crate::StatementError;

/// Calls of one shard that may be paused at a time; further ones start again later.
pub const PAUSED_MAX: usize = 16;

/// Default of the bytes that sandboxes of one shard may hold between their slices; see [`set_memory`].
const MEMORY_BYTES: usize = 16 << 20;
/// Step, in bytes, in which sandboxes reserve memory.
const MEMORY_STEP_BYTES: usize = 256 << 10;

/// Most warnings about slow functions for one statement.
const WARNINGS_MAX: usize = 16;

/// The calls of one execution.
pub struct Calls {
    /// Results of calls in terms of the statement, by their places.
    terms: RefCell<Vec<Option<Vec<u8>>>>,
    /// Results of calls since the last step, in the order in which they were made.
    done: RefCell<Vec<Option<Vec<u8>>>>,
    /// Index in `done` of the next call of this evaluation.
    next: Cell<usize>,
    running: RefCell<Option<Running>>,
    paused: Cell<bool>,
    slice: Slice,
    /// The permit of a paused call.
    permit: RefCell<Option<Permit>>,
    /// Memory reserved for the sandbox of a paused call.
    memory: RefCell<Vec<Permit>>,
    times: CallTimes,
    warnings: RefCell<Vec<String>>,
}

/// Limits and counts of paused calls on a shard.
struct Sandboxes {
    permits: Semaphore,
    memory: Semaphore,
    memory_max: usize,
    rests: Cell<u64>,
}

/// Figures of the current shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallsOfShard {
    /// Calls that are paused at the end of a slice.
    pub paused: usize,
    /// The number of slices so far that ended before their call.
    pub slices: u64,
    /// Bytes reserved for the sandboxes of paused calls.
    pub held_bytes: usize,
}

impl Sandboxes {
    fn here() -> Rc<Self> {
        reactor::local::<Self>().unwrap_or_else(|| {
            let sandboxes = Rc::new(Self::new(MEMORY_BYTES));
            reactor::set_local(Rc::clone(&sandboxes));
            sandboxes
        })
    }

    fn new(memory_max: usize) -> Self {
        Self {
            permits: Semaphore::new(PAUSED_MAX),
            memory: Semaphore::new(memory_max),
            memory_max,
            rests: Cell::new(0),
        }
    }
}

/// Limits the bytes that sandboxes of this shard hold between their slices, from now on. A sandbox that alone
/// holds more takes all of it.
pub fn set_memory(bytes: usize) {
    reactor::set_local(Rc::new(Sandboxes::new(bytes)));
}

/// The figures of this shard.
pub fn of_shard() -> CallsOfShard {
    let sandboxes = Sandboxes::here();
    CallsOfShard {
        paused: PAUSED_MAX - sandboxes.permits.available(),
        slices: sandboxes.rests.get(),
        held_bytes: sandboxes.memory_max - sandboxes.memory.available(),
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("running", &self.running)
            .field("paused", &self.paused)
            .finish_non_exhaustive()
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            terms: RefCell::default(),
            done: RefCell::default(),
            next: Cell::new(0),
            running: RefCell::default(),
            paused: Cell::new(false),
            slice: Slice::new(),
            permit: RefCell::default(),
            memory: RefCell::default(),
            times: CallTimes::here(),
            warnings: RefCell::default(),
        }
    }
}

impl Calls {
    /// The calls of an execution whose terms were evaluated on another shard.
    pub fn with_terms(terms: Vec<Option<Vec<u8>>>) -> Self {
        Self { terms: RefCell::new(terms), ..Self::default() }
    }

    /// Results of calls in terms of the statement.
    pub fn terms(&self) -> Vec<Option<Vec<u8>>> {
        self.terms.borrow().clone()
    }

    /// The result of the call at a place among those in terms; `None` if the call was not made.
    pub fn term(&self, place: usize) -> Option<Option<Vec<u8>>> {
        self.terms.borrow().get(place).cloned()
    }

    /// Stores the result of the next call in terms.
    pub fn push_term(&self, value: Option<Vec<u8>>) {
        self.terms.borrow_mut().push(value);
    }

    /// Calls a function. The result is null if an argument is null and the function does not take nulls.
    ///
    /// # Errors
    /// [`StatementError::FunctionFailure`] if the program failed or reached a limit; a placeholder error if
    /// the
    /// call is paused.
    pub fn call(
        &self,
        function: &Rc<UserFunction>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, StatementError> {
        if !function.takes(arguments) {
            return Ok(None);
        }
        let next = self.next.get();
        if let Some(done) = self.done.borrow().get(next) {
            self.next.set(next + 1);
            return Ok(done.clone());
        }
        if self.slice.is_spent() {
            return Err(self.pause(None));
        }
        let running = match self.running.take() {
            Some(running) if Rc::ptr_eq(&running.function, function) => running,
            _ => function.begin(arguments)?,
        };
        match running.run(&self.slice, self.times, |text| self.warn(text))? {
            Step::Done(value) => {
                self.done.borrow_mut().push(value.clone());
                self.next.set(next + 1);
                Ok(value)
            }
            Step::Paused(running) => Err(self.pause(Some(running))),
        }
    }

    #[cold]
    fn warn(&self, text: String) {
        reactor::warn!("{}", text);
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Takes the warnings for the client.
    pub fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    #[cold]
    fn pause(&self, running: Option<Running>) -> StatementError {
        if running.is_some() {
            self.running.replace(running);
        }
        self.paused.set(true);
        StatementError::Internal(String::new())
    }

    /// Whether the last evaluation failed because a call is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.get()
    }

    /// Call before each evaluation of a step, also before a repeated one.
    pub fn rewind(&self) {
        self.next.set(0);
    }

    /// Call after a step: the next step makes other calls.
    pub fn step(&self) {
        self.next.set(0);
        self.done.borrow_mut().clear();
    }

    /// Call if no evaluation will be repeated: drops stored results and a paused call.
    pub fn settle(&self) {
        self.step();
        self.running.take();
        self.permit.take();
        self.memory.take();
    }

    /// Lets other tasks run and waits for memory if necessary; the next evaluation has a new slice.
    ///
    /// # Errors
    /// [`TimedOut`] if the deadline has passed.
    pub async fn rest(&self, deadline: Deadline) -> Result<(), TimedOut> {
        let sandboxes = Sandboxes::here();
        let held = self.running.borrow().as_ref().map(|running| running.held_bytes());
        if let Some(held) = held {
            self.hold(&sandboxes, held, deadline).await?;
        }
        sandboxes.rests.set(sandboxes.rests.get() + 1);
        reactor::yield_now().await;
        if deadline.is_past() {
            return Err(TimedOut);
        }
        self.paused.set(false);
        self.slice.refill();
        Ok(())
    }

    /// Reserves a place among the paused calls, and memory for the sandbox. A call that finds none returns
    /// what it holds, waits for as much, and starts again, because it has had no visible effect. So no call
    /// waits for memory while it holds some.
    async fn hold(&self, sandboxes: &Sandboxes, held: usize, deadline: Deadline) -> Result<(), TimedOut> {
        let wanted = held.next_multiple_of(MEMORY_STEP_BYTES).min(sandboxes.memory_max);
        let missing = wanted.saturating_sub(self.memory.borrow().iter().map(Permit::count).sum());
        let has_place = self.permit.borrow().is_some();
        let place = if has_place { None } else { sandboxes.permits.try_acquire(1) };
        let more = if missing == 0 { None } else { sandboxes.memory.try_acquire(missing) };
        if (has_place || place.is_some()) && (missing == 0 || more.is_some()) {
            self.memory.borrow_mut().extend(more);
            if place.is_some() {
                self.permit.replace(place);
            }
            return Ok(());
        }
        drop((place, more));
        self.running.take();
        self.permit.take();
        self.memory.take();
        // The queues of the semaphores have room for every statement.
        let waited = async {
            let memory = sandboxes.memory.acquire(wanted).await?;
            sandboxes.permits.acquire(1).await.map(|place| (place, memory))
        };
        let (place, memory) = reactor::timeout(deadline, waited).await?.map_err(|_| TimedOut)?;
        self.permit.replace(Some(place));
        self.memory.replace(vec![memory]);
        Ok(())
    }

    /// Between two steps, lets other tasks run if the slice was used up, by one call or by many.
    pub async fn rest_if_spent(&self) {
        if self.slice.is_spent() {
            reactor::yield_now().await;
            self.slice.refill();
        } else {
            reactor::maybe_yield().await;
        }
    }

    /// Evaluates, with as many rests as necessary.
    ///
    /// # Errors
    /// Errors of `evaluate`; the error of `late` if the deadline passes first.
    pub async fn through<T, E>(
        &self,
        deadline: Deadline,
        late: impl Fn() -> E,
        mut evaluate: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            self.rewind();
            let done = evaluate();
            if !self.is_paused() {
                self.settle();
                return done;
            }
            self.rest(deadline).await.map_err(|_| late())?;
        }
    }
}
