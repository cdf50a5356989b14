// What is wrong with a kernel graph, and where.
#pragma once

#include <string>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

struct Problem {
  enum class Of : uint8_t { graph, item, group };
  Of of = Of::graph;
  size_t number = 0;  // of the item or group
  std::string text;
};
using Problems = std::vector<Problem>;

}  // namespace tandem::schedule
