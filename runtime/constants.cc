// A library reads weights fastest in a layout of its own, and making it costs a pass over them. It
// is made once for each weight and layout. Different shapes of one call site may want different
// layouts (blocks of another size), so a few are kept for each weight, those used last; plans hold
// what they use, so a layout that is dropped goes when no execution uses it.
#include "runtime/constants.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "runtime/signals.h"

namespace tandem::runtime {

Array ConstantSet::packed(uint32_t constant, int64_t offset, LibraryPlan& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::list<Packed>::iterator found =
      std::find_if(packed_.begin(), packed_.end(), [&](const Packed& each) {
        return each.constant == constant && each.offset == offset &&
               each.layout == plan.packed_layout();
      });
  if (found != packed_.end()) {
    TD_CHECK(found->block.nbytes() == plan.packed_bytes()) << "layout " << plan.packed_layout();
    packed_.splice(packed_.begin(), packed_, found);
    return found->block;
  }
  const Array& array = arrays_[constant];
  const Array block = Array::empty(DType::u8, std::array{plan.packed_bytes()});
  const std::byte* const first = static_cast<const std::byte*>(array.raw());
  const WithoutSignals blocked(WithoutSignals::Profiler::waits);
  plan.pack(first + offset * size_of(array.dtype()), block.raw());
  packed_.push_front({constant, offset, plan.packed_layout(), block});
  drop_oldest(constant, offset);
  return block;
}

void ConstantSet::drop_oldest(uint32_t constant, int64_t offset) {
  size_t count = 0;
  for (std::list<Packed>::iterator at = packed_.begin(); at != packed_.end();) {
    const bool is_same = at->constant == constant && at->offset == offset;
    count += is_same ? 1 : 0;
    at = is_same && count > kMaxLayouts ? packed_.erase(at) : std::next(at);
  }
}

int64_t ConstantSet::packed_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const Packed& each : packed_) bytes += each.block.nbytes();
  return bytes;
}

}  // namespace tandem::runtime
