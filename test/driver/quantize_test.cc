// Quantization from model to program: results stay near f32, statistics are obeyed and belong to
// their model, nothing depends on threads, nothing is left half done, and mistakes are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include <tandem/quant.h>
#include <tandem/tandem.h>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "quant/convert.h"
#include "runtime/parallel_for.h"

namespace tandem::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Batches = std::vector<std::vector<Array>>;

Array wave(const std::vector<int64_t>& sizes, double step) {
  Array array = Array::empty(DType::f32, sizes);
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = static_cast<float>(std::sin(step * static_cast<double>(i) + 1));
  return array;
}

/// Images [2, 3, 12, 12] to 5 numbers, with what post-training quantization meets: batch norm, an
/// addition to a convolution, pooling, a flattened image, linear layers.
class Net : public nn::Module {
 public:
  nn::Tensor forward(nn::Trace& trace, nn::Tensor x) const {
    const nn::Tensor first = nn::relu(norm1_.forward(trace, conv1_.forward(trace, x)));
    nn::Tensor y = norm2_.forward(trace, conv2_.forward(trace, first)) + first;
    y = nn::max_pool2d(nn::relu(y), 2);
    y = ops::reshape(y, {y.size(0), y.size(1) * y.size(2) * y.size(3)});
    return head_.forward(trace, nn::gelu(hidden_.forward(trace, y), false));
  }

 private:
  nn::Conv2d conv1_{*this, "conv1", {.in = 3, .out = 16, .kernel = 3, .padding = 1}};
  nn::BatchNorm2d norm1_{*this, "norm1", 16};
  nn::Conv2d conv2_{
      *this, "conv2", {.in = 16, .out = 16, .kernel = 3, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm2_{*this, "norm2", 16};
  nn::Linear hidden_{*this, "hidden", 16 * 6 * 6, 32};
  nn::Linear head_{*this, "head", 32, 5};
};

class Quantize : public ::testing::Test {
 protected:
  Quantize() : state_(State::initial(net_, 3)) {
    for (const std::pair<const std::string, Array>& entry : state_.arrays()) {
      const bool is_norm = entry.first.starts_with("norm");  // statistics as after training
      for (int64_t i = 0; is_norm && i < entry.second.numel(); ++i)
        entry.second.data<float>()[i] =
            0.75F + 0.5F * static_cast<float>(std::sin(static_cast<double>(i) + 7));
    }
    model_ = {[this](nn::Trace& trace, const nn::Tensors& in) {
                return nn::Tensors{net_.forward(trace, in[0])};
              },
              &state_,
              {{"x", DType::f32, {2, 3, 12, 12}}}};
    for (int i = 0; i < 4; ++i) batches_.push_back({wave({2, 3, 12, 12}, 0.37 + 0.11 * i)});
  }

  Statistics calibrated(const Recipe& recipe) {
    return calibrate(model_, recipe, source_of(batches_));
  }

  std::vector<float> results(BoundProgram program) {
    std::vector<float> values;
    for (const std::vector<Array>& batch : batches_) {
      const Array result = std::get<Array>(program.run(batch)[0]).contiguous();
      values.insert(values.end(), result.data<float>(), result.data<float>() + result.numel());
    }
    return values;
  }

  std::vector<float> f32_results() {
    return results(compile_forward(model_.function, state_, model_.inputs, {.freeze = true}));
  }

  std::vector<float> quantized_results(const Recipe& recipe) {
    return results(convert(model_, recipe, calibrated(recipe)));
  }

  /// In dB.
  static double sqnr(const std::vector<float>& wanted, const std::vector<float>& got) {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      signal += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
      noise += std::pow(static_cast<double>(wanted[i]) - static_cast<double>(got[i]), 2);
    }
    return 10 * std::log10(signal / noise);
  }

  std::string error_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  Net net_;
  State state_;
  Model model_;
  Batches batches_;
};

TEST_F(Quantize, LayersAreFoundBehindFoldedNorms) {
  const Annotated annotated = annotate(model_, recipe_named("x86_default"));
  std::vector<std::string> layers;
  for (const Layer& layer : annotated.annotation.layers)
    layers.push_back(layer.name + " " + layer.rule);
  EXPECT_THAT(layers, ElementsAre("conv1 convolution_activation", "conv2 convolution_add_relu",
                                  "max_pool2d#1 pool", "reshape#1 reshape",
                                  "hidden linear_activation", "head linear"));
}

TEST_F(Quantize, ResultsStayNearF32) {
  const std::vector<float> wanted = f32_results();
  EXPECT_GT(sqnr(wanted, quantized_results(recipe_named("x86_default"))), 30);
  EXPECT_GT(sqnr(wanted, quantized_results(recipe_named("x86_dynamic"))), 35);
  EXPECT_GT(sqnr(wanted, quantized_results(recipe_named("weight_only_int8"))), 35);
  EXPECT_GT(sqnr(wanted, quantized_results(recipe_named("weight_only_int4"))), 15);
}

TEST_F(Quantize, EveryObserverCalibrates) {
  const std::vector<float> wanted = f32_results();
  for (const ObserverKind kind : {ObserverKind::min_max, ObserverKind::moving_average,
                                  ObserverKind::histogram, ObserverKind::percentile}) {
    Recipe recipe = recipe_named("x86_default");
    recipe.specs.at("activation").observer = kind;
    EXPECT_GT(sqnr(wanted, quantized_results(recipe)), 25) << name_of(kind);
  }
}

TEST_F(Quantize, StatisticsDoNotDependOnThreads) {
  const Recipe recipe = recipe_named("x86_default");
  const std::string wanted = to_text(calibrated(recipe));
  for (const int threads : {1, 3, 8}) {
    runtime::set_threads(threads);
    EXPECT_EQ(to_text(calibrated(recipe)), wanted) << threads;
  }
  runtime::set_threads(0);
}

TEST_F(Quantize, EditedStatisticsAreObeyed) {
  const Recipe recipe = recipe_named("x86_default");
  Statistics statistics = calibrated(recipe);
  const std::string path = testing::TempDir() + "quantize_test_ranges.toml";
  statistics.groups.at("head.input").range = {{-1}, {3}};
  save(statistics, path);
  const Statistics edited = load(path);
  EXPECT_THAT(converted_text(model_, recipe, edited),
              HasSubstr(", 0.01568627450980392, 64, 0, 255, u8)"));
  EXPECT_NE(results(convert(model_, recipe, edited)), quantized_results(recipe));
  std::filesystem::remove(path);
}

TEST_F(Quantize, AChangedModelIsRefused) {
  const Recipe recipe = recipe_named("x86_default");
  const Statistics statistics = calibrated(recipe);
  state_.at("conv2.weight").data<float>()[5] += 1e-3F;
  EXPECT_THAT(error_of([&] { convert(model_, recipe, statistics); }),
              HasSubstr("the statistics are of another model"));
  state_.at("conv2.weight").data<float>()[5] -= 1e-3F;
  Recipe other = recipe;
  other.specs.at("activation").quant_max = 127;
  EXPECT_THAT(error_of([&] { convert(model_, other, statistics); }),
              HasSubstr("the statistics are of another recipe"));
}

TEST_F(Quantize, GroupsWithoutStatisticsAreListed) {
  const Recipe recipe = recipe_named("x86_default");
  Statistics statistics = calibrated(recipe);
  statistics.groups.erase("head.input");
  statistics.groups.erase("conv1.weight");
  statistics.groups.at("head.weight").range = {{-1}, {1}};
  const std::string error = error_of([&] { convert(model_, recipe, statistics); });
  EXPECT_THAT(error, HasSubstr("statistics have no group 'conv1.weight'"));
  EXPECT_THAT(error, HasSubstr("statistics have no group 'head.input'"));
  EXPECT_THAT(error, HasSubstr("group 'head.weight' has 5 scales, its statistics have 1"));
}

TEST_F(Quantize, WithoutBatchesCalibrationIsAnError) {
  batches_.clear();
  EXPECT_THAT(error_of([&] { calibrated(recipe_named("x86_default")); }),
              HasSubstr("group 'conv1.input' saw no value"));
}

TEST_F(Quantize, NaNNamesItsGroup) {
  batches_[1][0].data<float>()[7] = std::nanf("");
  EXPECT_THAT(error_of([&] { calibrated(recipe_named("x86_default")); }),
              HasSubstr("[calibrate] group 'conv1.input': a value is NaN"));
}

TEST_F(Quantize, InterruptedCalibrationLeavesNothing) {
  const std::string path = testing::TempDir() + "quantize_test_interrupted.toml";
  struct Stop {};
  CalibrateOptions options;
  int64_t last = 0;
  options.progress = [&](int64_t batches) {
    last = batches;
    if (batches == 2) throw Stop();
  };
  EXPECT_THROW(
      save(calibrate(model_, recipe_named("x86_default"), source_of(batches_), options), path),
      Stop);
  EXPECT_EQ(last, 2);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(error_of([&] { save(Statistics(), testing::TempDir() + "no/such/folder/x.toml"); }),
              HasSubstr("no/such/folder"));
}

TEST_F(Quantize, LayersThatAreLeftKeepTheirBits) {
  const Recipe recipe = recipe_named("x86_default");
  const Statistics statistics = calibrated(recipe);
  const std::set<std::string> all{"conv1", "conv2", "hidden", "head"};
  const std::string text = converted_text(model_, recipe, statistics, all);
  EXPECT_EQ(text.find("quantize_per"), std::string::npos) << text;
  EXPECT_THAT(error_of([&] { convert(model_, recipe, statistics, {"conv9"}); }),
              HasSubstr("there is no layer 'conv9'"));
}

TEST_F(Quantize, ExceptionsOfTheRecipeHold) {
  Recipe recipe = recipe_named("x86_default");
  recipe.specs["narrow"] = recipe.specs.at("activation");
  recipe.specs.at("narrow").quant_max = 15;
  recipe.layers["conv2"].quantize = false;
  recipe.layers["head"].specs["input"] = "narrow";
  recipe.ops["aten.max_pool2d"].quantize = false;
  const std::string text = converted_text(model_, recipe, calibrated(recipe));
  EXPECT_EQ(text.find("conv2.weight.scale"), std::string::npos) << text;
  EXPECT_THAT(text, HasSubstr(", 0, 15, u8)"));
}

/// Images to twice their sides.
class Growing : public nn::Module {
 public:
  nn::Tensor forward(nn::Trace& trace, nn::Tensor x) const {
    const std::vector<int64_t> two{2, 2}, one{1, 1};
    return ops::call(trace.builder(), "aten.convolution",
                     {x, trace(weight_), nn::Tensor(), two, one, one, true, one, 1});
  }

 private:
  nn::Parameter weight_{*this, "up.weight", {3, 6, 3, 3}, nn::Init::uniform(0.3)};
};

TEST_F(Quantize, ATransposedConvolutionHasItsChannelsAlongAxis1) {
  const Growing net;
  State state = State::initial(net, 3);
  model_.state = &state;
  model_.function = [&net](nn::Trace& trace, const nn::Tensors& in) {
    return nn::Tensors{net.forward(trace, in[0])};
  };
  Recipe recipe = recipe_named("x86_default");
  EXPECT_THAT(error_of([&] { calibrated(recipe); }), HasSubstr("lie along axis 1"));
  recipe.specs.at("weight").axis = 1;
  const std::string text = converted_text(model_, recipe, calibrated(recipe));
  EXPECT_THAT(text, HasSubstr("dequantize_per_channel"));
  const std::vector<float> wanted =
      results(compile_forward(model_.function, state, model_.inputs, {.freeze = true}));
  EXPECT_GT(sqnr(wanted, quantized_results(recipe)), 35);
}

TEST_F(Quantize, StatisticsServeEveryBatchSize) {
  const Recipe recipe = recipe_named("x86_default");
  const Statistics statistics = calibrated(recipe);
  Model one = model_;
  one.inputs[0].sizes[0] = 1;
  BoundProgram program = convert(one, recipe, statistics);
  const std::vector<float> both = results(convert(model_, recipe, statistics));
  const Array first = Array::empty(DType::f32, std::vector<int64_t>{1, 3, 12, 12});
  std::copy_n(batches_[0][0].data<float>(), first.numel(), first.data<float>());
  const std::vector<Array> inputs{first};
  const Array result = std::get<Array>(program.run(inputs)[0]).contiguous();
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_NEAR(result.data<float>()[i], both[static_cast<size_t>(i)], 1e-5);
}

TEST_F(Quantize, WeightsNeedNoBatches) {
  const Recipe recipe = recipe_named("weight_only_int8");
  const Statistics statistics = calibrated(recipe);
  batches_.clear();
  EXPECT_EQ(to_text(calibrated(recipe)), to_text(statistics));
}

TEST_F(Quantize, NamesOfARecipeThatAreNoneAreTold) {
  Recipe recipe = recipe_named("x86_dynamic");
  recipe.rules[0].inputs["weights"] = "weight";
  recipe.rules[0].chain[0].emplace_back("aten.liner");
  recipe.ops["aten.matmull"].quantize = false;
  const std::string error = error_of([&] { annotate(model_, recipe); });
  EXPECT_THAT(error, HasSubstr("[aten.linear] rule 'linear': there is no operand 'weights'"));
  EXPECT_THAT(error, HasSubstr("[aten.liner] rule 'linear' names it"));
  EXPECT_THAT(error, HasSubstr("[aten.matmull] the recipe excepts it"));
  recipe = recipe_named("x86_dynamic");
  recipe.layers["haed"].quantize = false;
  EXPECT_THAT(annotate(model_, recipe).annotation.notes,
              ElementsAre("no layer is named 'haed', which the recipe excepts"));
}

TEST_F(Quantize, AModelWithoutLayersIsAnError) {
  model_.function = [](nn::Trace&, const nn::Tensors& in) { return nn::Tensors{nn::relu(in[0])}; };
  EXPECT_THAT(error_of([&] { calibrated(recipe_named("x86_default")); }),
              HasSubstr("recipe 'x86_default' finds no layer"));
}

TEST_F(Quantize, AStoredModelGivesTheSameBits) {
  for (const std::string_view name : recipe_names()) {
    SCOPED_TRACE(name);
    const Recipe recipe = recipe_named(name);
    const Statistics statistics = calibrated(recipe);
    const StoredModel made = stored(model_, recipe, statistics);
    for (const std::pair<const std::string, Array>& tensor : made.tensors)
      EXPECT_TRUE(tensor.second.rank() != 2 || tensor.second.dtype() == DType::i8 ||
                  tensor.first.ends_with(".scale") || name == "weight_only_int4")
          << tensor.first;
    Model read{{}, nullptr, model_.inputs, made.text};
    State state;
    const std::unique_ptr<ir::Module> module = ir::parse_module(made.text, ops::op_table());
    for (const ir::Value* input : module->graphs()[0]->inputs())
      if (input->constant)
        state.set(input->name,
                  made.tensors.at(input->target.empty() ? input->name : input->target));
    read.state = &state;
    EXPECT_EQ(results(compile_plain(read)), results(convert(model_, recipe, statistics)));
  }
}

TEST_F(Quantize, AModelMayBeAText) {
  const std::string text =
      "graph @g(%w: f32[5, 16] {param \"head.weight\"}, %x: f32[s0, 16], %b: f32[5] {param "
      "\"head.bias\"}) where s0 in [1, 64] {\n  %0 = aten.linear(%x, %w, %b)\n  return %0\n}";
  State state;
  state.set("w", wave({5, 16}, 0.3));
  state.set("b", wave({5}, 0.7));
  Model model{{}, &state, {{"x", DType::f32, {2, 16}}}, text};
  const Recipe recipe = recipe_named("x86_default");
  const Batches batches{{wave({3, 16}, 0.2)}, {wave({7, 16}, 0.5)}};  // any number of rows
  const Statistics statistics = calibrate(model, recipe, source_of(batches));
  BoundProgram plain = compile_plain(model), quantized = convert(model, recipe, statistics);
  for (const std::vector<Array>& batch : batches) {
    const Array wanted = std::get<Array>(plain.run(batch)[0]).contiguous();
    const Array got = std::get<Array>(quantized.run(batch)[0]).contiguous();
    for (int64_t i = 0; i < wanted.numel(); ++i)
      EXPECT_NEAR(got.data<float>()[i], wanted.data<float>()[i], 0.1);
  }
  model.text += "\n" + text;
  EXPECT_THAT(error_of([&] { annotate(model, recipe); }), HasSubstr("@g"));
  model.text =
      "graph @g(%x: f32[2, 16], %w: f32[16] {buffer \"w\"}) {\n  %0 = aten.mul_.Tensor(%w, "
      "%w)\n  %1 = aten.add.Tensor(%x, %0)\n  return %1\n}";
  EXPECT_THAT(error_of([&] { annotate(model, recipe); }), HasSubstr("%w is no constant"));
}

TEST_F(Quantize, SensitivityRanksAndReachesItsBound) {
  Recipe recipe = recipe_named("x86_default");
  recipe.specs["coarse"] = recipe.specs.at("activation");
  recipe.specs.at("coarse").quant_max = 3;
  recipe.layers["hidden"].specs["input"] = "coarse";  // by far the worst
  const Statistics statistics = calibrated(recipe);
  const Sensitivity plain = sensitivity(model_, recipe, statistics, batches_);
  ASSERT_EQ(plain.layers.size(), 4U);
  EXPECT_EQ(plain.layers[0].layer, "hidden");
  EXPECT_TRUE(plain.left.empty());
  SensitivityOptions options;
  options.bound = plain.sqnr + 10;
  const Sensitivity bound = sensitivity(model_, recipe, statistics, batches_, options);
  EXPECT_GE(bound.sqnr, *options.bound);
  EXPECT_THAT(bound.left, ElementsAre("hidden"));
  EXPECT_THAT(to_string(bound), HasSubstr("hidden  (left in f32)"));
  const std::vector<float> got = results(convert(model_, recipe, statistics, bound.left));
  EXPECT_NEAR(sqnr(f32_results(), got), bound.sqnr, 1e-6);
}

}  // namespace
}  // namespace tandem::quant
