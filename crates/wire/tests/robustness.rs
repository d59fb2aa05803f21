//! Any bytes: no panic, and no memory out of proportion to them. Bytes that we write are read back.
//!
//! This test binary counts every allocation, so that "no memory" is a number.
#![allow(unsafe_code)] // a counting allocator
#![allow(clippy::disallowed_types)] // prop_oneof! makes an Arc

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::LazyLock;

use proptest::prelude::*;
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions};
use wire::frame::Direction;
use wire::fuzzing::{self, MAX_FRAME_BYTES};
use wire::request;
use wire::rows::RowsMode;
use wire::segment::{Decoded, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::{
    ColumnSpec, Compression, Compressor, Consistency, Extensions, Frame, ProtocolVersion, Request,
    ResponseBuilder, RowsMetadata, ValueRef,
};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LARGEST_BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: usize) {
    // A thread that ends has no counters any more, and nothing to count.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = LARGEST_BYTES.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every method hands its arguments to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number and largest size of the allocations that `run` makes.
fn allocations(run: impl FnOnce()) -> (usize, usize) {
    ALLOCATIONS.with(|count| count.set(0));
    LARGEST_BYTES.with(|largest| largest.set(0));
    run();
    (ALLOCATIONS.with(Cell::get), LARGEST_BYTES.with(Cell::get))
}

/// One allocation may be as large as the frame limit, doubled by a growing buffer, or a table of lz4.
const LARGEST_BYTES_MAX: usize = 2 * wire::segment::PAYLOAD_BYTES_MAX + (1 << 16);
const _: () = assert!(MAX_FRAME_BYTES <= wire::segment::PAYLOAD_BYTES_MAX);

type Entry = (&'static str, fn(&[u8]));

const ENTRIES: [Entry; 7] = [
    ("frames", fuzzing::frames),
    ("request_body", fuzzing::request_body),
    ("segments", fuzzing::segments),
    ("compressed_body", fuzzing::compressed_body),
    ("response_body", fuzzing::response_body),
    ("type_option", fuzzing::type_option),
    ("node_messages", fuzzing::node_messages),
];

fn golden_bytes() -> Vec<Vec<u8>> {
    let lines = include_str!("golden/client_frames.txt")
        .lines()
        .chain(include_str!("golden/server_frames.txt").lines());
    lines
        .map(|line| {
            let hex = line.rsplit(' ').next().expect("a line has fields");
            (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
                .collect()
        })
        .collect()
}

static GOLDENS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(golden_bytes);

fn check_all(data: &[u8]) -> Result<(), TestCaseError> {
    for (name, entry) in ENTRIES {
        let (_, largest_bytes) = allocations(|| entry(data));
        // A decoded response owns a list of its columns: some 100 bytes for every 4 sent, doubled by growth.
        let limit = LARGEST_BYTES_MAX + data.len() * 256;
        prop_assert!(largest_bytes <= limit, "{name} asked for {largest_bytes} bytes at once");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered_without_panic_and_without_much_memory(data in prop::collection::vec(any::<u8>(), 0..300)) {
        check_all(&data)?;
    }

    #[test]
    fn damaged_frames_are_answered_without_panic_and_without_much_memory(
        which in any::<prop::sample::Index>(),
        prefix in any::<[u8; 2]>(),
        prefix_bytes in 0..3_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut data = prefix[..prefix_bytes].to_vec();
        let golden: &Vec<u8> = which.get(&GOLDENS);
        data.extend_from_slice(golden);
        for (at, byte) in damage.iter().filter(|_| !data.is_empty()).cloned().collect::<Vec<_>>() {
            let at = at.index(data.len());
            data[at] = byte;
        }
        data.truncate(cut.index(data.len() + 1).max(data.len() / 2));
        check_all(&data)?;
    }

    #[test]
    fn a_segment_with_any_bit_flipped_is_not_taken_for_another(
        query in "[a-z ]{0,100}",
        bit in any::<prop::sample::Index>(),
        is_lz4 in any::<bool>(),
    ) {
        let format = if is_lz4 { SegmentFormat::Lz4 } else { SegmentFormat::Plain };
        let mut envelope = Vec::new();
        let parameters = Parameters::at(Consistency::One);
        ClientConnection::new(ProtocolVersion::V5)
            .append_request(
                &mut envelope,
                1,
                &ClientRequest::Query(&query, &parameters),
                &RequestOptions::default(),
                &mut Compressor::default(),
            )
            .unwrap();
        let mut segment = Vec::new();
        SegmentEncoder::new(format).append(&mut segment, &envelope);
        let bit = bit.index(segment.len() * 8);
        segment[bit / 8] ^= 1 << (bit % 8);
        let mut decoder = SegmentDecoder::new(format, Direction::Request, 1 << 20);
        prop_assert!(decoder.decode(&segment).is_err());
    }

    #[test]
    fn bodies_come_out_of_compression_as_they_went_in(
        body in prop::collection::vec(prop_oneof![any::<u8>(), Just(7_u8), Just(7_u8)], 0..5000),
        is_lz4 in any::<bool>(),
        cut_at in any::<prop::sample::Index>(),
    ) {
        let compression = if is_lz4 { Compression::Lz4 } else { Compression::Snappy };
        let mut out = b"header".to_vec();
        out.extend_from_slice(&body);
        Compressor::default().compress_body(compression, &mut out, 6).unwrap();
        let mut back = b"kept".to_vec();
        compression.decompress(&out[6..], body.len(), &mut back).unwrap();
        prop_assert_eq!(&back[..4], b"kept");
        prop_assert_eq!(&back[4..], &body[..]);
        if !body.is_empty() {
            prop_assert!(compression.decompress(&out[6..], body.len() - 1, &mut back).is_err());
        }
        let mut cut = Vec::new();
        let length = cut_at.index(out.len() - 6);
        prop_assert!(compression.decompress(&out[6..6 + length], body.len(), &mut cut).is_err());
        prop_assert!(cut.is_empty());
    }
}

proptest! {
    // Megabytes each.
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn envelopes_come_out_of_segments_as_they_went_in(
        sizes in prop::collection::vec(prop_oneof![0..200_usize, 100_000..140_000_usize, 250_000..300_000_usize], 1..6),
        is_lz4 in any::<bool>(),
        is_random in any::<bool>(),
    ) {
        let format = if is_lz4 { SegmentFormat::Lz4 } else { SegmentFormat::Plain };
        let mut encoder = SegmentEncoder::new(format);
        let mut out = b"before".to_vec();
        let start = encoder.begin(&mut out);
        let mut expected = Vec::new();
        let mut noise = 1_u32;
        for (stream, size) in sizes.iter().enumerate() {
            let query: String = (0..*size)
                .map(|_| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if is_random { char::from(b' ' + (noise >> 24) as u8 % 90) } else { 'x' }
                })
                .collect();
            let parameters = Parameters::at(Consistency::One);
            ClientConnection::new(ProtocolVersion::V5)
                .append_request(
                    &mut expected,
                    stream as i16,
                    &ClientRequest::Query(&query, &parameters),
                    &RequestOptions::default(),
                    &mut Compressor::default(),
                )
                .unwrap();
        }
        out.extend_from_slice(&expected);
        encoder.finish(&mut out, start);
        prop_assert_eq!(&out[..6], b"before");

        let mut decoder = SegmentDecoder::new(format, Direction::Request, 1 << 20);
        let mut rest = &out[6..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            prop_assert!(matches!(decoder.decode(&rest[..rest.len().min(9)]), Ok(Decoded::NeedMore)));
            let consumed = match decoder.decode(rest).unwrap() {
                Decoded::Partial { consumed } => consumed,
                Decoded::Envelopes { consumed, envelopes } => {
                    let mut whole = envelopes;
                    while let Some(frame) = Frame::cut(whole, 1 << 20).unwrap() {
                        whole = &whole[frame.header.frame_bytes()..];
                    }
                    prop_assert!(whole.is_empty(), "a segment ends inside an envelope");
                    found.extend_from_slice(envelopes);
                    consumed
                }
                other => panic!("{other:?}"),
            };
            prop_assert!(consumed <= format.segment_bytes_max());
            rest = &rest[consumed..];
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn every_golden_frame_passes_through_every_decoder() {
    for bytes in GOLDENS.iter() {
        for version in 0..3 {
            let mut data = vec![version];
            data.extend_from_slice(bytes);
            check_all(&data).unwrap();
        }
    }
}

#[test]
fn a_prepared_point_read_allocates_nothing() {
    const ROUNDS: usize = 100;
    let ints = model::CqlType::Int;
    let names: Vec<String> = (0..10).map(|index| format!("column{index}")).collect();
    let columns: Vec<_> =
        names.iter().map(|name| ColumnSpec { keyspace: "ks", table: "t", name, ty: &ints }).collect();
    for version in ProtocolVersion::ALL {
        let metadata = RowsMetadata::new(version, &columns);
        let extensions = Extensions::default();
        let values = [ValueRef::Bytes(b"key"), ValueRef::Bytes(b"clustering")];
        let parameters = Parameters {
            values: &values,
            skip_metadata: true,
            page_size: Some(5000),
            default_timestamp_us: Some(1),
            ..Parameters::at(Consistency::LocalQuorum)
        };
        let execute =
            ClientRequest::Execute { id: &[1; 16], result_metadata_id: &[2; 16], parameters: &parameters };
        let mut received = Vec::new();
        ClientConnection::new(version)
            .append_request(
                &mut received,
                5,
                &execute,
                &RequestOptions::default(),
                &mut Compressor::default(),
            )
            .unwrap();

        // Version 5 as it is on a socket: segments both ways.
        let is_segmented = version >= ProtocolVersion::V5;
        let mut encoder = SegmentEncoder::new(SegmentFormat::Plain);
        let mut decoder = SegmentDecoder::new(SegmentFormat::Plain, Direction::Request, MAX_FRAME_BYTES);
        if is_segmented {
            let envelope = std::mem::take(&mut received);
            encoder.append(&mut received, &envelope);
        }
        let mut sent = Vec::with_capacity(4096);
        let mut answer = |mode: RowsMode<'_>| {
            let envelope = match is_segmented {
                false => &received,
                true => match decoder.decode(&received).unwrap() {
                    Decoded::Envelopes { envelopes, .. } => envelopes,
                    other => panic!("{other:?}"),
                },
            };
            let frame = Frame::cut(envelope, MAX_FRAME_BYTES).unwrap().expect("a whole frame");
            let decoded = request::decode(&frame.header, frame.body, &extensions).unwrap();
            let Request::Execute { id, parameters, .. } = decoded.request else { panic!("not an EXECUTE") };
            assert_eq!(id, [1; 16]);
            assert!(parameters.values.iter().map(|(_, value)| value).eq(values));
            sent.clear();
            let run = if is_segmented { encoder.begin(&mut sent) } else { 0 };
            let mut rows =
                ResponseBuilder::begin(&mut sent, version, frame.header.stream).rows(&metadata, mode);
            for value in 0..10_i32 {
                rows.append_value(Some(&value.to_be_bytes()));
            }
            rows.end_row();
            rows.set_paging_state(b"next");
            rows.finish(None).unwrap();
            if is_segmented {
                encoder.finish(&mut sent, run);
            }
            assert!(!sent.is_empty());
        };
        let (count, _) = allocations(|| {
            for _ in 0..ROUNDS {
                answer(RowsMode::Skip);
                answer(RowsMode::Full);
            }
        });
        assert_eq!(count, 0, "allocations in {ROUNDS} rounds of {version}");
    }
    // The counter counts.
    let (count, largest) = allocations(|| drop(std::hint::black_box(vec![0_u8; 1000])));
    assert_eq!((count, largest), (1, 1000));
}
