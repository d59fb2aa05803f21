//! Prepared statements of one shard, bounded by bytes.
//!
//! An id is a hash of the keyspace and the text, so every shard and every restart gives the same statement
//! the same id. A statement that is used between two rounds of the clock stays; a hit costs one store.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::HashMap;
use model::token::murmur3_hash128;

use crate::prepared::Prepared;

/// Identity of a prepared statement.
pub type StatementId = [u8; 16];

/// Approximate bytes of an entry besides its text: the plan, and metadata in three versions.
const ENTRY_BYTES: usize = 2048;

/// The id of a text prepared with a keyspace.
pub fn statement_id(keyspace: Option<&str>, text: &str) -> StatementId {
    let mut bytes = Vec::with_capacity(keyspace.map_or(0, str::len) + text.len() + 1);
    bytes.extend_from_slice(keyspace.unwrap_or("").as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(text.as_bytes());
    let [high, low] = murmur3_hash128(&bytes, bytes.len() as u64);
    (u128::from(high as u64) << 64 | u128::from(low as u64)).to_be_bytes()
}

/// A statement in the cache.
#[derive(Debug)]
pub struct CachedStatement {
    /// Its id.
    pub id: StatementId,
    /// Keyspace it was prepared with.
    pub keyspace: Option<Rc<str>>,
    /// Its text.
    pub text: Rc<str>,
    /// The prepared statement.
    pub prepared: Prepared,
    used: Cell<bool>,
}

impl CachedStatement {
    /// As measured when it was made, if the allocator counts; a long list of terms takes many times its text.
    fn bytes(&self) -> usize {
        self.text.len() + self.prepared.held_bytes.max(ENTRY_BYTES)
    }
}

/// The statements of a shard.
#[derive(Debug)]
pub struct PreparedCache {
    bytes_max: usize,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    by_id: HashMap<StatementId, Rc<CachedStatement>, foldhash::fast::FixedState>,
    /// Ids in the order of the clock; ids of removed statements are skipped.
    clock: VecDeque<StatementId>,
    bytes: usize,
    evicted: u64,
}

impl PreparedCache {
    /// An empty cache of at most `bytes_max` bytes; one statement always fits.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: RefCell::new(State::default()) }
    }

    /// The statement with that id.
    #[inline]
    pub fn get(&self, id: &[u8]) -> Option<Rc<CachedStatement>> {
        let id: &StatementId = id.try_into().ok()?;
        let state = self.state.borrow();
        let statement = state.by_id.get(id)?;
        statement.used.set(true);
        Some(Rc::clone(statement))
    }

    /// Keeps a statement, replacing one with the same id; others may be evicted.
    pub fn insert(
        &self,
        id: StatementId,
        keyspace: Option<&str>,
        text: &str,
        prepared: Prepared,
    ) -> Rc<CachedStatement> {
        let statement = Rc::new(CachedStatement {
            id,
            keyspace: keyspace.map(Into::into),
            text: text.into(),
            prepared,
            used: Cell::new(true),
        });
        let mut state = self.state.borrow_mut();
        state.bytes += statement.bytes();
        match state.by_id.insert(id, Rc::clone(&statement)) {
            Some(old) => state.bytes -= old.bytes(),
            None => state.clock.push_back(id),
        }
        state.evict(self.bytes_max, &id);
        statement
    }

    /// Forgets the statements for which `gone` holds.
    pub fn retain(&self, mut keep: impl FnMut(&CachedStatement) -> bool) {
        let state = &mut *self.state.borrow_mut();
        let bytes = &mut state.bytes;
        state.by_id.retain(|_, statement| {
            let keep = keep(statement);
            if !keep {
                *bytes -= statement.bytes();
            }
            keep
        });
        let by_id = &state.by_id;
        state.clock.retain(|id| by_id.contains_key(id));
    }

    /// How many statements there are.
    pub fn len(&self) -> usize {
        self.state.borrow().by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the statements in the cache.
    pub fn bytes(&self) -> usize {
        self.state.borrow().bytes
    }

    /// Number of evicted statements.
    pub fn evicted(&self) -> u64 {
        self.state.borrow().evicted
    }

    /// Ids of all statements, in no order.
    pub fn ids(&self) -> Vec<StatementId> {
        self.state.borrow().by_id.keys().copied().collect()
    }

    /// All statements, for `system.prepared_statements`.
    pub fn all(&self) -> Vec<Rc<CachedStatement>> {
        let state = self.state.borrow();
        state.clock.iter().filter_map(|id| state.by_id.get(id).cloned()).collect()
    }
}

impl State {
    /// Evicts. Each turn either removes a statement or clears a mark, so twice the length is enough.
    fn evict(&mut self, bytes_max: usize, newest: &StatementId) {
        for _ in 0..2 * self.clock.len() {
            if self.bytes <= bytes_max {
                return;
            }
            let Some(id) = self.clock.pop_front() else { return };
            match self.by_id.get(&id) {
                Some(statement) if id == *newest || statement.used.replace(false) => self.clock.push_back(id),
                Some(_) => {
                    if let Some(gone) = self.by_id.remove(&id) {
                        self.bytes -= gone.bytes();
                        self.evicted += 1;
                    }
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statement::prepare::Plan;

    #[test]
    fn statements_count_with_what_their_plans_hold() {
        let cache = PreparedCache::new(10 * ENTRY_BYTES);
        for text in ["s1", "s2", "s3"] {
            let mut prepared = Prepared::from(statement::prepare::Prepared::of(Plan::Use(text.to_owned())));
            prepared.held_bytes = 6 * ENTRY_BYTES;
            cache.insert(statement_id(None, text), None, text, prepared);
            assert_eq!(cache.len(), 1, "two do not fit");
        }
        cache.retain(|_| false);
        assert_eq!(cache.state.borrow().bytes, 0);
    }

    fn put(cache: &PreparedCache, text: &str) -> StatementId {
        let id = statement_id(None, text);
        cache.insert(
            id,
            None,
            text,
            Prepared::from(statement::prepare::Prepared::of(Plan::Use(text.to_owned()))),
        );
        id
    }

    #[test]
    fn what_is_used_stays_when_others_must_go() {
        let cache = PreparedCache::new(3 * (ENTRY_BYTES + 2));
        let ids: Vec<StatementId> = ["s1", "s2", "s3"].map(|text| put(&cache, text)).to_vec();
        let fourth = put(&cache, "s4");
        assert_eq!(cache.len(), 3);
        assert!(cache.get(&fourth).is_some(), "the newest stays");
        let kept: Vec<StatementId> = ids.into_iter().filter(|id| cache.get(id).is_some()).collect();
        assert_eq!(kept.len(), 2);
        // Both were used just now, the fourth as well; a fifth sends one of them away, and accounts for it.
        put(&cache, "s5");
        assert_eq!((cache.len(), cache.evicted()), (3, 2));
    }

    #[test]
    fn ids_tell_keyspaces_apart() {
        assert_ne!(statement_id(Some("a"), "x"), statement_id(Some("b"), "x"));
        assert_ne!(statement_id(Some("a"), "x"), statement_id(None, "x"));
        assert_eq!(statement_id(None, "x"), statement_id(None, "x"));
    }

    #[test]
    fn forgotten_statements_give_their_bytes_back() {
        let cache = PreparedCache::new(2 * (ENTRY_BYTES + 2));
        put(&cache, "s1");
        cache.retain(|_| false);
        assert!(cache.is_empty());
        put(&cache, "s1");
        put(&cache, "s2");
        assert_eq!((cache.len(), cache.evicted()), (2, 0));
    }
}
