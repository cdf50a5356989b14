// A graph compiled as a function that reverse mode can go through: one program, or a forward and a
// backward. What a binding to an autograd engine needs to know of it is plain data here.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/compiler.h"

namespace tandem::driver {

struct FunctionOptions {
  bool differentiate = false;         // inputs that require grad get gradients
  std::string partition = "default";  // "default" | "min_cut"
  /// Inputs of role parameter or buffer that the graph does not write are constants: they are not
  /// among the arguments of forward, and bind_constants gives them. Not with differentiate.
  bool freeze = false;
  bool report = false;
  /// What tandem::host nodes run, by number.
  std::vector<runtime::HostFunction> host_functions;
};

/// An input that the graph writes.
struct Mutation {
  size_t input = 0;
  bool has_tangent = false;  // written with history: reverse mode goes on through its new value
};

/// Where a value that forward saved for backward lives.
struct SavedPlace {
  enum class Kind : uint8_t {
    own,     // in a block that the forward's handle owns
    input,   // it is input `number`: whoever calls keeps the tensor, and notices writes to it
    output,  // it is result `number`
  } kind = Kind::own;
  size_t number = 0;
};

/// What one forward saved in blocks of its own; freed by `release` or with the handle.
struct Saved {
  std::vector<runtime::Result> values;  // by saved place; empty arrays where it is not `own`
  bool is_alive = true;
  int64_t bytes() const;
  void release();
};

/// Thread-safe after it is made.
class GraphFunction {
 public:
  /// Compiles the first graph of the text. Results are memory of their own. Throws UserError and
  /// Unsupported.
  GraphFunction(std::string_view text, const FunctionOptions& options);

  /// Inputs of forward without constants and the seed. When `takes_seed`, an i64 follows them.
  size_t inputs() const { return inputs_; }
  /// Names of the inputs that are constants.
  const std::vector<std::string>& constants() { return forward_->loaded().constant_names(); }
  void bind_constants(const runtime::ConstantValues& values) { forward_->bind_constants(values); }
  bool takes_seed() const { return takes_seed_; }
  size_t results() const { return results_; }
  const std::vector<Mutation>& mutations() const { return mutations_; }
  /// By result.
  const std::vector<char>& has_tangent() const { return has_tangent_; }
  /// By input: backward gives a gradient.
  const std::vector<char>& has_gradient() const { return has_gradient_; }
  /// Reverse mode has to know of a call: a result has a history, or an input lost its own.
  bool has_backward() const { return has_backward_; }
  const std::vector<SavedPlace>& saved_places() const { return saved_places_; }

  struct Forward {
    std::vector<runtime::Result> results;
    std::unique_ptr<Saved> saved;  // null without a backward
  };
  Forward forward(std::span<const runtime::Argument> arguments);
  /// `borrowed`: the saved values that are inputs or results, in the order of saved_places.
  /// `tangents`: of the results that have one, then of the mutations that have one. Gives one
  /// gradient for each input that has one.
  std::vector<runtime::Result> backward(const Saved& saved,
                                        std::span<const runtime::Array> borrowed,
                                        std::span<const runtime::Array> tangents);

  Executable& forward_executable() { return *forward_; }
  Executable* backward_executable() { return backward_.get(); }
  /// Of the passes, in milliseconds.
  double pass_time() const { return pass_time_; }

 private:
  void find_shape(const ir::Graph& forward);
  void mark_mutation(std::string_view tangent);
  void find_saved();
  void find_backward(const ir::Graph& backward);

  std::unique_ptr<Executable> forward_;
  std::unique_ptr<Executable> backward_;
  size_t inputs_ = 0;
  size_t results_ = 0;
  size_t saved_sizes_ = 0;  // last of the saved values
  bool takes_seed_ = false;
  bool has_backward_ = false;
  double pass_time_ = 0;
  std::vector<Mutation> mutations_;
  std::vector<char> has_tangent_;
  std::vector<char> has_gradient_;
  std::vector<SavedPlace> saved_places_;
};

}  // namespace tandem::driver
