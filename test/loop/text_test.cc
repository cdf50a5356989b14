// Text form, canonical form and identity.
#include <gtest/gtest.h>

#include <limits>

#include "base/check.h"
#include "base/diagnostic.h"
#include "loop/kernel.h"

namespace tandem::loop {
namespace {

constexpr std::string_view kEverything = R"(kernel "all \"quoted\"" target "+avx2" ordered {
  size n0 in [2, 4096]
  size n1 in [-inf, inf]
  buffer b0: f32 read "x"
  buffer b1: i64 read aliased
  buffer b2: bf16[n0*4 + 8] scratch
  buffer b3: f32 read_write
  error 0 "index out of range"
  locals 4
  outer x0 < n0 task
  outer x1 < 3
  stage {
    axis y0 < min(n0, 64)
    reduce r0 < 128 vector(16)
    %0: i64 = load b1[x0*128 + r0]
    %1: bool = lt %0, [n0]
    %2: i64 = check %1, %0, error 0
    t0 < n0 = %2
    %3: f32 = load b0[y0 + n1*t0] if %1
    %4: f32 = mul %3, f32(0.1)
    l0 = sum %4
    l1, l2 = argmax %3, [r0]
  after
    %5: f32 = l0
    %6: i64 = l2
    t1 < n0 = %6
    b3[t1] += %5
  }
  stage {
    reduce r1 < n1
    %0: f32 = load b0[r1]
    l3 = scan prod %0
    %1: f32 = l3
    %2: bf16 = cast %1
    b2[r1 % 4] = %2
    %3: i32 = philox [n0], i64(7), [r1 + n1*x1]
    %4: f32 = bitcast %3
    %5: bool = ne %4, f32(nan)
    %6: f32 = select %5, %4, f32(-inf)
    b3[r1] = %6
    b3[0] *= %6
    b3[1] min= %6
    b3[2] max= %6
  }
}
)";

TEST(Text, RoundTripIsExact) {
  Kernel kernel = parse_kernel(kEverything);
  EXPECT_EQ(to_string(kernel), kEverything);
  Kernel copy = canonical(kernel);
  EXPECT_EQ(to_string(copy), kEverything);
  EXPECT_EQ(to_string(parse_kernel(to_string(copy))), to_string(copy));
}

std::string literal_kernel(std::string_view constant) {
  return "kernel {\n  buffer b0: f64 write\n  stage {\n    b0[0] = " + std::string(constant) +
         "\n  }\n}\n";
}

TEST(Text, LiteralsReadBackExactly) {
  for (std::string_view constant :
       {"f32(0.1)", "f32(-0)", "f32(1e-45)", "f32(3.4028235e+38)", "f64(0.1)", "f64(5e-324)",
        "f32(nan)", "f32(-nan)", "f64(nan.9221120237041090577)", "f64(inf)", "f32(-inf)",
        "i8(-128)", "u8(255)", "i64(-9223372036854775808)", "bool(true)", "bool(false)",
        "bf16(0.1)"})
    EXPECT_EQ(to_string(parse_kernel(literal_kernel(constant))), literal_kernel(constant));
}

TEST(Text, CommentsAndSpacingAreFree) {
  Kernel kernel = parse_kernel(
      "; one\nkernel \"a;b\"   {\n buffer b0: f32 write ; two\n\n stage {\n"
      "  %7: f32 = exp f32(1)\n  b0[0]=%7\n }\n}\n");
  EXPECT_EQ(kernel.name, "a;b");
  EXPECT_EQ(to_string(kernel),
            "kernel \"a;b\" {\n  buffer b0: f32 write\n  stage {\n    %0: f32 = exp f32(1)\n"
            "    b0[0] = %0\n  }\n}\n");
}

std::string error_of(std::string_view text) {
  try {
    parse_kernel(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

struct Mistake {
  std::string_view statement;
  std::string_view message;
};

TEST(Text, MistakesNameTheirLine) {
  const std::vector<Mistake> mistakes = {
      {"%0: f32 = load b0[q]", "no symbol q in scope"},
      {"%0: f32 = add f32(1), f64(1)", "add of f32 and f64"},
      {"%0: f32 = add f32(1)", "expected `,`"},
      {"%0: f64 = exp f32(1)", "the value is f32, not f64"},
      {"%0: f32 = frobnicate f32(1)", "expected a dtype"},
      {"b0[0] = %3", "an undefined value"},
      {"%0: i8 = i8(300)", "number out of range"},
      {"%0: f32 = f32(1x)", "no number of that type"},
      {"%0: f64 = bitcast f32(1)", "bitcast to another size"},
      {"l0 = argmax f32(1), i64(0)", "wrong number of results"},
      {"l0, l2 = argmax f32(1), i64(0)", "successive locals"},
      {"axis x < 4", "symbol x is used twice"},
      {"axis z < 4//0", "divisor is not positive"},
      {"axis z < 4 vector(0)", "bad vector(number)"},
      {"axis z < 4 vector(8192)", "bad vector(lanes)"},
      {"axis z < 4 vector(8) ahead(0)", "bad ahead(number)"},
      {"t < 4 = f32(1)", "an index must be i64"},
      {"b0[0 = f32(1)", "expected `]`"},
      {"b0[0] = f32(1) f32(2)", "unexpected text"},
  };
  for (const Mistake& mistake : mistakes) {
    std::string text = "kernel {\n  buffer b0: f32 write\n  outer x < 2\n  stage {\n" +
                       std::string(mistake.statement) + "\n}\n}\n";
    std::string message = error_of(text);
    EXPECT_NE(message.find(mistake.message), std::string::npos) << message;
    EXPECT_NE(message.find("line 5"), std::string::npos) << message;
  }
  EXPECT_NE(error_of("kernel {\n stage {\n").find("ends inside"), std::string::npos);
  EXPECT_NE(error_of("").find("ends inside"), std::string::npos);
}

/// Terms of an index print in the order of their symbols: another order of the declarations would
/// read back as another text.
TEST(Text, DeclarationsStandInTheOrderThatPrints) {
  const std::vector<Mistake> mistakes = {
      {"stage {\n reduce r < 4\n axis z < 4\n }", "axis stands before reduce"},
      {"stage {\n t < 4 = i64(1)\n axis z < 4\n }", "axis stands before reduce"},
      {"stage {\n t < 4 = i64(1)\n reduce r < 4\n }", "reduce stands before bound indices"},
      {"stage {\n }\n outer z < 4", "outer stands before the stages"},
      {"outer z < 4\n size n", "sizes stand before outer and stages"},
      {"stage {\n }\n size n", "sizes stand before outer and stages"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string message = error_of("kernel {\n" + std::string(mistake.statement) + "\n}\n");
    EXPECT_NE(message.find(mistake.message), std::string::npos) << message;
  }
}

TEST(Text, EveryPrefixIsAnErrorNotACrash) {
  for (size_t i = 0; i + 3 < kEverything.size(); ++i)
    EXPECT_NE(error_of(kEverything.substr(0, i)), "no error");
}

/// A gather times a scale over sizes `rows` and `columns`, built in an order that `shuffled`
/// changes.
Kernel gather(sym::Pool& pool, bool shuffled) {
  Kernel kernel;
  kernel.scalars = std::make_shared<ScalarPool>(pool);
  ScalarPool& scalars = *kernel.scalars;
  sym::Expr rows = pool.symbol(shuffled ? "s9" : "s0", {2, 100});
  sym::Expr columns = pool.symbol(shuffled ? "a" : "s1", {1, 50});
  kernel.sizes = {rows, columns};
  kernel.buffers.resize(3);
  kernel.buffers[1].dtype = DType::i64;
  kernel.buffers[2].access = Access::write;
  if (shuffled) scalars.constant(DType::f32, 4);
  sym::Expr j = shuffled ? pool.index("q", columns) : sym::Expr(0);
  sym::Expr i = pool.index("i", rows);
  if (!shuffled) j = pool.index("j", columns);
  sym::Expr out = i * columns + j;
  if (shuffled) out = columns * j + i * columns * 2 + j - i * columns - columns * j;
  Val id = scalars.load(1, DType::i64, i);
  id = scalars.check(scalars.binary(Opcode::lt, id, scalars.index(rows)), id, 0);
  Val value = scalars.load(0, DType::f32, scalars.as_index(id, rows) * columns + j);
  value = scalars.binary(Opcode::mul, value, scalars.constant(DType::f32, 3));
  kernel.outer = {{i, rows, AxisKind::task, 1}};
  Stage stage;
  stage.axes = {{j, columns, AxisKind::vector, 8}};
  stage.body = {{2, out, value}};
  kernel.stages = {stage};
  kernel.errors = {"index out of range"};
  return kernel;
}

TEST(Canonical, DoesNotDependOnThePool) {
  sym::Pool one;
  sym::Pool two;
  Kernel a = gather(one, false);
  Kernel b = gather(two, true);
  b.name = "other";
  b.buffers[0].label = "weight";
  b.errors[0] = "other words";
  EXPECT_EQ(identity(a), identity(b));
  Kernel copy = canonical(a);
  EXPECT_EQ(identity(a), identity(copy));
  EXPECT_EQ(copy.sizes[0].name(), "n0");
  EXPECT_EQ(copy.sizes[0].range(), (sym::Range{2, 100}));
  EXPECT_EQ(to_string(canonical(copy)), to_string(copy));
  EXPECT_EQ(to_string(parse_kernel(to_string(copy))), to_string(copy));
  b.stages[0].axes[0].lanes = 16;
  EXPECT_NE(identity(a), identity(b));
}

TEST(Canonical, OutlivesTheModule) {
  Kernel copy;
  {
    sym::Pool pool;
    copy = canonical(gather(pool, false));
  }
  EXPECT_EQ(copy.stages[0].body[0].index.node()->pool, copy.symbols.get());
  EXPECT_EQ(verify(copy), std::vector<std::string>{});
}

TEST(Canonical, StagesThatShareAnAxisGetTheirOwn) {
  sym::Pool pool;
  Kernel kernel;
  kernel.scalars = std::make_shared<ScalarPool>(pool);
  kernel.buffers.resize(2);
  kernel.buffers[1].access = Access::write;
  sym::Expr j = pool.index("j", 8);
  Val value = kernel.scalars->load(0, DType::f32, j);
  Stage stage;
  stage.axes = {{j, 8}};
  stage.body = {{1, j, value}};
  kernel.stages = {stage, stage};
  Kernel copy = canonical(kernel);
  EXPECT_EQ(copy.stages[1].axes[0].index.name(), "y1");
  EXPECT_EQ(sym::to_string(copy.stages[1].body[0].index), "y1");
  EXPECT_EQ(sym::to_string(copy.stages[1].body[0].value->index), "y1");
}

TEST(Canonical, DeepExpressionsDoNotOverflowTheStack) {
  sym::Pool pool;
  Kernel kernel;
  kernel.scalars = std::make_shared<ScalarPool>(pool);
  kernel.buffers.resize(1);
  kernel.buffers[0].access = Access::write;
  Val value = kernel.scalars->load(0, DType::f32, 0);
  for (int i = 0; i < 100000; ++i) value = kernel.scalars->unary(Opcode::exp, value);
  Stage stage;
  stage.body = {{0, 0, value}};
  kernel.stages = {stage};
  std::string text = to_string(canonical(kernel));
  EXPECT_NE(text.find("%100000: f32 = exp %99999\n"), std::string::npos);
  EXPECT_EQ(to_string(parse_kernel(text)), text);
}

TEST(Canonical, AnUnlistedSizeIsABug) {
  sym::Pool pool;
  Kernel kernel = gather(pool, false);
  kernel.sizes.pop_back();
  EXPECT_THROW(canonical(kernel), InternalError);
}

TEST(Text, AScalarAlonePrintsItsLines) {
  sym::Pool pool;
  Kernel kernel = gather(pool, false);
  EXPECT_EQ(to_string(kernel.stages[0].body[0].value),
            "%0: i64 = load b1[i]\n%1: bool = lt %0, [s0]\n%2: i64 = check %1, %0, error 0\n"
            "%3: f32 = load b0[j + s1*t] with %2\n%4: f32 = mul %3, f32(3)\n");
}

}  // namespace
}  // namespace tandem::loop
