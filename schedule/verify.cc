// What must hold of a kernel graph at every step, each rule where a step that breaks it would be
// found: in debug builds, goldens and with TANDEM_VERIFY, and of every text that is read.
#include <fmt/format.h>

#include <algorithm>

#include "ir/text.h"
#include "ir/writes.h"
#include "schedule/check_groups.h"
#include "schedule/check_kernel.h"
#include "schedule/inline.h"
#include "schedule/reads.h"
#include "schedule/strided.h"
#include "schedule/text.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using Of = Problem::Of;

class Verifier {
 public:
  explicit Verifier(const KernelGraph& graph)
      : graph_(graph), names_(ir::value_names(*graph.graph)) {}

  Problems run() {
    for (size_t i = 0; i < graph_.items.size(); ++i) check(*graph_.items[i], i);
    check_results();
    if (!graph_.groups.empty()) check_members();
    for (size_t i = 0; i < graph_.groups.size(); ++i) check(graph_.groups[i], i);
    if (problems_.empty()) problems_ = problems_of_groups(graph_);
    if (!graph_.order.empty()) check_order();
    return std::move(problems_);
  }

 private:
  template <class... Args>
  bool expect(bool holds, Of of, size_t number, fmt::format_string<Args...> text, Args&&... args) {
    if (!holds) problems_.push_back({of, number, fmt::format(text, std::forward<Args>(args)...)});
    return holds;
  }

  void check(const Item& item, size_t number) {
    expect(item.id == number, Of::item, number, "its number is {}", item.id);
    if (!expect(!item.slots.empty(), Of::item, number, "it has no slot")) return;
    for (const Slot& slot : item.slots) check(slot, item);
    const bool has_partials = item.partial_of == nullptr || item.partial_of->id < item.id;
    expect(has_partials, Of::item, number, "it combines what comes later");
    if (item.kind == Item::Kind::library) return;
    expect(graph_.groups.empty() || item.computation.is_defined(), Of::item, number,
           "it is in a group, and nothing says what it computes");
    check_dims(item);
    const std::vector<loop::Val> roots = roots_of(item.computation, item.result);
    for (loop::Val part : loop::reachable(roots))
      if (part->opcode == loop::Opcode::element) check(*part, item);
  }

  /// Steps index shapes with these.
  void check_dims(const Item& item) {
    const Computation& of = item.computation;
    if (!of.is_defined()) return;
    const int64_t rank = static_cast<int64_t>(of.full_sizes.empty() ? item.slots[0].sizes.size()
                                                                    : of.full_sizes.size());
    for (int64_t dim : of.reduced_dims)
      expect(dim >= 0 && dim < rank, Of::item, item.id, "it reduces dimension {} of {}", dim, rank);
    const auto is_negative = [](sym::Expr size) { return size.constant().value_or(0) < 0; };
    const bool is_there = std::ranges::none_of(of.reduce_sizes, is_negative) &&
                          std::ranges::none_of(of.full_sizes, is_negative) &&
                          std::ranges::none_of(item.slots[0].sizes, is_negative);
    expect(is_there, Of::item, item.id, "it has a negative size");
    expect(item.kind != Item::Kind::scan || !of.reduced_dims.empty(), Of::item, item.id,
           "it scans no dimension");
    const int64_t places = static_cast<int64_t>(item.slots[0].sizes.size());
    expect(item.kind != Item::Kind::scatter || (of.scatter_dim >= 0 && of.scatter_dim < places),
           Of::item, item.id, "it scatters along dimension {} of {}", of.scatter_dim, places);
  }

  void check(const Slot& slot, const Item& item) {
    const bool is_laid_out = slot.strides == ir::contiguous_strides(slot.sizes) ||
                             slot.strides == channels_last_strides(slot.sizes);
    expect(is_laid_out, Of::item, item.id, "its strides are neither contiguous nor channels-last");
    if (slot.value == nullptr) {
      expect(slot.in_place_of == nullptr, Of::item, item.id,
             "partial results have their own place");
      return;
    }
    expect(graph_.homes.at(slot.value).item == &item, Of::item, item.id, "%{} is not at home in it",
           names_.at(slot.value));
    expect(slot.sizes == slot.value->type.sizes && slot.dtype == slot.value->type.dtype, Of::item,
           item.id, "the slot of %{} has another type", names_.at(slot.value));
    if (slot.in_place_of != nullptr) check_in_place(slot, item);
  }

  void check_in_place(const Slot& slot, const Item& item) {
    const Value* input = slot.in_place_of;
    const bool is_alike = input->type.sizes == slot.sizes && input->type.strides.empty() &&
                          input->type.dtype == slot.dtype &&
                          slot.strides == ir::contiguous_strides(slot.sizes);
    expect(input->node == nullptr && ir::is_written_back_to(slot.value, input) && is_alike &&
               slot.is_stored &&
               (item.kind == Item::Kind::map || starts_as(graph_.computations, item, input)),
           Of::item, item.id, "%{} is in place of no input that it is written back to",
           names_.at(slot.value));
  }

  /// A number is an input, or an earlier item reads it from memory (tandem::read_scalar).
  bool is_known_before(const Item& item, const Value* number) const {
    const Item* maker = graph_.homes.at(number).item;
    return number->node == nullptr || (maker != nullptr && maker->id < item.id);
  }

  void check(const loop::Scalar& element, const Item& item) {
    const Value* value = graph_.computations.value(element.slot);
    const std::string& name = names_.at(value);
    expect(element.dtype == value->type.dtype, Of::item, item.id, "it reads %{} as {}", name,
           tandem::name_of(element.dtype));
    if (!value->type.is_tensor()) {
      expect(element.at.empty(), Of::item, item.id, "it reads number %{} with {} indices", name,
             element.at.size());
      expect(is_known_before(item, value), Of::item, item.id,
             "it reads number %{}, which no earlier item makes", name);
      return;
    }
    const Home home = graph_.homes.at(value);
    expect(graph_.is_materialized(value), Of::item, item.id, "it reads %{}, which has no place",
           name);
    expect(home.item == nullptr || home.item->id < item.id, Of::item, item.id,
           "it reads %{}, which comes later", name);
    expect(element.at.size() == value->type.sizes.size(), Of::item, item.id,
           "it reads %{} with {} indices", name, element.at.size());
  }

  /// A result of a signature that is a view of an input: the caller makes it (`shown_input`).
  bool shows_input(const Value* value) const {
    if (graph_.graph->role().kind != ir::GraphRole::Kind::signature) return false;
    while (value->node != nullptr && value->node->op->is_view())
      value = std::get<Value*>(value->node->args[0]);
    return value->node == nullptr;
  }

  /// What leaves the graph, and what is written back, has a place.
  void check_results() {
    const auto expect_place = [&](const Value* value) {
      const Value* other = graph_.leaves_as.at(value);
      const bool is_there =
          graph_.is_materialized(value) ||
          (other != nullptr && graph_.is_materialized(other) &&
           other->type.numel() == value->type.numel() && other->type.dtype == value->type.dtype);
      expect(is_there || graph_.items.empty(), Of::graph, 0, "%{} leaves without a place",
             names_.at(value));
    };
    for (const ir::Output& output : graph_.graph->outputs())
      if (output.value != nullptr && !shows_input(output.value)) expect_place(output.value);
    for (const ir::Node* node = graph_.graph->first(); node != nullptr; node = node->next)
      if (node->op->mutates()) expect_place(std::get<Value*>(node->args[1]));
  }

  /// Each item in one group.
  void check_members() {
    std::vector<int> count(graph_.items.size(), 0);
    for (const Group& group : graph_.groups)
      for (const Member& member : group.members) ++count[member.item->id];
    for (size_t i = 0; i < count.size(); ++i)
      expect(count[i] == 1, Of::item, i, "it is in {} groups", count[i]);
  }

  void check(const Group& group, size_t number) {
    expect(!group.members.empty(), Of::group, number, "it is empty");
    const bool is_last = group.needs.groups.empty() || *group.needs.groups.rbegin() < number;
    expect(is_last, Of::group, number, "it needs a later one");
    for (const Value* value : group.needs.reads)
      expect(graph_.is_materialized(value), Of::group, number, "it reads %{}, which has no place",
             names_.at(value));
    const auto is_negative = [](sym::Expr size) { return size.constant().value_or(0) < 0; };
    expect(std::ranges::none_of(group.space.outer, is_negative) &&
               std::ranges::none_of(group.space.inner, is_negative),
           Of::group, number, "its space has a negative size");
    const bool has_rows = group.kernel.scalars != nullptr && !group.kernel.outer.empty();
    expect(group.kind != Group::Kind::chain || has_rows, Of::group, number,
           "a chain has a kernel with rows");
    if (group.members.empty() || group.kernel.scalars == nullptr) return;
    if (group.follows) check_follower(group, number);
    const size_t held = group.buffer_values.size();
    const bool is_said = held <= group.kernel.buffers.size() && group.buffer_homes.size() == held;
    if (!expect(is_said, Of::group, number, "its kernel has {} buffers, {} are said",
                group.kernel.buffers.size(), held))
      return;
    for (size_t i = 0; i < group.kernel.buffers.size(); ++i) check_buffer(group, number, i);
    for (const std::string& problem : problems_of(group.kernel))
      expect(false, Of::group, number, "{}\n{}", problem, loop::to_string(group.kernel));
  }

  void check_buffer(const Group& group, size_t number, size_t buffer) {
    const bool is_scratch = group.kernel.buffers[buffer].access == loop::Access::scratch;
    const bool is_said = buffer < group.buffer_values.size();  // mapping adds scratch of its own
    const Value* value = is_said ? group.buffer_values[buffer] : nullptr;
    const Home home = is_said ? group.buffer_homes[buffer] : Home{};
    expect(is_scratch == (value == nullptr && home.item == nullptr), Of::group, number,
           "buffer {} holds what it must not", buffer);
    if (value == nullptr || value->node == nullptr) return;
    const Home place = graph_.homes.at(value);
    const bool is_stored = place.item != nullptr && (place.item->kind == Item::Kind::library ||
                                                     place.item->slots[place.slot].is_stored);
    expect(is_stored, Of::group, number, "it has %{} in memory, where nobody stores it",
           names_.at(value));
  }

  void check_order() {
    std::vector<int> count(graph_.groups.size(), 0);
    for (const std::vector<size_t>& together : graph_.order)
      for (size_t group : together) ++count[group];
    for (size_t i = 0; i < count.size(); ++i)
      expect(count[i] == 1, Of::group, i, "it runs {} times", count[i]);
    for (const std::vector<size_t>& together : graph_.order)
      for (size_t at = 0; at < together.size(); ++at) {
        const std::optional<Followed>& follows = graph_.groups[together[at]].follows;
        expect(!follows || (at == 1 && together.size() == 2 && together[0] == follows->call),
               Of::group, together[at], "it does not run along its call");
      }
  }

  void check_follower(const Group& group, size_t number) {
    const Followed& follows = *group.follows;
    if (!expect(follows.call + 1 == number && graph_.groups[follows.call].is_library(), Of::group,
                number, "it follows no library call right before it"))
      return;
    const bool is_mapped =
        !group.kernel.outer.empty() && group.kernel.outer[0].kind == loop::AxisKind::task;
    sym::Expr tasks = 1;
    for (const loop::Axis& axis : group.kernel.outer) tasks = tasks * axis.extent;
    expect(!is_mapped || tasks == sym::Expr(follows.lines), Of::group, number,
           "it has {} tasks for {} lines", sym::to_string(tasks), follows.lines);
  }

  const KernelGraph& graph_;
  DenseMap<Value, std::string> names_;
  Problems problems_;
};

}  // namespace

Problems verify(const KernelGraph& graph) { return Verifier(graph).run(); }

}  // namespace tandem::schedule
