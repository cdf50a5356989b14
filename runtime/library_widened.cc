// bf16 where the library has no code for it (processors without AVX-512), or reference code only:
// operands are brought to f32, the library computes in f32, and the result is rounded once, which
// is what its own bf16 code does. An operand that fills its memory is converted as it lies, so
// that layouts stay what the schedule chose.
#include <algorithm>
#include <bit>
#include <numeric>

#include "runtime/allocator.h"
#include "runtime/array.h"
#include "runtime/library.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

constexpr int64_t kBlock = 16384;  // elements that one thread converts at a time

template <class F>
void for_blocks(int64_t count, const F& body) {
  parallel_for((count + kBlock - 1) / kBlock, [&](int64_t lo, int64_t hi) {
    const int64_t end = std::min(count, hi * kBlock);
    for (int64_t i = lo * kBlock; i < end; ++i) body(i);
  });
}

void widen(const uint16_t* from, float* to, int64_t count) {
  for_blocks(count, [=](int64_t i) {
    to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
  });
}

// To nearest even; every NaN becomes the positive quiet one, as in kernels.
void round_to_bf16(const float* from, uint16_t* to, int64_t count) {
  for_blocks(count, [=](int64_t i) {
    const uint32_t bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    to[i] = static_cast<uint16_t>(from[i] != from[i] ? 0x7FC0 : rounded);
  });
}

int64_t count_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Each element of the memory from the first to the last is one of the operand.
bool is_dense(const Operand& operand) {
  std::vector<size_t> order;
  for (size_t i = 0; i < operand.sizes.size(); ++i)
    if (operand.sizes[i] != 1) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return operand.strides[a] < operand.strides[b]; });
  int64_t stride = 1;
  for (const size_t i : order) {
    if (operand.strides[i] != stride) return false;
    stride *= operand.sizes[i];
  }
  return true;
}

// An operand of bf16, and its f32 stand-in; or one that stays as it is.
struct Widened {
  Operand own, wide;
  int64_t count = 0;
  bool is_dense = false;

  explicit Widened(const Operand& operand) : own(operand), wide(operand) {
    count = count_of(own.sizes);
    if (!changes()) return;
    wide.dtype = DType::f32;
    is_dense = runtime::is_dense(own);
    if (!is_dense) wide.strides = contiguous_strides(own.sizes);
  }
  bool changes() const { return own.dtype == DType::bf16; }
  int64_t wide_bytes() const { return (count * int64_t{sizeof(float)} + 63) / 64 * 64; }

  // For the length of a read or write.
  int64_t packed_bytes() const { return count * size_of(DType::bf16); }

  void read(const void* from, float* to) const {
    if (is_dense) return widen(static_cast<const uint16_t*>(from), to, count);
    const ScopedBlock packed(packed_bytes());
    copy_strided(packed.data(), wide.strides, from, own.strides, own.sizes, size_of(DType::bf16));
    widen(reinterpret_cast<const uint16_t*>(packed.data()), to, count);
  }
  void write(const float* from, void* to) const {
    if (is_dense) return round_to_bf16(from, static_cast<uint16_t*>(to), count);
    const ScopedBlock packed(packed_bytes());
    round_to_bf16(from, reinterpret_cast<uint16_t*>(packed.data()), count);
    copy_strided(to, own.strides, packed.data(), wide.strides, own.sizes, size_of(DType::bf16));
  }
};

constexpr size_t kWeight = 1;

class WidenedPlan final : public LibraryPlan {
 public:
  WidenedPlan(std::span<const Operand> operands, const PlanMaker& make, bool is_constant_weight);
  void execute(std::span<void* const> operands) override;
  void pack(const void* weight, void* block) override;
  int64_t working_bytes() const override;

 private:
  int64_t wide_bytes() const;
  bool is_read_packed(size_t operand) const { return operand == kWeight && is_packed(); }
  bool is_packed() const { return !packed_layout_.empty(); }

  std::vector<Widened> operands_;
  std::unique_ptr<LibraryPlan> inner_;
};

WidenedPlan::WidenedPlan(std::span<const Operand> operands, const PlanMaker& make,
                         bool is_constant_weight)
    : operands_(operands.begin(), operands.end()) {
  std::vector<Operand> wide;
  for (const Widened& operand : operands_) wide.push_back(operand.wide);
  inner_ = make(wide, is_constant_weight);
  report_ = inner_->report();
  for (const Widened& operand : operands_)
    if (operand.changes()) report_.staged_bytes += operand.wide_bytes();
  if (!is_constant_weight || !operands_[kWeight].changes()) {
    packed_layout_ = inner_->packed_layout();
    return;
  }
  // The weight in f32, once, in the library's layout for that or in the one that it has.
  packed_layout_ = "f32 of bf16;" + inner_->packed_layout() + ";";
  for (size_t i = 0; i < operands_[kWeight].own.sizes.size(); ++i)
    packed_layout_ += std::to_string(operands_[kWeight].own.sizes[i]) + "/" +
                      std::to_string(operands_[kWeight].own.strides[i]) + ",";
  if (inner_->packed_layout().empty()) report_.packed_bytes = operands_[kWeight].wide_bytes();
}

void WidenedPlan::pack(const void* weight, void* block) {
  const Widened& operand = operands_[kWeight];
  if (!operand.changes()) return inner_->pack(weight, block);
  if (inner_->packed_layout().empty()) return operand.read(weight, static_cast<float*>(block));
  const ScopedBlock wide(operand.wide_bytes());
  operand.read(weight, reinterpret_cast<float*>(wide.data()));
  inner_->pack(wide.data(), block);
}

int64_t WidenedPlan::wide_bytes() const {
  int64_t bytes = 0;
  for (const Widened& operand : operands_)
    if (operand.changes()) bytes += operand.wide_bytes();
  return bytes;
}

int64_t WidenedPlan::working_bytes() const {
  int64_t most = inner_->working_bytes();
  for (size_t i = 0; i < operands_.size(); ++i)
    if (operands_[i].changes() && !operands_[i].is_dense && !is_read_packed(i))
      most = std::max(most, Allocator::class_bytes(operands_[i].packed_bytes()));
  return Allocator::class_bytes(wide_bytes()) + most;
}

void WidenedPlan::execute(std::span<void* const> operands) {
  const size_t out = operands_.size() - 1;
  const ScopedBlock scratch(wide_bytes());
  std::byte* next = scratch.data();
  std::vector<void*> data(operands.begin(), operands.end());
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].changes() || is_read_packed(i)) continue;
    data[i] = next;
    next += operands_[i].wide_bytes();
    if (i != out) operands_[i].read(operands[i], static_cast<float*>(data[i]));
  }
  inner_->execute(data);
  if (operands_[out].changes())
    operands_[out].write(static_cast<const float*>(data[out]), operands[out]);
}

bool is_reference(const LibraryPlan& plan) {
  return plan.report().implementation.starts_with("ref");
}

}  // namespace

std::unique_ptr<LibraryPlan> plan_or_widen(std::span<const Operand> operands, const PlanMaker& make,
                                           bool is_constant_weight) {
  const bool has_bf16 = std::any_of(operands.begin(), operands.end(), [](const Operand& operand) {
    return operand.dtype == DType::bf16;
  });
  if (!has_bf16) return make(operands, is_constant_weight);
  try {
    std::unique_ptr<LibraryPlan> own = make(operands, is_constant_weight);
    if (!is_reference(*own)) return own;
    std::unique_ptr<LibraryPlan> wide =
        std::make_unique<WidenedPlan>(operands, make, is_constant_weight);
    return is_reference(*wide) ? std::move(own) : std::move(wide);
  } catch (const NoImplementation&) {
    return std::make_unique<WidenedPlan>(operands, make, is_constant_weight);
  }
}

}  // namespace tandem::runtime
