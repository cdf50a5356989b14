// Tensors from nothing: constants and ramps. Maps without operands, so they always inline.
#include <fmt/format.h>

#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/pointwise/factory.h"

namespace tandem::ops {
namespace {

DType number_dtype(const ir::Arg& number) {
  if (std::holds_alternative<double>(number)) return DType::f32;
  return std::holds_alternative<bool>(number) ? DType::boolean : DType::i64;
}

/// Every element is the number that `value(call)` gives.
template <auto Value>
Definition fill(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index&) {
    return lowering.scalar(called<Value>(c), compute_type(c.result()->type.dtype));
  });
}
constexpr auto kZero = [](const Call&) -> ir::Arg { return Expr(0); };
constexpr auto kOne = [](const Call&) -> ir::Arg { return Expr(1); };

Types sized(const Call& c) {
  return {ir::Type::tensor(c.dtype("dtype", DType::f32), c.ints("size"))};
}
Types like(const Call& c) {
  return {ir::Type::tensor(c.dtype("dtype", c.type("self").dtype), c.type("self").sizes)};
}

const OpDef kFull{.schema =
                      "aten::full(SymInt[] size, Scalar fill_value, *, " TANDEM_FACTORY_OPTIONS
                      ") -> Tensor",
                  .types = [](const Call& c) -> Types {
                    return {ir::Type::tensor(c.dtype("dtype", number_dtype(c.arg("fill_value"))),
                                             c.ints("size"))};
                  },
                  .lower = fill<[](const Call& c) { return c.arg("fill_value"); }>,
                  .no_grad = kNoOperand,
                  .samples = {"[2, 3], 2", "[4], 0.5", "[0], 1", "[], 3.5", "[2], true"},
                  .complex = {.rule = complex_each, .terms = "fill_value"}};
const OpDef kZeros{.schema = "aten::zeros(SymInt[] size, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
                   .types = sized,
                   .lower = fill<kZero>,
                   .no_grad = kNoOperand,
                   .samples = {"[2, 3]", "[0]", "[2], dtype=i64"},
                   .complex = {complex_each}};
/// Eager gives one that has no memory; what reads it is the same.
const OpDef kEfficientZeros{
    .schema = "aten::_efficientzerotensor(SymInt[] size, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
    .types = sized,
    .lower = fill<kZero>,
    .no_grad = kNoOperand,
    .samples = {"[2, 3]", "[0]", "[2], dtype=i64"},
    .complex = {complex_each}};
const OpDef kOnes{.schema = "aten::ones(SymInt[] size, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
                  .types = sized,
                  .lower = fill<kOne>,
                  .no_grad = kNoOperand,
                  .samples = {"[2, 3]", "[0]", "[2], dtype=bool"},
                  .complex = {complex_real}};
const OpDef kZerosLike{.schema = "aten::zeros_like(Tensor self, *, " TANDEM_FACTORY_OPTIONS
                                 ", MemoryFormat? memory_format=None) -> Tensor",
                       .types = like,
                       .lower = fill<kZero>,
                       .no_grad = kNoOperand,
                       .samples = {"$[2, 3]", "$[0]"},
                       .sample_dtypes = DTypes::all,
                       .batch = batch_pointwise,
                       .complex = {complex_each}};
const OpDef kOnesLike{.schema = "aten::ones_like(Tensor self, *, " TANDEM_FACTORY_OPTIONS
                                ", MemoryFormat? memory_format=None) -> Tensor",
                      .types = like,
                      .lower = fill<kOne>,
                      .no_grad = kNoOperand,
                      .samples = {"$[2, 3]", "$[0]"},
                      .sample_dtypes = DTypes::all,
                      .batch = batch_pointwise,
                      .complex = {complex_real}};
const OpDef kFullLike{
    .schema = "aten::full_like(Tensor self, Scalar fill_value, *, " TANDEM_FACTORY_OPTIONS
              ", MemoryFormat? memory_format=None) -> Tensor",
    .types = like,
    .lower = fill<[](const Call& c) { return c.arg("fill_value"); }>,
    .no_grad = kNoOperand,
    .samples = {"$[2, 3], 2", "$[0], 1"},
    .sample_dtypes = DTypes::numbers,
    .batch = batch_pointwise,
    .complex = {.rule = complex_each, .terms = "fill_value"}};
const OpDef kScalarTensor{
    .schema = "aten::scalar_tensor(Scalar s, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
    .types = [](const Call& c) -> Types {
      return {ir::Type::tensor(c.dtype("dtype", DType::f32), {})};
    },
    .lower = fill<[](const Call& c) { return c.arg("s"); }>,
    .no_grad = kNoOperand,
    .samples = {"2.5", "3, dtype=i64"},
    .complex = {.rule = complex_each, .terms = "s"}};

/// start + i * step, computed in i64 for integers and f64 for floats, as eager does.
Definition ramp(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    DType dtype = c.result()->type.dtype;
    DType compute = is_float(dtype) ? DType::f64 : DType::i64;
    auto number = [&](std::string_view name, double otherwise) {
      if (c.op().schema.find(name) < 0) return Element{pool, pool.constant(compute, otherwise)};
      return Element{pool, lowering.scalar(c.arg(name), compute)};
    };
    Element i{pool, pool.cast(pool.index(index[0]), compute)};
    return (number("start", 0) + i * number("step", 1)).cast(compute_type(dtype)).value();
  });
}
[[noreturn]] void fail_direction(const Call& c) {
  std::string text;
  for (std::string_view name : {"start", "end", "step"})
    if (c.op().schema.find(name) >= 0) text += (text.empty() ? "" : ", ") + c.describe(name);
  c.fail("the range runs against the sign of its step: " + text);
}
constexpr double kLongestRamp = 0x1p60;
Expr ramp_length(const Call& c) {
  auto whole = [&](std::string_view name, Expr otherwise) {
    return c.op().schema.find(name) < 0 ? otherwise : c.integer(name);
  };
  bool integers = true;
  for (std::string_view name : {"start", "end", "step"})
    if (c.op().schema.find(name) >= 0) integers &= std::holds_alternative<Expr>(c.arg(name));
  if (integers) {
    Expr step = whole("step", 1);
    if (step == Expr(0)) c.fail("step must not be 0");
    bool down = step.range().hi < 0;
    if (!down && step.range().lo <= 0) c.fail_unknown("the sign of step", step);
    Expr span = whole("end", 0) - whole("start", 0);
    if (down ? sym::known_lt(0, span) : sym::known_lt(span, 0)) fail_direction(c);
    return sym::max(down ? sym::ceil_div(-span, -step) : sym::ceil_div(span, step), 0);
  }
  auto real = [&](std::string_view name, double otherwise) {
    return c.op().schema.find(name) < 0 ? otherwise : c.floating(name);
  };
  double step = real("step", 1);
  if (step == 0) c.fail("step must not be 0");
  double span = real("end", 0) - real("start", 0);
  double length = std::ceil(span / step);
  if (!(std::abs(length) <= kLongestRamp))
    c.fail(fmt::format("the range has no size that a tensor could have: {}", length));
  if (length < 0 || (length == 0 && span * step < 0)) fail_direction(c);
  return static_cast<int64_t>(length);
}
Types ramp_types(const Call& c) {
  DType dtype = DType::i64;
  for (std::string_view name : {"start", "end", "step"})
    if (c.op().schema.find(name) >= 0 && number_dtype(c.arg(name)) == DType::f32)
      dtype = DType::f32;
  return {ir::Type::tensor(c.dtype("dtype", dtype), {ramp_length(c)})};
}
const OpDef kArange{.schema = "aten::arange(Scalar end, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
                    .types = ramp_types,
                    .lower = ramp,
                    .no_grad = kNoOperand,
                    .samples = {"5", "0", "4.5", "7, dtype=f32"}};
const OpDef kArangeStart{
    .schema =
        "aten::arange.start(Scalar start, Scalar end, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
    .types = ramp_types,
    .lower = ramp,
    .no_grad = kNoOperand,
    .samples = {"2, 7", "0.5, 3.0"}};
const OpDef kArangeStep{.schema =
                            "aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, "
                            "*, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
                        .types = ramp_types,
                        .lower = ramp,
                        .no_grad = kNoOperand,
                        .samples = {"2, 9, 3", "9, 2, -2", "0, 1, 0.25"}};

const OpDef* const kOps[] = {&kEfficientZeros, &kFull,        &kZeros,     &kOnes,
                             &kZerosLike,      &kOnesLike,    &kFullLike,  &kScalarTensor,
                             &kArange,         &kArangeStart, &kArangeStep};

}  // namespace

Family factory_family() { return kOps; }

}  // namespace tandem::ops
