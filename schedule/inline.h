// Computations over values that have a place: what has none is written where it is read.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "schedule/computation.h"

namespace tandem::schedule {

class Inliner {
 public:
  using HasPlace = std::function<bool(const ir::Value*)>;
  /// Writes into the pool `to`.
  Inliner(loop::ScalarPool& to, Computations& computations, HasPlace has_place)
      : pool_(to), computations_(computations), has_place_(std::move(has_place)) {}

  /// The same computation over values that have a place; of a map with several results one.
  Computation inlined(const Computation& of, size_t result);
  /// Element of a tensor in its compute type (16-bit floats widened). With a mask: 0 where it is
  /// false, and the index may be anything there.
  loop::Val element(const ir::Value* value, const ops::Index& at, loop::Val mask = nullptr);

 private:
  using Key = std::vector<uint64_t>;
  static Key key_of(const ir::Value* value, const ops::Index& at, loop::Val mask);
  std::vector<loop::Val> written(std::span<const loop::Val> roots, const sym::Substitution& at,
                                 loop::Val mask);
  loop::Val producer(const ir::Value* value, const ops::Index& at, loop::Val mask);
  loop::Val read(const ir::Value* value, const ops::Index& at, loop::Val own, loop::Val outer);

  loop::ScalarPool& pool_;
  Computations& computations_;
  HasPlace has_place_;
  std::map<Key, loop::Val> known_;
};

/// Substitution of axes; a dimension of one element may have no symbol.
void bind_axes(sym::Substitution& map, const ops::Index& axes, const ops::Index& at);

/// All that one item computes: results, or inputs of its combiner and what is made of them, or
/// places and values of a scatter. Of partial results that it combines nothing.
std::vector<loop::Val> roots_of(const Computation& computation, size_t result);

/// Values at other places, which read nothing and do not fail where the mask is false.
std::vector<loop::Val> masked(loop::ScalarPool& pool, std::span<const loop::Val> roots,
                              const sym::Substitution& at, loop::Val mask);

}  // namespace tandem::schedule
