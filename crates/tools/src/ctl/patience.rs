//! Waits for a node that takes its time, and says so on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use reactor::{Deadline, Group, timeout};
use serde_json::Value;

use super::CtlError;

/// How long a node may be silent before the user gets a progress message, and the time between further ones.
const SILENCE: Duration = Duration::from_secs(2);

/// The answer to a request called `what`. `progress` makes the rest of the message out of the time it has
/// taken; on a terminal the message is one line that changes.
pub(super) async fn patiently(
    what: &str,
    request: impl Future<Output = Result<Value, CtlError>> + 'static,
    mut progress: impl AsyncFnMut(Duration) -> String,
) -> Result<Value, CtlError> {
    let began = reactor::now();
    let mut request = std::pin::pin!(reactor::spawn(Group::ADMIN, request));
    let terminal = std::io::stderr().is_terminal();
    let (start, end) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
    let mut told = false;
    let answer = loop {
        match timeout(Deadline::after(SILENCE), request.as_mut()).await {
            Ok(answer) => break answer,
            Err(_) => {
                told = true;
                let line = progress(began.elapsed()).await;
                // Standard error may be closed.
                let _ = write!(std::io::stderr().lock(), "{start}{what}: {line}{end}");
            }
        }
    };
    if told && terminal {
        let _ = write!(std::io::stderr().lock(), "{start}");
    }
    answer.map_err(|_| CtlError::Answer(format!("{what} was lost")))?
}
