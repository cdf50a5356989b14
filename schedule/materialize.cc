// Which values get a place of their own. Reductions, scans, scatters and library calls do; a
// pointwise value does when it leaves the graph, when a library reads it, or when several items
// read it and computing it again would cost more than loading it. Everything else is inlined into
// its readers.
//
// Users are visited before producers (reverse program order), so the items that a value reaches are
// known when it is decided.

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ir/text.h"
#include "ir/writes.h"
#include "ops/asserts.h"
#include "schedule/reads.h"
#include "schedule/routes.h"
#include "schedule/steps.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using ir::Node;
using ir::Value;
using sym::Expr;
using Kind = Computation::Kind;

/// Items one value reaches without passing memory; only "none, one, several" matters.
struct Reach {
  int64_t count() const { return static_cast<int64_t>(places.size()); }

  std::set<uint32_t> items;
  bool looped = false;                  // a sum, scan or scatter reads it
  bool repeated = false;                // a window or product reads elements many times
  bool multiplied = false;              // a product does: each task computes what it reads
  bool broadcast = false;               // read at more places than it has elements
  bool scattered = false;               // into no fewer elements than it has
  const Value* windows_over = nullptr;  // of an item: its operand that a task reads its part of
  int depth = 0;                        // longest chain of inlined nodes below it
  /// Where it is read, by the moving ops (slices, joins) that lead there: of one place it is one
  /// scalar of the item, of several each has its own. Counted up to one more than may be.
  std::set<uint64_t> places;
};

/// What computing one element of the op itself takes, operands aside.
struct Weight {
  int operands = 0;
  int asked = 0;  // elements that it reads only where they lie in an operand
  int read = 0;   // elements of operands; of several results that of the most
  bool transcendental = false;
  bool divides = false;   // or takes a root: as dear where it is not the lanes' axis that it skips
  int full_operands = 0;  // operands with as many elements as the result
};

bool packs(const Computation& def) {
  return std::ranges::any_of(loop::reachable(def.inputs),
                             [](loop::Val part) { return part->opcode == loop::Opcode::pack; });
}

/// 8-bit integers of floats, which are several times as wide.
bool quantizes(const Node& node) {
  const DType result = node.results[0]->type.dtype;
  bool of_floats = false;
  ir::for_each_operand(node.args, [&](const Value* operand) {
    of_floats |= operand->type.numel() == node.results[0]->type.numel() &&
                 operand->type.is_tensor() && is_float(operand->type.dtype);
  });
  return of_floats && is_int(result) && size_of(result) == 1;
}

/// By a reduction of its own kernel; not by a product.
bool is_summed_by(KernelGraph& graph, const Node& node) {
  const Computation& def = graph.computations.of(&node);
  return def.kind == Kind::reduce && !loop::multiplies(def.combiner);
}

/// A float of fewer bits than what is computed for it, and perhaps for sums, alone.
bool rounds(KernelGraph& graph, const Node& node) {
  const DType result = node.results[0]->type.dtype;
  const Value* wide = nullptr;
  ir::for_each_operand(node.args, [&](const Value* operand) { wide = operand; });
  if (wide == nullptr || wide->node == nullptr || !is_float(result)) return false;
  if (!is_float(wide->type.dtype) || size_of(result) >= size_of(wide->type.dtype)) return false;
  return std::ranges::all_of(wide->uses, [&](const ir::Use& use) {
    return use.node == &node ||
           (use.node != nullptr && !ops::def_of(*use.node).opaque &&
            ops::def_of(*use.node).lower != nullptr && is_summed_by(graph, *use.node));
  });
}

/// Such a float in as many bits as before: what is read of it is rounded.
bool is_rounded(KernelGraph& graph, const Node& node) {
  const Value* narrow = nullptr;
  ir::for_each_operand(node.args, [&](const Value* operand) { narrow = operand; });
  return narrow != nullptr && narrow->node != nullptr && narrow->uses.size() == 1 &&
         is_float(node.results[0]->type.dtype) && is_float(narrow->type.dtype) &&
         size_of(node.results[0]->type.dtype) > size_of(narrow->type.dtype) &&
         rounds(graph, *narrow->node);
}

/// What a product that reads such a number has in memory: packs of 16 bits where the processor sums
/// them, else what it multiplies.
bool is_stored_for_product(KernelGraph& graph, const Node& node) {
  const bool has_packs = graph.target.multiplies_bf16() || graph.target.multiplies_bf16_tiles();
  return has_packs ? rounds(graph, node) : is_rounded(graph, node);
}

/// What one element of the op's first result takes.
std::vector<loop::Val> own_scalars(KernelGraph& graph, const Node& node) {
  return loop::reachable(std::span(&graph.computations.of(&node).results[0].value, 1));
}

bool has_transcendental(KernelGraph& graph, const Node& node) {
  return std::ranges::any_of(own_scalars(graph, node), loop::is_transcendental,
                             &loop::Scalar::opcode);
}

/// Elements of an operand, or of all, that one element of a result is made of.
int most_read(KernelGraph& graph, const Node& node, const Value* operand = nullptr) {
  int most = 0;
  for (const Computation::Points& result : graph.computations.of(&node).results) {
    int read = 0;
    for (const loop::Val part : loop::reachable(std::span(&result.value, 1)))
      read += part->opcode == loop::Opcode::element &&
              (operand == nullptr || graph.computations.value(part->slot) == operand);
    most = std::max(most, read);
  }
  return most;
}

Weight weigh(KernelGraph& graph, const Node& node) {
  Weight weight;
  weight.read = most_read(graph, node);
  Expr elements = node.results[0]->type.numel();
  ir::for_each_operand(node.args, [&](const Value* operand) {
    weight.operands += operand->type.is_tensor();
    weight.full_operands += operand->type.is_tensor() && operand->type.numel() == elements;
  });
  for (loop::Val part : own_scalars(graph, node)) {
    bool divides = part->opcode == loop::Opcode::sqrt || part->opcode == loop::Opcode::div;
    weight.asked += part->opcode == loop::Opcode::element && part->masked;
    weight.transcendental |= loop::is_transcendental(part->opcode);
    weight.divides |= divides && is_float(part->dtype);
  }
  return weight;
}

/// A gather of few elements out of many: where the reader would be one long loop over them, a
/// place of its own lets it join the kernel that walks the rows which they stand in.
bool picks_few(KernelGraph& graph, const Node& node) {
  int64_t picked = node.results[0]->type.numel().constant().value_or(INT64_MAX);
  std::vector<loop::Val> parts = own_scalars(graph, node);
  return std::any_of(parts.begin(), parts.end(), [&](loop::Val part) {
    if (part->opcode != loop::Opcode::element || part->args.size() <= part->masked) return false;
    const Value* from = graph.computations.value(part->slot);
    std::optional<int64_t> all = from->type.numel().constant();
    return all && *all / graph.target.tuning.inlining.picked >= picked;
  });
}

/// At least as many elements as what is read has, as far as sizes are known.
bool as_many(Expr elements, const Value& operand) {
  const std::optional<int64_t> all = elements.constant();
  const std::optional<int64_t> read = operand.type.numel().constant();
  return all && read && *all >= *read;
}

/// A number for the way: equal ways have equal ones, and of others few. `read`: elements, for one.
void add_places(const Node& node, int read, const Reach& from, Reach& to, int64_t most) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // spreads the bits of what it multiplies
  const bool moves = !from.places.empty() && !ops::def_of(node).pointwise;
  if (from.places.empty()) to.places.insert(0);  // the item itself reads it
  for (uint64_t i = 1; static_cast<int64_t>(i) < read && to.count() <= most; ++i)
    to.places.insert((node.id + 1) * kOdd + i);
  for (uint64_t place : from.places) {
    if (to.count() > most) return;
    to.places.insert(moves ? place * kOdd + node.id + 1 : place);
  }
}

/// By strides. Of a product also with the batch cut in two; all its operands are cut in the same
/// place, `cut`, which the first one chooses (LibraryCalls::matmul).
bool can_read(KernelGraph& graph, ops::RouteKind route, const View& view, Expr& cut) {
  if (strided_view(graph, view)) return true;
  if (route != ops::RouteKind::matmul) return false;
  const Expr own = cut == Expr(1) ? batch_split(graph, view) : cut;
  const bool reads = own != Expr(1) && strided_view(graph, view, own).has_value();
  if (reads) cut = own;
  return reads;
}

/// A mask of an expensive value that nothing else reads: keeping the mask is cheaper than keeping
/// (or computing again) the value.
bool narrows(KernelGraph& graph, Routes& routes, const Node& node) {
  const Value* wide = nullptr;
  ir::for_each_operand(node.args, [&](const Value* operand) {
    if (operand->node != nullptr && operand->uses.size() == 1) wide = operand;
  });
  return wide != nullptr && size_of(node.results[0]->type.dtype) < size_of(wide->type.dtype) &&
         !routes.of(*wide->node) && graph.computations.of(wide->node).kind == Kind::map &&
         has_transcendental(graph, *wide->node);
}

/// Whether it is summed, and stored as fewer bits, which both happens where it is made.
bool is_stored_rounded(KernelGraph& graph, const Value* value, const Reach& to) {
  bool has_rounded = false;
  for (const uint32_t number : to.items) {
    const Item& item = *graph.items[number];
    if (item.kind == Item::Kind::reduce && is_summed_by(graph, *item.node)) continue;
    const ir::Type& stored = item.slots[0].value->type;
    if (item.kind != Item::Kind::map || stored.numel() != value->type.numel()) return false;
    const bool is_smaller =
        is_float(stored.dtype) && size_of(stored.dtype) < size_of(value->type.dtype);
    if (!is_smaller && !is_rounded(graph, *item.node)) return false;
    has_rounded = true;
  }
  return has_rounded;
}

class Materializer {
 public:
  explicit Materializer(KernelGraph& graph)
      : graph_(graph),
        tuning_(graph.target.tuning),
        routes_(graph),
        wanted_(wanted_values(*graph.graph)) {}

  void run() {
    mark_outputs();
    mark_asserts();
    const bool is_signature = graph_.graph->role().kind == ir::GraphRole::Kind::signature;
    if (is_signature && !gives_memory_) return;
    for (Node* node = graph_.graph->last(); node != nullptr; node = node->prev) visit(*node);
    std::reverse(graph_.items.begin(), graph_.items.end());
    for (uint32_t i = 0; i < graph_.items.size(); ++i) graph_.items[i]->id = i;
  }

 private:
  void mark_outputs() {
    for (const ir::Output& output : graph_.graph->outputs())
      if (output.value != nullptr && output.value->node != nullptr) is_output_[output.value] = 1;
    for (const ir::Output& output : graph_.graph->outputs()) {
      if (output.value == nullptr || shown_input(graph_, output.value)) continue;
      gives_memory_ = true;
      force(output.value, "it is a result of the graph");
      if (const Value* whole = written_whole(output.value)) {
        graph_.leaves_as[output.value] = whole;
        is_output_[whole] = 1;
      }
    }
  }

  void mark_asserts() {
    for (const Node* node = graph_.graph->first(); node != nullptr; node = node->next) {
      if (ops::is_asserted(*node)) force(node->results[0], "it is asserted");
      if (ops::is_checked_first(*node))
        force(node->results[0], "it is checked before what reads it writes");
    }
  }

  /// The product of which a result of the graph shows all elements in their order, where the
  /// library writes it and it leaves in no other way: it can be written to the caller's memory.
  const Value* written_whole(const Value* output) {
    const Value* root = view_root(graph_, output);
    if (root == output || root->node == nullptr || is_output_.at(root)) return nullptr;
    if (ir::is_written_back(output) || ir::is_written_back(root)) return nullptr;
    if (routes_.of(*root->node) != ops::RouteKind::matmul) return nullptr;
    std::optional<StridedRef> shown = strided_view(graph_, view_of(graph_, output, root));
    if (!shown || shown->offset != Expr(0)) return nullptr;
    const ir::Sizes expected = ir::contiguous_strides(output->type.sizes);
    for (size_t i = 0; i < expected.size(); ++i)
      if (output->type.sizes[i] != Expr(1) && shown->strides[i] != expected[i]) return nullptr;
    return output->type.numel() == root->type.numel() ? root : nullptr;
  }

  void force(const Value* value, const char* reason) {
    if (value->node != nullptr && forced_[value] == nullptr) forced_[value] = reason;
  }

  void visit(const Node& node) {
    if (node.op->mutates()) {
      // A write-back reads its source as stored.
      force(std::get<Value*>(node.args[1]), "it is written back to an input");
      return;
    }
    if (node.results.empty()) return;
    if (!is_wanted(node) && !ops::def_of(node).opaque) return;
    if (std::optional<ops::RouteKind> route = routes_.of(node)) return add_library(node, *route);
    const Computation& def = graph_.computations.of(&node);
    if (def.kind != Kind::map) return add_loops(node, def);
    for (const Value* result : node.results) visit_map(node, result);
  }

  bool is_wanted(const Node& node) const {
    return std::ranges::any_of(node.results, [&](const Value* v) { return wanted_.at(v) != 0; });
  }

  // --- items

  Item& new_item(Item::Kind kind, const Node& node, std::string reason) {
    graph_.items.push_back(std::make_unique<Item>());
    Item& item = *graph_.items.back();
    item.id = static_cast<uint32_t>(graph_.items.size()) - 1;  // renumbered at the end
    item.kind = kind;
    item.node = &node;
    item.reason = std::move(reason);
    return item;
  }

  void add_slot(Item& item, const Value* value) {
    graph_.homes[value] = {&item, static_cast<uint32_t>(item.slots.size())};
    item.slots.push_back(
        {value, value->type.dtype, value->type.sizes, ir::contiguous_strides(value->type.sizes)});
  }

  void add_library(const Node& node, ops::RouteKind route) {
    Item& item = new_item(Item::Kind::library, node, "library call");
    item.route = route;
    for (const Value* result : node.results) add_slot(item, result);
    Expr cut = 1;
    ir::for_each_operand(node.args, [&](const Value* operand) {
      if (!operand->type.is_tensor()) return;
      const Value* root = view_root(graph_, operand);
      force(root, "a library call reads it");
      if (root != operand && !can_read(graph_, route, view_of(graph_, operand, root), cut))
        force(operand, "a library call reads it in this order");
      reach(operand).items.insert(item.id);
      reach(root).items.insert(item.id);
    });
  }

  // --- loops

  void add_loops(const Node& node, const Computation& def) {
    static constexpr Item::Kind kKinds[] = {Item::Kind::map, Item::Kind::reduce, Item::Kind::scan,
                                            Item::Kind::scatter};
    Item& item = new_item(kKinds[static_cast<int>(def.kind)], node, "not pointwise");
    for (const Value* result : node.results) add_slot(item, result);
    if (packs(def) || sums_places_in_packs(graph_, node)) force_operands(node);
    bool repeats = def.kind == Kind::reduce && def.full_sizes.empty();
    Reach from;
    from.items = {item.id};
    from.looped = true;
    from.repeated = repeats;
    from.multiplied = repeats && loop::multiplies(def.combiner);
    from.windows_over = def.windows_over;
    from.scattered = def.kind == Kind::scatter;
    propagate(node, from);
  }

  /// What lies side by side in memory is packed by reading it.
  void force_operands(const Node& node) {
    ir::for_each_operand(node.args, [&](const Value* operand) {
      if (operand->type.is_tensor())
        force(view_root(graph_, operand), "a product reads several elements at once");
    });
  }

  Reach& reach(const Value* value) { return reach_[value]; }

  void propagate(const Node& node, const Reach& from) {
    Expr elements = node.results[0]->type.numel();
    const bool is_map = graph_.computations.of(&node).kind == Kind::map;
    ir::for_each_operand(node.args, [&](const Value* operand) {
      if (!operand->type.is_tensor()) return;
      Reach& to = reach(operand);
      to.items.insert(from.items.begin(), from.items.end());
      to.looped |= from.looped;
      to.repeated |= from.repeated;
      to.multiplied |= from.multiplied && operand != from.windows_over;
      to.broadcast |= from.broadcast ||
                      (is_map && !node.op->is_view() && operand->type.numel() != elements) ||
                      ops::def_of(node).repeats;
      to.depth = std::max(to.depth, from.depth + 1);
      to.scattered |=
          from.scattered && (!is_map || node.op->is_view()) && as_many(elements, *operand);
      const int read = is_map ? most_read(graph_, node, operand) : 1;
      const bool is_many = read > tuning_.inlining.operands;
      add_places(node, is_many ? read : 1, from, to, tuning_.inlining.places);
    });
  }

  void visit_map(const Node& node, const Value* result) {
    if (result->uses.empty() && forced_.at(result) == nullptr) return;
    std::string reason = why_materialize(node, result);
    if (reason.empty()) {
      // A copy: the table grows, and moves, as operands are entered.
      propagate(node, Reach(reach(result)));
      return;
    }
    Item& item = new_item(Item::Kind::map, node, std::move(reason));
    item.result = result->index;
    add_slot(item, result);
    Reach from;
    from.items = {item.id};
    propagate(node, from);
  }

  std::string why_materialize(const Node& node, const Value* result) {
    if (graph_.leaves_as.at(result) != nullptr) return "";
    if (const char* reason = forced_.at(result)) return reason;
    const Reach& to = reach(result);
    if (to.depth >= tuning_.inlining.depth) return "the chain of inlined operations is long";
    if (node.op->is_view() && graph_.computations.of(&node).kind == Kind::map && !to.repeated)
      return "";
    Weight weight = weigh(graph_, node);
    if (weight.asked > tuning_.inlining.operands) return "it joins many values";
    if (weight.operands > 0 && to.count() > tuning_.inlining.places)
      return "it would be computed for many places";
    bool dear = weight.transcendental || (weight.divides && result->type.numel() != Expr(1));
    if (to.broadcast && dear) return "it is read at many places";
    bool costly = weight.transcendental || weight.full_operands > 1 ||
                  weight.read > tuning_.inlining.operands;
    // The scatter's result is alive beside what its kernel reads: of an embedding's gradient the
    // largest of a step, at its end. What it writes to begin with takes longer than this.
    if (to.scattered && weight.full_operands > 1) return "it holds less than what it is made from";
    if (to.multiplied && std::max(weight.operands, weight.read) > 1)
      return "a product reads it many times";
    if (to.multiplied && is_stored_for_product(graph_, node)) return "a product reads it rounded";
    if (quantizes(node) && (to.repeated || is_made_of_own_sum(node)))
      return "it is smaller than what it is made from";
    // Only a kernel of points stores the cases of a block at once (map_cases.cc).
    if (to.looped && weight.read > tuning_.inlining.operands) return "it reads many elements";
    if (to.repeated && !node.op->is_view())
      return costly ? "a window or product reads it many times" : "";
    if (to.items.size() > 1 && costly && !is_stored_rounded(graph_, result, to))
      return "several kernels or stages read it";
    if (picks_few(graph_, node)) return "it picks few elements, perhaps of rows that are at hand";
    if (to.items.size() > 1 && narrows(graph_, routes_, node))
      return "it is smaller than what it is made from";
    return "";
  }

  /// Of a sum, element by element, that nothing else reads: the sum then needs no memory.
  bool is_made_of_own_sum(const Node& node) {
    const Expr elements = node.results[0]->type.numel();
    std::vector<const Node*> rest{&node};
    while (!rest.empty()) {
      const Node& each = *rest.back();
      rest.pop_back();
      bool has_own_sum = false;
      ir::for_each_operand(each.args, [&](const Value* operand) {
        const Node* from = operand->node;
        if (from == nullptr || operand->uses.size() != 1 || operand->type.numel() != elements)
          return;
        if (routes_.of(*from) || from->op->mutates()) return;
        const Kind kind = graph_.computations.of(from).kind;
        has_own_sum |= kind == Kind::reduce;
        if (kind == Kind::map) rest.push_back(from);
      });
      if (has_own_sum) return true;
    }
    return false;
  }

  KernelGraph& graph_;
  const Tuning& tuning_;
  Routes routes_;
  bool gives_memory_ = false;  // a result is no view of an input
  DenseMap<Value, char> is_output_;
  DenseMap<Value, char> wanted_;
  DenseMap<Value, const char*> forced_;
  DenseMap<Value, Reach> reach_;
};

}  // namespace

void materialize(KernelGraph& graph) { Materializer(graph).run(); }

}  // namespace tandem::schedule
