// The tandem command: each sub-command is a function here, or of driver/command/.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "driver/cache.h"
#include "driver/command/arguments.h"
#include "driver/command/quantize.h"
#include "driver/command/run.h"
#include "driver/compiler.h"
#include "driver/face.h"
#include "driver/model_file.h"
#include "driver/replay.h"
#include "driver/step_report.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::driver {
namespace {

using command::count_of;
using command::graphs_of;
using command::parts_of;
using command::programs_of;
using command::taken_target;
using command::taken_word;
using command::word_or;

constexpr const char* kUsage =
    "usage: tandem opt [--pass NAME]... [--budget B] [--solver S] [FILE]\n"
    "                                             passes on text IR, result on standard output; "
    "B: what\n"
    "                                             `choose` goes by, as of partition\n"
    "       tandem schedule [--freeze] [--core] [--why %A,%B] [--step STEP] [--target CPU] [FILE]\n"
    "                                             kernels and decisions of a graph; --core: of "
    "one\n"
    "                                             that went through the passes; --why: where "
    "these\n"
    "                                             values are computed, and why not by one kernel\n"
    "                                             (all: of every two that read one another);\n"
    "                                             --step: the kernel graph behind a step, from "
    "the\n"
    "                                             graph or from a kernel graph in the file\n"
    "       tandem objects [--target CPU] FILE [FOLDER]\n"
    "                                             object code of the kernels\n"
    "       tandem run [--grad] [--freeze] [--tune] [--repeat N] [--profile N] [--target CPU]\n"
    "                  [--weights FILE] [--data FILE]... [--batch N] [--save RESULTS] [FILE]\n"
    "                                             compiles and runs a graph, on tensors of files "
    "(.safetensors,\n"
    "                                             .npz, .npy: parameters by qualified name, data "
    "inputs by\n"
    "                                             name, cut into batches of N rows) or generated "
    "ones; lists\n"
    "                                             the N slowest instructions; RESULTS: of all "
    "batches\n"
    "       tandem calibrate [--weights FILE] [--data FILE]... [--recipe R] [--batch N] "
    "[--batches N]\n"
    "                        --statistics RANGES MODEL\n"
    "                                             runs the model of floats over batches, and "
    "writes the\n"
    "                                             range of each group of values as TOML, which "
    "may be\n"
    "                                             edited; R: x86_default, x86_reduced_range, "
    "x86_dynamic,\n"
    "                                             weight_only_int8, weight_only_int4, or a .toml "
    "file\n"
    "       tandem quantize [--weights FILE] [--recipe R] --statistics RANGES --output OUT.tir\n"
    "                       [--leave LAYER,LAYER] [--sensitivity | --sqnr-at-least DB] [--data "
    "FILE]...\n"
    "                       [--batch N] [--batches N] MODEL\n"
    "                                             writes the quantized model, OUT.tir, and its "
    "weights,\n"
    "                                             OUT.safetensors, for `tandem run`; ranks layers "
    "by the\n"
    "                                             noise that each alone adds on the first N (4) "
    "batches,\n"
    "                                             and leaves the worst in floats until DB holds\n"
    "       tandem signature [FILE]               which inputs are written and how, and what each "
    "thing\n"
    "                                             returned is: an input, a view, memory of its "
    "own\n"
    "       tandem export [--loss N | --joint] [FILE]\n"
    "                                             lifted out of its caller: what is written "
    "becomes "
    "a\n"
    "                                             result; with gradients of result N, a loss, or "
    "as a\n"
    "                                             function of inputs and tangents\n"
    "       tandem tune [FILE]                    times mappings on this machine and keeps the "
    "choice\n"
    "       tandem partition [--budget B] [--solver S] [--cost C] [--html PAGE]\n"
    "                        [--target CPU]\n"
    "                        [--store KIND] [--store-from BYTES] [--store-except A,B] [FILE]\n"
    "                                             what forward saves for backward, what is "
    "computed\n"
    "                                             again, and the choices there are; B: default,\n"
    "                                             min_cut, min_memory, min_time, 0.5, 512MiB;\n"
    "                                             C: time, measured, or flops of products;\n"
    "                                             PAGE: the same and memory over time, for a "
    "browser;\n"
    "                                             KIND: how it is kept, bf16, int8, int8_row, "
    "int8_block,\n"
    "                                             f8e4m3fn, f8e5m2, or these _unscaled,\n"
    "                                             but for few bytes and for operators, values, "
    "places or\n"
    "                                             element types\n"
    "       tandem cache list|verify|clear|explain A B|export FILE|import FILE\n"
    "                                             the folder of TANDEM_CACHE_DIR; explain: in what "
    "the\n"
    "                                             keys of two entries differ\n"
    "       tandem help [flags|passes]\n"
    "CPU: a processor by LLVM's name, such as znver4 or haswell, instead of this one; `schedule`\n"
    "     also maps for a GPU, sm_80 or sm_90\n";

const GraphPass& pass_named(const std::string& name) {
  const GraphPass* pass = find_pass(name);
  if (pass != nullptr) return *pass;
  std::string known;
  for (std::string_view each : pass_names()) known += " " + std::string(each);
  throw UserError(fmt::format("no pass '{}'; there are:{}", name, known));
}

/// What `choose` goes by; empty: it chooses nothing.
GraphCtx ctx_of_budget(const std::string& budget, const std::string& solver) {
  GraphCtx ctx;
  if (budget.empty()) return ctx;
  ctx.partition = passes::partition_named(budget);
  ctx.budget = passes::budget_named(budget, solver);
  return ctx;
}

int opt(std::vector<std::string> args) {
  const std::string budget = taken_word(args, "--budget", "a budget");
  const std::string solver = word_or(args, "--solver", "dp");
  std::vector<std::string> names;
  std::string path;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--pass" && i + 1 < args.size())
      names.push_back(args[++i]);
    else
      path = args[i];
  }
  std::unique_ptr<ir::Module> module = ir::parse_module(read_text(path), ops::op_table());
  for (ir::Graph* graph : graphs_of(*module)) {
    GraphCtx ctx = ctx_of_budget(budget, solver);
    for (const std::string& name : names) run_pass(*graph, pass_named(name), ctx);
  }
  std::fputs(ir::to_string(*module).c_str(), stdout);
  return 0;
}

/// UserError, all of it at once, where the passes have not made loops of everything yet.
void need_core(const ir::Graph& graph) {
  std::vector<Diagnostic> problems =
      passes::check_facts(graph, passes::kFunctional | passes::kCore);
  if (problems.empty()) return;
  for (Diagnostic& problem : problems)
    problem.text += ": --core and --step take what the passes leave (TANDEM_DUMP=all:DIR)";
  throw UserError(std::move(problems));
}

/// Of a graph of core operations, with a kernel graph behind it or none.
int run_step(const std::string& step, const std::string& text, const Target& target) {
  const size_t kernels = std::min(text.find("\nkernels @"), text.size());
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(text.substr(0, kernels), ops::op_table());
  const std::string after = kernels == text.size() ? "" : text.substr(kernels + 1);
  for (const ir::Graph* graph : programs_of(*module)) {
    need_core(*graph);
    std::fputs(schedule::after_step(*graph, target, step, after).c_str(), stdout);
  }
  return 0;
}

int schedule_command(std::vector<std::string> args) {
  Options options;
  options.freeze = std::erase(args, "--freeze") > 0;
  const bool is_core = std::erase(args, "--core") > 0;
  options.target = taken_target(args);
  const std::vector<std::string> asked = parts_of(taken_word(args, "--why", "names of values"));
  const std::string step = taken_word(args, "--step", "the name of a step");
  const Target& target = target_of(options);
  if (!step.empty()) return run_step(step, read_text(args.empty() ? "" : args[0]), target);
  std::unique_ptr<ir::Module> module =
      ir::parse_module(read_text(args.empty() ? "" : args[0]), ops::op_table());
  for (ir::Graph* graph : programs_of(*module)) {
    const ir::GraphRole& role = graph->role();
    if (role.kind == ir::GraphRole::Kind::setup && module->find(role.of) != nullptr)
      continue;  // goes with the graph that it is of
    GraphCtx ctx;
    is_core ? need_core(*graph) : run_passes(*graph, options, ctx);
    const std::string text = asked.empty() ? schedule::report(schedule::schedule(*graph, target))
                                           : schedule::why(*graph, target, asked);
    std::fputs(text.c_str(), stdout);
  }
  return 0;
}

/// Object files of a graph's kernels, for objdump.
int objects(std::vector<std::string> args) {
  Options options;
  options.target = taken_target(args);
  std::unique_ptr<ir::Module> module =
      ir::parse_module(read_text(args.empty() ? "" : args[0]), ops::op_table());
  std::string folder = args.size() > 1 ? args[1] : ".";
  const Target& target = target_of(options);
  for (ir::Graph* graph : programs_of(*module)) {
    GraphCtx ctx;
    run_passes(*graph, {}, ctx);
    const std::vector<loop::Kernel> kernels = schedule::schedule(*graph, target).kernels;
    for (const codegen::ObjectCode& object : codegen::compile_objects(kernels, target, {})) {
      std::string path = fmt::format("{}/{}_{}.o", folder, graph->name(), object.symbol);
      std::ofstream(path, std::ios::binary) << object.bytes;
      std::printf("%s\n", path.c_str());
    }
  }
  return 0;
}

/// What the caller of each graph gets, and what is written.
int signature_command(const std::vector<std::string>& args) {
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(read_text(args.empty() ? "" : args[0]), ops::op_table());
  for (ir::Graph* graph : programs_of(*module)) {
    GraphCtx ctx;
    run_pass(*graph, pass_named("share_outputs"), ctx);
    const ir::Graph* signature = module->find(ir::GraphRole::Kind::signature, *graph);
    std::printf("@%s\n%s", graph->name().c_str(), describe_signature(*signature).c_str());
  }
  return 0;
}

/// The signature stands above the text, as comments.
int export_command(std::vector<std::string> args) {
  ExportOptions options;
  options.joint = std::erase(args, "--joint") > 0;
  const std::string number = taken_word(args, "--loss", "the number of a result");
  if (!number.empty())
    options.loss = number == "0" ? 0 : static_cast<size_t>(count_of("--loss", number));
  const auto [text, signature] = export_text(read_text(args.empty() ? "" : args[0]), options);
  std::istringstream lines(signature);
  for (std::string line; std::getline(lines, line);) std::printf("; %s\n", line.c_str());
  std::fputs(text.c_str(), stdout);
  return 0;
}

/// Times mappings for this machine and keeps what was chosen; prints where it is not the model's.
int tune(const std::vector<std::string>& args) {
  Options options;
  options.tune = true;
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(read_text(args.empty() ? "" : args[0]), ops::op_table());
  size_t changed = 0;
  for (ir::Graph* graph : programs_of(*module))
    for (const schedule::Note& note : compile(*graph, options)->notes()) {
      if (!note.text.starts_with("timed: ")) continue;
      std::printf("%s: %s\n", note.place.c_str(), note.text.c_str());
      ++changed;
    }
  std::printf("%zu kernels are mapped otherwise than the model would\n", changed);
  return 0;
}

/// What a page tells of a graph that run_passes has cut.
StepReport step_report_of(ir::Graph& forward, const Options& options, const GraphCtx& ctx) {
  const bool has_backward =
      forward.module().find(ir::GraphRole::Kind::backward, forward) != nullptr;
  StepReport report{{ctx.cut, ctx.cut_table, ctx.joint}, {}, options.target};
  if (has_backward) report.step = timeline_of_halves(forward, options);
  return report;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw UserError("cannot write " + path);
}

passes::SavedStorage taken_storage(std::vector<std::string>& args) {
  const std::string kind = word_or(args, "--store", "none");
  const std::string least = word_or(args, "--store-from", "65536");
  std::vector<std::string> except = parts_of(taken_word(args, "--store-except", "names"));
  return passes::storage_named(kind, count_of("--store-from", least), std::move(except));
}

/// Of a graph with inputs that require a gradient.
int partition_command(std::vector<std::string> args) {
  Options options;
  options.target = taken_target(args);
  const std::string budget = word_or(args, "--budget", "default");
  const std::string page = taken_word(args, "--html", "the name of a file");
  options.gradients = Gradients::tangents;
  options.partition = passes::partition_named(budget);
  options.budget = passes::budget_named(budget, word_or(args, "--solver", "dp"),
                                        word_or(args, "--cost", "time"));
  options.storage = taken_storage(args);
  options.report = true;
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(read_text(args.empty() ? "" : args[0]), ops::op_table());
  std::vector<StepReport> reports;
  for (ir::Graph* graph : programs_of(*module)) {
    GraphCtx ctx;
    ctx.describes_choices = true;
    run_passes(*graph, options, ctx);
    std::fputs(ctx.cut.c_str(), stdout);
    if (!page.empty()) reports.push_back(step_report_of(*graph, options, ctx));
  }
  if (!page.empty()) write_file(page, step_page(reports));
  return 0;
}

int help(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "flags") {
    std::fputs(flags_help().c_str(), stdout);
  } else if (!args.empty() && args[0] == "passes") {
    for (const auto& names : {pass_names(), schedule::step_names()})
      for (std::string_view name : names) std::printf("%s\n", std::string(name).c_str());
  } else {
    std::fputs(kUsage, stdout);
  }
  return 0;
}

int run_command(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") return help({});
  std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args[0] == "opt") return opt(rest);
  if (args[0] == "schedule") return schedule_command(rest);
  if (args[0] == "objects") return objects(rest);
  if (args[0] == "run") return command::run(rest);
  if (args[0] == "calibrate") return command::calibrate(rest);
  if (args[0] == "quantize") return command::quantize(rest);
  if (args[0] == "tune") return tune(rest);
  if (args[0] == "export") return export_command(rest);
  if (args[0] == "signature") return signature_command(rest);
  if (args[0] == "partition") return partition_command(rest);
  if (args[0] == "cache") {
    std::fputs(cache_command(rest).c_str(), stdout);
    return 0;
  }
  if (args[0] == "help") return help(rest);
  throw UserError(fmt::format("no command '{}'\n{}", args[0], kUsage));
}

}  // namespace
}  // namespace tandem::driver

int main(int argc, char** argv) {
  try {
    return tandem::driver::run_command({argv + 1, argv + argc});
  } catch (const tandem::InternalError& error) {
    std::fprintf(stderr, "tandem: %s\n", error.what());
    return 70;  // EX_SOFTWARE
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem: %s\n", error.what());
    return 1;
  }
}
