// Products of one row with weights of 4 or 8 bits, which are read as they lie. As many terms of a
// row w[n] as fill 32 bits are a number, and 32 rows lie side by side, so that one load, a shift
// and a mask give a pack of terms for each lane of a register:
//   panels[n / 32, k / T, n % 32] = sum over p, q of w[n, k + p parts + q] << (bits p + 32 q /
//   parts)
// where T = 32 / bits, k is a multiple of it, `parts` is 4 (bytes) or 2 (16-bit halves) and
// p < T / parts. Scales change from group to group along the terms, so the sums are those of each:
//   C[i, g, n] = sum over k of group g of x[i, k] w[n, k]
// x are signed bytes (16-bit halves), w unsigned. quant/one_row_products.cc writes these ops.
#include "ops/product/group_sums.h"

#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/product/packed.h"

namespace tandem::ops {
namespace {

using loop::Val;

constexpr std::string_view kIntegers = "its results are integers";

int64_t parts_of(const Call& c) {
  const int64_t parts = c.constant("parts");
  if (parts != 2 && parts != 4) c.fail("parts must be 2 or 4");
  return parts;
}

int64_t bits_of(const Call& c) {
  const int64_t bits = c.constant("bits");
  if (bits != 4 && bits != 8) c.fail("bits must be 4 or 8");
  return bits;
}

/// Packs in a number.
int64_t packs_of(int64_t bits, int64_t parts) { return terms_of_number(bits) / parts; }

// --- packing

/// Part number `q` of a number: the terms that are it in some pack.
Val part_of(Lowering& lowering, const Call& c, Expr row, Expr first, int64_t q) {
  const int64_t bits = bits_of(c);
  const int64_t parts = parts_of(c);
  loop::ScalarPool& pool = lowering.scalars();
  Element part{pool, pool.integer(DType::i32, 0)};
  for (int64_t p = 0; p < packs_of(bits, parts); ++p) {
    Element term{pool, lowering.load(c.value("self"), {row, first + p * parts + q})};
    term = both(term.cast(DType::i32), part.integer((1 << bits) - 1));
    part = either(part, term.apply(Opcode::shift_left, part.integer(bits * p)));
  }
  return part.cast(parts == 2 ? DType::i16 : DType::u8).value();
}

Definition pack_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    const Expr row = index[0] * kPanelRows + index[2];
    std::vector<Val> all;
    for (int64_t q = 0; q < parts_of(c); ++q)
      all.push_back(part_of(lowering, c, row, index[1] * terms_of_number(bits_of(c)), q));
    return lowering.scalars().pack(std::move(all));
  });
}

const OpDef kPack{
    .schema = "tandem::pack_terms(Tensor self, int bits, int parts) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      parts_of(c);
      if (c.type("self").dtype != DType::u8) c.fail(c.describe("self") + " must have dtype u8");
      const Sizes& sizes = c.type("self").sizes;
      const int64_t terms = terms_of_number(bits_of(c));
      if (!sym::known_divisible(sizes[0], kPanelRows) || !sym::known_divisible(sizes[1], terms))
        c.fail(fmt::format("{} must have a multiple of {} rows and of {} columns",
                           c.describe("self"), kPanelRows, terms));
      return {ir::Type::tensor(DType::i32, {sym::floor_div(sizes[0], kPanelRows),
                                            sym::floor_div(sizes[1], terms), kPanelRows})};
    },
    .lower = pack_lower,
    .no_grad = kIntegers,
    .samples = {"u8[32, 8]:bytes, 4, 4", "u8[64, 24]:bytes, 4, 2", "u8[64, 12]:bytes, 8, 4",
                "u8[64, 12]:bytes, 8, 2", "u8[0, 8], 4, 4", "u8[32, 0], 8, 2"}};

/// A number for each row and group, [n, g], beside the panels: [n / 32, g, 32].
const OpDef kRowPanels{
    .schema = "tandem::row_panels(Tensor self) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_rank(c, "self", 2, 2);
      const ir::Type& self = c.type("self");
      if (!sym::known_divisible(self.sizes[0], kPanelRows))
        c.fail(fmt::format("{} must have a multiple of {} rows", c.describe("self"), kPanelRows));
      return {ir::Type::tensor(
          self.dtype, {sym::floor_div(self.sizes[0], kPanelRows), self.sizes[1], kPanelRows})};
    },
    .lower = reindex<[](const Call&, size_t, const Index& index) {
      return Index{index[0] * kPanelRows + index[2], index[1]};
    }>,
    .no_grad = "the weight is one of integers",
    .samples = {"$[32, 3]", "$[64, 1]", "$[0, 3]"},
    .sample_dtypes = DTypes::numbers};

// --- sums of groups

void check_group(const Call& c, int64_t terms) {
  const int64_t group = c.constant("group");
  if (group <= 0 || group % terms != 0 || group > kMostGroupTerms ||
      !sym::known_divisible(c.type("self").sizes[1], group))
    c.fail(fmt::format("group {} must be a multiple of {}, at most {}, and divide the terms of {}",
                       group, terms, kMostGroupTerms, c.describe("self")));
}

Types sum_types(const Call& c) {
  need_rank(c, "self", 2, 2);
  need_rank(c, "panels", 3, 3);
  const int64_t terms = terms_of_number(bits_of(c));
  const ir::Type& x = c.type("self");
  const Sizes& panels = c.type("panels").sizes;
  const DType dtype = parts_of(c) == 2 ? DType::i16 : DType::i8;
  if (x.dtype != dtype)
    c.fail(fmt::format("{} must have dtype {}", c.describe("self"), name_of(dtype)));
  if (c.type("panels").dtype != DType::i32 || panels[2] != Expr(kPanelRows))
    c.fail(c.describe("panels") + " must be what tandem::pack_terms gives");
  if (!sym::known_eq(panels[1] * terms, x.sizes[1]))
    c.fail(fmt::format("{} and {}: numbers of terms differ", c.describe("self"),
                       c.describe("panels")));
  check_group(c, terms);
  const Expr groups = sym::floor_div(x.sizes[1], c.constant("group"));
  return {ir::Type::tensor(DType::i32, {x.sizes[0], groups, panels[0] * kPanelRows})};
}

/// The terms of one pack, out of the number that holds them.
Val terms_of(loop::ScalarPool& pool, Val number, int64_t bits, int64_t parts, Expr pack) {
  constexpr int64_t kOfBytes = 0x0F0F0F0F;
  constexpr int64_t kOfHalves = 0x000F000F;
  constexpr int64_t kBytesOfHalves = 0x00FF00FF;
  Element all{pool, number};
  if (packs_of(bits, parts) == 1) return number;
  const Element shift = Element{pool, pool.index(pack * bits)}.cast(DType::i32);
  all = all.apply(Opcode::shift_right, shift);
  const int64_t mask = parts == 4 ? kOfBytes : bits == 4 ? kOfHalves : kBytesOfHalves;
  return both(all, all.integer(mask)).value();
}

Definition sum_lower(Lowering& lowering, const Call& c) {
  const int64_t parts = parts_of(c);
  const int64_t bits = bits_of(c);
  const int64_t terms = terms_of_number(bits);
  const int64_t numbers = c.constant("group") / terms;
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = parts == 4 ? loop::Combiner::dot4 : loop::Combiner::dot2;
  definition.reduce_sizes = {numbers, packs_of(bits, parts)};
  definition.input = [&lowering, c, parts, bits, terms, numbers](const Index& out, const Index& r) {
    const Expr number = out[1] * numbers + r[0];
    const Val weight = lowering.load(c.value("panels"), {sym::floor_div(out[2], kPanelRows), number,
                                                         sym::mod(out[2], kPanelRows)});
    const Val x = packed_parts(lowering, c.value("self"), parts, number * terms + r[1] * parts,
                               c.type("self").sizes[1], nullptr,
                               [&](Expr place) { return Index{out[0], place}; });
    return std::vector<Val>{terms_of(lowering.scalars(), weight, bits, parts, r[1]), x};
  };
  return definition;
}

const OpDef kSums{
    .schema =
        "tandem::group_sums(Tensor self, Tensor panels, int group, int bits, int parts) -> Tensor",
    .types = sum_types,
    .lower = sum_lower,
    .no_grad = kIntegers,
    .samples = {"i8[3, 64]:bytes, i32[2, 8, 32]:bytes, 32, 4, 4",
                "i8[1, 128]:bytes, i32[3, 32, 32]:bytes, 64, 8, 4",
                "i16[2, 64]:bytes, i32[2, 8, 32]:bytes, 32, 4, 2",
                "i16[2, 32]:bytes, i32[2, 8, 32]:bytes, 32, 8, 2",
                "i8[5, 16], i32[1, 2, 32], 8, 4, 4", "i8[0, 16], i32[1, 2, 32], 8, 4, 4"}};

const OpDef* const kOps[] = {&kPack, &kRowPanels, &kSums};

}  // namespace

Family group_sums_family() { return kOps; }

}  // namespace tandem::ops
