// Whether a call may run: what a program writes must share no memory with its other arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/diagnostic.h"
#include "runtime/executor.h"

namespace tandem::runtime {

/// A call whose arguments share memory in a way that its program was not compiled for. Nothing has
/// run.
class OverlapError : public UserError {
 public:
  using UserError::UserError;
};

/// For the arguments of one function. Not for several threads at once.
class Overlap {
 public:
  struct Pair {
    size_t written = 0;
    size_t other = 0;
  };

  /// Numbers of the arguments that are written.
  explicit Overlap(std::vector<size_t> written) : written_(std::move(written)) {}

  /// One that is written, and one that shares bytes with it, or may: a walk over ranges in the
  /// order of their addresses, and the exact test where ranges meet.
  std::optional<Pair> find(std::span<const Argument> arguments);
  /// Arguments whose ranges of memory touch, in groups that hold such a pair, each and all of them
  /// in rising order: what has to be seen as parts of one memory.
  std::vector<std::vector<size_t>> groups(std::span<const Argument> arguments);

 private:
  struct Range {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    bool is_written = false;
  };
  void set_ranges(std::span<const Argument> arguments);
  bool may_meet();
  std::optional<Pair> pair_with(std::span<const Argument> arguments, size_t written) const;

  std::vector<size_t> written_;
  std::vector<Range> ranges_;    // by argument
  std::vector<uint32_t> order_;  // by address; kept, because most arguments stay where they were
};

/// Arrays that share bytes with one that is written, or may, become copies; not the written ones
/// themselves. `written`: their numbers.
void copy_shared(const std::vector<size_t>& written, std::vector<Argument>& arguments);

/// Throws OverlapError, which names a pair of inputs. `overlap`: of what the program writes.
void refuse_overlap(const abi::Program& program, Overlap& overlap,
                    std::span<const Argument> arguments);

}  // namespace tandem::runtime
