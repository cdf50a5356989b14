// Sums, extrema and norms. Integers whose sum of absolute values stays below 2^24 are summed
// without rounding; else the bound of a sum in any order is carried (writer.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "test/property/lines.h"

namespace tandem::property {
namespace {

constexpr double kUlp = 1.0 / (1 << 23);
constexpr double kExact = 1 << 24;

struct Reduced {
  std::string list;  // "0, 2"
  Dims dims;
  Dims kept;  // with ones
  double terms = 1;
};

/// Some dimensions, in their order; at least one, where there is one.
Reduced some_of(Writer& w, const Value& value, bool one) {
  Reduced reduced;
  const size_t chosen = w.random().below(std::max<size_t>(value.rank(), 1));
  for (size_t i = 0; i < value.rank(); ++i) {
    const bool is_in = i == chosen || (!one && w.random().one_in(3));
    reduced.kept.push_back(is_in ? known(1) : value.dims[i]);
    if (is_in) {
      reduced.list += (reduced.list.empty() ? "" : ", ") + std::to_string(i);
      reduced.terms *= static_cast<double>(value.dims[i].most);
    } else {
      reduced.dims.push_back(value.dims[i]);
    }
  }
  return reduced;
}

size_t summable(Writer& w, size_t id, double terms) {
  return w.value(id).is_float() ? w.tamed(id, std::floor(kExact / 2 / terms)) : id;
}

Value sum_of(const Value& from, double terms, Dims dims) {
  Value result{"", from.dtype, std::move(dims), from.most * terms, from.whole, 0};
  if (from.dtype == DType::boolean) result.dtype = DType::i64;
  result.error = error_of_sum(from, terms);
  return result;
}

Value mean_of(const Value& from, double terms, Dims dims) {
  Value result{"", from.dtype, std::move(dims), from.most, false, 0};
  result.error = rounded(error_of_sum(from, terms) / terms, from.most);
  return result;
}

bool any_value(const Value& v) { return v.rank() > 0 && v.most < 1e15; }

}  // namespace

void add_reduction(Writer& w) {
  size_t id = w.pick(any_value, w.float_type(), 1 + w.random().below(3));
  if (id == SIZE_MAX) return;
  const Reduced r = some_of(w, w.value(id), false);
  if (r.terms == 0) return;
  id = summable(w, id, r.terms);
  const Value from = w.value(id);
  const bool keep = w.random().one_in(3);
  const Dims dims = keep ? r.kept : r.dims;
  const char* kept = keep ? "true" : "false";
  const auto call = [&](const char* op) {
    return fmt::format("{}(%{}, [{}], {})", op, from.name, r.list, kept);
  };
  w.feature("reduction");
  if (r.list.find(',') != std::string::npos) w.feature("several reduced dimensions");
  const std::vector<Slope> slope =
      from.is_float() ? std::vector<Slope>{{id, 1}} : std::vector<Slope>{};
  switch (w.wants_gradients ? 0 : w.random().below(7)) {
    case 0:
    case 1: w.add(call("sum.dim_IntList"), sum_of(from, r.terms, dims), slope); return;
    case 2:
      if (from.dtype == DType::boolean) return;
      w.add(call(w.random().one_in(2) ? "amax" : "amin"),
            {"", from.dtype, dims, from.most, from.whole, from.error});
      return;
    case 3:
      if (from.is_float()) w.add(call("mean.dim"), mean_of(from, r.terms, dims));
      return;
    case 4:
      if (from.error == 0)
        w.add(call(w.random().one_in(2) ? "any.dims" : "all.dims"),
              {"", DType::boolean, dims, 1, true, 0});
      return;
    case 5: {
      const double all = static_cast<double>(count(from.dims));
      const size_t whole = summable(w, id, all);
      w.feature("full reduction");
      w.add(fmt::format("sum(%{})", w.name(whole)), sum_of(w.value(whole), all, {}),
            w.value(whole).is_float() ? std::vector<Slope>{{whole, 1}} : std::vector<Slope>{});
      return;
    }
    default:
      if (from.dtype == DType::i64 || from.error != 0) return;
      w.add(call("sum.dim_IntList"), sum_of(from, r.terms, dims), slope);
  }
}

void add_rows(Writer& w) {
  size_t id =
      w.pick([](const Value& v) { return v.is_float() && v.rank() > 1; }, w.float_type(), 2);
  if (id == SIZE_MAX) return;
  const size_t dim = w.random().one_in(3) ? 0 : w.value(id).rank() - 1;
  const double terms = static_cast<double>(w.value(id).dims[dim].most);
  if (terms == 0) return;
  id = summable(w, w.tamed(id, 1 << 10), terms);
  const Value from = w.value(id);
  Dims kept = from.dims;
  kept[dim] = known(1);
  const bool sums = w.random().one_in(2) || w.wants_gradients;
  Value row = sums ? sum_of(from, terms, kept) : from;
  row.dims = kept;
  const size_t of =
      w.add(fmt::format("{}(%{}, [{}], true)", sums ? "sum.dim_IntList" : "amax", from.name, dim),
            row, sums ? std::vector<Slope>{{id, 1}} : std::vector<Slope>{});
  const Value column = w.value(of);
  Value result = from;
  result.most = from.most + column.most;
  result.error = rounded(from.error + column.error, result.most);
  w.add(fmt::format("sub.Tensor(%{}, %{})", from.name, column.name), result,
        {{id, 1}, {of, terms}});
  w.feature("rows");
}

void add_extremum(Writer& w) {
  const size_t id = w.pick(
      [](const Value& v) {
        return v.error == 0 && v.rank() > 0 && (v.is_float() || v.dtype == DType::i64);
      },
      w.float_type());
  if (id == SIZE_MAX) return;
  const Value from = w.value(id);
  const Reduced r = some_of(w, from, true);
  if (r.terms == 0) return;
  const bool keep = w.random().one_in(2);
  const Dims dims = keep ? r.kept : r.dims;
  const Value place{"", DType::i64, dims, static_cast<double>(count(from.dims)), true, 0};
  w.feature("argmax");
  const std::string rest = fmt::format("(%{}, {}, {})", from.name, r.list, keep);
  if (w.random().one_in(2)) {
    w.add((w.random().one_in(2) ? "argmax" : "argmin") + rest, place);
    return;
  }
  const Value most{"", from.dtype, dims, from.most, from.whole, 0};
  w.add_several((w.random().one_in(2) ? "max.dim" : "min.dim") + rest, {most, place});
}

namespace {

/// Rows x of n elements between -M and M, of which two orders differ by E.
/// softmax: x - max differs by 2E + 2M ulp, so do exponentials, relatively (and by 8 ulp of their
/// own), and their sum (and by n ulp); results are at most 1.
double error_of_softmax(const Value& v, double n) {
  const double relative = 2 * v.error + 2 * v.most * kUlp + 8 * kUlp;
  return 2 * relative + (n + 4) * kUlp;
}

/// log_softmax: (x - max) - log(sum): the sum differs relatively, its logarithm absolutely.
double error_of_log_softmax(const Value& v, double n) {
  const double relative = 2 * v.error + 2 * v.most * kUlp + 8 * kUlp;
  return 2 * v.error + relative + (n + 4) * kUlp + 4 * (2 * v.most + std::log(n) + 1) * kUlp;
}

/// Mean and variance: deviations d are at most 2M and differ by e; the mean of their squares by
/// 2 * 2M * e, and by n ulp of its own.
struct Spread {
  double deviation = 0;
  double variance = 0;
};
Spread spread_of(const Value& v, double n) {
  Spread spread;
  spread.deviation = 2 * v.error + (n + 2) * v.most * kUlp;
  const double square = 4 * v.most * v.most;
  spread.variance = 4 * v.most * spread.deviation + (n + 4) * square * kUlp;
  return spread;
}

void add_layer_norm(Writer& w, size_t id) {
  const Value from = w.value(id);
  const double n = static_cast<double>(from.dims.back().most);
  const Spread s = spread_of(from, n);
  // d / sqrt(variance + 1): the root is at least 1, and its inverse moves half as far.
  const double d = 2 * from.most;
  const double inverse = 0.5 * s.variance + 4 * kUlp;
  const double error = d * inverse + s.deviation + 4 * d * kUlp;
  Dims rows = from.dims;
  rows.back() = known(1);
  const size_t weight = w.input(from.dtype, {from.dims.back()}, 2);
  const size_t bias = w.input(from.dtype, {from.dims.back()}, 2);
  const Value row{"", DType::f32, rows, 1, false, inverse};
  const Value mean{"", DType::f32, rows, from.most, false, s.deviation};
  w.add_several(
      fmt::format("native_layer_norm(%{}, [{}], %{}, %{}, 1.0)", from.name, from.dims.back().text,
                  w.name(weight), w.name(bias)),
      {{"", from.dtype, from.dims, 2 * d + 2, false, 2 * error + 4 * d * kUlp}, mean, row});
}

}  // namespace

void add_norm(Writer& w) {
  size_t id = w.pick([](const Value& v) { return v.dtype == DType::f32 && v.rank() > 1; });
  if (id == SIZE_MAX) return;
  id = w.tamed(id, 8);
  const Value from = w.value(id);
  const size_t last = from.rank() - 1;
  const double n = static_cast<double>(from.dims[last].most);
  if (n == 0) return;
  w.feature("norm");
  switch (w.random().below(4)) {
    case 0:
      w.add(fmt::format("softmax.int(%{}, {})", from.name, last),
            {"", from.dtype, from.dims, 1, false, error_of_softmax(from, n)});
      return;
    case 1:
      w.add(fmt::format("log_softmax.int(%{}, {})", from.name, last),
            {"", from.dtype, from.dims, 2 * from.most + std::log(n), false,
             error_of_log_softmax(from, n)});
      return;
    case 2: return add_layer_norm(w, id);
    default: {
      if (from.dims[last].least < 2) return;
      Dims rows = from.dims;
      rows.pop_back();
      // Divided by n - 1 in place of n.
      w.add(fmt::format("var.correction(%{}, [{}])", from.name, last),
            {"", from.dtype, rows, 8 * from.most * from.most, false,
             2 * spread_of(from, n).variance});
    }
  }
}

/// A sum that schedule/split_reduction.cc cuts: in two blocks or more, of 16384 elements each, or
/// of rows of as many elements. Blocks of columns may join the kernel of their rows where none
/// hangs over.
Dims long_dims(Writer& w) {
  constexpr int64_t kBlock = 16384;
  const auto some = [&](size_t more) { return static_cast<int64_t>(w.random().below(more)); };
  if (w.random().one_in(3)) return {known(1), known(2 * kBlock + some(3000))};
  if (w.random().one_in(2)) return {known(2048), known(16)};
  const int64_t columns = 13 + some(8);
  return {known(2 * (kBlock / columns) + some(300)), known(columns)};
}

void add_long(Writer& w) {
  w.allow(400000);
  const Dims dims = long_dims(w);
  const bool tall = dims[0].most > 1;
  const DType t = w.float_type();
  const size_t x = w.input(t, dims, 2);
  const double rows = static_cast<double>(dims[0].most);
  const double columns = static_cast<double>(dims[1].most);
  const Value from = w.value(x);
  const size_t row = w.add(fmt::format("sum.dim_IntList(%{}, [1], true)", from.name),
                           sum_of(from, columns, {dims[0], known(1)}), {{x, 1}});
  size_t y = x;
  if (tall) {
    const size_t small = w.tamed(row, 4);
    Value less = from;
    less.most = from.most + w.value(small).most;
    y = w.add(fmt::format("sub.Tensor(%{}, %{})", from.name, w.name(small)), less,
              {{x, 1}, {small, columns}});
  }
  const Value points = w.value(y);
  w.add(fmt::format("sum.dim_IntList(%{}, [0])", points.name), sum_of(points, rows, {dims[1]}),
        {{y, 1}});
  w.add(fmt::format("amax(%{}, [0])", points.name), {"", t, {dims[1]}, points.most, true, 0});
  w.add(fmt::format("sum(%{})", points.name), sum_of(points, rows * columns, {}), {{y, 1}});
  w.feature("long reduction");
}

}  // namespace tandem::property
