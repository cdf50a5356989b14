// How the axes of a kernel meet the machine.
#pragma once

#include <optional>
#include <vector>

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::schedule {

/// Splits, merges and orders axes and writes how they meet the machine. map_axes.cc
void map_axes(loop::Kernel& kernel, const Target& target);
/// Of a sum of products over two independent axes: register tiles over packed operands. False when
/// the kernel is none. map_product.cc
bool map_product(loop::Kernel& kernel, const Target& target);
/// Of a sum over a window that slides over channels-last images, each channel by itself: what the
/// windows see is computed once. Where a stage of its own comes first, that is a sum which what
/// they see is made from. False when the kernel is none. map_window.cc
bool map_window(loop::Kernel& kernel, const Target& target);
/// Whether the kernel begins with such a sum.
bool has_footprint(const loop::Kernel& kernel);
/// The rows and columns of one task, which a stage that sums products runs over.
struct ProductBlock {
  loop::Axis rows;
  loop::Axis columns;
  sym::Expr height;  // of rows and columns, at most
  sym::Expr width;
  std::optional<sym::Expr> length;  // of the sums, at most; nothing: what the stage says
  /// Where the columns end whose sums the epilogue reads, if it is a loop of its own.
  std::optional<sym::Expr> visible;
  size_t left = 0;  // which input of the dot walks the rows
  /// Blocks of columns follow each other, and the right factor is read from beyond the cache.
  bool is_streamed = false;
};
/// What such a stage becomes inside a kernel of several: copies of its factors, register tiles.
std::vector<loop::Stage> map_product_stage(loop::Kernel& kernel, loop::Stage& stage,
                                           const ProductBlock& block, const Target& target);

}  // namespace tandem::schedule
