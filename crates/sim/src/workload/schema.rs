//! Tables come and go; one change of the schema may be in doubt at a time.

use std::collections::BTreeMap;

use model::schema::{KeyspaceOptions, SchemaChange};

use super::{SLOTS, Worker};
use crate::table::{Dropped, definition};

impl Worker {
    pub(super) async fn make_tables(&self) -> Result<(), String> {
        if !self.shared.borrow().keyspace {
            let options =
                KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
            let change = SchemaChange::CreateKeyspace { name: "sim".to_owned(), options };
            if self.storage.schema().keyspace("sim").is_none()
                && cluster::change_schema(&change).await.is_err()
            {
                self.shared.borrow_mut().over = true;
                return self.unless_faulty("the keyspace could not be made");
            }
            self.shared.borrow_mut().keyspace = true;
        }
        for slot in 0..SLOTS {
            // One change in doubt at a time: the next life settles it.
            let missing =
                self.shared.borrow().tables[slot].is_none() && self.shared.borrow().doubtful.is_none();
            if missing {
                self.make(slot).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn make(&self, slot: usize) -> Result<(), String> {
        let id = (u128::from(reactor::random_u64()) << 64) | u128::from(reactor::random_u64());
        let change = SchemaChange::CreateTable(Box::new(definition(slot, id, None)));
        self.shared.borrow_mut().doubtful = Some((slot, Some(id)));
        match cluster::change_schema(&change).await {
            Ok(()) => {
                let mut shared = self.shared.borrow_mut();
                shared.doubtful = None;
                shared.tables[slot] = Some(id);
                Ok(())
            }
            Err(error) => self.unless_faulty(&format!("a table could not be made: {error}")),
        }
    }

    /// Drops the second regular column and makes it again.
    pub(super) async fn alter(&self, slot: usize) -> Result<(), String> {
        let Some(id) = self.table_id(slot) else { return Ok(()) };
        let dropped = {
            let mut shared = self.shared.borrow_mut();
            let times = 1 + shared.history.dropped(slot).map_or(0, |dropped| dropped.times);
            let dropped = Dropped { times, at: shared.timestamps };
            shared.altering = Some((slot, dropped));
            dropped
        };
        let id = u128::from_be_bytes(id.0);
        let change = SchemaChange::AlterTable(Box::new(definition(slot, id, Some(dropped))));
        match cluster::change_schema(&change).await {
            Ok(()) => {
                let mut shared = self.shared.borrow_mut();
                shared.altering = None;
                shared.history.drop_second(slot, dropped);
                Ok(())
            }
            Err(error) => self.unless_faulty(&format!("a table could not be altered: {error}")),
        }
    }

    pub(super) async fn remake(&self, slot: usize) -> Result<(), String> {
        let Some(id) = self.table_id(slot) else { return Ok(()) };
        self.shared.borrow_mut().doubtful = Some((slot, None));
        let change = SchemaChange::DropTable { keyspace: "sim".to_owned(), name: format!("t{slot}"), id };
        match cluster::change_schema(&change).await {
            Ok(()) => {
                {
                    let mut shared = self.shared.borrow_mut();
                    shared.doubtful = None;
                    shared.tables[slot] = None;
                    shared.moved.retain(|(moved, _), _| *moved != slot);
                    shared.history.forget(slot);
                }
                self.make(slot).await
            }
            Err(error) => self.unless_faulty(&format!("a table could not be dropped: {error}")),
        }
    }
}
