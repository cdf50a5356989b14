// One graph along all roads: each step of schedule that may be left out added in turn, kernels
// interpreted and compiled.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem::property {

/// How often something was seen, by name.
using Counts = std::map<std::string, uint64_t>;

/// Throws std::logic_error where two roads differ, UserError where the text is no graph. Counts
/// what the graph has ("graph: scan") and what its kernels have ("kernel: chain").
/// `each_level`: code that LLVM did not optimise as well.
void run_roads(const std::string& text, Counts& counts, bool each_level = false);

/// What kernels must have had once enough graphs have run.
const std::vector<std::string>& all_kernel_features();

}  // namespace tandem::property
