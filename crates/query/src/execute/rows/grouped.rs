//! Combines rows into groups: adds each row to its group, and a finished group to the answer.

use model::RowView;
use model::clustering::Clustering;
use smallvec::SmallVec;
use statement::prepare::selection::SelectionKind;
use statement::restrictions::keys;
use storage::Flow;

use super::values::{append_values, take_back};
use super::{RowBuffers, Rows};
use crate::QueryError;
use crate::execute::evaluate::RowInput;
use crate::execute::groups::{Arriving, OpenGroup, Partial};
use crate::paging::{self, PagingState};

impl<'q> Rows<'q> {
    /// The present state of the only group.
    pub(in crate::execute) fn partial(mut self) -> Option<Partial> {
        self.group.take().map(|group| group.partial())
    }

    /// Adds a shard's state of the only group.
    ///
    /// # Errors
    /// [`QueryError::Internal`] if it belongs to another statement.
    pub(in crate::execute) fn merge(&mut self, partial: &Partial) -> Result<(), QueryError> {
        self.group.as_mut().map_or(Ok(()), |group| group.merge(partial, self.binding))
    }

    /// The group that a page ends in, if it does in one.
    pub(in crate::execute) fn travelling_group(&self) -> Option<Vec<u8>> {
        self.group.as_ref().filter(|group| group.is_open() && group.by().is_some())?.travelling()
    }

    /// Restores the group that was open at the end of the last page, if any.
    ///
    /// # Errors
    /// [`QueryError::Protocol`] if the bytes are not such a group.
    pub(in crate::execute) fn take_over(&mut self, state: &PagingState<'_>) -> Result<(), QueryError> {
        let (Some(bytes), Some(position), key) = (state.group, state.position, state.key) else {
            return Ok(());
        };
        let group = self.group.as_mut().filter(|group| group.by().is_some());
        group.and_then(|group| group.arrive(&self.plan.table, key, bytes)).ok_or_else(paging::invalid)?;
        let RowBuffers { key: of_partition, last_key, last_clustering, last_weight, .. } = &mut *self.buffers;
        for buffer in [of_partition, last_key] {
            buffer.clear();
            buffer.extend_from_slice(key);
        }
        // The end of the group, if no row is added to it.
        last_clustering.clear();
        last_clustering.extend_from_slice(position.prefix.0);
        *last_weight = position.weight;
        self.inside = true;
        Ok(())
    }

    /// Adds a row to its group; if that is a new one, the previous group is shown.
    #[inline(never)]
    pub(super) fn add_to_group(&mut self, clustering: Option<&[u8]>, row: Option<RowView<'_>>) -> Flow {
        match self.try_add_to_group(clustering, row) {
            Ok(flow) => flow,
            Err(error) => {
                self.error = Some(error);
                Flow::Stop
            }
        }
    }

    fn try_add_to_group(
        &mut self,
        clustering: Option<&[u8]>,
        row: Option<RowView<'_>>,
    ) -> Result<Flow, QueryError> {
        let Some(mut group) = self.group.take() else { return Ok(Flow::Continue) };
        let table = &self.plan.table;
        let key_bytes = std::mem::take(&mut self.buffers.key);
        let static_bytes = std::mem::take(&mut self.buffers.static_row);
        let key = keys::split(table, &key_bytes);
        let parts: SmallVec<[Option<&[u8]>; 4]> =
            Clustering(clustering.unwrap_or(&[])).components().collect();
        let static_row = self.has_static.then(|| RowView::trusted(&static_bytes));
        let arriving = Arriving {
            key: &key_bytes,
            clustering: clustering.unwrap_or(&[]),
            input: RowInput { key: &key, clustering: &parts, static_row, row, now: self.now },
        };
        let flow = self.place(&mut group, &arriving);
        self.group = Some(group);
        drop(key);
        self.buffers.key = key_bytes;
        self.buffers.static_row = static_bytes;
        let flow = flow?;
        if flow == Flow::Continue {
            // The end of the group, if a page ends behind it.
            self.buffers.last_clustering.clear();
            self.buffers.last_clustering.extend_from_slice(clustering.unwrap_or(&[]));
            self.buffers.last_weight = 0;
            self.inside = clustering.is_some();
            if self.plan.distinct {
                return Ok(Flow::SkipPartition);
            }
        }
        Ok(flow)
    }

    fn place(&mut self, group: &mut OpenGroup<'q>, row: &Arriving<'_>) -> Result<Flow, QueryError> {
        let mut output = None;
        if let Some(by) = group.by() {
            let (same, made) = group.takes(by, &self.plan.table, row, self.binding)?;
            output = made;
            if !same {
                let flow = self.show_group(group, row.key)?;
                if flow != Flow::Continue {
                    return Ok(flow);
                }
            }
            if !group.is_open() && self.page_is_full() {
                self.more = true;
                return Ok(Flow::Stop);
            }
        }
        group.add(row, output, (self.binding, self.grant.most()))?;
        Ok(Flow::Continue)
    }

    /// Appends the row of a finished group; the group's last row is the one that was added last.
    fn show_group(&mut self, group: &mut OpenGroup<'q>, key: &[u8]) -> Result<Flow, QueryError> {
        self.take_room(0)?;
        let SelectionKind::Groups(groups) = &self.plan.selection.kind else { return Ok(Flow::Continue) };
        let (start, end_max) = (self.out.len(), self.first_byte + self.grant.most());
        if let Some(starts) = &mut self.sorted {
            starts.push(start);
        }
        let (out, binding, plan) = (&mut *self.out, self.binding, self.plan);
        let closed = group.close(&self.plan.table, (self.now, binding), |input, values| {
            append_values(&plan.selection, &groups.selectors, input, values, binding, (out, end_max))
        });
        if closed.is_err() {
            take_back(self.out, &mut self.sorted, start);
        }
        closed?;
        self.buffers.last_key.clear();
        self.buffers.last_key.extend_from_slice(key);
        self.count += 1;
        self.remaining -= 1;
        self.partition_remaining -= 1;
        Ok(if self.remaining == 0 {
            Flow::Stop
        } else if self.partition_remaining == 0 {
            self.inside = false;
            Flow::SkipPartition
        } else {
            Flow::Continue
        })
    }

    /// Shows the group that ends with its partition.
    #[inline(never)]
    pub(super) fn end_group(&mut self) -> Flow {
        let Some(mut group) = self.group.take() else { return Flow::Continue };
        let mut flow = Flow::Continue;
        if group.by().is_some() && group.is_open() {
            let key = std::mem::take(&mut self.buffers.key);
            match self.show_group(&mut group, &key) {
                Ok(Flow::Stop) => flow = Flow::Stop,
                Ok(_) => {}
                Err(error) => {
                    self.error = Some(error);
                    flow = Flow::Stop;
                }
            }
            self.buffers.key = key;
            self.inside = false;
        }
        self.group = Some(group);
        flow
    }
}
