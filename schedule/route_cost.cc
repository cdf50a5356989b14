// Problem: whether a product goes to the library was decided by limits that said nothing of what
// either way costs. Approach: both are counted by the model of all other decisions: operations, the
// copies that each makes of the right factor, results that pass through memory to what is computed
// of them, launches. The library copies the right factor once, from wherever it lies; loops copy it
// for each block of rows, out of a cache.
#include "schedule/route_cost.h"

#include <algorithm>
#include <cmath>

#include "ops/opdef.h"

namespace tandem::schedule {
namespace {

using ir::Value;

/// Sizes of [.., rows, terms] by [.., terms, columns].
struct ProductSize {
  double rows = 1;
  double columns = 1;
  double batch = 1;
  double terms = 1;
  double element = 1;  // bytes
};

ProductSize size_of_product(KernelGraph& graph, const ir::Node& product) {
  const Target& target = graph.target;
  const ir::Type& result = product.results[0]->type;
  ProductSize size;
  size.element = static_cast<double>(size_of(result.dtype));
  size.terms = count_of(sym::product(graph.computations.of(&product).reduce_sizes), target);
  const size_t rank = result.sizes.size();
  size.rows = count_of(result.sizes[rank - 2], target);
  size.columns = count_of(result.sizes[rank - 1], target);
  for (size_t i = 0; i + 2 < rank; ++i) size.batch *= count_of(result.sizes[i], target);
  return size;
}

/// Whether something is computed of the results, element by element, that loops take along.
bool has_epilogue(const Value* result) {
  return result->uses.size() == 1 && result->uses[0].node != nullptr &&
         ops::def_of(*result->uses[0].node).pointwise;
}

}  // namespace

Comparison compare_routes(KernelGraph& graph, const ir::Node& product) {
  const Target& target = graph.target;
  const ProductSize size = size_of_product(graph, product);
  const double panel = size.terms * size.columns * size.element;
  Comparison cost;
  cost.together.launches = 1;
  cost.together.flops = 2 * size.batch * size.rows * size.columns * size.terms;
  cost.apart = cost.together;
  count_shared(cost.apart, target, size.batch * panel, 2 * size.batch * panel);
  const double results = size.batch * size.rows * size.columns * size.element;
  if (has_epilogue(product.results[0])) {
    cost.apart.launches += 1;
    count_shared(cost.apart, target, results, 2 * results);
  }
  const Tuning::Products& tuning = target.tuning.products;
  const double blocks = size.batch * std::ceil(size.rows / static_cast<double>(tuning.most_rows));
  const double columns = std::min(size.columns, static_cast<double>(tuning.most_columns));
  count_shared(cost.together, target, size.batch * panel, size.batch * panel);
  count_scratch(cost.together, target, size.terms * columns * size.element,
                (2 * blocks - size.batch) * panel);
  return cost;
}

}  // namespace tandem::schedule
