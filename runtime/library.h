// Library calls (matrix product, convolution) of a Program, run by oneDNN with our own cutting into
// tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/program.h"
#include "base/diagnostic.h"
#include "base/dtype.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {

/// Shape of one operand; strides in elements, 0 for what is broadcast.
struct Operand {
  DType dtype = DType::f32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool operator==(const Operand&) const = default;
};

/// What became of a library call, for logs and cost models.
struct PlanReport {
  std::string
      implementation;        // oneDNN's name of the main primitive; "none" when nothing is computed
  int64_t flops = 0;         // multiply-adds count as two
  int64_t tasks = 0;         // of the main loop
  int64_t staged_bytes = 0;  // operands copied because oneDNN cannot read or write their strides
  int64_t packed_bytes = 0;  // a constant weight in the layout that the library prefers
  int64_t weight_bytes = 0;  // convolution weights brought to or from that layout at each call
  bool is_slow = false;      // a reference or jit-gemm implementation
};

/// A library call for concrete sizes and strides. How it is cut depends on these alone, never on
/// the number of threads, and so do the bits of its result.
class LibraryPlan {
 public:
  virtual ~LibraryPlan() = default;
  /// First elements of the operands in the order of LibraryCall::args, then of the result; of a
  /// packed weight the packed block. One execution of a plan at a time.
  virtual void execute(std::span<void* const> operands) = 0;
  /// The same, and `then(lo, hi)` once those lines of the result are there, each line once, on any
  /// thread of the team: images times rows of the first spatial dimension, `lines` of them. False
  /// where the plan does not compute line by line: then nothing was called.
  virtual bool execute_in_lines(std::span<void* const> operands, int64_t lines, RangeBody then) {
    static_cast<void>(lines);
    static_cast<void>(then);
    execute(operands);
    return false;
  }
  const PlanReport& report() const { return report_; }
  /// Of the allocator, what `execute` takes at most with the threads that there are.
  virtual int64_t working_bytes() const { return 0; }

  /// Of a plan made for a constant weight (operand 1): how it wants it packed. Plans with equal
  /// names can share a block. Empty: it takes the weight as it lies.
  const std::string& packed_layout() const { return packed_layout_; }
  int64_t packed_bytes() const { return report_.packed_bytes; }
  /// Writes the weight, whose first element is given, into a block of packed_bytes.
  virtual void pack(const void* weight, void* block) = 0;

 protected:
  PlanReport report_;
  std::string packed_layout_;
};

/// Operands: args, then out. UserError or Unsupported for dtypes and shapes that do not fit the
/// operation. With a constant weight the plan may ask for it packed.
std::unique_ptr<LibraryPlan> plan_matmul(std::span<const Operand> operands, bool has_bias,
                                         bool is_constant_weight = false);
std::unique_ptr<LibraryPlan> plan_convolution(std::span<const Operand> operands,
                                              const abi::LibraryCall& call,
                                              bool is_constant_weight = false);
/// Places of elements in their sorted rows: ours, not oneDNN's.
std::unique_ptr<LibraryPlan> plan_rank(std::span<const Operand> operands,
                                       const abi::RankParams& params);

/// Products of groups of rows, each with a matrix of its own, or its gradient, which sums over
/// them; operands: a, b, the i64 number of each row's group, out.
std::unique_ptr<LibraryPlan> plan_grouped(std::span<const Operand> operands, bool is_sum);

/// The library has no code on this machine for what is asked of it.
class NoImplementation : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

using PlanMaker = std::function<std::unique_ptr<LibraryPlan>(std::span<const Operand>, bool)>;
/// What `make` makes; or, where the library has nothing for bf16 or reference code alone, a plan
/// that computes in f32 and rounds the result: so every call in bf16 has a plan that f32 has.
std::unique_ptr<LibraryPlan> plan_or_widen(std::span<const Operand> operands, const PlanMaker& make,
                                           bool is_constant_weight);

/// One library call of an Execution with the plans it used last.
class LibrarySite {
 public:
  static constexpr size_t kMaxPlans = 8;

  /// `call` must outlive the site.
  explicit LibrarySite(const abi::LibraryCall& call, bool is_constant_weight = false)
      : call_(&call), is_constant_weight_(is_constant_weight) {}
  /// Operands: args, then out. The plan lives until kMaxPlans other shapes came after it.
  LibraryPlan& prepare(std::span<const Operand> operands);

 private:
  struct Entry {
    std::vector<Operand> operands;
    std::unique_ptr<LibraryPlan> plan;
  };
  const abi::LibraryCall* call_;
  bool is_constant_weight_;
  std::vector<Entry> plans_;  // used last comes first
};

/// Over the life of the process; thread-safe.
struct LibraryStatistics {
  int64_t plans = 0;
  int64_t slow_plans = 0;  // PlanReport::is_slow
  std::string last_implementation;
};
LibraryStatistics library_statistics();
std::string last_implementation();

}  // namespace tandem::runtime
