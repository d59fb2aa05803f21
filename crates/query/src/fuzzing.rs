//! The entry point of the fuzz target for paging states, which clients send back and this crate decodes.
//!
//! Not part of the interface; `make fuzz` runs it.

use crate::paging::PagingState;

/// Reads a paging state as a client may send it. One that is accepted is written as it was read.
pub fn paging_state(bytes: &[u8]) {
    let Ok(state) = PagingState::parse(bytes) else { return };
    let mut written = Vec::new();
    state.append(&mut written);
    let again = PagingState::parse(&written).expect("a state that was just written");
    let mut twice = Vec::new();
    again.append(&mut twice);
    assert_eq!(written, twice);
}
