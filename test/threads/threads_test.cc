// Ten threads compile and run at once, by every door of the C++ interface, equal programs and
// different ones. What each gets must be, to the bit, what one thread alone gets afterwards; the
// crowd comes first, so that it also meets all that is made at its first use. The tsan preset runs
// this under ThreadSanitizer.
#include <gtest/gtest.h>
#include <tandem/tandem.h>

#include <filesystem>
#include <latch>
#include <span>
#include <thread>

#include "base/flags.h"
#include "driver/face.h"
#include "driver/graph_function.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem {
namespace {

using driver::FunctionOptions;
using driver::GraphFunction;
using runtime::Result;
using Numbers = std::vector<float>;

constexpr int kThreads = 10;
constexpr int kVariants = 3;  // so that each program is compiled by several threads

Array input(int64_t rows, int64_t columns) {
  Array array = Array::empty(DType::f32, std::vector{rows, columns});
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = static_cast<float>((i * 37 + 11) % 101) / 97.0F;
  return array;
}

void append(Numbers& numbers, const Result& result) {
  const Array* array = std::get_if<Array>(&result);
  if (array == nullptr) return;
  const Array plain = array->contiguous();
  numbers.insert(numbers.end(), plain.data<float>(), plain.data<float>() + plain.numel());
}

Numbers numbers_of(std::span<const Result> results) {
  Numbers numbers;
  for (const Result& result : results) append(numbers, result);
  return numbers;
}

std::string softmax_text(int variant) {
  return "graph @f(%x: f32[16, " + std::to_string(8 + variant) + "] {input grad}) {\n" +
         "  %0 = aten.mul.Tensor(%x, %x)\n  %1 = aten.softmax.int(%0, -1)\n  return %1\n}\n";
}

// --- the doors --------------------------------------------------------------------------------

Numbers compiled(int variant, bool interpret) {
  driver::Options options;
  options.interpret = interpret;
  options.always_parallel = true;
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(softmax_text(variant), ops::op_table());
  const std::unique_ptr<driver::Executable> executable =
      driver::compile(*module->graphs()[0], options);
  return numbers_of(executable->run(std::vector<runtime::Argument>{input(16, 8 + variant)}));
}

Numbers machine_code(int variant) { return compiled(variant, false); }
Numbers interpreted(int variant) { return compiled(variant, true); }

Numbers text(int variant) {
  driver::Options options;
  options.gradients = driver::Gradients::tangents;
  const std::unique_ptr<driver::Executable> executable =
      driver::compile_text(softmax_text(variant), options);
  const Array x = input(16, 8 + variant);
  return numbers_of(executable->run(std::vector<runtime::Argument>{x, x}));
}

Numbers graph_function(int variant) {
  FunctionOptions options;
  options.differentiate = true;
  if (variant == 1) options.partition = driver::Partition::min_cut;
  GraphFunction function(softmax_text(variant), options);
  const Array x = input(16, 8 + variant);
  GraphFunction::Forward made = function.forward(std::vector<runtime::Argument>{x});
  Numbers numbers = numbers_of(made.results);
  std::vector<Array> borrowed;
  for (const driver::SavedPlace& place : function.saved_places())
    if (place.kind != driver::SavedPlace::Kind::own)
      borrowed.push_back(place.kind == driver::SavedPlace::Kind::input
                             ? x
                             : std::get<Array>(made.results[place.number]));
  for (const Result& gradient : function.backward(made.saved->take(), borrowed, std::vector{x}))
    append(numbers, gradient);
  return numbers;
}

Numbers aot(int variant) {
  const ModelFunction model = [&](nn::Trace&, const nn::Tensors& in) -> nn::Tensors {
    return {ops::sin(in[0] * in[0] + static_cast<double>(variant))};
  };
  AotFunction function = aot_function(model, {{"x", DType::f32, {"n", 8}, true}});
  const Array x = input(16, 8);
  AotFunction::Forward call = function.forward(std::vector{x});
  Numbers numbers = numbers_of(call.outputs);
  for (const std::optional<Array>& gradient : function.backward(call.saved, std::vector{x}))
    append(numbers, *gradient);
  return numbers;
}

struct OneLayer : nn::Module {
  explicit OneLayer(int64_t columns) : layer(*this, "layer", columns, 4) {}
  nn::Linear layer;
};

Numbers training(int variant) {
  OneLayer net(8 + variant);
  State state = State::initial(net, 1);
  const std::vector<InputSpec> inputs = {{"x", DType::f32, {16, 8 + variant}},
                                         {"y", DType::f32, {16, 4}}};
  const auto loss = [&](nn::Trace& trace, const nn::Tensors& in) -> nn::Tensors {
    return {nn::mse_loss(net.layer.forward(trace, in[0]), in[1])};
  };
  const auto forward = [&](nn::Trace& trace, const nn::Tensors& in) -> nn::Tensors {
    return {net.layer.forward(trace, in[0])};
  };
  BoundProgram step = train_step(loss, state, inputs, nn::adamw(1e-2));
  BoundProgram predict = compile_forward(forward, state, {inputs[0]}, {.freeze = variant == 2});
  const Array x = input(16, 8 + variant);
  Numbers numbers = numbers_of(step.run(std::vector{x, input(16, 4)}));
  if (variant == 2) predict.refresh();
  for (const Result& result : predict.run(std::vector{x})) append(numbers, result);
  return numbers;
}

/// The code of another machine, which is no number but must not depend on the others either.
Numbers for_another_machine(int variant) {
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(softmax_text(variant), ops::op_table());
  driver::Options options;
  options.target = driver::target_named(variant == 0 ? "haswell" : "znver4");
  driver::GraphCtx ctx;
  driver::run_passes(*module->graphs()[0], options, ctx);
  const driver::Built built = driver::build(*module->graphs()[0], options);
  Numbers bytes;
  for (const codegen::ObjectCode& object : built.image.kernels)
    for (const char byte : object.bytes) bytes.push_back(static_cast<float>(byte));
  return bytes;
}

constexpr Numbers (*kJobs[])(int) = {machine_code, interpreted,        text, graph_function, aot,
                                     training,     for_another_machine};
constexpr size_t kJobCount = std::size(kJobs);

using Outcomes = std::vector<std::vector<Numbers>>;  // of a job, by variant

/// Neighbours begin with other jobs, threads that are kJobCount apart with the same.

void do_jobs(int thread, std::vector<Outcomes>& outcomes) {
  for (size_t i = 0; i < kJobCount; ++i) {
    const size_t job = (static_cast<size_t>(thread) + i) % kJobCount;
    for (int k = 0; k < 2; ++k) {
      const int variant = (thread / 2 + k) % kVariants;
      outcomes[job][static_cast<size_t>(variant)].push_back(kJobs[job](variant));
    }
  }
}

void check_crowd() {
  std::vector<std::vector<Outcomes>> all(kThreads,
                                         std::vector<Outcomes>(kJobCount, Outcomes(kVariants)));
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      do_jobs(i, all[static_cast<size_t>(i)]);
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t job = 0; job < kJobCount; ++job)
    for (size_t variant = 0; variant < kVariants; ++variant) {
      const Numbers alone = kJobs[job](static_cast<int>(variant));
      EXPECT_FALSE(alone.empty());
      for (const std::vector<Outcomes>& of_thread : all)
        for (const Numbers& numbers : of_thread[job][variant])
          EXPECT_EQ(numbers, alone) << "job " << job << ", variant " << variant;
    }
}

TEST(Threads, CompileAndRunAtOnce) {
  const FlagOverride no_cache(Flag::cache_dir, "");
  check_crowd();
}

TEST(Threads, ShareACache) {
  const std::filesystem::path folder = ::testing::TempDir() + "tandem-threads-test";
  std::filesystem::remove_all(folder);
  const FlagOverride cache(Flag::cache_dir, folder.string());
  check_crowd();  // all store
  check_crowd();  // all read
  std::filesystem::remove_all(folder);
}

TEST(Threads, WatchTheirOwnPasses) {
  const std::filesystem::path folder = ::testing::TempDir() + "tandem-threads-dump";
  std::filesystem::create_directories(folder);
  {
    const FlagOverride no_cache(Flag::cache_dir, "");
    const FlagOverride verify(Flag::verify, "1");
    const FlagOverride dump(Flag::dump, "all:" + folder.string());
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([i] { EXPECT_FALSE(machine_code(i % kVariants).empty()); });
    for (std::thread& thread : threads) thread.join();
  }
  size_t graphs = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    graphs += file.path().filename().string().ends_with("_functionalize.tir");
  EXPECT_EQ(graphs, static_cast<size_t>(kThreads));  // nobody wrote over another one's
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem
