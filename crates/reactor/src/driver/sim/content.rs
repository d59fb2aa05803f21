//! A simulated file's bytes: blocks shared between what is visible and what is durable, holes free of charge.
//!
//! A preallocated segment of 32 MiB costs nothing until it is written, and taking what a crash leaves copies
//! no bytes.

use std::collections::BTreeMap;
use std::rc::Rc;

const BLOCK: usize = 4096;

type Block = Rc<[u8; BLOCK]>;

/// Bytes `0..len`; where there is no block they are zero.
#[derive(Clone, Default)]
pub(super) struct Content {
    len: usize,
    blocks: BTreeMap<usize, Block>,
}

impl Content {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Cuts or extends with zeros.
    pub(super) fn resize(&mut self, len: usize) {
        if len < self.len {
            self.blocks.split_off(&len.div_ceil(BLOCK));
            if let Some(last) = self.blocks.get_mut(&(len / BLOCK)) {
                Rc::make_mut(last)[len % BLOCK..].fill(0);
            }
        }
        self.len = len;
    }

    /// Writes `bytes`, extending if needed.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.len = self.len.max(offset + bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let (number, within) = ((offset + at) / BLOCK, (offset + at) % BLOCK);
            let count = (BLOCK - within).min(bytes.len() - at);
            let block = self.blocks.entry(number).or_insert_with(|| Rc::new([0; BLOCK]));
            Rc::make_mut(block)[within..within + count].copy_from_slice(&bytes[at..at + count]);
            at += count;
        }
    }

    /// Copies what there is from `offset` on into `target`; the count.
    pub(super) fn read(&self, offset: usize, target: &mut [u8]) -> usize {
        let total = self.len.saturating_sub(offset).min(target.len());
        let mut at = 0;
        while at < total {
            let (number, within) = ((offset + at) / BLOCK, (offset + at) % BLOCK);
            let count = (BLOCK - within).min(total - at);
            match self.blocks.get(&number) {
                Some(block) => target[at..at + count].copy_from_slice(&block[within..within + count]),
                None => target[at..at + count].fill(0),
            }
            at += count;
        }
        total
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ambient::Entropy;

    #[test]
    fn content_behaves_as_a_vector_of_bytes() {
        let mut random = Entropy::from_seed(1);
        let (mut content, mut model) = (Content::default(), Vec::new());
        for _ in 0..2000 {
            let (offset, len) = ((random.next() % 20_000) as usize, (random.next() % 9000) as usize);
            if random.next().is_multiple_of(4) {
                content.resize(offset);
                model.resize(offset, 0);
            } else {
                let bytes = vec![random.next() as u8; len];
                content.write(offset, &bytes);
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&bytes);
            }
            let snapshot = content.clone();
            assert_eq!(snapshot.to_vec(), model);
            let mut part = vec![1; len];
            let count = content.read(offset, &mut part);
            assert_eq!(part[..count], model[offset.min(model.len())..(offset + len).min(model.len())]);
        }
    }
}
