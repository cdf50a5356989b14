// Views as strides over a value that has a place: what a library call can read.
#pragma once

#include <optional>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// Strided elements of a materialized value (or graph input): what a view of it denotes.
struct StridedRef {
  const ir::Value* root = nullptr;
  ir::Sizes sizes;
  ir::Sizes strides;
  sym::Expr offset = 0;
};

/// A value seen as a view of another one.
struct View {
  const ir::Value* value = nullptr;
  const ir::Value* root = nullptr;
  ir::Sizes layout;  // strides of the root
};
/// Of a root as it lies.
View view_of(const KernelGraph& graph, const ir::Value* value, const ir::Value* root);

/// What a chain of views of a materialized value denotes, when strides can say it. `split`: cut
/// result dimension 0 into (n / split, split) first (batches that flatten two dimensions); 1 for no
/// cut.
std::optional<StridedRef> strided_view(KernelGraph& graph, const View& view, sym::Expr split = 1);
/// Whether the library can read it: by strides, or by strides of a cut batch.
bool is_strided(KernelGraph& graph, const View& view);
/// Divisor c when the batch dimension of a view is addressed by b // c and b % c; 1 when it is not.
sym::Expr batch_split(KernelGraph& graph, const View& view);

/// Channels innermost; empty for sizes that have no such layout.
ir::Sizes channels_last_strides(const ir::Sizes& sizes);

/// The value that a chain of views starts from.
const ir::Value* view_root(KernelGraph& graph, const ir::Value* value);
/// Of a result of a signature: the input's elements that it shows, where strides can say which. A
/// signature gives views of its arguments; any other graph gives memory of its own.
std::optional<StridedRef> shown_input(KernelGraph& graph, const ir::Value* result);
/// Once all is materialized: the nearest value with a place that strides can show `value` of;
/// itself where it has one.
const ir::Value* stored_root(KernelGraph& graph, const ir::Value* value);

}  // namespace tandem::schedule
