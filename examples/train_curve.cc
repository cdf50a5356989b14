// Trains one of the examples' models on batches from a file and writes the loss of every step: what
// the tests hold against PyTorch. `train_curve gpt|digits`, then options with a value each:
//   --data PATH      npz; gpt: tokens, targets i64[steps, batch, context]; digits: images
//                    f32[steps, batch, 1, 8, 8], labels i64[steps, batch]
//   --init PATH      parameters and buffers, safetensors; otherwise those of --seed N
//   --steps N        at most; all batches of the file otherwise; 0 needs no --data
//   --optimizer O    sgd or adamw                --rate X      --momentum X (sgd)
//   --decay X        weight decay                --clip X      limit of the gradients' norm
//   --vocabulary N, --layers N, --dropout P      of gpt
//   --threads N      of the team
//   --save PATH      parameters, buffers and optimizer state afterwards
// Losses go to standard output, one a line, with as many digits as tell every float from the next.
#include <fmt/format.h>
#include <tandem/tandem.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "examples/digits_net.h"
#include "examples/gpt.h"
#include "frontend/npz.h"
#include "runtime/parallel_for.h"

namespace tandem::examples {
namespace {

class Settings {
 public:
  Settings(int argc, char** argv) {
    if (argc < 2) throw UserError("train_curve gpt|digits [--option value]...");
    model = argv[1];
    for (int i = 2; i < argc; i += 2) {
      if (values_.count(argv[i]) == 0) throw UserError(fmt::format("unknown option {}", argv[i]));
      if (i + 1 >= argc) throw UserError(fmt::format("option {} needs a value", argv[i]));
      values_[argv[i]] = argv[i + 1];
    }
  }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  double number(const std::string& name) const { return std::strtod(text(name).c_str(), nullptr); }
  int64_t integer(const std::string& name) const {
    return std::strtoll(text(name).c_str(), nullptr, 10);
  }
  std::string model;

 private:
  std::map<std::string, std::string> values_{
      {"--data", ""},         {"--init", ""},     {"--seed", "1"},     {"--steps", "-1"},
      {"--optimizer", "sgd"}, {"--rate", "0.1"},  {"--momentum", "0"}, {"--decay", "0"},
      {"--clip", "0"},        {"--dropout", "0"}, {"--layers", "4"},   {"--vocabulary", "128"},
      {"--threads", "0"},     {"--save", ""}};
};

/// A model, how it makes a loss of a batch, and what a batch is called in the file.
struct Subject {
  std::unique_ptr<nn::Module> module;
  ModelFunction loss;
  std::vector<std::string> inputs;
};

Subject make_gpt(const Settings& settings) {
  GptConfig config;
  config.vocabulary = settings.integer("--vocabulary");
  config.layers = settings.integer("--layers");
  config.dropout = settings.number("--dropout");
  std::unique_ptr<Gpt> model = std::make_unique<Gpt>(config);
  const Gpt* gpt = model.get();
  return {std::move(model),
          [gpt](nn::Trace& trace, const nn::Tensors& in) {
            return nn::Tensors{gpt->loss(trace, in[0], in[1])};
          },
          {"tokens", "targets"}};
}

Subject make_digits() {
  std::unique_ptr<DigitsNet> model = std::make_unique<DigitsNet>();
  const DigitsNet* net = model.get();
  return {std::move(model),
          [net](nn::Trace& trace, const nn::Tensors& in) {
            return nn::Tensors{net->loss(trace, in[0], in[1])};
          },
          {"images", "labels"}};
}

Subject make_subject(const Settings& settings) {
  if (settings.model == "gpt") return make_gpt(settings);
  if (settings.model == "digits") return make_digits();
  throw UserError(fmt::format("model '{}' is neither gpt nor digits", settings.model));
}

std::unique_ptr<nn::Optimizer> make_optimizer(const Settings& settings) {
  const std::string& name = settings.text("--optimizer");
  const double rate = settings.number("--rate");
  const double decay = settings.number("--decay");
  std::unique_ptr<nn::Optimizer> optimizer;
  if (name == "sgd")
    optimizer = std::make_unique<nn::Sgd>(rate, settings.number("--momentum"), decay);
  else if (name == "adamw")
    optimizer = std::make_unique<nn::Adam>(nn::adamw(rate, decay));
  else
    throw UserError(fmt::format("optimizer '{}' is neither sgd nor adamw", name));
  optimizer->clip_norm = settings.number("--clip");
  return optimizer;
}

/// One tensor of the file: the batches of all steps.
struct Column {
  frontend::TensorData data;
  std::vector<int64_t> sizes;  // of one batch

  int64_t steps() const { return data.sizes[0]; }
  /// The file's memory itself: programs only read their data inputs.
  Array batch(int64_t step) const {
    const size_t bytes = data.bytes.size() / static_cast<size_t>(steps());
    std::byte* at = const_cast<std::byte*>(data.bytes.data()) + static_cast<size_t>(step) * bytes;
    return Array::borrow(at, data.dtype, sizes);
  }
};

std::vector<Column> read_columns(const frontend::TensorFile& file,
                                 const std::vector<std::string>& names) {
  std::vector<Column> columns;
  for (const std::string& name : names) {
    const frontend::TensorData& data = file.at(name);
    if (data.sizes.empty() || data.sizes[0] == 0)
      throw UserError(fmt::format("{}: '{}' holds no batch", file.path(), name));
    columns.push_back({data, {data.sizes.begin() + 1, data.sizes.end()}});
    if (columns.back().steps() != columns.front().steps())
      throw UserError(fmt::format("{}: '{}' has another number of batches than '{}'", file.path(),
                                  name, names[0]));
  }
  return columns;
}

void train(const Subject& subject, State& state, const Settings& settings) {
  const frontend::TensorFile file = frontend::read_npz(settings.text("--data"));
  const std::vector<Column> columns = read_columns(file, subject.inputs);
  std::vector<InputSpec> specs;
  for (const Column& column : columns)
    specs.push_back({column.data.name, column.data.dtype, column.sizes});
  const std::unique_ptr<nn::Optimizer> optimizer = make_optimizer(settings);
  BoundProgram program = train_step(subject.loss, state, specs, *optimizer);
  const int64_t wanted = settings.integer("--steps");
  const int64_t steps = wanted < 0 ? columns[0].steps() : std::min(wanted, columns[0].steps());
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Array> batch;
    for (const Column& column : columns) batch.push_back(column.batch(step));
    fmt::print("{:.9g}\n", *std::get<Array>(program.run(batch)[0]).data<float>());
  }
}

void run(const Settings& settings) {
  if (settings.integer("--threads") > 0)
    runtime::set_threads(static_cast<int>(settings.integer("--threads")));
  const Subject subject = make_subject(settings);
  State state = State::initial(*subject.module, static_cast<uint64_t>(settings.integer("--seed")));
  if (!settings.text("--init").empty()) state.load(settings.text("--init"));
  if (settings.integer("--steps") != 0) train(subject, state, settings);
  if (!settings.text("--save").empty()) state.save(settings.text("--save"));
}

}  // namespace
}  // namespace tandem::examples

int main(int argc, char** argv) {
  try {
    tandem::examples::run(tandem::examples::Settings(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_curve: %s\n", error.what());
    return 1;
  }
}
