// Matrix products of the library facade against a naive loop.
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/diagnostic.h"
#include "loop/small_floats.h"
#include "runtime/array.h"
#include "runtime/library.h"
#include "runtime/parallel_for.h"
#include "test/runtime/execute_plan.h"
#include "test/runtime/numbers.h"

namespace tandem::runtime {
namespace {

using Dims = std::vector<int64_t>;

double read(const Array& array, int64_t at) {
  return array.dtype() == DType::f32
             ? static_cast<double>(array.data<float>()[at])
             : static_cast<double>(loop::bf16_to_f32(array.data<uint16_t>()[at]));
}

Array make(DType dtype, const Dims& sizes, const Dims& strides, std::mt19937& random) {
  const int64_t elements = std::max<int64_t>(1, extent(sizes, strides));
  const Array block = Array::empty(dtype, Dims{elements});
  Numbers values(random);
  for (int64_t i = 0; i < elements; ++i) {
    const float value = values.next();
    if (dtype == DType::f32) {
      block.data<float>()[i] = value;
    } else {
      block.data<uint16_t>()[i] = loop::f32_to_bf16(value);
    }
  }
  return block.as_strided(sizes, strides);
}

Operand operand_of(const Array& a) {
  return {
      a.dtype(), {a.sizes().begin(), a.sizes().end()}, {a.strides().begin(), a.strides().end()}};
}

// A plan's weight, packed where the plan wants it so.
Array packed_weight(LibraryPlan& plan, const Array& weight) {
  if (plan.packed_layout().empty()) return weight;
  const Array block = Array::empty(DType::u8, Dims{plan.packed_bytes()});
  plan.pack(weight.raw(), block.raw());
  return block;
}

std::unique_ptr<LibraryPlan> run(const std::vector<Array>& arrays, bool is_constant = false) {
  std::vector<Operand> operands;
  std::vector<void*> data;
  for (const Array& array : arrays) {
    operands.push_back(operand_of(array));
    data.push_back(array.raw());
  }
  std::unique_ptr<LibraryPlan> plan = plan_matmul(operands, arrays.size() == 4, is_constant);
  const Array weight = packed_weight(*plan, arrays[1]);
  data[1] = weight.raw();
  execute(*plan, data);
  return plan;
}

// Element of a broadcast array at a multi-index of the result; the last two indices are given.
int64_t position(const Array& array, const Dims& index, int64_t row, int64_t column) {
  int64_t at = 0;
  const size_t rank = array.rank();
  for (size_t from_end = 0; from_end < rank; ++from_end) {
    const size_t dim = rank - 1 - from_end;
    int64_t i = from_end == 0 ? column : from_end == 1 ? row : index[index.size() - 1 - from_end];
    if (array.sizes()[dim] == 1) i = 0;
    at += i * array.strides()[dim];
  }
  return at;
}

// With the second factor as it lies, and packed.
void check(const std::vector<Array>& arrays, const std::string& what) {
  const Array& out = arrays.back();
  run(arrays);
  const Array plain = Array::empty(out.dtype(), out.sizes());
  plain.copy_from(out);
  run(arrays, true);
  const int64_t k = arrays[0].sizes().back();
  const double tolerance = out.dtype() == DType::f32 ? 1e-5 : 1e-2;
  Dims index(out.rank(), 0);
  const int64_t count = out.numel();
  int64_t wrong = 0;
  double worst = 0;
  // Of large products a sample: these loops are slow under sanitizers.
  const int64_t step = 1 + count * k / 500000;
  for (int64_t i = 0; i < count; i += step) {
    int64_t rest = i;
    for (size_t d = out.rank(); d-- > 0;) {
      index[d] = rest % out.sizes()[d];
      rest /= out.sizes()[d];
    }
    const int64_t row = index[out.rank() - 2], column = index[out.rank() - 1];
    double sum = arrays.size() == 4 ? read(arrays[2], position(arrays[2], index, row, column)) : 0;
    int64_t left = position(arrays[0], index, row, 0);
    int64_t right = position(arrays[1], index, 0, column);
    const int64_t left_step = position(arrays[0], index, row, 1) - left;
    const int64_t right_step = position(arrays[1], index, 1, column) - right;
    for (int64_t j = 0; j < k; ++j, left += left_step, right += right_step)
      sum += read(arrays[0], left) * read(arrays[1], right);
    const double error = std::max(std::abs(sum - read(out, position(out, index, row, column))),
                                  std::abs(sum - read(plain, i)));
    worst = std::max(worst, error);
    wrong += !(error <= tolerance * std::sqrt(1.0 + static_cast<double>(k)) *
                            (out.dtype() == DType::f32 ? 1 : std::max(1.0, std::abs(sum))));
  }
  EXPECT_EQ(wrong, 0) << what << " worst " << worst;
}

Dims permuted(const Dims& sizes, std::mt19937& random, int64_t gap) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  Dims strides(sizes.size());
  int64_t stride = gap;
  for (const size_t d : order) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, sizes[d]);
  }
  return strides;
}

TEST(MatmulTest, PlainShapes) {
  std::mt19937 random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t m : {1, 2, 17, 130})
      for (const int64_t n : {1, 3, 64, 200})
        for (const int64_t k : {0, 1, 5, 64, 700})
          for (int form = 0; form < 8; ++form) {
            const Dims a{m, k}, b{k, n}, o{m, n};
            const Dims a_s = form & 1 ? Dims{1, m} : Dims{std::max<int64_t>(1, k), 1};
            const Dims b_s = form & 2 ? Dims{1, std::max<int64_t>(1, k)} : Dims{n, 1};
            const Dims o_s = form & 4 ? Dims{1, m} : Dims{n, 1};
            std::vector<Array> arrays = {make(dtype, a, a_s, random), make(dtype, b, b_s, random),
                                         make(dtype, o, o_s, random)};
            if (form % 3 == 1) arrays.insert(arrays.begin() + 2, make(dtype, {n}, {1}, random));
            check(arrays, std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
                              " form " + std::to_string(form));
          }
}

TEST(MatmulTest, RandomBatchesAndStrides) {
  std::mt19937 random(2);
  const auto size = [&](int limit) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(limit));
  };
  for (int round = 0; round < 600; ++round) {
    const DType dtype = round % 4 == 3 ? DType::bf16 : DType::f32;
    const int64_t m = size(20), n = size(20), k = size(20);
    Dims a, b, o, c;
    const size_t batch = random() % 3;
    for (size_t i = 0; i < batch; ++i) {
      const int64_t extent_here = 1 + size(4);
      o.push_back(extent_here);
      if (!a.empty() || random() % 4 != 0) a.push_back(random() % 3 == 0 ? 1 : extent_here);
      if (!b.empty() || random() % 3 != 0) b.push_back(random() % 3 == 0 ? 1 : extent_here);
    }
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    o.insert(o.end(), {m, n});
    std::vector<Array> arrays = {make(dtype, a, permuted(a, random, 1 + round % 5 / 4), random),
                                 make(dtype, b, permuted(b, random, 1 + round % 7 / 6), random),
                                 make(dtype, o, permuted(o, random, 1 + round % 9 / 8), random)};
    if (random() % 2 == 0) {
      c = o;
      for (int64_t& extent_here : c)
        if (random() % 2 == 0) extent_here = 1;
      c.erase(c.begin(), c.begin() + static_cast<ptrdiff_t>(random() % (c.size() + 1)));
      arrays.insert(arrays.begin() + 2, make(dtype, c, permuted(c, random, 1), random));
    }
    check(arrays, "round " + std::to_string(round));
  }
}

TEST(MatmulTest, LongReductionOfOneRow) {
  std::mt19937 random(3);
  check({make(DType::f32, {1, 20000}, {20000, 1}, random),
         make(DType::f32, {20000, 70}, {1, 20000}, random),
         make(DType::f32, {1, 70}, {70, 1}, random)},
        "1 x 20000");
  check({make(DType::f32, {300, 2000}, {2000, 1}, random),
         make(DType::f32, {2000, 1}, {1, 1}, random), make(DType::f32, {300, 1}, {1, 1}, random)},
        "matrix by vector");
}

TEST(MatmulTest, EmptyReductionGivesBias) {
  std::mt19937 random(4);
  const Array bias = make(DType::f32, {3}, {1}, random);
  const Array out = make(DType::f32, {2, 3}, {3, 1}, random);
  run({make(DType::f32, {2, 0}, {1, 1}, random), make(DType::f32, {0, 3}, {3, 1}, random), bias,
       out});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(out.data<float>()[i], bias.data<float>()[i % 3]);
}

TEST(MatmulTest, MixedTypes) {
  std::mt19937 random(5);
  check({make(DType::bf16, {33, 70}, {70, 1}, random), make(DType::bf16, {70, 40}, {40, 1}, random),
         make(DType::f32, {33, 40}, {40, 1}, random)},
        "bf16 to f32");
  check({make(DType::bf16, {33, 70}, {70, 1}, random), make(DType::bf16, {70, 40}, {40, 1}, random),
         make(DType::f32, {40}, {1}, random), make(DType::bf16, {33, 40}, {40, 1}, random)},
        "f32 bias");
}

TEST(MatmulTest, SameBitsAtAnyThreadCount) {
  std::mt19937 random(6);
  const int saved = threads();
  struct Case {
    Dims a, a_strides, b, b_strides;
  };
  const std::vector<Case> cases = {
      {{300, 700}, {700, 1}, {700, 500}, {500, 1}},
      {{300, 700}, {700, 1}, {700, 500}, {1, 700}},
      {{300, 700}, {1, 300}, {700, 500}, {500, 1}},
      {{16, 768}, {768, 1}, {768, 3000}, {1, 768}},
      {{1, 768}, {768, 1}, {768, 3000}, {1, 768}},
      {{5000, 64}, {64, 1}, {64, 100}, {100, 1}},
      {{24, 128, 32}, {4096, 32, 1}, {24, 32, 128}, {4096, 1, 32}},
      {{2, 8, 128, 32}, {32768, 32, 256, 1}, {2, 8, 32, 128}, {32768, 32, 1, 256}},
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& one : cases) {
      Dims out(one.a.begin(), one.a.end() - 1);
      out.push_back(one.b.back());
      const Array a = make(dtype, one.a, one.a_strides, random);
      const Array b = make(dtype, one.b, one.b_strides, random);
      for (const bool is_constant : {false, true}) {
        Array first;
        for (const int count : {1, 2, 3, 8}) {
          set_threads(count);
          const Array result = Array::zeros(dtype, out);
          run({a, b, result}, is_constant);
          if (count == 1) first = result;
          EXPECT_EQ(std::memcmp(first.raw(), result.raw(), static_cast<size_t>(result.nbytes())),
                    0);
        }
      }
    }
  set_threads(saved);
}

// 197 rows in three blocks kept one of two cores waiting for a third of the time. Sizes grow with
// the machine; nothing is computed.
TEST(MatmulTest, FewCoresWaitAtTheEnd) {
  const int64_t cores = machine_cores();
  const int64_t n = 1536 * cores, k = 768;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t m : {64 * cores, 99 * cores - 1, 128 * cores, 500 * cores})
      for (const Dims& b : {Dims{n, 1}, Dims{1, k}}) {
        const std::vector<Operand> operands = {
            {dtype, {m, k}, {k, 1}}, {dtype, {k, n}, b}, {dtype, {m, n}, {n, 1}}};
        const int64_t tasks = plan_matmul(operands, false, false)->report().tasks;
        const int64_t waiting = (cores - tasks % cores) % cores;
        EXPECT_LE(waiting, tasks / 8) << m << " rows, " << tasks << " tasks";
      }
}

/// Bytes by which the heap of a process with one thread grows while it multiplies, sixteen times,
/// what oneDNN packs into megabytes of malloc. Between calls a program takes small blocks and keeps
/// some.
size_t heap_for_products() {
  set_threads(1);
  const int64_t m = 768, k = 1024, n = 3072;
  const Array a = Array::zeros(DType::f32, Dims{k, m}), b = Array::zeros(DType::f32, Dims{k, n});
  const Array out = Array::zeros(DType::f32, Dims{m, n});
  const std::vector<Operand> operands = {
      {DType::f32, {m, k}, {1, m}}, {DType::f32, {k, n}, {n, 1}}, {DType::f32, {m, n}, {n, 1}}};
  const std::unique_ptr<LibraryPlan> plan = plan_matmul(operands, false);
  const std::array<void*, 3> data = {a.raw(), b.raw(), out.raw()};
  std::vector<std::unique_ptr<char[]>> kept;
  const size_t before = mallinfo2().arena;
  for (int call = 0; call < 16; ++call) {
    plan->execute(data);
    for (size_t bytes = 24; bytes <= 152; bytes += 16)
      kept.push_back(std::make_unique<char[]>(bytes));
  }
  return mallinfo2().arena - before;
}

// In a process of its own: what tests before leave of the heap would hide the growth. Packed are
// 5 MB; where buffers wander the heap grows by 50.
TEST(MatmulTest, PackingStaysAtOnePlaceOfTheHeap) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(heap_for_products() < size_t{16} << 20 ? 0 : 1),
              testing::ExitedWithCode(0), "");
}

TEST(MatmulTest, UserMistakes) {
  std::mt19937 random(7);
  const Array a = make(DType::f32, {2, 3}, {3, 1}, random);
  EXPECT_THROW(run({a, a, make(DType::f32, {2, 3}, {3, 1}, random)}), UserError);
  const Array d = Array::zeros(DType::f64, Dims{3, 3});
  EXPECT_THROW(run({d, d, d}), Unsupported);
}

TEST(LibrarySiteTest, KeepsPlansOfRecentShapes) {
  abi::LibraryCall call;
  LibrarySite site(call);
  const auto shapes = [](int64_t m) {
    return std::vector<Operand>{
        {DType::f32, {m, 4}, {4, 1}}, {DType::f32, {4, 5}, {5, 1}}, {DType::f32, {m, 5}, {5, 1}}};
  };
  LibraryPlan* const first = &site.prepare(shapes(1));
  const int64_t before = library_statistics().plans;
  for (int64_t m = 2; m <= 8; ++m) site.prepare(shapes(m));
  EXPECT_EQ(&site.prepare(shapes(1)), first);
  EXPECT_EQ(library_statistics().plans, before + 7);
  site.prepare(shapes(9));
  site.prepare(shapes(2));
  EXPECT_EQ(library_statistics().plans, before + 9);
  EXPECT_FALSE(last_implementation().empty());
}

}  // namespace
}  // namespace tandem::runtime
