//! A node of one shard inside the caller's reactor, without sockets: for benches and tests.

use std::rc::Rc;

use storage::Identity;

use crate::boot::{BootError, Shard};
use crate::config::Config;
use crate::native::inproc::InProcess;

/// A node of one shard.
pub struct Node(Rc<Shard>);

impl Node {
    /// Opens the node on the current shard, which has to be the only one.
    ///
    /// # Errors
    /// [`BootError`] as a whole process would report it.
    pub async fn open(config: &Config) -> Result<Self, BootError> {
        let workdir = |source| BootError::Workdir { path: config.workdir.clone(), source };
        reactor::file::create_dir_all(&config.workdir).await.map_err(workdir)?;
        let identity = Identity::open(&config.workdir, &config.cluster_name).await?;
        let shard = Rc::new(Shard::open(config, &identity).await?);
        reactor::set_local(Rc::clone(&shard));
        shard.make_system_tables().await?;
        Ok(Self(shard))
    }

    /// A new client.
    pub fn client(&self) -> InProcess {
        InProcess::new(&self.0.native)
    }

    /// Flushes and closes.
    ///
    /// # Errors
    /// The text of what storage says.
    pub async fn close(self) -> Result<(), String> {
        Rc::clone(&self.0).close_connections().await?;
        self.0.close_storage().await
    }
}
