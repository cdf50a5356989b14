// Kernels that are one but for the names of their axes, and those that only look so.
#include "loop/match.h"

#include <gtest/gtest.h>

#include "loop/scalar.h"

namespace tandem::loop {
namespace {

using sym::Expr;

/// What the kernels of a test differ in.
struct Form {
  Expr rows = 4;
  int64_t step = 8;  // from row to row
  Opcode opcode = Opcode::exp;
  AxisKind kind = AxisKind::serial;
  double number = 2;
  Combiner combiner = Combiner::sum;
  Expr launch_number = 0;
};

/// out[i] = sum over j of op(in[step i + j]) * number + launch_number
Kernel made(sym::Pool& pool, const Form& form) {
  Kernel kernel;
  kernel.scalars = std::make_shared<ScalarPool>(pool);
  ScalarPool& scalars = *kernel.scalars;
  const Expr i = pool.index("i", form.rows), j = pool.index("j", 8);
  kernel.buffers.resize(2);
  kernel.buffers[0].elements = form.rows * 8;
  kernel.buffers[1].elements = form.rows;
  kernel.buffers[1].access = Access::write;
  kernel.outer = {{i, form.rows, form.kind}};
  Stage stage;
  stage.reduce_axes = {{j, 8}};
  const Val x = scalars.unary(form.opcode, scalars.load(0, DType::f32, i * form.step + j));
  const Val scaled = scalars.binary(Opcode::mul, x, scalars.constant(DType::f32, form.number));
  const Val more = scalars.cast(scalars.index(form.launch_number), DType::f32);
  stage.reductions = {{form.combiner, {scalars.binary(Opcode::add, scaled, more)}, 0}};
  stage.after = {{1, i, scalars.local(0, DType::f32)}};
  kernel.stages = {stage};
  kernel.locals = 1;
  return kernel;
}

TEST(Match, NamesOfAxesDoNotCount) {
  sym::Pool pool;
  const Kernel a = made(pool, {}), b = made(pool, {});
  const std::optional<sym::Substitution> others = matched(a, b);
  ASSERT_TRUE(others.has_value());
  EXPECT_TRUE(others->empty());
  EXPECT_TRUE(matched(a, a).has_value());
}

TEST(Match, EachDifferenceCounts) {
  sym::Pool pool;
  const Kernel a = made(pool, {});
  const Form forms[] = {{.rows = 5},
                        {.step = 9},
                        {.opcode = Opcode::log},
                        {.kind = AxisKind::task},
                        {.number = -2},
                        {.combiner = Combiner::prod},
                        {.launch_number = 3}};
  for (const Form& form : forms) EXPECT_FALSE(matched(a, made(pool, form)).has_value());
}

TEST(Match, ZerosOfBothSignsAreTwoNumbers) {
  sym::Pool pool;
  EXPECT_FALSE(matched(made(pool, {.number = 0.0}), made(pool, {.number = -0.0})).has_value());
}

TEST(Match, SaysWhatComesFromOutside) {
  sym::Pool pool;
  const Expr first = pool.symbol("first", {0, 9}), second = pool.symbol("second", {0, 9});
  const Kernel a = made(pool, {.launch_number = first});
  const std::optional<sym::Substitution> others = matched(a, made(pool, {.launch_number = second}));
  ASSERT_TRUE(others.has_value());
  EXPECT_EQ(*others, (sym::Substitution{{first, second}}));
  const Expr wider = pool.symbol("wider", {0, 99});
  EXPECT_FALSE(matched(a, made(pool, {.launch_number = wider})).has_value());
}

TEST(Match, TwoSizesAreNotOne) {
  sym::Pool pool;
  const Expr n = pool.symbol("n", {1, 99}), m = pool.symbol("m", {1, 99});
  Kernel two = made(pool, {.rows = n, .launch_number = m});
  Kernel one = made(pool, {.rows = n, .launch_number = n});
  two.sizes = {n, m};
  one.sizes = {n, n};
  EXPECT_FALSE(matched(two, one).has_value());
  EXPECT_FALSE(matched(one, two).has_value());
}

TEST(Match, MarksCount) {
  sym::Pool pool;
  const Kernel a = made(pool, {});
  Kernel b = made(pool, {});
  b.stages[0].after[0].nontemporal = true;
  EXPECT_FALSE(matched(a, b).has_value());
  b = made(pool, {});
  b.buffers[0].far = true;
  EXPECT_FALSE(matched(a, b).has_value());
  b = made(pool, {});
  b.buffers[0].label = "another";
  EXPECT_TRUE(matched(a, b).has_value());
}

}  // namespace
}  // namespace tandem::loop
