// The place of each element in its sorted row. Elements become integers of the same order (floats:
// sign and magnitude, both zeros alike, NaN above all), the position behind the key keeps equal
// elements in order. Keys of up to 32 bits share one word with the position, and rows of such words
// are sorted digit by digit; others are compared. Of rows with a limit only what lies below the
// largest of the `limit` least ones seen so far is kept. Rows are tasks.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/diagnostic.h"
#include "runtime/library.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

// --- keys
// -----------------------------------------------------------------------------------------

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

/// A key and its position, ordered by both.
template <class Key>
struct PairEntry {
  using Entry = std::pair<Key, int64_t>;
  static Entry make(Key key, int64_t position) { return {key, position}; }
  static int64_t position(const Entry& entry) { return entry.second; }
  static Entry last() {
    return {std::numeric_limits<Key>::max(), std::numeric_limits<int64_t>::max()};
  }
  static void sort_positioned(std::vector<Entry>& entries, std::vector<Entry>&) {
    std::sort(entries.begin(), entries.end());
  }
};
/// Both in one word.
template <class Key>
struct WordEntry {
  using Entry = uint64_t;
  static constexpr int kKeyBits = 8 * sizeof(Key);
  static Entry make(Key key, int64_t position) {
    const uint64_t biased =
        static_cast<uint32_t>(static_cast<int64_t>(key) - std::numeric_limits<Key>::min());
    return biased << 32 | static_cast<uint64_t>(position);
  }
  static int64_t position(Entry entry) { return static_cast<int64_t>(entry & 0xFFFFFFFF); }
  static Entry last() { return std::numeric_limits<Entry>::max(); }

  /// From the lowest digit of the key on; positions are in order at the start, so they stay so. A
  /// digit that all keys share is passed over.
  static void sort_positioned(std::vector<Entry>& entries, std::vector<Entry>& other) {
    constexpr size_t kFewest = 128;
    if (entries.size() < kFewest) return std::sort(entries.begin(), entries.end());
    other.resize(entries.size());
    for (int shift = 32; shift < 32 + kKeyBits; shift += 8) {
      std::array<size_t, 256> starts{};
      for (const Entry entry : entries) ++starts[entry >> shift & 255];
      if (starts[entries[0] >> shift & 255] == entries.size()) continue;
      size_t total = 0;
      for (size_t& start : starts) total += std::exchange(start, total);
      for (const Entry entry : entries) other[starts[entry >> shift & 255]++] = entry;
      entries.swap(other);
    }
  }
};

// --- rows
// -----------------------------------------------------------------------------------------

/// First element of a row: leading dimensions row-major.
int64_t row_offset(const Operand& operand, int64_t row) {
  int64_t at = 0;
  for (size_t i = operand.sizes.size() - 1; i-- > 0;) {
    at += row % operand.sizes[i] * operand.strides[i];
    row /= operand.sizes[i];
  }
  return at;
}

template <class Stored, class Key, Key (*key_of)(Stored), class Entries, class Place>
class RankPlan final : public LibraryPlan {
  using Entry = typename Entries::Entry;

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
    Place* to = static_cast<Place*>(operands[1]);
    parallel_for(report_.tasks, [&](int64_t lo, int64_t hi) {
      std::vector<Entry> entries;
      std::vector<Entry> other;
      for (int64_t row = lo; row < hi; ++row) {
        collect(from + row_offset(in_, row), entries);
        if (limit_ == length_)
          Entries::sort_positioned(entries, other);
        else
          std::sort(entries.begin(), entries.end());
        write(entries, to + row_offset(out_, row));
      }
    });
  }
  void pack(const void*, void*) override {}

 private:
  /// The complement of a key turns the order around and leaves positions ascending.
  Entry entry(const Stored* from, int64_t i) const {
    const Key key = key_of(from[i * in_.strides.back()]);
    return Entries::make(static_cast<Key>(descending_ ? ~key : key), i);
  }

  /// The `limit_` least entries; without a limit all, by position.
  void collect(const Stored* from, std::vector<Entry>& entries) const {
    entries.clear();
    const size_t most = static_cast<size_t>(limit_);
    const size_t room = limit_ == length_ ? most + 1 : 2 * most + 64;
    entries.reserve(std::min(room, static_cast<size_t>(length_)));
    Entry bound = Entries::last();
    for (int64_t i = 0; i < length_ && most > 0; ++i) {
      const Entry next = entry(from, i);
      if (!(next < bound)) continue;
      entries.push_back(next);
      if (entries.size() == room) bound = keep_least(entries, most);
    }
    if (entries.size() > most) keep_least(entries, most);
  }
  static Entry keep_least(std::vector<Entry>& entries, size_t most) {
    const auto last = entries.begin() + static_cast<int64_t>(most) - 1;
    std::nth_element(entries.begin(), last, entries.end());
    entries.resize(most);
    return entries.back();
  }

  void write(const std::vector<Entry>& entries, Place* to) const {
    const int64_t stride = out_.strides.back();
    if (limit_ < length_)
      for (int64_t i = 0; i < length_; ++i) to[i * stride] = static_cast<Place>(limit_);
    Place place = 0;
    for (const Entry& entry : entries) to[Entries::position(entry) * stride] = place++;
  }

  Operand in_;
  Operand out_;
  int64_t length_;
  int64_t rows_ = 1;
  int64_t limit_ = 0;
  bool descending_;
};

using Plan = std::unique_ptr<LibraryPlan>;
template <class Stored, class Key, Key (*key_of)(Stored), class Entries>
Plan make_placed(std::span<const Operand> operands, const abi::RankParams& params) {
  if (operands[1].dtype == DType::i32)
    return std::make_unique<RankPlan<Stored, Key, key_of, Entries, int32_t>>(operands[0],
                                                                             operands[1], params);
  return std::make_unique<RankPlan<Stored, Key, key_of, Entries, int64_t>>(operands[0], operands[1],
                                                                           params);
}
template <class Stored, class Key, Key (*key_of)(Stored)>
Plan make(std::span<const Operand> operands, const abi::RankParams& params) {
  const bool fits = operands[0].sizes.back() <= std::numeric_limits<uint32_t>::max();
  if constexpr (sizeof(Key) <= 4)
    if (fits) return make_placed<Stored, Key, key_of, WordEntry<Key>>(operands, params);
  return make_placed<Stored, Key, key_of, PairEntry<Key>>(operands, params);
}
int64_t key_of_f64(double x) {
  return float_key<int64_t, 0x7FF0000000000000>(std::bit_cast<int64_t>(x));
}
int32_t key_of_f32(float x) { return float_key<int32_t, 0x7F800000>(std::bit_cast<int32_t>(x)); }
int16_t key_of_u8(uint8_t x) { return x; }

bool are_places(const Operand& out) {
  return out.dtype == DType::i64 ||
         (out.dtype == DType::i32 && out.sizes.back() <= std::numeric_limits<int32_t>::max());
}

}  // namespace

Plan plan_rank(std::span<const Operand> operands, const abi::RankParams& params) {
  if (operands.size() != 2 || operands[0].sizes.empty() || operands[0].sizes != operands[1].sizes ||
      !are_places(operands[1]))
    throw UserError("rank needs an operand with rows and an i64 or i32 result of its sizes");
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
    case DType::f8e4m3fn: return make<int8_t, int8_t, float_key<int8_t, 0x7E>>(operands, params);
    case DType::f8e5m2: return make<int8_t, int8_t, float_key<int8_t, 0x7C>>(operands, params);
    case DType::c64:
    case DType::c128: break;
  }
  throw Unsupported("rank of this dtype");
}

}  // namespace tandem::runtime
