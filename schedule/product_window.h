// Products whose rows are windows that slide over an image: convolutions.
#pragma once

#include <optional>
#include <vector>

#include "base/target.h"
#include "schedule/map.h"

namespace tandem::schedule {

/// Of the rows' factor: a position of an outer axis and one of a reduce axis count as one,
/// `stride * axis + step * term`.
struct Slide {
  size_t axis = 0;             // number of the outer axis
  std::optional<size_t> term;  // number of the reduce axis; none: the axis alone
  int64_t stride = 1;
  int64_t step = 1;  // one of the two is 1
};

/// How the rows of an image slide: lines of the image, if they are an axis, and places of a line.
struct SlidingRows {
  std::optional<size_t> images;  // the axis before lines
  std::optional<Slide> lines;
  Slide places;
};
/// Nothing where the factor is no image that windows slide over.
std::optional<SlidingRows> find_sliding_rows(const loop::Kernel& kernel, const Product& product,
                                             const Tuning::Products& tuning);

/// The part of a Slide that a task walks: its axis is one of the stage.
struct Walk {
  loop::Axis axis;
  Slide slide;
};
/// What the task's windows see of input `left` is copied to scratch, [lines, places, other terms],
/// each element once; the stage reads it there. Returns the copying stage. `in_phases`: places that
/// windows skip over lie apart, as tile registers want it.
loop::Stage copy_footprint(loop::Kernel& kernel, loop::Stage& stage, size_t left,
                           const std::vector<Walk>& walks, bool in_phases, const Target& target);

}  // namespace tandem::schedule
