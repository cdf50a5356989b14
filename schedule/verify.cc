// What must hold of a kernel graph at every step, each rule where a step that breaks it would be
// found: in debug builds, goldens and with TANDEM_VERIFY, and of every text that is read.
#include <fmt/format.h>

#include <algorithm>

#include "ir/text.h"
#include "schedule/check_kernel.h"
#include "schedule/inline.h"
#include "schedule/reads.h"
#include "schedule/text.h"

namespace tandem::schedule {
namespace {

using ir::Value;

class Verifier {
 public:
  explicit Verifier(const KernelGraph& graph)
      : graph_(graph), names_(ir::value_names(*graph.graph)) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < graph_.items.size(); ++i) check(*graph_.items[i], i);
    if (!graph_.groups.empty()) check_members();
    for (size_t i = 0; i < graph_.groups.size(); ++i) check(graph_.groups[i], i);
    if (!graph_.order.empty()) check_order();
    return std::move(problems_);
  }

 private:
  template <class... Args>
  void expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    if (!holds) problems_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void check(const Item& item, size_t number) {
    expect(item.id == number, "item {} has the number {}", number, item.id);
    expect(!item.slots.empty(), "item {} has no slot", number);
    for (const Slot& slot : item.slots) check(slot, item);
    if (item.kind == Item::Kind::library || item.slots.empty()) return;
    check_dims(item);
    const std::vector<loop::Val> roots = roots_of(item.computation, item.result);
    for (loop::Val element : elements_of(graph_.computations, roots)) check(*element, item);
    const bool has_partials = item.partial_of != nullptr && item.partial_of->id < item.id;
    expect(item.partial_of == nullptr || has_partials, "item {} combines what comes later", number);
  }

  /// Steps index shapes with these.
  void check_dims(const Item& item) {
    const Computation& of = item.computation;
    if (!of.is_defined()) return;
    const int64_t rank = static_cast<int64_t>(of.full_sizes.empty() ? item.slots[0].sizes.size()
                                                                    : of.full_sizes.size());
    for (int64_t dim : of.reduced_dims)
      expect(dim >= 0 && dim < rank, "item {} reduces dimension {} of {}", item.id, dim, rank);
    expect(item.kind != Item::Kind::scan || !of.reduced_dims.empty(), "item {} scans no dimension",
           item.id);
    const int64_t places = static_cast<int64_t>(item.slots[0].sizes.size());
    expect(item.kind != Item::Kind::scatter || (of.scatter_dim >= 0 && of.scatter_dim < places),
           "item {} scatters along dimension {} of {}", item.id, of.scatter_dim, places);
  }

  void check(const Slot& slot, const Item& item) {
    expect(slot.strides.size() == slot.sizes.size(), "item {}: a stride for each size", item.id);
    if (slot.value == nullptr) return;
    expect(graph_.homes.at(slot.value).item == &item, "%{} is not at home in item {}",
           names_.at(slot.value), item.id);
    expect(slot.sizes == slot.value->type.sizes && slot.dtype == slot.value->type.dtype,
           "the slot of %{} has another type", names_.at(slot.value));
    const Value* input = slot.in_place_of;
    expect(input == nullptr || input->node == nullptr, "%{} is in place of no input",
           names_.at(slot.value));
  }

  void check(const loop::Scalar& element, const Item& item) {
    const Value* value = graph_.computations.value(element.slot);
    expect(graph_.is_realized(value), "item {} reads %{}, which has no place", item.id,
           names_.at(value));
    expect(element.at.size() == value->type.sizes.size(), "item {} reads %{} with {} indices",
           item.id, names_.at(value), element.at.size());
  }

  /// Each item in one group, but the partial results of none are alone.
  void check_members() {
    std::vector<int> count(graph_.items.size(), 0);
    for (const Group& group : graph_.groups)
      for (const Member& member : group.members) ++count[member.item->id];
    for (size_t i = 0; i < count.size(); ++i)
      expect(count[i] == 1, "item {} is in {} groups", i, count[i]);
  }

  void check(const Group& group, size_t number) {
    expect(!group.members.empty(), "group {} is empty", number);
    const bool is_last = group.needs.groups.empty() || *group.needs.groups.rbegin() < number;
    expect(is_last, "group {} needs a later one", number);
    for (const Value* value : group.needs.reads)
      expect(graph_.is_realized(value), "group {} reads %{}, which has no place", number,
             names_.at(value));
    if (group.members.empty() || group.kernel.scalars == nullptr) return;
    const size_t held = group.buffer_values.size();
    const bool is_said = held <= group.kernel.buffers.size() && group.buffer_homes.size() == held;
    expect(is_said, "group {}: {} buffers, {} are said", number, group.kernel.buffers.size(), held);
    if (!is_said) return;
    for (size_t i = 0; i < group.kernel.buffers.size(); ++i) check_buffer(group, number, i);
    for (const std::string& problem : problems_of(group.kernel))
      problems_.push_back(
          fmt::format("group {}: {}\n{}", number, problem, loop::to_string(group.kernel)));
  }

  void check_buffer(const Group& group, size_t number, size_t buffer) {
    const bool is_scratch = group.kernel.buffers[buffer].access == loop::Access::scratch;
    const bool is_said = buffer < group.buffer_values.size();  // mapping adds scratch of its own
    const Value* value = is_said ? group.buffer_values[buffer] : nullptr;
    const Home home = is_said ? group.buffer_homes[buffer] : Home{};
    expect(is_scratch == (value == nullptr && home.item == nullptr),
           "group {}: buffer {} holds what it must not", number, buffer);
    if (value == nullptr || value->node == nullptr) return;
    const Home place = graph_.homes.at(value);
    const bool is_stored = place.item != nullptr && (place.item->kind == Item::Kind::library ||
                                                     place.item->slots[place.slot].is_stored);
    expect(is_stored, "group {} has %{} in memory, where nobody stores it", number,
           names_.at(value));
  }

  void check_order() {
    std::vector<int> count(graph_.groups.size(), 0);
    for (const std::vector<size_t>& together : graph_.order)
      for (size_t group : together) ++count[group];
    for (size_t i = 0; i < count.size(); ++i)
      expect(count[i] == 1, "group {} runs {} times", i, count[i]);
  }

  const KernelGraph& graph_;
  DenseMap<Value, std::string> names_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> verify(const KernelGraph& graph) { return Verifier(graph).run(); }

}  // namespace tandem::schedule
