// Joint programs run whole, and cut into a forward and a backward that run one after the other.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "driver/compiler.h"
#include "ir/graph.h"
#include "runtime/executor.h"

namespace tandem::test {

/// The same program each time.
using Program = std::function<std::unique_ptr<ir::Module>()>;

void run(ir::Graph& graph, std::initializer_list<std::string_view> passes, driver::GraphCtx& ctx);
/// The passes before choose.
void make_joint(ir::Graph& graph, driver::GraphCtx& ctx);
/// "0.5" by time, "0.5 flops".
driver::GraphCtx context_of(std::string_view partition);

struct Arguments {
  std::vector<runtime::Argument> forward;
  std::vector<runtime::Argument> tangents;
};

struct Outcome {
  std::vector<runtime::Result> results;   // outputs, then gradients
  std::vector<runtime::Argument> inputs;  // after write-backs
};

/// Gives the arguments that it drew. `passes` run behind make_joint.
Outcome run_joint(const Program& program, Arguments& arguments,
                  std::initializer_list<std::string_view> passes = {});
Outcome run_apart(const Program& program, std::string_view partition, const Arguments& arguments);

void expect_equal(const std::vector<runtime::Result>& a, const std::vector<runtime::Result>& b);

}  // namespace tandem::test
