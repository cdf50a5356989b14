// Products of floats with weights of 8 or 4 bits, which are read as floats where they are used:
//   8 bits   C[m, n] = s[n] * sum_k A[m, k] W[n, k]
//   4 bits   C[m, n] = sum_k A[m, k] ((q[n, k] - 8) * s[g, n] + zero[g, n])     g = k / group size
// A weight of 4 bits comes packed by PyTorch for the processor that it packed it on: rows in blocks
// of B, 64 with AVX-512 and else 32. Of a whole block the byte [k, i] holds row i below and row
// i + B/2 above; the rows behind the last whole block are one block, whose byte [k, i] holds rows
// 2i and 2i + 1. The program must run where the weight was packed, as PyTorch's own must.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kNoGradient = "PyTorch has no gradient of products with packed weights";

void need_equal(const Call& c, std::string_view what, Expr a, Expr b) {
  if (a != b && !sym::known_eq(a, b))
    c.fail(fmt::format("{} and {}: {} {} and {} differ", c.describe("self"), c.describe("mat2"),
                       what, sym::to_string(a), sym::to_string(b)));
}

/// `bytes` of 8 bits may be floats, too: more than PyTorch's operator takes.
void check_factors(const Call& c, DType weight) {
  for (std::string_view param : {"self", "mat2"}) need_rank(c, param, 2, 2);
  DType dtype = c.type("self").dtype;
  if (!is_float(dtype) || dtype == DType::f64)
    c.fail(c.describe("self") + " must have dtype f32, bf16 or f16");
  const DType own = c.type("mat2").dtype;
  if (own != weight && !(weight == DType::i8 && is_float8(own)))
    c.fail(fmt::format("{} must have dtype {}", c.describe("mat2"), name_of(weight)));
}

Types result_types(const Call& c) {
  const ir::Type& self = c.type("self");
  return {ir::Type::tensor(self.dtype, {self.sizes[0], c.type("mat2").sizes[0]})};
}

/// The sum over k of A and of what `weight` gives at (n, k), both f32.
template <class Weight>
Definition product(Lowering& lowering, const Call& c, Weight weight) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::dot;
  definition.reduce_sizes = {c.type("self").sizes[1]};
  definition.input = [&lowering, c, weight](const Index& out, const Index& r) {
    loop::Val x = lowering.load(c.value("self"), {out[0], r[0]});
    return std::vector<loop::Val>{x, weight(out[1], r[0]).value()};
  };
  return definition;
}

// --- 8 bits
// --------------------------------------------------------------------------------------

Definition int8_product(Lowering& lowering, const Call& c) {
  Definition definition = product(lowering, c, [&lowering, c](Expr n, Expr k) {
    Element q{lowering.scalars(), lowering.load(c.value("mat2"), {n, k})};
    return q.cast(DType::f32);
  });
  definition.finish = [&lowering, c](std::span<const loop::Val> sums, const Index& out) {
    Element sum{lowering.scalars(), sums[0]};
    Element scale{lowering.scalars(), lowering.load(c.value("scales"), {out[1]})};
    return std::vector<loop::Val>{(sum * scale).value()};
  };
  return definition;
}

const OpDef kInt8Product{
    .schema = "aten::_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_factors(c, DType::i8);
      need_same_dtype(c, {"self", "scales"});
      need_rank(c, "scales", 1, 1);
      need_equal(c, "inner sizes", c.type("self").sizes[1], c.type("mat2").sizes[1]);
      need_equal(c, "rows and scales", c.type("mat2").sizes[0], c.type("scales").sizes[0]);
      return result_types(c);
    },
    .lower = int8_product,
    .no_grad = kNoGradient,
    // K is a multiple of 16, without which eager reads behind the operands in bf16.
    .samples = {"$[3, 64], i8[6, 64]:bytes, $[6]:unit", "$[1, 32], i8[7, 32]:bytes, $[7]:unit",
                "f32[2, 33], i8[7, 33]:bytes, f32[7]:unit", "$[0, 64], i8[6, 64]:bytes, $[6]:unit",
                "$[70, 128], i8[65, 128]:bytes, $[65]:unit",
                "$[5, 16]{20, 1}, i8[6, 16]:bytes, $[6]:unit", "$[3, 64], u8[6, 64]:bytes, $[6]",
                "$[3, 64], i8[6, 63]:bytes, $[6]", "$[3, 64], i8[6, 64]:bytes, $[5]",
                "$[3, 64], i8[6, 64]:bytes, f64[6]", "$[64], i8[6, 64], $[6]"},
    .narrow = NarrowFactor::bytes};

// --- 4 bits
// --------------------------------------------------------------------------------------

/// Rows of a whole block: four registers of f32 of PyTorch's kernels.
int64_t block_rows() {
  static const bool kIsWide =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return kIsWide ? 64 : 32;
}

/// Rows and columns of the weight, and how many rows lie in whole blocks.
struct Packing {
  int64_t rows, columns, in_blocks;
  int64_t rest() const { return rows - in_blocks; }
};
Packing packing_of(const Call& c, std::string_view param, int64_t columns_of_one) {
  std::optional<int64_t> rows = c.type(param).sizes[0].constant();
  std::optional<int64_t> columns = c.type(param).sizes[1].constant();
  if (!rows || !columns) c.fail(c.describe(param) + " must have sizes that are known");
  if (*rows % 16 != 0) c.fail(c.describe(param) + " must have a multiple of 16 rows");
  return {*rows, *columns * columns_of_one, *rows / block_rows() * block_rows()};
}

/// Byte number `byte` of the packed weight, as an index of its matrix. Without columns none is
/// read.
Index byte_index(const Packing& packing, Expr byte) {
  Expr width = std::max<int64_t>(1, packing.columns / 2);
  return {sym::floor_div(byte, width), sym::mod(byte, width)};
}

Element in_blocks(loop::ScalarPool& pool, const Packing& packing, Expr row) {
  return Element{pool, pool.index(row)} < Element{pool, pool.index(packing.in_blocks)};
}

/// q[n, k], a u8: the byte of n's block, or that of the rest.
Element packed_weight(Lowering& lowering, const Call& c, std::string_view param,
                      const Packing& packing, Expr n, Expr k) {
  loop::ScalarPool& pool = lowering.scalars();
  const int64_t half = block_rows() / 2;
  Expr in_block = sym::mod(n, 2 * half);
  Expr whole = sym::floor_div(n, 2 * half) * (half * packing.columns) + k * half;
  Element is_whole = in_blocks(pool, packing, n);
  Element above{pool, pool.index(sym::floor_div(in_block, half))};
  Element byte{pool,
               lowering.load(c.value(param), byte_index(packing, whole + sym::mod(in_block, half)),
                             packing.rest() == 0 ? nullptr : is_whole.value())};
  if (packing.rest() != 0) {
    Expr row = n - packing.in_blocks;
    Expr start = packing.in_blocks / 2 * packing.columns + k * (packing.rest() / 2);
    Element other{pool,
                  lowering.load(c.value(param), byte_index(packing, start + sym::floor_div(row, 2)),
                                is_whole.apply(Opcode::logical_not).value())};
    byte = choose(is_whole, byte, other);
    above = choose(is_whole, above, Element{pool, pool.index(sym::mod(row, 2))});
  }
  Element high = byte.apply(Opcode::shift_right, byte.integer(4));
  Element is_above = not_equal(above, above.integer(0));
  return choose(is_above, high, both(byte, byte.integer(15)));
}

Definition int4_product(Lowering& lowering, const Call& c) {
  Packing packing = packing_of(c, "mat2", 2);
  int64_t group = c.constant("qGroupSize");
  return product(lowering, c, [&lowering, c, packing, group](Expr n, Expr k) {
    Element q = packed_weight(lowering, c, "mat2", packing, n, k).cast(DType::f32);
    Expr of = sym::floor_div(k, group);
    ir::Value* parameters = c.value("qScaleAndZeros");
    Element scale{q.pool(), lowering.load(parameters, {of, n, Expr(0)})};
    Element zero{q.pool(), lowering.load(parameters, {of, n, Expr(1)})};
    return (q - 8.0) * scale + zero;
  });
}

const OpDef kInt4Product{
    .schema =
        "aten::_weight_int4pack_mm_for_cpu(Tensor self, Tensor mat2, int qGroupSize, Tensor "
        "qScaleAndZeros) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_factors(c, DType::u8);
      need_same_dtype(c, {"self", "qScaleAndZeros"});
      Packing packing = packing_of(c, "mat2", 2);
      need_equal(c, "inner sizes", c.type("self").sizes[1], packing.columns);
      int64_t group = c.constant("qGroupSize");
      if (group != 32 && group != 64 && group != 128 && group != 256)
        c.fail(fmt::format("qGroupSize {} must be 32, 64, 128 or 256", group));
      if (packing.columns % group != 0)
        c.fail(fmt::format("{} columns are no multiple of qGroupSize {}", packing.columns, group));
      const Sizes& sizes = c.type("qScaleAndZeros").sizes;
      if (!same_sizes(sizes, {packing.columns / group, packing.rows, 2}))
        c.fail(fmt::format("{} must have sizes [{}, {}, 2]", c.describe("qScaleAndZeros"),
                           packing.columns / group, packing.rows));
      return result_types(c);
    },
    .lower = int4_product,
    .no_grad = kNoGradient,
    .samples = {"$[3, 64], u8[64, 32]:bytes, 32, $[2, 64, 2]:unit",
                "$[1, 128], u8[128, 64]:bytes, 64, $[2, 128, 2]:unit",
                "$[3, 128], u8[16, 64]:bytes, 128, $[1, 16, 2]:unit",
                "$[2, 64], u8[112, 32]:bytes, 32, $[2, 112, 2]:unit",
                "$[0, 64], u8[64, 32]:bytes, 32, $[2, 64, 2]:unit",
                "$[70, 256], u8[32, 128]:bytes, 256, $[1, 32, 2]:unit",
                "$[3, 64], u8[64, 32]:bytes, 16, $[4, 64, 2]:unit",
                "$[3, 48], u8[64, 24]:bytes, 32, $[1, 64, 2]:unit",
                "$[3, 64], u8[24, 32]:bytes, 32, $[2, 24, 2]:unit",
                "$[3, 64], i8[64, 32]:bytes, 32, $[2, 64, 2]:unit",
                "$[3, 64], u8[64, 32]:bytes, 32, $[2, 63, 2]:unit",
                "$[3, 64], u8[64, 32]:bytes, 32, f64[2, 64, 2]:unit"},
    .narrow = NarrowFactor::nibbles};

/// The byte of two rows at column k.
Element pack_rows(Lowering& lowering, const Call& c, Expr below, Expr above, Expr k,
                  loop::Val mask) {
  loop::ScalarPool& pool = lowering.scalars();
  Element low{pool, lowering.load(c.value("self"), {below, k}, mask)};
  Element high{pool, lowering.load(c.value("self"), {above, k}, mask)};
  high = high.cast(DType::u8);
  return either(low.cast(DType::u8), high.apply(Opcode::shift_left, high.integer(4)));
}

Definition pack(Lowering& lowering, const Call& c) {
  Packing packing = packing_of(c, "self", 1);
  return map_definition(c, [&lowering, c, packing](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    const int64_t half = block_rows() / 2;
    const int64_t block_bytes = std::max<int64_t>(half * packing.columns, 1);
    Expr byte = index[0] * (packing.columns / 2) + index[1];
    Expr in_block = sym::mod(byte, block_bytes);
    Expr row = sym::floor_div(byte, block_bytes) * (2 * half) + sym::mod(in_block, half);
    Element is_whole = in_blocks(pool, packing, index[0]);
    loop::Val mask = packing.rest() == 0 ? nullptr : is_whole.value();
    Element whole = pack_rows(lowering, c, row, row + half, sym::floor_div(in_block, half), mask);
    if (packing.rest() == 0) return whole.value();
    const int64_t pairs = packing.rest() / 2;
    Expr behind = byte - packing.in_blocks / 2 * packing.columns;
    Expr first = sym::mod(behind, pairs) * 2 + packing.in_blocks;
    Element is_rest = is_whole.apply(Opcode::logical_not);
    Element rest =
        pack_rows(lowering, c, first, first + 1, sym::floor_div(behind, pairs), is_rest.value());
    return choose(is_whole, whole, rest).value();
  });
}

const OpDef kPack{
    .schema = "aten::_convert_weight_to_int4pack_for_cpu(Tensor self, int innerKTiles) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      if (c.type("self").dtype != DType::i32) c.fail(c.describe("self") + " must have dtype i32");
      Packing packing = packing_of(c, "self", 1);
      if (packing.columns % 2 != 0)
        c.fail(c.describe("self") + " must have an even number of columns");
      return {ir::Type::tensor(DType::u8, {packing.rows, packing.columns / 2})};
    },
    .lower = pack,
    .no_grad = "the weight is one of integers",
    .samples = {"i32[64, 64]:index(16), 1", "i32[128, 34]:index(16), 2", "i32[16, 64]:index(16), 1",
                "i32[112, 10]:index(16), 1", "i32[32, 2]:index(16), 1", "i32[0, 4], 1",
                "i32[32, 0], 1", "i32[24, 64]:index(16), 1", "i32[32, 63]:index(16), 1",
                "i64[64, 64]:index(16), 1", "i32[64]:index(16), 1"}};

const OpDef kUnpack{
    .schema = "tandem::unpack_int4(Tensor self) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      if (c.type("self").dtype != DType::u8) c.fail(c.describe("self") + " must have dtype u8");
      const Packing packing = packing_of(c, "self", 2);
      return {ir::Type::tensor(DType::u8, {packing.rows, packing.columns})};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      return map_definition(
          c, [&lowering, c, packing = packing_of(c, "self", 2)](size_t, const Index& index) {
            return packed_weight(lowering, c, "self", packing, index[0], index[1]).value();
          });
    },
    .no_grad = "the weight is one of integers",
    .samples = {"u8[64, 32]:bytes", "u8[112, 5]:bytes", "u8[16, 2]:bytes", "u8[0, 4]",
                "u8[32, 0]"}};

const OpDef* const kOps[] = {&kInt8Product, &kInt4Product, &kPack, &kUnpack};

}  // namespace

Family weight_only_family() { return kOps; }

}  // namespace tandem::ops
