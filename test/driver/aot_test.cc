// aot_function: forward and backward apart, any number of forwards waiting, handles that say when
// they are used up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/diagnostic.h"
#include "driver/api.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;
using runtime::Array;
using testing::HasSubstr;
using testing::ThrowsMessage;

Array filled(std::vector<int64_t> sizes, float first, float step = 0.25F) {
  Array array = Array::empty(DType::f32, sizes);
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = first + step * static_cast<float>(i);
  return array;
}

float element(const runtime::Result& result, int64_t i) {
  return std::get<Array>(result).data<float>()[i];
}

AotOptions with(driver::Partition partition) {
  AotOptions options;
  options.partition = partition;
  return options;
}

Tensors sine_of_product(nn::Trace&, const Tensors& in) { return {ops::sin(in[0] * in[1])}; }

AotFunction sine(driver::Partition partition = driver::Partition::standard) {
  return aot_function(sine_of_product, {{"x", DType::f32, {"n"}, true}, {"y", DType::f32, {"n"}}},
                      with(partition));
}

TEST(Aot, GradientsOfWhatRequiresThem) {
  for (driver::Partition partition : {driver::Partition::standard, driver::Partition::min_cut}) {
    AotFunction function = sine(partition);
    Array x = filled({5}, 0.5);
    Array y = filled({5}, -1);
    AotFunction::Forward call = function.forward(std::vector{x, y});
    std::vector<std::optional<Array>> gradients =
        function.backward(call.saved, std::vector{filled({5}, 1, 0)});
    ASSERT_EQ(gradients.size(), 2U);
    EXPECT_FALSE(gradients[1].has_value());
    for (int64_t i = 0; i < 5; ++i) {
      float a = x.data<float>()[i];
      float b = y.data<float>()[i];
      EXPECT_NEAR(element(call.outputs[0], i), std::sin(a * b), 1e-6);
      EXPECT_NEAR(gradients[0]->data<float>()[i], b * std::cos(a * b), 1e-6);
    }
  }
}

TEST(Aot, ForwardsWaitForTheirBackwardInAnyOrderAndSize) {
  AotFunction function = sine();
  std::vector<AotFunction::Forward> calls;
  for (int64_t n = 2; n < 6; ++n)
    calls.push_back(
        function.forward(std::vector{filled({n}, static_cast<float>(n)), filled({n}, 1, 0)}));
  for (int64_t n = 5; n >= 2; --n) {
    Array tangent = filled({n}, 1, 0);
    std::vector<std::optional<Array>> gradients =
        function.backward(calls[static_cast<size_t>(n - 2)].saved, std::vector{tangent});
    EXPECT_NEAR(gradients[0]->data<float>()[1], std::cos(static_cast<float>(n) + 0.25F), 1e-6);
  }
}

TEST(Aot, HandleIsGoodForOneBackwardUnlessRetained) {
  AotFunction function = sine();
  AotFunction::Forward call = function.forward(std::vector{filled({3}, 1), filled({3}, 2)});
  Array tangent = filled({3}, 1, 0);
  EXPECT_GT(call.saved.bytes(), 0);
  std::vector<std::optional<Array>> first =
      function.backward(call.saved, std::vector{tangent}, true);
  std::vector<std::optional<Array>> second = function.backward(call.saved, std::vector{tangent});
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(first[0]->data<float>()[i], second[0]->data<float>()[i]);
  EXPECT_FALSE(call.saved.alive());
  EXPECT_EQ(call.saved.bytes(), 0);
  EXPECT_THAT([&] { function.backward(call.saved, std::vector{tangent}); },
              ThrowsMessage<UserError>(HasSubstr("backward ran before on this forward")));
}

TEST(Aot, MovedHandleMovesWhatIsSaved) {
  AotFunction function = sine();
  AotFunction::Forward call = function.forward(std::vector{filled({3}, 1), filled({3}, 2)});
  SavedActivations moved = std::move(call.saved);
  Array tangent = filled({3}, 1, 0);
  EXPECT_FALSE(call.saved.alive());
  EXPECT_TRUE(moved.alive());
  EXPECT_THROW(function.backward(call.saved, std::vector{tangent}), UserError);
  EXPECT_EQ(function.backward(moved, std::vector{tangent}).size(), 2U);
}

TEST(Aot, MistakesAreNamedAndLeaveTheHandleGood) {
  AotFunction function = sine();
  AotFunction other = sine();
  Array three = filled({3}, 1);
  AotFunction::Forward call = function.forward(std::vector{three, three});
  EXPECT_THAT([&] { function.forward(std::vector{three}); },
              ThrowsMessage<UserError>(HasSubstr("takes 2 inputs, 1 were given")));
  EXPECT_THAT([&] { function.backward(call.saved, {}); },
              ThrowsMessage<UserError>(HasSubstr("takes 1 tangents, 0 were given")));
  EXPECT_THAT([&] { other.backward(call.saved, std::vector{three}); },
              ThrowsMessage<UserError>(HasSubstr("another function")));
  EXPECT_THROW(function.backward(call.saved, std::vector{filled({4}, 1)}), UserError);
  EXPECT_TRUE(call.saved.alive());
  EXPECT_EQ(function.backward(call.saved, std::vector{three}).size(), 2U);
}

TEST(Aot, WhatHasNoGradientIsRefusedAtOnce) {
  EXPECT_THAT(
      [] { aot_function(sine_of_product, {{"x", DType::i64, {2}, true}, {"y", DType::i64, {2}}}); },
      ThrowsMessage<UserError>(HasSubstr("only floats have gradients")));
  EXPECT_THAT([] { passes::partition_named("best"); },
              ThrowsMessage<UserError>(HasSubstr("'default', 'min_cut', 'as_read'")));
}

/// Nothing that backward reads has the summed size.
TEST(Aot, SizesAreSaved) {
  AotFunction function =
      aot_function([](nn::Trace&, const Tensors& in) -> Tensors { return {ops::sum(in[0], {1})}; },
                   {{"x", DType::f32, {"rows", "columns"}, true}});
  AotFunction::Forward first = function.forward(std::vector{filled({2, 7}, 0)});
  AotFunction::Forward second = function.forward(std::vector{filled({2, 3}, 0)});
  EXPECT_EQ(first.saved.bytes(), 0);
  std::vector<std::optional<Array>> gradients =
      function.backward(first.saved, std::vector{filled({2}, 1, 1)});
  EXPECT_THAT(gradients[0]->sizes(), testing::ElementsAre(2, 7));
  EXPECT_EQ(gradients[0]->contiguous().data<float>()[13], 2);
  gradients = function.backward(second.saved, std::vector{filled({2}, 1, 1)});
  EXPECT_THAT(gradients[0]->sizes(), testing::ElementsAre(2, 3));
}

/// Each forward draws new numbers, and its backward the same ones again, whatever ran in between.
TEST(Aot, BackwardDrawsTheNumbersOfItsForward) {
  for (bool checkpoint : {false, true}) {
    AotFunction function = aot_function(
        [checkpoint](nn::Trace& trace, const Tensors& in) -> Tensors {
          if (checkpoint) trace.builder().stamp().policy = ir::RecomputePolicy::must_recompute;
          return {ops::call(trace.builder(), "aten.dropout", {in[0], 0.5, true})};
        },
        {{"x", DType::f32, {256}, true}}, with(driver::Partition::standard));
    Array x = filled({256}, 1, 0);
    AotFunction::Forward first = function.forward(std::vector{x});
    AotFunction::Forward second = function.forward(std::vector{x});
    EXPECT_EQ(first.saved.bytes(), checkpoint ? 0 : 256);
    std::vector<float> drawn[2];
    for (AotFunction::Forward* call : {&second, &first}) {
      std::vector<std::optional<Array>> gradients = function.backward(call->saved, std::vector{x});
      for (int64_t i = 0; i < 256; ++i) {
        EXPECT_EQ(gradients[0]->data<float>()[i], element(call->outputs[0], i));
        drawn[call == &first].push_back(element(call->outputs[0], i));
      }
    }
    EXPECT_NE(drawn[0], drawn[1]);
  }
}

TEST(Aot, InputThatForwardOverwritesIsSavedAsItWas) {
  AotFunction function = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        Tensor product = in[0] * in[1];
        ops::call(trace.builder(), "aten.add_.Scalar", {in[1], 1});
        return {product};
      },
      {{"x", DType::f32, {4}, true}, {"y", DType::f32, {4}}});
  Array y = filled({4}, 1);
  AotFunction::Forward call = function.forward(std::vector{filled({4}, 1), y});
  EXPECT_EQ(y.data<float>()[0], 2);
  std::vector<std::optional<Array>> gradients =
      function.backward(call.saved, std::vector{filled({4}, 1, 0)});
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(gradients[0]->data<float>()[i], 1 + 0.25F * static_cast<float>(i));
}

/// An input that is written, a view of it, and two views of one value.
Tensors shared_memory(nn::Trace& trace, const Tensors& in) {
  ir::Builder& b = trace.builder();
  ops::call(b, "aten.mul_.Scalar", {in[0], 2});
  Tensor made = ops::exp(in[1]);
  return {in[0], ops::call(b, "aten.select.int", {ops::call(b, "aten.t", {in[0]}), 0, 1}), made,
          ops::call(b, "aten.view", {made, ir::Ints{2, 2}})};
}

TEST(Aot, WhatIsReturnedSharesMemoryAsTheFunctionSays) {
  AotOptions options;
  options.share_outputs = true;
  AotFunction function = aot_function(
      shared_memory, {{"x", DType::f32, {2, 3}}, {"y", DType::f32, {4}, true}}, options);
  EXPECT_EQ(function.signature(),
            "input %x: written recorded\nreturns 0: the input %x\n"
            "returns 1: aten.select.int of aten.t of input %x\nreturns 2: fresh, result 0\n"
            "returns 3: aten.view of result 0\n");
  Array x = filled({2, 3}, 1, 1);
  AotFunction::Forward call = function.forward(std::vector{x, filled({4}, 0, 0)});
  const auto array = [&](size_t i) { return std::get<Array>(call.outputs.at(i)); };
  EXPECT_EQ(array(0).raw(), x.raw());
  x.data<float>()[1] = 40;
  EXPECT_EQ(array(1).contiguous().data<float>()[0], 40);  // the column of 4 and 10
  EXPECT_EQ(array(1).contiguous().data<float>()[1], 10);
  EXPECT_EQ(array(3).raw(), array(2).raw());
  EXPECT_THAT(array(3).sizes(), testing::ElementsAre(2, 2));
  const std::vector<std::optional<Array>> gradients =
      function.backward(call.saved, std::vector{filled({4}, 1, 1)});
  EXPECT_EQ(gradients[1]->data<float>()[3], 4);
}

TEST(Aot, AWrittenAliasIsTheMemoryOfAnInputWithAHistoryOfItsOwn) {
  AotOptions options;
  options.share_outputs = true;
  AotFunction function = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        const Tensor alias = ops::call(trace.builder(), "aten.detach", {in[0]});
        return {ops::call(trace.builder(), "aten.mul_.Tensor", {alias, in[1]})};
      },
      {{"x", DType::f32, {4}, true}, {"w", DType::f32, {4}, true}}, options);
  EXPECT_EQ(function.signature(),
            "input %x: written through a detached alias\n"
            "returns 0: with the history of result 0, aten.detach of input %x\n");
  Array x = filled({4}, 1, 1);
  AotFunction::Forward call = function.forward(std::vector{x, filled({4}, 2, 0)});
  EXPECT_EQ(std::get<Array>(call.outputs.at(0)).raw(), x.raw());
  EXPECT_EQ(x.data<float>()[3], 8);
  const std::vector<std::optional<Array>> gradients =
      function.backward(call.saved, std::vector{filled({4}, 1, 0)});
  EXPECT_FALSE(gradients[0].has_value());
  EXPECT_EQ(gradients[1]->data<float>()[3], 4);
}

TEST(Aot, TwoThreadsMayCall) {
  AotFunction function = sine();
  auto work = [&](float start) {
    for (int i = 0; i < 50; ++i) {
      AotFunction::Forward call =
          function.forward(std::vector{filled({64}, start), filled({64}, 1, 0)});
      std::vector<std::optional<Array>> gradients =
          function.backward(call.saved, std::vector{filled({64}, 1, 0)});
      EXPECT_NEAR(gradients[0]->data<float>()[3], std::cos(start + 0.75F), 1e-6);
    }
  };
  std::thread other(work, 1.F);
  work(2.F);
  other.join();
}

}  // namespace
}  // namespace tandem
