// Whether a call may run: what a program writes must share no memory with its other arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "driver/face.h"

namespace tandem::python {

/// For the arguments of one function. Not for several threads at once.
class Overlap {
 public:
  /// Numbers of the arguments that are written.
  explicit Overlap(const std::vector<size_t>& written) : written_(written) {}
  /// One that is written shares bytes with another argument.
  bool found(std::span<const runtime::Argument> arguments);

 private:
  struct Range {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    bool is_written = false;
  };
  bool found_by_pairs(std::span<const runtime::Argument> arguments) const;
  void set_ranges(std::span<const runtime::Argument> arguments);

  std::vector<size_t> written_;
  std::vector<Range> ranges_;    // by argument
  std::vector<uint32_t> order_;  // by address; kept, because most arguments stay where they were
};

}  // namespace tandem::python
