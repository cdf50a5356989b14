// The steps from the tensor graph to mapped kernels, each a pass over the kernel graph. steps.cc
// has their order and says why each stands where it stands.
#pragma once

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// Decides which values are computed as such (items) and which are inlined into their users;
/// chooses library routes. materialize.cc
void materialize(KernelGraph& graph);

/// Writes each item's computation over materialized values: what else it reads is inlined.
/// inline.cc
void inline_values(KernelGraph& graph);

/// Gives every slot its strides: channels-last where convolutions and what stands between them are
/// better off so, else contiguous. layout.cc
void choose_layouts(KernelGraph& graph);

/// Long reductions with few results become two items. split_reduction.cc
void split_reductions(KernelGraph& graph);

/// Items that can share one iteration space become a group; groups are ordered. fuse.cc
void form_groups(KernelGraph& graph);

/// Each group as an unmapped kernel of the loop IR. build_kernel.cc
void build_kernels(KernelGraph& graph);

/// Kernels that hand rows from product to product become one, where that costs less.
/// compute_at_rows.cc
void compute_at_rows(KernelGraph& graph);

/// Sums of few products that only windows read are computed where they are read, where that costs
/// less: in memory they would be far more than what they are made from. compute_at_windows.cc
void compute_at_windows(KernelGraph& graph);

/// Sums of groups of integers are computed where they are scaled and added. compute_at_groups.cc
void compute_at_groups(KernelGraph& graph);

/// Pointwise kernels behind a convolution by the library run along its lines. follow_calls.cc
void follow_calls(KernelGraph& graph);

/// Maps each kernel; equal ones once. map_kernels.cc
void map_kernels(KernelGraph& graph);

/// Whether invariants are checked after each step: in debug builds, or by TANDEM_VERIFY. steps.cc
bool is_verifying();

/// The mapping that KernelGraph::choose finds best. False where there is none to choose, or sizes
/// are not known: the kernel is as it was. candidates.cc
bool choose_mapping(KernelGraph& graph, Group& group);

/// Scratch that is written when other scratch has been read for the last time takes its place.
/// share_scratch.cc
void share_scratch(Group& group);

/// Marks stores of what no cache will hold, and loops that read such. mark_memory.cc
void mark_memory(const KernelGraph& graph, Group& group);

/// Which launches run together. fuse_horizontally.cc
void fuse_horizontally(KernelGraph& graph);

/// What there is without it: each launch by itself. fuse_horizontally.cc
void launch_one_by_one(KernelGraph& graph);

/// Why the library computes what it does, and why each two kernels of which one reads the other's
/// results are two. why.cc
std::string answers(const KernelGraph& kernels);

}  // namespace tandem::schedule
