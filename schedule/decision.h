// What was decided between neighbours, taken or declined, each with its reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "schedule/cost.h"

namespace tandem::schedule {

/// A result, or the reason why there is none.
template <class T>
class OrReason {
 public:
  OrReason(T value) : value_(std::move(value)) {}               // NOLINT: returned as either
  OrReason(const char* reason) : reason_(reason) {}             // NOLINT: the same
  OrReason(std::string reason) : reason_(std::move(reason)) {}  // NOLINT: the same
  explicit operator bool() const { return value_.has_value(); }
  const T* operator->() const { return &*value_; }
  const T& operator*() const { return *value_; }
  const std::string& reason() const { return reason_; }

 private:
  std::optional<T> value_;
  std::string reason_;
};

/// What a candidate and what it replaces cost.
struct Comparison {
  Cost apart;
  Cost together;
};

/// Whether an item joins a group that holds or reads what the item reads.
struct JoinDecision {
  uint32_t item = 0;   // id
  uint32_t group = 0;  // as form_groups numbers them
  bool taken = false;
  std::string reason;  // why not
  Comparison cost;     // with the group's loops as they are, where the item does not fit into them
};

/// Whether the library computes a node.
struct RouteDecision {
  const ir::Node* node = nullptr;
  bool taken = false;
  std::string reason;                // why, or why not
  std::optional<Comparison> cost{};  // of a product: apart by the library, together as loops
};

/// Whether a strategy maps a kernel.
struct MapDecision {
  std::string_view strategy;
  std::string reason;  // why not; empty where it does
};

/// Whether an item's kernel is computed at the rows or windows of another's, or that at its.
struct ComputeAtDecision {
  uint32_t first = 0;  // id of the first item of the one that begins
  uint32_t item = 0;   // of the other one
  bool taken = false;
  std::string reason{};              // why not
  std::optional<Comparison> cost{};  // once both ways are possible
};

/// Whether a kernel runs along the lines of the library call before it.
struct FollowDecision {
  uint32_t call = 0;  // groups, as they are run
  uint32_t group = 0;
  std::string reason;  // why not; empty where it does
};

struct Decisions {
  std::vector<RouteDecision> routes;
  std::vector<JoinDecision> joins;
  std::vector<ComputeAtDecision> compute_at;
  std::vector<FollowDecision> follows;
  std::vector<uint32_t> group_of;              // by item id
  std::vector<std::vector<MapDecision>> maps;  // by group, once it is mapped
};

}  // namespace tandem::schedule
