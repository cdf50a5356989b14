// A training step is one graph: the traced forward, reverse mode, then the optimizer's updates
// written behind it, with parameters and state as inputs that the program overwrites.
#include "driver/api.h"

#include <fmt/format.h>

#include "base/check.h"
#include "driver/trace.h"
#include "driver/update_rule.h"
#include "ops/opdef.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;

}  // namespace

driver::Traced driver::trace_model(const ModelFunction& model, const std::vector<InputSpec>& inputs,
                                   bool training) {
  Traced traced;
  traced.module = std::make_unique<ir::Module>(ops::op_table());
  traced.graph = &traced.module->add_graph(training ? "train_step" : "forward");
  nn::Trace trace(*traced.graph, training);
  Tensors data;
  for (const InputSpec& spec : inputs)
    data.push_back(
        trace.input(spec.name, spec.dtype, ir::Sizes(spec.sizes.begin(), spec.sizes.end())));
  for (const Tensor& result : model(trace, data)) traced.graph->add_output(result.value());
  return traced;
}

BoundProgram::BoundProgram(std::unique_ptr<driver::Executable> executable, State& state,
                           size_t data_inputs, runtime::ConstantValues own)
    : executable_(std::move(executable)),
      state_(&state),
      data_inputs_(data_inputs),
      own_(std::move(own)) {
  if (!executable_->loaded().constant_names().empty()) refresh();
}

void BoundProgram::refresh() {
  runtime::ConstantValues values = own_;
  for (const std::string& name : executable_->loaded().constant_names())
    if (values.count(name) == 0) values.insert_or_assign(name, state_->at(name));
  executable_->bind_constants(values);
}

std::vector<runtime::Result> BoundProgram::run(std::span<const runtime::Array> inputs) {
  const std::vector<abi::Input>& wanted = executable_->program().inputs;
  if (inputs.size() != data_inputs_)
    throw UserError(
        fmt::format("{} data inputs are needed, {} were given", data_inputs_, inputs.size()));
  std::vector<runtime::Argument> arguments;
  bool random = false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i < data_inputs_) {
      arguments.emplace_back(inputs[i]);
    } else if (wanted[i].is_scalar) {
      arguments.emplace_back(seed);
      random = true;
    } else if (wanted[i].name == "learning_rate") {
      runtime::Array rate = runtime::Array::empty(DType::f32, {});
      *rate.data<float>() = static_cast<float>(learning_rate);
      arguments.emplace_back(std::move(rate));
    } else {
      arguments.emplace_back(state_->at(wanted[i].name));
    }
  }
  std::vector<runtime::Result> results = executable_->run(arguments);
  if (random) ++seed;
  return results;
}

BoundProgram compile_forward(const ModelFunction& model, State& state,
                             const std::vector<InputSpec>& inputs, const CompileOptions& options) {
  driver::Traced traced = driver::trace_model(model, inputs, false);
  driver::Options compile;
  compile.freeze = options.freeze;
  compile.tune = options.tune;
  return {driver::compile(*traced.graph, compile), state, inputs.size()};
}

TrainOptions TrainOptions::within(std::string_view memory_budget, std::string_view solver,
                                  std::string_view cost) {
  return {passes::partition_named(memory_budget),
          passes::budget_named(memory_budget, solver, cost),
          {}};
}

TrainOptions TrainOptions::with(passes::CallerPartition partition) {
  return {driver::Partition::caller, {}, std::move(partition)};
}

BoundProgram train_step(const ModelFunction& model, State& state,
                        const std::vector<InputSpec>& inputs, const nn::Optimizer& optimizer,
                        const TrainOptions& options) {
  driver::Traced traced = driver::trace_model(model, inputs, true);
  driver::Options compile;
  compile.gradients = driver::Gradients::ones;
  compile.updates = driver::update_rule(state, optimizer);
  compile.partition = options.partition;
  compile.budget = options.budget;
  compile.caller_partition = options.caller_partition;
  BoundProgram program(driver::compile(*traced.graph, compile), state, inputs.size());
  program.learning_rate = optimizer.learning_rate;
  return program;
}

}  // namespace tandem
