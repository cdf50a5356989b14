// Which layers lose most when they are quantized: the model runs once with each layer alone
// quantized, and the layer is judged by what that does to the model's first result. A bound is then
// reached from the fully quantized model on, by leaving the worst layers in f32 one after the
// other.
//   SQNR = 10 log10(sum y^2 / sum (y - y')^2)
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/interrupt.h"
#include "driver/quantize.h"

namespace tandem::quant {
namespace {

using runtime::Array;
using Batches = std::vector<std::vector<Array>>;

/// The first result of each batch.
std::vector<Array> results_of(BoundProgram& program, const Batches& batches) {
  std::vector<Array> results;
  for (const std::vector<Array>& batch : batches) {
    poll_interrupt();
    results.push_back(std::get<Array>(program.run(batch)[0]).contiguous());
  }
  return results;
}

double sqnr(const std::vector<Array>& wanted, const std::vector<Array>& got) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float* y = wanted[i].data<float>();
    const float* z = got[i].data<float>();
    for (int64_t k = 0; k < wanted[i].numel(); ++k) {
      const double difference = static_cast<double>(y[k]) - static_cast<double>(z[k]);
      signal += static_cast<double>(y[k]) * static_cast<double>(y[k]);
      noise += difference * difference;
    }
  }
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

class Search {
 public:
  Search(const Model& model, const Recipe& recipe, const Statistics& statistics,
         const Batches& batches, const SensitivityOptions& options)
      : model_(&model),
        recipe_(&recipe),
        statistics_(&statistics),
        batches_(&batches),
        options_(&options) {}

  Sensitivity run() {
    BoundProgram plain = compile_plain(*model_);
    wanted_ = results_of(plain, *batches_);
    if (wanted_.empty() || wanted_[0].dtype() != DType::f32)
      throw UserError("[sensitivity] batches are needed, and a first result of f32");
    find_layers();
    for (const std::string& layer : layers_) {
      std::set<std::string> others = everything_;
      others.erase(layer);
      found_.layers.push_back({layer, sqnr_without(others)});
    }
    std::ranges::stable_sort(found_.layers, {}, &LayerSensitivity::sqnr);
    reach_bound();
    return std::move(found_);
  }

 private:
  void find_layers() {
    const Annotated annotated = annotate(*model_, *recipe_);
    for (const Layer& layer : annotated.annotation.layers) {
      everything_.insert(layer.name);
      if (layer.after.empty()) layers_.push_back(layer.name);
    }
  }

  double sqnr_without(const std::set<std::string>& skip) {
    BoundProgram program = convert(*model_, *recipe_, *statistics_, skip);
    const double result = sqnr(wanted_, results_of(program, *batches_));
    if (options_->progress) options_->progress(++programs_);
    return result;
  }

  void reach_bound() {
    found_.sqnr = sqnr_without({});
    if (!options_->bound) return;
    for (const LayerSensitivity& worst : found_.layers) {
      if (found_.sqnr >= *options_->bound) break;
      found_.left.insert(worst.layer);
      found_.sqnr = sqnr_without(found_.left);
    }
  }

  const Model* model_;
  const Recipe* recipe_;
  const Statistics* statistics_;
  const Batches* batches_;
  const SensitivityOptions* options_;
  std::vector<Array> wanted_;
  std::vector<std::string> layers_;
  std::set<std::string> everything_;  // layers that propagate too
  int64_t programs_ = 0;
  Sensitivity found_;
};

}  // namespace

Sensitivity sensitivity(const Model& model, const Recipe& recipe, const Statistics& statistics,
                        const Batches& batches, const SensitivityOptions& options) {
  return Search(model, recipe, statistics, batches, options).run();
}

std::string to_string(const Sensitivity& sensitivity) {
  std::string text;
  for (const LayerSensitivity& layer : sensitivity.layers)
    text += fmt::format("{:8.2f} dB  {}{}\n", layer.sqnr, layer.layer,
                        sensitivity.left.count(layer.layer) != 0 ? "  (left in f32)" : "");
  return text + fmt::format("{:8.2f} dB  all quantized but {}\n", sensitivity.sqnr,
                            sensitivity.left.size());
}

}  // namespace tandem::quant
