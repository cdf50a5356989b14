// Sizes that only data tell, in C++: what such programs compute, at any count and in any order of
// calls, what their gradients are, and what is said of numbers out of their range.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "driver/api.h"
#include "ir/text.h"
#include "nn/data_sizes.h"
#include "ops/opdef.h"
#include "test/driver/arrays.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;
using nn::Trace;
using runtime::Array;
using test::vector_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

template <class T>
std::vector<T> elements(const runtime::Result& result) {
  const Array array = std::get<Array>(result).contiguous();
  return {array.data<T>(), array.data<T>() + array.numel()};
}

Tensor positive(Tensor x) { return ops::compare("gt", x, 0.0); }

TEST(DataSizes, NonzeroAndWhatFollows) {
  State state;
  BoundProgram program = compile_forward(
      [](Trace& trace, const Tensors& in) -> Tensors {
        const Tensor places = nn::nonzero(positive(in[0]));
        const Tensor chosen = nn::masked_select(in[0], positive(in[0]));
        const Tensor ones = ops::full(trace.builder(), {chosen.size(0)}, 1, DType::f32);
        return {places, chosen * 2.0, ops::sum_all(chosen + ones)};
      },
      state, {{"x", DType::f32, {5}}});
  const std::vector<std::vector<float>> calls{
      {1, -1, 2, -2, 3}, {-1, -1, -1, -1, -1}, {1, 2, 3, 4, 5}, {-1, 4, -1, -1, -1}};
  for (const std::vector<float>& x : calls) {
    std::vector<int64_t> places;
    std::vector<float> doubled;
    float sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] <= 0) continue;
      places.push_back(static_cast<int64_t>(i));
      doubled.push_back(2 * x[i]);
      sum += x[i] + 1;
    }
    const std::vector<runtime::Result> results = program.run(std::vector{vector_of(x)});
    EXPECT_EQ(elements<int64_t>(results[0]), places);
    EXPECT_EQ(elements<float>(results[1]), doubled);
    EXPECT_EQ(elements<float>(results[2])[0], sum);
  }
}

TEST(DataSizes, UniqueOfEachElement) {
  State state;
  BoundProgram program = compile_forward(
      [](Trace&, const Tensors& in) -> Tensors {
        const nn::Unique unique = nn::unique(in[0]);
        return {unique.values, unique.inverse, unique.counts};
      },
      state, {{"x", DType::f32, {6}}});
  const std::vector<runtime::Result> results =
      program.run(std::vector{vector_of({2, 1, 2, 5, 1, 2})});
  EXPECT_THAT(elements<float>(results[0]), ElementsAre(1, 2, 5));
  EXPECT_THAT(elements<int64_t>(results[1]), ElementsAre(1, 0, 1, 2, 0, 1));
  EXPECT_THAT(elements<int64_t>(results[2]), ElementsAre(2, 3, 1));
}

/// As many ones as there are positive elements.
BoundProgram ones_of(sym::Range range) {
  State state;
  return compile_forward(
      [range](Trace& trace, const Tensors& in) -> Tensors {
        const Tensor count = ops::sum_all(ops::to(positive(in[0]), DType::i64));
        return {ops::full(trace.builder(), {nn::item(count, range)}, 1, DType::f32)};
      },
      state, {{"x", DType::f32, {4}}});
}

TEST(DataSizes, NumberOutOfRange) {
  BoundProgram program = ones_of({2, 3});
  EXPECT_EQ(elements<float>(program.run(std::vector{vector_of({1, 1, -1, -1})})[0]).size(), 2u);
  EXPECT_THAT([&] { program.run(std::vector{vector_of({1, 1, 1, 1})}); },
              ThrowsMessage<DataError>(HasSubstr("data0 is 4, which is not in [2, 3]")));
  EXPECT_THAT([&] { program.run(std::vector{vector_of({-1, 1, -1, -1})}); },
              ThrowsMessage<DataError>(HasSubstr("data0 is 1, which is not in [2, 3]")));
  EXPECT_EQ(elements<float>(program.run(std::vector{vector_of({1, 1, 1, -1})})[0]).size(), 3u);
}

/// A training step over the chosen elements alone: the first of Adam's goes by `rate` where there
/// is a gradient.
TEST(DataSizes, OneProgramTrains) {
  struct Net : nn::Module {
    nn::Parameter weight{*this, "weight", {4}, nn::Init::zeros()};
  } net;
  State state = State::initial(net, 1);
  state.set("weight", vector_of({1, 2, 3, 4}));
  BoundProgram step = train_step(
      [&](Trace& trace, const Tensors& in) -> Tensors {
        const Tensor scaled = trace(net.weight) * in[0];
        const Tensor chosen = nn::index(scaled, positive(in[0]));
        return {ops::sum_all(chosen * chosen)};
      },
      state, {{"x", DType::f32, {4}}}, nn::adamw(0.1, 0));
  const std::vector<runtime::Result> loss = step.run(std::vector{vector_of({1, -1, 2, -2})});
  EXPECT_EQ(elements<float>(loss[0])[0], 1 + 36);
  const std::vector<float> weight = elements<float>(state.arrays().at("weight"));
  const std::vector<float> expected{0.9F, 2, 2.9F, 4};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(weight[i], expected[i], 1e-5);
}

}  // namespace
}  // namespace tandem
