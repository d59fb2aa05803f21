//! The calls of the user's functions that one execution of a statement makes, in slices.
//!
//! Evaluation is synchronous. Where a call comes to the end of its slice, it stays here and evaluation fails with an error that
//! stands for that; who began the evaluation sees that [`Calls::is_paused`], lets others run ([`Calls::rest`]) and evaluates
//! again: calls that have ended are answered from here, in the order they were made, and the one that stopped goes on. So
//! one step of evaluation makes the same calls each time and changes nothing until it has succeeded. What an execution that
//! is given up had under way goes with it.
//! Invariant: of one execution at most one call is under way; of one shard at most [`PAUSED_MAX`] stand still, and their sandboxes hold no
//! more memory together than the shard has for them.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use reactor::{Deadline, Permit, Semaphore, TimedOut};

use super::slice::Slice;
use super::{CallTimes, Running, Step, UserFunction};
use crate::QueryError;

/// Calls of one shard that may wait for their next slice; with more of them, others begin later.
pub const PAUSED_MAX: usize = 16;

/// Bytes that sandboxes of one shard hold between their slices, before [`set_memory`].
const MEMORY_BYTES: usize = 16 << 20;
/// Sandboxes take their memory in steps of so many bytes.
const MEMORY_STEP_BYTES: usize = 256 << 10;

/// Slow functions that the client of one statement is told of.
const WARNINGS_MAX: usize = 16;

/// Calls of one execution.
pub struct Calls {
    /// What calls in terms of the statement gave, by their places.
    terms: RefCell<Vec<Option<Vec<u8>>>>,
    /// What calls since the last step gave, in the order they were made.
    done: RefCell<Vec<Option<Vec<u8>>>>,
    /// The next of them in this evaluation.
    next: Cell<usize>,
    running: RefCell<Option<Running>>,
    paused: Cell<bool>,
    slice: Slice,
    /// Its place among calls that stand still.
    permit: RefCell<Option<Permit>>,
    /// Memory that its sandbox may hold meanwhile.
    memory: RefCell<Vec<Permit>>,
    times: CallTimes,
    warnings: RefCell<Vec<String>>,
}

/// What a shard knows of calls that wait.
struct Shard {
    permits: Semaphore,
    memory: Semaphore,
    memory_max: usize,
    rests: Cell<u64>,
}

/// Calls of the shard this runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallsOfShard {
    /// Calls that stopped at the end of a slice and wait for the next.
    pub paused: usize,
    /// Slices that ended before their call did, so far.
    pub slices: u64,
    /// Bytes that were set aside for their sandboxes.
    pub held_bytes: usize,
}

impl Shard {
    fn here() -> Rc<Self> {
        reactor::local::<Self>().unwrap_or_else(|| {
            let shard = Rc::new(Self::new(MEMORY_BYTES));
            reactor::set_local(Rc::clone(&shard));
            shard
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

/// Has sandboxes of this shard hold at most so many bytes between their slices, from now on. A sandbox that alone holds more
/// takes all of it.
pub fn set_memory(bytes: usize) {
    reactor::set_local(Rc::new(Shard::new(bytes)));
}

/// What this shard has under way.
pub fn of_shard() -> CallsOfShard {
    let shard = Shard::here();
    CallsOfShard {
        paused: PAUSED_MAX - shard.permits.available(),
        slices: shard.rests.get(),
        held_bytes: shard.memory_max - shard.memory.available(),
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
    /// Those of an execution whose terms are worked out already, on another shard.
    pub fn with_terms(terms: Vec<Option<Vec<u8>>>) -> Self {
        Self { terms: RefCell::new(terms), ..Self::default() }
    }

    /// What calls in terms of the statement gave.
    pub fn terms(&self) -> Vec<Option<Vec<u8>>> {
        self.terms.borrow().clone()
    }

    /// What the call at a place among those in terms gave; `None` where it was not made.
    pub fn term(&self, place: usize) -> Option<Option<Vec<u8>>> {
        self.terms.borrow().get(place).cloned()
    }

    /// Keeps what the next call in terms gave.
    pub fn push_term(&self, value: Option<Vec<u8>>) {
        self.terms.borrow_mut().push(value);
    }

    /// Calls a function; null where an argument is null and the function does not take that.
    ///
    /// # Errors
    /// [`QueryError::FunctionFailure`] where the program failed, or reached a limit; an error that nobody is to see where it
    /// is not over yet.
    pub fn call(
        &self,
        function: &Rc<UserFunction>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, QueryError> {
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

    /// What the client is to be told of calls, once.
    pub fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    #[cold]
    fn pause(&self, running: Option<Running>) -> QueryError {
        if running.is_some() {
            self.running.replace(running);
        }
        self.paused.set(true);
        QueryError::Internal(String::new())
    }

    /// Whether the last evaluation failed because it is to go on after a rest.
    pub fn is_paused(&self) -> bool {
        self.paused.get()
    }

    /// An evaluation begins, or begins again.
    pub fn rewind(&self) {
        self.next.set(0);
    }

    /// A step is done: what comes now makes other calls.
    pub fn step(&self) {
        self.next.set(0);
        self.done.borrow_mut().clear();
    }

    /// Nothing of what was evaluated will be evaluated again.
    pub fn settle(&self) {
        self.step();
        self.running.take();
        self.permit.take();
        self.memory.take();
    }

    /// Lets others run, for as long as it takes; the next evaluation has a slice of its own.
    ///
    /// # Errors
    /// [`TimedOut`] where the deadline has come.
    pub async fn rest(&self, deadline: Deadline) -> Result<(), TimedOut> {
        let shard = Shard::here();
        let held = self.running.borrow().as_ref().map(|running| running.held_bytes());
        if let Some(held) = held {
            self.hold(&shard, held, deadline).await?;
        }
        shard.rests.set(shard.rests.get() + 1);
        reactor::yield_now().await;
        if deadline.is_past() {
            return Err(TimedOut);
        }
        self.paused.set(false);
        self.slice.refill();
        Ok(())
    }

    /// Takes a place among calls that stand still, and memory for what its sandbox holds. A call that finds none gives back what it
    /// holds, waits for as much, and begins anew: nobody has seen anything of it. So nobody waits for memory and holds some.
    async fn hold(&self, shard: &Shard, held: usize, deadline: Deadline) -> Result<(), TimedOut> {
        let wanted = held.next_multiple_of(MEMORY_STEP_BYTES).min(shard.memory_max);
        let missing = wanted.saturating_sub(self.memory.borrow().iter().map(Permit::count).sum());
        let has_place = self.permit.borrow().is_some();
        let place = if has_place { None } else { shard.permits.try_acquire(1) };
        let more = if missing == 0 { None } else { shard.memory.try_acquire(missing) };
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
        // The lines have as many places as there are statements.
        let waited = async {
            let memory = shard.memory.acquire(wanted).await?;
            shard.permits.acquire(1).await.map(|place| (place, memory))
        };
        let (place, memory) = reactor::timeout(deadline, waited).await?.map_err(|_| TimedOut)?;
        self.permit.replace(Some(place));
        self.memory.replace(vec![memory]);
        Ok(())
    }

    /// Between two steps: lets others run where a slice was used up, by one call or by many.
    pub async fn rest_if_spent(&self) {
        if self.slice.is_spent() {
            reactor::yield_now().await;
            self.slice.refill();
        } else {
            reactor::maybe_yield().await;
        }
    }

    /// Evaluates, with as many rests as it takes.
    ///
    /// # Errors
    /// Those of `evaluate`; that of `late` where the deadline comes first.
    pub async fn through<T>(
        &self,
        deadline: Deadline,
        late: impl Fn() -> QueryError,
        mut evaluate: impl FnMut() -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
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
