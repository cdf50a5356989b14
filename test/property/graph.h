// A random graph by seed and number.
#pragma once

#include <string>
#include <vector>

#include "test/fuzz/random.h"

namespace tandem::property {

/// Themes take turns, so that few graphs have all of them.
size_t theme_count();
std::string write_graph(fuzz::Random& random, size_t theme);
/// What some graph must have; Writer::feature has the names.
const std::vector<std::string>& all_features();

}  // namespace tandem::property
