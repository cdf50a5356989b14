// What map_window has to know of a kernel before it changes anything: which of its axes are windows
// that slide over channels, and how much of them a task takes.
#pragma once

#include <optional>
#include <vector>

#include "schedule/map.h"

namespace tandem::schedule {

/// An axis of points and the axis of taps that slides along it.
struct Slide {
  size_t point = 0;  // number of the outer axis
  size_t tap = 0;    // number of the reduced axis
  int64_t stride = 1;
  int64_t taps = 1;
  /// Places that the windows of neighbouring points see.
  int64_t seen(int64_t points) const { return (points - 1) * stride + taps; }
};

struct Windows {
  size_t image = 0;  // which input of the dot
  size_t channel = 0;
  std::vector<Slide> slides;   // by outer axis
  std::vector<size_t> held;    // reduced axes that do not slide: packs of taps
  std::vector<size_t> others;  // outer axes that are neither: images of a batch
};

/// A kernel's stages as windows.
struct WindowSums {
  loop::Stage windowed;            // with the sum's value in them
  std::optional<loop::Stage> sum;  // at their axes: what the windows see is made from it
  int32_t footprint_buffer = 0;
  Windows windows;
};
/// Writes what it finds to `sums`, or says why there is nothing.
Misfit find_windows(loop::Kernel& kernel, const Target& target, WindowSums& sums);

/// What one task takes.
struct WindowBlocks {
  DType input_type{};
  int lanes = 0;
  int64_t channels = 0;
  size_t row = 0;  // the slide that is cut: the last but one, or the only one
  int64_t rows = 1;
  int64_t images = 1;
};
/// Nothing where the number of channels is not known.
std::optional<WindowBlocks> choose_blocks(const loop::Kernel& kernel, const WindowSums& sums,
                                          const Target& target);

/// Of an outer axis; 1 where nobody knows.
int64_t known_extent(const loop::Kernel& kernel, size_t outer);

/// Whether a weight counts only at some places: those of its window that are inside of the image.
bool is_masked(loop::Val weight);
loop::Val without_mask(loop::Val weight);

}  // namespace tandem::schedule
