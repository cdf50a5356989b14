// A reorder of weights that oneDNN runs on one thread takes as long as the convolution of two small
// images, so it has to be shared. In a blocked layout the dimension with the largest stride is the
// outermost: what belongs to some of its blocks is one piece of memory, and a smaller tensor of the
// same layout.
#include "runtime/weight_reorder.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace tandem::runtime {
namespace {

int64_t element_bytes(const dnnl_memory_desc_t& desc) {
  return desc.data_type == dnnl_f32 || desc.data_type == dnnl_s32 ? 4 : 2;
}

int64_t block_of(const dnnl_memory_desc_t& desc, int dim) {
  const dnnl_blocking_desc_t& blocking = desc.format_desc.blocking;
  int64_t block = 1;
  for (int i = 0; i < blocking.inner_nblks; ++i)
    if (blocking.inner_idxs[i] == dim) block *= blocking.inner_blks[i];
  return block;
}

// Nothing but elements in blocks.
bool is_plain(const dnnl_memory_desc_t& desc) {
  return desc.format_kind == dnnl_blocked && desc.extra.flags == 0 && desc.offset0 == 0;
}

// With its padding.
int64_t bytes_of(const dnnl_memory_desc_t& desc) {
  int64_t elements = 1;
  for (int i = 0; i < desc.ndims; ++i) elements *= desc.padded_dims[i];
  return elements * element_bytes(desc);
}

std::optional<BlockedCopy> own_copy(const dnnl_memory_desc_t& caller,
                                    const dnnl_memory_desc_t& library) {
  const bool are_f32 = caller.data_type == dnnl_f32 && library.data_type == dnnl_f32;
  if (!are_f32 || !is_plain(caller) || !is_plain(library)) return std::nullopt;
  const dnnl_blocking_desc_t& blocking = library.format_desc.blocking;
  const size_t rank = static_cast<size_t>(library.ndims);
  BlockedLayout layout;
  layout.sizes.assign(library.dims, library.dims + rank);
  layout.strides.assign(blocking.strides, blocking.strides + rank);
  for (int i = 0; i < blocking.inner_nblks; ++i)
    layout.inner.push_back({blocking.inner_blks[i], static_cast<size_t>(blocking.inner_idxs[i])});
  const int64_t* const own = caller.format_desc.blocking.strides;
  return BlockedCopy::make(layout, std::vector<int64_t>(own, own + rank));
}

// `slices` of `extent` each; the last one has what is left.
struct Cut {
  int dim = 0;
  int64_t slices = 1;
  int64_t extent = 0;  // of a slice, in elements of the dimension
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Cut cut_of(const dnnl_memory_desc_t& desc) {
  const Cut whole{0, 1, desc.dims[0]};
  if (!is_plain(desc)) return whole;
  const int64_t elements = bytes_of(desc) / element_bytes(desc);
  const int64_t most =
      std::min(WeightReorder::kMostSlices, bytes_of(desc) / WeightReorder::kFewestBytes);
  for (int dim = 0; dim < desc.ndims && most > 1; ++dim) {
    const int64_t block = block_of(desc, dim), blocks = desc.padded_dims[dim] / block;
    const bool is_outermost = desc.format_desc.blocking.strides[dim] * blocks == elements;
    if (blocks < 2 || !is_outermost) continue;
    const int64_t extent = ceil_div(blocks, most) * block;
    return {dim, ceil_div(desc.dims[dim], extent), extent};
  }
  return whole;
}

dnnl_memory_desc_t slice_of(dnnl_memory_desc_t desc, const Cut& cut, int64_t number) {
  const int64_t block = block_of(desc, cut.dim);
  const int64_t extent = std::min(cut.extent, desc.dims[cut.dim] - number * cut.extent);
  desc.dims[cut.dim] = extent;
  desc.padded_dims[cut.dim] = ceil_div(extent, block) * block;
  return desc;
}

// Bytes from one slice to the next one.
int64_t step_of(const dnnl_memory_desc_t& desc, const Cut& cut) {
  const int64_t blocks = cut.extent / block_of(desc, cut.dim);
  return desc.format_desc.blocking.strides[cut.dim] * blocks * element_bytes(desc);
}

}  // namespace

WeightReorder::WeightReorder(Way way, const dnnl_memory_desc_t& caller,
                             const dnnl_memory_desc_t& library)
    : way_(way), copy_(own_copy(caller, library)) {
  if (!copy_) {
    make_primitives(caller, library);
    return;
  }
  slices_ = std::clamp<int64_t>(bytes_of(library) / kFewestBytes, 1, kMostSlices);
}

void WeightReorder::make_primitives(const dnnl_memory_desc_t& caller,
                                    const dnnl_memory_desc_t& library) {
  const Cut cut = cut_of(library);
  slices_ = cut.slices;
  if (slices_ > 1) {
    caller_bytes_ = step_of(caller, cut);
    library_bytes_ = step_of(library, cut);
  }
  const auto make = [&](int64_t number) {
    const dnnl_memory_desc_t own = slices_ == 1 ? caller : slice_of(caller, cut, number);
    const dnnl_memory_desc_t other = slices_ == 1 ? library : slice_of(library, cut, number);
    return way_ == Way::to_library ? std::make_unique<TeamPrimitive>(own, other)
                                   : std::make_unique<TeamPrimitive>(other, own);
  };
  primitive_ = make(0);
  if (slices_ > 1 && cut.extent * slices_ != library.dims[cut.dim]) last_ = make(slices_ - 1);
}

int64_t WeightReorder::scratchpad_bytes() const {
  if (copy_) return 0;
  const int64_t last = last_ == nullptr ? 0 : last_->primitive().scratchpad_bytes();
  return std::max(primitive_->primitive().scratchpad_bytes(), last);
}

void WeightReorder::prepare(int count) {
  if (copy_) return;
  primitive_->prepare(count);
  if (last_ != nullptr) last_->prepare(count);
}

void WeightReorder::run(size_t slice, int thread, std::byte* caller, std::byte* library,
                        void* scratchpad) {
  const int64_t number = static_cast<int64_t>(slice);
  if (copy_) {
    const bool packs = way_ == Way::to_library;
    return copy_->run(packs ? BlockedCopy::Way::to_blocked : BlockedCopy::Way::to_strided, caller,
                      library, number, slices_);
  }
  std::array<void*, 2> data = {caller + number * caller_bytes_, library + number * library_bytes_};
  if (way_ == Way::to_caller) std::swap(data[0], data[1]);
  const bool is_last = last_ != nullptr && number == slices_ - 1;
  (is_last ? *last_ : *primitive_).run(thread, data, scratchpad);
}

}  // namespace tandem::runtime
