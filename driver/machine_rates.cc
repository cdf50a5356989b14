// Problem: the rates of base/tuning.h are those of the machines it was measured on; another one may
// have memory twice as fast beside the same lanes, and what is worth its bytes is another choice
// there. Approach: programs that do nothing but move bytes or sum products, compiled as any other,
// are run a few times, and the least time counts: what else the machine does only adds. Caches and
// lanes are those of one thread; memory is shared, so all threads ask it at once.
#include "driver/machine_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "base/file_cache.h"
#include "base/flags.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "runtime/parallel_for.h"

namespace tandem::driver {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTurns = 7;
constexpr int64_t kMemoryBytes = 192 << 20;  // of three arrays, or six times the largest cache …
constexpr int64_t kMostBytes = 1LL << 30;    // … up to this
constexpr int64_t kProduct = 512;            // rows, columns and terms

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Written, because memory that nobody wrote is one page of zeros, which stays in the first cache.
runtime::Array ones(const std::vector<int64_t>& sizes) {
  runtime::Array array = runtime::Array::zeros(DType::f32, sizes);
  std::fill_n(array.data<float>(), array.numel(), 1.0F);
  return array;
}

/// The least of a few runs of a program of two inputs of one size, on so many threads.
double best_time(const std::string& text, const std::vector<int64_t>& sizes, const Target& target,
                 int threads) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  Options options;
  options.target = target;
  const std::unique_ptr<Executable> program = compile(*module->graphs()[0], options);
  const std::array<runtime::Argument, 2> arguments{ones(sizes), ones(sizes)};
  const runtime::TeamSize team(threads);
  double best = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < kTurns; ++turn) {
    const Clock::time_point start = Clock::now();
    const std::vector<runtime::Result> results = program->run(arguments);
    best = std::min(best, microseconds_since(start));
  }
  return best;
}

int64_t rate_of(double amount, double microseconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(amount / std::max(microseconds, 1e-3)));
}

/// Bytes a microsecond and thread of a product by elements whose factors and result take `bytes`.
int64_t stream_rate(int64_t bytes, const Target& target, int threads) {
  const int64_t elements = std::max<int64_t>(bytes / 12, 16);
  const std::string text = fmt::format(
      "graph @stream(%a: f32[{0}], %b: f32[{0}]) {{\n  %0 = aten.mul.Tensor(%a, %b)\n"
      "  return %0\n}}\n",
      elements);
  const double time = best_time(text, {elements}, target, threads);
  return rate_of(static_cast<double>(12 * elements) / threads, time);
}

/// Of one lane.
int64_t product_rate(const Target& target) {
  const std::string text = fmt::format(
      "graph @product(%a: f32[{0}, {0}], %b: f32[{0}, {0}]) {{\n  %0 = aten.mm(%a, %b)\n"
      "  return %0\n}}\n",
      kProduct);
  const double time = best_time(text, {kProduct, kProduct}, target, 1);
  return rate_of(2.0 * kProduct * kProduct * kProduct / target.lanes(), time);
}

/// Nanoseconds that tasks of equal length on a thread each take longer than one, in the middle of
/// many: the caller would do tasks of no length by itself.
int64_t launch_time(int threads) {
  constexpr double kTask = 20;  // microseconds
  const auto work = [](int64_t lo, int64_t hi) {
    for (const Clock::time_point start = Clock::now();
         microseconds_since(start) < kTask * static_cast<double>(hi - lo);) {
    }
  };
  const runtime::TeamSize team(threads);
  std::array<double, 101> times{};
  for (double& time : times) {
    const Clock::time_point start = Clock::now();
    runtime::parallel_for(threads, work);
    time = std::max(0.0, microseconds_since(start) - kTask);
  }
  std::ranges::nth_element(times, times.begin() + times.size() / 2);
  return std::max<int64_t>(1, static_cast<int64_t>(1e3 * times[times.size() / 2]));
}

Tuning::Rates measured(const Target& target) {
  const int threads = std::max(1, std::min(target.cores, runtime::threads()));
  Tuning::Rates rates = target.tuning.rates;
  rates.memory =
      stream_rate(std::clamp(6 * target.l3_bytes, kMemoryBytes, kMostBytes), target, threads);
  rates.l3 = stream_rate(target.l3_bytes / 4, target, 1);
  rates.l2 = stream_rate(target.l2_bytes / 2, target, 1);
  rates.lane_flops = product_rate(target);
  rates.launch_ns = launch_time(threads);
  return rates;
}

std::array<int64_t*, 5> fields_of(Tuning::Rates& rates) {
  return {&rates.memory, &rates.l3, &rates.l2, &rates.lane_flops, &rates.launch_ns};
}

std::string stored_text(Tuning::Rates rates) {
  std::string text;
  for (const int64_t* field : fields_of(rates)) text += fmt::format("{} ", *field);
  return text;
}

/// Nothing where the text is not one that stored_text wrote.
std::optional<Tuning::Rates> read_rates(const std::string& text, Tuning::Rates rates) {
  const char* at = text.data();
  const char* end = at + text.size();
  for (int64_t* field : fields_of(rates)) {
    const auto [next, error] = std::from_chars(at, end, *field);
    if (error != std::errc() || *field <= 0 || next == end || *next != ' ') return std::nullopt;
    at = next + 1;
  }
  return rates;
}

Tuning::Rates found_or_measured(const Target& target) {
  const FileCache cache(flag_cache_dir(), "rates", key_of(target));
  const std::string key = fmt::format("rates of {} threads", runtime::threads());
  if (const std::optional<std::string> known = cache.find(key))
    if (const std::optional<Tuning::Rates> rates = read_rates(*known, target.tuning.rates))
      return *rates;
  const Tuning::Rates rates = measured(target);
  cache.store(key, stored_text(rates));
  return rates;
}

}  // namespace

Tuning::Rates machine_rates(const Target& target) {
  codegen::check_runs_here(target);
  static std::mutex mutex;  // threads that ask at once would disturb each other's measurement
  static std::map<std::string, Tuning::Rates> known;  // by target and size of the team
  const std::scoped_lock lock(mutex);
  const std::string key = to_bytes(key_of(target)) + std::to_string(runtime::threads());
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known[key] = found_or_measured(target);
}

std::string to_string(const Tuning::Rates& rates) {
  return fmt::format("memory {}, l3 {}, l2 {} bytes/us, {} flops/us a lane, launch {} ns",
                     rates.memory, rates.l3, rates.l2, rates.lane_flops, rates.launch_ns);
}

}  // namespace tandem::driver
