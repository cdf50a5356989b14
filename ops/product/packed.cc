// Products of small integers whose terms come several at once: as many as fill 32 bits, which a
// processor multiplies and adds by one instruction. `parts` is 4 for bytes, where the left factor
// is unsigned and the right one signed, 2 for 16-bit halves, which hold either.
//   C[.., i, j] = sum over p, q of A[.., i, p * parts + q] B[.., p, j].q
// The right factor is packed already (`tandem::pack`: once, where it is constant); the left one is
// packed where it is read, which costs nothing where four of its bytes lie side by side. Terms
// behind the end count 0. Sums are of 32 bits and wrap; that of up to 65793 terms of 255 * 128 does
// not. With `saturates`, of four parts, the sums of two neighbouring products are held to 16 bits,
// as processors without products of bytes do it; where A is at most 127 none gets so far. The pass
// integer_products writes these ops.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/product/packed.h"
#include "ops/window.h"

namespace tandem::ops {

using loop::Val;

loop::Combiner packed_combiner(int64_t parts, bool saturates) {
  if (parts == 2) return loop::Combiner::dot2;
  return saturates ? loop::Combiner::dot4_saturating : loop::Combiner::dot4;
}

DType part_type(int64_t parts, DType from) { return parts == 2 ? DType::i16 : from; }

Val packed_parts(Lowering& lowering, const ir::Value* from, int64_t parts, Expr first, Expr extent,
                 Val inside, const std::function<Index(Expr)>& at) {
  loop::ScalarPool& pool = lowering.scalars();
  const bool fills = sym::known_divisible(extent, parts);
  std::vector<Val> parts_read;
  for (int64_t part = 0; part < parts; ++part) {
    const Expr place = first + part;
    Val mask = inside;
    if (!fills) {
      const Val within = pool.binary(loop::Opcode::lt, pool.index(place), pool.index(extent));
      mask = inside == nullptr ? within : pool.binary(loop::Opcode::bit_and, inside, within);
    }
    const Val read = lowering.load(from, at(place), mask);
    parts_read.push_back(pool.cast(read, part_type(parts, read->dtype)));
  }
  return pool.pack(std::move(parts_read));
}

namespace {

constexpr std::string_view kIntegers = "its results are integers";

int64_t parts_of(const Call& c) {
  const std::optional<int64_t> parts = c.integer("parts").constant();
  if (parts != 2 && parts != 4) c.fail("parts must be 2 or 4");
  return *parts;
}

void need_parts(const Call& c, std::string_view name) {
  const DType dtype = c.type(name).dtype;
  const bool is_half = dtype == DType::i16 && parts_of(c) == 2;
  if (dtype != DType::u8 && dtype != DType::i8 && !is_half)
    c.fail(c.describe(name) + " must have a dtype of 8-bit integers, or i16 where two are packed");
}

void need_packed(const Call& c, std::string_view name) {
  if (c.type(name).dtype != DType::i32) c.fail(c.describe(name) + " must be packed, in i32");
}

void need_left(const Call& c, std::string_view name) {
  need_parts(c, name);
  if (parts_of(c) == 4 && c.type(name).dtype != DType::u8)
    c.fail(c.describe(name) + " must be unsigned where four parts are packed");
  if (parts_of(c) == 2 && c.boolean("saturates")) c.fail("saturates is of four parts");
}

void need_terms(const Call& c, Expr terms, Expr packs, std::string_view left) {
  if (!sym::known_eq(sym::ceil_div(terms, parts_of(c)), packs))
    c.fail(fmt::format("{} has {} terms, and the packed factor {} packs of {}", c.describe(left),
                       sym::to_string(terms), sym::to_string(packs), parts_of(c)));
}

// --- packing

Definition pack_lower(Lowering& lowering, const Call& c) {
  const int64_t parts = parts_of(c);
  const size_t dim = static_cast<size_t>(c.dim("dim", c.type("self").rank()));
  return map_definition(c, [&lowering, c, parts, dim](size_t, const Index& index) {
    const auto at = [&](Expr place) {
      Index read = index;
      read[dim] = place;
      return read;
    };
    return packed_parts(lowering, c.value("self"), parts, index[dim] * parts,
                        c.type("self").sizes[dim], nullptr, at);
  });
}

const OpDef kPack{.schema = "tandem::pack(Tensor self, int dim, int parts) -> Tensor",
                  .types = [](const Call& c) -> Types {
                    need_parts(c, "self");
                    Sizes sizes = c.type("self").sizes;
                    Expr& size = sizes[static_cast<size_t>(c.dim("dim", c.type("self").rank()))];
                    size = sym::ceil_div(size, parts_of(c));
                    return {ir::Type::tensor(DType::i32, sizes)};
                  },
                  .lower = pack_lower,
                  .no_grad = kIntegers,
                  .samples = {"i8[8, 5], 0, 4", "i8[5, 8], -1, 4", "i8[7, 3], 0, 4",
                              "u8[3, 6], 1, 2", "u8[0, 6], 1, 2", "u8[1, 1], 1, 4"}};

// --- matrices

Types mm_types(const Call& c) {
  need_left(c, "self");
  need_packed(c, "mat2");
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("mat2");
  const size_t rank = static_cast<size_t>(a.rank());
  if (rank < 2 || rank > 3 || b.rank() != a.rank())
    c.fail(c.describe("self") + " and " + c.describe("mat2") + " must both have 2 or 3 dimensions");
  if (rank == 3 && !sym::known_eq(a.sizes[0], b.sizes[0]))
    c.fail(c.describe("self") + " and " + c.describe("mat2") + ": batch sizes differ");
  need_terms(c, a.sizes.back(), b.sizes[rank - 2], "self");
  Sizes sizes = a.sizes;
  sizes.back() = b.sizes.back();
  return {ir::Type::tensor(DType::i32, sizes)};
}

Definition mm_lower(Lowering& lowering, const Call& c) {
  const int64_t parts = parts_of(c);
  const ir::Type& b = c.type("mat2");
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = packed_combiner(parts, c.boolean("saturates"));
  definition.reduce_sizes = {b.sizes[b.sizes.size() - 2]};
  definition.input = [&lowering, c, parts](const Index& out, const Index& r) {
    const auto left = [&](Expr place) {
      Index at = out;
      at.back() = place;
      return at;
    };
    Index right = out;
    right[right.size() - 2] = r[0];
    const Val a = packed_parts(lowering, c.value("self"), parts, r[0] * parts,
                               c.type("self").sizes.back(), nullptr, left);
    return std::vector<Val>{a, lowering.load(c.value("mat2"), right)};
  };
  return definition;
}

const OpDef kPackedMm{
    .schema =
        "tandem::packed_mm(Tensor self, Tensor mat2, int parts, bool saturates=False) -> "
        "Tensor",
    .types = mm_types,
    .lower = mm_lower,
    .no_grad = kIntegers,
    .samples = {
        "u8[5, 12], i32[3, 7], 4", "u8[70, 64], i32[16, 65], 4", "u8[1, 64], i32[16, 65], 4",
        "u8[6, 13], i32[4, 40], 4", "i8[33, 10], i32[5, 17], 2", "i16[33, 10], i32[5, 17], 2",
        "u8[2, 9, 8], i32[2, 2, 5], 4", "u8[8, 20]{1, 8}, i32[5, 9], 4", "u8[0, 8], i32[2, 3], 4",
        "u8[7, 20], i32[5, 33], 4, true", "u8[5, 13]:index(128), i32[4, 40], 4, true"}};

// --- convolutions: y[n, o, p] = sum over k, c of x[n, c, p * stride - padding + k * dilation]
//     w[k, c, o], channels packed, `fill` where x has no element

struct Shape {
  Sizes input, weight;  // [n, c, in..] and [kernel.., packs, o]
  Expr groups = 1;
  Windows windows;
  size_t dims() const { return windows.size(); }
  Expr channels() const { return sym::floor_div(input[1], groups); }  // of a group
  Expr packs() const { return weight[dims()]; }
  Expr results() const { return sym::floor_div(weight.back(), groups); }  // of a group
};

Shape shape_of(const Call& c) {
  Shape shape{c.type("input").sizes, c.type("weight").sizes, c.integer("groups"), {}};
  const size_t dims = shape.input.size() - 2;
  const std::vector<int64_t> stride = positive_list(c, "stride", dims);
  const std::vector<int64_t> padding = spatial_list(c, "padding", dims);
  const std::vector<int64_t> dilation = positive_list(c, "dilation", dims);
  for (size_t i = 0; i < dims; ++i) {
    Window window{shape.weight[i], stride[i], padding[i], dilation[i], shape.input[2 + i], 1};
    window.out = window_count(window);
    shape.windows.push_back(window);
  }
  return shape;
}

Types convolution_types(const Call& c) {
  need_left(c, "input");
  need_packed(c, "weight");
  const int64_t rank = c.type("input").rank();
  if (rank < 3 || rank > 5 || c.type("weight").rank() != rank)
    c.fail(c.describe("input") + " and " + c.describe("weight") +
           " must have the same 3 to 5 dimensions");
  const Shape shape = shape_of(c);
  if (!sym::known_lt(0, shape.groups)) c.fail(c.describe("groups") + " must be positive");
  if (shape.weight.back() == Expr(0)) c.fail(c.describe("weight") + " has no channels");
  if (!sym::known_divisible(shape.input[1], shape.groups) ||
      !sym::known_divisible(shape.weight.back(), shape.groups))
    c.fail(c.describe("input") + " and " + c.describe("weight") +
           ": groups do not divide the channels");
  need_terms(c, shape.channels(), shape.packs(), "input");
  Sizes sizes{shape.input[0], shape.weight.back()};
  for (const Window& window : shape.windows) sizes.push_back(window.out);
  return {ir::Type::tensor(DType::i32, sizes)};
}

/// `fill` in each part.
Val filled(loop::ScalarPool& pool, int64_t parts, DType type, int64_t fill) {
  return pool.pack(std::vector<Val>(static_cast<size_t>(parts), pool.integer(type, fill)));
}

Definition convolution_lower(Lowering& lowering, const Call& c) {
  const int64_t parts = parts_of(c);
  const Shape shape = shape_of(c);
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = packed_combiner(parts, c.boolean("saturates"));
  definition.reduce_sizes = Sizes(shape.weight.begin(), shape.weight.end() - 1);
  definition.input = [&lowering, c, parts, shape](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    const std::span<const Expr> taps = std::span(r).first(shape.dims());
    const Read read = read_windows(pool, shape.windows, std::span(out).subspan(2), taps);
    const Expr group = shape.groups == Expr(1) ? Expr(0) : sym::floor_div(out[1], shape.results());
    const auto left = [&](Expr place) {
      Index at{out[0], group * shape.channels() + place};
      at.insert(at.end(), read.at.begin(), read.at.end());
      return at;
    };
    Val a = packed_parts(lowering, c.value("input"), parts, r.back() * parts, shape.channels(),
                         read.inside, left);
    const int64_t fill = c.integer("fill").constant().value_or(0);
    if (read.inside != nullptr && fill != 0) {
      const DType type = part_type(parts, c.type("input").dtype);
      a = pool.select(read.inside, a, filled(pool, parts, type, fill));
    }
    Index right = r;
    right.push_back(out[1]);
    return std::vector<Val>{a, lowering.load(c.value("weight"), right)};
  };
  return definition;
}

const OpDef kPackedConvolution{
    .schema =
        "tandem::packed_convolution(Tensor input, Tensor weight, SymInt[] stride, SymInt[] "
        "padding, SymInt[] dilation, SymInt groups, int parts, int fill, bool saturates=False) -> "
        "Tensor",
    .types = convolution_types,
    .lower = convolution_lower,
    .no_grad = kIntegers,
    .samples = {"u8[2, 8, 9, 9], i32[3, 3, 2, 16], [1, 1], [1, 1], [1, 1], 1, 4, 7",
                "u8[1, 6, 8, 8], i32[3, 3, 2, 5], [2, 2], [1, 1], [1, 1], 1, 4, 0",
                "u8[1, 8, 8, 8], i32[1, 1, 1, 12], [1, 1], [0, 0], [1, 1], 2, 4, 3",
                "u8[2, 4, 12], i32[3, 1, 6], [1], [2], [2], 1, 4, 128",
                "u8[1, 8, 7, 7], i32[3, 3, 2, 9], [1, 1], [1, 1], [1, 1], 1, 4, 3, true",
                "i8[1, 4, 6, 6], i32[3, 3, 2, 6], [1, 1], [1, 1], [1, 1], 1, 2, -3",
                "i16[1, 4, 6, 6], i32[3, 3, 2, 6], [1, 1], [1, 1], [1, 1], 1, 2, 200"}};

const OpDef* const kOps[] = {&kPack, &kPackedMm, &kPackedConvolution};

}  // namespace

Family packed_family() { return kOps; }

}  // namespace tandem::ops
