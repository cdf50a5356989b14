// Post-training quantization of models, in C++ from the first image to the quantized program:
//
//   quant::Model model{scores, state, {{"images", DType::f32, {64, 1, 8, 8}}}};
//   const quant::Recipe recipe = quant::recipe_named("x86_default");
//   quant::Statistics statistics = quant::calibrate(model, recipe, batches, {});
//   quant::save(statistics, "digits.ranges.toml");           // may be read and edited
//   tandem::BoundProgram predict = quant::convert(model, recipe, statistics);
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/api.h"
#include "quant/annotate.h"
#include "quant/statistics.h"

namespace tandem::quant {

/// An f32 model function with its weights, which stay as they are from calibration on. The State
/// must outlive what is made of it.
struct Model {
  ModelFunction function;
  State* state = nullptr;
  std::vector<InputSpec> inputs;
  /// Instead of `function`: the text of one graph, whose parameters and buffers the State has by
  /// the names of its inputs; `inputs` are the others, in order.
  std::string text = {};
};

/// The model as it is, frozen.
BoundProgram compile_plain(const Model& model);

/// The model as a graph with batch norms folded into convolutions, and the recipe's layers in it.
struct Annotated {
  std::unique_ptr<ir::Module> module;
  ir::Graph* graph = nullptr;
  Annotation annotation;
  uint64_t model_hash = 0;
};
Annotated annotate(const Model& model, const Recipe& recipe);

/// Data inputs of the next batch; nothing when there are no more.
using BatchSource = std::function<std::optional<std::vector<runtime::Array>>()>;
/// Goes over batches that stay alive.
BatchSource source_of(const std::vector<std::vector<runtime::Array>>& batches);

struct CalibrateOptions {
  /// Called after each batch with the number of batches so far. What it throws ends calibration.
  std::function<void(int64_t batches)> progress;
};

/// Runs the f32 model over all batches and observes. Memory is that of one batch: its observed
/// values, and the observers. The numbers do not depend on the number of threads. Nothing is
/// written; an exception of source or progress leaves nothing behind. Batches are asked for only
/// where the recipe needs them: weights need none. UserError where the recipe finds no layer, a
/// value is NaN, or a group saw no value.
Statistics calibrate(const Model& model, const Recipe& recipe, const BatchSource& source,
                     const CalibrateOptions& options = {});

/// A built-in recipe by its name, or that of a file that ends with ".toml".
Recipe recipe_of(const std::string& name);

/// The file appears whole or not at all.
void save(const Statistics& statistics, const std::string& path);
Statistics load(const std::string& path);

/// The quantized model, frozen, for batches of any size. UserError where statistics are of another
/// model, another recipe, or lack a group. `skip`: layers that stay f32.
BoundProgram convert(const Model& model, const Recipe& recipe, const Statistics& statistics,
                     const std::set<std::string>& skip = {});
/// The same as a graph, for `tandem opt` and tests.
std::string converted_text(const Model& model, const Recipe& recipe, const Statistics& statistics,
                           const std::set<std::string>& skip = {});

/// A quantized model as data: a graph that reads integers, and the tensors of its parameters and
/// buffers by the names that files have them under.
struct StoredModel {
  std::string text;
  std::map<std::string, runtime::Array> tensors;
};
/// Of `convert`, under the same conditions. What is quantized and known is kept as integers, and
/// the floats behind it are left out where nothing else reads them. Arrays may be the State's.
StoredModel stored(const Model& model, const Recipe& recipe, const Statistics& statistics,
                   const std::set<std::string>& skip = {});

// --- sensitivity

/// Signal to quantization noise of the first result, 10 log10(sum y^2 / sum (y - y')^2), in dB.
struct LayerSensitivity {
  std::string layer;
  double sqnr = 0;  // where this layer alone is quantized
};

struct Sensitivity {
  std::vector<LayerSensitivity> layers;  // the worst first
  double sqnr = 0;                       // of the program, with `left` in f32
  std::set<std::string> left;
};

struct SensitivityOptions {
  /// The worst layers stay f32, one after the other, until the SQNR of the result is at least this;
  /// none where it is not given.
  std::optional<double> bound;
  /// Called after each program that was run, with how many there were.
  std::function<void(int64_t programs)> progress;
};

/// Compares with f32 over the batches. Layers that propagate have no entry: they go with the layers
/// that they follow.
Sensitivity sensitivity(const Model& model, const Recipe& recipe, const Statistics& statistics,
                        const std::vector<std::vector<runtime::Array>>& batches,
                        const SensitivityOptions& options = {});
std::string to_string(const Sensitivity& sensitivity);

}  // namespace tandem::quant
