// Scans, and elements at places that data tell: gathers and scatters, also of equal places.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "test/property/lines.h"

namespace tandem::property {
namespace {

constexpr double kExact = 1 << 24;

size_t some(Writer& w, size_t rank) {
  return w.pick(
      [&](const Value& v) {
        return (v.is_float() || v.dtype == DType::i64) && v.rank() >= rank && v.error == 0 &&
               count(v.dims) > 0;
      },
      w.float_type(), rank);
}

std::vector<Slope> slope(const Writer& w, size_t id, double bound) {
  return w.value(id).is_float() ? std::vector<Slope>{{id, bound}} : std::vector<Slope>{};
}

/// What so many more terms may be added to.
size_t addable(Writer& w, size_t id, double terms) {
  const Value& v = w.value(id);
  return v.is_float() ? w.tamed(id, std::floor(kExact / 4 / terms)) : id;
}

}  // namespace

void add_scan(Writer& w) {
  size_t id = some(w, 1);
  if (id == SIZE_MAX) return;
  const size_t dim = w.random().below(w.value(id).rank());
  const double terms = static_cast<double>(w.value(id).dims[dim].most);
  w.feature("scan");
  if (w.random().one_in(3)) {
    const Value from = w.value(id);
    Value place = from;
    place.dtype = DType::i64;
    place.whole = true;
    place.most = terms;
    w.add_several(
        fmt::format("{}(%{}, {})", w.random().one_in(2) ? "cummax" : "cummin", from.name, dim),
        {from, place});
    return;
  }
  id = addable(w, id, terms);
  const Value from = w.value(id);
  if (!from.whole) return;
  Value result = from;
  result.most = std::min(1e18, from.most * terms);
  w.add(fmt::format("cumsum(%{}, {})", from.name, dim), result, slope(w, id, terms));
}

namespace {

/// scatter and scatter_add: index and source have the destination's rank, and no more elements in
/// the other dimensions.
void add_along(Writer& w, size_t id) {
  const size_t dim = w.random().below(w.value(id).rank());
  Dims dims = w.value(id).dims;
  dims[dim] = known(1 + static_cast<int64_t>(w.random().below(20)));
  const double terms = static_cast<double>(dims[dim].most);
  const bool adds = !w.random().one_in(3);
  if (adds) id = addable(w, id, terms);
  const Value to = w.value(id);
  const size_t index = w.indices(dims, to.dims[dim].least);
  const size_t source = w.input(to.dtype, dims, 3);
  Value result = to;
  result.most = std::max(to.most, 3.0) + (adds ? 3 * terms : 0);
  w.add(fmt::format("{}(%{}, {}, %{}, %{})", adds ? "scatter_add" : "scatter.src", to.name, dim,
                    w.name(index), w.name(source)),
        result,
        adds && to.is_float() ? std::vector<Slope>{{id, 1}, {source, 1}} : std::vector<Slope>{});
}

void add_index_add(Writer& w, size_t id) {
  const size_t dim = w.random().below(w.value(id).rank());
  const Dim count = known(1 + static_cast<int64_t>(w.random().below(30)));
  id = addable(w, id, static_cast<double>(count.most));
  const Value to = w.value(id);
  const size_t index = w.indices({count}, to.dims[dim].least);
  Dims dims = to.dims;
  dims[dim] = count;
  const size_t source = w.input(to.dtype, dims, 3);
  Value result = to;
  result.most = to.most + 3 * static_cast<double>(count.most);
  w.add(fmt::format("index_add(%{}, {}, %{}, %{})", to.name, dim, w.name(index), w.name(source)),
        result, to.is_float() ? std::vector<Slope>{{id, 1}, {source, 1}} : std::vector<Slope>{});
}

void add_index_put(Writer& w, size_t id) {
  const Dim count = known(1 + static_cast<int64_t>(w.random().below(20)));
  id = addable(w, id, static_cast<double>(count.most));
  const Value to = w.value(id);
  const size_t index = w.indices({count}, to.dims[0].least);
  Dims dims = to.dims;
  dims[0] = count;
  const size_t source = w.input(to.dtype, dims, 3);
  Value result = to;
  result.most = to.most + 3 * static_cast<double>(count.most);
  w.add(fmt::format("index_put(%{}, [%{}], %{}, true)", to.name, w.name(index), w.name(source)),
        result);
}

}  // namespace

void add_scatter(Writer& w) {
  const size_t id = some(w, 1);
  if (id == SIZE_MAX || !w.value(id).whole) return;
  w.feature("scatter");
  switch (w.random().below(4)) {
    case 0: return add_index_add(w, id);
    case 1: return add_index_put(w, id);
    case 2: {
      const Dim rows = known(2 + static_cast<int64_t>(w.random().below(9)));
      const Dim width = w.dim();
      const Dim number = known(1 + static_cast<int64_t>(w.random().below(40)));
      const size_t grad = w.input(w.float_type(), {number, width}, 3);
      const size_t index = w.indices({number}, rows.most);
      w.feature("embedding backward");
      w.add(
          fmt::format("embedding_dense_backward(%{}, %{}, {}, -1, false)", w.name(grad),
                      w.name(index), rows.text),
          {"", w.value(grad).dtype, {rows, width}, 3 * static_cast<double>(number.most), true, 0});
      return;
    }
    default: return add_along(w, id);
  }
}

void add_gather(Writer& w) {
  const size_t id = some(w, 1);
  if (id == SIZE_MAX) return;
  const Value from = w.value(id);
  const size_t dim = w.random().below(from.rank());
  Value result = from;
  w.feature("gather");
  switch (w.random().below(4)) {
    case 0: {
      const Dim number = w.dim();
      const size_t index = w.indices({number}, from.dims[dim].least);
      result.dims[dim] = number;
      if (!w.affords(static_cast<double>(count(result.dims)))) return;
      w.add(fmt::format("index_select(%{}, {}, %{})", from.name, dim, w.name(index)), result,
            slope(w, id, static_cast<double>(number.most)));
      return;
    }
    case 1: {
      result.dims[dim] = known(1 + static_cast<int64_t>(w.random().below(20)));
      const size_t index = w.indices(result.dims, from.dims[dim].least);
      w.add(fmt::format("gather(%{}, {}, %{})", from.name, dim, w.name(index)), result,
            slope(w, id, static_cast<double>(result.dims[dim].most)));
      return;
    }
    case 2: {
      const Dim number = known(1 + static_cast<int64_t>(w.random().below(12)));
      const size_t index = w.indices({number, known(2)}, from.dims[0].least);
      result.dims[0] = known(2);
      result.dims.insert(result.dims.begin(), number);
      w.add(fmt::format("index.Tensor(%{}, [%{}])", from.name, w.name(index)), result);
      return;
    }
    default: {
      if (!from.is_float() || from.rank() != 2) return;
      const Dims places{known(2), w.dim()};
      const size_t index = w.indices(places, from.dims[0].least);
      result.dims = {places[0], places[1], from.dims[1]};
      if (!w.affords(static_cast<double>(count(result.dims)))) return;
      w.add(fmt::format("embedding(%{}, %{})", from.name, w.name(index)), result,
            slope(w, id, static_cast<double>(count(places))));
    }
  }
}

}  // namespace tandem::property
