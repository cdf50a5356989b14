// A library call site sees few different shapes, and making a primitive costs as much as a small
// product. So each site keeps the plans of the shapes it saw last; an Execution owns its sites,
// which makes them free of locks. Making a primitive again in another Execution is cheap: oneDNN
// caches generated code.
#include "runtime/library.h"

#include <algorithm>
#include <mutex>

#include "base/diagnostic.h"

namespace tandem::runtime {
namespace {

std::mutex g_statistics_mutex;
LibraryStatistics g_statistics;

void count(const PlanReport& report) {
  const std::lock_guard<std::mutex> lock(g_statistics_mutex);
  ++g_statistics.plans;
  if (report.is_slow) ++g_statistics.slow_plans;
  g_statistics.last_implementation = report.implementation;
}

std::unique_ptr<LibraryPlan> make_plan(const abi::LibraryCall& call,
                                       std::span<const Operand> operands, bool is_constant_weight) {
  try {
    switch (call.op) {
      case abi::LibraryOp::rank: return plan_rank(operands, call.rank);
      case abi::LibraryOp::grouped_rows: return plan_grouped(operands, false);
      case abi::LibraryOp::grouped_sums: return plan_grouped(operands, true);
      case abi::LibraryOp::matmul: return plan_matmul(operands, call.has_bias, is_constant_weight);
      case abi::LibraryOp::convolution:
      case abi::LibraryOp::convolution_backward_data:
      case abi::LibraryOp::convolution_backward_weights: break;
    }
    return plan_convolution(operands, call, is_constant_weight);
  } catch (const Unsupported& error) {
    throw Unsupported(error.what(), call.label);
  } catch (const UserError& error) {
    throw UserError(error.what(), call.label);
  }
}

}  // namespace

LibraryPlan& LibrarySite::prepare(std::span<const Operand> operands) {
  const std::vector<Entry>::iterator found =
      std::find_if(plans_.begin(), plans_.end(), [&](const Entry& entry) {
        return std::equal(entry.operands.begin(), entry.operands.end(), operands.begin(),
                          operands.end());
      });
  if (found != plans_.end()) {
    std::rotate(plans_.begin(), found, found + 1);
    return *plans_.front().plan;
  }
  Entry entry{{operands.begin(), operands.end()}, make_plan(*call_, operands, is_constant_weight_)};
  count(entry.plan->report());
  if (plans_.size() == kMaxPlans) plans_.pop_back();
  plans_.insert(plans_.begin(), std::move(entry));
  return *plans_.front().plan;
}

LibraryStatistics library_statistics() {
  const std::lock_guard<std::mutex> lock(g_statistics_mutex);
  return g_statistics;
}

std::string last_implementation() { return library_statistics().last_implementation; }

}  // namespace tandem::runtime
