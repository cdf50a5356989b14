// Calls whose inputs lie in one memory: what a graph is told of it before it is compiled for them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace tandem::driver {

/// A tensor, the base, and the inputs that are views of it.
struct SharedMemory {
  struct Member {
    std::string input;
    std::vector<int64_t> strides;
    int64_t offset = 0;  // of the first element from that of the base; elements of the input
  };
  DType dtype = DType::f32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool requires_grad = false;
  std::vector<Member> members;
};

/// The graph takes the bases, behind its other inputs and in this order, and its members no more:
/// passes::synthetic_bases makes it so. Sizes of members must be numbers. UserError for a name that
/// no input has.
void lay_within(ir::Graph& graph, std::span<const SharedMemory> memories);

/// The same of the first graph of a text, where `sizes` of symbols are numbers.
std::string text_within(std::string_view text, std::span<const SharedMemory> memories,
                        const std::map<std::string, int64_t>& sizes);

}  // namespace tandem::driver
