//! Profiles: tables, columns and statements of the user's own, from a YAML file.
use super::StressError;
use super::client::Client;
use super::operation::{Dialect, Operation};
use super::settings::Settings;
use model::Token;
pub(super) struct Profile;
impl Profile {
    pub(super) fn parse(path: &str, _text: &str) -> Result<Self, StressError> {
        Err(StressError::Profile { path: path.to_owned(), reason: "profiles are not supported".to_owned() })
    }
    pub(super) fn describe(&self) -> Vec<String> {
        Vec::new()
    }
    pub(super) fn keyspace(&self) -> &str {
        ""
    }
    pub(super) fn table_name(&self) -> String {
        String::new()
    }
    pub(super) async fn create_schema(&mut self, _c: &mut Client, _s: u64) -> Result<(), StressError> {
        Ok(())
    }
    pub(super) async fn load_table(&mut self, _c: &mut Client) -> Result<(), StressError> {
        Ok(())
    }
    pub(super) async fn truncate(&self, _c: &mut Client) -> Result<(), StressError> {
        Ok(())
    }
    pub(super) async fn operations(
        &mut self,
        _n: &str,
        _s: &Settings,
        _c: &mut [Client],
        _d: &Dialect,
        _r: &[Token],
        _x: i64,
    ) -> Result<Vec<Box<dyn Operation>>, StressError> {
        Ok(Vec::new())
    }
}
