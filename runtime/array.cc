// An array is storage plus a window. Everything here is about the window: making it, asking about
// it and saying it in words. The copy loops are in strided_copy.cc.
#include "runtime/array.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/diagnostic.h"
#include "runtime/allocator.h"

namespace tandem::runtime {
namespace {

void check_sizes(DType dtype, std::span<const int64_t> sizes) {
  for (const int64_t size : sizes)
    if (size < 0) throw UserError("array " + describe(dtype, sizes) + " has a negative size");
}

void check_strides(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  if (sizes.size() != strides.size())
    throw UserError("array " + describe(dtype, sizes) + " has " + std::to_string(strides.size()) +
                    " strides");
  for (const int64_t stride : strides)
    if (stride < 0)
      throw UserError("array " + describe(dtype, sizes) + " has the negative stride " +
                      std::to_string(stride) + "; make it contiguous first");
}

int64_t checked_bytes(DType dtype, std::span<const int64_t> sizes) {
  int64_t bytes = size_of(dtype);
  for (const int64_t size : sizes)
    if (size == 0) return 0;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      throw UserError("array " + describe(dtype, sizes) + " is too large");
  return bytes;
}

}  // namespace

Storage::Storage(int64_t bytes) : data_(allocator().allocate(bytes)), bytes_(bytes) {}

Storage::Storage(void* data, std::function<void(void*)> deleter)
    : data_(data), deleter_(std::move(deleter)) {}

Storage::~Storage() {
  if (bytes_ >= 0) {
    allocator().release(data_, bytes_);
  } else if (deleter_) {
    deleter_(data_);
  }
}

Array Array::view(std::byte* base, DType dtype, std::span<const int64_t> sizes,
                  std::span<const int64_t> strides, int64_t offset) {
  Array result;
  result.base_ = base;
  result.rank_ = static_cast<uint32_t>(sizes.size());
  result.dims_ = ArrayDims(2 * sizes.size());
  std::copy(sizes.begin(), sizes.end(), result.dims_.data());
  std::copy(strides.begin(), strides.end(), result.dims_.data() + sizes.size());
  result.offset_ = offset;
  result.dtype_ = dtype;
  return result;
}

Array Array::window(std::shared_ptr<const Storage> storage, DType dtype,
                    std::span<const int64_t> sizes, std::span<const int64_t> strides,
                    int64_t offset) {
  Array result = view(static_cast<std::byte*>(storage->data()), dtype, sizes, strides, offset);
  result.storage_ = std::move(storage);
  return result;
}

Array Array::empty(DType dtype, std::span<const int64_t> sizes) {
  check_sizes(dtype, sizes);
  const int64_t bytes = checked_bytes(dtype, sizes);
  return window(std::make_shared<const Storage>(bytes), dtype, sizes, contiguous_strides(sizes), 0);
}

Array Array::zeros(DType dtype, std::span<const int64_t> sizes) {
  Array result = empty(dtype, sizes);
  std::memset(result.raw(), 0, static_cast<size_t>(result.nbytes()));
  return result;
}

Array Array::borrow(void* data, DType dtype, std::span<const int64_t> sizes,
                    std::span<const int64_t> strides, std::function<void(void*)> deleter) {
  check_sizes(dtype, sizes);
  check_strides(dtype, sizes, strides);
  if (!deleter) return view(static_cast<std::byte*>(data), dtype, sizes, strides, 0);
  return window(std::make_shared<const Storage>(data, std::move(deleter)), dtype, sizes, strides,
                0);
}

Array Array::borrow(void* data, DType dtype, std::span<const int64_t> sizes) {
  return borrow(data, dtype, sizes, contiguous_strides(sizes));
}

int64_t Array::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes()) count *= size;
  return count;
}

bool Array::is_contiguous() const { return runtime::is_contiguous(sizes(), strides()); }

void* Array::raw() const { return base_ == nullptr ? nullptr : base_ + offset_ * size_of(dtype_); }

Array Array::as_strided(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                        int64_t offset) const {
  check_sizes(dtype_, sizes);
  check_strides(dtype_, sizes, strides);
  Array result = view(base_, dtype_, sizes, strides, offset_ + offset);
  result.storage_ = storage_;
  return result;
}

Array Array::contiguous() const {
  if (is_contiguous()) return *this;
  Array result = empty(dtype_, sizes());
  result.copy_from(*this);
  return result;
}

void Array::copy_from(const Array& source) const {
  if (source.dtype_ != dtype_ ||
      !std::equal(sizes().begin(), sizes().end(), source.sizes().begin(), source.sizes().end()))
    throw UserError("cannot copy " + source.describe() + " into " + describe());
  if (numel() == 0) return;
  copy_strided(raw(), strides(), source.raw(), source.strides(), sizes(), size_of(dtype_));
}

std::shared_ptr<const Storage> Array::sole_block(int64_t bytes) const {
  const bool is_sole = storage_.use_count() == 1 && storage_->own_bytes() == bytes && offset_ == 0;
  return is_sole ? storage_ : nullptr;
}

std::string Array::describe() const { return runtime::describe(dtype_, sizes()); }

std::vector<int64_t> contiguous_strides(std::span<const int64_t> sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  return strides;
}

bool is_contiguous(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t expected = 1;
  bool dense = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) dense = false;
    expected *= sizes[i];
  }
  return dense;
}

int64_t extent(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

std::string describe(DType dtype, std::span<const int64_t> sizes) {
  std::string text(name_of(dtype));
  text += "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(sizes[i]);
  }
  return text + "]";
}

}  // namespace tandem::runtime
