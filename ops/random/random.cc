// Random numbers. tandem::random_bits-based primitives draw from the program's Philox streams
// (loop/random.h): pure functions of (seed, stream, row-major index) once the rng pass has filled
// both in. The ATen ops decompose to them, so eager's own sequence is not reproduced, its
// distribution is.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kRandom = "random numbers do not depend on an operand";

/// 24 random bits as a float in [0, 1): every value is a multiple of 2^-24.
Element uniform_bits(Element bits) {
  Element top{bits.pool(),
              bits.pool().binary(Opcode::bit_and,
                                 bits.pool().binary(Opcode::shift_right, bits.value(),
                                                    bits.pool().integer(DType::i32, 8)),
                                 bits.pool().integer(DType::i32, 0xFFFFFF))};
  return top.cast(DType::f32) * 0x1p-24;
}

Element draw(Lowering& lowering, const Call& c, const Index& index, int64_t offset) {
  loop::ScalarPool& pool = lowering.scalars();
  sym::Expr element = 0;
  const ir::Sizes& sizes = c.ints("size");
  for (size_t i = 0; i < index.size(); ++i) element = element * sizes[i] + index[i];
  loop::Val seed = lowering.scalar(c.arg("seed"), DType::i64);
  // Two streams a random op: the second one serves the other half of Box-Muller.
  const int64_t number = c.constant("stream");
  if (number < 0 || number > INT32_MAX) c.fail("stream must be a number below 2**31");
  loop::Val stream = lowering.launch_number(2 * number + offset);
  return {pool, pool.philox(seed, stream, pool.index(element))};
}

Types sized(const Call& c) { return {ir::Type::tensor(DType::f32, c.ints("size"))}; }

const OpDef kUniform{
    .schema = "tandem::random_uniform(SymInt[] size, *, int stream=0, Scalar? seed=None) -> Tensor",
    .types = sized,
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return uniform_bits(draw(lowering, c, index, 0)).value();
          });
        },
    .no_grad = kRandom,
    .samples = {"[3, 4]"},
    .random = true};

const OpDef kNormal{
    .schema = "tandem::random_normal(SymInt[] size, *, int stream=0, Scalar? seed=None) -> Tensor",
    .types = sized,
    // Box-Muller: sqrt(-2 log(1 - u)) cos(2 pi v); 1 - u is never 0.
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            Element u = uniform_bits(draw(lowering, c, index, 0));
            Element v = uniform_bits(draw(lowering, c, index, 1));
            Element radius = sqrt(log(1.0 - u) * -2.0);
            return (radius * (v * 6.283185307179586).apply(Opcode::cos)).value();
          });
        },
    .no_grad = kRandom,
    .samples = {"[3, 4]"},
    .random = true};

/// An integer in [0, extent) from random bits: 32 of them times the extent where that fits into 64,
/// else 63 of them modulo the extent. Some values are more likely than others, by extent / 2^32 or
/// extent / 2^63 of their share, as in eager.
loop::Val scaled_bits(Lowering& lowering, const Call& c, const Index& index, loop::Val extent) {
  loop::ScalarPool& pool = lowering.scalars();
  auto wide = [&](int64_t offset, int64_t mask) {
    loop::Val bits = pool.cast(draw(lowering, c, index, offset).value(), DType::i64);
    return pool.binary(Opcode::bit_and, bits, pool.integer(DType::i64, mask));
  };
  loop::Val low = wide(0, 0xFFFFFFFF);
  loop::Val shift = pool.integer(DType::i64, 32);
  Expr span = c.integer("high") - c.integer("low");
  if (sym::known_lt(span, int64_t{1} << 31))
    return pool.binary(Opcode::shift_right, pool.binary(Opcode::mul, low, extent), shift);
  loop::Val high = pool.binary(Opcode::shift_left, wide(1, 0x7FFFFFFF), shift);
  loop::Val bits = pool.binary(Opcode::bit_or, high, low);
  loop::Val times = pool.binary(Opcode::floor_div, bits, extent);
  return pool.binary(Opcode::sub, bits, pool.binary(Opcode::mul, times, extent));
}
const OpDef kInteger{
    .schema =
        "tandem::random_integer(SymInt[] size, SymInt low, SymInt high, *, int stream=0, "
        "Scalar? seed=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (sym::known_le(c.integer("high"), c.integer("low")))
        c.fail(fmt::format("low {} must be below high {}", sym::to_string(c.integer("low")),
                           sym::to_string(c.integer("high"))));
      return {ir::Type::tensor(DType::i64, c.ints("size"))};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            loop::ScalarPool& pool = lowering.scalars();
            loop::Val low = lowering.scalar(c.arg("low"), DType::i64);
            loop::Val extent =
                pool.binary(Opcode::sub, lowering.scalar(c.arg("high"), DType::i64), low);
            return pool.binary(Opcode::add, low, scaled_bits(lowering, c, index, extent));
          });
        },
    .no_grad = kRandom,
    .samples = {"[3, 40], -3, 9", "[50], 0, 4000000000000000000"},
    .random = true};

#define TANDEM_FACTORY_OPTIONS \
  "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"

DType drawn_dtype(const Call& c, DType otherwise) {
  DType dtype = c.dtype("dtype", otherwise);
  if (!is_float(dtype))
    c.fail(fmt::format("random numbers need a float dtype, not {}", name_of(dtype)));
  return dtype;
}
Types sized_as_asked(const Call& c) {
  return {ir::Type::tensor(drawn_dtype(c, DType::f32), c.ints("size"))};
}
Types like_self(const Call& c) {
  return {ir::Type::tensor(drawn_dtype(c, c.type("self").dtype), c.type("self").sizes)};
}
template <bool normal>
Tensors draw_as(Builder& b, const Call& c) {
  const ir::Type& type = c.result()->type;
  std::string_view op = normal ? "tandem.random_normal" : "tandem.random_uniform";
  return {to(call(b, op, {type.sizes}), type.dtype)};
}

const OpDef kRand{.schema = "aten::rand(SymInt[] size, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
                  .types = sized_as_asked,
                  .decompose = draw_as<false>,
                  .samples = {"[3, 4]", "[0]"}};
const OpDef kRandn{.schema = "aten::randn(SymInt[] size, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
                   .types = sized_as_asked,
                   .decompose = draw_as<true>,
                   .samples = {"[3, 4]", "[0]"}};
const OpDef kRandLike{.schema = "aten::rand_like(Tensor self, *, " TANDEM_FACTORY_OPTIONS
                                ", MemoryFormat? memory_format=None) -> Tensor",
                      .types = like_self,
                      .decompose = draw_as<false>,
                      .samples = {"$[3, 4]"}};
const OpDef kRandnLike{.schema = "aten::randn_like(Tensor self, *, " TANDEM_FACTORY_OPTIONS
                                 ", MemoryFormat? memory_format=None) -> Tensor",
                       .types = like_self,
                       .decompose = draw_as<true>,
                       .samples = {"$[3, 4]"}};
#undef TANDEM_FACTORY_OPTIONS

/// Keeps each element with probability 1 - p: the bool mask.
Tensor keep_mask(Builder& b, const ir::Sizes& sizes, double p) {
  return compare("ge", call(b, "tandem.random_uniform", {sizes}), p);
}

double probability(const Call& c) {
  double p = c.floating("p");
  if (!(p >= 0 && p <= 1)) c.fail("p must be in [0, 1], not " + ir::to_string(p));
  return p;
}

/// Whether a dropout draws numbers; `train` may be none, which means true.
bool draws(const Call& c) { return !c.has("train") || c.boolean("train"); }
const Samples kDropoutSamples = {"$[3, 4], 0.0, true", "$[3, 4], 0.5, false", "$[3, 4], 0.5, true",
                                 "$[3, 4], 1.0, true", "$[31]:special, 1.0, true"};

/// self * (mask ? scale : 0): what is dropped is multiplied, so that NaN and infinities become NaN,
/// in the gradient too. The scale is rounded to self's dtype first. All this is as in eager.
Types masked_types(const Call& c, std::string_view self) {
  if (c.type("mask").dtype != DType::boolean) c.fail(c.describe("mask") + " must be bool");
  need_float(c, self);
  const ir::Sizes& sizes = c.type(self).sizes;
  if (!same_sizes(sizes, c.type("mask").sizes))
    c.fail(c.describe(self) + " and " + c.describe("mask") + " differ in sizes");
  return {ir::Type::tensor(c.type(self).dtype, sizes)};
}
const OpDef kMaskedScale{
    .schema = "tandem::masked_scale(Tensor self, Tensor mask, float scale) -> Tensor",
    .types = [](const Call& c) { return masked_types(c, "self"); },
    .lower =
        [](Lowering& lowering, const Call& c) {
          DType dtype = c.result()->type.dtype;
          DType compute = compute_type(dtype);
          return map_definition(c, [&lowering, c, dtype, compute](size_t, const Index& index) {
            Element x = operand(lowering, c, "self", index, compute);
            Element scale = x.number(c.floating("scale")).cast(dtype).cast(compute);
            Element mask = operand(lowering, c, "mask", index, DType::boolean);
            return (x * choose(mask, scale, x.number(0))).value();
          });
        },
    // d(x noise) = noise dx
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "tandem.masked_scale", {g[0], c.arg("mask"), c.arg("scale")})}};
    },
    .samples = {"$[3, 4], bool[3, 4], 1.25", "$[31]:special, bool[31], 2.0"},
    .pointwise = true};
const OpDef kNativeDropoutBackward{
    .schema =
        "aten::native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor",
    .types = [](const Call& c) { return masked_types(c, "grad_output"); },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {
          call(b, "tandem.masked_scale", {c.arg("grad_output"), c.arg("mask"), c.arg("scale")})};
    },
    .samples = {"$[3, 4], bool[3, 4], 1.25", "$[31]:special, bool[31], 2.0"}};

const OpDef kNativeDropout{
    .schema = "aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      probability(c);
      if (draws(c)) need_float(c, "input");
      const ir::Type& x = c.type("input");
      return {ir::Type::tensor(x.dtype, x.sizes), ir::Type::tensor(DType::boolean, x.sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x{b, c.value("input")};
      double p = c.floating("p");
      if (!draws(c)) return {call(b, "aten.clone", {x}), full(b, x.sizes(), 1, DType::boolean)};
      Tensor mask = keep_mask(b, x.sizes(), p);
      return {call(b, "tandem.masked_scale", {x, mask, p == 1 ? 0.0 : 1 / (1 - p)}), mask};
    },
    .samples = kDropoutSamples,
    .sample_dtypes = DTypes::all};
const OpDef kDropout{.schema = "aten::dropout(Tensor input, float p, bool train) -> Tensor",
                     .types = [](const Call& c) -> Types {
                       double p = probability(c);
                       if (draws(c) && p > 0 && p < 1) need_float(c, "input");
                       return {ir::Type::tensor(c.type("input").dtype, c.type("input").sizes)};
                     },
                     .decompose = [](Builder& b, const Call& c) -> Tensors {
                       Tensor x{b, c.value("input")};
                       if (!c.boolean("train") || c.floating("p") == 0) return {x};
                       if (!is_float(x.dtype())) return {zeros_like(x)};  // p is 1
                       return {call_many(b, "aten.native_dropout", {x, c.floating("p"), true})[0]};
                     },
                     .samples = kDropoutSamples,
                     .sample_dtypes = DTypes::all,
                     .inplace = true};

const OpDef kWithHistory{
    .schema = "tandem::with_history(Tensor old, Tensor updated) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"old", "updated"});
      if (!same_sizes(c.type("old").sizes, c.type("updated").sizes))
        c.fail(c.describe("old") + " and " + c.describe("updated") + " must have the same sizes");
      return {c.type("updated")};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return lowering.load(c.value("updated"), index);
          });
        },
    // A value written under no_grad keeps the history of what it replaced.
    .vjp = [](Builder&, const Call&, Grads g) -> Gradients { return {{"old", g[0]}}; },
    .samples = {"$[3], $[3]"},
    .pointwise = true,
    .complex = {complex_each}};

const OpDef kZeroGradient{
    .schema = "tandem::zero_gradient(Tensor of, Tensor result) -> Tensor",
    .types = [](const Call& c) -> Types { return {c.type("result")}; },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return lowering.load(c.value("result"), index);
          });
        },
    // What is drawn in the place of `of`, or by it, has a history in eager: of zeros.
    .vjp = zero_gradient,
    .samples = {"$[3], $[3]"}};

const OpDef* const kOps[] = {
    &kZeroGradient, &kUniform,  &kNormal,     &kInteger,       &kRand,
    &kRandn,        &kRandLike, &kRandnLike,  &kNativeDropout, &kNativeDropoutBackward,
    &kMaskedScale,  &kDropout,  &kWithHistory};

}  // namespace

Family random_family() { return kOps; }

}  // namespace tandem::ops
