//! Reports the disk reads of a traced request.
//!
//! A traced future notes them while it is polled: reads that it awaits within its own task count; reads of
//! tasks beside it do not, and those of other shards only if they are called by `call_and_note`. It costs one
//! check per disk read. `data::chunks` notes every read of data and index; `query` turns them into trace
//! events.

use std::cell::RefCell;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;

use reactor::mesh::{self, MeshError};
use reactor::{Group, Instant};

/// Most reads of one request that are noted; a scan may do any number.
const READS_MAX: usize = 256;

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

/// The reads of one request.
#[derive(Debug, Default)]
pub struct ReadNotes(RefCell<Vec<ToldRead>>);

impl ReadNotes {
    /// The first reads so far, in the order in which they were done.
    pub fn take(&self) -> Vec<ToldRead> {
        self.0.take()
    }

    /// Adds the reads of another shard.
    fn add(&self, reads: Vec<ToldRead>) {
        let mut notes = self.0.borrow_mut();
        let room = READS_MAX.saturating_sub(notes.len());
        notes.extend(reads.into_iter().take(room));
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

/// The notes of the future that is being polled, if it is traced.
fn noted() -> Option<Rc<ReadNotes>> {
    reactor::local::<Polled>()?.0.borrow().clone()
}

/// Calls a shard as [`mesh::call`] does; the shard's disk reads for the call are noted here.
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
            return (work().await, Vec::new());
        }
        let notes = Rc::default();
        (noting(&notes, work()).await, notes.take())
    });
    async move {
        let (answer, reads) = call.await?;
        if let Some(notes) = notes {
            notes.add(reads);
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
        notes.add(vec![ToldRead { file, offset, size, bytes, at, shard }]);
    }
}
