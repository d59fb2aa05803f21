//! Entry points for fuzz targets: each takes any bytes and must come back.
//!
//! `make fuzz` runs them; a decoder that panics, loops or allocates without bound fails there.

use model::Table;

use crate::compression::{ChunkChecksums, CompressionInfo, Compressor, Decoder};
use crate::data::decode::{self, Head};
use crate::extras::Extras;
use crate::filter::Filter;
use crate::index::promoted::decode_block;
use crate::input::Input;
use crate::layout::Layout;
use crate::statistics::{Cardinality, EncodingMinima, SerializationHeader, Statistics};
use crate::summary::Summary;
use crate::version::{Features, Version};

fn all_features() -> [Features; Version::ALL.len()] {
    Version::ALL.map(Version::features)
}

/// `Data.db`, uncompressed, from behind a partition's header, as rows of `table`.
pub fn data(bytes: &[u8], table: &Table) {
    for unsigned_times in [false, true] {
        data_of(bytes, table, unsigned_times);
    }
}

fn data_of(bytes: &[u8], table: &Table, unsigned_times: bool) {
    let header = SerializationHeader::of_table(table, EncodingMinima::default());
    let Ok(layout) = Layout::resolve(&header, table, unsigned_times) else { return };
    let _ = decode::whole_deletion(&layout, &mut Input::new(bytes));
    let (mut at, mut clustering, mut row) = (0, Vec::new(), Vec::new());
    // Each round takes at least one byte.
    while at < bytes.len() {
        let Ok(head) = decode::head(&layout, &mut Input::new(&bytes[at..]), &mut clustering) else { return };
        let item = match head {
            Head::End => return,
            Head::Row(item) | Head::Marker(_, item) => item,
        };
        let Some(body) = bytes[at..].get(item.body..item.length) else { return };
        row.clear();
        let decoded = match head {
            Head::Marker(kind, _) => decode::marker(&layout, kind, &mut Input::new(body)).map(drop),
            _ => decode::row(&layout, item, &mut Input::new(body), &mut row),
        };
        if decoded.is_err() {
            return;
        }
        if !row.is_empty() {
            assert!(model::RowView::parse(&row).is_ok(), "a decoded row is well formed");
        }
        at += item.length;
    }
}

/// `Index.db`, and the blocks of a promoted index of `table`.
pub fn index(bytes: &[u8], table: &Table) {
    let _ = crate::index::reader::parse_all(bytes);
    let header = SerializationHeader::of_table(table, EncodingMinima::default());
    for unsigned_times in [false, true] {
        let Ok(layout) = Layout::resolve(&header, table, unsigned_times) else { continue };
        let _ = decode_block(&layout, &mut Input::new(bytes));
    }
}

/// `Summary.db`.
pub fn summary(bytes: &[u8]) {
    let _ = Summary::decode(bytes, 1 << 20);
}

/// `Filter.db`.
pub fn filter(bytes: &[u8]) {
    for features in all_features() {
        if let Ok(filter) = Filter::decode(bytes.to_vec(), features.filter_in_words) {
            let _ = filter.may_contain(bytes);
        }
    }
}

/// `Ceto.db`.
pub fn extras(bytes: &[u8]) {
    let _ = Extras::decode(bytes);
    // Again with a checksum that holds, which no random bytes have.
    let mut whole = bytes.to_vec();
    whole.extend_from_slice(&crc32fast::hash(bytes).to_be_bytes());
    if let Ok(extras) = Extras::decode(&whole) {
        let mut again = Vec::new();
        extras.encode(&mut again);
        assert_eq!(Extras::decode(&again).as_ref(), Ok(&extras), "what was decoded comes back");
    }
}

/// `Statistics.db`.
pub fn statistics(bytes: &[u8]) {
    let _ = Cardinality::decode(bytes);
    for features in all_features() {
        let _ = Statistics::decode(bytes, features);
    }
}

/// `CompressionInfo.db`, `CRC.db` and chunks.
pub fn compression(bytes: &[u8]) {
    for features in all_features() {
        let _ = CompressionInfo::decode(bytes, features, 1 << 20);
    }
    let _ = ChunkChecksums::decode(bytes, 1 << 20);
    for compressor in Compressor::ALL {
        if let Ok(decoder) =
            Decoder::new(compressor, compressor.has_dictionary().then_some(&b"dictionary"[..]))
        {
            let _ = decoder.decode(bytes, &mut vec![0; 4096]);
        }
    }
}
