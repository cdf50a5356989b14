// Products of groups of rows with a matrix for each group: a product of its own for each run of
// equal numbers in `groups`. How many rows a group has differs from call to call, so each matrix
// has a site, which keeps the plans of the counts that it saw last.
//   rows: out[i, n] = sum_k a[i, k] b[groups[i], k, n]; 0 where there is no such matrix
//   sums: out[g, m, n] = sum over the i with groups[i] = g of a[m, i] b[i, n]
#include <array>
#include <map>
#include <vector>

#include "base/diagnostic.h"
#include "runtime/array.h"
#include "runtime/library.h"

namespace tandem::runtime {
namespace {

enum Role : size_t { kA, kB, kGroups, kOut, kRoles };

[[noreturn]] void mismatch(std::span<const Operand> operands) {
  std::string text = "shapes do not fit:";
  for (const Operand& operand : operands) text += " " + describe(operand.dtype, operand.sizes);
  throw UserError(text);
}

/// Equal numbers in a row: [begin, end) of the rows.
struct Run {
  int64_t group, begin, end;
};

std::vector<Run> runs_of(const int64_t* groups, int64_t count, int64_t stride) {
  std::vector<Run> runs;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = groups[i * stride];
    if (runs.empty() || runs.back().group != group) runs.push_back({group, i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

class GroupedPlan final : public LibraryPlan {
 public:
  GroupedPlan(std::span<const Operand> operands, bool is_sum);
  void execute(std::span<void* const> operands) override;
  void pack(const void*, void*) override {}

 private:
  void check() const;
  bool is_sum() const { return out_.sizes.size() == 3; }
  bool is_matrix(int64_t group) const { return group >= 0 && group < matrices_; }
  void run(const Run& run, std::span<void* const> operands);
  void clear(std::byte* out, int64_t begin, int64_t end) const;
  void clear_others(const std::vector<Run>& runs, std::byte* out) const;

  Operand a_, b_, groups_, out_;
  int64_t matrices_ = 0;
  abi::LibraryCall product_;              // op: matmul; outlives the sites
  std::map<int64_t, LibrarySite> sites_;  // of the matrices that had rows so far
};

GroupedPlan::GroupedPlan(std::span<const Operand> operands, bool is_sum) {
  const size_t rank = is_sum ? 2 : 3;
  if (operands.size() != kRoles || operands[kA].sizes.size() != 2 ||
      operands[kB].sizes.size() != rank || operands[kGroups].sizes.size() != 1 ||
      operands[kGroups].dtype != DType::i64 || operands[kOut].sizes.size() != 5 - rank)
    mismatch(operands);
  a_ = operands[kA];
  b_ = operands[kB];
  groups_ = operands[kGroups];
  out_ = operands[kOut];
  matrices_ = is_sum ? out_.sizes[0] : b_.sizes[0];
  check();
  product_.op = abi::LibraryOp::matmul;
  report_.flops = 2 * a_.sizes[0] * a_.sizes[1] * out_.sizes.back();
  report_.implementation = "grouped";
}

void GroupedPlan::check() const {
  const std::vector<int64_t>& out = out_.sizes;
  const int64_t rows = is_sum() ? a_.sizes[1] : a_.sizes[0];
  const bool is_good = is_sum()
                           ? b_.sizes[0] == rows && out[1] == a_.sizes[0] && out[2] == b_.sizes[1]
                           : b_.sizes[1] == a_.sizes[1] && out[0] == rows && out[1] == b_.sizes[2];
  if (!is_good || groups_.sizes[0] != rows) mismatch({{a_, b_, groups_, out_}});
}

/// A factor or result narrowed to [begin, end) of one dimension.
struct Part {
  Operand operand;
  int64_t offset;  // elements
};

Part narrowed(const Operand& operand, size_t dim, int64_t begin, int64_t end) {
  Part part{operand, begin * operand.strides[dim]};
  part.operand.sizes[dim] = end - begin;
  return part;
}

Part selected(const Operand& operand, int64_t index) {
  Part part{operand, index * operand.strides[0]};
  part.operand.sizes.erase(part.operand.sizes.begin());
  part.operand.strides.erase(part.operand.strides.begin());
  return part;
}

void GroupedPlan::run(const Run& run, std::span<void* const> operands) {
  const std::array<Part, 3> parts =
      is_sum() ? std::array{narrowed(a_, 1, run.begin, run.end),
                            narrowed(b_, 0, run.begin, run.end), selected(out_, run.group)}
               : std::array{narrowed(a_, 0, run.begin, run.end), selected(b_, run.group),
                            narrowed(out_, 0, run.begin, run.end)};
  const std::array<size_t, 3> roles{kA, kB, kOut};
  std::vector<Operand> shapes;
  std::vector<void*> data;
  for (size_t i = 0; i < parts.size(); ++i) {
    shapes.push_back(parts[i].operand);
    data.push_back(static_cast<std::byte*>(operands[roles[i]]) +
                   parts[i].offset * size_of(parts[i].operand.dtype));
  }
  sites_.try_emplace(run.group, product_).first->second.prepare(shapes).execute(data);
}

/// Zeros at [begin, end) of the result's first dimension.
void GroupedPlan::clear(std::byte* out, int64_t begin, int64_t end) const {
  const Part part = narrowed(out_, 0, begin, end);
  const int64_t zero = 0;
  const std::vector<int64_t> none(out_.sizes.size(), 0);
  const int64_t size = size_of(out_.dtype);
  copy_strided(out + part.offset * size, out_.strides, &zero, none, part.operand.sizes, size);
}

/// Sums of groups without rows.
void GroupedPlan::clear_others(const std::vector<Run>& runs, std::byte* out) const {
  int64_t next = 0;
  for (const Run& run : runs) {
    if (!is_matrix(run.group)) continue;
    if (run.group < next) throw UserError("the groups of a sum must ascend");
    if (run.group > next) clear(out, next, run.group);
    next = run.group + 1;
  }
  if (next < matrices_) clear(out, next, matrices_);
}

void GroupedPlan::execute(std::span<void* const> operands) {
  std::byte* const out = static_cast<std::byte*>(operands[kOut]);
  const std::vector<Run> runs =
      runs_of(static_cast<const int64_t*>(operands[kGroups]), groups_.sizes[0], groups_.strides[0]);
  if (is_sum()) clear_others(runs, out);
  for (const Run& each : runs) {
    if (is_matrix(each.group)) {
      run(each, operands);
    } else if (!is_sum()) {
      clear(out, each.begin, each.end);
    }
  }
}

}  // namespace

std::unique_ptr<LibraryPlan> plan_grouped(std::span<const Operand> operands, bool is_sum) {
  return std::make_unique<GroupedPlan>(operands, is_sum);
}

}  // namespace tandem::runtime
