// Text of a kernel graph: items, each with its slots and its definition as loops, then groups, each
// with what it needs and its kernel, then the order. Kernels are canonical and stand with the
// symbols behind their sizes, so that equal ones look equal wherever they stand.
#include "schedule/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/line_cursor.h"
#include "ir/text.h"
#include "schedule/definition.h"

namespace tandem::schedule {
namespace {

class Printer {
 public:
  explicit Printer(const KernelGraph& graph)
      : graph_(graph), names_(ir::value_names(*graph.graph)) {}

  std::string run() {
    out_ = fmt::format("kernels @{} {{\n", graph_.graph->name());
    for (const std::unique_ptr<Item>& item : graph_.items) print(*item);
    for (const ir::Output& output : graph_.graph->outputs())
      if (output.value != nullptr) print_leaving(output.value);
    for (size_t i = 0; i < graph_.groups.size(); ++i) print(i, graph_.groups[i]);
    print_order();
    return out_ + "}\n";
  }

 private:
  std::string name_of(const ir::Value* value) const { return "%" + names_.at(value); }

  void print(const Item& item) {
    out_ += fmt::format("item {} {} of %{} {}\n", item.id, schedule::name_of(item.kind),
                        names_.at(item.node->results[item.result]), quoted(item.reason));
    for (const Slot& slot : item.slots) print(slot);
    if (item.kind == Item::Kind::library)
      out_ += fmt::format("  route {}\n", static_cast<int>(item.route));
    if (item.partial_of != nullptr) out_ += fmt::format("  combines {}\n", item.partial_of->id);
    if (item.partial_rows != sym::Expr(0))
      out_ += fmt::format("  partial_rows {}\n", sym::to_string(item.partial_rows));
    if (item.channels_last) out_ += "  channels_last\n";
    if (item.computation.is_defined()) print_computation(item);
  }

  void print_computation(const Item& item) {
    const Computation& of = item.computation;
    if (item.kind != Item::Kind::map) {
      out_ += fmt::format("  combiner {}\n", loop::name_of(of.combiner));
      if (!of.reduce_sizes.empty())
        out_ += fmt::format("  reduces {}\n", ir::to_string(of.reduce_sizes));
      if (!of.full_sizes.empty()) out_ += fmt::format("  of {}\n", ir::to_string(of.full_sizes));
      if (!of.reduced_dims.empty()) out_ += fmt::format("  dims {}\n", listed(of.reduced_dims));
    }
    if (item.kind == Item::Kind::scatter)
      out_ += fmt::format("  scatters {}{}\n", of.scatter_dim, of.accumulate ? " adding" : "");
    const DefinitionText text = definition_of(graph_, item);
    if (!text.values.empty()) out_ += fmt::format("  values {}\n", list(text.values));
    print(text.kernel, text.sizes);
  }

  void print(const Slot& slot) {
    out_ += fmt::format("  slot {} {}{}", slot.value == nullptr ? "-" : name_of(slot.value),
                        tandem::name_of(slot.dtype), ir::to_string(slot.sizes));
    if (slot.strides != ir::contiguous_strides(slot.sizes))
      out_ += fmt::format(" strides {}", ir::to_string(slot.strides));
    if (slot.is_stored) out_ += " stored";
    if (slot.in_place_of != nullptr) out_ += " in_place_of " + name_of(slot.in_place_of);
    out_ += "\n";
  }

  void print_leaving(const ir::Value* value) {
    if (const ir::Value* other = graph_.leaves_as.at(value))
      out_ += fmt::format("leaves {} as {}\n", name_of(value), name_of(other));
  }

  void print(size_t number, const Group& group) {
    out_ += fmt::format("group {} {}", number, schedule::name_of(group.kind));
    if (!group.space.outer.empty() || group.space.reduces)
      out_ += fmt::format(" over {}", ir::to_string(group.space.outer));
    if (group.space.reduces) out_ += fmt::format(" x {}", ir::to_string(group.space.inner));
    out_ += group.space.whole ? "\n" : " apart\n";
    for (const Member& member : group.members)
      out_ += fmt::format("  member {} {} stage {}\n", member.item->id,
                          schedule::name_of(member.extent), member.stage);
    print(group.needs);
    if (group.follows)
      out_ += fmt::format("  follows {} lines {}\n", group.follows->call, group.follows->lines);
    if (group.footprint != nullptr)
      out_ += fmt::format("  footprint {} reads {}\n", group.footprint->id, group.footprint_reads);
    if (group.kernel.scalars != nullptr) print_kernel(group);
  }

  void print(const Needs& needs) {
    std::vector<const ir::Value*> reads(needs.reads.begin(), needs.reads.end());
    std::ranges::sort(reads, {}, [](const ir::Value* value) { return value->id; });
    if (!reads.empty()) out_ += fmt::format("  reads {}\n", list(reads));
    if (!needs.groups.empty()) out_ += fmt::format("  after {}\n", listed(needs.groups));
    if (needs.can_fail) out_ += "  can_fail\n";
  }

  void print_kernel(const Group& group) {
    std::string held;
    for (size_t i = 0; i < group.buffer_values.size(); ++i)
      held += (i == 0 ? "" : ", ") + held_by(group, i);
    if (!held.empty()) out_ += fmt::format("  holds {}\n", held);
    const KernelText text = canonical_of(group.kernel);
    print(text.kernel, text.sizes);
  }

  /// A value, a slot without one as item.slot, or - for scratch.
  std::string held_by(const Group& group, size_t buffer) const {
    if (group.buffer_values[buffer] != nullptr) return name_of(group.buffer_values[buffer]);
    const Home& home = group.buffer_homes[buffer];
    return home.item == nullptr ? "-" : fmt::format("{}.{}", home.item->id, home.slot);
  }

  void print(const loop::Kernel& kernel, const std::vector<sym::Expr>& sizes) {
    if (!sizes.empty()) out_ += "  sizes " + listed(sizes) + "\n";
    out_ += loop::to_string(kernel);
  }

  void print_order() {
    std::string order;
    for (const std::vector<size_t>& together : graph_.order)
      order += (order.empty() ? "" : " | ") + listed(together);
    if (!order.empty()) out_ += fmt::format("order {}\n", order);
  }

  std::string list(const std::vector<const ir::Value*>& values) const {
    std::string text;
    for (const ir::Value* value : values) text += (text.empty() ? "" : ", ") + name_of(value);
    return text;
  }

  static std::string text_of(sym::Expr e) { return sym::to_string(e); }
  template <class T>
  static std::string text_of(T number) {
    return std::to_string(number);
  }
  template <class List>
  static std::string listed(const List& items) {
    std::string text;
    for (const auto& item : items) text += (text.empty() ? "" : ", ") + text_of(item);
    return text;
  }

  const KernelGraph& graph_;
  DenseMap<ir::Value, std::string> names_;
  std::string out_;
};

}  // namespace

std::string to_string(const KernelGraph& graph) { return Printer(graph).run(); }

}  // namespace tandem::schedule
