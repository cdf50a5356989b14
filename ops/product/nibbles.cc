// Products with weights of 4 bits, which are read as they lie: half a byte for each product. Eight
// terms of one row w[n] are a number of 32 bits, and 32 rows lie side by side, so that one load, a
// shift and a mask give a pack of terms for each lane of a register:
//   panels[n / 32, k / 8, n % 32] = sum over p, q of w[n, k + p * parts + q] << (4 p + 32 q / parts)
// where k is a multiple of 8, `parts` is 4 (bytes) or 2 (16-bit halves) and p < 8 / parts.
// Scales change from group to group along the terms, so the sums are those of each group:
//   C[i, g, n] = sum over k of group g of x[i, k] w[n, k]
// x are signed bytes (16-bit halves), w unsigned. Sums are of 32 bits: of up to 512 terms of
// 15 * 32768 none wraps. quant/int4_products.cc writes these ops.
#include "ops/product/nibbles.h"

#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/product/packed.h"

namespace tandem::ops {
namespace {

using loop::Val;

constexpr std::string_view kIntegers = "its results are integers";
constexpr int64_t kBits = 4;
constexpr int64_t kMostTerms = 512;  // of a group

int64_t parts_of(const Call& c) {
  const int64_t parts = c.constant("parts");
  if (parts != 2 && parts != 4) c.fail("parts must be 2 or 4");
  return parts;
}

// --- packing

/// Part number `q` of eight terms: those that are it in some pack.
Val part_of(Lowering& lowering, const Call& c, int64_t parts, Expr row, Expr first, int64_t q) {
  loop::ScalarPool& pool = lowering.scalars();
  Element part{pool, pool.integer(DType::i32, 0)};
  for (int64_t p = 0; p < kNibbles / parts; ++p) {
    Element term{pool, lowering.load(c.value("self"), {row, first + p * parts + q})};
    term = both(term.cast(DType::i32), part.integer(15));
    part = either(part, term.apply(Opcode::shift_left, part.integer(kBits * p)));
  }
  return part.cast(parts == 2 ? DType::i16 : DType::u8).value();
}

Definition pack_lower(Lowering& lowering, const Call& c) {
  const int64_t parts = parts_of(c);
  return map_definition(c, [&lowering, c, parts](size_t, const Index& index) {
    const Expr row = index[0] * kNibblePanel + index[2];
    std::vector<Val> all;
    for (int64_t q = 0; q < parts; ++q)
      all.push_back(part_of(lowering, c, parts, row, index[1] * kNibbles, q));
    return lowering.scalars().pack(std::move(all));
  });
}

const OpDef kPack{
    .schema = "tandem::pack_nibbles(Tensor self, int parts) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      parts_of(c);
      if (c.type("self").dtype != DType::u8) c.fail(c.describe("self") + " must have dtype u8");
      const Sizes& sizes = c.type("self").sizes;
      if (!sym::known_divisible(sizes[0], kNibblePanel) ||
          !sym::known_divisible(sizes[1], kNibbles))
        c.fail(fmt::format("{} must have a multiple of {} rows and of {} columns",
                           c.describe("self"), kNibblePanel, kNibbles));
      return {ir::Type::tensor(DType::i32, {sym::floor_div(sizes[0], kNibblePanel),
                                            sym::floor_div(sizes[1], kNibbles), kNibblePanel})};
    },
    .lower = pack_lower,
    .no_grad = kIntegers,
    .samples = {"u8[32, 8]:bytes, 4", "u8[64, 24]:bytes, 4", "u8[64, 24]:bytes, 2", "u8[0, 8], 4",
                "u8[32, 0], 2", "u8[33, 8], 4", "u8[32, 12], 4", "i8[32, 8], 4", "u8[32, 8], 3"}};

/// A number for each row and group, [n, g], beside the panels: [n / 32, g, 32].
const OpDef kRowPanels{
    .schema = "tandem::row_panels(Tensor self) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      const ir::Type& self = c.type("self");
      if (!sym::known_divisible(self.sizes[0], kNibblePanel))
        c.fail(fmt::format("{} must have a multiple of {} rows", c.describe("self"), kNibblePanel));
      return {ir::Type::tensor(self.dtype, {sym::floor_div(self.sizes[0], kNibblePanel),
                                            self.sizes[1], kNibblePanel})};
    },
    .lower = reindex<[](const Call&, size_t, const Index& index) {
      return Index{index[0] * kNibblePanel + index[2], index[1]};
    }>,
    .no_grad = "the weight is one of integers",
    .samples = {"$[32, 3]", "$[64, 1]", "$[0, 3]", "$[33, 3]", "$[32]"},
    .sample_dtypes = DTypes::numbers};

// --- sums of groups

Types sum_types(const Call& c) {
  need_rank(c, "self", 2, 2);
  need_rank(c, "panels", 3, 3);
  const int64_t parts = parts_of(c);
  const int64_t group = c.constant("group");
  const ir::Type& x = c.type("self");
  const Sizes& panels = c.type("panels").sizes;
  const DType dtype = parts == 2 ? DType::i16 : DType::i8;
  if (x.dtype != dtype)
    c.fail(fmt::format("{} must have dtype {}", c.describe("self"), name_of(dtype)));
  if (c.type("panels").dtype != DType::i32 || panels[2] != Expr(kNibblePanel))
    c.fail(c.describe("panels") + " must be what tandem::pack_nibbles gives");
  if (!sym::known_eq(panels[1] * kNibbles, x.sizes[1]))
    c.fail(fmt::format("{} and {}: numbers of terms differ", c.describe("self"),
                       c.describe("panels")));
  if (group <= 0 || group % kNibbles != 0 || group > kMostTerms ||
      !sym::known_divisible(x.sizes[1], group))
    c.fail(fmt::format("group {} must be a multiple of {}, at most {}, and divide the terms of {}",
                       group, kNibbles, kMostTerms, c.describe("self")));
  return {ir::Type::tensor(
      DType::i32, {x.sizes[0], sym::floor_div(x.sizes[1], group), panels[0] * kNibblePanel})};
}

/// The terms of pack `step` of eight, out of the number that holds them.
Val terms_of(loop::ScalarPool& pool, Val eight, int64_t parts, Expr step) {
  constexpr int64_t kOfBytes = 0x0F0F0F0F;
  constexpr int64_t kOfHalves = 0x000F000F;
  Element all{pool, eight};
  const Element shift = Element{pool, pool.index(step * kBits)}.cast(DType::i32);
  all = all.apply(Opcode::shift_right, shift);
  return both(all, all.integer(parts == 4 ? kOfBytes : kOfHalves)).value();
}

Definition sum_lower(Lowering& lowering, const Call& c) {
  const int64_t parts = parts_of(c);
  const int64_t group = c.constant("group");
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = parts == 4 ? loop::Combiner::dot4 : loop::Combiner::dot2;
  definition.reduce_sizes = {group / kNibbles, kNibbles / parts};
  definition.input = [&lowering, c, parts, group](const Index& out, const Index& r) {
    const Expr eight = out[1] * (group / kNibbles) + r[0];
    const Val weight = lowering.load(
        c.value("panels"),
        {sym::floor_div(out[2], kNibblePanel), eight, sym::mod(out[2], kNibblePanel)});
    const Val x = packed_parts(lowering, c.value("self"), parts, eight * kNibbles + r[1] * parts,
                               c.type("self").sizes[1], nullptr,
                               [&](Expr place) { return Index{out[0], place}; });
    return std::vector<Val>{terms_of(lowering.scalars(), weight, parts, r[1]), x};
  };
  return definition;
}

const OpDef kSums{
    .schema = "tandem::nibble_sums(Tensor self, Tensor panels, int group, int parts) -> Tensor",
    .types = sum_types,
    .lower = sum_lower,
    .no_grad = kIntegers,
    .samples = {"i8[3, 64]:bytes, i32[2, 8, 32]:bytes, 32, 4",
                "i8[1, 128]:bytes, i32[3, 16, 32]:bytes, 64, 4",
                "i16[2, 64]:bytes, i32[2, 8, 32]:bytes, 32, 2",
                "i8[5, 16], i32[1, 2, 32]:bits, 8, 4", "i8[0, 16], i32[1, 2, 32], 8, 4",
                "i8[1, 64], i32[2, 4, 32], 32, 4", "i8[1, 64], i32[2, 8, 16], 32, 4",
                "i8[1, 64], i32[2, 8, 32], 48, 4", "u8[1, 64], i32[2, 8, 32], 32, 4",
                "i8[1, 64], i32[2, 8, 32], 32, 2"}};

const OpDef* const kOps[] = {&kPack, &kRowPanels, &kSums};

}  // namespace

Family nibbles_family() { return kOps; }

}  // namespace tandem::ops
