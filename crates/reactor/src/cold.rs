//! Futures of rare and long work, whose code is built once.

use std::pin::Pin;

/// A future behind a pointer.
pub type Cold<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Puts a future behind a pointer, for functions that are no `async fn` and never inlined: the code of the
/// future is then built in the crate of that function alone. That of an `async fn` is built again, with all
/// that it awaits, in each crate that awaits it, which made up a quarter of the release build.
pub fn cold<'a, T>(future: impl Future<Output = T> + 'a) -> Cold<'a, T> {
    Box::pin(future)
}
