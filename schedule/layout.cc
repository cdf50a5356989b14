// Which materialized values lie channels-last. The library computes convolutions channels-last and
// reorders what lies otherwise, at every call; kernels run along whatever dimension is dense, but
// one that meets two layouts walks one of them across memory. So every value has two layouts to
// choose from, and every item an order in which it walks (that of its results, or of what it
// reduces). Both are vertices of a flow network: a convolution's reorder is an edge to the
// channels-last side, a read in another order than the value lies an edge between the two, and what
// must stay contiguous is tied to the other side. Its minimum cut moves the fewest bytes.
//
// Contiguous stay: inputs and results of the graph (their signature says how they lie), what is
// written back, results of scans, scatters and products. What forward saves for backward may lie
// either way: backward is scheduled afterwards, with these inputs as they lie. What the library
// reads as a view without strides (an image flattened for a product) is copied for it. Between cuts
// of equal weight the one with the fewest values channels-last is taken, so graphs without
// convolutions are all contiguous.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/flow_network.h"
#include "ir/text.h"
#include "schedule/inline.h"
#include "schedule/reads.h"
#include "schedule/routes.h"
#include "schedule/steps.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

constexpr size_t kChannelsLast = 0;  // source
constexpr size_t kContiguous = 1;    // sink
constexpr size_t kFirst = 2;
constexpr int64_t kMust = int64_t{1} << 50;
constexpr int64_t kMaxBytes = int64_t{1} << 36;

bool is_one(Expr size) { return size == Expr(1); }

/// Sizes whose two layouts differ: several channels and several places.
bool has_two_layouts(const ir::Sizes& sizes) {
  if (sizes.size() < 3 || sizes.size() > 5 || is_one(sizes[1])) return false;
  return !std::all_of(sizes.begin() + 2, sizes.end(), is_one);
}

/// Roughly; a symbol counts as a middling number.
int64_t rough_bytes(const ir::Sizes& sizes, DType dtype, int64_t typical_size) {
  std::optional<int64_t> count =
      sym::evaluate(sym::product(sizes), [&](const sym::Node* symbol) -> std::optional<int64_t> {
        return std::clamp(typical_size, symbol->range.lo, symbol->range.hi);
      });
  return std::clamp<int64_t>(count.value_or(1), 1, kMaxBytes) * size_of(dtype);
}

size_t last_dim(const ir::Sizes& sizes) {
  size_t last = sizes.size() - 1;
  while (last > 0 && is_one(sizes[last])) --last;
  return last;
}

bool is_convolution(const Item& item) {
  return item.kind == Item::Kind::library &&
         (item.route == ops::RouteKind::convolution ||
          item.route == ops::RouteKind::convolution_backward_data ||
          item.route == ops::RouteKind::convolution_backward_weights);
}

/// A convolution of packed channels, computed by loops: integers are packed already, bf16 by the
/// kernel.
bool packs_channels(KernelGraph& graph, const Item& item) {
  if (item.slots[0].sizes.size() <= 2) return false;
  if (item.kind == Item::Kind::reduce && sums_places_in_packs(graph, *item.node)) return true;
  return std::ranges::any_of(loop::reachable(item.computation.inputs),
                             [](loop::Val part) { return part->opcode == loop::Opcode::pack; });
}

/// Makes each element of many of an image, whose channels lie side by side in what it makes.
bool transforms(const KernelGraph& graph, const Item& item) {
  if (item.kind != Item::Kind::map) return false;
  std::map<const Value*, int64_t> read;
  const std::array roots{item.computation.results[item.result].value};
  for (const loop::Val element : elements_of(graph.computations, roots))
    if (has_two_layouts(graph.computations.value(element->slot)->type.sizes))
      ++read[graph.computations.value(element->slot)];
  return std::ranges::any_of(read, [&](const auto& count) {
    return count.second > graph.target.tuning.inlining.operands;
  });
}

/// The points that an item walks: sizes, and the axes of that shape.
struct Walk {
  ir::Sizes sizes;
  ops::Index axes;
  ops::Index inner;  // axes of a sum of products or a window
};

/// A view that a library item reads and that has no strides when its root is channels-last.
struct Flattened {
  uint32_t item;
  const Value* shown;
  const Value* root;
};

/// 0 where there is one element.
ops::Index without_ones(ops::Index axes, const ir::Sizes& sizes) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (is_one(sizes[i])) axes[i] = 0;
  return axes;
}

Walk full_walk(const Item& item, const ops::Index& out, const ops::Index& r) {
  const Computation& def = item.computation;
  Walk walk{def.full_sizes, ops::Index(def.full_sizes.size()), {}};
  bool keeps = out.size() == def.full_sizes.size();
  size_t next_r = 0;
  size_t next_out = 0;
  for (size_t i = 0; i < walk.axes.size(); ++i) {
    const std::vector<int64_t>& dims = def.reduced_dims;
    bool reduced = next_r < dims.size() && dims[next_r] == static_cast<int64_t>(i);
    walk.axes[i] = reduced ? r[next_r++] : out[next_out];
    next_out += !reduced || keeps;
  }
  return walk;
}

Walk walk_of(const Item& item) {
  const Computation& def = item.computation;
  const ir::Sizes& sizes = item.slots[0].sizes;
  if (item.kind == Item::Kind::map)
    return {sizes, without_ones(def.results[item.result].axes, sizes), {}};
  Walk walk{sizes, without_ones(def.out, sizes), without_ones(def.reduce, def.reduce_sizes)};
  return def.full_sizes.empty() ? walk : full_walk(item, walk.axes, walk.inner);
}

/// What is computed at every step of the walk.
std::vector<loop::Val> walked_of(const Item& item) {
  if (item.kind != Item::Kind::map) return item.computation.inputs;
  return {item.computation.results[item.result].value};
}

/// The last axis of more than one point; 0 when there is none.
Expr innermost(const ops::Index& axes) {
  ops::Index::const_reverse_iterator it =
      std::find_if(axes.rbegin(), axes.rend(), [](Expr axis) { return axis != Expr(0); });
  return it == axes.rend() ? Expr(0) : *it;
}

/// The layout in which the value is walked along memory, where either is.
std::optional<size_t> side_walked(const Walk& walk, const Value* value, const ops::Index& index) {
  const Expr last = index[last_dim(value->type.sizes)];
  for (const ops::Index* axes : {&walk.axes, &walk.inner}) {
    const Expr inner = innermost(*axes);
    const bool along = inner != Expr(0) && sym::depends_on(last, inner);
    const bool across = inner != Expr(0) && sym::depends_on(index[1], inner);
    if (along || across) return along ? kContiguous : kChannelsLast;
  }
  return std::nullopt;
}

/// Channels lie side by side in it, as in rows of a product.
bool lies_by_channels(const Walk& walk, const ops::Index& index) {
  return !index.empty() && sym::depends_on(index.back(), walk.axes[1]);
}

/// A view of the root, as it would be if that were channels-last.
View channels_last(const Value* value, const Value* root) {
  return {value, root, channels_last_strides(root->type.sizes)};
}

std::string name_of(const Value& value) {
  return value.node == nullptr ? "%" + value.name : ir::to_string(*value.node);
}

/// The view nearest to the root that has no strides over it, where the operand has some over that
/// view; else the operand.
const Value* first_flat(KernelGraph& graph, const Value* operand, const Value* root) {
  const Value* found = operand;
  for (const Value* at = operand; at != root; at = std::get<Value*>(at->node->args[0]))
    if (!is_strided(graph, channels_last(at, root))) found = at;
  return found == operand || is_strided(graph, view_of(graph, operand, found)) ? found : operand;
}

/// A place for the view, in its own order.
std::unique_ptr<Item> copied(KernelGraph& graph, const Flattened& view) {
  std::unique_ptr<Item> copy = std::make_unique<Item>();
  copy->node = view.shown->node;
  copy->result = view.shown->index;
  Inliner inliner(graph.scalars, graph.computations,
                  [&](const Value* value) { return graph.is_materialized(value); });
  copy->computation = inliner.inlined(graph.computations.of(copy->node), copy->result);
  copy->reason = "a library call reads it in this order";
  const ir::Type& type = view.shown->type;
  copy->slots.push_back({view.shown, type.dtype, type.sizes, ir::contiguous_strides(type.sizes)});
  graph.homes[view.shown] = {copy.get(), 0};
  graph.note(*copy->node, "copied for the library: what it shows is channels-last");
  return copy;
}

/// What a convolution of packed channels would have channels-last, and its bytes: it reads several
/// channels at once, at each tap of its window, and its lanes are channels.
std::vector<std::pair<const Value*, int64_t>> packed_reads(const KernelGraph& graph,
                                                           const Item& item,
                                                           const Tuning::Layouts& tuning) {
  const auto bytes_of = [&](const ir::Sizes& sizes, DType dtype) {
    return rough_bytes(sizes, dtype, tuning.typical_size);
  };
  const Computation& sum = item.computation;
  ir::Sizes taps(sum.reduce_sizes.begin(), sum.reduce_sizes.end() - 1);
  if (sum.combiner == loop::Combiner::dot) taps.clear();  // of bf16: single places
  std::vector<std::pair<const Value*, int64_t>> reads;
  for (const Slot& slot : item.slots)
    reads.emplace_back(slot.value, bytes_of(slot.sizes, slot.dtype));
  for (loop::Val element : elements_of(graph.computations, item.computation.inputs)) {
    const Value* value = graph.computations.value(element->slot);
    const int64_t bytes = bytes_of(value->type.sizes, value->type.dtype);
    reads.emplace_back(value,
                       std::min(kMaxBytes, tuning.reorder * bytes * bytes_of(taps, DType::u8)));
  }
  return reads;
}

/// Vertices to be decided, and what it costs to decide two of them differently.
struct Question {
  struct Edge {
    size_t from, to;  // both ways
    int64_t bytes;
  };
  size_t vertices = kFirst;
  std::vector<Edge> edges;
};

/// By vertex: whether it is on the side of channels-last.
std::vector<char> answer_to(const Question& question) {
  FlowNetwork network(question.vertices);
  for (const Question::Edge& edge : question.edges) {
    if (edge.to != kChannelsLast && edge.from != kContiguous)
      network.connect(edge.from, edge.to, edge.bytes);
    if (edge.from != kChannelsLast && edge.to != kContiguous)
      network.connect(edge.to, edge.from, edge.bytes);
  }
  network.flow(kChannelsLast, kContiguous);
  return network.source_side(kChannelsLast);
}

class Layouts {
 public:
  explicit Layouts(KernelGraph& graph) : graph_(graph), tuning_(graph.target.tuning.layouts) {}

  void run() {
    add_values();
    pin_signature();
    for (const std::unique_ptr<Item>& item : graph_.items)
      item->kind == Item::Kind::library ? add_library(*item) : add_loops(*item);
    decide();
    explain();
    copy_flattened();
  }

 private:
  /// A read whose order may differ from the layout.
  struct Crossing {
    const Item* item;
    const Value* value;
    size_t walker, read;
  };

  int64_t bytes_of(const ir::Sizes& sizes, DType dtype) const {
    return rough_bytes(sizes, dtype, tuning_.typical_size);
  }

  size_t add_vertex() { return question_.vertices++; }
  void tie(size_t a, size_t b, int64_t bytes) { question_.edges.push_back({a, b, bytes}); }

  /// 0 for values with one layout.
  size_t vertex(const Value* value) const { return vertex_of_.at(value); }

  // --- values

  void add_values() {
    for (const Value* input : graph_.graph->inputs())
      if (input->type.is_tensor() && has_two_layouts(input->type.sizes)) add_input(input);
    for (const std::unique_ptr<Item>& item : graph_.items)
      for (const Slot& slot : item->slots)
        if (has_two_layouts(slot.sizes)) vertex_of_[slot.value] = add_vertex();
  }

  void add_input(const Value* input) {
    bool last = input->type.strides == channels_last_strides(input->type.sizes);
    vertex_of_[input] = add_vertex();
    tie(vertex(input), last ? kChannelsLast : kContiguous, kMust);
  }

  void pin(const Value* value, const char* reason) {
    if (vertex(value) == 0 || value->node == nullptr) return;
    tie(vertex(value), kContiguous, kMust);
    if (pinned_[value] == nullptr) pinned_[value] = reason;
  }

  void pin_signature() {
    for (const ir::Output& output : graph_.graph->outputs())
      if (output.value != nullptr && output.kind != ir::OutputKind::saved)
        pin(output.value, "it is a result of the graph");
    for (const ir::Node* node = graph_.graph->first(); node != nullptr; node = node->next)
      if (node->op->mutates())
        pin(std::get<Value*>(node->args[1]), "it is written back to an input");
  }

  // --- library calls

  void add_library(const Item& item) {
    std::vector<const Value*> operands;
    ir::for_each_operand(item.node->args, [&](const Value* v) { operands.push_back(v); });
    for (const Value* operand : operands) keep_strided(item, operand);
    switch (item.route) {
      case ops::RouteKind::matmul:
      case ops::RouteKind::grouped_rows:
      case ops::RouteKind::grouped_sums: return pin(item.slots[0].value, "a product writes it");
      case ops::RouteKind::convolution:
      case ops::RouteKind::convolution_backward_data:
        add_activation(operands[0]);
        return add_activation(item.slots[0].value);
      case ops::RouteKind::convolution_backward_weights:
        add_activation(operands[0]);
        add_activation(operands[1]);
        return pin(item.slots[0].value, "a gradient lies as its parameter");
      default:  // a sort, the host, a loop or branch
        for (const Slot& slot : item.slots) pin(slot.value, "the call writes it");
    }
  }

  void add_activation(const Value* value) {
    if (vertex(value) == 0 || !graph_.is_materialized(value)) return;
    tie(vertex(value), kChannelsLast,
        tuning_.reorder * bytes_of(value->type.sizes, value->type.dtype));
    ++convolutions_[value];
  }

  /// The library reads views by strides. One that has none when its root is channels-last (a
  /// flattened image) would be copied then, once for all its readers.
  void keep_strided(const Item& item, const Value* operand) {
    if (graph_.is_materialized(operand)) return;
    const Value* root = view_root(graph_, operand);
    if (vertex(root) == 0 || root->node == nullptr) return;
    if (is_strided(graph_, channels_last(operand, root))) return;
    const Value* flattened = first_flat(graph_, operand, root);
    flattened_.push_back({item.id, flattened, root});
    if (std::exchange(is_flattened_[flattened], 1) == 0)
      tie(vertex(root), kContiguous,
          tuning_.reorder * bytes_of(root->type.sizes, root->type.dtype));
  }

  /// Gives a place to the views that have no strides now, each before its first reader.
  void copy_flattened() {
    std::vector<std::unique_ptr<Item>> items;
    size_t next = 0;
    for (std::unique_ptr<Item>& item : graph_.items) {
      for (; next < flattened_.size() && flattened_[next].item == item->id; ++next)
        if (lost_strides(flattened_[next])) items.push_back(copied(graph_, flattened_[next]));
      items.push_back(std::move(item));
    }
    graph_.items = std::move(items);
    for (uint32_t i = 0; i < graph_.items.size(); ++i) graph_.items[i]->id = i;
  }

  bool lost_strides(const Flattened& view) const {
    return channels_last_[vertex(view.root)] && !graph_.is_materialized(view.shown);
  }

  // --- loops

  void add_loops(const Item& item) {
    bool plain = item.kind == Item::Kind::map || item.kind == Item::Kind::reduce;
    const bool is_matrix = ops::def_of(*item.node).multiplies == ops::ProductKind::matrix;
    for (const Slot& slot : item.slots)
      if (!plain || is_matrix)
        pin(slot.value, is_matrix ? "a product writes it" : "a scan or scatter writes it");
    if (!plain) return;
    if (packs_channels(graph_, item)) return add_packed(item);
    const Walk walk = walk_of(item);
    size_t walker = walker_of(item, walk);
    walker_[item.id] = walker;
    for (const Slot& slot : item.slots)
      if (vertex(slot.value) != 0)
        tie(walker, vertex(slot.value), bytes_of(slot.sizes, slot.dtype));
    for (loop::Val element : elements_of(graph_.computations, walked_of(item))) {
      const Value* value = graph_.computations.value(element->slot);
      if (vertex(value) != 0) add_read(item, walk, walker, value, element->at);
      if (walker > kContiguous && lies_by_channels(walk, element->at))
        add_fixed_read(walk, walker, value, bytes_of(value->type.sizes, value->type.dtype));
    }
  }

  /// A large value that lies as it does is best walked as it lies.
  void add_fixed_read(const Walk& walk, size_t walker, const Value* value, int64_t bytes) {
    const bool is_fixed = vertex(value) == 0 || pinned_.at(value) != nullptr;
    if (is_fixed && bytes >= bytes_of(walk.sizes, value->type.dtype))
      tie(walker, kChannelsLast, bytes);
  }

  void add_packed(const Item& item) {
    walker_[item.id] = kChannelsLast;
    for (const auto& [value, bytes] : packed_reads(graph_, item, tuning_))
      if (vertex(value) != 0) tie(vertex(value), kChannelsLast, bytes);
  }

  /// The order of the walk: that of the result, where it is all that is walked.
  size_t walker_of(const Item& item, const Walk& walk) {
    if (!has_two_layouts(walk.sizes)) return kContiguous;
    bool own = item.computation.full_sizes.empty() || item.kind == Item::Kind::map;
    return own ? vertex(item.slots[0].value) : add_vertex();
  }

  /// A read at the walk's own place prefers the walk's order. Any other is priced as if the walk
  /// went row by row.
  void add_read(const Item& item, const Walk& walk, size_t walker, const Value* value,
                const ops::Index& index) {
    size_t last = last_dim(value->type.sizes);
    int64_t bytes = bytes_of(value->type.sizes, value->type.dtype);
    if (item.kind == Item::Kind::map)  // a slice
      bytes = std::min(bytes, bytes_of(walk.sizes, value->type.dtype));
    bool same = walker != kContiguous && index.size() == walk.axes.size() &&
                last == last_dim(walk.sizes) && sym::depends_on(index[1], walk.axes[1]) &&
                sym::depends_on(index[last], walk.axes[last]);
    if (same) {
      tie(walker, vertex(value), bytes);
      crossings_.push_back({&item, value, walker, vertex(value)});
    } else {
      const std::optional<size_t> side = side_walked(walk, value, index);
      if (side) tie(vertex(value), *side, bytes);
    }
  }

  // --- decision

  void decide() {
    channels_last_ = answer_to(question_);
    for (const std::unique_ptr<Item>& item : graph_.items) {
      for (Slot& slot : item->slots)
        if (vertex(slot.value) != 0 && channels_last_[vertex(slot.value)])
          slot.strides = channels_last_strides(slot.sizes);
      std::map<uint32_t, size_t>::const_iterator walker = walker_.find(item->id);
      item->channels_last = walker != walker_.end() && channels_last_[walker->second];
    }
  }

  // --- reasons

  void explain() {
    for (const std::unique_ptr<Item>& item : graph_.items)
      for (const Slot& slot : item->slots)
        if (vertex(slot.value) != 0) explain(slot);
    for (const Value* input : graph_.graph->inputs())
      if (convolutions_.at(input) > 0 && !channels_last_[vertex(input)])
        graph_.notes.push_back({"%" + input->name, reordered(input)});
    for (const Crossing& crossing : crossings_)
      if (channels_last_[crossing.walker] != channels_last_[crossing.read])
        graph_.note(*crossing.item->node,
                    fmt::format("reads {} across its layout", name_of(*crossing.value)));
  }

  void explain(const Slot& slot) {
    if (slot.value->uses.empty()) return;
    int uses = convolutions_.at(slot.value);
    std::string result =
        slot.value->index == 0 ? "" : fmt::format("result {}: ", slot.value->index);
    if (channels_last_[vertex(slot.value)])
      graph_.note(
          *slot.value->node,
          result + (uses > 0 ? fmt::format("channels-last: {} library calls use it", uses)
                             : std::string("channels-last: what it is made from or for is")));
    else if (uses > 0)
      graph_.note(*slot.value->node, result + reordered(slot.value));
  }

  std::string reordered(const Value* value) const {
    const char* pinned = value->node == nullptr ? "it is an input" : pinned_.at(value);
    return fmt::format("contiguous, reordered by {} library calls: {}", convolutions_.at(value),
                       pinned != nullptr ? pinned : "its other readers move more");
  }

  KernelGraph& graph_;
  const Tuning::Layouts& tuning_;
  Question question_;
  std::vector<Crossing> crossings_;
  std::vector<Flattened> flattened_;  // in the order of items
  DenseMap<Value, char> is_flattened_;
  DenseMap<Value, size_t> vertex_of_;
  DenseMap<Value, int> convolutions_;    // library calls that use the value as an activation
  DenseMap<Value, const char*> pinned_;  // reasons
  std::map<uint32_t, size_t> walker_;    // by item id
  std::vector<char> channels_last_;      // by vertex
};

}  // namespace

void choose_layouts(KernelGraph& graph) {
  const bool any = std::ranges::any_of(graph.items, [&](const std::unique_ptr<Item>& item) {
    return is_convolution(*item) || packs_channels(graph, *item) || transforms(graph, *item);
  });
  if (any) Layouts(graph).run();
}

}  // namespace tandem::schedule
