// The digits network in 8 bits: weights that `digits --save` wrote are quantized with ranges that
// 500 training images show. Options:
//   --load PATH   weights   --data PATH   build/data/digits.npz otherwise
//   --recipe NAME  a built-in recipe, or a .toml file
//   --statistics PATH  keeps the ranges there   --reuse 1  takes them from there
//   --sensitivity 1  ranks the layers   --bound DB  leaves the worst in f32 until it holds
//   --images N    of calibration   --batch N  images a call
// The last line is `result: f32=… quantized=… seconds=… peak_MiB=…`, percent of the test images.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/progress.h"
#include "examples/digits_net.h"
#include "examples/quantization.h"

namespace tandem::examples {
namespace {

struct Settings {
  QuantizationSettings quantization;
  std::string data = "build/data/digits.npz";
  int64_t images = 500;
  int64_t batch = 50;
};

Settings parse_arguments(int argc, char** argv) {
  const std::string options =
      std::string("; options: --data --images --batch ") + kQuantizationOptions;
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) throw UserError("option " + name + " needs a value" + options);
    const std::string value = argv[i + 1];
    if (name == "--data")
      settings.data = value;
    else if (name == "--images")
      settings.images = std::max(1LL, std::atoll(value.c_str()));
    else if (name == "--batch")
      settings.batch = std::max(1LL, std::atoll(value.c_str()));
    else if (!set_quantization_option(settings.quantization, name, value))
      throw UserError("unknown option " + name + options);
  }
  return settings;
}

/// The first training images, as whole batches.
Batches calibration_batches(const Digits& digits, const Settings& settings) {
  const int64_t count =
      std::min(settings.images, static_cast<int64_t>(digits.train.size())) / settings.batch;
  if (count == 0) throw UserError("the images do not fill a batch");
  std::mt19937_64 unused;
  Batches batches;
  for (int64_t i = 0; i < count; ++i) {
    const std::span<const int64_t> indices(digits.train.data() + i * settings.batch,
                                           static_cast<size_t>(settings.batch));
    batches.push_back({image_batch(digits, indices, 0, unused)});
  }
  return batches;
}

int run(const Settings& settings) {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  const Digits digits = load_digits(settings.data);
  DigitsNet net;
  State state = State::initial(net, 1);
  const quant::Model model{
      [&](nn::Trace& trace, const nn::Tensors& in) {
        return nn::Tensors{net.logits(trace, in[0])};
      },
      &state,
      {{"images", DType::f32, {settings.batch, 1, Digits::kSide, Digits::kSide}}}};
  const Quantized result =
      quantize(model, settings.quantization, calibration_batches(digits, settings),
               [&](BoundProgram& logits) { return accuracy(logits, digits, settings.batch); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("result: f32={:.2f} quantized={:.2f} seconds={:.1f} peak_MiB={:.0f}\n",
             result.f32_score, result.score, seconds.count(), peak_rss_mib());
  return 0;
}

}  // namespace
}  // namespace tandem::examples

int main(int argc, char** argv) {
  try {
    return tandem::examples::run(tandem::examples::parse_arguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quantize_digits: %s\n", error.what());
    return 1;
  }
}
