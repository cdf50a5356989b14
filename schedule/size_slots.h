// Sizes of a call as code over slots: a slot for each symbol that the program's sizes name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

class SizeSlots {
 public:
  /// `args`: symbols that are no sizes.
  SizeSlots(abi::Program& program, const std::map<std::string, LaunchArg>& args)
      : program_(program), args_(args) {}

  uint32_t slot_of(const std::string& symbol);
  /// Of a scalar; one that is a size has the slot of its symbol, which the caller says.
  uint32_t slot_of(const ir::Value* scalar);
  void bind(const ir::Value* scalar, uint32_t slot) { scalars_[scalar] = slot; }
  abi::SizeCode code(sym::Expr e);
  std::vector<abi::SizeCode> codes(const ir::Sizes& sizes);
  /// Of sizes, by the names of their symbols.
  const std::map<std::string, uint32_t>& all() const { return slots_; }

 private:
  abi::SizeInstruction of_symbol(sym::Expr symbol);

  abi::Program& program_;
  const std::map<std::string, LaunchArg>& args_;
  std::map<std::string, uint32_t> slots_;
  std::map<const ir::Value*, uint32_t> scalars_;  // only looked up
};

}  // namespace tandem::schedule
