//! Writes `Data.db`: gathers chunks, compresses them, and keeps their offsets or checksums.
//!
//! With a compressor that takes a dictionary the first chunks wait in memory until the dictionary is made of them.

use std::path::PathBuf;

use super::writer::WriterOptions;
use crate::compression::{
    ChunkChecksums, ChunkOffsets, Compression, CompressionInfo, Encoder, SAMPLE_BYTES, train,
};
use crate::error::SstableError;
use crate::file::OutputFile;

/// `Data.db` while it is written.
#[derive(Debug)]
pub(crate) struct DataWriter {
    file: OutputFile,
    compression: Option<Compression>,
    encoder: Option<Encoder>,
    /// Whole chunks that wait for the dictionary.
    samples: Vec<u8>,
    dictionary: Option<Vec<u8>>,
    chunk_bytes: usize,
    chunk: Vec<u8>,
    compressed: Vec<u8>,
    offsets: ChunkOffsets,
    checksums: Vec<u32>,
    digest: crc32fast::Hasher,
    /// Bytes appended so far, before compression.
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
    pub(crate) file_bytes: u64,
    pub(crate) digest: u32,
    pub(crate) chunks: WrittenChunks,
    /// What the chunks refer to.
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
            chunk: Vec::with_capacity(options.chunk_bytes as usize),
            compressed: Vec::new(),
            offsets: ChunkOffsets::default(),
            checksums: Vec::new(),
            digest: crc32fast::Hasher::new(),
            position: 0,
        })
    }

    pub(crate) async fn append(&mut self, mut bytes: &[u8]) -> Result<(), SstableError> {
        self.position += bytes.len() as u64;
        while !bytes.is_empty() {
            let count = bytes.len().min(self.chunk_bytes - self.chunk.len());
            self.chunk.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.chunk.len() == self.chunk_bytes {
                self.write_chunk().await?;
            }
        }
        Ok(())
    }

    /// A chunk is full.
    async fn write_chunk(&mut self) -> Result<(), SstableError> {
        if self.compression.is_some() && self.encoder.is_none() {
            self.samples.extend_from_slice(&self.chunk);
            self.chunk.clear();
            if self.samples.len() >= SAMPLE_BYTES {
                self.begin().await?;
            }
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.chunk);
        let written = self.write(&chunk).await;
        self.chunk = chunk;
        self.chunk.clear();
        written
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
        self.compressed.clear();
        encoder.encode(chunk, &mut self.compressed);
        let checksum = crc32fast::hash(&self.compressed);
        self.compressed.extend_from_slice(&checksum.to_be_bytes());
        self.digest.update(&self.compressed);
        self.offsets.push(self.file.position());
        self.file.append(&self.compressed).await
    }

    pub(crate) async fn finish(mut self) -> Result<WrittenData, SstableError> {
        if !self.chunk.is_empty() {
            self.write_chunk().await?;
        }
        if self.compression.is_some() && self.encoder.is_none() {
            self.begin().await?;
        }
        let file_bytes = self.file.finish().await?;
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
        Ok(WrittenData { bytes: self.position, file_bytes, digest, chunks, dictionary: self.dictionary })
    }
}
