//! Writes `Data.db`: gathers chunks, compresses them, and keeps their offsets or checksums.

use std::path::PathBuf;

use super::writer::WriterOptions;
use crate::compression::{ChunkChecksums, ChunkOffsets, CompressionInfo, Compressor};
use crate::error::SstableError;
use crate::file::OutputFile;

/// `Data.db` while it is written.
#[derive(Debug)]
pub(crate) struct DataWriter {
    file: OutputFile,
    compression: Option<Compressor>,
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
}

impl DataWriter {
    pub(crate) async fn create(path: PathBuf, options: &WriterOptions) -> Result<Self, SstableError> {
        Ok(Self {
            file: OutputFile::create(path).await?,
            compression: options.compression,
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

    async fn write_chunk(&mut self) -> Result<(), SstableError> {
        let Some(compressor) = self.compression else {
            self.checksums.push(crc32fast::hash(&self.chunk));
            self.digest.update(&self.chunk);
            self.file.append(&self.chunk).await?;
            self.chunk.clear();
            return Ok(());
        };
        self.compressed.clear();
        compressor.compress(&self.chunk, &mut self.compressed);
        let checksum = crc32fast::hash(&self.compressed);
        self.compressed.extend_from_slice(&checksum.to_be_bytes());
        self.digest.update(&self.compressed);
        self.offsets.push(self.file.position());
        self.file.append(&self.compressed).await?;
        self.chunk.clear();
        Ok(())
    }

    pub(crate) async fn finish(mut self) -> Result<WrittenData, SstableError> {
        if !self.chunk.is_empty() {
            self.write_chunk().await?;
        }
        let file_bytes = self.file.finish().await?;
        let chunk_length = self.chunk_bytes as u32;
        let chunks = match self.compression {
            Some(compressor) => WrittenChunks::Compressed(CompressionInfo {
                compressor,
                chunk_length,
                max_compressed_length: i32::MAX as u32,
                data_length: self.position,
                offsets: self.offsets,
            }),
            None => WrittenChunks::Checked(ChunkChecksums { chunk_length, checksums: self.checksums }),
        };
        Ok(WrittenData { bytes: self.position, file_bytes, digest: self.digest.finalize(), chunks })
    }
}
