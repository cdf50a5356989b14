// Loops and branches in C++: what they compute and what their gradients are, beside the same
// formula in plain C++; and what is said of bodies that do not fit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/diagnostic.h"
#include "driver/api.h"
#include "ir/text.h"
#include "nn/control.h"
#include "nn/layers.h"
#include "ops/opdef.h"
#include "test/driver/arrays.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;
using nn::Trace;
using runtime::Array;
using test::element;
using test::vector_of;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Doubles what is below `limit` in sum, and counts.
Tensors double_up(Trace& trace, const Tensors& in) {
  const Tensor count = ops::full(trace.builder(), {}, 0, DType::i64);
  return nn::while_loop(
      trace, {count, in[0]}, {in[1]},
      [](Trace&, const Tensors& x) {
        return ops::compare("lt", ops::sum_all(x[1]), ops::sum_all(x[2]));
      },
      [](Trace& inner, const Tensors& x) -> Tensors {
        return {ops::call(inner.builder(), "aten.add.Scalar", {x[0], 1}), x[1] * 2};
      });
}

TEST(Control, WhileLoopStopsByData) {
  State state;
  BoundProgram program =
      compile_forward(double_up, state, {{"x", DType::f32, {3}}, {"limit", DType::f32, {1}}});
  for (const auto& [limit, steps] : {std::pair{5.0F, 0}, {7.0F, 1}, {100.0F, 5}, {1e6F, 18}}) {
    const std::vector<runtime::Result> results =
        program.run(std::vector{vector_of({1, 2, 3}), vector_of({limit})});
    EXPECT_EQ(*std::get<Array>(results[0]).data<int64_t>(), steps) << limit;
    EXPECT_EQ(element(results[1], 2), std::ldexp(3.0F, steps)) << limit;
  }
}

TEST(Control, SameInTheInterpreter) {
  for (const bool interpret : {false, true}) {
    ir::Module module(ops::op_table());
    ir::Graph& graph = module.add_graph("g");
    Trace trace(graph, false);
    const Tensors in{trace.input("x", DType::f32, {3}), trace.input("limit", DType::f32, {1})};
    for (const Tensor& result : double_up(trace, in)) graph.add_output(result.value());
    driver::Options options;
    options.interpret = interpret;
    const std::unique_ptr<driver::Executable> program = driver::compile(graph, options);
    const std::vector<runtime::Argument> arguments{vector_of({1, 2, 3}), vector_of({100})};
    EXPECT_EQ(element(program->run(arguments)[1], 0), 32) << interpret;
  }
}

Tensors sine_or_square(Trace& trace, const Tensors& in) {
  const Tensor positive = ops::compare("gt", ops::sum_all(in[0]), 0);
  return nn::cond(
      trace, positive, in, [](Trace&, const Tensors& x) -> Tensors { return {ops::sin(x[0])}; },
      [](Trace&, const Tensors& x) -> Tensors { return {x[0] * x[0] * x[1]}; });
}

TEST(Control, BranchAndItsGradients) {
  AotFunction function = aot_function(
      sine_or_square, {{"x", DType::f32, {"n"}, true}, {"y", DType::f32, {"n"}, true}});
  for (const float sign : {1.0F, -1.0F}) {
    const Array x = vector_of({0.5F * sign, 2 * sign});
    const Array y = vector_of({3, 4});
    AotFunction::Forward call = function.forward(std::vector{x, y});
    const std::vector<std::optional<Array>> gradients =
        function.backward(call.saved, std::vector{vector_of({1, 1})});
    for (int64_t i = 0; i < 2; ++i) {
      const float a = element(x, i);
      const float b = element(y, i);
      const bool sine = sign > 0;
      EXPECT_NEAR(element(call.outputs[0], i), sine ? std::sin(a) : a * a * b, 1e-5);
      EXPECT_NEAR(element(*gradients[0], i), sine ? std::cos(a) : 2 * a * b, 1e-5);
      EXPECT_NEAR(element(*gradients[1], i), sine ? 0 : a * a, 1e-5);
    }
  }
}

/// c' = c w + row, y = c'
Tensors recurrence(Trace& trace, const Tensors& in, bool reverse) {
  const nn::Scanned scanned =
      nn::scan(trace, {in[0]}, {in[1]}, {in[2]},
               [](Trace&, const Tensors& c, const Tensors& row, const Tensors& w) -> nn::Scanned {
                 const Tensor next = c[0] * w[0] + row[0];
                 return {{next}, {next * 1.0}};
               },
               {.reverse = reverse});
  return {scanned.carried[0], scanned.rows[0]};
}

/// With its gradients, for tangents of ones.
struct Recurrence {
  float last = 0, c = 0, w = 0;
  std::vector<float> y, row;
};
Recurrence by_hand(float c, const std::vector<float>& rows, float w, bool reverse) {
  const size_t n = rows.size();
  Recurrence result{0, 0, 0, std::vector<float>(n), std::vector<float>(n)};
  const auto at = [&](size_t step) { return reverse ? n - 1 - step : step; };
  std::vector<float> before;
  for (size_t step = 0; step < n; ++step) {
    before.push_back(c);
    result.y[at(step)] = c = c * w + rows[at(step)];
  }
  result.last = c;
  float grad = 1;
  for (size_t step = n; step-- > 0;) {
    grad += 1;
    result.row[at(step)] = grad;
    result.w += grad * before[step];
    grad *= w;
  }
  result.c = grad;
  return result;
}

TEST(Control, ScanAndItsGradientsOfEveryLength) {
  for (const bool reverse : {false, true}) {
    AotFunction function = aot_function(
        [&](Trace& trace, const Tensors& in) { return recurrence(trace, in, reverse); },
        {{"c", DType::f32, {1}, true},
         {"rows", DType::f32, {"n", 1}, true},
         {"w", DType::f32, {1}, true}});
    for (int64_t n = 2; n < 7; ++n) {
      std::vector<float> rows;
      for (int64_t i = 0; i < n; ++i) rows.push_back(0.3F * static_cast<float>(i) - 0.5F);
      const Array stacked =
          vector_of(rows).as_strided(std::array{n, int64_t{1}}, std::array{int64_t{1}, int64_t{1}});
      AotFunction::Forward call =
          function.forward(std::vector{vector_of({2}), stacked, vector_of({0.7F})});
      const Array ones = vector_of(std::vector<float>(static_cast<size_t>(n), 1))
                             .as_strided(stacked.sizes(), stacked.strides());
      const std::vector<std::optional<Array>> gradients =
          function.backward(call.saved, std::vector{vector_of({1}), ones});
      const Recurrence wanted = by_hand(2, rows, 0.7F, reverse);
      EXPECT_NEAR(element(call.outputs[0], 0), wanted.last, 1e-5);
      EXPECT_NEAR(element(*gradients[0], 0), wanted.c, 1e-5);
      EXPECT_NEAR(element(*gradients[2], 0), wanted.w, 1e-4);
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NEAR(element(call.outputs[1], i), wanted.y[static_cast<size_t>(i)], 1e-5);
        EXPECT_NEAR(element(*gradients[1], i), wanted.row[static_cast<size_t>(i)], 1e-5);
      }
    }
  }
}

/// A loop in a loop: each row is doubled until it is above 10, in a branch if it is positive.
TEST(Control, Nested) {
  State state;
  const auto model = [](Trace& trace, const Tensors& in) -> Tensors {
    return nn::scan(
               trace, {}, {in[0]}, {},
               [](Trace& body, const Tensors&, const Tensors& row, const Tensors&) -> nn::Scanned {
                 const Tensor positive = ops::compare("gt", ops::sum_all(row[0]), 0);
                 return {{},
                         nn::cond(
                             body, positive, row,
                             [](Trace& then, const Tensors& x) {
                               return nn::while_loop(
                                   then, x, {},
                                   [](Trace&, const Tensors& y) {
                                     return ops::compare("lt", ops::sum_all(y[0]), 10);
                                   },
                                   [](Trace&, const Tensors& y) -> Tensors { return {y[0] * 2}; });
                             },
                             [](Trace&, const Tensors& x) -> Tensors { return {-x[0]}; })};
               })
        .rows;
  };
  BoundProgram program = compile_forward(model, state, {{"x", DType::f32, {4}}});
  const std::vector<runtime::Result> results = program.run(std::vector{vector_of({1, -3, 7, 20})});
  for (const auto& [i, wanted] : {std::pair{0, 16.0F}, {1, 3.0F}, {2, 14.0F}, {3, 20.0F}})
    EXPECT_EQ(element(results[0], i), wanted);
}

struct Recurrent : nn::Module {
  nn::Linear in{*this, "in", 2, 2};
  nn::Linear out{*this, "out", 2, 2};
};

/// Parameters that bodies name are trained: the loss falls.
TEST(Control, ParametersInBodies) {
  Recurrent model;
  State state = State::initial(model, 3);
  const auto loss = [&](Trace& trace, const Tensors& in) -> Tensors {
    const nn::Scanned scanned = nn::scan(
        trace, {in[0]}, {in[1]}, {},
        [&](Trace& body, const Tensors& c, const Tensors& row, const Tensors&) -> nn::Scanned {
          const Tensor next = ops::tanh(c[0] + model.in.forward(body, row[0]));
          return {{next}, {model.out.forward(body, next)}};
        });
    const Tensor off = scanned.rows[0] - in[2];
    return {ops::sum_all(off * off)};
  };
  BoundProgram step = train_step(
      loss, state,
      {{"c", DType::f32, {1, 2}}, {"x", DType::f32, {5, 1, 2}}, {"y", DType::f32, {5, 1, 2}}},
      nn::Sgd(0.05));
  const auto block = [](float first) {
    Array array = Array::empty(DType::f32, std::array{int64_t{5}, int64_t{1}, int64_t{2}});
    for (int64_t i = 0; i < 10; ++i)
      array.data<float>()[i] = std::sin(first + static_cast<float>(i));
    return array;
  };
  const Array start = Array::zeros(DType::f32, std::array{int64_t{1}, int64_t{2}});
  std::vector<float> losses;
  for (int i = 0; i < 40; ++i)
    losses.push_back(element(step.run(std::vector{start, block(0), block(1)})[0], 0));
  EXPECT_LT(losses.back(), 0.5F * losses.front());
}

std::string problem_of(const std::string& text) {
  try {
    std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
    driver::compile(*module->graphs()[0], {});
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string loop_over(const std::string& bodies) {
  return "graph @g(%x: f32[3]) {\n  %a: f32[3] = tandem.while_loop([%x], [], \"go\", \"step\")\n"
         "  return %a\n}\n" +
         bodies;
}
const char* const kGo =
    "graph @go(%x: f32[3]) {\n  %s = aten.sum(%x)\n  %b = aten.lt.Scalar(%s, 9)\n  return %b\n}\n";

TEST(Control, BodiesThatDoNotFit) {
  EXPECT_THAT(problem_of(loop_over("")), HasSubstr("there is no graph @go"));
  const std::string go = kGo;
  EXPECT_THAT(problem_of(loop_over(go + "graph @step(%x: f32[4]) {\n  return %x\n}\n")),
              HasSubstr("@step takes f32[4] for %x, not f32[3]"));
  EXPECT_THAT(problem_of(loop_over(go + "graph @step(%x: f32[3], %y: f32[3]) {\n  return %x\n}\n")),
              HasSubstr("@step takes 2 tensors, not 1"));
  EXPECT_THAT(problem_of(loop_over(go + "graph @step(%x: f32[3]) {\n  return %x, %x\n}\n")),
              HasSubstr("@step gives 2 results, not 1"));
  EXPECT_THAT(problem_of(loop_over(go + "graph @step(%x: f32[3]) {\n  %0 = aten.sum(%x)\n"
                                        "  return %0\n}\n")),
              HasSubstr("@step gives f32[] for result 0, not f32[3]"));
  EXPECT_THAT(problem_of(loop_over(go + "graph @step(%x: f32[3]) {\n  %0 = aten.add_.Scalar(%x, 1)"
                                        "\n  return %0\n}\n")),
              HasSubstr("@step writes to what it is given"));
  EXPECT_THAT(problem_of(loop_over("graph @go(%x: f32[3]) {\n  return %x\n}\n"
                                   "graph @step(%x: f32[3]) {\n  return %x\n}\n")),
              HasSubstr("@go gives f32[3] for result 0, not bool[]"));
}

/// That rows are equal in number may show at a call alone: then nothing beside them is read.
TEST(Control, RowsThatDifferInNumber) {
  const std::string text =
      "graph @g(%x: f32[s0], %y: f32[s1]) where s0 in [1, 9], s1 in [1, 9] {\n"
      "  %a: f32[s0] = tandem.scan([], [%x, %y], [], \"step\")\n  return %a\n}\n"
      "graph @step(%x: f32[], %y: f32[]) {\n  %0 = aten.add.Tensor(%x, %y)\n  return %0\n}\n";
  std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  const std::unique_ptr<driver::Executable> program = driver::compile(*module->graphs()[0], {});
  const auto run = [&](const std::vector<float>& y) {
    return program->run(std::vector<runtime::Argument>{vector_of({1, 2, 3}), vector_of(y)});
  };
  EXPECT_EQ(element(run({4, 5, 6})[0], 2), 9);
  EXPECT_THAT([&] { run({4, 5}); }, ThrowsMessage<UserError>(HasSubstr("f32[2] has not 3 rows")));
}

TEST(Control, BodyThatRunsItself) {
  EXPECT_THAT(problem_of(loop_over(std::string(kGo) +
                                   "graph @step(%x: f32[3]) {\n  %a: f32[3] = tandem.while_loop("
                                   "[%x], [], \"go\", \"step\")\n  return %a\n}\n")),
              HasSubstr("graph @step runs itself"));
}

TEST(Control, LoopsThatNestDeep) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += fmt::format(
        "graph @g{}(%p: bool[], %x: f32[3]) {{\n  %a: f32[3] = tandem.cond(%p, [%p, %x], \"g{}\", "
        "\"g{}\")\n  return %a\n}}\n",
        i, i + 1, i + 1);
  text += "graph @g500(%p: bool[], %x: f32[3]) {\n  return %x\n}\n";
  EXPECT_THAT(problem_of(text), HasSubstr("nest deeper than 64"));
}

TEST(Control, BodyThatReadsWhatItWasNotGiven) {
  State state;
  const auto model = [](Trace& trace, const Tensors& in) {
    const auto capture = [&](Trace&, const Tensors& x) -> Tensors { return {x[0] * in[1]}; };
    return nn::cond(trace, ops::compare("gt", ops::sum_all(in[0]), 0), {in[0]}, capture, capture);
  };
  EXPECT_THAT(
      [&] { compile_forward(model, state, {{"x", DType::f32, {3}}, {"y", DType::f32, {3}}}); },
      ThrowsMessage<UserError>(HasSubstr("a body reads a tensor that it was not given")));
}

/// x ← x², y times, while the sum is below the limit.
Tensors square_up(Trace& trace, const Tensors& in) {
  return nn::while_loop(
      trace, {in[0]}, {in[1]},
      [](Trace&, const Tensors& x) { return ops::compare("lt", ops::sum_all(x[0]), 100); },
      [](Trace&, const Tensors& x) -> Tensors { return {x[0] * x[0] * x[1]}; });
}

TEST(Control, GradientOfALoopThatDataEnd) {
  AotFunction function =
      aot_function(square_up, {{"x", DType::f32, {1}, true}, {"y", DType::f32, {1}, true}});
  for (const float start : {1.5F, 3.0F, 20.0F, 200.0F}) {
    const float y = 1.25F;
    std::vector<float> steps{start};
    while (steps.back() < 100) steps.push_back(steps.back() * steps.back() * y);
    float x_grad = 1;
    float y_grad = 0;
    for (size_t i = steps.size() - 1; i-- > 0;) {
      y_grad += x_grad * steps[i] * steps[i];
      x_grad *= 2 * steps[i] * y;
    }
    AotFunction::Forward call = function.forward(std::vector{vector_of({start}), vector_of({y})});
    const std::vector<std::optional<Array>> gradients =
        function.backward(call.saved, std::vector{vector_of({1})});
    EXPECT_EQ(element(call.outputs[0], 0), steps.back());
    EXPECT_NEAR(element(*gradients[0], 0) / x_grad, 1, 1e-5) << start;
    EXPECT_NEAR(element(*gradients[1], 0), y_grad, 1e-5 * std::abs(y_grad)) << start;
  }
}

}  // namespace
}  // namespace tandem
