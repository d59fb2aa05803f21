//! Golden frames that other programs made, and a table of requests that we write ourselves.

use wire::ProtocolVersion;

/// A line of a golden file.
#[derive(Debug)]
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) version: ProtocolVersion,
    /// Fields between the version and the bytes.
    pub(crate) fields: Vec<String>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn parse(text: &str) -> Vec<Golden> {
    text.lines()
        .map(|line| {
            // The bytes may be none: split at single spaces and keep empty fields.
            let mut fields: Vec<&str> = line.split(' ').collect();
            let hex = fields.pop().expect("a line has fields");
            let number: u8 = fields[1].parse().expect("the second field is the version");
            Golden {
                name: fields[0].to_owned(),
                version: ProtocolVersion::from_number(number).expect("a version we speak"),
                fields: fields[2..].iter().map(|field| (*field).to_owned()).collect(),
                bytes: unhex(hex),
            }
        })
        .collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}
