// A function compiled as two programs. What joins them is positions: forward gives outputs, saved
// values, then saved sizes; backward takes sizes, saved values, inputs that it writes, then
// tangents, and gives the gradients that exist.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "driver/api.h"
#include "driver/replay.h"
#include "driver/shared_calls.h"
#include "driver/traced.h"
#include "ops/opdef.h"
#include "runtime/fork.h"
#include "runtime/overlap.h"

namespace tandem {
namespace {

size_t count(const ir::Graph& graph, ir::Role role, bool scalar) {
  return static_cast<size_t>(
      std::count_if(graph.inputs().begin(), graph.inputs().end(), [&](const ir::Value* input) {
        return input->role == role && input->type.is_tensor() != scalar;
      }));
}

std::vector<size_t> all_of(const std::vector<AotInput>& inputs) {
  std::vector<size_t> numbers(inputs.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Inputs from number `own` on are bases, which the caller does not know.
void check_tangents(const ir::Graph& forward, const ir::Graph& backward, size_t own) {
  for (const ir::Value* input : backward.inputs()) {
    if (input->role != ir::Role::tangent || input->subject.kind != ir::Subject::Kind::input)
      continue;
    if (input->subject.number < own) continue;
    throw UserError(fmt::format(
        "[aot_function] an input that shares memory with another one is written with history: the "
        "tangent would be of that memory, %{}",
        forward.inputs().at(input->subject.number)->name));
  }
}

}  // namespace

int64_t SavedActivations::bytes() const {
  int64_t total = 0;
  if (!alive()) return 0;
  for (const runtime::Result& value : *values_)
    if (const runtime::Array* array = std::get_if<runtime::Array>(&value)) total += array->nbytes();
  return total;
}

AotFunction::AotFunction(const ModelFunction& function, const std::vector<AotInput>& inputs,
                         const AotOptions& options)
    : AotFunction(function, inputs, options, std::make_shared<std::atomic<int64_t>>(0), {},
                  all_of(inputs)) {
  shared_calls_ = std::make_unique<SharedCalls>(function, inputs, options, seed_);
}

AotFunction::AotFunction(AotFunction&&) noexcept = default;
AotFunction& AotFunction::operator=(AotFunction&&) noexcept = default;
AotFunction::~AotFunction() = default;

AotFunction::AotFunction(const ModelFunction& function, const std::vector<AotInput>& inputs,
                         const AotOptions& options, std::shared_ptr<std::atomic<int64_t>> seed,
                         std::span<const driver::SharedMemory> memories, std::vector<size_t> own)
    : seed_(std::move(seed)), data_inputs_(inputs.size()), own_(std::move(own)) {
  ir::Module module(ops::op_table());
  ir::Graph& graph = module.add_graph("forward");
  driver::trace_function(graph, function, inputs);
  driver::lay_within(graph, memories);
  const runtime::ForkHold hold;
  driver::Options compile = options.compile;
  compile.gradients = driver::Gradients::tangents;
  compile.partition = options.partition;
  compile.budget = options.budget;
  compile.caller_partition = options.caller_partition;
  compile.storage = options.storage;
  compile.share_outputs = options.share_outputs;
  driver::GraphCtx ctx;
  driver::run_passes(graph, compile, ctx);
  if (options.share_outputs) {
    ir::Graph& views = *module.find(ir::GraphRole::Kind::signature, graph);
    signature_ = driver::describe_signature(views);
    driver::run_signature_passes(views);
    views_ = driver::finish(views, compile);
  }
  ir::Graph& backward = *module.find(ir::GraphRole::Kind::backward, graph);
  check_tangents(graph, backward, own_.size());
  find_shape(graph, backward);
  forward_ = driver::finish(graph, compile);
  driver::take_saved_strides(backward, graph, forward_->output_strides());
  backward_ = driver::finish(backward, compile);
  for (driver::Executable* part : {forward_.get(), backward_.get()})
    part->loaded().set_memory(runtime::ProgramMemory::blocks);
}

void AotFunction::find_shape(const ir::Graph& forward, const ir::Graph& backward) {
  takes_seed_ = count(forward, ir::Role::seed, true) > 0;
  for (const ir::Output& output : forward.outputs()) {
    bool is_saved = output.kind == ir::OutputKind::saved;
    saved_ += is_saved;
    outputs_ += !is_saved && output.kind != ir::OutputKind::saved_size;
  }
  tangents_ = count(backward, ir::Role::tangent, false);
  for (const ir::Value* input : backward.inputs())
    if (input->role == ir::Role::later) later_.push_back(input->subject.number);
  for (const ir::Output& gradient : backward.outputs())
    has_gradient_.push_back(gradient.value != nullptr);
}

AotFunction::Forward AotFunction::forward(std::span<const runtime::Array> inputs) {
  if (inputs.size() != data_inputs_)
    throw UserError(
        fmt::format("forward takes {} inputs, {} were given", data_inputs_, inputs.size()));
  try {
    return run(inputs, inputs);
  } catch (const runtime::OverlapError&) {
    if (shared_calls_ == nullptr) throw;
    const SharedCalls::Call call = shared_calls_->call(inputs, forward_->loaded().written_inputs());
    Forward made = call.function->run(call.arguments, inputs);
    made.saved.owner_ = forward_.get();
    made.saved.shared_ = call.function;
    return made;
  }
}

SharedCallCounts AotFunction::shared_call_counts() const {
  return shared_calls_ == nullptr ? SharedCallCounts() : shared_calls_->counts();
}

AotFunction::Forward AotFunction::run(std::span<const runtime::Array> taken,
                                      std::span<const runtime::Array> inputs) {
  std::vector<runtime::Argument> arguments(taken.begin(), taken.end());
  if (takes_seed_) arguments.emplace_back(seed_->fetch_add(1));
  std::vector<runtime::Result> results = forward_->run(arguments);
  Forward made;
  std::vector<runtime::Result>::iterator saved =
      results.begin() + static_cast<std::ptrdiff_t>(outputs_);
  made.outputs.assign(results.begin(), saved);
  if (views_ != nullptr) made.outputs = shared(inputs, std::move(made.outputs));
  made.saved.values_ = std::make_unique<std::vector<runtime::Result>>(saved, results.end());
  for (size_t number : later_) made.saved.later_.push_back(taken[number]);
  made.saved.owner_ = forward_.get();
  return made;
}

std::vector<runtime::Result> AotFunction::shared(std::span<const runtime::Array> inputs,
                                                 std::vector<runtime::Result> results) {
  std::vector<runtime::Argument> arguments(inputs.begin(), inputs.end());
  arguments.insert(arguments.end(), results.begin(), results.end());
  return views_->run(arguments);
}

std::vector<std::optional<runtime::Array>> AotFunction::backward(
    SavedActivations& saved, std::span<const runtime::Array> tangents, bool retain) {
  if (!saved.alive())
    throw UserError(
        "backward ran before on this forward and freed what it saved; pass retain to the first one "
        "to run it again");
  if (saved.owner_ != forward_.get())
    throw UserError("backward was given what another function's forward saved");
  AotFunction& made = saved.shared_ == nullptr ? *this : *saved.shared_;
  return made.gradients(saved, tangents, retain);
}

std::vector<std::optional<runtime::Array>> AotFunction::gradients(
    SavedActivations& saved, std::span<const runtime::Array> tangents, bool retain) {
  if (tangents.size() != tangents_)
    throw UserError(
        fmt::format("backward takes {} tangents, {} were given", tangents_, tangents.size()));
  // Sizes come last out of forward and first into backward.
  const std::vector<runtime::Result>& values = *saved.values_;
  std::vector<runtime::Result>::const_iterator sizes =
      values.begin() + static_cast<std::ptrdiff_t>(saved_);
  std::vector<runtime::Argument> arguments(sizes, values.end());
  arguments.insert(arguments.end(), values.begin(), sizes);
  arguments.insert(arguments.end(), saved.later_.begin(), saved.later_.end());
  arguments.insert(arguments.end(), tangents.begin(), tangents.end());
  runtime::copy_shared(backward_->loaded().written_inputs(), arguments);
  backward_->loaded().check(arguments);  // a mistake frees nothing
  if (!retain) {
    saved.values_.reset();
    saved.later_.clear();
  }
  std::vector<runtime::Result> results = backward_->run_and_drop(std::move(arguments));
  std::vector<std::optional<runtime::Array>> gradients(data_inputs_);
  std::vector<runtime::Result>::iterator next = results.begin();
  for (size_t i = 0; i < own_.size(); ++i)
    if (has_gradient_.at(i) != 0) gradients[own_[i]] = std::get<runtime::Array>(std::move(*next++));
  return gradients;
}

AotOptions AotOptions::within(std::string_view memory_budget, std::string_view solver,
                              std::string_view cost) {
  AotOptions options;
  options.partition = passes::partition_named(memory_budget);
  options.budget = passes::budget_named(memory_budget, solver, cost);
  return options;
}

AotOptions AotOptions::with(passes::CallerPartition partition) {
  AotOptions options;
  options.partition = driver::Partition::caller;
  options.caller_partition = std::move(partition);
  return options;
}

AotFunction aot_function(const ModelFunction& function, const std::vector<AotInput>& inputs,
                         const AotOptions& options) {
  return {function, inputs, options};
}

}  // namespace tandem
