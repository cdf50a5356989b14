// Writes computations into the kernel of a group: their scalars at places of its loops, what they
// read as loads of its buffers.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

using SlotKey = std::pair<const Item*, uint32_t>;

/// Row-major, or as the strides say.
sym::Expr address_of(const ops::Index& index, const ir::Sizes& strides);

class KernelWriter {
 public:
  /// What is in the place of an element that a computation reads; `mask` is null where it always
  /// reads it.
  using Element = std::function<loop::Val(const ir::Value*, const ops::Index&, loop::Val mask)>;

  /// Elements are loads, until `read_by` says otherwise.
  KernelWriter(KernelGraph& graph, Group& group);
  KernelWriter(const KernelWriter&) = delete;
  KernelWriter& operator=(const KernelWriter&) = delete;
  ~KernelWriter() = default;
  void read_by(Element element) { element_ = std::move(element); }

  loop::Kernel& kernel() { return group_.kernel; }
  loop::ScalarPool& scalars() { return *group_.kernel.scalars; }
  sym::Pool& symbols() { return graph_.graph->pool(); }

  /// Scalars of a computation, its axes at places of this kernel.
  std::vector<loop::Val> written(std::span<const loop::Val> roots, const sym::Substitution& at,
                                 std::span<const loop::Val> locals = {});
  loop::Val point(const Computation& of, size_t result, const ops::Index& at);
  std::vector<loop::Val> inputs(const Computation& of, const ops::Index& out, const ops::Index& r);
  std::vector<loop::Val> finished(const Computation& of, std::span<const loop::Val> combined,
                                  const ops::Index& out);

  /// Number of the buffer that holds the value or, where that is null, what lives at `home`.
  int32_t buffer(const ir::Value* value, const Home& home, DType dtype, loop::Access access);
  int32_t add_scratch(DType dtype, sym::Expr elements);
  loop::Val load_value(const ir::Value* value, const ops::Index& index, loop::Val mask);
  void store(std::vector<loop::Store>& list, const SlotKey& key, const ops::Index& index,
             loop::Val value);

 private:
  loop::Val check(loop::Val holds, loop::Val value, int32_t error);
  loop::Val scalar_input(const ir::Value* value);
  int32_t number_of(const std::string& text);

  KernelGraph& graph_;
  Group& group_;
  Element element_;
};

/// Kernels of a single item with loops of its own. build_alone.cc
void build_scan(KernelWriter& writer, const Item& item);
void build_scatter(KernelWriter& writer, const Item& item);

/// The element of a sum that has no place in memory: `footprint` becomes a stage which computes
/// what the point with the axes `inner` reads of it, to scratch. build_footprint.cc
loop::Val sum_at_footprint(KernelWriter& writer, const Item& sum, const ops::Index& inner,
                           const ir::Sizes& inner_sizes, loop::Stage& footprint,
                           const ops::Index& index, loop::Val mask);

}  // namespace tandem::schedule
