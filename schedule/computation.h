// What an op computes, as data: its definition is called once, at placeholder axes, and what it
// says is kept. Inlining, views, footprints and reads are then rewrites of it and questions about
// it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ops/opdef.h"

namespace tandem::schedule {

/// Scalars over placeholder axes. What is read of a tensor is an `element` of the value's number,
/// in its compute type; a scalar input is an element without a position; error numbers are those of
/// Computations.
struct Computation {
  using Kind = ops::Definition::Kind;
  Kind kind = Kind::map;

  /// Whether anything is said: not of an item whose values are not inlined yet, or of a library.
  bool is_defined() const {
    return !results.empty() || !out.empty() || !inputs.empty() || !reduce_sizes.empty();
  }

  /// A value at every point of its axes.
  struct Points {
    ops::Index axes;
    loop::Val value = nullptr;
  };
  /// Of a map: each result. Of a scatter: what the result starts as.
  std::vector<Points> results;

  // Of a reduction or scan.
  loop::Combiner combiner = loop::Combiner::sum;
  ir::Sizes reduce_sizes;
  ops::Index out;                     // axes of the results …
  ops::Index reduce;                  // … and of what is reduced (of a scan: one of `out` as well)
  std::vector<loop::Val> inputs;      // of the combiner; none: partial results of another item
  std::vector<loop::Val> finished;    // results over locals 0, 1, …; none: what was combined
  ir::Sizes full_sizes;               // as ops::Definition
  std::vector<int64_t> reduced_dims;  // as ops::Definition
  const ir::Value* windows_over = nullptr;

  // Of a scatter.
  ir::Sizes source_sizes;
  ops::Index source;  // axes
  int64_t scatter_dim = 0;
  loop::Val destination = nullptr;  // i64, along scatter_dim
  loop::Val value = nullptr;
  bool accumulate = true;
};

/// What combines the results of parts of a reduction: sums of products are added.
inline loop::Combiner combiner_of_parts(loop::Combiner combiner) {
  return loop::multiplies(combiner) ? loop::Combiner::sum : combiner;
}

/// What a launch passes beside sizes: a scalar of the graph, or a number of that one call.
using LaunchArg = std::variant<const ir::Value*, int64_t>;

/// The computations of a graph, made when they are first asked for, and the scalars they are made
/// of.
class Computations final : ops::Lowering {
 public:
  explicit Computations(sym::Pool& symbols);
  ~Computations() override;

  /// A failed check where the op has no loops: it had to be decomposed.
  const Computation& of(const ir::Node* node);
  loop::ScalarPool& scalars() override { return pool_; }
  /// Behind the number of an element.
  const ir::Value* value(int32_t number) const { return values_.at(number); }
  int32_t number(const ir::Value* value);
  int32_t error_number(const std::string& text);
  const std::string& error_text(int32_t number) const {
    return errors_[static_cast<size_t>(number)];
  }
  /// What symbols stand for that are no sizes, by their names.
  const std::map<std::string, LaunchArg>& launch_args() const { return launch_args_; }
  /// The symbol of a scalar of the graph.
  sym::Expr argument(const ir::Value* scalar);
  /// Of a symbol that was read from text: it is known again by how its name is spelled.
  void know_argument(sym::Expr symbol, const ir::Graph& graph);

 private:
  loop::Val load(const ir::Value* tensor, const ops::Index& index, loop::Val mask) override;
  loop::Val scalar(const ir::Arg& arg, DType dtype) override;
  loop::Val launch_number(int64_t number) override;
  int32_t error(const std::string& text) override;

  Computation computed(const ir::Node& node);
  void add_results(Computation& made, const ops::Definition& def, const ir::Node& node);
  void add_reduction(Computation& made, const ops::Definition& def, const ir::Node& node);
  void add_scatter(Computation& made, const ops::Definition& def);
  ops::Index placeholders(const ir::Sizes& sizes);

  loop::ScalarPool pool_;
  std::unordered_map<const ir::Node*, std::unique_ptr<const Computation>> made_;
  std::unordered_map<int32_t, const ir::Value*> values_;
  std::vector<std::string> errors_;
  std::map<std::string, LaunchArg> launch_args_;
};

}  // namespace tandem::schedule
