// Tensors of the runtime: a typed strided window on shared storage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"

namespace tandem::runtime {

/// A block of memory, from the allocator or borrowed. Freed with the last array that refers to it.
class Storage {
 public:
  explicit Storage(int64_t bytes);
  /// `deleter` may be empty: the caller keeps the memory alive.
  Storage(void* data, std::function<void(void*)> deleter);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();
  void* data() const { return data_; }
  /// What was asked of the allocator; -1 where the memory is another's.
  int64_t own_bytes() const { return bytes_; }

 private:
  void* data_;
  int64_t bytes_ = -1;  // of the allocator's block; -1 when borrowed
  std::function<void(void*)> deleter_;
};

/// Numbers of a window; up to 8 of them (rank 4) without an allocation.
class ArrayDims {
 public:
  ArrayDims() = default;
  explicit ArrayDims(size_t count) {
    if (count > few_.size()) many_.resize(count);
  }
  int64_t* data() { return many_.empty() ? few_.data() : many_.data(); }
  const int64_t* data() const { return many_.empty() ? few_.data() : many_.data(); }

 private:
  std::array<int64_t, 8> few_{};
  std::vector<int64_t> many_;
};

/// Copying an Array shares the storage. Sizes, strides and offset are in elements; strides are
/// never negative and may be 0 (expanded) in what is only read.
class Array {
 public:
  /// Rank 1 of size 0, f32, no memory.
  Array() : dims_(2), rank_(1) { dims_.data()[1] = 1; }

  /// Contiguous (row-major), unspecified content. Negative sizes raise UserError.
  static Array empty(DType dtype, std::span<const int64_t> sizes);
  static Array zeros(DType dtype, std::span<const int64_t> sizes);
  /// The caller's memory. Negative strides raise UserError.
  static Array borrow(void* data, DType dtype, std::span<const int64_t> sizes,
                      std::span<const int64_t> strides, std::function<void(void*)> deleter = {});
  /// Borrowed and contiguous.
  static Array borrow(void* data, DType dtype, std::span<const int64_t> sizes);
  /// A window on storage, for those who computed it from checked sizes.
  static Array window(std::shared_ptr<const Storage> storage, DType dtype,
                      std::span<const int64_t> sizes, std::span<const int64_t> strides,
                      int64_t offset);

  DType dtype() const { return dtype_; }
  size_t rank() const { return rank_; }
  std::span<const int64_t> sizes() const { return {dims_.data(), rank_}; }
  std::span<const int64_t> strides() const { return {dims_.data() + rank_, rank_}; }
  int64_t offset() const { return offset_; }
  int64_t numel() const;
  /// numel times the element's size: what a contiguous copy takes.
  int64_t nbytes() const { return numel() * size_of(dtype_); }
  bool is_contiguous() const;

  /// First element.
  void* raw() const;
  template <class T>
  T* data() const {
    TD_CHECK(sizeof(T) == static_cast<size_t>(size_of(dtype_))) << name_of(dtype_);
    return static_cast<T*>(raw());
  }

  /// Other sizes and strides on the same storage; `offset` counts from this array's first element.
  Array as_strided(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                   int64_t offset = 0) const;
  /// This array where it is contiguous, else a contiguous copy.
  Array contiguous() const;
  /// Element by element; same dtype and sizes (else UserError). The two must be the same elements
  /// in the same order or share none.
  void copy_from(const Array& source) const;

  /// Its storage, where that is a block of so many bytes which nothing but this array holds, from
  /// its begin; else null.
  std::shared_ptr<const Storage> sole_block(int64_t bytes) const;

  /// "f32[3, 100]", for messages.
  std::string describe() const;

 private:
  static Array view(std::byte* base, DType dtype, std::span<const int64_t> sizes,
                    std::span<const int64_t> strides, int64_t offset);

  std::shared_ptr<const Storage> storage_;  // null where the caller keeps the memory
  std::byte* base_ = nullptr;
  ArrayDims dims_;  // sizes, then strides
  int64_t offset_ = 0;
  uint32_t rank_ = 0;
  DType dtype_ = DType::f32;
};

/// Row-major strides; a size of 0 counts as 1.
std::vector<int64_t> contiguous_strides(std::span<const int64_t> sizes);

/// Row-major without gaps. Strides of dimensions of size 1 do not matter, nor any stride when
/// empty.
bool is_contiguous(std::span<const int64_t> sizes, std::span<const int64_t> strides);

/// Elements from the first to the last, both included; 0 when empty.
int64_t extent(std::span<const int64_t> sizes, std::span<const int64_t> strides);

/// dst = src over `sizes`, strides in elements of `element` bytes (1, 2, 4 or 8); uses the team
/// when large.
void copy_strided(void* dst, std::span<const int64_t> dst_strides, const void* src,
                  std::span<const int64_t> src_strides, std::span<const int64_t> sizes,
                  int64_t element);

/// "f32[3, 100]".
std::string describe(DType dtype, std::span<const int64_t> sizes);

}  // namespace tandem::runtime
