// Products and what stands between them. Factors are bounded so that k products of them stay below
// 2^24: f32 and bf16 both accumulate in f32, so no order of the sum rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "test/property/lines.h"

namespace tandem::property {
namespace {

constexpr double kExact = 1 << 24;

double number(const Dim& dim) { return static_cast<double>(dim.most); }

/// Whole factors: a * b * k < 2^23.
size_t factor(Writer& w, size_t id, double k) {
  const Value& v = w.value(id);
  return w.tamed(id, std::min(v.whole ? 1e9 : 8.0, std::floor(std::sqrt(kExact / 2 / k))));
}

struct Shape {
  Dims batch;
  Dim m, k, n;
};

/// What a product of these factors is: of any order, where it is not exact, the bound is that of a
/// sum of k terms, each rounded.
Value product_of(const Value& a, const Value& b, const Shape& s, Dims dims) {
  const double k = number(s.k);
  Value result{"", a.dtype, std::move(dims), a.most * b.most * k, a.whole && b.whole, 0};
  const double term = a.most * b.error + b.most * a.error + a.error * b.error;
  const Value terms{"", DType::f32, {}, a.most * b.most, a.whole && b.whole, term};
  result.error = error_of_sum(terms, k);
  return result;
}

bool affords(Writer& w, const Shape& s) {
  return w.affords(2 * static_cast<double>(count(s.batch)) * number(s.m) * number(s.k) *
                   number(s.n));
}

Dims with(Dims batch, const Dim& rows, const Dim& columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

/// mm or bmm of two values that fit.
size_t multiply(Writer& w, size_t left, size_t right, const Shape& s) {
  const size_t x = factor(w, left, number(s.k));
  const size_t y = factor(w, right, number(s.k));
  const Value a = w.value(x);
  const Value b = w.value(y);
  w.feature(s.batch.empty() ? "mm" : "bmm");
  w.feature(a.dtype == DType::bf16 ? "bf16 product" : "f32 product");
  if (s.m.is_symbolic() || s.k.is_symbolic() || s.n.is_symbolic()) w.feature("symbolic product");
  return w.add(fmt::format("{}(%{}, %{})", s.batch.empty() ? "mm" : "bmm", a.name, b.name),
               product_of(a, b, s, with(s.batch, s.m, s.n)),
               {{x, number(s.n) * b.most}, {y, number(s.m) * a.most}});
}

/// The right factor of k x n, sometimes as it lies transposed.
size_t right_factor(Writer& w, const Shape& s, DType dtype) {
  if (!w.random().one_in(3)) return w.input(dtype, with(s.batch, s.k, s.n), 3);
  const size_t turned = w.input(dtype, with(s.batch, s.n, s.k), 3);
  Value result = w.value(turned);
  result.dims = with(s.batch, s.k, s.n);
  return w.add(fmt::format("transpose.int(%{}, -2, -1)", w.name(turned)), result, {{turned, 1}});
}

Dim width(Writer& w) {
  if (w.random().one_in(3)) return w.dim();
  static const std::vector<int64_t> kWidths = {1, 3, 8, 16, 17, 31, 32, 33, 40, 64, 70};
  return known(w.random().pick(kWidths));
}

size_t left_factor(Writer& w, size_t rank) {
  return w.pick([&](const Value& v) { return v.is_float() && v.rank() == rank && v.error < 1e-4; },
                w.float_type(), rank);
}

}  // namespace

void add_product(Writer& w) {
  const size_t rank = w.random().one_in(3) ? 3 : 2;
  const size_t left = left_factor(w, rank);
  if (left == SIZE_MAX) return;
  const Value a = w.value(left);
  Shape s{Dims(a.dims.begin(), a.dims.end() - 2), a.dims[rank - 2], a.dims[rank - 1], width(w)};
  const size_t other = w.pick([&](const Value& v) {
    return v.dtype == a.dtype && v.rank() == rank && v.dims[rank - 2] == s.k &&
           std::equal(s.batch.begin(), s.batch.end(), v.dims.begin());
  });
  size_t right = other;
  if (other == SIZE_MAX || w.random().one_in(2)) {
    if (!affords(w, s)) return;
    right = right_factor(w, s, a.dtype);
  } else {
    s.n = w.value(other).dims.back();
    if (!affords(w, s)) return;
  }
  const size_t product = multiply(w, left, right, s);
  if (!w.random().one_in(3)) return;
  const Value from = w.value(product);  // with a bias and an activation
  const size_t bias = w.input(a.dtype, {s.n}, 3);
  Value result = from;
  result.most = from.most + 3;
  result.error = rounded(from.error, result.most);
  const size_t sum = w.add(fmt::format("add.Tensor(%{}, %{})", from.name, w.name(bias)), result,
                           {{product, 1}, {bias, static_cast<double>(count(from.dims))}});
  Value active = w.value(sum);
  w.add(fmt::format("relu(%{})", active.name), active, {{sum, 1}});
}

namespace {

/// floor(16 * p / sum(p)) of p = max(x - max(x), -8) + 8: what softmax does to a row, in integers.
size_t weights_of(Writer& w, size_t scores) {
  const Value s = w.value(w.tamed(scores, 1 << 20));
  const size_t last = s.rank() - 1;
  Dims rows = s.dims;
  rows[last] = known(1);
  const double n = number(s.dims[last]);
  const DType t = s.dtype;
  const auto line = [&](const std::string& call, const Dims& dims, double most, bool whole) {
    return w.name(w.add(call, {"", t, dims, most, whole, 0}));
  };
  const std::string most =
      line(fmt::format("amax(%{}, [{}], true)", s.name, last), rows, s.most, true);
  const std::string below =
      line(fmt::format("sub.Tensor(%{}, %{})", s.name, most), s.dims, 2 * s.most, true);
  const std::string near = line(fmt::format("clamp(%{}, -8, 0)", below), s.dims, 8, true);
  const std::string p = line(fmt::format("add.Scalar(%{}, 8)", near), s.dims, 8, true);
  const std::string sum =
      line(fmt::format("sum.dim_IntList(%{}, [{}], true)", p, last), rows, 8 * n, true);
  const std::string part = line(fmt::format("div.Tensor(%{}, %{})", p, sum), s.dims, 1, false);
  const std::string scaled = line(fmt::format("mul.Scalar(%{}, 16)", part), s.dims, 16, false);
  return w.add(fmt::format("floor(%{})", scaled), {"", t, s.dims, 16, true, 0});
}

/// A right factor that is made of the scores, by a scan: a kernel of its own, which needs the first
/// product and is needed by the second.
size_t values_of(Writer& w, size_t scores, Shape& second) {
  const size_t from = w.tamed(scores, 4);
  Value turned = w.value(from);
  turned.dims = with(second.batch, second.k, second.m);
  const size_t across =
      w.add(fmt::format("transpose.int(%{}, -2, -1)", w.name(from)), turned, {{from, 1}});
  Value running = turned;
  running.most = turned.most * number(second.k);
  second.n = second.m;
  return w.add(fmt::format("cumsum(%{}, {})", w.name(across), turned.rank() - 2), running);
}

}  // namespace

namespace {

/// Each row the other way round: what reads a row reads it elsewhere than it writes its own.
size_t turned_around(Writer& w, size_t scores) {
  const Value rows = w.value(scores);
  w.feature("rows turned around");
  return w.add(fmt::format("flip(%{}, [{}])", rows.name, rows.rank() - 1), rows, {{scores, 1}});
}

/// A right factor that is made of what is written over an input: the product that read the input
/// must not come behind that.
size_t values_of_update(Writer& w, size_t input, Shape& second) {
  Value next = w.value(input);
  next.most = 2;
  w.write_back(input, w.add(fmt::format("clamp(%{}, -2, 1)", w.name(input)), next));
  next.most *= number(second.k);
  second.n = next.dims.back();
  w.feature("updated factor");
  return w.add(fmt::format("cumsum(%{}, {})", w.name(input), next.rank() - 2), next);
}

/// `updates`: the first left factor is written over, and what it becomes is part of the second
/// right factor.
void rows_between_products(Writer& w, bool updates) {
  const bool batched = w.random().one_in(2);
  Dims batch;
  if (batched) batch.push_back(known(1 + static_cast<int64_t>(w.random().below(4))));
  const Dim rows = width(w);
  const Dim length = updates ? rows : width(w);
  const Dim inner = known(w.random().one_in(2) ? 8 : 5);
  const Shape first{batch, rows, inner, length};
  Shape second{batch, rows, length, known(1 + static_cast<int64_t>(w.random().below(20)))};
  if (length.most == 0 || !affords(w, first) || !affords(w, second)) return;
  const DType t = w.float_type();
  const size_t q = w.input(t, with(batch, rows, inner), 3);
  size_t scores = multiply(w, q, right_factor(w, first, t), first);
  if (!w.value(scores).whole) return;
  if (w.random().one_in(3)) {  // what lies above the diagonal is hidden
    Value seen = w.value(scores);
    scores = w.add(fmt::format("tril(%{})", seen.name), seen, {{scores, 1}});
    w.feature("causal mask");
  }
  if (w.random().one_in(3)) scores = turned_around(w, scores);
  const size_t weights = weights_of(w, scores);
  const size_t values = updates                ? values_of_update(w, q, second)
                        : w.random().one_in(4) ? values_of(w, scores, second)
                                               : w.input(t, with(batch, length, second.n), 3);
  multiply(w, weights, values, second);
  w.feature("attention");
}

}  // namespace

void add_rows_between_products(Writer& w) { rows_between_products(w, false); }

void add_late_write(Writer& w) { rows_between_products(w, true); }

void add_layers(Writer& w) {
  Shape s{{}, width(w), known(8), width(w)};
  if (!affords(w, s)) return;
  const DType t = w.float_type();
  size_t x = w.input(t, {s.m, s.k}, 2);
  for (int i = 0; i < 2; ++i) {
    x = w.tamed(multiply(w, x, right_factor(w, s, t), s), 4);
    Value active = w.value(x);
    x = w.add(fmt::format("relu(%{})", active.name), active, {{x, 1}});
    s.k = s.n;
    s.n = width(w);
    if (!affords(w, s)) return;
  }
  multiply(w, x, right_factor(w, s, t), s);
}

/// schedule/compute_at_rows.cc surely gathers 4 matrices of a MiB. Too much for
/// the interpreter, so such graphs run compiled only.
void add_gathering(Writer& w) {
  w.make_large();
  w.allow(1e9);
  const auto tail = [&] { return known(1 + static_cast<int64_t>(w.random().below(24))); };
  const Dims batch{known(4 + static_cast<int64_t>(w.random().below(2)))};
  const Dim rows = known(513 + static_cast<int64_t>(w.random().below(30)));
  const Dim columns = known(512 + static_cast<int64_t>(w.random().below(20)));
  const Dim inner = tail();
  const DType t = DType::f32;
  const Shape first{batch, rows, inner, columns};
  const size_t a = w.input(t, with(batch, rows, inner), 2);
  const size_t b = w.input(t, with(batch, inner, columns), 2);
  const size_t scores = multiply(w, a, b, first);
  Value active = w.value(scores);
  const size_t p = w.add(fmt::format("relu(%{})", active.name), active, {{scores, 1}});
  const Shape second{batch, rows, columns, tail()};
  multiply(w, p, w.input(t, with(batch, columns, second.n), 1), second);
  Value turned = w.value(p);
  turned.dims = with(batch, columns, rows);
  const size_t across = w.add(fmt::format("transpose.int(%{}, 1, 2)", w.name(p)), turned, {{p, 1}});
  const Shape third{batch, columns, rows, tail()};
  multiply(w, across, w.input(t, with(batch, rows, third.n), 1), third);
}

}  // namespace tandem::property
