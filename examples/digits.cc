// A convolutional network with batch norm learns handwritten digits; forward, backward and
// optimizer are one compiled program, running statistics included. Options:
//   --data PATH   build/data/digits.npz otherwise (scripts/export_digits.py writes it)
//   --epochs N    passes over the training images   --batch N  images a step
//   --rate X      peak learning rate                --seed N   initial values, order and shifts
//   --save PATH   parameters and statistics afterwards, as safetensors
// The last line is `result: accuracy=… seconds=… images_per_s=… compile_s=… peak_MiB=…`; accuracy
// is the share of the test images, in percent.
#include <fmt/format.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/progress.h"
#include "examples/digits_net.h"

namespace tandem::examples {
namespace {

struct Settings {
  std::string data = "build/data/digits.npz";
  int64_t epochs = 40;
  int64_t batch = 64;
  uint64_t seed = 1;
  double rate = 1e-2;
  std::string save;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool set_option(Settings& settings, const std::string& name, const char* value) {
  if (name == "--data")
    settings.data = value;
  else if (name == "--epochs")
    settings.epochs = std::max(1LL, std::atoll(value));
  else if (name == "--batch")
    settings.batch = std::max(1LL, std::atoll(value));
  else if (name == "--seed")
    settings.seed = std::strtoull(value, nullptr, 10);
  else if (name == "--rate")
    settings.rate = std::strtod(value, nullptr);
  else if (name == "--save")
    settings.save = value;
  else
    return false;
  return true;
}

Settings parse_arguments(int argc, char** argv) {
  const std::string options = "; options: --data --epochs --batch --rate --seed --save";
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) throw UserError("option " + name + " needs a value" + options);
    if (!set_option(settings, name, argv[i + 1]))
      throw UserError("unknown option " + name + options);
  }
  return settings;
}

/// Steps of an epoch. The images that do not fill a batch wait for an epoch in another order.
int64_t steps_of(const Digits& digits, const Settings& settings) {
  const int64_t steps = static_cast<int64_t>(digits.train.size()) / settings.batch;
  if (steps == 0)
    throw UserError(fmt::format("{} training images do not fill a batch of {}", digits.train.size(),
                                settings.batch));
  return steps;
}

/// Warm-up over the first epoch, then a cosine down to nothing.
double learning_rate(double progress, const Settings& settings) {
  const double warm = std::min(1.0, progress * static_cast<double>(settings.epochs) + 0.05);
  return settings.rate * warm * 0.5 * (1 + std::cos(3.14159265358979 * progress));
}

void train(BoundProgram& step, BoundProgram& logits, const Digits& digits,
           const Settings& settings) {
  std::mt19937_64 random(settings.seed);
  std::vector<int64_t> order = digits.train;
  const int64_t steps = steps_of(digits, settings);
  const int64_t total = steps * settings.epochs;
  Progress progress("training", total);
  double smooth = 0;
  double now = 0;
  for (int64_t i = 0; i < total; ++i) {
    if (i % steps == 0) std::shuffle(order.begin(), order.end(), random);
    const std::span<const int64_t> indices(order.data() + i % steps * settings.batch,
                                           static_cast<size_t>(settings.batch));
    const std::vector<Array> inputs{image_batch(digits, indices, 1, random),
                                    label_batch(digits, indices)};
    step.learning_rate =
        learning_rate(static_cast<double>(i) / static_cast<double>(total), settings);
    const double loss = *std::get<Array>(step.run(inputs)[0]).data<float>();
    smooth = i == 0 ? loss : 0.95 * smooth + 0.05 * loss;
    if ((i + 1) % steps == 0) now = accuracy(logits, digits, settings.batch);
    progress.update(i + 1, fmt::format("loss {:.4f}, test accuracy {:.2f} %", smooth, now));
  }
}

int run(const Settings& settings) {
  const Clock::time_point start = Clock::now();
  const Digits digits = load_digits(settings.data);
  DigitsNet net;
  State state = State::initial(net, settings.seed);
  fmt::print("digits: {} images to train on, {} to test; model: {} parameters and statistics\n",
             digits.train.size(), digits.test.size(), net.parameter_count());
  const InputSpec images{"images", DType::f32, {settings.batch, 1, Digits::kSide, Digits::kSide}};
  const InputSpec labels{"labels", DType::i64, {settings.batch}};
  const ModelFunction loss = [&](nn::Trace& trace, const nn::Tensors& in) {
    return nn::Tensors{net.loss(trace, in[0], in[1])};
  };
  const ModelFunction scores = [&](nn::Trace& trace, const nn::Tensors& in) {
    return nn::Tensors{net.logits(trace, in[0])};
  };
  BoundProgram step = train_step(loss, state, {images, labels}, nn::adamw(settings.rate, 0.05));
  const double compile_seconds = seconds_since(start);
  BoundProgram logits = compile_forward(scores, state, {images});
  fmt::print("compiled: training step of {} instructions, {} kernels in {:.2f} s\n",
             step.executable().program().instructions.size(),
             step.executable().program().kernels.size(), compile_seconds);
  const Clock::time_point training = Clock::now();
  train(step, logits, digits, settings);
  const double rate =
      static_cast<double>(settings.epochs * steps_of(digits, settings) * settings.batch) /
      seconds_since(training);
  const double final_accuracy = accuracy(logits, digits, settings.batch);
  if (!settings.save.empty()) state.weights_of(net).save(settings.save);
  fmt::print(
      "result: accuracy={:.2f} seconds={:.1f} images_per_s={:.0f} compile_s={:.2f} "
      "peak_MiB={:.0f}\n",
      final_accuracy, seconds_since(start), rate, compile_seconds, peak_rss_mib());
  return 0;
}

}  // namespace
}  // namespace tandem::examples

int main(int argc, char** argv) {
  try {
    return tandem::examples::run(tandem::examples::parse_arguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 1;
  }
}
