// Problem: a kernel that breaks a rule is compiled to something, far from who made it. Approach:
// each step that makes or changes kernels has them verified. Sizes become arguments at the end
// only, so a copy is given those that it uses.
#include "schedule/check_kernel.h"

#include <algorithm>

#include "base/check.h"
#include "base/flags.h"
#include "loop/stage.h"

namespace tandem::schedule {
namespace {

using sym::Expr;

bool is_asked_for() {
#ifdef NDEBUG
  return flag_verify();
#else
  return true;
#endif
}

}  // namespace

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
  std::erase_if(symbols, [&](Expr symbol) {
    const bool is_axis = std::find(axes.begin(), axes.end(), symbol) != axes.end();
    return is_axis || kernel.scalars->indirect(symbol) != nullptr;
  });
  return symbols;
}

void check_kernel(const loop::Kernel& kernel, std::string_view step) {
  if (!is_asked_for()) return;
  loop::Kernel copy = kernel;
  copy.sizes = size_symbols(kernel);
  const std::vector<std::string> problems = loop::verify(copy);
  TD_CHECK(problems.empty()) << "after " << step << ": " << problems[0] << "\n"
                             << loop::to_string(copy);
}

}  // namespace tandem::schedule
