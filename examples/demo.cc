// A character-level GPT, trained and sampled without leaving C++: forward, backward and optimizer
// are one compiled program. Options:
//   --text PATH   another text than the licences of this system
//   --steps N     training steps            --batch N  windows of 128 characters a step
//   --rate X      peak learning rate        --dropout P
//   --seed N      initial values and batches
//   --save PATH   parameters afterwards, as safetensors
//   --profile N   lists the N slowest instructions of the training step
// The last line is `result: loss=… seconds=… tokens_per_s=… compile_s=… peak_MiB=…`; loss is the
// held-out one, in nats a character.
#include <fmt/format.h>
#include <tandem/tandem.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/progress.h"
#include "examples/corpus.h"
#include "examples/gpt.h"

namespace tandem::examples {
namespace {

struct Settings {
  std::string text = kLicenses;
  int64_t steps = 1100;
  int64_t batch = 16;
  uint64_t seed = 1;
  double rate = 2e-3;
  double dropout = 0.1;
  std::string save;
  int64_t profile = 0;  // slowest instructions to list
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Settings parse_arguments(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (i + 1 >= argc)
      throw UserError("option " + name +
                      " needs a value; options: --text --steps --batch --rate --dropout --seed "
                      "--save --profile");
    std::string value = argv[++i];
    if (name == "--text")
      settings.text = value;
    else if (name == "--steps")
      settings.steps = std::max(1LL, std::atoll(value.c_str()));
    else if (name == "--seed")
      settings.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--batch")
      settings.batch = std::max(1LL, std::atoll(value.c_str()));
    else if (name == "--rate")
      settings.rate = std::strtod(value.c_str(), nullptr);
    else if (name == "--dropout")
      settings.dropout = std::strtod(value.c_str(), nullptr);
    else if (name == "--save")
      settings.save = value;
    else if (name == "--profile")
      settings.profile = std::atoll(value.c_str());
    else
      throw UserError("unknown option " + name +
                      "; options: --text --steps --batch --rate --dropout --seed --save --profile");
  }
  return settings;
}

double loss_of(BoundProgram& program, const Batch& batch, const GptConfig& config, int64_t rows) {
  std::vector<Array> inputs{token_array(batch.inputs, rows, config.context),
                            token_array(batch.targets, rows, config.context)};
  return *std::get<Array>(program.run(inputs)[0]).data<float>();
}

double held_out_loss(BoundProgram& program, const std::vector<Batch>& batches,
                     const GptConfig& config, int64_t rows) {
  double total = 0;
  for (const Batch& batch : batches) total += loss_of(program, batch, config, rows);
  return total / static_cast<double>(batches.size());
}

/// Warm-up, then a cosine down to a tenth.
double learning_rate(int64_t step, int64_t steps, double peak) {
  double warm = std::min(1.0, static_cast<double>(step + 1) / 50);
  double progress = static_cast<double>(step) / static_cast<double>(steps);
  return peak * warm * (0.1 + 0.45 * (1 + std::cos(3.14159265358979 * progress)));
}

/// Draws one character at a time from the model's distribution.
std::string sample(BoundProgram& logits, const Corpus& corpus, const GptConfig& config,
                   const std::string& prompt, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> text;
  for (char c : prompt) text.push_back(static_cast<int64_t>(corpus.vocabulary.find(c)));
  for (int64_t i = 0; i < count; ++i) {
    int64_t length = std::min<int64_t>(static_cast<int64_t>(text.size()), config.context);
    std::vector<int64_t> window(static_cast<size_t>(config.context), 0);
    std::copy(text.end() - length, text.end(), window.begin());
    std::vector<Array> inputs{token_array(window, 1, config.context)};
    Array out = std::get<Array>(logits.run(inputs)[0]);
    const float* row = out.data<float>() + (length - 1) * config.vocabulary;
    std::vector<double> weights;
    for (int64_t v = 0; v < config.vocabulary; ++v) weights.push_back(std::exp(row[v] / 0.8));
    text.push_back(std::discrete_distribution<int64_t>(weights.begin(), weights.end())(random));
  }
  return corpus.text(text);
}

void train(BoundProgram& step, BoundProgram& evaluate, const Corpus& corpus,
           const GptConfig& config, const Settings& settings) {
  BatchSampler sampler(corpus.training, settings.batch, config.context, settings.seed);
  std::vector<Batch> glimpse =
      evaluation_batches(corpus.held_out, settings.batch, config.context, 2);
  Progress progress("training", settings.steps);
  double smooth = 0;
  double held_out = 0;
  for (int64_t i = 0; i < settings.steps; ++i) {
    step.learning_rate = learning_rate(i, settings.steps, settings.rate);
    double loss = loss_of(step, sampler.next(), config, settings.batch);
    smooth = i == 0 ? loss : 0.95 * smooth + 0.05 * loss;
    if (i % 100 == 0) held_out = held_out_loss(evaluate, glimpse, config, settings.batch);
    double rate =
        static_cast<double>((i + 1) * settings.batch * config.context) / progress.seconds();
    progress.update(i + 1, fmt::format("loss {:.3f}, held out {:.3f}, {:.0f} tokens/s", smooth,
                                       held_out, rate));
  }
}

int run(const Settings& settings) {
  Clock::time_point start = Clock::now();
  Corpus corpus = load_corpus(settings.text);
  GptConfig config;
  config.vocabulary = static_cast<int64_t>(corpus.vocabulary.size());
  config.dropout = settings.dropout;
  Gpt model(config);
  State state = State::initial(model, settings.seed);
  std::printf(
      "text: %lld files, %lld paragraphs, %zu characters to train on, %zu held out, %zu distinct\n",
      static_cast<long long>(corpus.files), static_cast<long long>(corpus.paragraphs),
      corpus.training.size(), corpus.held_out.size(), corpus.vocabulary.size());
  std::printf("model: %lld parameters, context %lld\n",
              static_cast<long long>(model.parameter_count()),
              static_cast<long long>(config.context));
  Clock::time_point compiling = Clock::now();
  nn::Adam optimizer = nn::adamw(settings.rate, 0.1, 0.9, 0.99);
  optimizer.clip_norm = 1;
  std::vector<InputSpec> specs{{"tokens", DType::i64, {settings.batch, config.context}},
                               {"targets", DType::i64, {settings.batch, config.context}}};
  ModelFunction loss = [&](nn::Trace& trace, const nn::Tensors& in) {
    return nn::Tensors{model.loss(trace, in[0], in[1])};
  };
  ModelFunction scores = [&](nn::Trace& trace, const nn::Tensors& in) {
    return nn::Tensors{model.logits(trace, in[0])};
  };
  BoundProgram step = train_step(loss, state, specs, optimizer);
  double compile_seconds = seconds_since(compiling);
  BoundProgram evaluate = compile_forward(loss, state, specs);
  BoundProgram logits =
      compile_forward(scores, state, {{"tokens", DType::i64, {1, config.context}}});
  std::printf("compiled: training step of %zu instructions, %zu kernels in %.2f s\n",
              step.executable().program().instructions.size(),
              step.executable().program().kernels.size(), compile_seconds);
  if (settings.profile > 0) step.executable().loaded().start_profile();
  Clock::time_point training = Clock::now();
  train(step, evaluate, corpus, config, settings);
  double training_seconds = seconds_since(training);
  double final_loss =
      held_out_loss(evaluate, evaluation_batches(corpus.held_out, settings.batch, config.context),
                    config, settings.batch);
  std::printf("\nsample:\n%s\n\n",
              sample(logits, corpus, config, "The ", 400, settings.seed).c_str());
  if (settings.profile > 0)
    std::fputs(runtime::to_string(step.executable().loaded().profile(),
                                  static_cast<size_t>(settings.profile))
                   .c_str(),
               stdout);
  if (!settings.save.empty()) state.weights_of(model).save(settings.save);
  double rate =
      static_cast<double>(settings.steps * settings.batch * config.context) / training_seconds;
  std::printf("result: loss=%.4f seconds=%.1f tokens_per_s=%.0f compile_s=%.2f peak_MiB=%.0f\n",
              final_loss, seconds_since(start), rate, compile_seconds, peak_rss_mib());
  return 0;
}

}  // namespace
}  // namespace tandem::examples

int main(int argc, char** argv) {
  try {
    return tandem::examples::run(tandem::examples::parse_arguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "demo: %s\n", error.what());
    return 1;
  }
}
