// The backward of a custom function that writes to what its forward kept: the caller's array, as it
// is when backward runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "driver/api.h"
#include "ir/builder.h"

namespace tandem {
namespace {

using nn::Tensors;
using runtime::Array;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Array array_of(std::vector<float> values) {
  const std::vector<int64_t> sizes{static_cast<int64_t>(values.size())};
  Array array = Array::empty(DType::f32, sizes);
  std::ranges::copy(values, array.data<float>());
  return array;
}

std::vector<float> values_of(const Array& array) {
  return {array.data<float>(), array.data<float>() + array.numel()};
}

/// g -> g * counter, and the counter is one more then.
void add_body(ir::Module& module) {
  ir::Graph& body = module.add_graph("body");
  const ir::Type type = ir::Type::tensor(DType::f32, {2});
  ir::Value* g = body.add_input("g", type);
  ir::Value* counter = body.add_input("counter", type);
  ir::Builder builder(body);
  body.add_output(builder.call("aten.mul.Tensor", {g, counter})->results[0]);
  builder.call("aten.add_.Scalar", {counter, 1.0});
}

/// (2 x, gradient by the function above) * counter; `kept` is what the function keeps.
Tensors counted(nn::Trace& trace, const Tensors& in, ir::Value* kept) {
  ir::Builder& builder = trace.builder();
  add_body(builder.graph().module());
  ir::Value* doubled = builder.call("aten.mul.Scalar", {in[0].value(), 2.0})->results[0];
  const ir::Values made = builder
                              .call("tandem.custom_gradient",
                                    {ir::Values{doubled}, ir::Values{in[0].value()},
                                     ir::Values{kept}, ir::Ints{sym::Expr(0)}, std::string("body")})
                              ->results;
  return {nn::Tensor(builder, made[0]) * in[1]};
}

AotFunction function() {
  return aot_function(
      [](nn::Trace& trace, const Tensors& in) { return counted(trace, in, in[1].value()); },
      {{"x", DType::f32, {2}, true}, {"counter", DType::f32, {2}}});
}

TEST(LaterInputs, BackwardWritesTheCallersArray) {
  AotFunction compiled = function();
  Array counter = array_of({3, 4});
  AotFunction::Forward call = compiled.forward(std::vector{array_of({1, 2}), counter});
  EXPECT_THAT(values_of(counter), ElementsAre(3, 4));
  // d/dx goes through `* counter`, which was saved, and the body, which reads it as it is now.
  const auto gradients = compiled.backward(call.saved, std::vector{array_of({1, 1})}, true);
  EXPECT_THAT(values_of(*gradients[0]), ElementsAre(9, 16));
  EXPECT_THAT(values_of(counter), ElementsAre(4, 5));
}

TEST(LaterInputs, EachBackwardSeesWhatTheOneBeforeWrote) {
  AotFunction compiled = function();
  Array counter = array_of({3, 4});
  AotFunction::Forward first = compiled.forward(std::vector{array_of({1, 2}), counter});
  counter.data<float>()[0] = 10;  // by the caller
  AotFunction::Forward second = compiled.forward(std::vector{array_of({1, 2}), counter});
  compiled.backward(second.saved, std::vector{array_of({1, 1})});
  EXPECT_THAT(values_of(counter), ElementsAre(11, 5));
  compiled.backward(first.saved, std::vector{array_of({1, 1})});
  EXPECT_THAT(values_of(counter), ElementsAre(12, 6));
}

TEST(LaterInputs, WhatForwardMadeIsNotWritten) {
  const auto compile = [] {
    aot_function(
        [](nn::Trace& trace, const Tensors& in) {
          ir::Value* made = trace.builder().call("aten.exp", {in[1].value()})->results[0];
          return counted(trace, in, made);
        },
        {{"x", DType::f32, {2}, true}, {"counter", DType::f32, {2}}});
  };
  EXPECT_THAT(compile, ThrowsMessage<Unsupported>(HasSubstr("writes to %counter")));
}

/// A weight, and a counter that forward and backward count in.
class Counting : public nn::Module {
 public:
  /// The sum of (2 w, gradient by the function above) * counter.
  Tensors loss(nn::Trace& trace) const {
    const nn::Tensor now = ops::call(trace.builder(), "aten.add_.Scalar", {trace(counter_), 1.0});
    return {ops::sum_all(counted(trace, {trace(w_), now}, now.value())[0])};
  }
  /// Backward writes to the weight instead.
  Tensors loss_of_itself(nn::Trace& trace) const {
    const nn::Tensor w = trace(w_);
    return {ops::sum_all(counted(trace, {w, ops::ones_like(w)}, w.value())[0])};
  }

 private:
  nn::Parameter w_{*this, "w", {2}, nn::Init::ones()};
  nn::Parameter counter_{*this, "counter", {2}, nn::Init::zeros(), DType::f32, false};
};

TEST(LaterInputs, OfATrainingStep) {
  const Counting net;
  State state = State::initial(net, 1);
  BoundProgram step = train_step([&](nn::Trace& trace, const Tensors&) { return net.loss(trace); },
                                 state, {}, nn::Sgd(0.5));
  // Forward makes the counter 1, which the gradient is multiplied by twice; backward makes it 2.
  EXPECT_FLOAT_EQ(*std::get<Array>(step.run({})[0]).data<float>(), 4);
  EXPECT_THAT(values_of(state.at("counter")), ElementsAre(2, 2));
  EXPECT_THAT(values_of(state.at("w")), ElementsAre(0.5F, 0.5F));
  step.run({});  // 3, then 4
  EXPECT_THAT(values_of(state.at("counter")), ElementsAre(4, 4));
  EXPECT_THAT(values_of(state.at("w")), ElementsAre(-4, -4));
}

/// The optimizer goes on from what the step has written.
TEST(LaterInputs, OfAParameterOfATrainingStep) {
  const Counting net;
  State state = State::initial(net, 1);
  BoundProgram step =
      train_step([&](nn::Trace& trace, const Tensors&) { return net.loss_of_itself(trace); }, state,
                 {}, nn::Sgd(0.25));
  step.run({});  // the gradient is w, and backward writes w + 1
  EXPECT_THAT(values_of(state.at("w")), ElementsAre(1.75F, 1.75F));
}

}  // namespace
}  // namespace tandem
