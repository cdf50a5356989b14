// Frozen weights of a compiled graph, as sets of constants that its calls name.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/graph_function.h"

namespace tandem::python {

namespace nb = nanobind;

/// What a call runs with. Never changes, so a call computes with what was compared.
struct Constants {
  std::shared_ptr<runtime::ConstantSet> set;
};

/// One set for each group of tensors that calls bring (modules of one class share a graph), made
/// when the group is new or was written to since. It goes with the first of its tensors that
/// nobody holds any more. Every member wants Python's lock.
class [[gnu::visibility("hidden")]] FrozenSets {
 public:
  /// The set used longest ago goes when there are more.
  static constexpr size_t kMostSets = 256;

  /// `names`: of the constants, in the order of find's tensors. `version`: the descriptor of
  /// Tensor._version. `is_checked`: every call compares a checksum of the elements as well.
  FrozenSets(nb::object function, std::vector<std::string> names, nb::object version,
             bool is_checked);
  FrozenSets(const FrozenSets&) = delete;
  FrozenSets& operator=(const FrozenSets&) = delete;
  ~FrozenSets();

  /// The set for these tensors as they are now.
  Constants find(nb::tuple tensors);
  /// How often a set was made, how many there are, and their bytes beyond the tensors' own.
  nb::dict counts() const;

 private:
  struct Set;
  std::shared_ptr<Set> known(nb::tuple tensors) const;
  bool is_unchanged(const std::shared_ptr<Set>& set, nb::tuple tensors) const;
  std::shared_ptr<Set> bind(nb::tuple tensors);
  void keep(const std::shared_ptr<Set>& set, nb::tuple tensors);
  void release(Set& set);
  void drop_least_recent();
  int64_t version_of(nb::handle tensor) const;

  nb::object held_function_;
  driver::GraphFunction& function_;
  std::vector<std::string> names_;
  nb::object version_;
  bool is_checked_;
  std::vector<std::shared_ptr<Set>> sets_;
  int64_t clock_ = 0;  // of uses
  int64_t bindings_ = 0;
};

}  // namespace tandem::python
