// What a call costs beside its work: three ops on 16 elements, compiled to one kernel, called from
// C++.
#include <benchmark/benchmark.h>
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

BENCHMARK(call_program)->Repetitions(9)->ReportAggregatesOnly()->MinTime(0.05);
BENCHMARK(call_function)->Repetitions(9)->ReportAggregatesOnly()->MinTime(0.05);

}  // namespace
}  // namespace tandem
