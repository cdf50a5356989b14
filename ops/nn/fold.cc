// Unfolding images into columns of windows and its transpose; pixel and channel shuffles, which are
// reshapes around a permutation.
//   column[n, (c, k), o] = x[n, c, o * stride - padding + k * dilation]
//   image[n, c, q] = sum over k of column[n, (c, k), o] with q = o * stride - padding + k *
//   dilation
#include <fmt/format.h>

#include "ops/families.h"
#include "ops/window.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }

// --- windows
// --------------------------------------------------------------------------------------

Windows windows_of(const Call& c, Expr height, Expr width) {
  std::vector<int64_t> kernel = positive_list(c, "kernel_size", 2);
  std::vector<int64_t> dilation = positive_list(c, "dilation", 2);
  std::vector<int64_t> padding = spatial_list(c, "padding", 2);
  std::vector<int64_t> stride = positive_list(c, "stride", 2);
  Windows windows;
  for (size_t i = 0; i < 2; ++i) {
    if (padding[i] < 0) c.fail(c.describe("padding") + " must not be negative");
    Window window{kernel[i], stride[i], padding[i], dilation[i], i == 0 ? height : width, 1};
    window.out = window_count(window);
    if (sym::known_lt(window.out, 1))
      c.fail("the window is larger than the image with its padding");
    windows.push_back(window);
  }
  return windows;
}
Windows image_windows(const Call& c) {
  const Sizes& sizes = c.type("self").sizes;
  return windows_of(c, sizes[sizes.size() - 2], sizes.back());
}
Windows column_windows(const Call& c) {
  const ir::Ints& sizes = c.ints("output_size");
  if (sizes.size() != 2) c.fail("output_size needs 2 numbers");
  for (Expr size : sizes)
    if (sym::known_lt(size, 1)) c.fail(c.describe("output_size") + " must be positive");
  return windows_of(c, sizes[0], sizes[1]);
}
Expr places(const Windows& windows) { return windows[0].kernel * windows[1].kernel; }
Expr positions(const Windows& windows) { return windows[0].out * windows[1].out; }

/// self of `rank`, or without its batch, in which no other dimension is empty.
void check_self(const Call& c, int64_t rank) {
  const ir::Type& self = c.type("self");
  if (!is_float(self.dtype) && self.dtype != DType::boolean) need_float(c, "self");
  need_rank(c, "self", rank - 1, rank);
  for (size_t i = self.rank() == rank ? 1 : 0; i < self.sizes.size(); ++i)
    if (self.sizes[i] == Expr(0))
      c.fail(c.describe("self") + " may have no empty dimension but the batch");
}

Definition columns_lower(Lowering& lowering, const Call& c) {
  Windows windows = image_windows(c);
  return map_definition(c, [&lowering, c, windows](size_t, const Index& index) {
    Expr row = index[index.size() - 2];
    Expr column = index.back();
    Index k{sym::mod(sym::floor_div(row, windows[1].kernel), windows[0].kernel),
            sym::mod(row, windows[1].kernel)};
    Index o{sym::floor_div(column, windows[1].out), sym::mod(column, windows[1].out)};
    Read read = read_windows(lowering.scalars(), windows, o, k);
    Index at(index.begin(), index.end() - 2);
    at.push_back(sym::floor_div(row, places(windows)));
    at.insert(at.end(), read.at.begin(), read.at.end());
    return lowering.load(c.value("self"), at, read.inside);
  });
}

Definition image_lower(Lowering& lowering, const Call& c) {
  Windows windows = column_windows(c);
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::sum;
  definition.reduce_sizes = {windows[0].kernel, windows[1].kernel};
  definition.input = [&lowering, c, windows](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Read read = windows_over(pool, windows, std::span(out).last(2), r);
    Index at(out.begin(), out.end() - 3);
    at.push_back(out[out.size() - 3] * places(windows) + r[0] * windows[1].kernel + r[1]);
    at.push_back(read.at[0] * windows[1].out + read.at[1]);
    return std::vector<loop::Val>{lowering.load(c.value("self"), at, read.inside)};
  };
  return definition;
}

const OpDef kIm2col{
    .schema =
        "aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] "
        "stride) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_self(c, 4);
      Windows windows = image_windows(c);
      Sizes sizes(c.type("self").sizes.begin(), c.type("self").sizes.end() - 2);
      sizes.back() = sizes.back() * places(windows);
      sizes.push_back(positions(windows));
      return {ir::Type::tensor(c.type("self").dtype, sizes)};
    },
    .lower = columns_lower,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      const Sizes& sizes = c.type("self").sizes;
      return {{"self", call(b, "aten.col2im",
                            {g[0], ir::Ints(sizes.end() - 2, sizes.end()), c.arg("kernel_size"),
                             c.arg("dilation"), c.arg("padding"), c.arg("stride")})}};
    },
    .samples = {"$[2, 3, 5, 6], [2, 3], [1, 1], [0, 0], [1, 1]",
                "$[2, 3, 5, 6], [3, 2], [1, 2], [1, 2], [2, 1]",
                "$[3, 5, 6], [2, 2], [1, 1], [0, 0], [2, 2]",
                "$[2, 3, 5, 6]{90, 1, 18, 3}, [2, 2], [1, 1], [1, 1], [2, 2]",
                "$[0, 3, 5, 6], [2, 2], [1, 1], [0, 0], [1, 1]",
                "$[2, 3, 2, 2], [3, 3], [1, 1], [0, 0], [1, 1]"}};
const OpDef kCol2im{
    .schema =
        "aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, "
        "int[2] padding, int[2] stride) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_self(c, 3);
      Windows windows = column_windows(c);
      const Sizes& self = c.type("self").sizes;
      Expr rows = self[self.size() - 2];
      if (!sym::known_divisible(rows, places(windows)))
        c.fail(fmt::format("{}: {} rows do not divide into windows of {}", c.describe("self"),
                           sym::to_string(rows), sym::to_string(places(windows))));
      if (self.back() != positions(windows) && !sym::known_eq(self.back(), positions(windows)))
        c.fail(fmt::format("{}: the image has {} windows", c.describe("self"),
                           sym::to_string(positions(windows))));
      Sizes sizes(self.begin(), self.end() - 1);
      sizes.back() = sym::floor_div(rows, places(windows));
      sizes.insert(sizes.end(), {windows[0].in, windows[1].in});
      return {ir::Type::tensor(c.type("self").dtype, sizes)};
    },
    .lower = image_lower,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.im2col",
                            {g[0], c.arg("kernel_size"), c.arg("dilation"), c.arg("padding"),
                             c.arg("stride")})}};
    },
    .samples = {"$[2, 18, 16], [5, 6], [2, 3], [1, 1], [0, 0], [1, 1]",
                "$[2, 18, 24], [5, 6], [3, 2], [1, 2], [1, 2], [2, 1]",
                "$[12, 6], [5, 6], [2, 2], [1, 1], [0, 0], [2, 2]",
                "$[2, 17, 16], [5, 6], [2, 3], [1, 1], [0, 0], [1, 1]"}};

// --- shuffles
// -------------------------------------------------------------------------------------

Expr divided(const Call& c, Expr size, Expr by) {
  if (!sym::known_divisible(size, by))
    c.fail(fmt::format("{}: {} does not divide by {}", c.describe("self"), sym::to_string(size),
                       sym::to_string(by)));
  return sym::floor_div(size, by);
}
int64_t factor_of(const Call& c, std::string_view name) {
  int64_t factor = c.constant(name);
  if (factor < 1) c.fail(c.describe(name) + " must be positive");
  if (factor > INT32_MAX) c.fail(c.describe(name) + " must be below 2**31");  // its square counts
  return factor;
}
/// Dimension numbers 0 to `leading` - 1, then `rest` counted from there.
std::vector<int64_t> after(int64_t leading, std::initializer_list<int64_t> rest) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < leading; ++i) dims.push_back(i);
  for (int64_t dim : rest) dims.push_back(leading + dim);
  return dims;
}
struct Image {
  Sizes leading;
  Expr channels, height, width;
};
Image image_of(const Call& c) {
  const Sizes& sizes = c.type("self").sizes;
  if (sizes.size() < 3) c.fail(c.describe("self") + " must have at least 3 dimensions");
  return {{sizes.begin(), sizes.end() - 3},
          sizes[sizes.size() - 3],
          sizes[sizes.size() - 2],
          sizes.back()};
}
Sizes joined(Sizes sizes, std::initializer_list<Expr> rest) {
  sizes.insert(sizes.end(), rest);
  return sizes;
}

const OpDef kPixelShuffle{
    .schema = "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor",
    .types = [](const Call& c) -> Types {
      int64_t r = factor_of(c, "upscale_factor");
      Image image = image_of(c);
      Expr channels = divided(c, image.channels, r * r);
      return {
          ir::Type::tensor(c.type("self").dtype,
                           joined(image.leading, {channels, image.height * r, image.width * r}))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      int64_t r = c.constant("upscale_factor");
      Image image = image_of(c);
      Expr channels = sym::floor_div(image.channels, r * r);
      Tensor x = reshape(self_of(b, c),
                         joined(image.leading, {channels, r, r, image.height, image.width}));
      x = permute(x, after(static_cast<int64_t>(image.leading.size()), {0, 3, 1, 4, 2}));
      return {reshape(x, c.result()->type.sizes)};
    },
    .samples = {"$[2, 8, 3, 4], 2", "$[9, 2, 3], 3", "$[2, 1, 4, 3, 2], 1", "$[2, 6, 3, 4], 2",
                "$[0, 4, 3, 4], 2", "$[2, 2], 1"},
    .sample_dtypes = DTypes::all};
const OpDef kPixelUnshuffle{
    .schema = "aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor",
    .types = [](const Call& c) -> Types {
      int64_t r = factor_of(c, "downscale_factor");
      Image image = image_of(c);
      return {ir::Type::tensor(
          c.type("self").dtype,
          joined(image.leading, {image.channels * (r * r), divided(c, image.height, r),
                                 divided(c, image.width, r)}))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      int64_t r = c.constant("downscale_factor");
      Image image = image_of(c);
      Tensor x = reshape(self_of(b, c),
                         joined(image.leading, {image.channels, sym::floor_div(image.height, r), r,
                                                sym::floor_div(image.width, r), r}));
      x = permute(x, after(static_cast<int64_t>(image.leading.size()), {0, 2, 4, 1, 3}));
      return {reshape(x, c.result()->type.sizes)};
    },
    .samples = {"$[2, 2, 6, 4], 2", "$[1, 6, 9], 3", "$[2, 6, 3, 4], 2", "$[2, 2, 6, 4], 0"},
    .sample_dtypes = DTypes::all};

Types channel_shuffle_types(const Call& c) {
  const ir::Type& self = c.type("self");
  if (self.rank() < 3) c.fail(c.describe("self") + " must have at least 3 dimensions");
  factor_of(c, "groups");
  divided(c, self.sizes[1], c.integer("groups"));
  return unary_same(c);
}
/// Channels [groups, n] become [n, groups].
Tensors channel_shuffle_parts(Builder& b, const Call& c) {
  Sizes apart = c.type("self").sizes;
  apart[1] = c.integer("groups");
  apart.insert(apart.begin() + 2, sym::floor_div(c.type("self").sizes[1], apart[1]));
  Tensor shuffled = transpose(reshape(self_of(b, c), apart), 1, 2);
  return {reshape(shuffled, c.type("self").sizes)};
}
const Samples kShuffles = {"$[2, 6, 3, 4], 2", "$[2, 6, 3], 3", "$[1, 4, 2, 2, 2], 4",
                           "$[2, 6, 3, 4], 4", "$[0, 6, 3], 3"};
const OpDef kChannelShuffle{.schema = "aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor",
                            .types = channel_shuffle_types,
                            .decompose = channel_shuffle_parts,
                            .samples = kShuffles};
const OpDef kNativeShuffle{
    .schema = "aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor",
    .types = channel_shuffle_types,
    .decompose = channel_shuffle_parts,
    .samples = kShuffles};

const OpDef* const kOps[] = {&kIm2col,         &kCol2im,         &kPixelShuffle,
                             &kPixelUnshuffle, &kChannelShuffle, &kNativeShuffle};

}  // namespace

Family fold_family() { return kOps; }

}  // namespace tandem::ops
