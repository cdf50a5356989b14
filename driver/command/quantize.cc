// What driver/quantize.h does with a model in memory, of files: the graph's text, its weights, and
// batches that are read one at a time. Nothing is written before all of it is known, and files
// appear whole.
#include "driver/command/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/diagnostic.h"
#include "base/progress.h"
#include "driver/command/signals.h"
#include "driver/model_file.h"
#include "driver/quantize.h"
#include "frontend/atomic_file.h"
#include "frontend/safetensors.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver::command {
namespace {

constexpr int kInterrupted = 130;  // as a shell says of SIGINT
constexpr int kFewBatches = 4;     // for a comparison

struct Settings {
  std::string model, weights;
  quant::Recipe recipe;
  std::string statistics;
  std::vector<std::string> data;
  int rows = 32;    // of a batch
  int batches = 0;  // at most; 0: all
};

Settings taken_settings(Words& args) {
  Settings settings;
  settings.weights = taken_word(args, "--weights", "a file of tensors");
  settings.recipe = quant::recipe_of(word_or(args, "--recipe", "x86_default"));
  settings.statistics = taken_word(args, "--statistics", "the name of a file");
  if (settings.statistics.empty()) throw UserError("--statistics FILE is needed: the ranges");
  settings.data = taken_words(args, "--data", "a file of tensors");
  settings.rows = count_or(args, "--batch", settings.rows);
  settings.batches = count_or(args, "--batches", 0);
  return settings;
}

/// A model of files. quant::Model points into it.
class FileModel {
 public:
  explicit FileModel(const Settings& settings) {
    model_.text = read_text(settings.model);
    const std::unique_ptr<ir::Module> module = ir::parse_module(model_.text, ops::op_table());
    if (module->graphs().empty()) throw UserError(settings.model + " holds no graph");
    const ir::Graph& graph = *module->graphs()[0];
    if (!settings.weights.empty()) state_ = weights_of(graph, settings.weights);
    check_given(graph);
    data_ = data_inputs_of(graph);
    for (const DataInput& input : data_) model_.inputs.push_back(smallest(input));
    model_.state = &state_;
  }
  FileModel(const FileModel&) = delete;
  FileModel& operator=(const FileModel&) = delete;

  const quant::Model& model() const { return model_; }
  const std::vector<DataInput>& data() const { return data_; }

 private:
  void check_given(const ir::Graph& graph) const {
    for (const ir::Value* input : graph.inputs())
      if ((input->role == ir::Role::parameter || input->role == ir::Role::buffer) &&
          !state_.has(input->name))
        throw UserError(fmt::format("--weights FILE is needed: the model has '{}'", input->target));
  }

  /// One of the sizes that the input may have.
  static InputSpec smallest(const DataInput& input) {
    InputSpec spec{input.name, input.dtype, {}};
    for (const std::optional<int64_t>& size : input.sizes)
      spec.sizes.push_back(size.value_or(std::max<int64_t>(input.least, 2)));
    return spec;
  }

  State state_;
  std::vector<DataInput> data_;
  quant::Model model_;
};

quant::Statistics calibrated(const FileModel& model, const Settings& settings) {
  Batches batches(settings.data, model.data(), settings.rows);
  int64_t count = batches.count();
  if (settings.batches > 0) count = std::min<int64_t>(count, settings.batches);
  if (batches.left_out() > 0)
    fmt::print(stderr, "{} rows fill no batch and are left out\n", batches.left_out());
  Progress progress("calibrating", count);
  int64_t taken = 0;
  const quant::BatchSource source = [&]() -> std::optional<std::vector<runtime::Array>> {
    if (taken++ == count) return std::nullopt;
    return batches.next();
  };
  return quant::calibrate(model.model(), settings.recipe, source,
                          {.progress = [&](int64_t done) { progress.update(done); }});
}

/// The first batches, for a comparison.
std::vector<std::vector<runtime::Array>> few_batches(const FileModel& model,
                                                     const Settings& settings) {
  if (settings.data.empty())
    throw UserError("--data FILE is needed: batches to compare results of");
  Batches batches(settings.data, model.data(), settings.rows);
  const size_t most = static_cast<size_t>(settings.batches > 0 ? settings.batches : kFewBatches);
  std::vector<std::vector<runtime::Array>> few;
  while (few.size() < most) {
    std::optional<std::vector<runtime::Array>> batch = batches.next();
    if (!batch) break;
    few.push_back(std::move(*batch));
  }
  return few;
}

struct Leaving {
  std::set<std::string> layers;  // by name
  bool ranks = false;
  std::optional<double> bound;  // dB
};

double decibels_of(const std::string& text) {
  double number = 0;
  const std::from_chars_result read =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !std::isfinite(number))
    throw UserError(fmt::format("--sqnr-at-least needs a number of dB, not '{}'", text));
  return number;
}

Leaving taken_leaving(Words& args) {
  Leaving leaving;
  for (const std::string& layer : parts_of(taken_word(args, "--leave", "names of layers")))
    leaving.layers.insert(layer);
  leaving.ranks = taken(args, "--sensitivity");
  const std::string bound = taken_word(args, "--sqnr-at-least", "a number of dB");
  if (!bound.empty()) leaving.bound = decibels_of(bound);
  if (!leaving.layers.empty() && (leaving.ranks || leaving.bound))
    throw UserError("--leave names the layers that stay; it goes with no ranking of them");
  return leaving;
}

/// Names of the layers that stay f32; prints how they rank.
std::set<std::string> ranked(const FileModel& model, const Settings& settings,
                             const quant::Statistics& statistics, const Leaving& leaving) {
  const std::vector<std::vector<runtime::Array>> batches = few_batches(model, settings);
  int64_t layers = 0;
  for (const quant::Layer& layer :
       quant::annotate(model.model(), settings.recipe).annotation.layers)
    layers += layer.after.empty() ? 1 : 0;
  quant::Sensitivity found;
  {
    // Each layer alone, then all together; how many a bound takes beyond that nobody knows.
    Progress progress("comparing", layers + 1);
    const auto show = [&](int64_t done) {
      if (done <= layers + 1) progress.update(done);
    };
    found = quant::sensitivity(model.model(), settings.recipe, statistics, batches,
                               {.bound = leaving.bound, .progress = show});
  }
  fmt::print("{}", quant::to_string(found));
  return found.left;
}

std::string weights_path(const std::string& output) {
  if (!output.ends_with(".tir"))
    throw UserError(fmt::format("--output is the name of a .tir file, not '{}'", output));
  return output.substr(0, output.size() - 4) + ".safetensors";
}

/// Before long work: better than behind it.
void check_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw UserError(fmt::format("cannot write {}: there is no folder {}", path, folder.string()));
}

/// Both files take their places one after the other, when both are written.
void write(const quant::StoredModel& model, const std::string& output) {
  std::vector<runtime::Array> arrays;
  std::vector<frontend::TensorData> tensors;
  for (const std::pair<const std::string, runtime::Array>& entry : model.tensors) {
    const runtime::Array& array = arrays.emplace_back(entry.second.contiguous());
    tensors.push_back(
        {entry.first,
         array.dtype(),
         {array.sizes().begin(), array.sizes().end()},
         {static_cast<const std::byte*>(array.raw()), static_cast<size_t>(array.nbytes())}});
  }
  frontend::AtomicFile text(output);
  text.write(std::as_bytes(std::span(model.text)));
  frontend::write_safetensors(weights_path(output), tensors);
  text.commit();
}

/// What becomes of the products with a quantized factor: nothing stays in floats unsaid.
void print_products(const quant::StoredModel& model) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(model.text, ops::op_table());
  GraphCtx ctx;
  run_passes(*module->graphs()[0], {}, ctx);
  size_t integers = 0;
  for (const QuantizedProduct& product : ctx.products) {
    if (product.reason.empty())
      ++integers;
    else
      fmt::print("stays in floats: {}: {}\n", product.product, product.reason);
  }
  fmt::print("{} of {} products with a quantized factor are of integers\n", integers,
             ctx.products.size());
}

void calibrate_files(Words args) {
  Settings settings = taken_settings(args);
  settings.model = only_path(args, "the model");
  check_folder(settings.statistics);
  const FileModel model(settings);
  const quant::Statistics statistics = calibrated(model, settings);
  quant::save(statistics, settings.statistics);
  fmt::print("{}: {} groups of values\n", settings.statistics, statistics.groups.size());
}

void quantize_files(Words args) {
  Settings settings = taken_settings(args);
  const Leaving leaving = taken_leaving(args);
  const std::string output = taken_word(args, "--output", "the name of a .tir file");
  const std::string weights = weights_path(output);
  check_folder(output);
  settings.model = only_path(args, "the model");
  const FileModel model(settings);
  const quant::Statistics statistics = quant::load(settings.statistics);
  std::set<std::string> left = leaving.layers;
  if (leaving.ranks || leaving.bound) left = ranked(model, settings, statistics, leaving);
  const quant::StoredModel made = quant::stored(model.model(), settings.recipe, statistics, left);
  print_products(made);
  write(made, output);
  fmt::print("{}, {}\n", output, weights);
}

int uninterrupted(void (*work)(Words), Words args) {
  const Signals signals;
  try {
    work(std::move(args));
  } catch (const Interrupted& error) {
    fmt::print(stderr, "tandem: {}\n", error.what());
    return kInterrupted;
  }
  return 0;
}

}  // namespace

int calibrate(Words args) { return uninterrupted(calibrate_files, std::move(args)); }

int quantize(Words args) { return uninterrupted(quantize_files, std::move(args)); }

}  // namespace tandem::driver::command
