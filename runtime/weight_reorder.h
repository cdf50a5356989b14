// A convolution's weights on the way from the caller's layout to the library's, or back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/blocked_copy.h"
#include "runtime/onednn.h"

namespace tandem::runtime {

/// Cut into slices that threads may reorder at once: any of an own copy; of the library's reorder
/// where its layout has a dimension whose blocks lie one behind the other. How many depends on the
/// layouts alone.
class WeightReorder {
 public:
  enum class Way : uint8_t { to_library, to_caller };
  static constexpr int64_t kMostSlices = 8;
  static constexpr int64_t kFewestBytes = 32 << 10;  // of a slice: below, a task costs more

  WeightReorder(Way way, const dnnl_memory_desc_t& caller, const dnnl_memory_desc_t& library);

  size_t slices() const { return static_cast<size_t>(slices_); }
  int64_t scratchpad_bytes() const;
  /// Makes room for `count` threads; to be called outside of the region.
  void prepare(int count);
  /// `caller` and `library`: first elements of the whole weights.
  void run(size_t slice, int thread, std::byte* caller, std::byte* library, void* scratchpad);

 private:
  void make_primitives(const dnnl_memory_desc_t& caller, const dnnl_memory_desc_t& library);

  Way way_;
  std::optional<BlockedCopy> copy_;  // else the primitives
  int64_t slices_ = 1;
  int64_t caller_bytes_ = 0, library_bytes_ = 0;  // from a slice to the next one
  std::unique_ptr<TeamPrimitive> primitive_;      // of one slice
  std::unique_ptr<TeamPrimitive> last_;           // of the last one where that is smaller
};

}  // namespace tandem::runtime
