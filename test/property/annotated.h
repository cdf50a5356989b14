// The text of a random graph, with what its comments say: sizes of the runs, numbers of the inputs,
// bounds of what two roads may differ by. So a graph that fails is one file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tandem::property {

struct Numbers {
  int64_t low = 0;
  int64_t high = 0;
  double step = 1;
};

struct Annotated {
  std::map<std::string, std::array<int64_t, 2>> symbols;  // by symbol: its size in both runs
  std::map<std::string, Numbers> data;                    // by input
  std::map<std::string, double> errors;                   // by value
  std::set<std::string> features;
  bool has_gradients = false;
  bool is_large = false;             // for compiled code alone
  std::vector<std::string> outputs;  // names
  std::vector<std::string> written;  // inputs that are written
  std::vector<std::string> values;   // names of what lines give, in order
};

/// UserError where a comment or a result is missing.
Annotated annotated(const std::string& text);
/// The text with other results.
std::string with_outputs(const std::string& text, const std::vector<std::string>& outputs);
/// Graphs with fewer results or lines, which are right where this one is: the smallest first.
std::vector<std::string> smaller(const std::string& text);

}  // namespace tandem::property
