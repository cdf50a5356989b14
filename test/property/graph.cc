// Problem: operators drawn evenly make graphs in which the rare ones never meet. Approach: each
// graph has a theme, whose lines are drawn often and all others seldom.
#include "test/property/graph.h"

#include <algorithm>
#include <cmath>

#include "test/property/lines.h"

namespace tandem::property {
namespace {

using Add = void (*)(Writer&);

struct Theme {
  std::vector<Add> often;
  size_t lines = 8;
  bool has_gradients = false;
  bool is_bf16 = false;
  bool is_alone = false;  // no other lines: too large
};

const std::vector<Theme>& themes() {
  static const std::vector<Theme> kThemes = {
      {{add_binary, add_unary, add_choice, add_view, add_rows}},
      {{add_reduction, add_rows, add_binary, add_extremum}},
      {{add_integer, add_cast, add_reduction, add_choice, add_gather}},
      {{add_binary, add_rows, add_reduction, add_cast, add_choice}, 8, false, true},
      {{add_product, add_rows, add_binary}, 5},
      {{add_product, add_rows, add_unary}, 5, false, true},
      {{add_rows_between_products, add_layers}, 2},
      {{add_pool, add_convolution, add_unary}, 4},
      {{add_transforms, add_unary, add_reduction}, 3},
      {{add_scan, add_rows, add_binary, add_join}},
      {{add_scatter, add_gather, add_reduction, add_binary}},
      {{add_view, add_view, add_join, add_binary, add_reduction}, 10},
      {{add_binary, add_rows, add_reduction, add_view, add_product, add_unary}, 5, true},
      {{add_product, add_convolution, add_scan, add_gather, add_unary}, 4, true},
      {{add_norm, add_smooth, add_rows, add_binary}, 6},
      {{add_inverted_residual}, 1},
      {{add_residual_block}, 1},
      {{add_rows_between_products}, 2, false, true},
      {{add_update, add_update, add_partial_write, add_binary, add_rows, add_view}, 6},
      {{add_long}, 1},
      {{add_gathering}, 1, false, false, true},
      {{add_late_write}, 1}};
  return kThemes;
}

void add_any(Writer& w) {
  static const std::vector<Add> kAll = {add_unary,
                                        add_binary,
                                        add_scalar,
                                        add_choice,
                                        add_cast,
                                        add_integer,
                                        add_smooth,
                                        add_reduction,
                                        add_rows,
                                        add_extremum,
                                        add_norm,
                                        add_view,
                                        add_join,
                                        add_product,
                                        add_pool,
                                        add_scan,
                                        add_scatter,
                                        add_gather,
                                        add_rows_between_products};
  static const std::vector<Add> kSmooth = {add_unary, add_binary, add_scalar, add_view,
                                           add_join,  add_rows,   add_choice, add_product};
  w.random().pick(w.wants_gradients ? kSmooth : kAll)(w);
}

/// A number of the last whole float value: what gradients are taken of.
size_t loss_of(Writer& w) {
  for (size_t i = w.size(); i-- > 0;) {
    const Value& v = w.value(i);
    if (w.is_input(i) || !v.is_float() || !v.whole || v.error != 0) continue;
    const double all = static_cast<double>(count(v.dims));
    const size_t from = w.tamed(i, std::floor((1 << 22) / std::max(all, 1.0)));
    const Value part = w.value(from);
    return w.add("sum(%" + part.name + ")", {"", part.dtype, {}, part.most * all, true, 0},
                 {{from, 1}});
  }
  return SIZE_MAX;
}

void write_back_some(Writer& w) {
  for (size_t i = 0; i < w.size(); ++i) {
    if (!w.is_input(i) || !w.random().one_in(3)) continue;
    const Value to = w.value(i);
    if (!to.is_float() || !to.whole) continue;
    const size_t from = w.pick([&](const Value& v) {
      return v.dtype == to.dtype && v.dims == to.dims && v.error == 0 && v.name[0] != 'x' &&
             v.whole;
    });
    if (from != SIZE_MAX && !w.is_input(from)) return w.write_back(i, from);
  }
}

}  // namespace

size_t theme_count() { return themes().size(); }

std::string write_graph(fuzz::Random& random, size_t theme) {
  const Theme& chosen = themes()[theme % themes().size()];
  Writer w(random, !chosen.is_alone && random.one_in(3));
  w.wants_gradients = chosen.has_gradients;
  w.is_bf16 = chosen.is_bf16;
  if (random.one_in(20)) w.allow(60000);
  const size_t lines = 1 + chosen.lines / 3 + random.below(chosen.lines);
  random.pick(chosen.often)(w);
  for (size_t i = 1; i < 3 * lines && w.lines() < lines && !chosen.is_alone; ++i) {
    if (random.one_in(5)) {
      add_any(w);
    } else {
      random.pick(chosen.often)(w);
    }
  }
  w.write_what_waits();
  if (w.unread().empty()) add_unary(w);
  const size_t loss = chosen.has_gradients ? loss_of(w) : SIZE_MAX;
  if (!chosen.has_gradients && random.one_in(3)) write_back_some(w);
  std::vector<size_t> outputs = w.unread();
  const size_t more = random.below(w.size());
  if (random.one_in(3) && !w.is_input(more) && std::ranges::find(outputs, more) == outputs.end())
    outputs.push_back(more);
  for (size_t i = w.size(); i-- > 0 && outputs.empty();)
    if (!w.is_input(i)) outputs.push_back(i);
  return w.finish(outputs, loss);
}

const std::vector<std::string>& all_features() {
  static const std::vector<std::string> kFeatures = {"f32",
                                                     "bf16",
                                                     "i64",
                                                     "bool",
                                                     "symbolic",
                                                     "strided input",
                                                     "written input",
                                                     "partly written value",
                                                     "size 0",
                                                     "several outputs",
                                                     "gradients",
                                                     "broadcast",
                                                     "cast",
                                                     "approximated function",
                                                     "reduction",
                                                     "several reduced dimensions",
                                                     "full reduction",
                                                     "rows",
                                                     "argmax",
                                                     "norm",
                                                     "view",
                                                     "join",
                                                     "mm",
                                                     "bmm",
                                                     "f32 product",
                                                     "bf16 product",
                                                     "symbolic product",
                                                     "attention",
                                                     "rows turned around",
                                                     "updated factor",
                                                     "max_pool",
                                                     "avg_pool",
                                                     "convolution",
                                                     "grouped convolution",
                                                     "depthwise convolution",
                                                     "transforms",
                                                     "inverted residual",
                                                     "residual block",
                                                     "updated image",
                                                     "long reduction",
                                                     "causal mask",
                                                     "scan",
                                                     "scatter",
                                                     "embedding backward",
                                                     "gather"};
  return kFeatures;
}

}  // namespace tandem::property
