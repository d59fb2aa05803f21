//! Decoders of what clients and other nodes send: frames and bodies, CQL text, types and values.
#![no_main]

mod cql;
mod marshal;
mod value;
mod wire_compressed_body;
mod wire_frames;
mod wire_node;
mod wire_request_body;
mod wire_response_body;
mod wire_segments;
mod wire_type_option;

fuzz::targets!(
    cql,
    marshal,
    value,
    wire_compressed_body,
    wire_frames,
    wire_node,
    wire_request_body,
    wire_response_body,
    wire_segments,
    wire_type_option
);
