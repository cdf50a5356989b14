// Calls of a compiled function whose inputs share memory with one that it writes: what operators
// one after the other would give, or a clear refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/diagnostic.h"
#include "driver/api.h"
#include "driver/graph_function.h"
#include "runtime/overlap.h"
#include "test/driver/arrays.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;
using runtime::Array;
using test::element;
using test::vector_of;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Dims = std::vector<int64_t>;
using Floats = std::vector<float>;

Floats values_of(const runtime::Result& result) {
  const Array array = std::get<Array>(result).contiguous();
  return {array.data<float>(), array.data<float>() + array.numel()};
}

Array part(const Array& all, int64_t size, int64_t offset, int64_t stride = 1) {
  return all.as_strided(Dims{size}, Dims{stride}, offset);
}

/// a is doubled; a + b is returned.
Tensors double_first(nn::Trace& trace, const Tensors& in) {
  ops::call(trace.builder(), "aten.mul_.Scalar", {in[0], 2});
  return {in[0] + in[1]};
}

AotFunction doubling(const AotOptions& options = {}) {
  return aot_function(double_first, {{"a", DType::f32, {"n"}}, {"b", DType::f32, {"n"}}}, options);
}

TEST(SharedMemory, AReaderSeesWhatIsWrittenThroughAnotherInput) {
  AotFunction function = doubling();
  const Array all = vector_of({1, 2, 3, 4, 5, 6});
  AotFunction::Forward call = function.forward(std::vector{part(all, 4, 0), part(all, 4, 2)});
  EXPECT_THAT(values_of(call.outputs[0]), ElementsAre(2 + 6, 4 + 8, 6 + 5, 8 + 6));
  EXPECT_THAT(values_of(all), ElementsAre(2, 4, 6, 8, 5, 6));
}

TEST(SharedMemory, OtherPlacesStridesAndSizesAreOtherPrograms) {
  AotFunction function = doubling();
  for (int64_t n : {3, 5}) {
    for (int64_t offset : {0, 1, 2, 5}) {
      for (int64_t stride : {1, 2}) {
        Floats before;
        for (int64_t i = 0; i < 20; ++i) before.push_back(static_cast<float>(i + 1));
        const Array all = vector_of(before);
        AotFunction::Forward call =
            function.forward(std::vector{part(all, n, 0, 2), part(all, n, offset, stride)});
        Floats now = before, sum;
        for (int64_t i = 0; i < n; ++i) now[static_cast<size_t>(2 * i)] *= 2;
        for (int64_t i = 0; i < n; ++i)
          sum.push_back(now[static_cast<size_t>(2 * i)] +
                        now[static_cast<size_t>(offset + stride * i)]);
        EXPECT_THAT(values_of(all), ElementsAreArray(now)) << offset << " " << stride;
        EXPECT_THAT(values_of(call.outputs[0]), ElementsAreArray(sum)) << offset << " " << stride;
      }
    }
  }
}

TEST(SharedMemory, ViewsOfInputsStayViewsOfTheCallersInputs) {
  AotOptions options;
  options.share_outputs = true;
  AotFunction function = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        ops::call(trace.builder(), "aten.add_.Scalar", {in[0], 100});
        return {ops::call(trace.builder(), "aten.slice.Tensor", {in[1], 0, 1, 3}), in[0]};
      },
      {{"whole", DType::f32, {6}}, {"tail", DType::f32, {4}}}, options);
  const Array all = vector_of({1, 2, 3, 4, 5, 6});
  const Array tail = part(all, 4, 2);
  const std::string signature = function.signature();
  AotFunction::Forward call = function.forward(std::vector{all, tail});
  EXPECT_THAT(values_of(call.outputs[0]), ElementsAre(104, 105));
  EXPECT_EQ(std::get<Array>(call.outputs[0]).raw(), all.data<float>() + 3);
  EXPECT_EQ(std::get<Array>(call.outputs[1]).raw(), all.raw());
  EXPECT_THAT(signature, HasSubstr("returns 0: aten.slice.Tensor of input %tail"));
}

/// The gradient is of an input of its own; what is saved is as it was when it was read.
TEST(SharedMemory, GradientsOfOtherInputs) {
  AotFunction function = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        Tensor product = in[1] * in[2];
        ops::call(trace.builder(), "aten.add_.Scalar", {in[0], 1});
        return {product, in[1] * in[2]};
      },
      {{"a", DType::f32, {2}}, {"w", DType::f32, {2}, true}, {"b", DType::f32, {2}}});
  const Array all = vector_of({1, 2, 3});
  AotFunction::Forward call =
      function.forward(std::vector{part(all, 2, 0), vector_of({10, 10}), part(all, 2, 1)});
  EXPECT_THAT(values_of(call.outputs[0]), ElementsAre(20, 30));
  EXPECT_THAT(values_of(call.outputs[1]), ElementsAre(30, 30));
  const Array ones = vector_of({1, 1});
  const std::vector<std::optional<Array>> gradients =
      function.backward(call.saved, std::vector{ones, ones});
  ASSERT_EQ(gradients.size(), 3U);
  EXPECT_FALSE(gradients[0].has_value());
  EXPECT_THAT(values_of(*gradients[1]), ElementsAre(2 + 3, 3 + 3));
  EXPECT_FALSE(call.saved.alive());
}

TEST(SharedMemory, BitsOfAnotherTypeOfOneSize) {
  AotFunction function = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        ops::call(trace.builder(), "aten.mul_.Scalar", {in[0], 2});
        return {ops::call(trace.builder(), "aten.view.dtype", {in[1], DType::f32})};
      },
      {{"x", DType::f32, {3}}, {"bits", DType::i32, {2}}});
  const Array x = vector_of({1, 2, 3});
  const Array bits = Array::borrow(x.data<float>() + 1, DType::i32, Dims{2});
  EXPECT_THAT(values_of(function.forward(std::vector{x, bits}).outputs[0]), ElementsAre(4, 6));
  EXPECT_THAT(values_of(x), ElementsAre(2, 4, 6));
}

TEST(SharedMemory, WhatCannotBeToldIsRefusedByName) {
  AotFunction graded =
      aot_function(double_first, {{"a", DType::f32, {2}}, {"b", DType::f32, {2}, true}});
  const Array all = vector_of({1, 2, 3});
  const std::vector<Array> shared{part(all, 2, 0), part(all, 2, 1)};
  EXPECT_THAT([&] { graded.forward(shared); },
              ThrowsMessage<UserError>(
                  HasSubstr("input 'b' requires a gradient and shares memory with 'a'")));
  AotFunction recorded = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        ops::call(trace.builder(), "aten.add_.Tensor", {in[0], in[2]});
        return {in[1] * in[2]};
      },
      {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}, {"w", DType::f32, {2}, true}});
  EXPECT_THAT([&] { recorded.forward(std::vector{shared[0], shared[1], vector_of({1, 1})}); },
              ThrowsMessage<UserError>(HasSubstr("is written with history")));
  AotFunction mixed = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        ops::call(trace.builder(), "aten.add_.Scalar", {in[0], 1});
        return {in[1] + in[1]};
      },
      {{"a", DType::f32, {2}}, {"bytes", DType::u8, {4}}});
  const Array bytes = Array::borrow(all.raw(), DType::u8, Dims{4});
  EXPECT_THAT([&] { mixed.forward(std::vector{part(all, 2, 0), bytes}); },
              ThrowsMessage<UserError>(HasSubstr("elements of one size")));
  EXPECT_THAT(values_of(all), ElementsAre(1, 2, 3));
}

/// Of n elements each, the second one a place further.
AotFunction::Forward shifted(AotFunction& function, const Array& all, int64_t n) {
  return function.forward(std::vector{part(all, n, 0), part(all, n, 1)});
}

TEST(SharedMemory, TheWayToShareThatWasUsedLongestAgoIsDropped) {
  AotFunction function = doubling();
  const Array all = vector_of(Floats(64, 1));
  for (int64_t n = 2; n < 18; ++n) shifted(function, all, n);
  EXPECT_EQ(function.shared_call_counts().dropped, 0);
  shifted(function, all, 2);  // 3 is the oldest one now
  shifted(function, all, 18);
  EXPECT_EQ(function.shared_call_counts().dropped, 1);
  shifted(function, all, 2);
  EXPECT_EQ(function.shared_call_counts().compiled, 17);
  const Array fresh = vector_of({1, 2, 3, 4});
  EXPECT_EQ(element(shifted(function, fresh, 3).outputs[0], 0), 2 + 4);
  EXPECT_EQ(function.shared_call_counts().compiled, 18);
  EXPECT_EQ(function.shared_call_counts().calls, 20);
}

TEST(SharedMemory, WhatForwardSavedOutlivesItsProgram) {
  AotFunction function = aot_function(
      [](nn::Trace& trace, const Tensors& in) -> Tensors {
        ops::call(trace.builder(), "aten.mul_.Scalar", {in[0], 2});
        return {in[1] * in[2]};
      },
      {{"a", DType::f32, {"n"}}, {"b", DType::f32, {"n"}}, {"w", DType::f32, {1}, true}});
  const Array all = vector_of(Floats(64, 1));
  const auto call = [&](const Array& memory, int64_t n) {
    return function.forward(std::vector{part(memory, n, 0), part(memory, n, 1), vector_of({1})});
  };
  AotFunction::Forward first = call(vector_of({1, 1, 5}), 2);
  for (int64_t n = 3; n < 19; ++n) call(all, n);
  EXPECT_EQ(function.shared_call_counts().dropped, 1);
  const std::optional<Array> gradient =
      function.backward(first.saved, std::vector{vector_of({1, 1})}).at(2);
  ASSERT_TRUE(gradient.has_value());
  EXPECT_THAT(values_of(*gradient), ElementsAre(2 + 5));
}

TEST(SharedMemory, TwoThreadsMayCall) {
  AotFunction function = doubling();
  const auto work = [&](int64_t offset) {
    for (int i = 0; i < 20; ++i) {
      const Array all = vector_of({1, 2, 3, 4, 5, 6});
      AotFunction::Forward call =
          function.forward(std::vector{part(all, 3, 0), part(all, 3, offset)});
      EXPECT_EQ(element(call.outputs[0], 0), 2 + (offset == 1 ? 4 : 6));
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
}

/// Programs that are not made for it say so: nothing is written.
TEST(SharedMemory, OtherProgramsRefuseTheCall) {
  State state;
  BoundProgram program =
      compile_forward(double_first, state, {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}});
  const Array all = vector_of({1, 2, 3, 4});
  EXPECT_THAT([&] { program.run(std::vector{part(all, 2, 0), part(all, 2, 1)}); },
              ThrowsMessage<runtime::OverlapError>(HasSubstr("'a', which it writes, shares")));
  EXPECT_THAT(values_of(all), ElementsAre(1, 2, 3, 4));
  program.run(std::vector{part(all, 2, 0), part(all, 2, 2)});
  EXPECT_THAT(values_of(all), ElementsAre(2, 4, 3, 4));
}

/// Symbols of the text become numbers; bases come behind what is left.
TEST(SharedMemory, AGraphFunctionOverBases) {
  const driver::GraphFunction function(
      "graph @f(%s0: i64, %a: f32[s0], %b: f32[s0], %c: f32[s0]) where s0 in [2, 64] {\n"
      "  %0 = aten.mul_.Tensor(%a, %c)\n"
      "  %1 = aten.view(%b, [s0, 1])\n"
      "  %2 = aten.exp(%b)\n"
      "  return %1, %2\n}\n",
      {});
  driver::SharedMemory memory{DType::f32, {6}, {1}, false, {{"a", {1}, 0}, {"b", {1}, 2}}};
  std::unique_ptr<driver::GraphFunction> over = function.within(std::vector{memory}, {{"s0", 4}});
  EXPECT_THAT(over->names(), ElementsAre("s0", "c", "base0"));
  EXPECT_EQ(over->signature(), function.signature());
  EXPECT_THAT(over->replay().returned, ElementsAreArray(function.replay().returned));
  const Array all = vector_of({0, 1, 2, 3, 4, 5});
  const std::vector<runtime::Argument> arguments{int64_t{4}, vector_of({2, 2, 2, 2}), all};
  over->forward(arguments);
  EXPECT_THAT(values_of(all), ElementsAre(0, 2, 4, 6, 4, 5));
  EXPECT_THAT(
      [&] {
        function.within(
            std::vector{driver::SharedMemory{DType::f32, {6}, {1}, false, {{"d", {1}, 0}}}},
            {{"s0", 4}});
      },
      ThrowsMessage<UserError>(HasSubstr("has no input %d")));
}

}  // namespace
}  // namespace tandem
