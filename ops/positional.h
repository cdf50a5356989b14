// Integers and booleans that follow from their position alone: ramps, constants, and what is
// computed of nothing else, as the masks of transformers are.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "ops/opdef.h"

namespace tandem::ops {

/// What each element is, as a formula over its position.
class PositionalValues final : Lowering {
 public:
  struct Formula {
    Index axes;                 // of the value's dimensions
    loop::Val value = nullptr;  // in the value's type
  };

  /// Axes are made in `symbols`.
  explicit PositionalValues(sym::Pool& symbols) : pool_(symbols) {}
  /// Learns the results of a node whose operands were visited. Those of other nodes stay unknown:
  /// what reads inputs, draws random numbers, writes, or may fail at some position.
  void visit(const ir::Node& node);
  /// Null where a value does not follow from positions, or by no short formula.
  const Formula* of(const ir::Value* value) const;

 private:
  loop::ScalarPool& scalars() override { return pool_; }
  loop::Val load(const ir::Value* tensor, const Index& index, loop::Val mask) override;
  loop::Val scalar(const ir::Arg& arg, DType dtype) override;
  loop::Val launch_number(int64_t number) override;
  int32_t error(const std::string&) override { return 0; }

  bool follows(const ir::Node& node) const;
  loop::Val summed(const Definition& def, const Index& axes);
  Index axes_of(const ir::Sizes& sizes);
  void learn(const ir::Value* value, Formula formula);

  loop::ScalarPool pool_;
  std::map<uint32_t, Formula> known_;  // by a value's id
};

/// The number that every element is.
std::optional<int64_t> constant_of(const PositionalValues::Formula& formula);

/// start + step * i, i being the position along one dimension.
struct Ramp {
  int64_t dim = 0;
  sym::Expr start;
  int64_t step = 1;
};
std::optional<Ramp> ramp_of(const PositionalValues::Formula& formula);

}  // namespace tandem::ops
