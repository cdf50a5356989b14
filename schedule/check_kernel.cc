// Problem: a kernel that breaks a rule is compiled to something, far from who made it. Approach:
// they are verified at each step (verify.cc). Sizes become arguments at the end only, so a copy is
// given those that it uses.
#include "schedule/check_kernel.h"

#include <algorithm>

#include "loop/stage.h"

namespace tandem::schedule {
using sym::Expr;

std::vector<Expr> size_symbols(const loop::Kernel& kernel) {
  std::vector<Expr> symbols;
  std::vector<Expr> axes;
  const auto add_axes = [&](const std::vector<loop::Axis>& list) {
    for (const loop::Axis& axis : list) {
      axes.push_back(axis.index);
      sym::collect_symbols(axis.extent, symbols);
    }
  };
  add_axes(kernel.outer);
  for (const loop::Stage& stage : kernel.stages) {
    add_axes(stage.axes);
    add_axes(stage.reduce_axes);
  }
  for (const loop::Buffer& buffer : kernel.buffers) sym::collect_symbols(buffer.elements, symbols);
  for (Expr index : loop::index_expressions(kernel)) sym::collect_symbols(index, symbols);
  // A place from data has a bound, whether or not a check still asks for it.
  for (size_t i = 0; i < symbols.size(); ++i)
    if (kernel.scalars->indirect(symbols[i]) != nullptr)
      sym::collect_symbols(sym::extent_of(symbols[i]), symbols);
  std::erase_if(symbols, [&](Expr symbol) {
    const bool is_axis = std::find(axes.begin(), axes.end(), symbol) != axes.end();
    return is_axis || kernel.scalars->indirect(symbol) != nullptr;
  });
  return symbols;
}

std::vector<std::string> problems_of(const loop::Kernel& kernel) {
  loop::Kernel copy = kernel;
  copy.sizes = size_symbols(kernel);
  return loop::verify(copy);
}

}  // namespace tandem::schedule
