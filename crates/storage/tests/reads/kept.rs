//! A page that goes on with what the page before left open says what a page says that opens everything anew,
//! whatever happened between the two.

use std::rc::Rc;

use super::heard::Heard;
use crate::table::{ID, changes_with, delete, write};
use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use model::schema::SchemaChange;
use model::{Column, ColumnId, ColumnKind, CqlType, RowView, Table, Token};
use proptest::prelude::*;
use proptest::strategy::Union;
use reactor::Deadline;
use storage::{
    Flow, PartitionBound, PartitionRange, ReadCommand, RowConsumer, Slices, Storage, StorageConfig,
};

/// Rows of one page, as text, and the partition in which it ended.
#[derive(Default)]
struct Page {
    rows: Vec<String>,
    most: usize,
    at: Option<(Token, Vec<u8>)>,
    is_full: bool,
}

impl RowConsumer for Page {
    fn partition(&mut self, key: &[u8], token: Token, _: Option<RowView<'_>>) -> Flow {
        self.at = Some((token, key.to_vec()));
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let value = row.cell(ColumnId(2)).and_then(|cell| cell.value().map(<[u8]>::to_vec));
        self.rows.push(format!("{:?} {clustering:?} {value:?}", self.at));
        self.is_full = self.rows.len() >= self.most;
        if self.is_full { Flow::Stop } else { Flow::Continue }
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// A scan that goes on behind the partition in which its last page ended.
#[derive(Clone)]
struct Pager {
    from: PartitionBound,
    slice: Slice,
    is_raw: bool,
}

fn beginning() -> PartitionBound {
    PartitionBound { token: Token::MINIMUM, key: None, inclusive: true }
}

fn behind(key: Vec<u8>) -> PartitionBound {
    let DecoratedKey { token, key } = DecoratedKey::new(key);
    PartitionBound { token, key: Some(key), inclusive: false }
}

impl Pager {
    async fn page(&self, storage: &Storage, most: usize) -> (Vec<String>, Option<PartitionBound>) {
        let table: Rc<Table> = storage.schema().table_by_id(ID).cloned().expect("the table");
        let to = PartitionBound { token: Token::MAXIMUM, key: None, inclusive: true };
        let range = PartitionRange::Between { from: self.from.clone(), to };
        let slices: Slices = [self.slice.clone()].into_iter().collect();
        let now = 1_700_000_000;
        let command = ReadCommand { table, range, slices, reversed: false, now, bypass_cache: false };
        if self.is_raw {
            let mut heard = Heard::new(now, false, Some(most));
            storage.read_raw(&command, &mut heard).await.expect("the scan reads");
            let next = heard.stopped.as_ref().map(|(key, ..)| behind(key.clone()));
            return (vec![format!("{heard:?}")], next);
        }
        let mut page = Page { most, ..Page::default() };
        storage.read(&command, &mut page).await.expect("the scan reads");
        let next = page.at.filter(|_| page.is_full).map(|(_, key)| behind(key));
        (page.rows, next)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(u8, u8),
    Delete(u8),
    Flush,
    Compact,
    Alter,
    Page { of: usize, rows: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = Union::new_weighted(vec![
        (6, (0..60u8, 0..3u8).prop_map(|(key, row)| Step::Write(key, row)).boxed()),
        (1, (0..60u8).prop_map(Step::Delete).boxed()),
        (2, Just(Step::Flush).boxed()),
        (1, Just(Step::Compact).boxed()),
        (1, Just(Step::Alter).boxed()),
        (8, (0..3usize, 1..9usize).prop_map(|(of, rows)| Step::Page { of, rows }).boxed()),
    ]);
    proptest::collection::vec(step, 20..120)
}

async fn open(directory: &std::path::Path, tablets_log2: u8) -> Storage {
    let mut config = StorageConfig::new(directory, 8 << 20);
    config.auto_compaction = false;
    let storage = cluster::open_storage(config, 0, 1).await.expect("the storage opens");
    for change in changes_with(tablets_log2, |_| ()) {
        cluster::change_schema(&change).await.expect("the schema changes");
    }
    storage
}

/// The table with one more column.
fn altered(table: &Table) -> SchemaChange {
    let mut definition = table.definition().clone();
    let id = definition.next_column_id;
    definition.columns.push(Column {
        id: ColumnId(id),
        name: format!("added_{id}"),
        ty: CqlType::Text,
        kind: ColumnKind::Regular,
        position: 0,
        reversed: false,
    });
    definition.next_column_id += 1;
    definition.revision += 1;
    SchemaChange::AlterTable(Box::new(definition))
}

async fn carry_out(storage: &Storage, steps: Vec<Step>) {
    let all = Slice::all();
    let pager = |slice: &Slice, is_raw| Pager { from: beginning(), slice: slice.clone(), is_raw };
    let mut pagers = [pager(&all, false), pager(&all, true), pager(&Slice::prefix(&prefix("1")), false)];
    for (at, step) in (1i64..).zip(steps) {
        match step {
            Step::Write(key, row) => {
                let (key, row) = (format!("key {key}"), row.to_string());
                let mutation = write(&key, &row, &format!("value {at}"), at);
                storage.apply(&mutation, Deadline::NEVER).await.expect("a write");
            }
            Step::Delete(key) => {
                let mutation = delete(&format!("key {key}"), at, 1_600_000_000);
                storage.apply(&mutation, Deadline::NEVER).await.expect("a deletion");
            }
            Step::Flush => storage.flush(ID).await.expect("a flush"),
            Step::Compact => storage.compact(ID).await.expect("a compaction"),
            Step::Alter => {
                let table = storage.schema().table_by_id(ID).cloned().expect("the table");
                cluster::change_schema(&altered(&table)).await.expect("a change of the table");
            }
            Step::Page { of, rows } => {
                let pager = &mut pagers[of];
                let (kept, next) = pager.page(storage, rows).await;
                // The scan that stood there was taken: this one opens everything anew.
                let (anew, next_anew) = pager.page(storage, rows).await;
                assert_eq!((&kept, &next), (&anew, &next_anew));
                pager.from = next.unwrap_or_else(beginning);
            }
        }
    }
}

fn prefix(text: &str) -> Vec<u8> {
    let mut prefix = Vec::new();
    model::clustering::append_component(&mut prefix, Some(text.as_bytes()));
    prefix
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn a_page_that_goes_on_says_what_one_says_that_begins_anew(steps in steps()) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_owned();
        reactor::run_one(reactor::Config::default(), async move {
            let storage = open(&path, 1).await;
            carry_out(&storage, steps).await;
        });
    }
}

/// Opens a table of so many partitions in one file, and reads it in pages of ten. Returns the requests that
/// the pages took after the first.
async fn requests_of_pages(storage: &Storage, between: impl AsyncFn(usize)) -> u64 {
    let mut pager = Pager { from: beginning(), slice: Slice::all(), is_raw: false };
    let (mut rows, mut before, mut pages) = (0, None, 0);
    loop {
        let (page, next) = pager.page(storage, 10).await;
        rows += page.len();
        before = before.or_else(|| Some(storage.disk_reads(ID).expect("the table").requests));
        let Some(next) = next else { break };
        pager.from = next;
        pages += 1;
        between(pages).await;
    }
    assert_eq!(rows, 400);
    storage.disk_reads(ID).expect("the table").requests - before.expect("a page was read")
}

async fn filled(storage: &Storage) {
    for key in 0..400 {
        let mutation = write(&format!("key {key}"), "0", &"v".repeat(100), 1);
        storage.apply(&mutation, Deadline::NEVER).await.expect("a write");
    }
    storage.flush(ID).await.expect("a flush");
}

#[test]
fn the_pages_of_a_scan_read_each_chunk_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_owned();
    reactor::run_one(reactor::Config::default(), async move {
        let storage = open(&path, 0).await;
        filled(&storage).await;
        let went_on = requests_of_pages(&storage, async |_| ()).await;
        assert!(went_on <= 4, "{went_on} requests for 40 pages of 50 KB");
        // A write elsewhere changes nothing; a scan that waited for too long opens its files again.
        let slow = requests_of_pages(&storage, async |page| {
            if page == 20 {
                reactor::sleep(std::time::Duration::from_secs(4)).await;
            }
        });
        let slow = slow.await;
        assert!(slow > went_on && slow <= went_on + 3, "{slow} requests, {went_on} without a pause");
    });
}
