//! What a statement means: prepare, execute, page, describe.
