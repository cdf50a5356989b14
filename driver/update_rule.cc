// The optimizer's formula over traced tensors, once for each parameter. Its state lives in the
// State by name, beside the parameters, and comes to the program as one more input that it
// overwrites.
#include "driver/update_rule.h"

namespace tandem::driver {
namespace {

using nn::Tensor;
using nn::Tensors;
using passes::NewValue;

/// An input that the program overwrites.
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

std::vector<NewValue> write_updates(ir::Builder& builder, std::vector<nn::Update> updates,
                                    State& state, const nn::Optimizer& optimizer) {
  ir::Graph& graph = builder.graph();
  if (optimizer.clip_norm > 0) nn::clip_by_norm(updates, optimizer.clip_norm);
  ir::Value* rate_input = graph.add_input("learning_rate", ir::Type::tensor(DType::f32, {}));
  Tensor step{builder, state_input(graph, state, "optimizer:step", DType::f64, {})};
  Tensor next = step + 1.0;
  std::vector<NewValue> values{{step.value(), next.value()}};
  for (nn::Update& update : updates) {
    const std::string& name = update.parameter.value()->name;
    for (const std::string& kind : optimizer.state_names())
      update.state.emplace_back(builder, state_input(graph, state, name + ":" + kind, DType::f32,
                                                     constant_sizes(update.parameter.sizes())));
    const Tensors updated = optimizer.apply(update, {builder, rate_input}, next);
    values.push_back({update.parameter.value(), updated[0].value()});
    for (size_t i = 0; i < update.state.size(); ++i)
      values.push_back({update.state[i].value(), updated[i + 1].value()});
  }
  return values;
}

}  // namespace

passes::UpdateRule update_rule(State& state, const nn::Optimizer& optimizer) {
  return [&](ir::Builder& builder, const std::vector<passes::ParameterGradient>& gradients) {
    std::vector<nn::Update> updates;
    for (const passes::ParameterGradient& each : gradients)
      updates.push_back({{builder, each.parameter}, {builder, each.gradient}, {}});
    return write_updates(builder, std::move(updates), state, optimizer);
  };
}

}  // namespace tandem::driver
