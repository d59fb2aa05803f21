//! Fuzzes version 5's segments, as they are and with their checksums put right, so that what lies behind is
//! reached too.

use wire::segment::crc::{crc24, crc32};

pub(crate) fn run(data: &[u8]) {
    wire::fuzzing::segments(data);
    let mut repaired = data.to_vec();
    repair(&mut repaired);
    wire::fuzzing::segments(&repaired);
}

/// Puts the checksums of all segments right; the first byte chooses the format, as in `wire::fuzzing`.
fn repair(data: &mut [u8]) {
    let Some((&mut first, mut rest)) = data.split_first_mut() else { return };
    let fields_bytes = if first & 0x80 != 0 { 5 } else { 3 };
    while let Some((header, after)) = rest.split_at_mut_checked(fields_bytes + 3) {
        let (fields, checksum) = header.split_at_mut(fields_bytes);
        checksum.copy_from_slice(&crc24(fields).to_le_bytes()[..3]);
        let payload_bytes = u32::from_le_bytes([fields[0], fields[1], fields[2], 0]) as usize & 0x1_ffff;
        let Some((payload, after)) = after.split_at_mut_checked(payload_bytes) else { return };
        let Some((trailer, after)) = after.split_at_mut_checked(4) else { return };
        trailer.copy_from_slice(&crc32(payload).to_le_bytes());
        rest = after;
    }
}
