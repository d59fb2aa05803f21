//! A node inside the caller's reactor, without sockets, for benches and tests. Shard 0 opens and closes it on
//! all shards.

use std::rc::Rc;

use crate::boot::{self, BootError, Shard};
use crate::config::Config;
use crate::native::inproc::InProcess;

/// One shard's view of a node.
pub struct Node(Rc<Shard>);

impl Node {
    /// Opens the node on every shard. Call on shard 0.
    ///
    /// # Errors
    /// [`BootError`], as for a node with a process of its own.
    pub async fn open(config: &Config) -> Result<Self, BootError> {
        let workdir = |source| BootError::Workdir { path: config.workdir.clone(), source };
        reactor::file::create_dir_all(&config.workdir).await.map_err(workdir)?;
        boot::open_node(config, reactor::shard_count()).await?;
        Ok(Self::here().expect("every shard is open"))
    }

    /// The current shard's part of the node that shard 0 opened.
    pub fn here() -> Option<Self> {
        reactor::local::<Shard>().map(Self)
    }

    /// A new client of the current shard.
    pub fn client(&self) -> InProcess {
        InProcess::new(&self.0.native)
    }

    /// Flushes and closes every shard. Call on shard 0.
    ///
    /// # Errors
    /// The error of the first shard that failed, as text.
    pub async fn close(self) -> Result<(), String> {
        boot::close_all(reactor::shard_count()).await.map_err(|error| error.to_string())
    }
}
