//! Clients that make, alter and drop tables, and use them as soon as they are told of them.

use cluster::maps::ReplicaMap;
use query::QueryError;
use wire::consistency::Consistency;

use super::client::Client;
use super::tables::Begun;
use super::{Fate, below};
use crate::answer::{Sending, int};

/// Tables that are there at once, at most.
const TABLES_MAX: usize = 6;

/// The fate of a change of the schema.
///
/// # Errors
/// An error that no fault explains.
fn change_fate(done: Result<impl Sized, QueryError>, text: &str) -> Result<Fate, String> {
    match done {
        Ok(_) => Ok(Fate::Done),
        // Whoever has no leader or no majority has proposed nothing.
        Err(QueryError::Overloaded(_)) => Ok(Fate::Refused),
        // No answer, or one of a leader that lost its office meanwhile.
        Err(QueryError::Internal(_) | QueryError::NotReady(_)) => Ok(Fate::Doubt),
        Err(error) => Err(format!("{text}: {error:?}")),
    }
}

impl Client {
    /// Gives the keyspace another replication factor, now and then. With factors of two and three the number
    /// of copies that an answer stands for is right in any case: what two copies have is in every two of up
    /// to three.
    ///
    /// # Errors
    /// An error that no fault explains.
    pub(super) async fn use_replication(&self) -> Result<(), String> {
        if below(8) > 0 {
            return Ok(());
        }
        let factor = 2 + below(2);
        let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {factor}}}");
        let text = format!("ALTER KEYSPACE sim WITH replication = {replication}");
        let done = self.send(&text, Sending::at(Consistency::Quorum)).await;
        let is_explained = self.shared.was_bad.get();
        match change_fate(done, &text) {
            Err(error) if !is_explained => return Err(error),
            Ok(Fate::Done) => self.shared.count("factor changed"),
            _ => {}
        }
        Ok(())
    }

    /// Waits in the end until all replicas are where they should be.
    ///
    /// # Errors
    /// They are not after a long time of peace.
    pub(super) async fn wait_for_replicas(&self) -> Result<(), String> {
        let there = async || {
            let control = self.shared.open.borrow().get(&self.life.0).cloned();
            let state = control.ok_or("the node is not open")?.group().state();
            let is_moving = |map: &ReplicaMap| map.is_changing() || map.in_transition().next().is_some();
            Ok((!state.maps().values().any(|map| is_moving(map))).then_some(()))
        };
        self.settle(there).await
    }

    /// Changes the schema, or uses what others have changed.
    ///
    /// # Errors
    /// An answer that is wrong.
    pub(super) async fn use_schema(&self) -> Result<(), String> {
        let usable = self.shared.tables.borrow().usable(self.now());
        if usable.is_empty() || usable.len() < TABLES_MAX && below(4) == 0 {
            return self.create().await;
        }
        let table = usable[below(usable.len() as u64) as usize];
        match below(8) {
            0 => self.drop_table(table).await,
            1 => self.add_column(table).await,
            2..=5 => self.insert_into(table).await,
            _ => self.select_from(table).await,
        }
    }

    async fn change(&self, begun: Begun, text: &str) -> Result<(), String> {
        let done = self.send(text, Sending::at(Consistency::Quorum)).await;
        let fate = match (done, begun) {
            // The table may be dropped meanwhile.
            (Err(QueryError::Invalid(_) | QueryError::Config(_)), Begun::Add(table, _))
                if !self.shared.tables.borrow().is_kept(table) =>
            {
                Fate::Refused
            }
            (Err(error), _) if self.shared.was_bad.get() && !matches!(error, QueryError::Overloaded(_)) => {
                Fate::Doubt
            }
            (done, _) => change_fate(done, text)?,
        };
        self.shared.count(if fate == Fate::Done { "schema changed" } else { "schema not changed" });
        self.shared.tables.borrow_mut().end(begun, fate, self.life, self.shared.now.get());
        Ok(())
    }

    async fn create(&self) -> Result<(), String> {
        let begun = self.shared.tables.borrow_mut().create();
        let Begun::Create(table) = begun else { return Err(format!("{begun:?} makes no table")) };
        self.change(begun, &format!("CREATE TABLE sim.d{table} (k int PRIMARY KEY, v0 int)")).await
    }

    async fn add_column(&self, table: usize) -> Result<(), String> {
        let begun = self.shared.tables.borrow_mut().add(table);
        let Begun::Add(_, column) = begun else { return Err(format!("{begun:?} adds no column")) };
        self.change(begun, &format!("ALTER TABLE sim.d{table} ADD v{column} int")).await
    }

    async fn drop_table(&self, table: usize) -> Result<(), String> {
        let begun = self.shared.tables.borrow_mut().drop_table(table);
        self.change(begun, &format!("DROP TABLE sim.d{table}")).await
    }

    /// Whether an error is a fault's, or that of a table which somebody drops.
    fn is_explained(&self, error: &QueryError, table: usize) -> bool {
        self.fate(error).is_some() || !self.shared.tables.borrow().is_kept(table)
    }

    async fn insert_into(&self, table: usize) -> Result<(), String> {
        let columns = self.shared.tables.borrow().columns(table, self.now());
        let column = columns[below(columns.len() as u64) as usize];
        let key = self.shared.tables.borrow_mut().next_row(table);
        let value = below(1_000) as u32;
        let text = format!("INSERT INTO sim.d{table} (k, v{column}) VALUES ({key}, {value})");
        match self.send(&text, Sending::at(Consistency::Quorum)).await {
            Ok(_) => {
                self.shared.count("row written");
                self.shared.tables.borrow_mut().has_row(table, key, (column, value));
                Ok(())
            }
            Err(error) if self.is_explained(&error, table) => Ok(()),
            Err(error) => Err(format!("{text}: {error:?}")),
        }
    }

    async fn select_from(&self, table: usize) -> Result<(), String> {
        let columns = self.shared.tables.borrow().columns(table, self.now());
        let column = columns[below(columns.len() as u64) as usize];
        let text = format!("SELECT k, v{column} FROM sim.d{table}");
        match self.send(&text, Sending::at(Consistency::Quorum)).await {
            Ok(_) => Ok(()),
            Err(error) if self.is_explained(&error, table) => Ok(()),
            Err(error) => Err(format!("{text}: {error:?}")),
        }
    }

    /// Checks in the end that a table is there with its rows, at a level.
    ///
    /// # Errors
    /// The row that is missing, or the error.
    pub(super) async fn check_table(&self, table: usize, level: Consistency) -> Result<(), String> {
        let rows = self.shared.tables.borrow().rows_of(table);
        for (key, (column, value)) in rows {
            let text = format!("SELECT v{column} FROM sim.d{table} WHERE k = {key}");
            let shown = self.settle(async || self.read(&text, level, None).await).await?;
            let there = shown.first().and_then(|row| int(row.first()));
            if there != Some(value) {
                return Err(format!("{text} at {level}: {there:?}, and {value} was acknowledged"));
            }
        }
        let text = format!("SELECT k FROM sim.d{table}");
        self.settle(async || self.read(&text, level, Some(3)).await).await.map(drop)
    }

    /// Checks in the end that a table is not there.
    ///
    /// # Errors
    /// It is there.
    pub(super) async fn check_gone(&self, table: usize) -> Result<(), String> {
        let text = format!("SELECT k FROM sim.d{table}");
        match self.send(&text, Sending::at(Consistency::One)).await {
            Err(QueryError::Invalid(_)) => Ok(()),
            other => Err(format!("{text}, which was dropped or refused: {other:?}")),
        }
    }
}
