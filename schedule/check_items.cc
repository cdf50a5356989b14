// Problem: steps ask items for what their operators define (a reduction has inputs, its sizes are
// those that its spaces are made of), and text can say anything. Approach: what the operator
// defines is asked once more, and compared: all but the scalars, which inlining has rewritten.
// Reductions that were split differ from it in one way, which is checked by itself. Values without
// a place must be such as can be inlined where they are read.
#include "schedule/check_items.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/text.h"
#include "loop/stage.h"
#include "ops/opdef.h"
#include "schedule/reads.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using loop::Val;

class Checker {
 public:
  explicit Checker(KernelGraph& graph) : graph_(graph), names_(ir::value_names(*graph.graph)) {}

  Problems run() {
    for (const std::unique_ptr<Item>& item : graph_.items) {
      item_ = item.get();
      item->kind == Item::Kind::library ? check_library() : check_loops();
    }
    if (problems_.empty()) check_places();
    return std::move(problems_);
  }

 private:
  /// False where it does not hold.
  template <class... Args>
  bool expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    if (!holds)
      problems_.push_back(
          {Problem::Of::item, item_->id, fmt::format(text, std::forward<Args>(args)...)});
    return holds;
  }

  void check_library() {
    const ir::Node& node = *item_->node;
    const std::vector<ops::Route>& routes = ops::def_of(node).fast;
    const bool is_routed = std::ranges::any_of(routes, [&](const ops::Route& route) {
      return route.kind == item_->route && route.declines(node.call(), graph_.target).empty();
    });
    expect(is_routed, "the library does not compute {} so", node.op->name());
    expect(!item_->computation.is_defined() && item_->partial_of == nullptr,
           "a library call has no loops");
    check_results();
  }

  void check_loops() {
    const ir::Node& node = *item_->node;
    if (!expect(ops::def_of(node).lower != nullptr, "{} has no loops", node.op->name())) return;
    const Computation& def = graph_.computations.of(&node);
    const std::array kinds{Item::Kind::map, Item::Kind::reduce, Item::Kind::scan,
                           Item::Kind::scatter};
    if (!expect(item_->kind == kinds[static_cast<size_t>(def.kind)], "{} is no {}", node.op->name(),
                name_of(item_->kind)))
      return;
    if (is_partial()) return check_partial(def);
    check_results();
    if (item_->partial_of != nullptr) return check_combining(def);
    expect(item_->partial_rows == sym::Expr(0), "it has no partial results");
    if (item_->computation.is_defined()) check_computation(def);
  }

  bool is_partial() const {
    return item_->kind == Item::Kind::reduce && item_->slots.size() == 1 &&
           item_->slots[0].value == nullptr;
  }

  /// A map is one result; all others have all of them.
  void check_results() {
    const ir::Node& node = *item_->node;
    if (item_->kind == Item::Kind::map) {
      expect(item_->slots.size() == 1 && item_->slots[0].value == node.results[item_->result],
             "a map has one slot, for what it is of");
      return;
    }
    bool all = item_->result == 0 && item_->slots.size() == node.results.size();
    for (size_t i = 0; all && i < item_->slots.size(); ++i)
      all = item_->slots[i].value == node.results[i];
    expect(all, "it has a slot for each result of {}, in their order", node.op->name());
  }

  void check_computation(const Computation& def) {
    const Computation& own = item_->computation;
    const bool same = own.reduce_sizes == def.reduce_sizes && own.full_sizes == def.full_sizes &&
                      own.reduced_dims == def.reduced_dims && own.source_sizes == def.source_sizes;
    expect(same, "{} has other sizes", item_->node->op->name());
    expect(own.combiner == def.combiner || item_->kind == Item::Kind::map,
           "{} has another combiner", item_->node->op->name());
    const bool scatters = own.scatter_dim == def.scatter_dim &&
                          (item_->kind != Item::Kind::scatter || own.accumulate == def.accumulate);
    expect(scatters, "{} scatters otherwise", item_->node->op->name());
    const bool same_axes =
        own.out.size() == def.out.size() && own.reduce.size() == def.reduce.size();
    expect(same_axes && same_types(own.inputs, def.inputs) &&
               same_types(own.finished, def.finished) && same_scatter(own, def) &&
               same_points(own, def),
           "{} gives other values", item_->node->op->name());
    check_locals(own, def);
  }

  static bool same_types(const std::vector<Val>& own, const std::vector<Val>& def) {
    return std::ranges::equal(own, def, {}, &loop::Scalar::dtype, &loop::Scalar::dtype);
  }

  static bool same_scatter(const Computation& own, const Computation& def) {
    const bool both = (own.value == nullptr) == (def.value == nullptr);
    return both && (own.value == nullptr || own.value->dtype == def.value->dtype);
  }

  bool same_points(const Computation& own, const Computation& def) const {
    const size_t result = item_->kind == Item::Kind::map ? item_->result : 0;
    if (def.results.empty()) return own.results.empty();
    if (own.results.size() <= result) return false;
    const Val value = own.results[result].value;
    return value != nullptr && value->dtype == def.results[result].value->dtype;
  }

  /// What is made of the combined values reads those that there are, and nothing else does.
  void check_locals(const Computation& own, const Computation& def) {
    for (const Val part : loop::reachable(own.finished)) {
      if (part->opcode != loop::Opcode::local) continue;
      const bool is_there = part->slot >= 0 && part->slot < loop::results(def.combiner) &&
                            part->dtype == def.inputs[static_cast<size_t>(part->slot)]->dtype;
      expect(is_there, "it reads l{} of what was combined", part->slot);
    }
  }

  // --- split reductions

  /// Blocks of what the operator reduces, each as one sum.
  void check_partial(const Computation& def) {
    const Slot& slot = item_->slots[0];
    const Computation& own = item_->computation;
    const ir::Sizes& sizes = item_->node->results[0]->type.sizes;
    const bool has_blocks = slot.sizes.size() == sizes.size() + 1 &&
                            std::equal(sizes.begin(), sizes.end(), slot.sizes.begin() + 1);
    expect(has_blocks && loop::results(def.combiner) == 1 && item_->partial_of == nullptr &&
               item_->result == 0 && slot.dtype == def.inputs[0]->dtype,
           "partial results have the type of what is combined, and blocks before its sizes");
    expect(own.combiner == def.combiner && own.reduce_sizes.size() == 1 && own.full_sizes.empty() &&
               own.reduced_dims.empty() && own.finished.empty() && own.reduce.size() == 1 &&
               same_types(own.inputs, def.inputs),
           "partial results combine what {} does, along one axis", item_->node->op->name());
    const auto combines = [&](const std::unique_ptr<Item>& other) {
      return other->partial_of == item_;
    };
    expect(std::ranges::count_if(graph_.items, combines) == 1, "one item combines partial results");
    const bool adds = item_->partial_rows == sym::Expr(0) || def.combiner == loop::Combiner::sum;
    expect(adds, "partial rows are summed");
  }

  void check_combining(const Computation& def) {
    const Item& from = *item_->partial_of;
    const Computation& own = item_->computation;
    const bool is_same = from.node == item_->node && from.slots.size() == 1 &&
                         from.slots[0].value == nullptr && from.slots[0].sizes.size() > 0;
    if (!expect(is_same, "it combines what are no partial results of {}", item_->node->op->name()))
      return;
    expect(own.combiner == combiner_of_parts(def.combiner) &&
               own.reduce_sizes == ir::Sizes{from.slots[0].sizes[0]} && own.full_sizes.empty() &&
               own.reduced_dims.empty() && own.inputs.empty() && own.reduce.empty() &&
               own.out.size() == def.out.size() && same_types(own.finished, def.finished),
           "it combines the blocks of item {}", from.id);
    expect(item_->partial_rows == sym::Expr(0), "partial rows are those of partial results");
    check_locals(own, def);
  }

  // --- what has no place

  /// What is read and has no place is inlined: it is a map, and no end of a long chain of them.
  void check_places() {
    DenseMap<Value, int> depth;
    const DenseMap<Value, char> wanted = wanted_values(*graph_.graph);
    for (const ir::Node* node = graph_.graph->first(); node != nullptr; node = node->next)
      for (const Value* result : node->results) {
        if (graph_.is_materialized(result) || wanted.at(result) == 0) continue;
        int deepest = 0;
        ir::for_each_operand(node->args, [&](const Value* operand) {
          deepest = std::max(deepest, depth.at(operand));
        });
        depth[result] = deepest + 1;
        check_inlined(*node, *result, deepest);
      }
    for (const std::unique_ptr<Item>& item : graph_.items)
      if (item->kind == Item::Kind::library) check_operands(*item);
  }

  void check_inlined(const ir::Node& node, const Value& value, int depth) {
    const bool is_map = ops::def_of(node).lower != nullptr &&
                        graph_.computations.of(&node).kind == Computation::Kind::map;
    const bool is_long = depth > 2 * graph_.target.tuning.inlining.depth;
    if (is_map && !is_long) return;
    problems_.push_back({Problem::Of::graph, 0,
                         fmt::format("%{} {}", names_.at(&value),
                                     is_map ? "ends a long chain of values without a place"
                                            : "has no place, and cannot be inlined")});
  }

  /// The library reads places, or views of them.
  void check_operands(const Item& item) {
    item_ = &item;
    ir::for_each_operand(item.node->args, [&](const Value* operand) {
      const Value* from = operand;
      while (!graph_.is_materialized(from) && from->node->op->is_view() &&
             std::holds_alternative<Value*>(from->node->args[0]))
        from = std::get<Value*>(from->node->args[0]);
      expect(graph_.is_materialized(from), "the library reads %{}, which has no place",
             names_.at(operand));
    });
  }

  KernelGraph& graph_;
  DenseMap<Value, std::string> names_;
  Problems problems_;
  const Item* item_ = nullptr;
};

}  // namespace

Problems problems_of_items(KernelGraph& graph) { return Checker(graph).run(); }

std::vector<std::string> problems_of_definition(const loop::Kernel& kernel, const Item& item) {
  loop::Kernel whole = kernel;
  const bool combines = item.kind == Item::Kind::reduce && kernel.stages.size() == 1 &&
                        kernel.stages[0].reductions.empty();
  if (!combines) return loop::verify_definition(whole);
  // Its local is what was combined elsewhere.
  DType dtype = DType::f32;
  for (const Val part : loop::scalars_of(kernel.stages[0]))
    if (part->opcode == loop::Opcode::local) dtype = part->dtype;
  const Val nothing = whole.scalars->constant(dtype, 0);
  const loop::Combiner any = dtype == DType::boolean ? loop::Combiner::any : loop::Combiner::max;
  whole.stages[0].reductions.push_back({any, {nothing}, 0});
  whole.locals = std::max(whole.locals, 1);
  return loop::verify_definition(whole);
}

}  // namespace tandem::schedule
