// The C++ API over modules: compiled forward functions and compiled training steps.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "driver/compiler.h"
#include "driver/shared_memory.h"
#include "driver/state.h"
#include "nn/optimizer.h"

namespace tandem {

/// Type of a data input: name, dtype, sizes (a symbolic size is a name: see Size).
struct InputSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes;
};

/// Writes the graph: data inputs in, results out. Of a training step the first result is the loss.
using ModelFunction = std::function<nn::Tensors(nn::Trace&, const nn::Tensors& inputs)>;

/// A compiled graph whose parameter, buffer and state inputs are taken from a State.
class BoundProgram {
 public:
  /// `own`: values of constants that the State does not have.
  BoundProgram(std::unique_ptr<driver::Executable> executable, State& state, size_t data_inputs,
               runtime::ConstantValues own = {});
  /// Data inputs in order; results of the model function in order. Where the program is random the
  /// seed counts up with every call that succeeds; others may be called from several threads.
  std::vector<runtime::Result> run(std::span<const runtime::Array> inputs);
  /// Of a frozen program: takes the values that the State has now.
  void refresh();
  const driver::Executable& executable() const { return *executable_; }
  driver::Executable& executable() { return *executable_; }
  int64_t seed = 0;
  double learning_rate = 0;

 private:
  std::unique_ptr<driver::Executable> executable_;
  State* state_;
  size_t data_inputs_;
  runtime::ConstantValues own_;
};

struct CompileOptions {
  /// The weights stay as they are now: what depends on them alone is computed once, batch norms go
  /// into the convolutions before them, and the library reads weights packed. Results may differ
  /// from those of an unfrozen program in the last bits. When the State has new values, call
  /// BoundProgram::refresh: until then results mix old and new ones. Nothing may write a weight
  /// while a call runs.
  bool freeze = false;
  bool tune = false;  // mappings are timed on this machine, once: driver::Options
};

/// Forward only, in evaluation mode. The State must outlive the program.
BoundProgram compile_forward(const ModelFunction& model, State& state,
                             const std::vector<InputSpec>& inputs,
                             const CompileOptions& options = {});

struct TrainOptions {
  /// As AotOptions::within: what backward would not save is computed again in the one program.
  static TrainOptions within(std::string_view memory_budget, std::string_view solver = "dp",
                             std::string_view cost = "time");

  /// A function of the caller says what backward reads as it is.
  static TrainOptions with(passes::CallerPartition partition);

  driver::Partition partition = driver::Partition::none;  // none: policies of regions alone
  driver::Budget budget;                                  // of Partition::budget
  passes::CallerPartition caller_partition;               // of Partition::caller
};

/// Forward, backward, clipping and update as one program; parameters, buffers and optimizer state
/// (made in `state` as "<parameter>:exp_avg") are updated in place.
BoundProgram train_step(const ModelFunction& model, State& state,
                        const std::vector<InputSpec>& inputs, const nn::Optimizer& optimizer,
                        const TrainOptions& options = {});

/// A size of an input: a number, or a name for any number from 2 on. Equal names are equal sizes.
struct Size {
  Size(int64_t number) : value(number) {}               // NOLINT(google-explicit-constructor)
  Size(int number) : value(int64_t{number}) {}          // NOLINT(google-explicit-constructor)
  Size(const char* name) : value(std::string(name)) {}  // NOLINT(google-explicit-constructor)
  std::variant<int64_t, std::string> value;
};

struct AotInput {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Size> sizes;
  bool requires_grad = false;
};

struct AotOptions {
  /// By the words of torch.compile's options: "default", "min_cut", "as_read", "min_memory",
  /// "min_time", "0.5", "512MiB"; "dp", "greedy", "exact"; "time", "flops",
  /// "measured". Throws UserError for others.
  static AotOptions within(std::string_view memory_budget, std::string_view solver = "dp",
                           std::string_view cost = "time");

  /// A function of the caller says what forward saves.
  static AotOptions with(passes::CallerPartition partition);

  driver::Partition partition = driver::Partition::priced;  // what forward saves
  driver::Budget budget;                                    // of Partition::budget
  passes::CallerPartition caller_partition;                 // of Partition::caller
  passes::SavedStorage storage;  // passes::storage_named("int8_row", 65536, {"aten.gelu"})
  /// What is returned shares memory as the function says: inputs are the caller's arrays, views of
  /// inputs are views of these, views of one value are views of one array. `AotFunction::signature`
  /// tells. Tangents are then those of results, which views are taken of, in that order.
  bool share_outputs = false;
  driver::Options compile;
};

class AotFunction;

/// What one forward saved for its backward; freed by it, or with the handle. Shares memory with
/// that call's inputs where those are saved: they must not change before backward, but for those
/// that backward takes as they are then (the backward of a custom function writes them).
class SavedActivations {
 public:
  /// Still good for a backward.
  bool alive() const { return values_ != nullptr; }
  int64_t bytes() const;

 private:
  friend class AotFunction;
  std::unique_ptr<std::vector<runtime::Result>> values_;
  std::vector<runtime::Array> later_;          // inputs that backward writes
  const driver::Executable* owner_ = nullptr;  // the forward of the function that was called
  std::shared_ptr<AotFunction> shared_;        // what ran where inputs shared memory; else null
};

class SharedCalls;  // shared_calls.h

/// Calls whose inputs shared memory with a written one.
struct SharedCallCounts {
  int64_t calls = 0;
  int64_t compiled = 0;  // a way to share that was not known, or no more
  int64_t dropped = 0;   // the way used longest ago, for another one
};

/// A function compiled ahead of time, forward and backward apart. Any number of forwards may be
/// waiting for their backward, and calls may come from several threads (a handle is used by one at
/// a time). A call whose inputs share elements with one that the function writes gives what the
/// operators would give one after the other: it is compiled once more for that (and `function` kept
/// for it), for the 16 ways to share that were used last. UserError where one of those inputs
/// requires a gradient, or is written with history.
class AotFunction {
 public:
  AotFunction(const ModelFunction& function, const std::vector<AotInput>& inputs,
              const AotOptions& options = {});
  AotFunction(AotFunction&&) noexcept;
  AotFunction& operator=(AotFunction&&) noexcept;
  ~AotFunction();

  struct Forward {
    std::vector<runtime::Result> outputs;
    SavedActivations saved;
  };
  Forward forward(std::span<const runtime::Array> inputs);
  /// One tangent for each output that depends on an input with requires_grad, in order, then one
  /// for the new value of each input that was written with history, in the order of writes. One
  /// gradient for each input of forward, or none. Frees what was saved, unless `retain`; UserError
  /// when that happened before.
  std::vector<std::optional<runtime::Array>> backward(SavedActivations& saved,
                                                      std::span<const runtime::Array> tangents,
                                                      bool retain = false);

  /// Which inputs are written and how, and what each thing returned is: a line each. Of functions
  /// that share outputs.
  const std::string& signature() const { return signature_; }
  SharedCallCounts shared_call_counts() const;

  const driver::Executable& forward_executable() const { return *forward_; }
  const driver::Executable& backward_executable() const { return *backward_; }

 private:
  friend class SharedCalls;
  /// Over bases: `own` are the numbers of the inputs that it takes, before the bases.
  AotFunction(const ModelFunction& function, const std::vector<AotInput>& inputs,
              const AotOptions& options, std::shared_ptr<std::atomic<int64_t>> seed,
              std::span<const driver::SharedMemory> memories, std::vector<size_t> own);
  /// `inputs`: the caller's, for what is a view of one.
  Forward run(std::span<const runtime::Array> taken, std::span<const runtime::Array> inputs);
  std::vector<runtime::Result> shared(std::span<const runtime::Array> inputs,
                                      std::vector<runtime::Result> results);
  void find_shape(const ir::Graph& forward, const ir::Graph& backward);
  /// Of what this function's own forward saved.
  std::vector<std::optional<runtime::Array>> gradients(SavedActivations& saved,
                                                       std::span<const runtime::Array> tangents,
                                                       bool retain);

  std::unique_ptr<driver::Executable> forward_;
  std::unique_ptr<driver::Executable> backward_;
  std::unique_ptr<driver::Executable> views_;  // of inputs and results; null: results are returned
  std::string signature_;
  std::shared_ptr<std::atomic<int64_t>> seed_;  // one number a call
  std::unique_ptr<SharedCalls> shared_calls_;   // null: of one of them
  size_t data_inputs_ = 0;
  std::vector<size_t> own_;  // numbers of the inputs that the program takes itself
  bool takes_seed_ = false;
  size_t outputs_ = 0;
  size_t saved_ = 0;  // tensors and scalars
  size_t tangents_ = 0;
  std::vector<char> has_gradient_;  // by input
  std::vector<size_t> later_;       // numbers of the inputs that backward takes and writes
};

/// Traces `function` over plain inputs, differentiates and compiles it.
AotFunction aot_function(const ModelFunction& function, const std::vector<AotInput>& inputs,
                         const AotOptions& options = {});

/// A function with its derivatives along tangents of its inputs, as one program.
class JvpFunction {
 public:
  JvpFunction(const ModelFunction& function, const std::vector<AotInput>& inputs,
              driver::Options options = {});

  struct Results {
    std::vector<runtime::Result> outputs;
    /// Of each output that depends on an input with requires_grad; none for others.
    std::vector<std::optional<runtime::Array>> derivatives;
  };
  /// One tangent for each input with requires_grad, in order, of its type and sizes.
  Results run(std::span<const runtime::Array> inputs, std::span<const runtime::Array> tangents);

 private:
  std::unique_ptr<driver::Executable> program_;
  std::unique_ptr<std::atomic<int64_t>> seed_;  // one number a call
  size_t data_inputs_ = 0;
  size_t tangents_ = 0;
  bool takes_seed_ = false;
  std::vector<size_t> read_;          // of the tangents
  std::vector<char> has_derivative_;  // by output
};

/// Traces `function` over plain inputs, differentiates it forward and compiles it. Every operator
/// that has gradients of gradients has this; Unsupported names one that has none.
JvpFunction jvp_function(const ModelFunction& function, const std::vector<AotInput>& inputs,
                         const driver::Options& options = {});

}  // namespace tandem
