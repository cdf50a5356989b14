// Text of kernel graphs: `tandem schedule --step NAME` reads it at every step, from whoever wrote
// it. Seeds are what the steps themselves print. A damaged text is refused, or all steps that
// follow take it, each leaves what its verifier takes and what reads back, and kernels whose
// addresses are known to be inside of their buffers run in the interpreter. What they compute is
// nobody's promise: the text may say something else than its tensor graph.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "base/diagnostic.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "loop/stage.h"
#include "ops/opdef.h"
#include "schedule/check_kernel.h"
#include "schedule/text.h"
#include "test/fuzz/engine.h"
#include "test/fuzz/kernel_text.h"
#include "test/fuzz/sample_graphs.h"
#include "test/property/graph.h"

namespace tandem::fuzz {
namespace {

using Texts = std::vector<std::string>;

/// The step that reads it, and whether caches are so small that what pays for large tensors is done
/// to small ones: the comment that an input begins with.
struct Heading {
  std::string step;
  bool is_small = false;
};

Heading heading_of(const std::string& input) {
  for (const std::string_view step : schedule::step_names())
    for (const bool is_small : {false, true})
      if (input.starts_with(fmt::format("; {}{}\n", step, is_small ? " small" : "")))
        return {std::string(step), is_small};
  throw UserError("the first line names no step");
}

Target target_of(const Heading& heading) {
  Target target = driver::target_of({});
  if (!heading.is_small) return target;
  target.cores = 1;
  target.l1_bytes = 1 << 10;
  target.l2_bytes = 4 << 10;
  target.l3_bytes = 32 << 10;
  return target;
}

// --- seeds

struct Seed {
  std::string graph;  // its text, of core operations
  bool is_small = false;
  Texts kernels;  // after each step, in their order
};

constexpr size_t kLongest = 12'000;  // letters of a seed: each step reads and prints it

/// Its text behind the passes, and the kernel graph of the first step; nothing where they refuse
/// it.
std::optional<Seed> begun(const std::string& text, bool is_small) try {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  driver::GraphCtx ctx;
  driver::run_passes(*module->graphs().at(0), {}, ctx);
  const std::string core = ir::to_string(*module->graphs()[0]);
  const std::unique_ptr<ir::Module> again = ir::parse_module(core, ops::op_table());
  const std::string first = schedule::after_step(*again->graphs()[0], target_of({"", is_small}),
                                                 schedule::step_names()[0]);
  return Seed{core, is_small, {first}};
} catch (const UserError&) {
  return std::nullopt;
}

/// Empty where it is long. That a step takes what the one before it printed is nobody's choice.
std::vector<Seed> seeds_of(const std::string& text, bool is_small) {
  std::optional<Seed> seed = begun(text, is_small);
  if (!seed) return {};
  const Target target = target_of({"", is_small});
  const std::vector<std::string_view> steps = schedule::step_names();
  for (size_t i = 1; i < steps.size(); ++i) {
    const std::unique_ptr<ir::Module> core = ir::parse_module(seed->graph, ops::op_table());
    seed->kernels.push_back(
        schedule::after_step(*core->graphs()[0], target, steps[i], seed->kernels.back()));
    if (seed->kernels.back().size() + seed->graph.size() > kLongest) return {};
  }
  return {*seed};
}

/// Every 40th sample of the operators, and graphs of each theme of test/property.
const Texts& graphs() {
  static const Texts kGraphs = [] {
    Texts all;
    for (size_t i = 0; i < sample_graphs().size(); i += 40) all.push_back(sample_graphs()[i]);
    for (size_t i = 0; i < 8 * property::theme_count(); ++i) {
      Random random(i);
      all.push_back(property::write_graph(random, i));
    }
    return all;
  }();
  return kGraphs;
}

/// Of one graph, made when it is asked for: all of them take longer than a short attack has.
const Seed& pick_seed(Random& random) {
  static std::vector<std::optional<std::vector<Seed>>> known(graphs().size());
  while (true) {
    const size_t number = random.below(known.size());
    std::optional<std::vector<Seed>>& seeds = known[number];
    if (!seeds) seeds = seeds_of(graphs()[number], number % 2 == 1);
    if (!seeds->empty()) return random.pick(*seeds);
  }
}

std::string make(Random& random) {
  const std::vector<std::string_view> steps = schedule::step_names();
  const Seed& seed = pick_seed(random);
  const Seed& other = random.one_in(2) ? seed : pick_seed(random);
  const size_t step = 1 + random.below(steps.size() - 1);
  // Mostly what the step reads; at times what another one reads.
  const size_t before = random.one_in(10) ? random.below(steps.size()) : step - 1;
  const std::string kernels =
      mutate_kernels(seed.kernels[before], {other.kernels[before], seed.kernels.back()}, random);
  return fmt::format("; {}{}\n{}\n{}", steps[step], seed.is_small ? " small" : "", seed.graph,
                     kernels);
}

// --- what was taken runs

using sym::Expr;

/// Sizes of a call: the smallest that the graph allows.
std::vector<int64_t> sizes_of(const loop::Kernel& kernel) {
  std::vector<int64_t> sizes;
  for (const Expr size : kernel.sizes)
    sizes.push_back(std::clamp<int64_t>(2, size.range().lo, size.range().hi));
  return sizes;
}

/// An expression with those sizes.
class AtSizes {
 public:
  AtSizes(const loop::Kernel& kernel, const std::vector<int64_t>& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) map_.emplace_back(kernel.sizes[i], Expr(sizes[i]));
  }
  sym::Range range(Expr e) const { return sym::substitute(e, map_).range(); }
  /// -1 where it is not known.
  int64_t number(Expr e) const { return sym::substitute(e, map_).constant().value_or(-1); }

 private:
  sym::Substitution map_;
};

constexpr double kMostPoints = 2e4;
constexpr int64_t kMostElements = 1 << 20;

/// Of the whole kernel; infinite where an extent has no bound.
double points_of(const loop::Kernel& kernel, const AtSizes& at) {
  const auto points = [&](const std::vector<loop::Axis>& axes) {
    double count = 1;
    for (const loop::Axis& axis : axes)
      count *= std::max(1.0, static_cast<double>(at.range(axis.extent).hi));
    return count;
  };
  double all = 1;
  for (const loop::Stage& stage : kernel.stages)
    all += points(stage.axes) * points(stage.reduce_axes);
  return all * points(kernel.outer);
}

/// Elements of the memory behind a buffer; -1 where that is not known.
int64_t elements_of(const schedule::KernelGraph& graph, const schedule::Group& group, size_t buffer,
                    const AtSizes& at) {
  const loop::Buffer& own = group.kernel.buffers[buffer];
  if (own.access == loop::Access::scratch) return at.number(own.elements);
  const ir::Value* value = group.buffer_values[buffer];
  const schedule::Home home = group.buffer_homes[buffer];
  const ir::Sizes& sizes = value != nullptr ? value->type.sizes : home.item->slots[home.slot].sizes;
  const ir::Sizes strides =
      value != nullptr ? graph.strides_of(value) : home.item->slots[home.slot].strides;
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t size = at.number(sizes[i]);
    const int64_t stride = at.number(strides[i]);
    if (size < 1 || stride < 0 || size > kMostElements || stride > kMostElements) return -1;
    last += (size - 1) * stride;
  }
  return last + 1;
}

/// Whether every address is in its buffer, as far as the ranges of axes say. A number out of data
/// may be any, so kernels with such places do not run.
bool stays_inside(const loop::Kernel& kernel, const std::vector<int64_t>& elements,
                  const AtSizes& at) {
  bool inside = true;
  const auto expect = [&](int32_t buffer, Expr index) {
    const sym::Range range = at.range(index);
    inside &= range.lo >= 0 && range.hi < elements[static_cast<size_t>(buffer)];
  };
  for (const loop::Stage& stage : kernel.stages) {
    for (const loop::Val value : loop::all_scalars_of(*kernel.scalars, stage))
      if (value->opcode == loop::Opcode::load) expect(value->slot, value->index);
    loop::for_each_store(stage,
                         [&](const loop::Store& store) { expect(store.buffer, store.index); });
    for (const Expr index : loop::index_expressions(kernel, stage))
      for (const Expr symbol : sym::free_symbols(index))
        inside &= kernel.scalars->indirect(symbol) == nullptr;
  }
  return inside;
}

void interpret(const schedule::KernelGraph& graph, const schedule::Group& group) {
  loop::Kernel kernel = group.kernel;
  kernel.sizes = schedule::size_symbols(kernel);
  const std::vector<int64_t> sizes = sizes_of(kernel);
  const AtSizes at(kernel, sizes);
  std::vector<int64_t> elements;
  for (size_t i = 0; i < kernel.buffers.size(); ++i)
    elements.push_back(elements_of(graph, group, i, at));
  const bool is_known = std::ranges::all_of(
      elements, [](int64_t count) { return count >= 0 && count <= kMostElements; });
  const int64_t tasks = at.number(kernel.tasks());
  if (!is_known || tasks < 0 || points_of(kernel, at) > kMostPoints ||
      !stays_inside(kernel, elements, at))
    return;
  std::vector<std::vector<char>> memory;
  std::vector<void*> buffers;
  for (size_t i = 0; i < elements.size(); ++i) {
    const size_t bytes =
        static_cast<size_t>(elements[i]) * static_cast<size_t>(size_of(kernel.buffers[i].dtype));
    buffers.push_back(memory.emplace_back(bytes, 0).data());
  }
  loop::interpret(kernel, buffers.data(), sizes.data(), 0, tasks);
}

void interpret_all(const ir::Graph& graph, const Target& target, const std::string& kernels) {
  schedule::KernelGraph read(graph, target);
  schedule::parse_kernel_graph(read, kernels);
  for (const schedule::Group& group : read.groups)
    if (!group.is_library() && group.kernel.scalars != nullptr) interpret(read, group);
}

/// All steps from `first` on. Only the first one meets a text that is not Tandem's own; but sizes
/// that leave 64 bits are seen where they are computed, in whichever step that is.
std::string through_steps(const ir::Graph& graph, const Target& target, const std::string& first,
                          std::string kernels) {
  const std::vector<std::string_view> steps = schedule::step_names();
  const auto begin = std::ranges::find(steps, first);
  for (auto step = begin; step != steps.end(); ++step) try {
      kernels = schedule::after_step(graph, target, *step, kernels);
    } catch (const UserError& error) {
      if (step == begin || std::string_view(error.what()).starts_with("[sym]")) throw;
      throw std::logic_error(
          fmt::format("{} refuses what was taken before: {}", *step, error.what()));
    }
  return kernels;
}

void run(const std::string& input) {
  const Heading heading = heading_of(input);
  const size_t kernels = input.find("\nkernels @");
  if (kernels == std::string::npos) throw UserError("there is no kernel graph");
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(input.substr(0, kernels), ops::op_table());
  if (module->graphs().empty()) throw UserError("there is no graph");
  const ir::Graph& graph = *module->graphs()[0];
  const Target target = target_of(heading);
  interpret_all(graph, target,
                through_steps(graph, target, heading.step, input.substr(kernels + 1)));
}

}  // namespace

std::vector<Engine> kernel_graph_engines() { return {{"kernels", make, run, 20}}; }

}  // namespace tandem::fuzz
