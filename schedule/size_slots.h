// Sizes of a call as code over slots: a slot for each symbol that the program's sizes name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

class SizeSlots {
 public:
  /// `launch_numbers`: symbols with a value of their own.
  SizeSlots(abi::Program& program, const std::map<std::string, int64_t>& launch_numbers)
      : program_(program), launch_numbers_(launch_numbers) {}

  uint32_t slot_of(const std::string& symbol);
  void bind(const std::string& symbol, uint32_t slot) { slots_[symbol] = slot; }
  abi::SizeCode code(sym::Expr e);
  std::vector<abi::SizeCode> codes(const ir::Sizes& sizes);
  const std::map<std::string, uint32_t>& all() const { return slots_; }

 private:
  abi::Program& program_;
  const std::map<std::string, int64_t>& launch_numbers_;
  std::map<std::string, uint32_t> slots_;
};

}  // namespace tandem::schedule
