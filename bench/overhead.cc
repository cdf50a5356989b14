// What a call costs beside its work: few ops on 16 elements, compiled to one kernel or two, called
// from C++.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <tandem/tandem.h>

#include "driver/face.h"

namespace tandem {
namespace {

Array sixteen(float value) {
  const std::vector<int64_t> sizes{16};
  Array array = Array::empty(DType::f32, sizes);
  for (int64_t i = 0; i < 16; ++i) array.data<float>()[i] = value;
  return array;
}

/// A program from text, called with arguments that are there.
void call_program(benchmark::State& state) {
  const std::unique_ptr<driver::Executable> executable = driver::compile_text(R"(
graph @three(%x: f32[16], %y: f32[16]) {
  %0 = aten.add.Tensor(%x, %y)
  %1 = aten.mul.Tensor(%0, %x)
  %2 = aten.relu(%1)
  return %2
}
)",
                                                                              {});
  const std::vector<runtime::Argument> arguments{sixteen(1), sixteen(2)};
  for ([[maybe_unused]] const auto& _ : state) benchmark::DoNotOptimize(executable->run(arguments));
}

/// A traced function, called as users of the C++ API do.
void call_function(benchmark::State& state) {
  State values;
  const ModelFunction model = [](nn::Trace&, const nn::Tensors& in) {
    return nn::Tensors{nn::relu((in[0] + in[1]) * in[0])};
  };
  BoundProgram program =
      compile_forward(model, values, {{"x", DType::f32, {16}}, {"y", DType::f32, {16}}});
  const std::vector<Array> arguments{sixteen(1), sixteen(2)};
  for ([[maybe_unused]] const auto& _ : state) benchmark::DoNotOptimize(program.run(arguments));
}

/// Ten tensors: one is written, and one thing returned is a view of it.
nn::Tensors ten_tensors(nn::Trace& trace, const nn::Tensors& in) {
  nn::Tensor sum = in[0] * in[1];
  for (size_t i = 2; i < 9; ++i) sum = sum + in[i];
  ir::Builder& builder = trace.builder();
  builder.stamp().no_grad = true;
  nn::Tensor running = ops::call(builder, "aten.mul_.Scalar", {in[9], 0.5});
  builder.stamp().no_grad = false;
  return {sum, ops::call(builder, "aten.view", {running, ir::Ints{4, 4}})};
}

AotFunction ten_function(bool shares) {
  std::vector<AotInput> inputs;
  for (int i = 0; i < 10; ++i)
    inputs.push_back({fmt::format("x{}", i), DType::f32, {16}, /*requires_grad=*/i < 9});
  AotOptions options;
  options.share_outputs = shares;
  return aot_function(ten_tensors, inputs, options);
}

/// Forward of a training graph; the signature's views are taken after it, where outputs share.
void call_training(benchmark::State& state) {
  AotFunction function = ten_function(state.range(0) != 0);
  std::vector<Array> own;
  for (int i = 0; i < 10; ++i) own.push_back(sixteen(1));
  for ([[maybe_unused]] const auto& _ : state) benchmark::DoNotOptimize(function.forward(own));
}

/// The same, and its backward.
void call_training_step(benchmark::State& state) {
  AotFunction function = ten_function(true);
  std::vector<Array> own;
  for (int i = 0; i < 10; ++i) own.push_back(sixteen(1));
  const std::vector<Array> tangents{sixteen(1)};
  for ([[maybe_unused]] const auto& _ : state) {
    AotFunction::Forward call = function.forward(own);
    benchmark::DoNotOptimize(function.backward(call.saved, tangents));
  }
}

BENCHMARK(call_training)->Arg(0)->Arg(1)->Repetitions(9)->ReportAggregatesOnly()->MinTime(0.05);
BENCHMARK(call_training_step)->Repetitions(9)->ReportAggregatesOnly()->MinTime(0.05);
BENCHMARK(call_program)->Repetitions(9)->ReportAggregatesOnly()->MinTime(0.05);
BENCHMARK(call_function)->Repetitions(9)->ReportAggregatesOnly()->MinTime(0.05);

}  // namespace
}  // namespace tandem
