// Graph in, Program and kernels out. The steps; steps.cc has their order.
#pragma once

#include <span>
#include <vector>

#include "loop/kernel.h"
#include "schedule/lowering.h"
#include "schedule/plan.h"

namespace tandem::schedule {

/// Decides which values are computed as such (items) and which are inlined into their users;
/// chooses library routes. realize.cc
void realize(Plan& plan, GraphLowering& lowering);

/// Gives every slot its strides: channels-last where convolutions and what stands between them are
/// better off so, else contiguous. layout.cc
void choose_layouts(Plan& plan, GraphLowering& lowering);

/// Long reductions with few results become two items. split_reduction.cc
void split_reductions(Plan& plan, GraphLowering& lowering);

/// What a chain of views of a realised value denotes, when strides can say it. `split`: cut result
/// dimension 0 into (n / split, split) first (batches that flatten two dimensions); 1 for no cut.
/// strided.cc
std::optional<StridedRef> strided_view(GraphLowering& lowering, const ir::Value* value,
                                       const ir::Value* root, sym::Expr split = 1);
/// The value that a chain of views starts from.
const ir::Value* view_root(GraphLowering& lowering, const ir::Value* value);
/// Once all is realised: the nearest value with a place that strides can show `value` of; itself
/// where it has one.
const ir::Value* stored_root(GraphLowering& lowering, const ir::Value* value);
/// Whether the library can read `value` of `root`: by strides, or by strides of a cut batch.
bool is_strided(GraphLowering& lowering, const ir::Value* value, const ir::Value* root);
/// Divisor c when the batch dimension of a view is addressed by b // c and b % c; 1 when it is not.
sym::Expr batch_split(GraphLowering& lowering, const ir::Value* value, const ir::Value* root);

/// Items that run as one kernel, and that kernel before mapping.
struct Group {
  std::vector<Item*> items;
  bool is_library = false;
  bool is_chain = false;    // products in a row: chain.h
  int sums_on_the_way = 0;  // places where Draft::on_the_way is read; one is computed there
  loop::Kernel kernel;
  std::vector<const ir::Value*>
      buffer_values;               // what each kernel buffer holds; null for scratch and partials
  std::vector<Home> buffer_homes;  // for slots without a value
  std::vector<const ir::Value*> scalar_values;  // scalar inputs, as size arguments after the sizes
  std::string reason;
};

/// Groups by number, in the order they run; those that run at the same time stand together.
using LaunchOrder = std::vector<std::vector<size_t>>;

/// Splits, merges and orders axes and writes how they meet the machine. map_axes.cc
void map_axes(loop::Kernel& kernel, const Target& target);
/// Of a sum of products over two independent axes: register tiles over packed operands. False when
/// the kernel is none. map_product.cc
bool map_product(loop::Kernel& kernel, const Target& target);
/// Of a sum over a window that slides over channels-last images, each channel by itself: what the
/// windows see is computed once. Where a stage of its own comes first, that is a sum which what
/// they see is made from. False when the kernel is none. map_window.cc
bool map_window(loop::Kernel& kernel, const Target& target);
/// Whether the kernel begins with such a sum.
bool has_footprint(const loop::Kernel& kernel);
/// The rows and columns of one task, which a stage that sums products runs over.
struct ProductBlock {
  loop::Axis rows;
  loop::Axis columns;
  sym::Expr height;  // of rows and columns, at most
  sym::Expr width;
  std::optional<sym::Expr> length;  // of the sums, at most; nothing: what the stage says
  /// Where the columns end whose sums the epilogue reads, if it is a loop of its own.
  std::optional<sym::Expr> visible;
  size_t left = 0;  // which input of the dot walks the rows
  /// Blocks of columns follow each other, and the right factor is read from beyond the cache.
  bool is_streamed = false;
};
/// What such a stage becomes inside a kernel of several: copies of its factors, register tiles.
std::vector<loop::Stage> map_product_stage(loop::Kernel& kernel, loop::Stage& stage,
                                           const ProductBlock& block, const Target& target);

struct Scheduled {
  abi::Program program;
  std::vector<loop::Kernel>
      kernels;  // mapped, canonical, distinct; in the order of Program::kernels
  std::vector<loop::Kernel> setup_kernels;  // of Program::setup
  std::vector<Note> notes;
  std::vector<ir::Sizes> output_strides;  // in the order of Program::outputs; empty for scalars
};

/// All of it, with the setup graph of the module as Program::setup. Throws Unsupported
/// when an op has no route.
Scheduled schedule(const ir::Graph& graph, const Target& target);

/// The steps between graph and program, by the names that the flags know.
std::vector<std::string_view> step_names();

/// Where each value is computed and why there, and of each two in a row why they are not computed
/// by one kernel. Names are those of the graph's text. UserError for a name that no node makes.
std::string why(const ir::Graph& graph, const Target& target, std::span<const std::string> values);

/// Human-readable: instructions, notes, kernels.
std::string report(const Scheduled& scheduled);

}  // namespace tandem::schedule
