// What a program keeps between calls: its constants, and their packed copies.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/array.h"
#include "runtime/library.h"

namespace tandem::runtime {

/// The constants of a program from one setup to the next. All executions share it, and one that
/// runs while setup runs again keeps the old set alive. The arrays never change; packed copies are
/// made when a library call first wants them. A program may have several sets: its own, and those
/// that its caller holds and names at each call.
class ConstantSet {
 public:
  /// Layouts of one weight that are kept; calls of many shapes may want more than one.
  static constexpr size_t kMaxLayouts = 4;

  /// `own_bytes`: of the arrays that are not the caller's.
  ConstantSet(std::vector<Array> arrays, int64_t own_bytes)
      : arrays_(std::move(arrays)), own_bytes_(own_bytes) {}
  const std::vector<Array>& arrays() const { return arrays_; }
  int64_t own_bytes() const { return own_bytes_; }

  /// The weight at element `offset` of a constant in the layout that the plan wants. Thread-safe.
  Array packed(uint32_t constant, int64_t offset, LibraryPlan& plan);
  /// Of all packed copies that are kept.
  int64_t packed_bytes() const;

  /// No call will name it again: executions that wait for one let go of it. Guarded by
  /// ForkLock::executions, as their list is.
  void retire() { is_retired_ = true; }
  bool is_retired() const { return is_retired_; }

 private:
  struct Packed {
    uint32_t constant;
    int64_t offset;
    std::string layout;
    Array block;
  };
  void drop_oldest(uint32_t constant, int64_t offset);

  std::vector<Array> arrays_;
  int64_t own_bytes_;
  bool is_retired_ = false;
  mutable std::mutex mutex_;
  std::list<Packed> packed_;  // used last comes first
};

}  // namespace tandem::runtime
