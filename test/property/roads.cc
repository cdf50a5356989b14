// The reference is each operator by itself: all values are results, so that each is stored; nothing
// is fused, mapped or handed to the library; the interpreter computes it. Then the steps come back
// one after the other, in their order, without the library's calls and with them, for this machine
// and for one whose caches are small, so that what pays for large tensors is done to small ones.
// Roads that lead to the same kernels are gone once.
#include "test/property/roads.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>
#include <stdexcept>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "loop/small_floats.h"
#include "loop/text.h"
#include "ops/opdef.h"
#include "schedule/kernel_graph.h"
#include "test/fuzz/random.h"
#include "test/property/annotated.h"

namespace tandem::property {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;

struct Road {
  std::string name;
  std::string disabled;
  bool fuses = true;
  bool calls_library = true;
  bool has_small_caches = false;
  bool takes_other_mappings = false;  // than the first that fits, wherever there is one
  enum class Gpu : uint8_t { no, large_blocks, small_blocks } gpu = Gpu::no;  // interpreted only
};

// --- the steps

/// Whether a program can be made without it.
bool is_optional(std::string_view step) {
  const FlagOverride disabled(Flag::disable, std::string(step));
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @f(%x: f32[2]) {\n  %0 = aten.neg(%x)\n  return %0\n}\n", ops::op_table());
  try {
    schedule::schedule(*module->graphs()[0], {});
    return true;
  } catch (const UserError&) {
    return false;
  }
}

struct Step {
  std::string name;
  bool is_optional = false;
};

const std::vector<Step>& steps() {
  static const std::vector<Step> kSteps = [] {
    std::vector<Step> all;
    for (const std::string_view name : schedule::step_names())
      all.push_back({std::string(name), is_optional(name)});
    return all;
  }();
  return kSteps;
}

/// The first `count` steps as they are, all others left out where they may be.
Road road_to(size_t count) {
  Road road;
  road.fuses = false;
  for (size_t i = 0; i < steps().size(); ++i) {
    const Step& step = steps()[i];
    if (i < count && step.name == "form_groups") road.fuses = true;
    if (i >= count && step.is_optional)
      road.disabled += (road.disabled.empty() ? "" : ",") + step.name;
  }
  road.name = count == 0 ? "before the first step" : "up to " + steps()[count - 1].name;
  return road;
}

std::vector<Road> all_roads() {
  std::vector<Road> roads;
  for (const bool small : {false, true})
    for (const bool library : {false, true})
      for (size_t i = 0; i <= steps().size(); ++i) {
        if (i > 0 && !steps()[i - 1].is_optional && steps()[i - 1].name != "form_groups") continue;
        roads.push_back(road_to(i));
        roads.back().calls_library = library;
        roads.back().has_small_caches = small;
        if (library) roads.back().name += ", with the library";
        if (small) roads.back().name += ", small caches";
      }
  Road other = road_to(steps().size());
  other.name += ", other mappings";
  other.takes_other_mappings = true;
  roads.push_back(other);
  for (const Road::Gpu gpu : {Road::Gpu::large_blocks, Road::Gpu::small_blocks}) {
    roads.push_back(road_to(steps().size()));
    roads.back().gpu = gpu;
    roads.back().name = gpu == Road::Gpu::large_blocks ? "on a GPU" : "on a GPU of small blocks";
  }
  return roads;
}

/// One whose blocks are small, so that small tensors take several, and whose shared memory does not
/// hold much of a row.
Target gpu_target(Road::Gpu kind) {
  Target target = driver::target_named("sm_90");
  if (kind == Road::Gpu::large_blocks) return target;
  target.gpu.warp = 4;
  target.gpu.multiprocessors = 2;
  target.gpu.shared_bytes = 2 << 10;
  Tuning::Blocks& blocks = target.tuning.blocks;
  blocks.threads = 8;
  blocks.points = 2;
  blocks.short_sum = 3;
  blocks.tile = 4;
  blocks.product_depth = 2;
  blocks.chain_rows = 4;
  blocks.chain_lanes = 2;
  return target;
}

/// Each kernel by another of its mappings: which one follows from what is asked, so that many are
/// taken in many graphs.
size_t other_mapping(const std::vector<schedule::Candidate>& candidates,
                     const std::vector<int64_t>& elements) {
  const int64_t sum = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  return 1 + static_cast<size_t>(sum) % (candidates.size() - 1);
}

Target target_of(const Road& road) {
  if (road.gpu != Road::Gpu::no) return gpu_target(road.gpu);
  Target target = driver::target_of({});
  if (!road.has_small_caches) return target;
  target.cores = 1;
  target.l1_bytes = 2 << 10;
  target.l2_bytes = 4 << 10;
  target.l3_bytes = 32 << 10;
  target.tuning.loops.past_caches = 0;
  target.tuning.loops.far = 0;
  return target;
}

// --- numbers

int64_t value_of(sym::Expr size, const Annotated& notes, size_t run) {
  const auto known = [&](const sym::Node* symbol) -> std::optional<int64_t> {
    const auto at = notes.symbols.find(symbol->name);
    return at == notes.symbols.end() ? std::nullopt : std::optional<int64_t>(at->second[run]);
  };
  const std::optional<int64_t> value = sym::evaluate(size, known);
  if (!value) throw UserError("a size that no comment gives");
  return *value;
}

void set_element(const Array& array, int64_t at, double value) {
  switch (array.dtype()) {
    case DType::f32: array.data<float>()[at] = static_cast<float>(value); return;
    case DType::bf16:
      array.data<uint16_t>()[at] = loop::f32_to_bf16(static_cast<float>(value));
      return;
    case DType::i64: array.data<int64_t>()[at] = static_cast<int64_t>(value); return;
    case DType::boolean: array.data<uint8_t>()[at] = value != 0; return;
    default: throw UserError("a type that no random graph has");
  }
}

Array array_for(const ir::Value& input, const Annotated& notes, size_t run) {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (const sym::Expr& size : input.type.sizes) sizes.push_back(value_of(size, notes, run));
  for (const sym::Expr& stride : input.type.strides)
    strides.push_back(value_of(stride, notes, run));
  const Array array = Array::empty(input.type.dtype, sizes);
  const auto numbers = notes.data.find(input.name);
  if (numbers == notes.data.end()) throw UserError("an input that no comment gives numbers");
  const Numbers& n = numbers->second;
  fuzz::Random random(run * 1000 + std::strtoull(input.name.c_str() + 1, nullptr, 10));
  for (int64_t i = 0; i < array.numel(); ++i)
    set_element(
        array, i,
        n.step * static_cast<double>(n.low + static_cast<int64_t>(random.below(
                                                 static_cast<size_t>(n.high - n.low + 1)))));
  return strides.empty() ? array : array.as_strided(sizes, strides);
}

struct Outcome {
  std::vector<Array> results;
  std::map<std::string, Array> inputs;  // as they are afterwards
};
using Runs = std::vector<Outcome>;

Runs run_all(driver::Executable& executable, const ir::Graph& graph, const Annotated& notes) {
  Runs runs;
  for (size_t run = 0; run < (notes.symbols.empty() ? 1 : 2); ++run) {
    std::vector<Argument> arguments;
    Outcome outcome;
    for (const ir::Value* input : graph.inputs()) {
      const Array array = array_for(*input, notes, run);
      arguments.emplace_back(array);
      outcome.inputs.emplace(input->name, array);
    }
    for (const Result& result : executable.run(arguments))
      outcome.results.push_back(std::get<Array>(result).contiguous());
    runs.push_back(std::move(outcome));
  }
  return runs;
}

double number(const Array& array, int64_t at) {
  switch (array.dtype()) {
    case DType::f32: return static_cast<double>(array.data<float>()[at]);
    case DType::bf16: return static_cast<double>(loop::bf16_to_f32(array.data<uint16_t>()[at]));
    case DType::i64: return static_cast<double>(array.data<int64_t>()[at]);
    default: return array.data<uint8_t>()[at];
  }
}

/// Within the bound, which is mostly 0: then all bits are equal. Which NaN is handed on is not
/// specified.
void expect_near(const Array& expected, const Array& actual, double error,
                 const std::string& what) {
  const Array a = expected.contiguous();
  const Array b = actual.contiguous();
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.sizes(), b.sizes()))
    throw std::logic_error(what + ": " + a.describe() + " and " + b.describe());
  const int64_t bytes = size_of(a.dtype());
  for (int64_t at = 0; at < a.numel(); ++at) {
    const char* left = static_cast<const char*>(a.raw()) + at * bytes;
    const char* right = static_cast<const char*>(b.raw()) + at * bytes;
    if (std::memcmp(left, right, static_cast<size_t>(bytes)) == 0) continue;
    const double x = number(a, at);
    const double y = number(b, at);
    if ((std::isnan(x) && std::isnan(y)) || (error > 0 && std::abs(x - y) <= error)) continue;
    throw std::logic_error(
        fmt::format("{}: element {}: {} and {}, bound {}", what, at, x, y, error));
  }
}

// --- running

struct Prepared {
  std::unique_ptr<ir::Module> module;
  ir::Graph* graph = nullptr;
  schedule::Scheduled scheduled;
};

/// Up to kernels, on a road.
Prepared prepared(const std::string& text, const Annotated& notes, const Road& road) {
  const FlagOverride disabled(Flag::disable, road.disabled);
  const FlagOverride fusion(Flag::fusion, road.fuses ? "1" : "0");
  const FlagOverride library(Flag::library, road.calls_library ? "1" : "0");
  Prepared made;
  made.module = ir::parse_module(text, ops::op_table());
  if (made.module->graphs().empty()) throw UserError("no graph");
  made.graph = made.module->graphs()[0].get();
  driver::Options options;
  if (notes.has_gradients) options.gradients = passes::Gradients::ones;
  driver::GraphCtx ctx;
  driver::run_passes(*made.graph, options, ctx);
  made.scheduled = schedule::schedule(
      *made.graph, target_of(road),
      road.takes_other_mappings ? schedule::Chooser(other_mapping) : schedule::Chooser());
  made.scheduled.notes.clear();  // reasons, which do not run
  return made;
}

driver::Executable interpreted(const Prepared& made) {
  return {schedule::Scheduled(made.scheduled), driver::InLoopInterpreter()};
}

driver::Executable compiled(const Prepared& made, int level, bool parallel) {
  codegen::CompileOptions code;
  code.threads = 1;
  code.level = level;
  code.cache_dir = flag_cache_dir();
  driver::Built built;
  built.image.kernels =
      codegen::compile_objects(made.scheduled.kernels, driver::target_of({}), code);
  built.image.program = made.scheduled.program;
  constexpr int64_t kLong = 1'000'000;  // worth a team
  for (abi::Instruction& instruction : built.image.program.instructions)
    if (abi::Launch* launch = std::get_if<abi::Launch>(&instruction); parallel && launch != nullptr)
      launch->work = {{abi::SizeInstruction::Op::constant, kLong}};
  return driver::Executable(std::move(built));
}

// --- what kernels have

void count_stage(const loop::Stage& stage, std::set<std::string>& seen) {
  if (stage.kind == loop::StageKind::footprint) seen.insert("footprint");
  if (stage.kind == loop::StageKind::gather) seen.insert("gathering");
  if (stage.barrier) seen.insert("barrier");
  for (const loop::Axis& axis : stage.reduce_axes)
    if (axis.kind == loop::AxisKind::thread) seen.insert("fold over threads");
  for (const loop::Reduction& reduction : stage.reductions) {
    if (reduction.scan) seen.insert("scan");
    if (reduction.combiner == loop::Combiner::dot) seen.insert("product");
  }
  for (const loop::Store& store : stage.body)
    if (store.accumulate) seen.insert("adding store");
  for (const std::vector<loop::Axis>& axes : {stage.axes, stage.reduce_axes})
    for (const loop::Axis& axis : axes) {
      if (axis.kind != loop::AxisKind::serial && axis.kind != loop::AxisKind::task &&
          axis.kind != loop::AxisKind::vector)
        seen.insert("unrolled axis");
      if (axis.kind != loop::AxisKind::vector) continue;
      const std::optional<int64_t> extent = axis.extent.constant();
      seen.insert(!extent || *extent % axis.lanes != 0 ? "lanes with a tail" : "whole lanes");
    }
}

void count_kernel(const loop::Kernel& kernel, std::set<std::string>& seen) {
  size_t products = 0;
  for (const loop::Stage& stage : kernel.stages) {
    count_stage(stage, seen);
    products += std::ranges::any_of(stage.reductions, [](const loop::Reduction& each) {
      return each.combiner == loop::Combiner::dot;
    });
  }
  if (products > 1) seen.insert("chain");
  if (kernel.stages.size() > 1) seen.insert("several stages");
  if (!kernel.sizes.empty()) seen.insert("size known at a call");
  if (!kernel.errors.empty()) seen.insert("check");
  if (kernel.threads > 0) seen.insert("threads");
  for (const loop::Buffer& buffer : kernel.buffers) {
    if (buffer.access == loop::Access::scratch) seen.insert("scratch");
    if (buffer.space == loop::Space::shared) seen.insert("shared scratch");
    if (buffer.space == loop::Space::registers) seen.insert("registers");
    if (buffer.access == loop::Access::read_write) seen.insert("read and written buffer");
  }
}

void count_features(const schedule::Scheduled& scheduled, std::set<std::string>& seen) {
  for (const loop::Kernel& kernel : scheduled.kernels) count_kernel(kernel, seen);
  for (const abi::Instruction& instruction : scheduled.program.instructions) {
    if (std::holds_alternative<abi::LibraryCall>(instruction)) seen.insert("library call");
    const abi::Launch* launch = std::get_if<abi::Launch>(&instruction);
    if (launch == nullptr) continue;
    if (launch->label.find(", ") != std::string::npos) seen.insert("fused");
    if (launch->beside) seen.insert("side by side");
    if (launch->follows) seen.insert("along a call");
  }
}

// --- one graph

class Traveller {
 public:
  Traveller(const std::string& text, Counts& counts, bool each_level)
      : text_(text), notes_(annotated(text)), counts_(counts), each_level_(each_level) {}

  void run() {
    set_reference();
    for (const Road& road : all_roads()) go(road);
    for (const std::string& feature : notes_.features) ++counts_["graph: " + feature];
    for (const std::string& feature : seen_) ++counts_["kernel: " + feature];
    ++counts_["graphs"];
  }

 private:
  void set_reference() {
    Road road = road_to(0);
    road.calls_library = false;
    std::vector<std::string> outputs = notes_.values;
    if (notes_.has_gradients) {
      std::erase(outputs, notes_.outputs[0]);
      outputs.insert(outputs.begin(), notes_.outputs[0]);
    }
    const Prepared made = prepared(with_outputs(text_, outputs), notes_, road);
    driver::Executable executable = notes_.is_large ? compiled(made, 2, false) : interpreted(made);
    Runs runs = run_all(executable, *made.graph, notes_);
    for (Outcome& outcome : runs) {
      std::vector<Array> chosen;
      for (const std::string& name : notes_.outputs)
        chosen.push_back(
            outcome
                .results[static_cast<size_t>(std::ranges::find(outputs, name) - outputs.begin())]);
      for (size_t i = outputs.size(); i < outcome.results.size(); ++i)
        chosen.push_back(outcome.results[i]);  // gradients
      outcome.results = std::move(chosen);
    }
    reference_ = std::move(runs);
  }

  void go(const Road& road) {
    if (road.gpu != Road::Gpu::no && notes_.is_large) return;
    const Prepared made = prepared(text_, notes_, road);
    if (!known_.insert(schedule::report(made.scheduled)).second) return;
    ++counts_["roads"];
    count_features(made.scheduled, seen_);
    if (!notes_.is_large) {
      driver::Executable slow = interpreted(made);
      compare(run_all(slow, *made.graph, notes_), road.name + ", interpreted");
    }
    if (road.gpu != Road::Gpu::no) return;
    driver::Executable fast = compiled(made, 2, false);
    compare(run_all(fast, *made.graph, notes_), road.name + ", compiled");
    if (!road.disabled.empty() || notes_.is_large) return;
    if (each_level_) {
      driver::Executable plain = compiled(made, 0, false);
      compare(run_all(plain, *made.graph, notes_), road.name + ", level 0");
    }
    driver::Executable wide = compiled(made, 2, true);
    compare(run_all(wide, *made.graph, notes_), road.name + ", in parallel");
  }

  void compare(const Runs& runs, const std::string& road) const {
    for (size_t i = 0; i < runs.size(); ++i) {
      const std::string where = fmt::format("{}, run {}", road, i);
      const std::vector<Array>& expected = reference_[i].results;
      if (expected.size() != runs[i].results.size()) throw std::logic_error("other results");
      for (size_t k = 0; k < expected.size(); ++k) {
        const bool is_gradient = k >= notes_.outputs.size();
        const double error = is_gradient ? 0 : notes_.errors.at(notes_.outputs[k]);
        expect_near(expected[k], runs[i].results[k], error,
                    fmt::format("{}: {}", where,
                                is_gradient ? fmt::format("gradient {}", k - notes_.outputs.size())
                                            : "%" + notes_.outputs[k]));
      }
      for (const auto& [name, array] : runs[i].inputs)
        expect_near(reference_[i].inputs.at(name), array, 0, where + ": input " + name);
    }
  }

  std::string text_;
  Annotated notes_;
  Counts& counts_;
  bool each_level_ = false;
  Runs reference_;
  std::set<std::string> known_;  // reports
  std::set<std::string> seen_;
};

}  // namespace

void run_roads(const std::string& text, Counts& counts, bool each_level) {
  const FlagOverride verify(Flag::verify, "1");  // kernels obey their rules after each step
  Traveller(text, counts, each_level).run();
}

const std::vector<std::string>& all_kernel_features() {
  static const std::vector<std::string> kFeatures = {"fused",
                                                     "chain",
                                                     "gathering",
                                                     "footprint",
                                                     "product",
                                                     "scan",
                                                     "adding store",
                                                     "several stages",
                                                     "scratch",
                                                     "read and written buffer",
                                                     "size known at a call",
                                                     "lanes with a tail",
                                                     "whole lanes",
                                                     "unrolled axis",
                                                     "library call",
                                                     "side by side",
                                                     "along a call",
                                                     "threads",
                                                     "shared scratch",
                                                     "registers",
                                                     "barrier",
                                                     "fold over threads",
                                                     "check"};
  return kFeatures;
}

}  // namespace tandem::property
