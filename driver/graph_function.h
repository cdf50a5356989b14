// A graph compiled as a function that reverse mode can go through: one program, or a forward and a
// backward. What a binding to an autograd engine needs to know of it is plain data here.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/compiler.h"
#include "driver/hints.h"
#include "driver/replay.h"
#include "driver/shared_memory.h"
#include "driver/step_memory.h"
#include "driver/step_report.h"

namespace tandem::driver {

struct FunctionImage;  // image.h

struct FunctionOptions {
  bool differentiate = false;  // inputs that require grad get gradients
  Partition partition = Partition::priced;
  Budget budget;                             // of Partition::budget
  passes::CallerPartition caller_partition;  // of Partition::caller
  passes::SavedStorage storage;              // of what forward saves
  int derivative = 1;                        // as driver::Options
  /// Inputs of role parameter or buffer that the graph does not write are constants: they are not
  /// among the arguments of forward, which takes a set of them. Not with differentiate.
  bool freeze = false;
  bool report = false;
  bool tune = false;                             // as driver::Options
  std::vector<passes::CallerPass> joint_passes;  // as driver::Options
  std::optional<Target> target;                  // nothing: this machine
  int threads = 0;                               // of the team of each call; 0: the caller decides
  /// Who calls has asked runtime::Overlap about the arguments: forward does not ask again.
  bool caller_checks_overlap = false;
  /// Of the calls to come. What the program takes for granted of them, `assumed` says: whoever
  /// calls must not call it otherwise.
  Hints hints;
  /// What tandem::host nodes run, by number.
  std::vector<runtime::HostFunction> host_functions;
};

/// An input that the graph writes.
struct Mutation {
  size_t input = 0;
  bool has_tangent = false;  // written with history: reverse mode goes on through its new value
};

/// A result that a custom function gave of what it was given: it is the memory of an input, with a
/// history of its own.
struct HandedOn {
  size_t result = 0;
  size_t input = 0;
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

/// What the two programs take and give.
struct FunctionShape {
  size_t inputs = 0;  // of forward, without constants and the seed
  size_t results = 0;
  Replay replay;           // what the caller of the graph gets, of inputs and results
  std::string signature;   // the same, for people
  size_t saved_sizes = 0;  // last of the saved values
  bool takes_seed = false;
  bool has_backward = false;
  std::vector<Mutation> mutations;
  std::vector<HandedOn> handed_on;
  std::vector<char> has_tangent;   // by result
  std::vector<char> has_gradient;  // by input
  std::vector<size_t> later;       // inputs that backward takes once more, and writes
  std::vector<SavedPlace> saved_places;
  std::vector<std::string> names;            // of the inputs
  std::vector<char> reads;                   // by input: the program reads it
  std::vector<std::string> tangents;         // names, in the order that backward takes
  std::vector<std::string> gradient_inputs;  // names: what differentiable_backward takes
};

/// What one forward saved in blocks of its own; freed by `release` or with the handle.
struct Saved {
  std::vector<runtime::Result> values;  // by saved place; empty arrays where it is not `own`
  bool is_alive = true;
  int64_t bytes() const;
  void release();
  /// What is saved; this one is released.
  Saved take();
};

/// Thread-safe after it is made.
class GraphFunction {
 public:
  /// Compiles the first graph of the text, or takes what an earlier process made of the same text
  /// and options from TANDEM_CACHE_DIR. Results are memory of their own. Throws UserError and
  /// Unsupported.
  GraphFunction(std::string_view text, const FunctionOptions& options);

  /// Inputs of forward without constants and the seed. When `takes_seed`, an i64 follows them.
  size_t inputs() const { return shape_.inputs; }
  /// Names of the inputs that are constants.
  const std::vector<std::string>& constants() { return forward_->loaded().constant_names(); }
  /// By name, all of them. A set never changes, so that a call sees what its caller compared.
  std::shared_ptr<runtime::ConstantSet> make_constants(const runtime::ConstantValues& values) {
    return forward_->loaded().make_constants(values);
  }
  /// Of what the set holds beside the given arrays: results of setup, copies, packed weights.
  static int64_t kept_bytes(const runtime::ConstantSet& constants);
  /// No forward will name the set again.
  void retire(runtime::ConstantSet& constants) { forward_->loaded().retire(constants); }
  bool takes_seed() const { return shape_.takes_seed; }
  size_t results() const { return shape_.results; }
  const Replay& replay() const { return shape_.replay; }
  /// Which inputs are written and how, what is returned: a line each.
  const std::string& signature() const { return shape_.signature; }
  const std::vector<Mutation>& mutations() const { return shape_.mutations; }
  const std::vector<HandedOn>& handed_on() const { return shape_.handed_on; }
  /// By result.
  const std::vector<char>& has_tangent() const { return shape_.has_tangent; }
  /// By input: backward gives a gradient.
  const std::vector<char>& has_gradient() const { return shape_.has_gradient; }
  /// Inputs that backward takes as they are then, and writes, in the order in which it takes them.
  const std::vector<size_t>& later() const { return shape_.later; }
  /// Reverse mode has to know of a call: a result has a history, or an input lost its own.
  bool has_backward() const { return shape_.has_backward; }
  const std::vector<SavedPlace>& saved_places() const { return shape_.saved_places; }

  struct Forward {
    std::vector<runtime::Result> results;
    std::unique_ptr<Saved> saved;  // null without a backward
  };
  /// `constants`: a set of make_constants, where there are constants.
  Forward forward(std::span<const runtime::Argument> arguments,
                  std::shared_ptr<runtime::ConstantSet> constants = nullptr);
  /// `borrowed`: the saved values that are inputs or results, in the order of saved_places.
  /// `tangents`: of the results that have one, then of the mutations that have one. `later`: see
  /// there. Gives one gradient for each input that has one. What nobody but `saved` holds is freed
  /// on the way.
  std::vector<runtime::Result> backward(Saved saved, std::span<const runtime::Array> borrowed,
                                        std::span<const runtime::Array> tangents,
                                        std::span<const runtime::Array> later = {});

  /// By input: whether its value matters.
  const std::vector<char>& reads() const { return shape_.reads; }
  /// Names of the inputs, and of what backward takes as tangents.
  const std::vector<std::string>& names() const { return shape_.names; }
  const std::vector<std::string>& tangents() const { return shape_.tangents; }
  /// Names of inputs and tangents that gradients read: `differentiable_backward` takes no others.
  const std::vector<std::string>& gradient_inputs() const { return shape_.gradient_inputs; }
  /// The backward as a function that reverse mode can go through: inputs, as they were before the
  /// call, and tangents in, by `names`; one result for each gradient. Compiled when it is asked
  /// for. Throws Unsupported, where a gradient has none of its own.
  GraphFunction& differentiable_backward();

  /// The same for calls whose inputs lie so: they are its arguments no more, and the bases come
  /// behind those that are. `sizes`: of the symbols of the text. The replay and signature speak of
  /// the inputs of this one. Throws UserError and Unsupported.
  std::unique_ptr<GraphFunction> within(std::span<const SharedMemory> memories,
                                        const std::map<std::string, int64_t>& sizes) const {
    return std::make_unique<GraphFunction>(text_within(text_, memories, sizes), options_);
  }

  /// Of the hints. No program is made for others later: neither differentiable_backward nor
  /// `within` ask them again.
  const ir::Bindings& assumed() const { return assumed_; }

  Executable& forward_executable() { return *forward_; }
  Executable* backward_executable() { return backward_.get(); }
  /// Those with dequantized factors.
  const std::vector<QuantizedProduct>& products() const { return products_; }
  /// What is saved for backward and why, where options asked for a report.
  const std::string& cut() const { return decisions_.text; }
  /// The same and what memory a step takes, as data for a page; calls so far are measured.
  StepReport step_report() const;
  /// Of a step, where all sizes are known; see driver/step_memory.h.
  std::optional<StepMemory> memory() const;
  int threads() const { return threads_; }
  /// Of the passes, in milliseconds.
  double pass_time() const { return pass_time_; }

  /// Made by an earlier process.
  bool is_from_cache() const { return cache_state_ == "hit"; }
  /// "hit", "miss" (with the option `report` in what the nearest entry differs) or "bypassed: why".
  const std::string& cache_state() const { return cache_state_; }

 private:
  /// For the hints; `text` becomes the one that was compiled.
  FunctionImage compiled_for(std::string& text, const FunctionOptions& options,
                             std::vector<Times>& times);
  FunctionImage compiled(std::string_view text, const FunctionOptions& options,
                         std::vector<Times>& times);
  void load(FunctionImage image, const std::vector<Times>& times, const FunctionOptions& options);
  void find_shape(const ir::Graph& forward);
  void find_handed_on(const ir::Graph& signature);
  void find_backward(const ir::Graph& backward, const ir::Graph& forward);
  void mark_tangent(ir::Subject subject, const ir::Graph& forward);
  void find_saved(const abi::Program& forward);

  std::string text_;  // with what is assumed
  FunctionOptions options_;
  ir::Bindings assumed_;
  std::mutex compiles_backward_;
  std::unique_ptr<GraphFunction> differentiable_backward_;
  FunctionShape shape_;
  std::vector<QuantizedProduct> products_;
  CutDecisions decisions_;
  std::unique_ptr<Executable> forward_;
  std::unique_ptr<Executable> backward_;
  std::string cache_state_;
  double pass_time_ = 0;
  int threads_ = 0;
};

}  // namespace tandem::driver
