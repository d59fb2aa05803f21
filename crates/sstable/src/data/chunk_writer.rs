//! Writes `Data.db`: compresses complete chunks, and keeps their offsets or checksums.
//!
//! With a compressor that takes a dictionary, the first chunks wait in memory until the dictionary is made
//! from them.

use std::path::PathBuf;

use super::writer::WriterOptions;
use crate::compression::{
    ChunkChecksums, ChunkOffsets, Compression, CompressionInfo, Encoder, SAMPLE_BYTES, train,
};
use crate::error::SstableError;
use crate::file::{OutputFile, Written};

/// `Data.db` while it is written.
#[derive(Debug)]
pub(crate) struct DataWriter {
    file: OutputFile,
    compression: Option<Compression>,
    encoder: Option<Encoder>,
    /// Complete chunks that wait for the dictionary.
    samples: Vec<u8>,
    dictionary: Option<Vec<u8>>,
    chunk_bytes: usize,
    offsets: ChunkOffsets,
    checksums: Vec<u32>,
    digest: crc32fast::Hasher,
    /// Bytes taken so far, before compression.
    pub(crate) position: u64,
}

#[derive(Debug)]
pub(crate) enum WrittenChunks {
    Compressed(CompressionInfo),
    Checked(ChunkChecksums),
}

#[derive(Debug)]
pub(crate) struct WrittenData {
    pub(crate) bytes: u64,
    pub(crate) file: Written,
    pub(crate) digest: u32,
    pub(crate) chunks: WrittenChunks,
    /// The dictionary of the chunks.
    pub(crate) dictionary: Option<Vec<u8>>,
}

impl DataWriter {
    pub(crate) async fn create(path: PathBuf, options: &WriterOptions) -> Result<Self, SstableError> {
        let compression = options.compression.filter(|c| !c.compressor.has_dictionary());
        Ok(Self {
            file: OutputFile::create(path).await?,
            compression: options.compression,
            encoder: compression.map(|compression| Encoder::new(&compression, options.chunk_bytes, None)),
            samples: Vec::new(),
            dictionary: None,
            chunk_bytes: options.chunk_bytes as usize,
            offsets: ChunkOffsets::default(),
            checksums: Vec::new(),
            digest: crc32fast::Hasher::new(),
            position: 0,
        })
    }

    /// Bytes in memory that grow with the data.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        self.offsets.size() + 4 * self.checksums.capacity()
    }

    /// Writes the complete chunks at the front of `bytes` and removes them; an incomplete chunk stays.
    pub(crate) async fn take_chunks(&mut self, bytes: &mut Vec<u8>) -> Result<(), SstableError> {
        let whole = bytes.len() - bytes.len() % self.chunk_bytes;
        for chunk in bytes[..whole].chunks_exact(self.chunk_bytes) {
            self.write_chunk(chunk).await?;
            reactor::maybe_yield().await;
        }
        bytes.drain(..whole);
        Ok(())
    }

    async fn write_chunk(&mut self, chunk: &[u8]) -> Result<(), SstableError> {
        self.position += chunk.len() as u64;
        if self.compression.is_none() || self.encoder.is_some() {
            return self.write(chunk).await;
        }
        self.samples.extend_from_slice(chunk);
        if self.samples.len() >= SAMPLE_BYTES { self.begin().await } else { Ok(()) }
    }

    /// Makes the dictionary and writes the chunks that waited for it.
    async fn begin(&mut self) -> Result<(), SstableError> {
        let Some(compression) = &self.compression else { return Ok(()) };
        let samples = std::mem::take(&mut self.samples);
        self.dictionary = train(&samples[..samples.len().min(SAMPLE_BYTES)]).await;
        self.encoder = Some(Encoder::new(compression, self.chunk_bytes as u32, self.dictionary.as_deref()));
        for chunk in samples.chunks(self.chunk_bytes) {
            self.write(chunk).await?;
        }
        Ok(())
    }

    async fn write(&mut self, chunk: &[u8]) -> Result<(), SstableError> {
        let Some(encoder) = &mut self.encoder else {
            self.checksums.push(crc32fast::hash(chunk));
            self.digest.update(chunk);
            return self.file.append(chunk).await;
        };
        let compressed = encoder.encode(chunk);
        let checksum = crc32fast::hash(compressed).to_be_bytes();
        self.digest.update(compressed);
        self.digest.update(&checksum);
        self.offsets.push(self.file.position());
        self.file.append(compressed).await?;
        self.file.append(&checksum).await
    }

    /// Writes the last chunks; the very last may be short.
    pub(crate) async fn finish(mut self, mut rest: Vec<u8>) -> Result<WrittenData, SstableError> {
        self.take_chunks(&mut rest).await?;
        if !rest.is_empty() {
            self.write_chunk(&rest).await?;
        }
        if self.compression.is_some() && self.encoder.is_none() {
            self.begin().await?;
        }
        let file = self.file.close().await?;
        let chunk_length = self.chunk_bytes as u32;
        let chunks = match (self.encoder, self.compression) {
            (Some(encoder), Some(compression)) => {
                let usual = Compression::from(compression.compressor).level;
                WrittenChunks::Compressed(CompressionInfo {
                    compressor: encoder.compressor(),
                    level: Some(compression.level).filter(|level| *level != usual),
                    chunk_length,
                    max_compressed_length: i32::MAX as u32,
                    data_length: self.position,
                    offsets: self.offsets,
                })
            }
            _ => WrittenChunks::Checked(ChunkChecksums { chunk_length, checksums: self.checksums }),
        };
        let digest = self.digest.finalize();
        Ok(WrittenData { bytes: self.position, file, digest, chunks, dictionary: self.dictionary })
    }
}
