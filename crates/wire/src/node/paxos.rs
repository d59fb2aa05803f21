//! Rounds of conditional writes over several replicas, on their way to a replica and back.
//!
//! ```text
//! prepare  := table[16] version:u64 since:u64 key:sized ballot kind:u8 count:u8 read:sized[count]
//! kind     := 0 the round reads | 1 the round may write
//! promise  := 0 refusal
//!           | 1 written accepted committed count:u8 answer:sized[count]
//! written  := 0 | 1 ballot                    the latest promise before this one to a round that may write
//! accepted, committed := 0 | 1 ballot mutation:sized
//! accept   := version:u64 since:u64 ballot mutation:sized
//! accepted := 0 refusal | 1
//! learn    := version:u64 since:u64 ballot durably:u8 mutation:sized    answered by nothing
//! refusal  := why:u8 ballot                   0 not later than the ballot | 1 too far ahead of the clock
//!                                             2 the ballot is of replicas elsewhere
//! ballot   := micros:u64 node:u16 shard:u16 sequence:u32 scope:u8    big endian: bytes sort as ballots do
//! ```
//! `read` is a message of [`super::read`], `answer` one of [`super::answer`], `mutation` one of the commit
//! log; an empty mutation proposes that nothing changes. Invariant: a mutation's token is its key's, and all
//! of a prepare's reads are of its one partition.

use model::TableId;
use model::mutation::MutationView;

use super::NodeError;
use super::mutate::mutation;
use super::read::{Partitions, Read};
use super::reader::{Reader, append_sized};

/// Bytes of a ballot.
pub const BALLOT_BYTES: usize = 17;

/// Identity and order of a round. Its time is the timestamp of what the round writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Microseconds since 1970.
    pub micros: i64,
    /// The node that began the round, and its shard.
    pub node: u16,
    /// See `node`.
    pub shard: u16,
    /// Tells rounds of one shard apart whose times are equal, after its clock was set back.
    pub sequence: u32,
    /// The replicas that agree: 0 for all, else the number of a data center and 1.
    pub scope: u8,
}

impl Ballot {
    /// The ballot as bytes, which sort as ballots do.
    ///
    /// # Panics
    /// For a time before 1970.
    pub fn to_bytes(self) -> [u8; BALLOT_BYTES] {
        let micros = u64::try_from(self.micros).expect("a ballot is of a time after 1970");
        let mut bytes = [0; BALLOT_BYTES];
        bytes[..8].copy_from_slice(&micros.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.node.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.shard.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16] = self.scope;
        bytes
    }

    /// Reads a ballot.
    ///
    /// # Errors
    /// [`NodeError`] for a time that no clock shows.
    pub fn from_bytes(bytes: [u8; BALLOT_BYTES]) -> Result<Self, NodeError> {
        let [m0, m1, m2, m3, m4, m5, m6, m7, n0, n1, s0, s1, q0, q1, q2, q3, scope] = bytes;
        let micros = u64::from_be_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
        let micros = i64::try_from(micros);
        let micros =
            micros.map_err(|_| NodeError::Unknown { field: "the time of a ballot", value: u64::MAX })?;
        let (node, shard) = (u16::from_be_bytes([n0, n1]), u16::from_be_bytes([s0, s1]));
        Ok(Self { micros, node, shard, sequence: u32::from_be_bytes([q0, q1, q2, q3]), scope })
    }
}

fn ballot(reader: &mut Reader<'_>) -> Result<Ballot, NodeError> {
    Ballot::from_bytes(reader.array("a ballot")?)
}

/// A request for a promise, with what the round reads.
#[derive(Debug, Clone)]
pub struct Prepare<'a> {
    /// The table.
    pub table: TableId,
    /// The version of the table's routing that it was planned with.
    pub version: u64,
    /// The command that made the receiver a replica of the tablet.
    pub since: u64,
    /// The stored key of the partition.
    pub key: &'a [u8],
    /// The round.
    pub ballot: Ballot,
    /// Whether the round may write.
    pub writes: bool,
    /// What is read once the promise is given.
    pub reads: Vec<&'a [u8]>,
}

impl<'a> Prepare<'a> {
    /// Appends the message.
    ///
    /// # Panics
    /// For more than 255 reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.table.0);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.since.to_le_bytes());
        append_sized(out, self.key);
        out.extend_from_slice(&self.ballot.to_bytes());
        out.push(u8::from(self.writes));
        append_list(out, self.reads.iter().copied());
    }

    /// Reads a message, and the reads in it.
    ///
    /// # Errors
    /// [`NodeError`] for bytes that are not exactly one message, and for a read of another table or
    /// partition.
    pub fn decode(message: &'a [u8]) -> Result<(Self, Vec<Read<'a>>), NodeError> {
        let mut reader = Reader::new(message);
        let table = TableId(reader.array("a table's id")?);
        let version = reader.u64("a routing's version")?;
        let since = reader.u64("the age of a replica")?;
        let key = reader.sized("a partition key")?;
        let ballot = ballot(&mut reader)?;
        let writes = flag(&mut reader, "whether a round may write")?;
        let reads = list(&mut reader, "the number of reads")?;
        reader.end()?;
        let mut decoded = Vec::with_capacity(reads.len());
        for read in &reads {
            let read = Read::decode(read)?;
            if read.table != table || read.partitions != Partitions::Key(key) {
                let reason = "it is not of the round's partition".to_owned();
                return Err(NodeError::Invalid { field: "a read", reason });
            }
            decoded.push(read);
        }
        Ok((Self { table, version, since, key, ballot, writes, reads }, decoded))
    }
}

/// Why an acceptor takes no part in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    /// It has seen a round that is as late or later.
    NotLater = 0,
    /// The round's time is too far ahead of the acceptor's clock.
    Ahead = 1,
    /// It has promised a round in which other replicas agree.
    OtherScope = 2,
}

/// An acceptor's refusal: nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub why: Why,
    /// The latest ballot that the acceptor has seen; the refused one where that is too far ahead.
    pub highest: Ballot,
}

impl Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.why as u8);
        out.extend_from_slice(&self.highest.to_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, NodeError> {
        let why = match reader.u8("the reason of a refusal")? {
            0 => Why::NotLater,
            1 => Why::Ahead,
            2 => Why::OtherScope,
            why => {
                return Err(NodeError::Unknown { field: "the reason of a refusal", value: u64::from(why) });
            }
        };
        Ok(Self { why, highest: ballot(reader)? })
    }
}

/// A proposal that was accepted or committed.
#[derive(Debug, Clone, Copy)]
pub struct Proposal<'a> {
    /// The round that proposed it, or took it up.
    pub ballot: Ballot,
    /// What it writes.
    pub mutation: MutationView<'a>,
}

/// A promise, with what the acceptor knew before it.
#[derive(Debug, Clone)]
pub struct Promise<'a> {
    /// The latest round that may write to which a promise was given before.
    pub written: Option<Ballot>,
    /// The proposal that was accepted last.
    pub accepted: Option<Proposal<'a>>,
    /// The proposal that was committed last.
    pub committed: Option<Proposal<'a>>,
    /// Answers to the reads, in their order.
    pub answers: Vec<&'a [u8]>,
}

/// An acceptor's answer to [`Prepare`].
#[derive(Debug, Clone)]
pub enum Prepared<'a> {
    /// No.
    Refused(Refusal),
    /// Yes.
    Promised(Box<Promise<'a>>),
}

impl<'a> Prepared<'a> {
    /// Appends the message.
    ///
    /// # Panics
    /// For more than 255 answers.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Refused(refusal) => {
                out.push(0);
                refusal.encode(out);
            }
            Self::Promised(promise) => {
                out.push(1);
                out.push(u8::from(promise.written.is_some()));
                promise.written.iter().for_each(|ballot| out.extend_from_slice(&ballot.to_bytes()));
                for proposal in [&promise.accepted, &promise.committed] {
                    out.push(u8::from(proposal.is_some()));
                    if let Some(Proposal { ballot, mutation }) = proposal {
                        out.extend_from_slice(&ballot.to_bytes());
                        append_sized(out, mutation.as_bytes());
                    }
                }
                append_list(out, promise.answers.iter().copied());
            }
        }
    }

    /// Reads a message. The answers are as they came.
    ///
    /// # Errors
    /// [`NodeError`] for bytes that are not exactly one message, and for a mutation that is damaged or whose
    /// token is not its key's.
    pub fn decode(message: &'a [u8]) -> Result<Self, NodeError> {
        let mut reader = Reader::new(message);
        let prepared = if flag(&mut reader, "whether a promise was given")? {
            let has_written = flag(&mut reader, "whether a promise was given before")?;
            let written = has_written.then(|| ballot(&mut reader)).transpose()?;
            let accepted = proposal(&mut reader)?;
            let committed = proposal(&mut reader)?;
            let answers = list(&mut reader, "the number of answers")?;
            Self::Promised(Box::new(Promise { written, accepted, committed, answers }))
        } else {
            Self::Refused(Refusal::decode(&mut reader)?)
        };
        reader.end()?;
        Ok(prepared)
    }
}

fn proposal<'a>(reader: &mut Reader<'a>) -> Result<Option<Proposal<'a>>, NodeError> {
    if !flag(reader, "whether there is a proposal")? {
        return Ok(None);
    }
    let ballot = ballot(reader)?;
    Ok(Some(Proposal { ballot, mutation: mutation(reader)? }))
}

/// A proposal to be accepted, or one to be committed.
#[derive(Debug, Clone, Copy)]
pub struct Propose<'a> {
    /// The version of the table's routing that it was planned with.
    pub version: u64,
    /// The command that made the receiver a replica of the tablet.
    pub since: u64,
    /// The proposal.
    pub proposal: Proposal<'a>,
}

impl<'a> Propose<'a> {
    /// Appends a request to accept.
    pub fn encode_accept(&self, out: &mut Vec<u8>) {
        self.encode(None, out);
    }

    /// Appends a request to commit, `durably` if the receiver's answer is to mean that a loss of power leaves
    /// it committed.
    pub fn encode_learn(&self, durably: bool, out: &mut Vec<u8>) {
        self.encode(Some(durably), out);
    }

    fn encode(&self, durably: Option<bool>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.since.to_le_bytes());
        out.extend_from_slice(&self.proposal.ballot.to_bytes());
        out.extend(durably.map(u8::from));
        append_sized(out, self.proposal.mutation.as_bytes());
    }

    /// Reads a request to accept.
    ///
    /// # Errors
    /// [`NodeError`] for bytes that are not exactly one message, and for a mutation that is damaged or whose
    /// token is not its key's.
    pub fn decode_accept(message: &'a [u8]) -> Result<Self, NodeError> {
        Self::decode(message, false).map(|(propose, _)| propose)
    }

    /// Reads a request to commit, and whether it is to be done durably.
    ///
    /// # Errors
    /// As [`Propose::decode_accept`].
    pub fn decode_learn(message: &'a [u8]) -> Result<(Self, bool), NodeError> {
        Self::decode(message, true)
    }

    fn decode(message: &'a [u8], is_learn: bool) -> Result<(Self, bool), NodeError> {
        let mut reader = Reader::new(message);
        let version = reader.u64("a routing's version")?;
        let since = reader.u64("the age of a replica")?;
        let ballot = ballot(&mut reader)?;
        let durably = is_learn && flag(&mut reader, "whether a commit is durable")?;
        let mutation = mutation(&mut reader)?;
        reader.end()?;
        Ok((Self { version, since, proposal: Proposal { ballot, mutation } }, durably))
    }
}

/// Appends an acceptor's answer to a proposal.
pub fn encode_accepted(answer: Result<(), Refusal>, out: &mut Vec<u8>) {
    out.push(u8::from(answer.is_ok()));
    if let Err(refusal) = answer {
        refusal.encode(out);
    }
}

/// Reads an acceptor's answer to a proposal.
///
/// # Errors
/// [`NodeError`] for other bytes.
pub fn decode_accepted(message: &[u8]) -> Result<Result<(), Refusal>, NodeError> {
    let mut reader = Reader::new(message);
    let answer = match flag(&mut reader, "whether a proposal was accepted")? {
        true => Ok(()),
        false => Err(Refusal::decode(&mut reader)?),
    };
    reader.end()?;
    Ok(answer)
}

fn flag(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, NodeError> {
    match reader.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(NodeError::Unknown { field, value: u64::from(value) }),
    }
}

fn append_list<'b>(out: &mut Vec<u8>, parts: impl ExactSizeIterator<Item = &'b [u8]>) {
    out.push(u8::try_from(parts.len()).expect("at most 255 parts"));
    parts.for_each(|part| append_sized(out, part));
}

fn list<'a>(reader: &mut Reader<'a>, field: &'static str) -> Result<Vec<&'a [u8]>, NodeError> {
    let count = reader.u8(field)?;
    (0..count).map(|_| reader.sized(field)).collect()
}
