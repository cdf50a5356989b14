// What mappings for a GPU are made of.
#pragma once

#include "schedule/axes.h"

namespace tandem::schedule::gpu {

/// Threads along an axis: a power of two, as many as it has points and `most` at most.
int lanes_along(sym::Expr extent, int64_t most);
void spread(loop::Axis& axis, int lanes);
/// All outer axes are blocks, but those that some store to memory does not walk: their points
/// follow each other in one block.
void outer_to_blocks(loop::Kernel& kernel);
/// Whether each point of the outer axes stores to places of its own.
bool owns_its_stores(const loop::Kernel& kernel);
/// Whether the threads of the axis would store to places of their own, wherever the stage stores;
/// `reduces`: it is a reduce axis, and what follows the loops does not matter.
bool can_spread(const loop::Kernel& kernel, const loop::Stage& stage, const loop::Axis& axis,
                bool reduces);
/// Adds scratch, and says which number it has.
int32_t add_scratch(loop::Kernel& kernel, DType dtype, sym::Expr elements, loop::Space space);
/// Bytes of a buffer, at most; as many as there are numbers where nobody knows.
int64_t most_bytes(const loop::Buffer& buffer);

/// The end of every mapping: scratch goes to shared memory as far as that goes, the threads of a
/// block are counted, and barriers put where they are needed.
void finish_blocks(loop::Kernel& kernel, const Target& target);

}  // namespace tandem::schedule::gpu
