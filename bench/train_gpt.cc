// The training step of the demo's model on generated data, timed: JSON lines on stdout. The first
// line says what compiling took and the losses of the first steps, by which peers prove that they
// train the same model; then either `--steps` steps are timed at once, or, with --serve, as many as
// each line of stdin says, so that a driver can let several programs take turns.
//   --dropout P   --vocabulary N   --batch N   --seed N   --losses N   --steps N   --serve
//   --save PATH   initial parameters, as safetensors
//   --profile     with --steps: then the instructions that took longest, on stderr
#include <fmt/format.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "base/progress.h"
#include "examples/gpt.h"

namespace tandem {
namespace {

struct Settings {
  double dropout = 0;
  int64_t vocabulary = 85;  // what the demo's text has
  int64_t batch = 16;
  uint64_t seed = 1;
  int64_t losses = 5;
  int64_t steps = 20;
  bool serve = false;
  bool profile = false;
  std::string save;
};

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void set_option(Settings& settings, const std::string& name, const std::string& value) {
  if (name == "--dropout")
    settings.dropout = std::atof(value.c_str());
  else if (name == "--vocabulary")
    settings.vocabulary = std::atoll(value.c_str());
  else if (name == "--batch")
    settings.batch = std::atoll(value.c_str());
  else if (name == "--seed")
    settings.seed = std::strtoull(value.c_str(), nullptr, 10);
  else if (name == "--losses")
    settings.losses = std::max(2LL, std::atoll(value.c_str()));
  else if (name == "--steps")
    settings.steps = std::max(1LL, std::atoll(value.c_str()));
  else if (name == "--save")
    settings.save = value;
  else
    throw UserError("unknown option " + name);
}

Settings parse_arguments(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--serve" || name == "--profile") {
      (name == "--serve" ? settings.serve : settings.profile) = true;
      continue;
    }
    if (i + 1 >= argc) throw UserError("option " + name + " needs a value");
    set_option(settings, name, argv[++i]);
  }
  return settings;
}

/// The same numbers as bench/gpt_data.py: Knuth's linear congruential generator, high bits.
class Tokens {
 public:
  explicit Tokens(int64_t vocabulary) : vocabulary_(static_cast<uint64_t>(vocabulary)) {}
  Array next(int64_t rows, int64_t columns) {
    const std::vector<int64_t> sizes{rows, columns};
    Array array = Array::empty(DType::i64, sizes);
    for (int64_t i = 0; i < rows * columns; ++i) array.data<int64_t>()[i] = next_token();
    return array;
  }

 private:
  int64_t next_token() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int64_t>((state_ >> 33) % vocabulary_);
  }
  uint64_t vocabulary_;
  uint64_t state_ = 1;
};

struct Timed {
  double loss;
  double ms;
};

Timed timed_step(BoundProgram& step, const std::vector<Array>& inputs) {
  const Clock::time_point start = Clock::now();
  const std::vector<runtime::Result> results = step.run(inputs);
  return {*std::get<Array>(results[0]).data<float>(), ms_since(start)};
}

std::vector<double> run_steps(BoundProgram& step, const std::vector<Array>& inputs, int64_t count) {
  std::vector<double> times;
  for (int64_t i = 0; i < count; ++i) times.push_back(timed_step(step, inputs).ms);
  return times;
}

void print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// cold_s: compiling and the first step, less the second.
void first_steps(BoundProgram& step, const std::vector<Array>& inputs, const Settings& settings,
                 Clock::time_point start) {
  const double compile_ms = ms_since(start);
  std::vector<double> losses;
  std::vector<double> times;
  for (int64_t i = 0; i < settings.losses; ++i) {
    const Timed timed = timed_step(step, inputs);
    losses.push_back(timed.loss);
    times.push_back(timed.ms);
  }
  const driver::Times& stages = step.executable().times;
  const abi::Program& program = step.executable().program();
  print(fmt::format(
      R"({{"compile_s": {:.4f}, "cold_s": {:.4f}, "first_ms": {:.3f}, "second_ms": {:.3f}, )"
      R"("passes_ms": {:.1f}, "schedule_ms": {:.1f}, "codegen_ms": {:.1f}, "instructions": {}, )"
      R"("kernels": {}, "losses": [{:.7g}]}})",
      compile_ms / 1e3, (compile_ms + times[0] - times[1]) / 1e3, times[0], times[1], stages.passes,
      stages.schedule, stages.codegen, program.instructions.size(), program.kernels.size(),
      fmt::join(losses, ", ")));
}

void serve(BoundProgram& step, const std::vector<Array>& inputs) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::vector<double> times = run_steps(step, inputs, std::atoll(line.c_str()));
    print(fmt::format(R"({{"steps_ms": [{:.3f}], "peak_MiB": {:.0f}}})", fmt::join(times, ", "),
                      peak_rss_mib()));
  }
}

void run_once(BoundProgram& step, const std::vector<Array>& inputs, int64_t count) {
  std::vector<double> times = run_steps(step, inputs, count);
  std::sort(times.begin(), times.end());
  print(fmt::format(R"({{"median_ms": {:.3f}, "best_ms": {:.3f}, "peak_MiB": {:.0f}}})",
                    times[times.size() / 2], times.front(), peak_rss_mib()));
}

void profile(BoundProgram& step, const std::vector<Array>& inputs, int64_t count) {
  runtime::LoadedProgram& loaded = step.executable().loaded();
  loaded.start_profile();
  run_steps(step, inputs, count);
  fmt::print(stderr, "{}", runtime::to_string(loaded.profile(), 30));
}

void run(const Settings& settings) {
  examples::GptConfig config;
  config.vocabulary = settings.vocabulary;
  config.dropout = settings.dropout;
  examples::Gpt model(config);
  State state = State::initial(model, settings.seed);
  if (!settings.save.empty()) state.save(settings.save);
  Tokens data(settings.vocabulary);
  const Array tokens = data.next(settings.batch, config.context);
  const Array targets = data.next(settings.batch, config.context);
  const std::vector<Array> inputs{tokens, targets};
  const std::vector<InputSpec> specs{{"tokens", DType::i64, {settings.batch, config.context}},
                                     {"targets", DType::i64, {settings.batch, config.context}}};
  nn::Adam optimizer = nn::adamw(2e-3, 0.1, 0.9, 0.99);
  optimizer.clip_norm = 1;
  const Clock::time_point start = Clock::now();
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) {
        return nn::Tensors{model.loss(trace, in[0], in[1])};
      },
      state, specs, optimizer);
  first_steps(step, inputs, settings, start);
  settings.serve ? serve(step, inputs) : run_once(step, inputs, settings.steps);
  if (settings.profile) profile(step, inputs, settings.steps);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    tandem::run(tandem::parse_arguments(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_train_gpt: %s\n", error.what());
    return 1;
  }
}
