// Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray, "Fast algorithms for convolutional
// neural networks", 2015): a convolution by windows of 3x3 with stride 1 gives blocks of 2x2
// results, each from a tile of 4x4 places,
//   Y = A^T [(G g G^T) * (B^T d B)] A,
//         1  0 -1  0         1    0    0
//   B^T = 0  1  1  0    G = 1/2  1/2  1/2    A^T = 1  1  1  0
//         0 -1  1  0        1/2 -1/2  1/2          0  1 -1 -1
//         0  1  0 -1         0    0    1
// where * multiplies places and sums over channels: 16 matrix products with 4 multiplications for
// each result where the definition has 9. Here are the three transforms; the pass winograd.cc
// writes them and the products between them. Sums round elsewhere than the definition's, by about
// as much. What is not finite, or far larger than its neighbours, touches all results of its
// tile, where in the definition it touches those whose windows see it.
#include <fmt/format.h>

#include <array>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/window.h"

namespace tandem::ops {
namespace {

constexpr int64_t kBlock = 2;  // results of a block, each way
constexpr int64_t kTile = 4;   // places of a tile, and factors, each way
constexpr std::string_view kOfPass =
    "the pass winograd writes it, where no gradients are asked for";

/// Row `row` of B^T times the column: two of its four elements count.
template <class F>
Element of_tile(size_t row, F at) {
  switch (row) {
    case 0: return at(0) - at(2);
    case 1: return at(1) + at(2);
    case 2: return at(2) - at(1);
    default: return at(1) - at(3);
  }
}

/// Row `row` of G times the column.
template <class F>
Element of_window(size_t row, F at) {
  switch (row) {
    case 0: return at(0);
    case 1: return (at(0) + at(2) + at(1)) * 0.5;
    case 2: return (at(0) + at(2) - at(1)) * 0.5;
    default: return at(2);
  }
}

/// Row `row` of A^T times the column.
template <class F>
Element of_block(size_t row, F at) {
  return row == 0 ? at(0) + at(1) + at(2) : at(1) - at(2) - at(3);
}

void need_image(const Call& c, std::string_view name) {
  const ir::Type& type = c.type(name);
  if (type.dtype != DType::f32) c.fail(c.describe(name) + " must have dtype f32");
  if (type.rank() != 4) c.fail(c.describe(name) + " must have 4 dimensions");
}

// --- d -> B^T d B

Types tiles_types(const Call& c) {
  need_image(c, "input");
  const Sizes& image = c.type("input").sizes;
  const std::vector<int64_t> padding = spatial_list(c, "padding", 2);
  Sizes sizes{image[0]};
  for (size_t i = 0; i < 2; ++i) {
    const Expr results = image[2 + i] + (2 * padding[i] - 2);
    if (!sym::known_lt(0, results))
      c.fail(fmt::format("{} with padding {} has no window", c.describe("input"), padding[i]));
    sizes.push_back(sym::ceil_div(results, kBlock));
  }
  for (const Expr& size : {Expr(kTile), Expr(kTile), image[1]}) sizes.push_back(size);
  return {ir::Type::tensor(DType::f32, sizes)};
}

/// That one of the values which the axis is at.
Element at_axis(loop::ScalarPool& pool, Expr axis, const std::vector<Element>& values) {
  Element chosen = values.back();
  for (size_t i = values.size() - 1; i-- > 0;) {
    const Element place{pool, pool.index(axis)};
    chosen = choose(place < static_cast<double>(i + 1), values[i], chosen);
  }
  return chosen;
}

/// What a transform makes for each row and column of a square.
template <class F>
Element at_axes(loop::ScalarPool& pool, Expr row, Expr column, size_t side, F value) {
  std::vector<Element> rows;
  for (size_t i = 0; i < side; ++i) {
    std::vector<Element> columns;
    for (size_t j = 0; j < side; ++j) columns.push_back(value(i, j));
    rows.push_back(at_axis(pool, column, columns));
  }
  return at_axis(pool, row, rows);
}

/// Element of the image, 0 beside it.
Element place(Lowering& lowering, const Call& c, const Index& tile, int64_t row, int64_t column) {
  loop::ScalarPool& pool = lowering.scalars();
  const Sizes& image = c.type("input").sizes;
  const std::vector<int64_t> padding = spatial_list(c, "padding", 2);
  const Index at{tile[0], tile[5], tile[1] * kBlock + (row - padding[0]),
                 tile[2] * kBlock + (column - padding[1])};
  const loop::Val inside =
      all_of(pool, in_range(pool, at[2], image[2]), in_range(pool, at[3], image[3]));
  return {pool, lowering.load(c.value("input"), at, inside)};
}

Definition tiles_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& tile) {
    const auto factor = [&](size_t row, size_t column) {
      return of_tile(column, [&](int64_t j) {
        return of_tile(row, [&](int64_t i) { return place(lowering, c, tile, i, j); });
      });
    };
    return at_axes(lowering.scalars(), tile[3], tile[4], kTile, factor).value();
  });
}

// --- g -> G g G^T

Types weight_types(const Call& c) {
  need_image(c, "weight");
  const Sizes& sizes = c.type("weight").sizes;
  if (sizes[2] != Expr(3) || sizes[3] != Expr(3))
    c.fail(c.describe("weight") + " must have windows of 3x3");
  const bool is_turned = c.boolean("turned");
  return {ir::Type::tensor(DType::f32,
                           {kTile, kTile, sizes[is_turned ? 0 : 1], sizes[is_turned ? 1 : 0]})};
}

Definition weight_lower(Lowering& lowering, const Call& c) {
  const bool is_turned = c.boolean("turned");
  return map_definition(c, [&lowering, c, is_turned](size_t, const Index& index) {
    const auto tap = [&](int64_t i, int64_t j) {
      const Index at =
          is_turned ? Index{index[2], index[3], 2 - i, 2 - j} : Index{index[3], index[2], i, j};
      return Element{lowering.scalars(), lowering.load(c.value("weight"), at)};
    };
    const auto factor = [&](size_t row, size_t column) {
      return of_window(
          column, [&](int64_t j) { return of_window(row, [&](int64_t i) { return tap(i, j); }); });
    };
    return at_axes(lowering.scalars(), index[0], index[1], kTile, factor).value();
  });
}

// --- M -> A^T M A

Types blocks_types(const Call& c) {
  const ir::Type& products = c.type("products");
  const Sizes& sizes = products.sizes;
  if (products.dtype != DType::f32 || sizes.size() != 6 || sizes[0] != Expr(kTile) ||
      sizes[1] != Expr(kTile))
    c.fail(c.describe("products") + " must be f32[4, 4, n, rows, columns, channels]");
  return {ir::Type::tensor(DType::f32, {sizes[2], sizes[3], kBlock, sizes[4], kBlock, sizes[5]})};
}

Definition blocks_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    const auto product = [&](int64_t i, int64_t j) {
      const Index at{i, j, index[0], index[1], index[3], index[5]};
      return Element{pool, lowering.load(c.value("products"), at)};
    };
    const auto result = [&](size_t row, size_t column) {
      return of_block(column, [&](int64_t j) {
        return of_block(row, [&](int64_t i) { return product(i, j); });
      });
    };
    return at_axes(pool, index[2], index[4], kBlock, result).value();
  });
}

const OpDef kTiles{.schema = "tandem::winograd_tiles(Tensor input, SymInt[2] padding) -> Tensor",
                   .types = tiles_types,
                   .lower = tiles_lower,
                   .no_grad = kOfPass,
                   .samples = {"f32[2, 3, 6, 8], [1, 1]", "f32[1, 20, 5, 7], [1, 0]",
                               "f32[2, 2, 3, 4], [0, 0]", "f32[1, 2, 4, 4], [2, 2]"}};
const OpDef kWeight{.schema = "tandem::winograd_weight(Tensor weight, bool turned=False) -> Tensor",
                    .types = weight_types,
                    .lower = weight_lower,
                    .no_grad = kOfPass,
                    .samples = {"f32[4, 3, 3, 3]", "f32[4, 3, 3, 3], true"}};
const OpDef kBlocks{.schema = "tandem::winograd_blocks(Tensor products) -> Tensor",
                    .types = blocks_types,
                    .lower = blocks_lower,
                    .no_grad = kOfPass,
                    .samples = {"f32[4, 4, 2, 3, 2, 5]"}};

const OpDef* const kOps[] = {&kTiles, &kWeight, &kBlocks};

}  // namespace

Family winograd_family() { return kOps; }

}  // namespace tandem::ops
