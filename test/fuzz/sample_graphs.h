// A graph of one call for each sample of each operator.
#pragma once

#include <string>
#include <vector>

namespace tandem::fuzz {

/// In the order of the table; only those that parse.
const std::vector<std::string>& sample_graphs();

}  // namespace tandem::fuzz
