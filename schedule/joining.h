// Groups while some of them become one: who needs whom, what only members read, and where a kernel
// of several groups may run.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// The groups as they were before any was joined; only `place` and `joined` change.
struct Joining {
  explicit Joining(KernelGraph& kernels);

  KernelGraph& graph;
  std::vector<Needs> needs;                      // by group
  std::vector<std::vector<uint32_t>> needed_by;  // the same from the other side
  std::unordered_map<const ir::Value*, std::vector<uint32_t>> readers;  // only looked up
  std::map<const Item*, uint32_t> number_of;                            // its group; only looked up
  std::multimap<uint32_t, const ir::Value*> writes;  // inputs, by the group that writes over them
  std::vector<uint32_t> place;                       // by group: where it runs now
  std::vector<char> joined;
};

using GroupNumbers = std::span<const uint32_t>;

/// A kernel of its own values: nothing written over an input, no partial sums, no failing, and
/// some elements.
bool may_join(const Joining& joining, uint32_t group);
bool is_made_by(const Joining& joining, GroupNumbers members, const ir::Value* value);
/// Whether only members read a value that one of them makes.
bool is_inside(const Joining& joining, GroupNumbers members, const ir::Value* value);
/// A member's place to which all others can move: what they need is before it, what needs them
/// behind it, and nobody in between writes over an input that one of them reads.
std::optional<uint32_t> place_of(const Joining& joining, GroupNumbers members);
/// The members are one group now, at the place of one of them.
void put(Joining& joining, GroupNumbers members, uint32_t place, Group group);
/// The same of a sum and its reader, whose kernel `joined` has both: the sum's item comes first.
void put_sum_into(Joining& joining, uint32_t reader, uint32_t sum, uint32_t place, Group joined);

}  // namespace tandem::schedule
