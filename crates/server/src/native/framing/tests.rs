//! Frames come out complete however the bytes arrive, and answers go in unchanged.

use wire::frame::{Flags, Opcode};
use wire::version::ProtocolVersion;

use super::*;

const FRAME_BYTES_MAX: usize = 1 << 20;

fn answers(bytes_max: usize) -> Rc<Answers> {
    Rc::new(Answers::within(bytes_max, Rc::new(query::answer_room::AnswerRoom::new(bytes_max))))
}

fn frame(version: ProtocolVersion, stream: i16, body: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        version,
        flags: Flags::default(),
        stream,
        opcode: Opcode::Query,
        body_length: body.len() as u32,
    };
    [header.encode(Direction::Request).as_slice(), body].concat()
}

/// Feeds `bytes` in pieces and returns the streams and bodies of the frames.
fn received(input: &mut Input, bytes: &[u8], piece: usize) -> Vec<(i16, Vec<u8>)> {
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        input.feed(piece);
        loop {
            match input.next_frame(|_, _| Err(()), Vec::new) {
                Ok(Some(Next::Frame(header, body, ()))) => frames.push((header.stream, body)),
                Ok(Some(Next::Taken)) => unreachable!("nobody takes any"),
                Ok(None) => break,
                Err(error) => {
                    frames.push((error.stream, Vec::new()));
                    input.discard(error.discard_bytes.expect("an error that can be followed"));
                }
            }
        }
    }
    frames
}

#[test]
fn frames_come_out_whole_from_pieces_of_any_size() {
    let bodies: Vec<Vec<u8>> = (0..20).map(|n| vec![n as u8; n * n * 7]).collect();
    let bytes: Vec<u8> =
        bodies.iter().enumerate().flat_map(|(n, body)| frame(ProtocolVersion::V4, n as i16, body)).collect();
    let expected: Vec<_> = bodies.into_iter().enumerate().map(|(n, body)| (n as i16, body)).collect();
    for piece in [1, 2, 8, 9, 10, 1000, bytes.len()] {
        assert_eq!(received(&mut Input::new(FRAME_BYTES_MAX), &bytes, piece), expected, "pieces of {piece}");
    }
}

#[test]
fn a_frame_beyond_the_limit_is_skipped_and_the_next_one_read() {
    let bytes = [
        frame(ProtocolVersion::V4, 1, &[1; 10]),
        frame(ProtocolVersion::V4, 2, &[2; 5000]),
        frame(ProtocolVersion::V4, 3, &[3; 20]),
    ]
    .concat();
    for piece in [1, 100, 4096, bytes.len()] {
        let frames = received(&mut Input::new(1000), &bytes, piece);
        assert_eq!(frames, [(1, vec![1; 10]), (2, vec![]), (3, vec![3; 20])], "pieces of {piece}");
    }
}

#[test]
fn segments_carry_frames_of_any_size_both_ways() {
    let bodies = [vec![1; 10], vec![2; 300_000], vec![], vec![3; 131_000], vec![4; 200]];
    let expected: Vec<_> = bodies.iter().cloned().enumerate().map(|(n, body)| (n as i16, body)).collect();
    for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
        // `Input` accepts the output of `Output`, except for the direction in the header, which `Input`
        // checks.
        let mut output = Output::new(answers(1 << 20), Codecs::new());
        output.append(|out, _| out.extend_from_slice(b"before"));
        output.begin_segments(format);
        for (n, body) in bodies.iter().enumerate() {
            output.append(|out, _| out.extend_from_slice(&frame(ProtocolVersion::V5, n as i16, body)));
        }
        let bytes = output.take().unwrap();
        let bytes = bytes.strip_prefix(b"before").expect("what was written before goes out as it is");
        for piece in [1, 1000, 65_536, bytes.len()] {
            let mut input = Input::new(FRAME_BYTES_MAX);
            input.expect_segments(format);
            assert_eq!(received(&mut input, bytes, piece), expected, "{format:?} in pieces of {piece}");
        }
        assert_eq!(output.take(), None);
    }
}

#[test]
fn a_broken_output_keeps_nothing() {
    let mut output = Output::new(answers(1 << 20), Codecs::new());
    output.append(|out, _| out.extend_from_slice(b"lost"));
    output.set_broken();
    output.append(|out, _| out.extend_from_slice(b"lost too"));
    assert_eq!((output.held_bytes(), output.take()), (0, None));
}

#[test]
fn answers_count_until_they_are_sent_or_dropped() {
    let answers = answers(100);
    let (mut one, mut other) =
        (Output::new(Rc::clone(&answers), Codecs::new()), Output::new(Rc::clone(&answers), Codecs::new()));
    one.append(|out, _| out.extend_from_slice(&[0; 60]));
    other.append(|out, _| out.extend_from_slice(&[0; 40]));
    assert!(!answers.are_too_many());
    other.append(|out, _| out.push(0));
    assert!(answers.are_too_many());
    let taken = one.take().unwrap();
    assert!(answers.are_too_many(), "what is being sent still takes memory");
    drop(taken);
    one.sent();
    assert!(!answers.are_too_many());
    one.append(|out, _| out.extend_from_slice(&[0; 60]));
    assert!(answers.are_too_many());
    other.set_broken();
    assert!(!answers.are_too_many());
    drop(one);
    other.append(|out, _| out.push(0));
    assert!(!answers.are_too_many());
}

#[test]
fn long_answers_are_expected_at_once_and_forgotten_slowly() {
    let mut output = Output::new(answers(1 << 20), Codecs::new());
    let mut answer = |bytes: usize| {
        output.append(|out, _| out.resize(out.len() + bytes, 0));
        output.usual_bytes()
    };
    let first = answer(100);
    assert!(first < ANSWER_BYTES_AT_FIRST && first > ANSWER_BYTES_AT_FIRST / 2);
    assert_eq!(answer(1 << 20), 1 << 20);
    assert_eq!(answer(100), (1 << 20) - (1 << 17));
    let last = (0..200).map(|_| answer(100)).last();
    assert!(last.is_some_and(|usual| (100..200).contains(&usual)), "{last:?}");
}

#[test]
fn long_answers_go_out_as_they_were_made_and_in_their_order() {
    let answers = answers(1 << 20);
    let mut output = Output::new(Rc::clone(&answers), Codecs::new());
    let short = frame(ProtocolVersion::V4, 1, b"short");
    output.append(|out, _| out.extend_from_slice(&short));
    let body: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
    let head = frame(ProtocolVersion::V4, 2, b"");
    output.append_long(|out| out.extend_from_slice(&head), body.clone());
    output.append_long(|out| out.extend_from_slice(&head), body.clone());
    output.append(|out, _| out.extend_from_slice(&short));
    assert_eq!(answers.room_taken(), output.held_bytes());
    let long = frame(ProtocolVersion::V4, 2, &body);
    let expected = [short.as_slice(), &long, &long, &short].concat();
    assert_eq!(output.held_bytes(), expected.len());
    let mut sent = Vec::new();
    while let Some(piece) = output.take() {
        assert_eq!(output.held_bytes(), expected.len() - sent.len(), "what is being sent still counts");
        sent.extend_from_slice(&piece);
        output.sent();
    }
    assert!(sent == expected);
    assert_eq!((output.held_bytes(), answers.room_taken()), (0, 0));
    output.append_long(|out| out.extend_from_slice(&head), body);
    drop(output);
    assert_eq!(answers.room_taken(), 0);
}

/// Compares the output of long answers with and without copying.
#[test]
fn long_answers_in_segments_are_what_they_are_when_they_are_copied() {
    for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
        for bytes in
            [PAYLOAD_BYTES_MAX - 9, PAYLOAD_BYTES_MAX - 8, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 900_000]
        {
            let answers = answers(1 << 22);
            let (mut long, mut copied) = (
                Output::new(Rc::clone(&answers), Codecs::new()),
                Output::new(Rc::clone(&answers), Codecs::new()),
            );
            let body: Vec<u8> = (0..bytes as u32).map(|n| (n ^ (n >> 7)) as u8).collect();
            let (short, head) = (frame(ProtocolVersion::V5, 1, b"short"), frame(ProtocolVersion::V5, 2, b""));
            for output in [&mut long, &mut copied] {
                output.begin_segments(format);
                output.append(|out, _| out.extend_from_slice(&short));
            }
            for _ in 0..2 {
                long.append_long(|out| out.extend_from_slice(&head), body.clone());
                copied.append(|out, _| out.extend_from_slice(&frame(ProtocolVersion::V5, 2, &body)));
            }
            for output in [&mut long, &mut copied] {
                output.append(|out, _| out.extend_from_slice(&short));
            }
            let frames = [&mut long, &mut copied].map(|output| {
                let mut input = Input::new(FRAME_BYTES_MAX);
                input.expect_segments(format);
                let mut frames = Vec::new();
                while let Some(piece) = output.take() {
                    assert!(answers.room_taken() >= output.held_bytes(), "pieces count while they are sent");
                    frames.extend(received(&mut input, &piece, piece.len()));
                    output.sent();
                }
                frames
            });
            assert!(frames[0] == frames[1], "{format:?}, {bytes} bytes");
            assert_eq!(frames[0].len(), 4);
            assert_eq!((long.held_bytes(), answers.room_taken()), (0, 0));
        }
    }
}

/// A long answer is not copied as a whole: a connection holds the answer and a few segments.
#[test]
fn a_long_answer_in_segments_is_not_in_memory_twice() {
    let mut output = Output::new(answers(1 << 24), Codecs::new());
    output.begin_segments(SegmentFormat::Plain);
    let head = frame(ProtocolVersion::V5, 2, b"");
    output.append_long(|out| out.extend_from_slice(&head), vec![7; 4 << 20]);
    while let Some(piece) = output.take() {
        assert!(piece.len() <= PIECES_AT_ONCE * (PAYLOAD_BYTES_MAX + 10), "{} bytes at once", piece.len());
        output.sent();
    }
    output.append_long(|out| out.extend_from_slice(&head), vec![7; 4 << 20]);
    output.take();
    output.set_broken();
    output.sent();
    assert_eq!((output.held_bytes(), output.take()), (0, None), "the rest of it is dropped");
}

#[test]
fn a_long_frame_is_handed_over_in_the_buffer_it_came_in() {
    let long = vec![7; INPUT_BYTES_KEPT + 1];
    let bytes = [
        frame(ProtocolVersion::V4, 1, b"a"),
        frame(ProtocolVersion::V4, 2, &long),
        frame(ProtocolVersion::V4, 3, b"b"),
    ]
    .concat();
    let expected = [(1, b"a".to_vec()), (2, long.clone()), (3, b"b".to_vec())];
    for piece in [1000, bytes.len()] {
        assert_eq!(received(&mut Input::new(FRAME_BYTES_MAX), &bytes, piece), expected, "pieces of {piece}");
    }
    let mut input = Input::new(FRAME_BYTES_MAX);
    let bytes = frame(ProtocolVersion::V4, 2, &long);
    input.feed(&bytes[..100]);
    assert_eq!(input.awaited_bytes(), bytes.len(), "what is reserved is enough to admit the request");
    input.expect_bytes(input.awaited_bytes());
    let (place, capacity) = (input.received.as_ptr(), input.received.capacity());
    assert!(capacity < bytes.len() + 100, "no more than was set aside: {capacity}");
    input.feed(&bytes[100..]);
    let Ok(Some(Next::Frame(_, body, ()))) =
        input.next_frame(|_, _| Err(()), || unreachable!("nothing is copied"))
    else {
        panic!("a whole frame is there")
    };
    assert!(body == long && body.as_ptr() == place && input.received.capacity() == 0);
}

#[test]
fn long_compressed_answers_take_the_memory_that_they_are_counted_with() {
    let mut output = Output::new(answers(16 << 20), Codecs::new());
    output.body_compression = Some(Compression::Lz4);
    let mut state = 1u32;
    let body: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(1 << 20)
    .collect();
    for long in [false, true, true, false, true, false] {
        output.end_buffer();
        output.append(|out, compression| {
            out.extend_from_slice(if long { &body } else { b"short" });
            let (algorithm, compressor) = compression.expect("bodies are compressed");
            compressor.compress_body(algorithm, out, 0).expect("not too long");
        });
        output.end_buffer();
    }
    let mut taken = 0;
    while let Some(bytes) = output.take() {
        assert!(bytes.len() < 100 || bytes.capacity() <= bytes.len() + 100, "{} bytes", bytes.capacity());
        taken += usize::from(bytes.len() > body.len());
        output.sent();
    }
    assert_eq!((taken, output.held_bytes()), (3, 0));
}
