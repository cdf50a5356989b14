// The place of each element in its sorted row. Elements become integers of the same order (floats:
// sign and magnitude, both zeros alike, NaN above all), so that one comparison sorts every dtype;
// the position behind the key keeps equal elements in order. Rows are tasks.
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "base/diagnostic.h"
#include "runtime/library.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

/// Key of a float from its bits; `infinity` are the bits of +inf: larger magnitudes are NaN.
template <class Key, Key infinity>
Key float_key(Key bits) {
  const Key magnitude = static_cast<Key>(bits & std::numeric_limits<Key>::max());
  if (magnitude > infinity) return std::numeric_limits<Key>::max();
  return static_cast<Key>(bits < 0 ? -magnitude : magnitude);
}
template <class Key>
Key same_key(Key value) {
  return value;
}

template <class Stored, class Key, Key (*key_of)(Stored)>
class RankPlan final : public LibraryPlan {
 public:
  RankPlan(const Operand& in, const Operand& out, const abi::RankParams& params)
      : in_(in), out_(out), length_(in.sizes.back()), descending_(params.descending) {
    limit_ = params.limit < 0 ? length_ : std::min(params.limit, length_);
    rows_ = std::accumulate(in.sizes.begin(), in.sizes.end() - 1, int64_t{1}, std::multiplies<>());
    report_.implementation = "rank";
    report_.tasks = length_ == 0 ? 0 : rows_;
  }
  void execute(std::span<void* const> operands) override {
    const Stored* from = static_cast<const Stored*>(operands[0]);
    int64_t* to = static_cast<int64_t*>(operands[1]);
    parallel_for(report_.tasks, [&](int64_t lo, int64_t hi) {
      std::vector<Entry> entries(static_cast<size_t>(length_));
      for (int64_t row = lo; row < hi; ++row)
        rank_row(from + offset(in_, row), to + offset(out_, row), entries);
    });
  }
  void pack(const void*, void*) override {}

 private:
  using Entry = std::pair<Key, int64_t>;

  /// First element of a row: leading dimensions row-major.
  static int64_t offset(const Operand& operand, int64_t row) {
    int64_t at = 0;
    for (size_t i = operand.sizes.size() - 1; i-- > 0;) {
      at += row % operand.sizes[i] * operand.strides[i];
      row /= operand.sizes[i];
    }
    return at;
  }

  /// The complement of a key turns the order around and leaves positions ascending.
  void rank_row(const Stored* from, int64_t* to, std::vector<Entry>& entries) const {
    for (int64_t i = 0; i < length_; ++i) {
      const Key key = key_of(from[i * in_.strides.back()]);
      entries[static_cast<size_t>(i)] = {static_cast<Key>(descending_ ? ~key : key), i};
    }
    const auto last = entries.begin() + limit_;
    if (limit_ < length_) std::nth_element(entries.begin(), last, entries.end());
    std::sort(entries.begin(), last);
    for (int64_t i = 0; i < length_; ++i)
      to[entries[static_cast<size_t>(i)].second * out_.strides.back()] = std::min(i, limit_);
  }

  Operand in_;
  Operand out_;
  int64_t length_;
  int64_t rows_ = 1;
  int64_t limit_ = 0;
  bool descending_;
};

template <class Stored, class Key, Key (*key_of)(Stored)>
std::unique_ptr<LibraryPlan> make(std::span<const Operand> operands,
                                  const abi::RankParams& params) {
  return std::make_unique<RankPlan<Stored, Key, key_of>>(operands[0], operands[1], params);
}
int64_t key_of_f64(double x) {
  return float_key<int64_t, 0x7FF0000000000000>(std::bit_cast<int64_t>(x));
}
int32_t key_of_f32(float x) { return float_key<int32_t, 0x7F800000>(std::bit_cast<int32_t>(x)); }
int16_t key_of_u8(uint8_t x) { return x; }

}  // namespace

std::unique_ptr<LibraryPlan> plan_rank(std::span<const Operand> operands,
                                       const abi::RankParams& params) {
  if (operands.size() != 2 || operands[0].sizes.empty() || operands[1].dtype != DType::i64 ||
      operands[0].sizes != operands[1].sizes)
    throw UserError("rank needs an operand with rows and an i64 result of its sizes");
  switch (operands[0].dtype) {
    case DType::f64: return make<double, int64_t, key_of_f64>(operands, params);
    case DType::f32: return make<float, int32_t, key_of_f32>(operands, params);
    case DType::f16: return make<int16_t, int16_t, float_key<int16_t, 0x7C00>>(operands, params);
    case DType::bf16: return make<int16_t, int16_t, float_key<int16_t, 0x7F80>>(operands, params);
    case DType::i64: return make<int64_t, int64_t, same_key<int64_t>>(operands, params);
    case DType::i32: return make<int32_t, int32_t, same_key<int32_t>>(operands, params);
    case DType::i16: return make<int16_t, int16_t, same_key<int16_t>>(operands, params);
    case DType::i8: return make<int8_t, int8_t, same_key<int8_t>>(operands, params);
    case DType::u8:
    case DType::boolean: return make<uint8_t, int16_t, key_of_u8>(operands, params);
  }
  throw Unsupported("rank of this dtype");
}

}  // namespace tandem::runtime
