// A training step is one graph: the traced forward, reverse mode, then the optimizer's updates
// written behind it, with parameters and state as inputs that the program overwrites.
#include "driver/api.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;

struct Traced {
  std::unique_ptr<ir::Module> module;
  ir::Graph* graph = nullptr;
};

Traced trace_model(const ModelFunction& model, const std::vector<InputSpec>& inputs,
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

/// An input that the program overwrites, with the node that will: values are set by replacing its
/// source.
ir::Value* state_input(ir::Graph& graph, State& state, const std::string& name, DType dtype,
                       const std::vector<int64_t>& sizes) {
  if (!state.has(name)) state.set(name, runtime::Array::zeros(dtype, sizes));
  return graph.add_input(name, ir::Type::tensor(dtype, ir::Sizes(sizes.begin(), sizes.end())),
                         ir::Role::buffer, name);
}

std::vector<int64_t> constant_sizes(const ir::Sizes& sizes) {
  std::vector<int64_t> numbers;
  for (const sym::Expr& size : sizes) numbers.push_back(*size.constant());
  return numbers;
}

/// Takes the gradients off the outputs, in the order of the parameters.
std::vector<nn::Update> take_gradients(ir::Graph& graph, ir::Builder& builder, size_t* results) {
  std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  std::vector<nn::Update> updates;
  for (const ir::Output& output : outputs) {
    if (output.kind != ir::OutputKind::gradient) {
      graph.add_output(output);
      ++*results;
      continue;
    }
    if (output.value == nullptr) continue;
    for (ir::Value* input : graph.inputs())
      if (input->name == output.name)
        updates.push_back({{builder, input}, {builder, output.value}, {}});
  }
  return updates;
}

void write(ir::Builder& tail, const Tensor& target, const Tensor& value) {
  tail.call("aten.copy_", {target.value(), value.value()});
}

void add_optimizer(ir::Graph& graph, State& state, const nn::Optimizer& optimizer) {
  ir::Builder builder(graph, passes::first_write_back(graph));
  builder.stamp().no_grad = true;
  builder.stamp().backward = true;
  size_t results = 0;
  std::vector<nn::Update> updates = take_gradients(graph, builder, &results);
  if (optimizer.clip_norm > 0) nn::clip_by_norm(updates, optimizer.clip_norm);
  ir::Value* rate_input = graph.add_input("learning_rate", ir::Type::tensor(DType::f32, {}));
  Tensor step{builder, state_input(graph, state, "optimizer:step", DType::f64, {})};
  Tensor next = step + 1.0;
  std::vector<std::pair<Tensor, Tensor>> writes{{step, next}};
  for (nn::Update& update : updates) {
    const std::string& name = update.parameter.value()->name;
    for (const std::string& kind : optimizer.state_names())
      update.state.emplace_back(builder, state_input(graph, state, name + ":" + kind, DType::f32,
                                                     constant_sizes(update.parameter.sizes())));
    Tensors updated = optimizer.apply(update, {builder, rate_input}, next);
    writes.emplace_back(update.parameter, updated[0]);
    for (size_t i = 0; i < update.state.size(); ++i)
      writes.emplace_back(update.state[i], updated[i + 1]);
  }
  ir::Builder tail(graph);
  for (const std::pair<Tensor, Tensor>& entry : writes) write(tail, entry.first, entry.second);
}

}  // namespace

BoundProgram::BoundProgram(std::unique_ptr<driver::Executable> executable, State& state,
                           size_t data_inputs)
    : executable_(std::move(executable)), state_(&state), data_inputs_(data_inputs) {
  if (!executable_->loaded().constant_names().empty()) refresh();
}

void BoundProgram::refresh() {
  runtime::ConstantValues values;
  for (const std::string& name : executable_->loaded().constant_names())
    values.insert_or_assign(name, state_->at(name));
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
  Traced traced = trace_model(model, inputs, false);
  driver::Options compile;
  compile.freeze = options.freeze;
  return {driver::compile(*traced.graph, compile), state, inputs.size()};
}

BoundProgram train_step(const ModelFunction& model, State& state,
                        const std::vector<InputSpec>& inputs, const nn::Optimizer& optimizer) {
  Traced traced = trace_model(model, inputs, true);
  driver::Options options;
  options.gradients = "ones";
  options.after_joint = [&](ir::Graph& graph) { add_optimizer(graph, state, optimizer); };
  BoundProgram program(driver::compile(*traced.graph, options), state, inputs.size());
  program.learning_rate = optimizer.learning_rate;
  return program;
}

}  // namespace tandem
