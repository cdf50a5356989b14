// Views and joins: the same elements at other places. Sizes that are not known keep their symbols:
// a slice begins behind the first element, a pad adds to the text of the size.
#include <fmt/format.h>

#include <algorithm>

#include "test/property/lines.h"

namespace tandem::property {
namespace {

size_t viewed(Writer& w) {
  return w.pick([](const Value& v) { return v.rank() > 0; }, w.float_type(),
                1 + w.random().below(3));
}

/// Each element is seen at most so often.
void add_seen(Writer& w, size_t id, const std::string& call, Dims dims, double times = 1) {
  Value result = w.value(id);
  result.dims = std::move(dims);
  w.add(call, result,
        w.value(id).is_float() ? std::vector<Slope>{{id, times}} : std::vector<Slope>{});
  w.feature("view");
}

void add_permuted(Writer& w, size_t id) {
  const Value v = w.value(id);
  std::vector<size_t> order;
  for (size_t i = 0; i < v.rank(); ++i) order.push_back(i);
  for (size_t i = v.rank(); i > 1; --i) std::swap(order[i - 1], order[w.random().below(i)]);
  Dims dims;
  std::string list;
  for (size_t i : order) {
    dims.push_back(v.dims[i]);
    list += (list.empty() ? "" : ", ") + std::to_string(i);
  }
  add_seen(w, id, fmt::format("permute(%{}, [{}])", v.name, list), dims);
}

void add_slice(Writer& w, size_t id) {
  const Value v = w.value(id);
  const size_t dim = w.random().below(v.rank());
  const Dim size = v.dims[dim];
  Dims dims = v.dims;
  if (size.is_symbolic()) {
    if (size.least < 2) return;
    dims[dim] = {fmt::format("({} - 1)", size.text), size.least - 1, size.most - 1};
    return add_seen(w, id, fmt::format("slice.Tensor(%{}, {}, 1)", v.name, dim), dims);
  }
  if (size.most == 0) return;
  const int64_t begin = static_cast<int64_t>(w.random().below(static_cast<size_t>(size.most)));
  const int64_t step = 1 + static_cast<int64_t>(w.random().below(3));
  dims[dim] = known((size.most - begin + step - 1) / step);
  add_seen(w, id,
           fmt::format("slice.Tensor(%{}, {}, {}, {}, {})", v.name, dim, begin, size.most, step),
           dims);
}

void add_select(Writer& w, size_t id) {
  const Value v = w.value(id);
  const size_t dim = w.random().below(v.rank());
  if (v.dims[dim].most == 0) return;
  Dims dims = v.dims;
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(dim));
  add_seen(w, id,
           fmt::format("select.int(%{}, {}, {})", v.name, dim, w.random().one_in(2) ? 0 : -1),
           dims);
}

void add_expand(Writer& w, size_t id) {
  const Value v = w.value(id);
  Dims dims = v.dims;
  dims.insert(dims.begin(), known(1 + static_cast<int64_t>(w.random().below(4))));
  for (Dim& dim : dims)
    if (dim.text == "1") dim = known(1 + static_cast<int64_t>(w.random().below(5)));
  const double times =
      static_cast<double>(count(dims)) / static_cast<double>(std::max<int64_t>(count(v.dims), 1));
  if (!w.affords(static_cast<double>(count(dims)))) return;
  add_seen(w, id, fmt::format("expand(%{}, [{}])", v.name, text_of(dims)), dims, times);
}

void add_reshape(Writer& w, size_t id) {
  const Value v = w.value(id);
  Dims dims;
  const size_t cut = w.random().below(v.rank());
  const Dim size = v.dims[cut];
  if (!size.is_symbolic() && size.most % 2 == 0 && w.random().one_in(2)) {
    dims = v.dims;
    dims[cut] = known(size.most / 2);
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(cut), known(2));
  } else if (v.rank() > 1 && cut > 0) {  // two become one
    dims = v.dims;
    dims[cut - 1] = times(dims[cut - 1], dims[cut]);
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(cut));
  } else if (v.rank() == 2 && !v.dims[0].is_symbolic() && !v.dims[1].is_symbolic()) {
    dims = {v.dims[1], v.dims[0]};  // the same numbers in other rows
  } else {
    dims = v.dims;
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(cut), known(1));
  }
  add_seen(w, id, fmt::format("reshape(%{}, [{}])", v.name, text_of(dims)), dims);
}

/// Of a known size anywhere in it, else around its first rows.
void add_rolled(Writer& w, size_t id, size_t dim) {
  const Value v = w.value(id);
  const bool is_known = !v.dims[dim].is_symbolic();
  w.feature("rolled");
  add_seen(w, id,
           fmt::format("roll(%{}, [{}], [{}])", v.name,
                       is_known ? w.random().below(static_cast<size_t>(7)) + 1 : 1, dim),
           v.dims);
}

}  // namespace

void add_view(Writer& w) {
  const size_t id = viewed(w);
  if (id == SIZE_MAX) return;
  const Value v = w.value(id);
  switch (w.random().below(7)) {
    case 0:
    case 1: return add_permuted(w, id);
    case 2: return add_slice(w, id);
    case 3: return add_select(w, id);
    case 4: return add_expand(w, id);
    case 5: return add_reshape(w, id);
    default: {
      const size_t dim = w.random().below(v.rank());
      if (w.random().one_in(3))
        return add_seen(w, id, fmt::format("flip(%{}, [{}])", v.name, dim), v.dims);
      if (w.random().one_in(2)) return add_rolled(w, id, dim);
      Dims dims = v.dims;
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(dim), known(1));
      add_seen(w, id, fmt::format("unsqueeze(%{}, {})", v.name, dim), dims);
    }
  }
}

namespace {

void add_cat(Writer& w, size_t id) {
  const Value a = w.value(id);
  const size_t dim = w.random().below(a.rank());
  const size_t other = w.pick([&](const Value& v) {
    if (v.dtype != a.dtype || v.rank() != a.rank()) return false;
    for (size_t i = 0; i < a.rank(); ++i)
      if (i != dim && !(v.dims[i] == a.dims[i])) return false;
    return true;
  });
  if (other == SIZE_MAX) return;
  const Value b = w.value(other);
  Value result{"",
               a.dtype,
               a.dims,
               std::max(a.most, b.most),
               a.whole && b.whole,
               std::max(a.error, b.error)};
  result.dims[dim] = plus(a.dims[dim], b.dims[dim]);
  const bool smooth = a.is_float();
  w.add(fmt::format("cat([%{}, %{}], {})", a.name, b.name, dim), result,
        smooth ? std::vector<Slope>{{id, 1}, {other, 1}} : std::vector<Slope>{});
}

void add_stack(Writer& w, size_t id) {
  const Value a = w.value(id);
  const size_t other =
      w.pick([&](const Value& v) { return v.dtype == a.dtype && v.dims == a.dims; });
  if (other == SIZE_MAX) return;
  const Value b = w.value(other);
  const size_t dim = w.random().below(a.rank() + 1);
  Value result{"",
               a.dtype,
               a.dims,
               std::max(a.most, b.most),
               a.whole && b.whole,
               std::max(a.error, b.error)};
  result.dims.insert(result.dims.begin() + static_cast<std::ptrdiff_t>(dim), known(2));
  w.add(fmt::format("stack([%{}, %{}], {})", a.name, b.name, dim), result,
        a.is_float() ? std::vector<Slope>{{id, 1}, {other, 1}} : std::vector<Slope>{});
}

}  // namespace

void add_join(Writer& w) {
  const size_t id = viewed(w);
  if (id == SIZE_MAX) return;
  const Value v = w.value(id);
  w.feature("join");
  const std::vector<Slope> slope =
      v.is_float() ? std::vector<Slope>{{id, 3}} : std::vector<Slope>{};
  switch (w.random().below(4)) {
    case 0: return add_cat(w, id);
    case 1: return add_stack(w, id);
    case 2: {
      if (v.dtype == DType::boolean) return;
      Value result = v;
      result.dims.back() = plus(v.dims.back(), known(3));
      result.most = std::max(v.most, 2.0);
      w.add(fmt::format("constant_pad_nd(%{}, [1, 2], 2)", v.name), result, slope);
      return;
    }
    default: {
      Value result = v;
      std::string list;
      for (size_t i = 0; i < v.rank(); ++i) list += i == 0 ? "2" : ", 1";
      result.dims[0] = times(known(2), v.dims[0]);
      w.add(fmt::format("repeat(%{}, [{}])", v.name, list), result, slope);
    }
  }
}

}  // namespace tandem::property
