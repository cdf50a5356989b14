// Memory budgets through the C++ API: fewer bytes, the same gradients; bytes of a step are kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tandem/tandem.h>

#include <charconv>
#include <cmath>

#include "driver/step_memory.h"
#include "test/driver/models.h"

namespace tandem::driver {
namespace {

constexpr int64_t kSide = 96;

/// Products and functions in turn, with dropout.
nn::Tensors chain(nn::Trace& trace, const nn::Tensors& in) {
  nn::Tensor x = in[0];
  for (int i = 0; i < 5; ++i) {
    x = ops::tanh(ops::mm(x, in[1]) * 0.2);
    x = ops::call(trace.builder(), "aten.dropout", {x, 0.1, true});
  }
  return {x};
}

Array wave() {
  Array array = Array::zeros(DType::f32, std::vector<int64_t>{kSide, kSide});
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = std::sin(static_cast<float>(i));
  return array;
}

AotFunction chain_within(std::string_view budget, std::string_view solver = "dp") {
  return aot_function(
      chain, {{"x", DType::f32, {kSide, kSide}, true}, {"w", DType::f32, {kSide, kSide}, true}},
      AotOptions::within(budget, solver));
}

struct Differentiated {
  int64_t saved = 0;
  std::vector<Array> gradients;
};

Differentiated differentiated(AotFunction function) {
  AotFunction::Forward call = function.forward(std::vector{wave(), wave()});
  Differentiated result;
  result.saved = call.saved.bytes();
  for (std::optional<Array>& gradient : function.backward(call.saved, std::vector{wave()}))
    result.gradients.push_back(gradient->contiguous());
  return result;
}

void expect_equal(const Differentiated& a, const Differentiated& b) {
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i)
    for (int64_t k = 0; k < a.gradients[i].numel(); ++k)
      ASSERT_NEAR(a.gradients[i].data<float>()[k], b.gradients[i].data<float>()[k], 1e-4)
          << i << " " << k;
}

TEST(Budget, FractionsSaveLessAndGiveTheSameGradients) {
  const Differentiated plain = differentiated(chain_within("default"));
  for (const char* solver : {"dp", "greedy", "exact"}) {
    int64_t last = INT64_MAX;
    for (const char* budget : {"1", "0.75", "0.5", "0.25", "0", "min_memory"}) {
      const Differentiated found = differentiated(chain_within(budget, solver));
      EXPECT_LE(found.saved, last) << budget << " " << solver;
      last = found.saved;
      expect_equal(found, plain);
    }
    EXPECT_EQ(last, 2 * kSide * kSide * 4);  // the inputs, by reference
  }
}

/// The number in "it takes 1234, arguments included".
int64_t least_of(const std::string& text) {
  const std::string_view mark = "it takes ";
  int64_t bytes = 0;
  const char* begin = text.data() + text.find(mark) + mark.size();
  std::from_chars(begin, text.data() + text.size(), bytes);
  return bytes;
}

TEST(Budget, BytesAreKeptOrAnErrorNamesWhatIsPossible) {
  const std::string text = error_of([] { chain_within("1KiB"); });
  EXPECT_THAT(text, testing::HasSubstr("no choice found holds a step in 1024 bytes"));
  const int64_t least = least_of(text);
  AotFunction function = chain_within(std::to_string(least) + "B");
  const std::optional<StepMemory> memory =
      step_memory(function.forward_executable().loaded(), &function.backward_executable().loaded(),
                  /*results=*/1);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->most(), least);
  EXPECT_EQ(memory->arguments, 3 * kSide * kSide * 4);  // and the tangent
  expect_equal(differentiated(std::move(function)), differentiated(chain_within("default")));
}

TEST(Budget, OfSizesThatAreNotKnownIsAnError) {
  const auto sine = [](nn::Trace&, const nn::Tensors& in) -> nn::Tensors {
    return {ops::sin(ops::sin(in[0]))};
  };
  EXPECT_THAT(error_of([&] {
                aot_function(sine, {{"x", DType::f32, {"n"}, true}}, AotOptions::within("1MiB"));
              }),
              testing::HasSubstr("needs known sizes"));
  EXPECT_THAT(error_of([] { AotOptions::within("much"); }), testing::HasSubstr("'512MiB'"));
}

}  // namespace
}  // namespace tandem::driver
