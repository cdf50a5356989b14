// What a binding needs: text in, something that runs out, and the vocabulary as plain data.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/diagnostic.h"
#include "base/interrupt.h"
#include "driver/compiler.h"
#include "driver/export.h"
#include "runtime/allocator.h"
#include "runtime/overlap.h"
#include "runtime/parallel_for.h"

namespace tandem::driver {

/// One operator and how to test it.
struct OpInfo {
  std::string name;                  // "aten.add.Tensor"
  std::string schema;                // exact ATen text
  std::vector<std::string> samples;  // argument lists, ops/opdef.h
  std::string
      sample_dtypes;  // name of the enumerator: floats, numbers, integers, all, f32_only, booleans
  /// How it runs: "loops", "loops or library" (by shape and dtype), "library", "other ops", "view",
  /// "the caller's framework", "passes" (a pass replaces it).
  std::string route;
  bool differentiable = false;
  std::string no_grad;  // the reason why it is not
  bool random = false;
  bool is_view = false;
  bool mutates = false;
  bool tells_size = false;            // of its results, or gives a number: only data tell
  std::string autocast;               // none, lower, full, promote
  std::vector<std::string> variants;  // in-place and out= forms derived from it
};

/// Every op that is not derived from another one, in order of registration.
std::vector<OpInfo> vocabulary();

/// The least and the greatest value of a size, and what divides it.
struct SizeInfo {
  int64_t low = 0;
  int64_t high = 0;
  int64_t divisor = 1;
};
/// Of one in [low, high] where `equations` hold, texts as `s0//2//2*4 == s0`.
SizeInfo solve_size(const std::string& name, int64_t low, int64_t high,
                    const std::vector<std::string>& equations);

/// Compiles the first graph of a module in text form.
std::unique_ptr<Executable> compile_text(std::string_view text, const Options& options);

/// The first graph of a module, lifted out of its caller (export.h): the text, and its signature.
std::pair<std::string, std::string> export_text(std::string_view text,
                                                const ExportOptions& options = {});

// Options by the names that bindings give them; UserError for others.
using passes::budget_named;
using passes::gradients_named;
using passes::partition_named;

/// Threads of the team that programs run on: runtime/parallel_for.h.
using runtime::TeamSize;
void set_threads(int count);
int threads();
int set_number_of_threads();

/// Tensor memory of all programs: what results, saved activations and temporaries hold, what was
/// released and kept for the next call, and the most that was held at once. Bytes that requests
/// really take.
using runtime::AllocatorCounters;
AllocatorCounters memory_use();
/// The most that was held at once counts from here.
void reset_peak_memory();
/// Gives what is kept back to the system; the next calls fetch fresh pages.
void release_cached_memory();

}  // namespace tandem::driver
