// What calibration found, as a text that may be read, compared and edited: a range for each group
// of values that share a scale. The ranges are what convert obeys; the rest says where they come
// from.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "quant/observer.h"

namespace tandem::quant {

struct GroupStatistics {
  std::string observer;
  int64_t values = 0;  // that were seen
  Range range;         // one number each, or one for each channel or group
};

struct Statistics {
  std::string recipe;  // its name
  uint64_t recipe_hash = 0;
  uint64_t model_hash = 0;  // of its graph and its weights
  std::map<std::string, GroupStatistics> groups;
};

/// TOML; equal statistics give equal bytes. Numbers come back as they were.
std::string to_text(const Statistics& statistics);
/// UserError with every problem, each at its line of `path`.
Statistics parse_statistics(std::string_view text, const std::string& path);

}  // namespace tandem::quant
