// Upsampling and its relatives. Every mode is a product of one-dimensional ones, so there are two
// primitives, a resampling of one dimension and its transpose, and ATen's ops chain them in the
// compute type.
//   y[o] = sum over taps t of w_t(o) x[i_t(o)],  dx[i] = sum over o near i / scale of w(o, i) dy[o]
// The transpose gathers: an input lies within the support of few outputs, whose range is an integer
// expression; which of them really read it is asked of the same formulas that the forward op has.
#include "ops/nn/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/window.h"

namespace tandem::ops {
namespace resample {
namespace {

struct ModeName {
  Mode mode;
  const char* name;
};
constexpr ModeName kModeNames[] = {{Mode::nearest, "nearest"},     {Mode::exact, "nearest-exact"},
                                   {Mode::linear, "linear"},       {Mode::cubic, "cubic"},
                                   {Mode::aa_linear, "aa_linear"}, {Mode::aa_cubic, "aa_cubic"}};
Mode mode_of(const Call& c) {
  std::string text = c.string("mode");
  for (const ModeName& entry : kModeNames)
    if (text == entry.name) return entry.mode;
  c.fail(c.describe("mode") + " is no way of resampling");
}

bool is_nearest(Mode mode) { return mode == Mode::nearest || mode == Mode::exact; }
bool is_antialiased(Mode mode) { return mode == Mode::aa_linear || mode == Mode::aa_cubic; }
/// How far from its centre a tap may lie.
int64_t support_of(Mode mode) {
  if (is_nearest(mode)) return 0;
  return mode == Mode::linear || mode == Mode::aa_linear ? 1 : 2;
}

// --- positions
// ------------------------------------------------------------------------------------

Element floor(Element x) { return x.apply(Opcode::floor); }
Element at_least(Element x, double lo) { return max(x, x.number(lo)); }
Element at_most(Element x, double hi) { return min(x, x.number(hi)); }

/// One dimension of a call: `in` positions become `out`.
struct Line {
  Mode mode;
  bool align;
  Expr in, out;
  double factor;  // outputs an input position as the caller gave it, 0 when he did not

  /// Inputs an output position, in the arithmetic of eager.
  Element scale(loop::ScalarPool& pool, DType dtype) const {
    auto number = [&](Expr x) { return Element{pool, pool.index(x)}.cast(dtype); };
    if (align && out == Expr(1)) return {pool, pool.constant(dtype, 0)};
    if (align) return number(in - 1) / number(sym::max(out - 1, 1));
    if (factor > 0) return {pool, pool.constant(dtype, 1 / factor)};
    return number(in) / number(out);
  }
  Element position(loop::ScalarPool& pool, Expr o, DType dtype) const {
    Element place = Element{pool, pool.index(o)}.cast(dtype);
    return align ? scale(pool, dtype) * place : scale(pool, dtype) * (place + 0.5) - 0.5;
  }
  Element last(loop::ScalarPool& pool) const { return {pool, pool.index(in - 1)}; }
};

struct Tap {
  Element index;   // i64, in [0, in)
  Element weight;  // in the compute type
};

/// Number of outputs for each input (or of inputs for each output) where it is a whole number and
/// floats give the positions that it says: its own reciprocal is exact, or all were tried.
bool divides(const Line& line, int64_t times) {
  double scale = line.factor > 0 ? 1 / line.factor : 1.0 / static_cast<double>(times);
  if (static_cast<float>(scale) != static_cast<float>(1.0 / static_cast<double>(times)))
    return false;
  if (std::has_single_bit(static_cast<uint64_t>(times))) return true;
  std::optional<int64_t> out = line.out.constant();
  if (!out || *out > 65536) return false;
  double middle = line.mode == Mode::exact ? 0.5 : 0;
  for (int64_t o = 0; o < *out; ++o) {
    double place = (static_cast<double>(o) + middle) * static_cast<float>(scale);
    if (static_cast<int64_t>(static_cast<float>(place)) != o / times) return false;
  }
  return true;
}
int64_t whole_ratio(Expr a, Expr b) {
  if (b == Expr(0) || !sym::known_divisible(a, b)) return 0;
  return sym::floor_div(a, b).constant().value_or(0);
}
/// The nearest input of output `o` as an index expression, where there is one.
std::optional<Expr> whole_nearest(const Line& line, Expr o) {
  int64_t times = whole_ratio(line.out, line.in);
  if (line.mode == Mode::nearest && times > 0 && times <= 2) return sym::floor_div(o, times);
  if (times > 0 && divides(line, times)) return sym::floor_div(o, times);
  int64_t step = whole_ratio(line.in, line.out);
  if (step > 0 && line.factor == 0) return o * step + (line.mode == Mode::exact ? step / 2 : 0);
  return std::nullopt;
}

/// The nearest input in eager's arithmetic, which is f32 for every dtype.
Element nearest_of(loop::ScalarPool& pool, const Line& line, Expr o) {
  if (std::optional<Expr> whole = whole_nearest(line, o)) return {pool, pool.index(*whole)};
  Element place{pool, pool.index(o)};
  Element scale = line.scale(pool, DType::f32);
  Element at = line.mode == Mode::exact
                   ? ((place.cast(DType::f64) + 0.5) * scale.cast(DType::f64)).cast(DType::f32)
                   : place.cast(DType::f32) * scale;
  return min(floor(at).cast(DType::i64), line.last(pool));
}

// Keys' convolution kernel, within one and two positions of its centre.
Element cubic_near(Element x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1.0; }
Element cubic_far(Element x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

std::vector<Tap> taps_of(loop::ScalarPool& pool, const Line& line, Expr o, DType dtype) {
  Element one{pool, pool.constant(dtype, 1)};
  if (is_nearest(line.mode)) return {{nearest_of(pool, line, o), one}};
  Element place = line.position(pool, o, dtype);
  if (line.mode == Mode::linear) place = at_least(place, 0);
  Element last = line.last(pool);
  Element first = min(floor(place).cast(DType::i64), last);
  Element t = at_most(at_least(place - first.cast(dtype), 0), 1);
  if (line.mode == Mode::linear) return {{first, 1.0 - t}, {min(first + 1.0, last), t}};
  constexpr double kA = -0.75;
  Element weights[] = {cubic_far(t + 1.0, kA), cubic_near(t, kA), cubic_near(1.0 - t, kA),
                       cubic_far(2.0 - t, kA)};
  std::vector<Tap> taps;
  for (int k = 0; k < 4; ++k)
    taps.push_back({at_least(min(first + static_cast<double>(k - 1), last), 0), weights[k]});
  return taps;
}

/// What input `i` counts in output `o`, before the division by the sum of all, where the filter
/// widens with the scale. Outside of its support the filter is 0.
Element filter_weight(loop::ScalarPool& pool, const Line& line, Expr o, Expr i, DType dtype) {
  Element scale = line.scale(pool, dtype);
  Element centre = scale * (Element{pool, pool.index(o)}.cast(dtype) + 0.5);
  Element distance = Element{pool, pool.index(i)}.cast(dtype) - centre + 0.5;
  Element x = abs(distance * (1.0 / at_least(scale, 1)));
  Element zero = x.number(0);
  if (line.mode == Mode::aa_linear) return choose(x < 1.0, 1.0 - x, zero);
  constexpr double kA = -0.5;
  return choose(x < 1.0, cubic_near(x, kA), choose(x < 2.0, cubic_far(x, kA), zero));
}

// --- ranges
// ---------------------------------------------------------------------------------------

/// Outputs for each input as a fraction. `rough`: it is a binary approximation.
struct Ratio {
  Expr outs, ins;
  bool exact = false;  // positions have no rounding error
  bool rough = false;
};
Ratio ratio_of(const Line& line) {
  if (line.align) return {line.out - 1, sym::max(line.in - 1, 1)};
  if (line.factor <= 0) {
    int64_t times = whole_ratio(line.out, line.in);
    bool exact = times > 0 && std::has_single_bit(static_cast<uint64_t>(times));
    if (exact) return {times, 1, true};
    return {line.out, line.in};
  }
  for (int64_t ins = 1; ins <= 64; ++ins) {
    double outs = line.factor * static_cast<double>(ins);
    if (outs != std::floor(outs) || outs < 1 || outs > 1e6) continue;
    auto whole = static_cast<int64_t>(outs);
    return {whole, ins, ins == 1 && std::has_single_bit(static_cast<uint64_t>(whole))};
  }
  constexpr int64_t kUnit = 1 << 20;
  auto outs = static_cast<int64_t>(std::clamp(std::round(line.factor * kUnit), 1.0, 1e15));
  return {outs, kUnit, false, true};
}

struct Range {
  Expr start, count;
};
/// Integers in [numerator / denominator, that + length), a little wider unless exact.
Range integers(const Ratio& ratio, Expr numerator, Expr denominator, Expr length, bool open) {
  if (ratio.exact)
    return {
        open ? sym::floor_div(numerator, denominator) + 1 : sym::ceil_div(numerator, denominator),
        length};
  int64_t margin = ratio.rough ? 1 : 0;
  return {sym::floor_div(numerator, denominator) - margin, length + 2 + 2 * margin};
}

/// Outputs that may read input `i`. Where the caller's factor does not fit the sizes, the last
/// input serves all that lie beyond: then every output is asked.
Range readers_of(const Line& line, Expr i) {
  Ratio ratio = ratio_of(line);
  if (!line.align && line.factor > 0 && !sym::known_le(line.out * ratio.ins, line.in * ratio.outs))
    return {0, line.out};
  int64_t support = support_of(line.mode);
  bool half = !line.align && line.mode != Mode::nearest;  // centres are at half positions
  Expr from = 2 * i - 2 * support + (half && support > 0 ? 1 : 0);
  Expr length = sym::ceil_div(std::max<int64_t>(2 * support, 1) * ratio.outs, ratio.ins);
  Expr numerator = from * ratio.outs - (half ? ratio.ins : Expr(0));
  return integers(ratio, numerator, 2 * ratio.ins, length, support > 0);
}
/// As readers_of where the filter is at least `support` outputs wide.
Range filtered_readers(const Line& line, Expr i) {
  Ratio ratio = ratio_of(line);
  int64_t support = support_of(line.mode);
  Expr wide = sym::max(ratio.outs, ratio.ins);
  Expr numerator = (2 * i + 1) * ratio.outs - 2 * support * wide - ratio.ins;
  return integers({ratio.outs, ratio.ins, false, true}, numerator, 2 * ratio.ins,
                  sym::ceil_div(2 * support * wide, ratio.ins), true);
}
/// Inputs that output `o` reads through a filter.
Range filtered_inputs(const Line& line, Expr o) {
  Ratio ratio = ratio_of(line);
  if (ratio.outs == Expr(0))
    throw Unsupported("[tandem.resample] a filter with align_corners to one element");
  int64_t support = support_of(line.mode);
  Expr wide = sym::max(ratio.outs, ratio.ins);
  Expr numerator = (2 * o + 1) * ratio.ins - 2 * support * wide - ratio.outs;
  return integers({ratio.outs, ratio.ins, false, true}, numerator, 2 * ratio.outs,
                  sym::ceil_div(2 * support * wide, ratio.outs), true);
}

// --- the two primitives
// ---------------------------------------------------------------------------

Line line_of(const Call& c, Expr in, Expr out) {
  return {mode_of(c), c.boolean("align_corners"), in, out,
          c.has("factor") ? c.floating("factor") : 0};
}
int64_t line_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }
Types line_types(const Call& c) {
  if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no lines");
  if (sym::known_lt(c.integer("size"), 1)) c.fail(c.describe("size") + " must be positive");
  mode_of(c);
  Sizes sizes = c.type("self").sizes;
  sizes[line_dim(c)] = c.integer("size");
  return {ir::Type::tensor(c.type("self").dtype, sizes)};
}

Definition taps_lower(Lowering& lowering, const Call& c, const Line& line) {
  return map_definition(c, [&lowering, c, line](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    int64_t dim = line_dim(c);
    Index at = index;
    if (std::optional<Expr> whole =
            is_nearest(line.mode) ? whole_nearest(line, index[dim]) : std::nullopt) {
      at[dim] = *whole;
      return lowering.load(c.value("self"), at);
    }
    loop::Val sum = nullptr;
    for (const Tap& tap : taps_of(pool, line, index[dim], compute_type(c.type("self").dtype))) {
      at[dim] = pool.as_index(tap.index.value(), line.in);
      loop::Val x = lowering.load(c.value("self"), at);
      if (is_nearest(line.mode)) return x;
      loop::Val part = pool.binary(Opcode::mul, x, tap.weight.value());
      sum = sum == nullptr ? part : pool.binary(Opcode::add, sum, part);
    }
    return sum;
  });
}

/// A sum over the positions of a range; those outside of [0, extent) count nothing.
Definition range_sum(Lowering& lowering, const Call& c, Range (*range)(const Line&, Expr),
                     const Line& line, Expr extent,
                     std::function<loop::Val(loop::Val x, Expr own, Expr other)> part) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::sum;
  definition.reduce_sizes = {range(line, 0).count};
  definition.input = [&lowering, c, range, line, extent, part = std::move(part)](const Index& out,
                                                                                 const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    int64_t dim = line_dim(c);
    Index at = out;
    at[dim] = range(line, out[dim]).start + r[0];
    loop::Val inside = in_range(pool, at[dim], extent);
    loop::Val value = part(lowering.load(c.value("self"), at, inside), out[dim], at[dim]);
    return std::vector<loop::Val>{pool.select(inside, value, pool.constant(value->dtype, 0))};
  };
  return definition;
}

Definition filter_lower(Lowering& lowering, const Call& c, const Line& line, bool forward) {
  return range_sum(
      lowering, c, forward ? filtered_inputs : filtered_readers, line, forward ? line.in : line.out,
      [&lowering, line, forward](loop::Val x, Expr own, Expr other) {
        loop::ScalarPool& pool = lowering.scalars();
        Element weight =
            filter_weight(pool, line, forward ? own : other, forward ? other : own, x->dtype);
        return pool.binary(Opcode::mul, x, weight.value());
      });
}

/// sum of w_t(o) dy[o] over the taps of `o` that are `i`
Definition readers_lower(Lowering& lowering, const Call& c, const Line& line) {
  return range_sum(lowering, c, readers_of, line, line.out,
                   [&lowering, line](loop::Val dy, Expr i, Expr o) {
                     loop::ScalarPool& pool = lowering.scalars();
                     loop::Val own = pool.index(i);
                     loop::Val zero = pool.constant(dy->dtype, 0);
                     loop::Val sum = nullptr;
                     for (const Tap& tap : taps_of(pool, line, o, dy->dtype)) {
                       loop::Val part = dy;
                       if (!is_nearest(line.mode))
                         part = pool.binary(Opcode::mul, dy, tap.weight.value());
                       loop::Val hit = pool.binary(Opcode::eq, tap.index.value(), own);
                       part = pool.select(hit, part, zero);
                       sum = sum == nullptr ? part : pool.binary(Opcode::add, sum, part);
                     }
                     return sum;
                   });
}

Expr line_size(const Call& c) { return c.type("self").sizes[line_dim(c)]; }

Tensor transposed(Builder& b, const Call& c, std::string_view op, Tensor grad) {
  return call(
      b, op,
      {grad, c.arg("dim"), line_size(c), c.arg("mode"), c.arg("align_corners"), c.arg("factor")});
}

const Samples kLineSamples = {"$[2, 5], 1, 10, \"nearest\", false, none",
                              "$[2, 5, 3], 1, 7, \"linear\", true, none",
                              "$[7], 0, 4, \"aa_cubic\", false, none"};
const OpDef kLine{
    .schema =
        "tandem::resample(Tensor self, int dim, SymInt size, str mode, bool align_corners, float? "
        "factor) -> Tensor",
    .types = line_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          Line line = line_of(c, line_size(c), c.integer("size"));
          return is_antialiased(line.mode) ? filter_lower(lowering, c, line, true)
                                           : taps_lower(lowering, c, line);
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", transposed(b, c, "tandem.resample_transposed", g[0])}};
    },
    .samples = kLineSamples};
const OpDef kLineTransposed{
    .schema =
        "tandem::resample_transposed(Tensor self, int dim, SymInt size, str mode, bool "
        "align_corners, float? factor) -> Tensor",
    .types = line_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          Line line = line_of(c, c.integer("size"), line_size(c));
          return is_antialiased(line.mode) ? filter_lower(lowering, c, line, false)
                                           : readers_lower(lowering, c, line);
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", transposed(b, c, "tandem.resample", g[0])}};
    },
    .samples = {"$[2, 10], 1, 5, \"nearest\", false, none",
                "$[2, 7, 3], 1, 5, \"linear\", true, none",
                "$[4], 0, 7, \"aa_cubic\", false, none"}};

const OpDef* const kOps[] = {&kLine, &kLineTransposed};

// --- chains
// ---------------------------------------------------------------------------------------

/// No resampling at all, as eager sees it.
bool is_identity(const Step& step, Expr in, Expr out) {
  bool plain = step.mode == Mode::nearest || step.mode == Mode::linear || step.factor <= 0;
  return plain && !is_antialiased(step.mode) && in == out;
}
Operand factor_of(const Step& step) {
  return step.factor > 0 ? Operand(step.factor) : Operand(ir::Arg(ir::None{}));
}
const char* name_of_mode(Mode mode) {
  for (const ModeName& entry : kModeNames)
    if (mode == entry.mode) return entry.name;
  return "";
}
/// Sum of the filter's weights an output, against `x` in dimension `dim`.
Tensor weight_sums(Tensor x, int64_t dim, const Step& step, Expr in, Expr out) {
  Builder& b = x.builder();
  Tensor sums = call(
      b, "tandem.resample",
      {full(b, {in}, 1, x.dtype()), 0, out, name_of_mode(step.mode), step.align, factor_of(step)});
  Sizes sizes(x.sizes().size() - static_cast<size_t>(dim), Expr(1));
  sizes[0] = out;
  return reshape(sums, sizes);
}

}  // namespace

Tensor forward(Tensor x, int64_t dim, const Step& step, Expr out) {
  Expr in = x.size(dim);
  if (is_identity(step, in, out)) return x;
  Tensor y = call(x.builder(), "tandem.resample",
                  {x, dim, out, name_of_mode(step.mode), step.align, factor_of(step)});
  return is_antialiased(step.mode) ? y / weight_sums(y, dim, step, in, out) : y;
}

Tensor backward(Tensor grad, int64_t dim, const Step& step, Expr in) {
  Expr out = grad.size(dim);
  if (is_identity(step, in, out)) return grad;
  if (is_antialiased(step.mode)) grad = grad / weight_sums(grad, dim, step, in, out);
  return call(grad.builder(), "tandem.resample_transposed",
              {grad, dim, in, name_of_mode(step.mode), step.align, factor_of(step)});
}

}  // namespace resample

Family resample_family() { return resample::kOps; }

}  // namespace tandem::ops
