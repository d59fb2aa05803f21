//! The process: configuration, boot, native listeners.
