// Small models that the tests of the driver train, their data, and how they fail.
#pragma once

#include <tandem/tandem.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tandem::driver {

/// Tokens [rows] to classes: an embedding and two linear layers with tanh between.
class TinyNet : public nn::Module {
 public:
  static constexpr int64_t kTokens = 7;
  static constexpr int64_t kClasses = 3;
  nn::Tensor logits(nn::Trace& trace, nn::Tensor tokens) const;

 private:
  nn::Embedding table_{*this, "table", kTokens, 8};
  nn::Linear up_{*this, "up", 8, 16};
  nn::Linear down_{*this, "down", 16, kClasses};
};

Array tokens(const std::vector<int64_t>& values);
Array floats(const std::vector<float>& values, const std::vector<int64_t>& sizes);

/// Logits of i64[rows].
BoundProgram tiny_forward(const TinyNet& net, State& state, int64_t rows);
/// Loss of (i64[rows], i64[rows]).
BoundProgram tiny_step(const TinyNet& net, State& state, int64_t rows,
                       const nn::Optimizer& optimizer);

/// The bytes of every array, to see whether anything changed.
std::map<std::string, std::string> bytes_of(const State& state);
std::string bytes_of(const Array& array);

float scalar(const std::vector<runtime::Result>& results);

/// Text of the UserError that the action ends in; "no error" where it ends in none.
std::string error_of(const std::function<void()>& action);

}  // namespace tandem::driver
