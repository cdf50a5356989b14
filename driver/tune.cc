// Problem: which of a few mappings is fastest depends on the machine. Approach: each is compiled
// and run as the program would, one thread over all tasks, in turns, and the least time of each
// counts: what else the machine does only adds. Data are small positive numbers and index 0, so
// that no check fails and no arithmetic is slow; a kernel that fails all the same is not timed. The
// first candidate is the model's, and stays unless another is clearly faster.
#include "driver/tune.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>

#include "base/archive.h"
#include "base/file_cache.h"
#include "base/flags.h"
#include "runtime/array.h"

namespace tandem::driver {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::Candidate;

constexpr double kClearly = 0.95;     // of the model's time
constexpr double kShortest = 200e-6;  // seconds of one measurement
constexpr double kLongest = 50e-3;    // of all of one candidate: a longer kernel runs twice
constexpr int kTurns = 5;
constexpr int64_t kMostBytes = 256 << 20;  // of all buffers

runtime::Array filled(DType dtype, int64_t elements) {
  runtime::Array array =
      runtime::Array::zeros(dtype, std::vector<int64_t>{std::max<int64_t>(elements, 1)});
  if (dtype == DType::f32) std::fill_n(array.data<float>(), elements, 0.75F);
  if (dtype == DType::f64) std::fill_n(array.data<double>(), elements, 0.75);
  if (dtype == DType::bf16) std::fill_n(array.data<uint16_t>(), elements, uint16_t{0x3f40});
  return array;
}

int64_t scratch_bytes(const loop::Kernel& kernel) {
  int64_t bytes = 64;
  for (const loop::Buffer& buffer : kernel.buffers)
    if (buffer.access == loop::Access::scratch)
      bytes += (buffer.elements.constant().value_or(0) * size_of(buffer.dtype) + 63) / 64 * 64;
  return bytes;
}

/// A candidate with what it runs on.
class Runner {
 public:
  Runner(const loop::Kernel& kernel, abi::KernelFunction function, void* const* buffers)
      : function_(function),
        buffers_(buffers),
        tasks_(kernel.tasks().constant().value_or(0)),
        scratch_(
            runtime::Array::zeros(DType::u8, std::vector<int64_t>{scratch_bytes(kernel) + 64})) {}

  /// Seconds of one run; infinity where it fails.
  double once() {
    const Clock::time_point start = Clock::now();
    const uintptr_t place = reinterpret_cast<uintptr_t>(scratch_.data<uint8_t>());
    void* scratch = reinterpret_cast<void*>((place + 63) / 64 * 64);
    const int64_t status = function_(buffers_, nullptr, 0, tasks_, scratch);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return status == 0 ? seconds : std::numeric_limits<double>::infinity();
  }

  /// The least of a few measurements of `repeats` runs each.
  void measure(int64_t repeats) {
    double sum = 0;
    for (int64_t i = 0; i < repeats; ++i) sum += once();
    best_ = std::min(best_, sum / static_cast<double>(repeats));
  }
  double best() const { return best_; }

 private:
  abi::KernelFunction function_;
  void* const* buffers_;
  int64_t tasks_;
  runtime::Array scratch_;
  double best_ = std::numeric_limits<double>::infinity();
};

size_t fastest(std::vector<Runner>& runners) {
  std::vector<int64_t> repeats;
  for (Runner& runner : runners) {
    runner.once();  // code and data come into the caches
    const double seconds = std::max(runner.once(), 1e-9);
    if (seconds > kLongest) runner.measure(1);
    repeats.push_back(seconds > kLongest ? 0 : static_cast<int64_t>(kShortest / seconds) + 1);
  }
  for (int turn = 0; turn < kTurns; ++turn)
    for (size_t i = 0; i < runners.size(); ++i)
      if (repeats[i] > 0) runners[i].measure(repeats[i]);
  const auto best = std::ranges::min_element(runners, {}, &Runner::best);
  return best->best() < kClearly * runners[0].best() ? static_cast<size_t>(best - runners.begin())
                                                     : 0;
}

size_t timed(const std::vector<Candidate>& candidates, const std::vector<int64_t>& elements,
             const Target& target) {
  std::vector<loop::Kernel> kernels;
  for (const Candidate& candidate : candidates) {
    kernels.push_back(candidate.kernel);
    kernels.back().name = "tandem_candidate" + std::to_string(kernels.size());
  }
  std::vector<runtime::Array> arrays;
  std::vector<void*> buffers;
  for (const loop::Buffer& buffer : kernels[0].buffers) {
    if (buffer.access == loop::Access::scratch) continue;
    arrays.push_back(filled(buffer.dtype, elements[arrays.size()]));
    buffers.push_back(arrays.back().raw());
  }
  const codegen::KernelLibrary library(codegen::compile_objects(kernels, target, {}));
  std::vector<Runner> runners;
  for (size_t i = 0; i < kernels.size(); ++i)
    runners.emplace_back(kernels[i], library.functions()[i], buffers.data());
  return fastest(runners);
}

bool can_be_timed(const std::vector<Candidate>& candidates, const std::vector<int64_t>& elements) {
  int64_t bytes = 0;
  size_t next = 0;
  for (const loop::Buffer& buffer : candidates[0].kernel.buffers) {
    if (buffer.access == loop::Access::scratch) continue;
    if (elements[next] > kMostBytes) return false;
    bytes += elements[next++] * size_of(buffer.dtype);
  }
  return bytes <= kMostBytes;
}

std::string key_of(const std::vector<Candidate>& candidates) {
  std::string key;
  for (const Candidate& candidate : candidates) key += loop::identity_text(candidate.kernel);
  return key;
}

}  // namespace

schedule::Chooser tuner(const Target& target) {
  codegen::check_runs_here(target);
  return [target](const std::vector<Candidate>& candidates, const std::vector<int64_t>& elements) {
    const FileCache cache(flag_cache_dir(), "tune", key_of(target));
    const std::string key = key_of(candidates);
    size_t best = candidates.size();
    if (const std::optional<std::string> known = cache.find(key))
      std::from_chars(known->data(), known->data() + known->size(), best);
    if (best < candidates.size()) return best;
    best = can_be_timed(candidates, elements) ? timed(candidates, elements, target) : 0;
    cache.store(key, std::to_string(best));
    return best;
  };
}

}  // namespace tandem::driver
