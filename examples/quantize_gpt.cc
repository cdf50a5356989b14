// The demo's GPT in 8 bits: weights that `demo --save` wrote, of the same text. Options:
//   --load PATH   weights   --text PATH  another text than the licences of this system
//   --recipe NAME  a built-in recipe, or a .toml file
//   --statistics PATH  keeps the ranges there   --reuse 1  takes them from there
//   --sensitivity 1  ranks the layers   --bound DB  leaves the worst in f32 until it holds
//   --windows N   batches of calibration   --batch N  windows of 128 characters a call
// The last line is `result: f32=… quantized=… seconds=… peak_MiB=…`, the held-out loss in nats a
// character.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/progress.h"
#include "examples/corpus.h"
#include "examples/gpt.h"
#include "examples/quantization.h"

namespace tandem::examples {
namespace {

struct Settings {
  QuantizationSettings quantization;
  std::string text = kLicenses;
  int64_t windows = 16;
  int64_t batch = 16;
};

Settings parse_arguments(int argc, char** argv) {
  const std::string options =
      std::string("; options: --text --windows --batch ") + kQuantizationOptions;
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) throw UserError("option " + name + " needs a value" + options);
    const std::string value = argv[i + 1];
    if (name == "--text")
      settings.text = value;
    else if (name == "--windows")
      settings.windows = std::max(1LL, std::atoll(value.c_str()));
    else if (name == "--batch")
      settings.batch = std::max(1LL, std::atoll(value.c_str()));
    else if (!set_quantization_option(settings.quantization, name, value))
      throw UserError("unknown option " + name + options);
  }
  return settings;
}

std::vector<Array> arrays_of(const Batch& batch, const GptConfig& config, int64_t rows) {
  return {token_array(batch.inputs, rows, config.context),
          token_array(batch.targets, rows, config.context)};
}

Batches calibration_batches(const Corpus& corpus, const GptConfig& config,
                            const Settings& settings) {
  BatchSampler sampler(corpus.training, settings.batch, config.context, 1);
  Batches batches;
  for (int64_t i = 0; i < settings.windows; ++i)
    batches.push_back(arrays_of(sampler.next(), config, settings.batch));
  return batches;
}

/// Mean of the second result.
double held_out_loss(BoundProgram& program, const std::vector<Batch>& batches,
                     const GptConfig& config, int64_t rows) {
  double total = 0;
  for (const Batch& batch : batches)
    total += *std::get<Array>(program.run(arrays_of(batch, config, rows))[1]).data<float>();
  return total / static_cast<double>(batches.size());
}

int run(const Settings& settings) {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  const Corpus corpus = load_corpus(settings.text);
  GptConfig config;
  config.vocabulary = static_cast<int64_t>(corpus.vocabulary.size());
  Gpt gpt(config);
  State state = State::initial(gpt, 1);
  const quant::Model model{[&](nn::Trace& trace, const nn::Tensors& in) {
                             const nn::Tensor logits = gpt.logits(trace, in[0]);
                             const sym::Expr count = in[1].size(0) * in[1].size(1);
                             return nn::Tensors{
                                 logits, nn::cross_entropy(logits, ops::reshape(in[1], {count}))};
                           },
                           &state,
                           {{"tokens", DType::i64, {settings.batch, config.context}},
                            {"targets", DType::i64, {settings.batch, config.context}}}};
  const std::vector<Batch> held_out =
      evaluation_batches(corpus.held_out, settings.batch, config.context);
  const Quantized result =
      quantize(model, settings.quantization, calibration_batches(corpus, config, settings),
               [&](BoundProgram& program) {
                 return held_out_loss(program, held_out, config, settings.batch);
               });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("result: f32={:.4f} quantized={:.4f} seconds={:.1f} peak_MiB={:.0f}\n",
             result.f32_score, result.score, seconds.count(), peak_rss_mib());
  return 0;
}

}  // namespace
}  // namespace tandem::examples

int main(int argc, char** argv) {
  try {
    return tandem::examples::run(tandem::examples::parse_arguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quantize_gpt: %s\n", error.what());
    return 1;
  }
}
