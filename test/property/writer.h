// A graph under construction, and what is known of its values: how large they are, whether they
// are integers, and by how much two orders of the same additions may differ.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "test/fuzz/random.h"

namespace tandem::property {

using fuzz::Random;

/// A size: what the text says, and its least and largest number in the runs.
struct Dim {
  std::string text;
  int64_t least = 1;
  int64_t most = 1;
  bool operator==(const Dim& other) const { return text == other.text; }
  bool is_symbolic() const;
};
using Dims = std::vector<Dim>;

Dim known(int64_t size);
/// Sums and products of sizes; equal texts mean equal sizes, other texts may.
Dim plus(const Dim& a, const Dim& b);
Dim times(const Dim& a, const Dim& b);
int64_t count(const Dims& dims);  // at the largest sizes
std::string text_of(const Dims& dims);

struct Value {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;
  double most = 0;    // no element is larger, either way
  bool whole = true;  // elements are integers
  double error = 0;   // of the same element, computed in two orders
  /// Zeros may have either sign: a maximum of both is the one that comes first, and orders differ.
  bool either_zero = false;
  bool is_view = false;  // perhaps of places that several elements share
  size_t rank() const { return dims.size(); }
  bool is_float() const { return dtype == DType::f32 || dtype == DType::bf16; }
  /// Sums of so many elements are the same in any order: nothing is ever rounded.
  bool sums_exactly(double terms) const;
};

/// d(result)/d(operand), as a bound: the sum of its absolute values over all results.
struct Slope {
  size_t operand = 0;
  double bound = 1;
};

/// Error of a float result: none where operands had none, else with its own rounding.
double rounded(double error, double most);
/// Of a sum of `terms` elements in any order: each of two orders is within (terms - 1) * 2^-24 *
/// (sum of the absolute values) of the exact sum, so they differ by twice that.
double error_of_sum(const Value& value, double terms);

class Writer {
 public:
  Writer(Random& random, bool is_symbolic);

  Random& random() { return random_; }
  const Value& value(size_t id) const { return values_.at(id); }
  size_t size() const { return values_.size(); }
  size_t lines() const { return lines_.size(); }
  const std::string& name(size_t id) const { return values_.at(id).name; }

  /// A line `%n = aten.<call>`. Rounds what is known of the result to its dtype. Without slopes
  /// gradients do not go through it.
  size_t add(const std::string& call, Value result, std::vector<Slope> slopes = {});
  /// A line with further results, which must come right behind the first.
  std::vector<size_t> add_several(const std::string& call, std::vector<Value> results);
  /// A new input of integers up to `most`; `least`: of indices, which are not negative.
  size_t input(DType dtype, const Dims& dims, double most);
  size_t indices(const Dims& dims, int64_t below);
  /// Elements are quarters: what is made of them is rounded.
  size_t fractions(const Dims& dims);
  void write_back(size_t input, size_t value);
  /// The same behind the last line: lines in between read what was there before.
  void write_back_at_end(size_t input, size_t value) { waiting_.emplace_back(input, value); }
  void write_what_waits();
  bool is_input(size_t id) const { return !values_.at(id).name.empty() && name(id)[0] == 'x'; }

  using Filter = std::function<bool(const Value&)>;
  /// Some value that fits, late ones more often; where none does, a new input.
  size_t pick(const Filter& fits, DType fallback = DType::f32, size_t rank = 2);
  size_t pick_float(size_t rank = 0);
  /// The same value between -limit and limit.
  size_t tamed(size_t id, double limit);
  /// One of the graph's sizes.
  const Dim& dim() { return random_.pick(dims_); }
  Dims some_dims(size_t rank);
  /// Takes so many steps of the interpreter from what the graph may cost; false: too many.
  bool affords(double steps);

  void feature(const std::string& name) { features_.insert(name); }
  bool has(const std::string& feature) const { return features_.count(feature) != 0; }
  void allow(double steps) { budget_ = steps; }
  void make_large() { is_large_ = true; }
  bool wants_gradients = false;
  bool is_bf16 = false;  // floats are mostly bf16
  DType float_type() { return random_.one_in(10) != is_bf16 ? DType::bf16 : DType::f32; }

  /// What no line reads, inputs apart.
  std::vector<size_t> unread() const;
  /// The whole text. With gradients `loss` is its first result, where they stay exact.
  std::string finish(const std::vector<size_t>& outputs, size_t loss);

 private:
  struct Line {
    std::string text;
    size_t result = 0;
    bool is_smooth = false;
    std::vector<Slope> slopes;
  };
  size_t enter(Value value);
  bool reads_either_zero(const std::string& call) const;
  std::string strides_for(const Dims& dims);
  bool gradients_are_exact(size_t loss) const;
  std::string head(bool gradients) const;

  Random& random_;
  bool is_symbolic_;
  bool is_large_ = false;
  double budget_ = 12000;
  Dims dims_;
  std::vector<std::string> symbols_;  // "s0 3 17": sizes of the runs
  std::vector<Value> values_;
  std::vector<Line> lines_;
  struct Input {
    size_t id = 0;
    std::string type;
    std::string data;  // "low high step"
  };
  std::vector<Input> inputs_;
  std::set<std::string> features_;
  std::vector<std::pair<size_t, size_t>> waiting_;  // input and value
  int count_ = 0;
};

}  // namespace tandem::property
