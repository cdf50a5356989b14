// Folding keeps every bit: on special values where an identity could lose a sign or a NaN, and on
// random programs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "test/passes/programs.h"

namespace tandem {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;

void run(ir::Graph& graph, std::initializer_list<std::string_view> names) {
  driver::GraphCtx ctx;
  for (std::string_view name : names) driver::run_pass(graph, *driver::find_pass(name), ctx);
}

std::vector<Result> results(ir::Graph& graph, const std::vector<Argument>& arguments) {
  driver::Options options;
  options.interpret = true;
  return driver::finish(graph, options)->run(arguments);
}

void expect_same_bits(const std::vector<Result>& a, const std::vector<Result>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    Array x = std::get<Array>(a[i]).contiguous();
    Array y = std::get<Array>(b[i]).contiguous();
    ASSERT_EQ(x.nbytes(), y.nbytes());
    EXPECT_EQ(std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.nbytes())), 0) << "result " << i;
  }
}

Array special_values() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float values[] = {0.0F, -0.0F, 1.5F, -1.5F, kInf, -kInf, std::nanf(""), 1e-42F, 3e38F};
  Array array = Array::empty(DType::f32, std::vector<int64_t>{9});
  std::memcpy(array.raw(), values, sizeof values);
  return array;
}

TEST(ConstantFold, KeepsSpecialValues) {
  for (const char* formula :
       {"aten.mul.Scalar(%x, 1)", "aten.mul.Scalar(%x, -1)", "aten.div.Scalar(%x, 1)",
        "aten.add.Scalar(%x, 0)", "aten.add.Scalar(%x, 0.0)", "aten.add.Scalar(%x, -0.0)",
        "aten.sub.Scalar(%x, 0.0)", "aten.sub.Scalar(%x, -0.0)", "aten.sub.Scalar(%x, 0.0, -1)",
        "aten.pow.Tensor_Scalar(%x, 1)", "aten.clone(%x)"}) {
    SCOPED_TRACE(formula);
    std::string text = std::string("graph @f(%x: f32[9]) {\n  %0 = ") + formula +
                       "\n  %1 = aten.neg(%0)\n  return %1\n}";
    std::unique_ptr<ir::Module> plain = ir::parse_module(text, ops::op_table());
    std::unique_ptr<ir::Module> folded = ir::parse_module(text, ops::op_table());
    run(*folded->graphs()[0], {"constant_fold", "dce"});
    std::vector<Argument> arguments{special_values()};
    expect_same_bits(results(*plain->graphs()[0], arguments),
                     results(*folded->graphs()[0], arguments));
  }
}

TEST(ConstantFold, KeepsRandomPrograms) {
  for (uint32_t number = 0; number < 60; ++number) {
    SCOPED_TRACE(number);
    std::vector<std::vector<Result>> both;
    for (bool folds : {false, true}) {
      std::unique_ptr<ir::Module> module = test::random_program(number, false);
      ir::Graph& graph = *module->graphs()[0];
      run(graph, {"functionalize", "decompose_composite", "rng", "joint", "decompose_core"});
      if (folds) run(graph, {"constant_fold"});
      run(graph, {"cse", "dce"});
      std::mt19937 random(number);
      std::vector<Argument> arguments;
      for (const ir::Value* input : graph.inputs())
        arguments.push_back(test::random_argument(*input, random, 4));
      both.push_back(results(graph, arguments));
    }
    expect_same_bits(both[0], both[1]);
  }
}

}  // namespace
}  // namespace tandem
