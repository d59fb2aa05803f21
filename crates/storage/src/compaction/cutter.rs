//! Decides where an output file of a job ends and the next one begins.

use model::Token;

use super::strategy::Cut;

/// A file may be larger than asked for by this part of its size, if the last file would otherwise be smaller
/// than that part.
const SLIVER: f64 = 0.1;

/// Decides for each partition whether a new file begins.
#[derive(Debug)]
pub(super) struct Cutter {
    cut: Cut,
    tokens: (Token, Token),
    /// Bytes on the disk per byte of data.
    ratio: f64,
    /// Bytes of all inputs on the disk.
    input_bytes: u64,
    /// For [`Cut::Halves`]: part of the inputs that the present file may have.
    share: f64,
    /// For [`Cut::Shards`]: part of the tablet's tokens that the present file is in.
    shard: Option<u64>,
}

impl Cutter {
    /// For a tablet with these tokens, and inputs of `input_bytes` on the disk and `data_bytes` of data.
    pub(super) fn new(cut: Cut, tokens: (Token, Token), input_bytes: u64, data_bytes: u64) -> Self {
        // Files of even size, so that the last one is not a sliver.
        let cut = match cut {
            Cut::Size(bytes) => {
                let files = (input_bytes as f64 / bytes.max(1) as f64 - SLIVER).ceil().max(1.0);
                Cut::Size(((input_bytes as f64 / files).ceil() as u64).max(1))
            }
            Cut::SizeWithin(bytes, parts) => {
                let part = input_bytes as f64 / f64::from(parts.max(1));
                // Each part has about as much as the others. Rounded: an excess of less than half a file
                // makes the part's files longer.
                let files = (part / bytes.max(1) as f64).round().max(1.0);
                Cut::SizeWithin(((part / files * (1.0 + SLIVER)).ceil() as u64).max(1), parts)
            }
            other => other,
        };
        let ratio = if data_bytes == 0 { 1.0 } else { input_bytes as f64 / data_bytes as f64 };
        Self { cut, tokens, ratio, input_bytes, share: 0.5, shard: None }
    }

    /// Whether a partition begins a new file, after `data_bytes` of data in the present one.
    ///
    /// Call it for each partition in turn, including the first one of a file.
    pub(super) fn ends_before(&mut self, token: Token, data_bytes: u64) -> bool {
        let written = data_bytes as f64 * self.ratio;
        match self.cut {
            Cut::Whole => false,
            Cut::Size(bytes) => data_bytes > 0 && written >= bytes as f64,
            Cut::Shards(count) => {
                let shard = part_of(token, self.tokens, count);
                let crossed = self.shard.is_some_and(|present| present != shard);
                self.shard = Some(shard);
                crossed && data_bytes > 0
            }
            Cut::SizeWithin(bytes, count) => {
                let shard = part_of(token, self.tokens, count);
                let crossed = self.shard.is_some_and(|present| present != shard);
                self.shard = Some(shard);
                data_bytes > 0 && (crossed || written >= bytes as f64)
            }
            Cut::Halves(bytes_min) => {
                let whole = self.input_bytes as f64;
                // The last file takes the rest, which would be too small for another file.
                let last = whole * self.share / 2.0 < bytes_min as f64;
                let ends = data_bytes > 0 && !last && written >= whole * self.share;
                if ends {
                    self.share /= 2.0;
                }
                ends
            }
        }
    }

    /// Estimated number of files, at least 1.
    pub(super) fn files(&self) -> u64 {
        match self.cut {
            Cut::Whole => 1,
            Cut::Size(bytes) => self.input_bytes.div_ceil(bytes.max(1)).max(1),
            Cut::Shards(count) => u64::from(count.max(1)),
            Cut::SizeWithin(bytes, count) => {
                self.input_bytes.div_ceil(bytes.max(1)).max(u64::from(count.max(1)))
            }
            Cut::Halves(_) => 2,
        }
    }
}

/// Index of the part of the tablet that a token is in, of `count` equal parts.
pub(super) fn part_of(token: Token, (first, last): (Token, Token), count: u32) -> u64 {
    let width = (i128::from(last.0) - i128::from(first.0) + 1).max(1);
    let place = (i128::from(token.0) - i128::from(first.0)).clamp(0, width - 1);
    (place * i128::from(count.max(1)) / width) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of files over a hundred partitions of 10 bytes of data, 5 on the disk, at tokens 0 to 99.
    fn check(cut: Cut, expected: &[i64]) {
        let mut cutter = Cutter::new(cut, (Token(0), Token(99)), 500, 1000);
        let (mut data, mut ends) = (0, Vec::new());
        for token in 0..100 {
            if cutter.ends_before(Token(token), data) {
                ends.push(token);
                data = 0;
            }
            data += 10;
        }
        assert_eq!(ends, expected, "{cut:?}");
    }

    #[test]
    fn files_end_where_they_should() {
        check(Cut::Whole, &[]);
        check(Cut::Size(200), &[34, 68]);
        // A tenth too much does not make a third file.
        check(Cut::Size(240), &[50]);
        check(Cut::Size(1000), &[]);
        check(Cut::Shards(1), &[]);
        check(Cut::Shards(4), &[25, 50, 75]);
        check(Cut::Shards(3), &[34, 67]);
        // Two files in each half; the first takes a tenth more than its share.
        check(Cut::SizeWithin(125, 2), &[28, 50, 78]);
        check(Cut::SizeWithin(300, 2), &[50]);
        check(Cut::Halves(60), &[50, 75]);
        check(Cut::Halves(400), &[]);
    }

    #[test]
    fn parts_of_powers_of_two_share_their_bounds() {
        for tokens in [(Token::MINIMUM, Token::MAXIMUM), (Token(-7), Token(1_000_003))] {
            for token in [tokens.0.0, -5, 0, 3, 500_000, tokens.1.0].map(Token) {
                let wide = part_of(token, tokens, 4);
                assert_eq!(wide, part_of(token, tokens, 16) / 4);
                assert!(wide < 4);
            }
        }
    }
}
