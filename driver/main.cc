// The tandem command. Sub-commands: opt (passes on text), run (a graph on generated inputs), help.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "driver/cache.h"
#include "driver/compiler.h"
#include "driver/face.h"
#include "driver/replay.h"
#include "driver/step_report.h"
#include "ir/text.h"
#include "ops/bodies.h"

namespace tandem::driver {
namespace {

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
    "                                             values are computed, and why not by one kernel;\n"
    "                                             --step: the kernel graph behind a step, from "
    "the\n"
    "                                             graph or from a kernel graph in the file\n"
    "       tandem objects [--target CPU] FILE [FOLDER]\n"
    "                                             object code of the kernels\n"
    "       tandem run [--grad] [--freeze] [--tune] [--repeat N] [--profile N] [--target CPU] "
    "[FILE]\n"
    "                                             compiles and runs a graph on generated inputs;\n"
    "                                             lists the N slowest instructions\n"
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
    "                                             C: time, or flops of products;\n"
    "                                             PAGE: the same and memory over time, for a "
    "browser;\n"
    "                                             KIND: how it is kept, bf16, int8, int8_row, "
    "int8_block,\n"
    "                                             f8e4m3fn or f8e5m2,"
    "\n"
    "                                             but for few bytes and for operators, values "
    "or places\n"
    "       tandem cache list|verify|clear|explain A B|export FILE|import FILE\n"
    "                                             the folder of TANDEM_CACHE_DIR; explain: in what "
    "the\n"
    "                                             keys of two entries differ\n"
    "       tandem help [flags|passes]\n"
    "CPU: a processor by LLVM's name, such as znver4 or haswell, instead of this one; `schedule`\n"
    "     also maps for a GPU, sm_80 or sm_90\n";

std::string read_input(const std::string& path) {
  std::ostringstream text;
  if (path.empty() || path == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream file(path);
    if (!file) throw UserError("cannot read " + path);
    text << file.rdbuf();
  }
  return text.str();
}

const GraphPass& pass_named(const std::string& name) {
  const GraphPass* pass = find_pass(name);
  if (pass != nullptr) return *pass;
  std::string known;
  for (std::string_view each : pass_names()) known += " " + std::string(each);
  throw UserError(fmt::format("no pass '{}'; there are:{}", name, known));
}

/// Those of the text: passes may add others.
std::vector<ir::Graph*> graphs_of(const ir::Module& module) {
  std::vector<ir::Graph*> graphs;
  for (const std::unique_ptr<ir::Graph>& graph : module.graphs()) graphs.push_back(graph.get());
  return graphs;
}

/// Without those that others run as bodies.
std::vector<ir::Graph*> programs_of(const ir::Module& module) {
  std::vector<ir::Graph*> graphs = graphs_of(module);
  std::vector<ir::Graph*> bodies;
  for (const ir::Graph* graph : graphs)
    for (ir::Graph* body : ops::bodies_of(*graph)) bodies.push_back(body);
  std::erase_if(graphs, [&](ir::Graph* graph) {
    return std::find(bodies.begin(), bodies.end(), graph) != bodies.end();
  });
  return graphs;
}

/// The word behind an option, `what`, which are taken out; empty where the option is not there.
std::string taken_word(std::vector<std::string>& args, std::string_view option,
                       std::string_view what) {
  const auto at = std::find(args.begin(), args.end(), option);
  if (at == args.end()) return "";
  if (at + 1 == args.end()) throw UserError(fmt::format("{} needs {}", option, what));
  std::string word = *(at + 1);
  args.erase(at, at + 2);
  return word;
}

/// The word behind an option, or `otherwise`.
std::string word_or(std::vector<std::string>& args, std::string_view option,
                    std::string_view otherwise) {
  const std::string word = taken_word(args, option, "a name");
  return word.empty() ? std::string(otherwise) : word;
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
  std::unique_ptr<ir::Module> module = ir::parse_module(read_input(path), ops::op_table());
  for (ir::Graph* graph : graphs_of(*module)) {
    GraphCtx ctx = ctx_of_budget(budget, solver);
    for (const std::string& name : names) run_pass(*graph, pass_named(name), ctx);
  }
  std::fputs(ir::to_string(*module).c_str(), stdout);
  return 0;
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream words(list);
  for (std::string part; std::getline(words, part, ',');) parts.push_back(part);
  return parts;
}

/// Of a graph of core operations, with a kernel graph behind it or none.
int run_step(const std::string& step, const std::string& text, const Target& target) {
  const size_t kernels = std::min(text.find("\nkernels @"), text.size());
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(text.substr(0, kernels), ops::op_table());
  const std::string after = kernels == text.size() ? "" : text.substr(kernels + 1);
  for (const ir::Graph* graph : programs_of(*module))
    std::fputs(schedule::after_step(*graph, target, step, after).c_str(), stdout);
  return 0;
}

std::optional<Target> taken_target(std::vector<std::string>& args) {
  const std::string cpu = taken_word(args, "--target", "the name of a processor");
  return cpu.empty() ? std::nullopt : std::optional(target_named(cpu));
}

int schedule_command(std::vector<std::string> args) {
  Options options;
  options.freeze = std::erase(args, "--freeze") > 0;
  const bool is_core = std::erase(args, "--core") > 0;
  options.target = taken_target(args);
  const std::vector<std::string> asked = parts_of(taken_word(args, "--why", "names of values"));
  const std::string step = taken_word(args, "--step", "the name of a step");
  const Target& target = target_of(options);
  if (!step.empty()) return run_step(step, read_input(args.empty() ? "" : args[0]), target);
  std::unique_ptr<ir::Module> module =
      ir::parse_module(read_input(args.empty() ? "" : args[0]), ops::op_table());
  for (ir::Graph* graph : programs_of(*module)) {
    const ir::GraphRole& role = graph->role();
    if (role.kind == ir::GraphRole::Kind::setup && module->find(role.of) != nullptr)
      continue;  // goes with the graph that it is of
    GraphCtx ctx;
    if (!is_core) run_passes(*graph, options, ctx);
    const std::string text = asked.empty() ? schedule::report(schedule::schedule(*graph, target))
                                           : schedule::why(*graph, target, asked);
    std::fputs(text.c_str(), stdout);
  }
  return 0;
}

/// Deterministic test data: floats in [-1, 1), zeros of other types.
runtime::Array generated(DType dtype, const std::vector<int64_t>& sizes) {
  runtime::Array array = runtime::Array::zeros(dtype, sizes);
  uint32_t state = 12345;
  for (int64_t i = 0; dtype == DType::f32 && i < array.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    array.data<float>()[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return array;
}

/// Sizes that are symbols are 8.
std::vector<int64_t> generated_sizes(const abi::Input& input) {
  std::vector<int64_t> sizes;
  for (const abi::SizeCode& code : input.sizes)
    sizes.push_back(
        code.size() == 1 && code[0].op == abi::SizeInstruction::Op::constant ? code[0].value : 8);
  return sizes;
}

runtime::Argument generated_input(const abi::Input& input) {
  if (input.is_scalar) return int64_t{1};
  return generated(input.dtype, generated_sizes(input));
}

void bind_generated(Executable& executable) {
  runtime::ConstantValues values;
  for (const abi::Constant& constant : executable.program().constants)
    values.insert_or_assign(constant.name, generated(constant.dtype, constant.sizes));
  if (executable.program().setup != nullptr)
    for (const abi::Input& input : executable.program().setup->inputs)
      values.insert_or_assign(input.name, generated(input.dtype, generated_sizes(input)));
  executable.bind_constants(values);
}

void print_output(const runtime::Result& result, const std::string& name) {
  const runtime::Array* array = std::get_if<runtime::Array>(&result);
  if (array == nullptr) return;
  std::string head;
  for (int64_t i = 0; array->dtype() == DType::f32 && i < std::min<int64_t>(array->numel(), 8); ++i)
    head += fmt::format(" {:.6g}", array->contiguous().data<float>()[i]);
  std::printf("%s %s:%s\n", name.c_str(), array->describe().c_str(), head.c_str());
}

/// The slowest instructions, and the library calls with what they reorder.
void print_profile(const runtime::LoadedProgram& loaded, size_t count) {
  std::fputs(runtime::to_string(loaded.profile(), count).c_str(), stdout);
  for (const runtime::LibraryCallReport& call : loaded.library_calls())
    std::printf("library %s: %s, %.1f Mflop, %ld tasks, reorders %ld KiB and %ld KiB of weights\n",
                call.label.c_str(), call.implementation.c_str(),
                static_cast<double>(call.flops) * 1e-6, call.tasks, call.staged_bytes >> 10,
                call.weight_bytes >> 10);
}

/// The number after an option.
int count_of(const std::string& option, const std::string& text) {
  int count = 0;
  const std::from_chars_result read =
      std::from_chars(text.data(), text.data() + text.size(), count);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || count < 1)
    throw UserError(fmt::format("{} needs a number of at least 1, not '{}'", option, text));
  return count;
}

int run_graph(std::vector<std::string> args) {
  Options options;
  options.target = taken_target(args);
  std::string path;
  int repeat = 1;
  size_t profile = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--grad")
      options.gradients = Gradients::tangents;
    else if (args[i] == "--freeze")
      options.freeze = true;
    else if (args[i] == "--tune")
      options.tune = true;
    else if (args[i] == "--repeat" && i + 1 < args.size())
      repeat = count_of(args[i], args[i + 1]), ++i;
    else if (args[i] == "--profile" && i + 1 < args.size())
      profile = static_cast<size_t>(count_of(args[i], args[i + 1])), ++i;
    else
      path = args[i];
  }
  std::unique_ptr<ir::Module> module = ir::parse_module(read_input(path), ops::op_table());
  for (ir::Graph* graph : programs_of(*module)) {
    std::unique_ptr<Executable> executable = compile(*graph, options);
    bind_generated(*executable);
    std::vector<runtime::Argument> inputs;
    for (const abi::Input& input : executable->program().inputs)
      inputs.push_back(generated_input(input));
    std::vector<runtime::Result> results = executable->run(inputs);
    for (size_t i = 0; i < results.size(); ++i)
      print_output(results[i], executable->program().outputs[i].name);
    if (profile > 0) executable->loaded().start_profile();
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) results = executable->run(inputs);
    double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                    .count() /
                repeat;
    std::printf("passes %.2f ms, schedule %.2f ms, code %.2f ms, load %.2f ms; a run %.2f us\n",
                executable->times.passes, executable->times.schedule, executable->times.codegen,
                executable->times.load, us);
    if (profile > 0) print_profile(executable->loaded(), profile);
  }
  return 0;
}

/// Object files of a graph's kernels, for objdump.
int objects(std::vector<std::string> args) {
  Options options;
  options.target = taken_target(args);
  std::unique_ptr<ir::Module> module =
      ir::parse_module(read_input(args.empty() ? "" : args[0]), ops::op_table());
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
      ir::parse_module(read_input(args.empty() ? "" : args[0]), ops::op_table());
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
  const auto [text, signature] = export_text(read_input(args.empty() ? "" : args[0]), options);
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
      ir::parse_module(read_input(args.empty() ? "" : args[0]), ops::op_table());
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
      ir::parse_module(read_input(args.empty() ? "" : args[0]), ops::op_table());
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
  if (args[0] == "run") return run_graph(rest);
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
