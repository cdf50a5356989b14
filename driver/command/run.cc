// Inputs are looked for in the files that were named, by name; what no file was named for is
// generated: the same numbers at every run, zeros but for floats. What has rows is as small as a
// layer's first weights are, so that a model's values keep their size: growing ones end in
// softmaxes of subnormal numbers, which take ten times as long and are no model's.
#include "driver/command/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "driver/compiler.h"
#include "driver/model_file.h"
#include "frontend/safetensors.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver::command {
namespace {

using runtime::Array;

struct Settings {
  Options options;
  int repeat = 1;
  size_t profile = 0;
  std::string weights;            // file; empty: generated
  std::vector<std::string> data;  // files; none: generated
  int64_t rows = 0;               // of a batch
  std::string save;               // file of results; empty: none
};

Settings taken_settings(Words& args) {
  Settings settings;
  settings.options.target = taken_target(args);
  if (taken(args, "--grad")) settings.options.gradients = Gradients::tangents;
  settings.options.freeze = taken(args, "--freeze");
  settings.options.tune = taken(args, "--tune");
  settings.repeat = count_or(args, "--repeat", 1);
  settings.profile = static_cast<size_t>(count_or(args, "--profile", 0));
  settings.weights = taken_word(args, "--weights", "a file of tensors");
  settings.data = taken_words(args, "--data", "a file of tensors");
  settings.rows = count_or(args, "--batch", 32);
  settings.save = taken_word(args, "--save", "the name of a file");
  return settings;
}

/// In [-1, 1); of more than one dimension divided by the root of the elements of a row.
Array generated(DType dtype, const std::vector<int64_t>& sizes) {
  Array array = Array::zeros(dtype, sizes);
  const int64_t row = sizes.size() < 2 || array.numel() == 0 ? 1 : array.numel() / sizes[0];
  const float scale = 0x1p-31f / std::sqrt(static_cast<float>(row));
  uint32_t state = 12345;
  for (int64_t i = 0; dtype == DType::f32 && i < array.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    array.data<float>()[i] = static_cast<float>(static_cast<int32_t>(state)) * scale;
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

void print_output(const runtime::Result& result, const std::string& name) {
  const Array* array = std::get_if<Array>(&result);
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

/// Tensors of all batches, along their first dimension.
class Results {
 public:
  void add(const std::vector<runtime::Result>& results) {
    tensors_.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i)
      if (const Array* array = std::get_if<Array>(&results[i])) add(tensors_[i], *array);
  }

  void save(const std::string& path) const {
    std::vector<frontend::TensorData> tensors;
    for (size_t i = 0; i < tensors_.size(); ++i)
      tensors.push_back(
          {fmt::format("result.{}", i), tensors_[i].dtype, tensors_[i].sizes, tensors_[i].bytes});
    frontend::write_safetensors(path, tensors);
  }

 private:
  struct Tensor {
    DType dtype = DType::f32;
    std::vector<int64_t> sizes{0};
    std::vector<std::byte> bytes;
  };

  static void add(Tensor& tensor, const Array& array) {
    const Array rows = array.contiguous();
    const bool is_first = tensor.bytes.empty();
    std::vector<int64_t> sizes(rows.sizes().begin(), rows.sizes().end());
    if (!is_first && (sizes.empty() || sizes.size() != tensor.sizes.size() ||
                      !std::equal(sizes.begin() + 1, sizes.end(), tensor.sizes.begin() + 1)))
      throw UserError(fmt::format("[run] a result of one batch is {}, and fits none before it",
                                  array.describe()));
    if (!is_first) sizes[0] += tensor.sizes[0];
    tensor.dtype = rows.dtype();
    tensor.sizes = std::move(sizes);
    const std::byte* first = static_cast<const std::byte*>(rows.raw());
    tensor.bytes.insert(tensor.bytes.end(), first, first + rows.nbytes());
  }

  std::vector<Tensor> tensors_;
};

/// One graph of the text.
class GraphRun {
 public:
  GraphRun(ir::Graph& graph, const Settings& settings) : settings_(settings) {
    if (!settings.weights.empty()) state_ = weights_of(graph, settings.weights);
    if (!settings.data.empty()) data_ = data_inputs_of(graph);
    executable_ = compile(graph, settings.options);
    bind();
  }

  void run() {
    Batches batches(settings_.data, data_, settings_.rows);
    std::vector<Array> batch;
    if (std::optional<std::vector<Array>> first = batches.next()) batch = std::move(*first);
    std::vector<runtime::Argument> arguments = arguments_of(batch);
    const std::vector<runtime::Result> results = executable_->run(arguments);
    for (size_t i = 0; i < results.size(); ++i)
      print_output(results[i], executable_->program().outputs[i].name);
    time(arguments);
    if (settings_.save.empty()) return;
    Results all;
    all.add(results);
    while (std::optional<std::vector<Array>> next = batches.next())
      all.add(executable_->run(arguments_of(*next)));
    all.save(settings_.save);
  }

 private:
  Array value_of(const std::string& name, DType dtype, const std::vector<int64_t>& sizes) const {
    return state_.has(name) ? state_.at(name) : generated(dtype, sizes);
  }

  /// Of its own where the graph writes it: weights lie in a file.
  Array given(const abi::Input& input) const {
    Array value = value_of(input.name, input.dtype, generated_sizes(input));
    if (!input.mutated) return value;
    Array own = Array::zeros(value.dtype(), {value.sizes().begin(), value.sizes().end()});
    own.copy_from(value);
    return own;
  }

  void bind() {
    runtime::ConstantValues values;
    for (const abi::Constant& constant : executable_->program().constants)
      values.insert_or_assign(constant.name,
                              value_of(constant.name, constant.dtype, constant.sizes));
    if (executable_->program().setup != nullptr)
      for (const abi::Input& input : executable_->program().setup->inputs)
        values.insert_or_assign(input.name,
                                value_of(input.name, input.dtype, generated_sizes(input)));
    executable_->bind_constants(values);
  }

  /// `batch`: arrays of the data inputs; empty: they are generated.
  std::vector<runtime::Argument> arguments_of(const std::vector<Array>& batch) const {
    std::vector<runtime::Argument> arguments;
    for (const abi::Input& input : executable_->program().inputs) {
      const size_t number = static_cast<size_t>(
          std::ranges::find(data_, input.name, &DataInput::name) - data_.begin());
      if (number < batch.size())
        arguments.emplace_back(batch[number]);
      else if (input.is_scalar)
        arguments.emplace_back(int64_t{1});
      else
        arguments.emplace_back(given(input));
    }
    return arguments;
  }

  void time(const std::vector<runtime::Argument>& arguments) {
    if (settings_.profile > 0) executable_->loaded().start_profile();
    const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    for (int i = 0; i < settings_.repeat; ++i) executable_->run(arguments);
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - start;
    const Times& times = executable_->times;
    std::printf("passes %.2f ms, schedule %.2f ms, code %.2f ms, load %.2f ms; a run %.2f us\n",
                times.passes, times.schedule, times.codegen, times.load,
                spent.count() / settings_.repeat);
    if (settings_.profile > 0) print_profile(executable_->loaded(), settings_.profile);
  }

  const Settings& settings_;
  State state_;
  std::vector<DataInput> data_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace

int run(Words args) {
  const Settings settings = taken_settings(args);
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(read_text(path_or_input(args)), ops::op_table());
  const std::vector<ir::Graph*> graphs = programs_of(*module);
  const bool reads_files = !settings.weights.empty() || !settings.data.empty();
  if (graphs.size() != 1 && (reads_files || !settings.save.empty()))
    throw UserError(
        fmt::format("[run] the text has {} graphs, and files are of one", graphs.size()));
  for (ir::Graph* graph : graphs) GraphRun(*graph, settings).run();
  return 0;
}

}  // namespace tandem::driver::command
