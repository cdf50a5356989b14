// Problem: a library's call is fast, and alone: what is computed before and behind it passes
// through memory. Approach: an op says what the library can do; loops are preferred where they are
// about as fast and take what stands around them along. That is so of products of some sizes
// (Tuning::Routes), of products that may join what computes their rows, and of convolutions of each
// channel by itself among others: what stands between convolutions lies channels-last
// (layout.cc), so windows of channels read it as it is.
#include "schedule/routes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/flags.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "ops/product/emitted.h"
#include "schedule/axes.h"
#include "schedule/product_blocks.h"
#include "schedule/reads.h"
#include "schedule/route_cost.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using ir::Node;
using ir::Value;
using sym::Expr;

/// By a route of the library, or as a sum of products at each place of an image: of packed
/// integers, which the library does not take.
bool is_convolution(KernelGraph& graph, const Node& node) {
  const std::vector<ops::Route>& routes = ops::def_of(node).fast;
  if (!routes.empty()) return routes[0].kind == ops::RouteKind::convolution;
  const bool is_image = node.results.size() == 1 && node.results[0]->type.sizes.size() > 3;
  if (!is_image || ops::def_of(node).lower == nullptr) return false;
  const Computation& sum = graph.computations.of(&node);
  return sum.kind == Computation::Kind::reduce && loop::multiplies(sum.combiner);
}

const Value* first_operand(const Node& node) {
  const Value* first = nullptr;
  ir::for_each_operand(node.args, [&](const Value* operand) {
    if (first == nullptr) first = operand;
  });
  return first;
}

/// An image stays one where it keeps its dimensions.
bool are_images(const Value* a, const Value* b) {
  return a->type.is_tensor() && b->type.is_tensor() && a->type.sizes.size() > 2 &&
         a->type.sizes.size() == b->type.sizes.size();
}

DenseMap<Value, char> made_of_convolution(KernelGraph& graph) {
  DenseMap<Value, char> made;
  for (const Node* node = graph.graph->first(); node != nullptr; node = node->next) {
    const Value* from = first_operand(*node);
    for (const Value* result : node->results)
      made[result] = is_convolution(graph, *node) ||
                     (from != nullptr && made.at(from) != 0 && are_images(from, result));
  }
  return made;
}

DenseMap<Value, char> for_convolution(KernelGraph& graph) {
  DenseMap<Value, char> used;
  for (const Node* node = graph.graph->last(); node != nullptr; node = node->prev) {
    const Value* result = node->results.empty() ? nullptr : node->results[0];
    ir::for_each_operand(node->args, [&](const Value* operand) {
      const bool goes_on = result != nullptr && used.at(result) != 0 && are_images(operand, result);
      if (is_convolution(graph, *node) || goes_on) used[operand] = 1;
    });
  }
  return used;
}

bool sums(KernelGraph& graph, const Node& node) {
  return !is_convolution(graph, node) && !node.results.empty() &&
         ops::def_of(node).lower != nullptr &&
         graph.computations.of(&node).kind == Computation::Kind::reduce;
}

/// For the statistics of a batch, perhaps in another dtype: the result is stored for them, so what
/// comes behind it joins nothing.
bool is_summed(KernelGraph& graph, const Value* value) {
  const auto is_sum = [&](const ir::Use& use) {
    return use.node != nullptr && sums(graph, *use.node);
  };
  return std::ranges::any_of(value->uses, [&](const ir::Use& use) {
    if (is_sum(use)) return true;
    if (use.node == nullptr || use.node->results.empty()) return false;
    const Value* cast = use.node->results[0];
    return cast->type.dtype != value->type.dtype && std::ranges::any_of(cast->uses, is_sum);
  });
}

// --- products

/// In memory as it is seen or transposed.
bool is_computed_in_rows(KernelGraph& graph, const Value* matrices) {
  const Value* root = view_root(graph, matrices);
  std::optional<StridedRef> rows = strided_view(graph, view_of(graph, matrices, root));
  return root->node != nullptr && rows &&
         (rows->strides.back() == Expr(1) || rows->strides[1] == Expr(1));
}

/// A product, for each of a batch, of computed rows or of their transpose with a narrow matrix: the
/// last ones of attention and of its gradient, which compute_at_rows joins with the softmax, so
/// that the scores of long sequences never meet memory. Where nothing joins, it is as fast as a
/// kernel and the library after it (docs/measured.md).
bool may_end_chain(KernelGraph& graph, const Node& node) {
  const Tuning::Chains& tuning = graph.target.tuning.chains;
  std::vector<const Value*> factors;
  ir::for_each_operand(node.args, [&](const Value* operand) { factors.push_back(operand); });
  if (factors.size() != 2 || factors[0]->type.dtype != DType::f32) return false;
  const ir::Sizes& left = factors[0]->type.sizes;
  const ir::Sizes& right = factors[1]->type.sizes;
  if (left.size() != 3 || sym::known_lt(tuning.longest_sum, left[2])) return false;
  if (sym::known_le(right[2], tuning.narrow_factor) && !sym::known_lt(left[1], tuning.fewest_rows))
    return is_computed_in_rows(graph, factors[0]);
  return sym::known_le(left[1], tuning.narrow_factor) &&
         !sym::known_lt(right[2], tuning.fewest_rows) && is_computed_in_rows(graph, factors[1]);
}

/// Whether it is made, element by element, from what takes less memory: as integers are.
bool widens(const Value* value) {
  for (int depth = 0; depth < 2 && value->node != nullptr; ++depth) {
    const Value* from = first_operand(*value->node);
    if (!ops::def_of(*value->node).pointwise || from == nullptr) return false;
    if (size_of(from->type.dtype) < size_of(value->type.dtype)) return true;
    value = from;
  }
  return false;
}

/// One row, whose other factor is made as it is read from what takes less memory: a cache of keys
/// in 16 bits beside one token. The library would want it made first, and read it from memory
/// again.
bool is_row_of_widened(KernelGraph& graph, const Node& node) {
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  const Value* right = node.call().value(ops::factors_of(*node.op).right);
  return sym::known_eq(sizes[sizes.size() - 2], 1) && widens(view_root(graph, right));
}

/// Whether a weight is read in an order that has no strides, as panels of columns are: the library
/// would want a copy.
bool reads_panels(KernelGraph& graph, const Node& node) {
  bool found = false;
  ir::for_each_operand(node.args, [&](const Value* factor) {
    const Value* root = view_root(graph, factor);
    found |= root->constant && root != factor && !strided_view(graph, view_of(graph, factor, root));
  });
  return found;
}

/// How a factor lies in the memory of what it shows; nothing where no strides say it.
std::optional<StridedRef> in_memory(KernelGraph& graph, const Value* factor) {
  return strided_view(graph, view_of(graph, factor, view_root(graph, factor)));
}

/// Whether memory runs down the columns of the left factor. Loops copy it for each block of
/// columns.
bool is_left_transposed(KernelGraph& graph, const Node& node) {
  const std::optional<StridedRef> ref =
      in_memory(graph, node.call().value(ops::factors_of(*node.op).left));
  return ref && ref->strides.size() == 2 && ref->strides[0] == Expr(1) &&
         ref->strides[1] != Expr(1);
}

/// Whether rows of the right factor are so far apart that the library's copy of a block of columns,
/// a few elements of each row at a time, shares few sets of the first-level cache.
bool shares_sets(KernelGraph& graph, const Node& node) {
  const Value* right = node.call().value(ops::factors_of(*node.op).right);
  const std::optional<StridedRef> ref = in_memory(graph, right);
  if (!ref || ref->strides.size() < 2 || ref->strides.back() != Expr(1)) return false;
  const int64_t apart = graph.target.tuning.routes.sharing_rows / size_of(right->type.dtype);
  const Expr stride = ref->strides[ref->strides.size() - 2];
  return stride != Expr(0) && sym::known_divisible(stride, apart);
}

/// The matrix that one row meets, of products of no batch.
std::optional<StridedRef> matrix_of_one_row(KernelGraph& graph, const Node& node) {
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  if (sizes.size() != 2 || sizes[0] != Expr(1)) return std::nullopt;
  std::optional<StridedRef> ref =
      in_memory(graph, node.call().value(ops::factors_of(*node.op).right));
  return ref && ref->strides.size() == 2 ? ref : std::nullopt;
}

/// The same of bf16, which the library reads no faster (Zen 4, two threads, weights from memory,
/// GB/s, library and loops): along the terms 768 x 2304 24 and 38, 1024 x 2816 30 and 40, 3072 x
/// 768 36 and 41, 1024 x 32000 37 and 48; by rows of the matrix 768 x 2304 23 and 35, 3072 x 768 19
/// and 35; in the second-level cache of one core .8 to 1.05 of it. Without AVX-512 as fast, 15 and
/// 25.
bool reads_matrix_once(KernelGraph& graph, const Node& node) {
  const std::optional<StridedRef> ref = matrix_of_one_row(graph, node);
  return (ref && ref->strides[0] == Expr(1)) || rows_of_part(graph, node);
}

/// Whether a row meets a matrix, or a few rows one of their own, so that each is read once: by
/// loops at the speed of memory, as it lies or one panel after the other. The longer sums of a
/// panel would be taken in parts, for which it would be read in pieces; of a batch one row of
/// columns as they lie is read by pieces of four registers, half a row of 64 without AVX-512; where
/// there is one matrix, rows of it are read whole (split_reduction.cc). From library to loops, in
/// one run (Zen 4): 2 x 32 matrices, 1 row, 2.56 and 1.22; 16 x 8, 4 rows, 2.4 and 1.64, 8 rows 2.0
/// and 1.5; in the second-level cache 1.05 to 4.3, but for 2 rows .94 and .96. Held to AVX2, 16 x 8
/// matrices, 1 row 1.7 and .81 to .86 (hence the library), 4 rows 3.4 and 3.0, 8 rows 1.12 and .94.
/// One row and one matrix by columns as they lie, from memory: 768 x 2304 22 and 35 GB/s, 768 x
/// 3072 26 and 34, 3072 x 768 23 and 35, held to AVX2 1.2 to 2.0 times as fast; along the terms,
/// Emerald Rapids: .96 to 2.1, held to AVX2 1.02 to 1.9, from 8 MiB on .93 to 1.12.
bool reads_matrices_once(KernelGraph& graph, const Node& node) {
  const Tuning& tuning = graph.target.tuning;
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  const size_t rank = sizes.size();
  if (!sym::known_le(sizes[rank - 2], tuning.routes.few_rows)) return false;
  const bool is_one_row = sizes[rank - 2] == Expr(1);
  if (rank < 3 && !is_one_row) return false;
  const Value* right = node.call().value(ops::factors_of(*node.op).right);
  const std::optional<StridedRef> ref = in_memory(graph, right);
  if (!ref || ref->strides.size() != rank || (rank > 2 && ref->strides[0] == Expr(0))) return false;
  const bool has_avx512 = graph.target.isa == Isa::avx512;
  const Expr bytes = sym::product(right->type.sizes) * size_of(right->type.dtype);
  const bool is_far = rank < 3 && !sym::known_le(bytes, tuning.loops.far);
  if (ref->strides[rank - 1] == Expr(1) && rank < 3) return !is_far || rows_of_part(graph, node);
  if (ref->strides[rank - 1] == Expr(1)) return !is_one_row || has_avx512;
  if (ref->strides[rank - 2] != Expr(1)) return false;
  const Expr terms = sym::product(graph.computations.of(&node).reduce_sizes);
  if (!is_one_row) return sym::known_le(terms, longest_part(tuning.products));
  return has_avx512 || !is_far;
}

/// Whether a few rows meet a matrix that loops read once for all of them: along its terms
/// (map_dots.cc), or rows of it, as it lies (read_once in product_blocks.cc).
bool is_read_for_all_rows(KernelGraph& graph, const Node& node) {
  const Target& target = graph.target;
  const ops::ProductFactors factors = ops::factors_of(*node.op);
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  const std::optional<int64_t> rows = sizes[0].constant();
  if (sizes.size() != 2 || !rows || *rows < 2) return false;
  if (*rows > target.tuning.products.most_dot_rows) return false;
  const std::optional<StridedRef> left = in_memory(graph, node.call().value(factors.left));
  const std::optional<StridedRef> right = in_memory(graph, node.call().value(factors.right));
  if (!left || !right || left->strides.size() != 2 || right->strides.size() != 2) return false;
  return left->strides[1] == Expr(1) &&
         (right->strides[0] == Expr(1) || right->strides[1] == Expr(1));
}

/// What decides between the library and loops for a product.
struct ProductShape {
  DType dtype = DType::f32;
  Expr rows;
  Expr terms;  // of each sum
  int64_t most_across = 0;
  bool is_across = false;  // the left factor lies transposed, and loops would copy too much of it
};

ProductShape shape_of(KernelGraph& graph, const Node& node) {
  const Tuning::Routes& tuning = graph.target.tuning.routes;
  const ir::Type& result = node.results[0]->type;
  ProductShape shape{result.dtype, result.sizes[result.sizes.size() - 2],
                     sym::product(graph.computations.of(&node).reduce_sizes)};
  shape.most_across = graph.target.isa == Isa::avx2 ? tuning.narrow_terms : tuning.transposed_terms;
  shape.is_across =
      !sym::known_le(shape.terms, shape.most_across) && is_left_transposed(graph, node);
  return shape;
}

/// Why a product is better off as loops; empty where the library is.
std::string prefers_loops(KernelGraph& graph, const Node& node) {
  const Tuning::Routes& tuning = graph.target.tuning.routes;
  const auto [dtype, rows, terms, most_across, is_across] = shape_of(graph, node);
  // Without AVX-512 the library computes bf16 in f32: the right factor is converted at each call.
  if (graph.target.isa == Isa::avx2 && dtype == DType::bf16 &&
      sym::known_le(rows, tuning.converted_rows))
    return "the library would convert it to f32, which costs more than these few rows";
  // Tile registers take a transposed factor too: not measured against the library there.
  const bool copies_much = is_across && !graph.target.multiplies_bf16_tiles();
  if (dtype == DType::bf16 && !copies_much && ops::is_summed_in_packs(rows, terms, graph.target))
    return graph.target.multiplies_bf16_tiles()
               ? "tile registers sum it, and its epilogue comes along"
               : "vector registers sum packs of it, and its epilogue comes along";
  if (dtype == DType::f32 && !is_across && ops::is_as_fast_emitted(rows, terms, tuning))
    return "an emitted product is as fast and takes its epilogue along";
  const bool may_share = graph.target.isa == Isa::avx2 || !is_across;
  const bool has_rows = !sym::known_lt(rows, tuning.emitted_rows);
  if (dtype == DType::f32 && may_share && has_rows && shares_sets(graph, node))
    return "rows of its right factor share sets of the cache, which slows the library down";
  if (dtype == DType::f32 && reads_matrices_once(graph, node))
    return "few rows for a matrix, which loops read once, at the speed of memory";
  const bool has_dots =
      dtype == DType::f32 || (dtype == DType::bf16 && graph.target.multiplies_bf16());
  if (has_dots && is_read_for_all_rows(graph, node))
    return "few rows for a matrix, which loops read once for all of them";
  if (dtype == DType::bf16 && reads_matrix_once(graph, node))
    return "one row for a matrix, which loops read once, at the speed of memory";
  if (dtype == DType::f32 && is_row_of_widened(graph, node))
    return "one row: its other factor is widened where it is read, and the library would want it "
           "in memory";
  return may_end_chain(graph, node) ? "its rows are computed, and it may join what computes them"
                                    : "";
}

/// Of a product that nothing better is known for: its numbers beside those that loops would need.
std::string prefers_library(KernelGraph& graph, const Node& node) {
  const Tuning::Routes& tuning = graph.target.tuning.routes;
  const ProductShape shape = shape_of(graph, node);
  const std::string sums =
      fmt::format("{} rows, sums of {} terms in {}", sym::to_string(shape.rows),
                  sym::to_string(shape.terms), name_of(shape.dtype));
  if (shape.is_across)
    return fmt::format(
        "{}: its left factor lies transposed, which loops would copy from {} terms on", sums,
        shape.most_across + 1);
  if (shape.dtype != DType::f32)
    return fmt::format("{}: loops have no tile registers for it", sums);
  const std::string last =
      tuning.most_long_rows == INT64_MAX ? "on" : fmt::format("to {}", tuning.most_long_rows);
  return fmt::format(
      "{}: loops are as fast up to {} terms from {} rows on, and up to {} from {} rows {}", sums,
      tuning.emitted_terms, tuning.emitted_rows, tuning.long_terms, tuning.fewest_long_rows, last);
}

std::string why_library(KernelGraph& graph, const Node& node, ops::RouteKind route) {
  if (ops::def_of(node).opaque) return "nothing else computes it";
  if (route == ops::RouteKind::matmul) return prefers_library(graph, node);
  const bool is_image = route == ops::RouteKind::convolution ||
                        route == ops::RouteKind::convolution_backward_data ||
                        route == ops::RouteKind::convolution_backward_weights;
  return is_image ? "its sums are no windows of single channels between convolutions, which alone "
                    "loops are fast for"
                  : "its loops are slower by far";
}

bool is_padded(KernelGraph& graph, const Computation& sum) {
  const std::vector<loop::Val> elements = elements_of(graph.computations, sum.inputs);
  return std::ranges::any_of(elements, [](loop::Val element) { return !element->args.empty(); });
}

}  // namespace

std::optional<int64_t> rows_of_part(KernelGraph& graph, const Node& node) {
  const Tuning::Splitting& tuning = graph.target.tuning.splitting;
  const std::vector<ops::Route>& routes = ops::def_of(node).fast;
  if (graph.target.is_gpu() || routes.empty() || routes[0].kind != ops::RouteKind::matmul)
    return std::nullopt;
  const std::optional<StridedRef> ref = matrix_of_one_row(graph, node);
  const std::optional<int64_t> columns = node.results[0]->type.numel().constant();
  if (!ref || !columns || ref->strides[0] != Expr(*columns) || ref->strides[1] != Expr(1))
    return std::nullopt;
  const std::optional<int64_t> terms =
      sym::product(graph.computations.of(&node).reduce_sizes).constant();
  if (!terms || *terms * *columns < tuning.large_matrix) return std::nullopt;
  const int64_t most = std::min(2 * tuning.part_rows, *terms / 2);
  const int64_t together = graph.target.tuning.columns.rows_at_once;  // come out even as well
  for (int64_t side = together; 2 * side > together; --side)
    for (int64_t rows = ceil_div(tuning.part_rows, side) * side; rows <= most; rows += side)
      if (*terms % rows == 0) return rows;
  return std::nullopt;
}

bool sums_places_in_packs(KernelGraph& graph, const Node& node) {
  const std::vector<ops::Route>& routes = ops::def_of(node).fast;
  if (routes.empty() || routes[0].kind != ops::RouteKind::convolution) return false;
  const ir::Type& image = first_operand(node)->type;
  const bool in_registers = graph.target.multiplies_bf16() && !graph.target.multiplies_bf16_tiles();
  if (image.dtype != DType::bf16 || !in_registers) return false;
  const Computation& sum = graph.computations.of(&node);
  const Expr terms = sym::product(sum.reduce_sizes);
  const bool is_one_group = sum.reduce_sizes[0] == image.sizes[1];
  if (terms != image.sizes[1] || !is_one_group || is_padded(graph, sum)) return false;
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  const Expr places = sym::product(ir::Sizes(sizes.begin() + 2, sizes.end()));
  return ops::is_summed_in_packs(sizes[0] * places, terms, graph.target);
}

Routes::Routes(KernelGraph& graph)
    : graph_(graph),
      made_of_convolution_(made_of_convolution(graph)),
      for_convolution_(for_convolution(graph)) {}

std::optional<ops::RouteKind> Routes::of(const Node& node) {
  std::map<const Node*, std::optional<ops::RouteKind>>::iterator known = known_.find(&node);
  if (known == known_.end()) known = known_.emplace(&node, choose(node)).first;
  return known->second;
}

std::optional<ops::RouteKind> Routes::choose(const Node& node) {
  // The library is the processor's; all that it computes has loops, which serve a GPU.
  const bool has_library = flag_library() && !graph_.target.is_gpu();
  if (!has_library && !ops::def_of(node).opaque) return std::nullopt;
  for (const ops::Route& route : ops::def_of(node).fast) {
    std::string reason = route.declines(node.call(), graph_.target);
    if (reason.empty() && route.kind == ops::RouteKind::matmul && reads_panels(graph_, node))
      reason = "its columns lie in panels, which loops read as they are";
    if (reason.empty() && route.kind == ops::RouteKind::matmul)
      reason = prefers_loops(graph_, node);
    if (reason.empty() && sums_places_in_packs(graph_, node))
      reason =
          "its windows are single places: vector registers sum packs of channels, and its "
          "epilogue comes along";
    const bool slides = reason.empty() && route.slides != nullptr && route.slides(node.call());
    if (slides && widens(first_operand(node)))
      reason = "each channel is a window of its own: loops read narrow elements as they lie";
    else if (slides && made_of_convolution_.at(first_operand(node)) != 0 &&
             for_convolution_.at(node.results[0]) != 0 && !is_summed(graph_, node.results[0]))
      reason = "each channel is a window of its own: loops take along what stands around it";
    const bool taken = reason.empty();
    graph_.decisions.routes.push_back(
        {&node, taken, taken ? why_library(graph_, node, route.kind) : reason});
    if (route.kind == ops::RouteKind::matmul && node.results[0]->type.rank() >= 2)
      graph_.decisions.routes.back().cost = compare_routes(graph_, node);
    if (taken) return route.kind;
    graph_.note(node, "library route declined: " + reason);
  }
  return std::nullopt;
}

}  // namespace tandem::schedule
