// Factories whose elements depend on their places: matrices of ones on a diagonal, evenly spaced
// numbers, indices of triangles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/pointwise/factory.h"

namespace tandem::ops {
namespace {

// --- eye
// ------------------------------------------------------------------------------------------

Types eye_types(const Call& c) {
  Expr n = c.integer("n");
  Expr m = c.op().schema.find("m") < 0 ? n : c.integer("m");
  need_sizes(c, {n, m});
  return {ir::Type::tensor(c.dtype("dtype", DType::f32), {n, m})};
}
Definition eye_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    loop::Val on = pool.binary(Opcode::eq, pool.index(index[0]), pool.index(index[1]));
    return pool.cast(on, compute_type(c.result()->type.dtype));
  });
}
const OpDef kEye{.schema = "aten::eye(SymInt n, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
                 .types = eye_types,
                 .lower = eye_lower,
                 .no_grad = kNoOperand,
                 .samples = {"3", "0", "4, dtype=i64", "4, dtype=bool", "4, dtype=bf16", "-1"},
                 .complex = {complex_real}};
const OpDef kEyeM{
    .schema = "aten::eye.m(SymInt n, SymInt m, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
    .types = eye_types,
    .lower = eye_lower,
    .no_grad = kNoOperand,
    .samples = {"3, 5", "5, 3", "0, 2", "2, 3, dtype=f64", "2, -1"},
    .complex = {complex_real}};

// --- evenly spaced numbers
// ------------------------------------------------------------------------

bool is_negative_count(const Call& c) { return c.constant("steps") < 0; }
Types spaced_types(const Call& c) {
  if (is_negative_count(c)) c.fail(c.describe("steps") + " must not be negative");
  for (std::string_view end : {"start", "end"})
    if (is_tensor(c, end)) need_rank(c, end, 0, 0);
  return {ir::Type::tensor(c.dtype("dtype", DType::f32), {c.constant("steps")})};
}

/// A number or a 0-d tensor.
Element end_of(Lowering& lowering, const Call& c, std::string_view name, DType dtype) {
  if (is_tensor(c, name)) return operand(lowering, c, name, {}, dtype);
  return {lowering.scalars(), lowering.scalar(c.arg(name), dtype)};
}

/// Element number i of `steps` from start to end: counted from the nearer end, so that both ends
/// are exact.
Element spaced(Lowering& lowering, const Call& c, Expr i, DType dtype) {
  loop::ScalarPool& pool = lowering.scalars();
  Element start = end_of(lowering, c, "start", dtype);
  Element end = end_of(lowering, c, "end", dtype);
  int64_t steps = c.constant("steps");
  Element position{pool, pool.cast(pool.index(i), dtype)};
  Element rest{pool, pool.cast(pool.index(Expr(steps - 1) - i), dtype)};
  Element step = (end - start) / std::max(static_cast<double>(steps - 1), 1.0);
  Element near{pool, pool.binary(Opcode::lt, pool.index(i), pool.index(steps / 2))};
  return steps == 1 ? start : choose(near, start + step * position, end - step * rest);
}
DType spacing_dtype(const Call& c) {
  DType dtype = c.result()->type.dtype;
  return is_float(dtype) ? compute_type(dtype) : DType::f64;
}
Definition linspace_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    return spaced(lowering, c, index[0], spacing_dtype(c))
        .cast(compute_type(c.result()->type.dtype))
        .value();
  });
}
Definition logspace_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    Element exponent = spaced(lowering, c, index[0], spacing_dtype(c));
    return exponent.number(c.floating("base"))
        .apply(Opcode::pow, exponent)
        .cast(compute_type(c.result()->type.dtype))
        .value();
  });
}
constexpr std::string_view kReadsNumbers = "eager reads the ends as numbers";
OpDef linspace(std::string_view schema, std::string_view no_grad, const Samples& samples) {
  return {.schema = schema,
          .types = spaced_types,
          .lower = linspace_lower,
          .no_grad = no_grad,
          .samples = samples};
}
OpDef logspace(std::string_view schema, std::string_view no_grad, const Samples& samples) {
  OpDef def = linspace(schema, no_grad, samples);
  def.lower = logspace_lower;
  return def;
}
#define TANDEM_LINSPACE(ends) \
  "aten::linspace" ends ", int steps, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor"
#define TANDEM_LOGSPACE(ends) \
  "aten::logspace" ends ", int steps, float base=10., *, " TANDEM_FACTORY_OPTIONS ") -> Tensor"
const OpDef kSpaced[] = {
    linspace(TANDEM_LINSPACE("(Scalar start, Scalar end"), kNoOperand,
             {"0, 1, 5", "-2.5, 3, 8", "3, -3, 7", "1, 2, 1", "1, 2, 0", "0, 10, 4, dtype=i64",
              "0, 1, 9, dtype=f64", "0, 1, 6, dtype=bf16", "0, 1, -1"}),
    linspace(TANDEM_LINSPACE(".Tensor_Tensor(Tensor start, Tensor end"), kReadsNumbers,
             {"$[], $[], 5", "$[], $[], 1", "i64[], i64[], 7", "$[], i64[], 0", "$[1], $[], 3",
              "$[], $[], 9, dtype=$"}),
    linspace(TANDEM_LINSPACE(".Tensor_Scalar(Tensor start, Scalar end"), kReadsNumbers,
             {"$[], 3, 5", "i64[], -1.5, 4", "$[], 2, 6, dtype=$"}),
    linspace(TANDEM_LINSPACE(".Scalar_Tensor(Scalar start, Tensor end"), kReadsNumbers,
             {"-3, $[], 5", "1.5, i64[], 4", "2, $[], 6, dtype=$"}),
    logspace(TANDEM_LOGSPACE("(Scalar start, Scalar end"), kNoOperand,
             {"0, 1, 5", "-2.5, 3, 8, 2.0", "1, 2, 1", "1, 2, 0", "0, 1, 9, dtype=f64",
              "0, 4, 5, 2.0, dtype=i64", "0, 1, -1"}),
    logspace(TANDEM_LOGSPACE(".Tensor_Tensor(Tensor start, Tensor end"), kReadsNumbers,
             {"$[], $[], 5", "i64[], i64[], 7, 2.0", "$[], $[1], 3"}),
    logspace(TANDEM_LOGSPACE(".Tensor_Scalar(Tensor start, Scalar end"), kReadsNumbers,
             {"$[], 3, 5", "i64[], -1.5, 4, 2.0"}),
    logspace(TANDEM_LOGSPACE(".Scalar_Tensor(Scalar start, Tensor end"), kReadsNumbers,
             {"-3, $[], 5", "1.5, i64[], 4, 2.0"}),
};
#undef TANDEM_LINSPACE
#undef TANDEM_LOGSPACE

// --- indices of triangles
// -------------------------------------------------------------------------

/// The elements (i, j) of a rows x columns matrix with j - i <= offset, row by row: first `steps`
/// rows that have one element more each, from `first` on, then full rows.
struct Staircase {
  int64_t rows, columns;
  int64_t top = 0;    // the first row with elements
  int64_t first = 0;  // how many it has
  int64_t steps = 0;
  int64_t count = 0;
  int64_t in_steps = 0;
};
int64_t elements_of(const Staircase& stairs, int64_t rows) {
  return rows * stairs.first + rows * (rows - 1) / 2;
}
Staircase staircase(int64_t rows, int64_t columns, int64_t offset) {
  Staircase stairs{.rows = rows, .columns = columns};
  stairs.top = std::max<int64_t>(0, -offset);
  if (rows == 0 || columns == 0 || stairs.top >= rows) return stairs;
  stairs.first = std::min(columns, stairs.top + offset + 1);
  stairs.steps = std::min(rows - stairs.top, columns - stairs.first + 1);
  stairs.in_steps = elements_of(stairs, stairs.steps);
  stairs.count = stairs.in_steps + (rows - stairs.top - stairs.steps) * columns;
  return stairs;
}

/// The upper triangle is the lower one of the matrix turned by half a turn, read from its end.
template <bool lower>
Staircase staircase_of(const Call& c) {
  int64_t rows = c.constant("row");
  int64_t columns = c.constant("col");
  int64_t offset = c.constant("offset");
  if (rows < 0) c.fail(c.describe("row") + " must not be negative");
  if (columns < 0) c.fail(c.describe("col") + " must not be negative");
  // Their products stay in 64 bits; offsets beyond the matrix are as good as its edge.
  if (rows > INT32_MAX || columns > INT32_MAX) c.fail("row and col must be below 2**31");
  offset = std::clamp(offset, -rows, columns);
  return staircase(rows, columns, lower ? offset : columns - rows - offset);
}

/// Row of element x among the steps, counted from `top`: the largest k with k first + k (k - 1) / 2
/// <= x. The root may be off by one.
Element step_of(const Staircase& stairs, Element x) {
  double b = 2.0 * static_cast<double>(stairs.first) - 1;
  Element root = sqrt(x.cast(DType::f64) * 8.0 + b * b);
  Element guess = ((root - b) / 2.0).apply(Opcode::floor).cast(DType::i64);
  auto begin = [&](Element k) {
    Element twice = k * (k + b);
    return twice.apply(Opcode::shift_right, twice.number(1));
  };
  guess = choose(begin(guess) > x, guess - 1.0, guess);
  return choose(begin(guess + 1.0) <= x, guess + 1.0, guess);
}

template <bool lower>
loop::Val triangle_index(Lowering& lowering, const Call& c, const Index& index) {
  loop::ScalarPool& pool = lowering.scalars();
  Staircase stairs = staircase_of<lower>(c);
  Expr number = lower ? index[1] : Expr(stairs.count - 1) - index[1];
  Element x{pool, pool.index(number)};
  Element step = step_of(stairs, x);
  Element twice = step * (step + (2.0 * static_cast<double>(stairs.first) - 1));
  Element start = twice.apply(Opcode::shift_right, twice.number(1));
  Expr rest = number - stairs.in_steps;
  Element full{pool, pool.binary(Opcode::ge, pool.index(rest), pool.integer(DType::i64, 0))};
  Expr width = std::max<int64_t>(stairs.columns, 1);
  Element row =
      choose(full, Element{pool, pool.index(sym::floor_div(rest, width) + stairs.steps)}, step) +
      static_cast<double>(stairs.top);
  Element column = choose(full, Element{pool, pool.index(sym::mod(rest, width))}, x - start);
  if (!lower) {
    row = static_cast<double>(stairs.rows - 1) - row;
    column = static_cast<double>(stairs.columns - 1) - column;
  }
  Element is_row{pool, pool.binary(Opcode::eq, pool.index(index[0]), pool.integer(DType::i64, 0))};
  return choose(is_row, row, column).cast(c.result()->type.dtype).value();
}
template <bool lower>
Types triangle_types(const Call& c) {
  DType dtype = c.dtype("dtype", DType::i64);
  if (dtype != DType::i64 && dtype != DType::i32)
    c.fail(fmt::format("indices are i64 or i32, not {}", name_of(dtype)));
  return {ir::Type::tensor(dtype, {2, staircase_of<lower>(c).count})};
}
template <bool lower>
Definition triangle_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    return triangle_index<lower>(lowering, c, index);
  });
}
const Samples kTriangleSamples = {"4, 4",     "3, 5, 1",  "5, 3, -1",          "5, 3, 7",
                                  "3, 5, -2", "3, 3, -5", "40, 30, dtype=i32", "0, 3",
                                  "2, 6, 3",  "-1, 3",    "6, 2, -3"};
#define TANDEM_TRIANGLE(Name, text, lower_triangle)                                       \
  const OpDef Name {                                                                      \
    .schema = "aten::" text                                                               \
              "_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? " \
              "layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",       \
    .types = triangle_types<lower_triangle>, .lower = triangle_lower<lower_triangle>,     \
    .no_grad = kNoOperand, .samples = kTriangleSamples                                    \
  }
TANDEM_TRIANGLE(kTrilIndices, "tril", true);
TANDEM_TRIANGLE(kTriuIndices, "triu", false);
#undef TANDEM_TRIANGLE

}  // namespace

Family patterns_family() {
  static const std::vector<const OpDef*> kOps =
      listed(kSpaced, {&kEye, &kEyeM, &kTrilIndices, &kTriuIndices});
  return kOps;
}

}  // namespace tandem::ops
