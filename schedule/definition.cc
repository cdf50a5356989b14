// Problem: a computation is scalars of a shared pool over placeholder axes; what prints and parses
// is a kernel. Approach: it is written as the kernel it would be alone, with `element` for what has
// no address. Of a scatter the second stage names the place and the value of a source point.
#include "schedule/definition.h"

#include <algorithm>

#include "loop/walk.h"
#include "schedule/check_kernel.h"
#include "schedule/inline.h"
#include "schedule/space.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

std::vector<Axis> axes_over(const ops::Index& axes, const ir::Sizes& sizes) {
  std::vector<Axis> made;
  for (size_t i = 0; i < axes.size(); ++i) made.push_back({axes[i], sizes[i]});
  return made;
}

ops::Index indices_of(const std::vector<Axis>& axes) {
  ops::Index indices;
  for (const Axis& axis : axes) indices.push_back(axis.index);
  return indices;
}

void add_result(Kernel& kernel, std::vector<loop::Store>& stores, Val value, Expr at) {
  stores.push_back({static_cast<int32_t>(kernel.buffers.size()), at, value, false});
  kernel.buffers.push_back({value->dtype, loop::Access::write, 0, true, ""});
}

/// Numbers elements and errors as this text has them.
class Writer {
 public:
  Writer(const KernelGraph& graph, const Item& item) : graph_(graph), item_(item) {
    made_.kernel.scalars = std::make_shared<loop::ScalarPool>(graph.graph->pool());
    made_.kernel.name = item.node->op->name();
  }

  DefinitionText run() {
    const Computation& of = item_.computation;
    switch (item_.kind) {
      case Item::Kind::map: write_points(of.results[item_.result]); break;
      case Item::Kind::reduce:
      case Item::Kind::scan: write_reduction(of); break;
      case Item::Kind::scatter: write_scatter(of); break;
      case Item::Kind::library: break;
    }
    KernelText text = canonical_of(made_.kernel);
    made_.kernel = std::move(text.kernel);
    made_.sizes = std::move(text.sizes);
    return std::move(made_);
  }

 private:
  /// Numbers count in the order of the text.
  std::vector<Val> written(std::span<const Val> roots) {
    std::vector<Val> lines;
    loop::LineOrder order(graph_.scalars);
    for (Val root : roots) order.visit(root, lines);
    for (Val line : lines) {
      if (line->opcode == loop::Opcode::element) number_of(line->slot);
      if (line->opcode == loop::Opcode::check) error_of(line->slot);
    }
    loop::Rewrite how;
    how.adjust = [&](loop::Scalar& copy) {
      if (copy.opcode == loop::Opcode::element) copy.slot = number_of(copy.slot);
      if (copy.opcode == loop::Opcode::check) copy.slot = error_of(copy.slot);
    };
    return loop::rewrite(*made_.kernel.scalars, graph_.scalars, roots, how);
  }

  int32_t number_of(int32_t element) {
    const ir::Value* value = graph_.computations.value(element);
    const auto known = std::ranges::find(made_.values, value);
    const auto number = known - made_.values.begin();
    if (known == made_.values.end()) made_.values.push_back(value);
    return static_cast<int32_t>(number);
  }

  int32_t error_of(int32_t number) {
    std::vector<std::string>& errors = made_.kernel.errors;
    const std::string& text = graph_.computations.error_text(number);
    const auto known = std::ranges::find(errors, text);
    const auto found = known - errors.begin();
    if (known == errors.end()) errors.push_back(text);
    return static_cast<int32_t>(found);
  }

  void write_points(const Computation::Points& points) {
    Kernel& kernel = made_.kernel;
    kernel.outer = axes_over(points.axes, item_.slots[0].sizes);
    kernel.stages.emplace_back();
    add_result(kernel, kernel.stages[0].body, written(std::span(&points.value, 1))[0],
               linear_index(points.axes, item_.slots[0].sizes));
  }

  void write_reduction(const Computation& of) {
    Kernel& kernel = made_.kernel;
    kernel.outer = axes_over(of.out, item_.slots[0].sizes);
    kernel.locals = loop::results(of.combiner);
    Stage& stage = kernel.stages.emplace_back();
    stage.reduce_axes = axes_over(of.reduce, of.reduce_sizes);
    const std::vector<Val> inputs = written(of.inputs);
    if (!inputs.empty())
      stage.reductions.push_back({of.combiner, inputs, 0, item_.kind == Item::Kind::scan});
    std::vector<loop::Store>& stores = item_.kind == Item::Kind::scan ? stage.body : stage.after;
    for (Val result : written(of.finished))
      add_result(kernel, stores, result, linear_index(of.out, item_.slots[0].sizes));
  }

  void write_scatter(const Computation& of) {
    write_points(of.results[0]);
    Kernel& kernel = made_.kernel;
    Stage& stage = kernel.stages.emplace_back();
    stage.axes = axes_over(of.source, of.source_sizes);
    const std::array roots{of.destination, of.value};
    for (Val part : written(roots))
      add_result(kernel, stage.body, part, linear_index(of.source, of.source_sizes));
  }

  const KernelGraph& graph_;
  const Item& item_;
  DefinitionText made_;
};

/// The kernel's scalars with the graph's numbers of elements and errors.
class Reader {
 public:
  Reader(KernelGraph& graph, Item& item, const DefinitionText& text)
      : graph_(graph), item_(item), values_(text.values) {
    const std::shared_ptr<loop::ScalarPool> own =
        std::make_shared<loop::ScalarPool>(graph.graph->pool());
    kernel_ = loop::copied(text.kernel, own, text.sizes);
  }

  bool run() {
    if (item_.slots.empty()) return false;
    switch (item_.kind) {
      case Item::Kind::map: return kernel_.stages.size() == 1 && read_points(item_.result);
      case Item::Kind::reduce:
      case Item::Kind::scan: return kernel_.stages.size() == 1 && read_reduction();
      case Item::Kind::scatter:
        return kernel_.stages.size() == 2 && read_points(0) && read_scatter();
      case Item::Kind::library: return false;
    }
    return false;
  }

 private:
  std::vector<Val> read(std::span<const Val> roots) {
    loop::Rewrite how;
    how.adjust = [&](loop::Scalar& copy) {
      if (copy.opcode == loop::Opcode::element)
        copy.slot = graph_.computations.number(values_.at(static_cast<size_t>(copy.slot)));
      if (copy.opcode == loop::Opcode::check)
        copy.slot =
            graph_.computations.error_number(kernel_.errors.at(static_cast<size_t>(copy.slot)));
    };
    return loop::rewrite(graph_.scalars, *kernel_.scalars, roots, how);
  }

  static std::vector<Val> values_of(const std::vector<loop::Store>& stores) {
    std::vector<Val> values;
    for (const loop::Store& store : stores) values.push_back(store.value);
    return values;
  }

  bool walks_slots(const ops::Index& axes) const {
    return axes.size() == item_.slots[0].sizes.size();
  }

  bool read_points(size_t result) {
    const std::vector<Val> values = read(values_of(kernel_.stages[0].body));
    if (values.size() != 1) return false;
    item_.computation.results.resize(result + 1);
    item_.computation.results[result] = {indices_of(kernel_.outer), values[0]};
    return walks_slots(item_.computation.results[result].axes);
  }

  bool read_reduction() {
    Computation& of = item_.computation;
    const Stage& stage = kernel_.stages[0];
    of.out = indices_of(kernel_.outer);
    of.reduce = indices_of(stage.reduce_axes);
    if (!stage.reductions.empty()) {
      of.combiner = stage.reductions[0].combiner;
      of.inputs = read(stage.reductions[0].inputs);
    }
    of.finished = read(values_of(item_.kind == Item::Kind::scan ? stage.body : stage.after));
    const bool combines = !of.inputs.empty() || of.reduce.empty();
    const bool finishes = of.finished.empty() || of.finished.size() == item_.slots.size();
    return walks_slots(of.out) && combines && finishes &&
           (of.reduce.empty() || of.reduce.size() == of.reduce_sizes.size());
  }

  bool read_scatter() {
    Computation& of = item_.computation;
    const std::vector<Val> parts = read(values_of(kernel_.stages[1].body));
    if (parts.size() != 2 || parts[0]->dtype != DType::i64) return false;
    of.source = indices_of(kernel_.stages[1].axes);
    for (const Axis& axis : kernel_.stages[1].axes) of.source_sizes.push_back(axis.extent);
    of.destination = parts[0];
    of.value = parts[1];
    return of.source.size() == item_.slots[0].sizes.size();
  }

  KernelGraph& graph_;
  Item& item_;
  const std::vector<const ir::Value*>& values_;
  Kernel kernel_;
};

}  // namespace

KernelText canonical_of(const Kernel& kernel) {
  Kernel whole = kernel;
  whole.sizes = size_symbols(kernel);
  KernelText text;
  text.kernel = loop::canonical(whole);
  text.sizes = std::move(whole.sizes);
  return text;
}

DefinitionText definition_of(const KernelGraph& graph, const Item& item) {
  return Writer(graph, item).run();
}

bool read_definition(KernelGraph& graph, Item& item, const DefinitionText& text) {
  return Reader(graph, item, text).run();
}

}  // namespace tandem::schedule
