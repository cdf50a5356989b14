// Statistics are a file so that they can be looked at, and changed, between the two halves; with
// --reuse 1 only the second one runs.
#include "examples/quantization.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "base/progress.h"

namespace tandem::examples {
namespace {

quant::Statistics statistics_of(const quant::Model& model, const quant::Recipe& recipe,
                                const QuantizationSettings& settings, const Batches& batches) {
  if (settings.reuse) return quant::load(settings.statistics);
  Progress progress("calibrating", static_cast<int64_t>(batches.size()));
  quant::CalibrateOptions options;
  options.progress = [&](int64_t done) { progress.update(done); };
  quant::Statistics statistics =
      quant::calibrate(model, recipe, quant::source_of(batches), options);
  if (!settings.statistics.empty()) quant::save(statistics, settings.statistics);
  return statistics;
}

std::set<std::string> layers_to_leave(const quant::Model& model, const quant::Recipe& recipe,
                                      const quant::Statistics& statistics,
                                      const QuantizationSettings& settings,
                                      const Batches& batches) {
  if (!settings.sensitivity && settings.bound <= 0) return {};
  const Batches few(batches.begin(),
                    batches.begin() + std::min<std::ptrdiff_t>(4, std::ssize(batches)));
  quant::SensitivityOptions options;
  if (settings.bound > 0) options.bound = settings.bound;
  const quant::Sensitivity found = quant::sensitivity(model, recipe, statistics, few, options);
  fmt::print("{}", quant::to_string(found));
  return found.left;
}

/// Milliseconds of a call, the fastest of 20.
double call_time(BoundProgram& program, const std::vector<Array>& inputs) {
  double best = 1e30;
  for (int i = 0; i < 20; ++i) {
    const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    program.run(inputs);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

}  // namespace

bool set_quantization_option(QuantizationSettings& settings, const std::string& name,
                             const std::string& value) {
  if (name == "--load")
    settings.load = value;
  else if (name == "--recipe")
    settings.recipe = value;
  else if (name == "--statistics")
    settings.statistics = value;
  else if (name == "--reuse")
    settings.reuse = value == "1";
  else if (name == "--bound")
    settings.bound = std::strtod(value.c_str(), nullptr);
  else if (name == "--sensitivity")
    settings.sensitivity = value == "1";
  else
    return false;
  return true;
}

Quantized quantize(const quant::Model& model, const QuantizationSettings& settings,
                   const Batches& batches, const std::function<double(BoundProgram&)>& score) {
  if (settings.load.empty()) throw UserError("--load PATH is needed: weights to quantize");
  if (settings.reuse && settings.statistics.empty())
    throw UserError("--reuse 1 needs --statistics PATH");
  model.state->load(settings.load);
  BoundProgram plain = quant::compile_plain(model);
  const quant::Recipe recipe = quant::recipe_of(settings.recipe);
  const quant::Statistics statistics = statistics_of(model, recipe, settings, batches);
  const std::set<std::string> left = layers_to_leave(model, recipe, statistics, settings, batches);
  BoundProgram quantized = quant::convert(model, recipe, statistics, left);
  const Quantized result{score(plain), score(quantized)};
  fmt::print("calls: f32 {:.3f} ms, quantized {:.3f} ms\n", call_time(plain, batches[0]),
             call_time(quantized, batches[0]));
  return result;
}

}  // namespace tandem::examples
