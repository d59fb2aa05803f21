//! Reports the disk reads of a traced request, and other facts of its work.
//!
//! A traced future notes them while it is polled: reads that it awaits within its own task count; reads of
//! tasks beside it do not, and those of other shards only if they are called by `call_and_note`. It costs one
//! check per disk read. `data::chunks` notes every read of data and index, `storage::read` where rows were
//! found, `replication` which nodes were asked; `query` turns them into trace events.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;

use reactor::mesh::{self, MeshError};
use reactor::{Group, Instant};

/// Most reads of one request that are noted; a scan may do any number.
const READS_MAX: usize = 256;
/// Most other facts of one request that are noted.
const FACTS_MAX: usize = 256;

/// One read of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldRead {
    /// Name of the file.
    pub file: String,
    /// Offset of the wanted bytes.
    pub offset: u64,
    /// Number of wanted bytes.
    pub size: u64,
    /// Number of bytes read from the disk, including alignment.
    pub bytes: u64,
    /// When the bytes arrived.
    pub at: Instant,
    /// The shard that read them.
    pub shard: usize,
}

/// Something that the work for a request met or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldFact {
    /// The fact, for people.
    pub text: String,
    /// When it was noted.
    pub at: Instant,
    /// The shard that noted it.
    pub shard: usize,
}

/// The reads and facts of one request.
#[derive(Debug, Default)]
pub struct ReadNotes {
    reads: RefCell<Vec<ToldRead>>,
    facts: RefCell<Vec<ToldFact>>,
    /// Reads and facts that found no room.
    left_out: Cell<usize>,
}

/// The contents of [`ReadNotes`], as they travel between shards.
type Notes = (Vec<ToldRead>, Vec<ToldFact>, usize);

impl ReadNotes {
    /// The first reads so far, in the order in which they were done.
    pub fn take(&self) -> Vec<ToldRead> {
        self.reads.take()
    }

    /// The first other facts so far, in the order in which they were noted.
    pub fn take_facts(&self) -> Vec<ToldFact> {
        self.facts.take()
    }

    /// The number of reads and facts that found no room.
    pub fn left_out(&self) -> usize {
        self.left_out.get()
    }

    fn take_all(&self) -> Notes {
        (self.take(), self.take_facts(), self.left_out.take())
    }

    /// Adds the notes of another shard.
    fn add_all(&self, (reads, facts, left_out): Notes) {
        self.left_out.set(self.left_out.get() + left_out);
        reads.into_iter().for_each(|read| self.add(&self.reads, READS_MAX, read));
        facts.into_iter().for_each(|fact| self.add(&self.facts, FACTS_MAX, fact));
    }

    fn add<T>(&self, notes: &RefCell<Vec<T>>, most: usize, note: T) {
        let mut notes = notes.borrow_mut();
        if notes.len() < most {
            notes.push(note);
        } else {
            self.left_out.set(self.left_out.get() + 1);
        }
    }
}

/// The notes of the future that is being polled on this shard.
#[derive(Default)]
struct Polled(RefCell<Option<Rc<ReadNotes>>>);

/// The notes of the future that was polled before; they are restored when this is dropped, also by a panic.
struct Before<'p> {
    polled: &'p Polled,
    notes: Option<Rc<ReadNotes>>,
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        self.polled.0.replace(self.notes.take());
    }
}

/// Runs a future and notes its disk reads.
pub async fn noting<T>(notes: &Rc<ReadNotes>, future: impl Future<Output = T>) -> T {
    let polled = reactor::local::<Polled>().unwrap_or_else(|| {
        let polled = Rc::new(Polled::default());
        reactor::set_local(Rc::clone(&polled));
        polled
    });
    let mut future = pin!(future);
    poll_fn(|context| {
        let _before = Before { polled: &polled, notes: polled.0.replace(Some(Rc::clone(notes))) };
        future.as_mut().poll(context)
    })
    .await
}

/// Whether the future that is being polled is traced.
pub fn is_noted() -> bool {
    noted().is_some()
}

/// Notes a fact of the work for the future that is being polled, if it is traced.
pub fn note(fact: impl FnOnce() -> String) {
    let Some(notes) = noted() else { return };
    let (text, at, shard) = (fact(), reactor::now(), reactor::shard_id());
    notes.add(&notes.facts, FACTS_MAX, ToldFact { text, at, shard });
}

/// The notes of the future that is being polled, if it is traced.
fn noted() -> Option<Rc<ReadNotes>> {
    reactor::local::<Polled>()?.0.borrow().clone()
}

/// Calls a shard as [`mesh::call`] does; the shard's disk reads and facts of the call are noted here.
///
/// # Errors
/// Those of [`mesh::call`].
pub fn call_and_note<F, Fut, R>(
    shard: usize,
    group: Group,
    work: F,
) -> impl Future<Output = Result<R, MeshError>>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = R> + 'static,
    R: Send + 'static,
{
    let notes = noted();
    let is_noted = notes.is_some();
    let call = mesh::call(shard, group, move || async move {
        if !is_noted {
            return (work().await, Notes::default());
        }
        let notes: Rc<ReadNotes> = Rc::default();
        (noting(&notes, work()).await, notes.take_all())
    });
    async move {
        let (answer, of_shard) = call.await?;
        if let Some(notes) = notes {
            notes.add_all(of_shard);
        }
        Ok(answer)
    }
}

/// Notes a read that begins for the future being polled. Call the returned function with the number of bytes
/// when they have arrived.
pub(crate) fn begun(path: &Path, offset: u64, bytes: u64) -> impl FnOnce(usize) + use<> {
    let file = || path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let wanted = noted().map(|notes| (notes, file()));
    move |size| {
        let Some((notes, file)) = wanted else { return };
        let (size, at, shard) = (size as u64, reactor::now(), reactor::shard_id());
        notes.add(&notes.reads, READS_MAX, ToldRead { file, offset, size, bytes, at, shard });
    }
}
