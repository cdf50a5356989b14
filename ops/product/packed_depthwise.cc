// A convolution in which each channel is by itself, of small integers: there are no channels to
// pack, as products of integers want them, so taps of the first dimension of the window are:
//   y[n, c, p, ..] = sum over k, t, q of
//                    x[n, c, p * stride - padding + (4k + q) * dilation, ..] w[k, t.., c].q
// Four rows of the image lie in one number then, and three taps by three are three products. The
// image is packed where it is read, into scratch where windows overlap (map_window). Rows behind
// the last tap count 0; `fill` is what lies beside the image. Sums are of 32 bits and wrap. The
// pass integer_products writes it.
#include "ops/elements.h"
#include "ops/families.h"
#include "ops/product/packed.h"
#include "ops/window.h"

namespace tandem::ops {
namespace {

using loop::Val;

constexpr int64_t kParts = 4;

/// The windows over an image [n, c, in..]; the packed weight is [taps / 4, taps.., c].
Windows windows_of(const Call& c) {
  const Sizes& image = c.type("input").sizes;
  const Sizes& weight = c.type("weight").sizes;
  const size_t dims = image.size() - 2;
  const std::vector<int64_t> stride = positive_list(c, "stride", dims);
  const std::vector<int64_t> padding = spatial_list(c, "padding", dims);
  const std::vector<int64_t> dilation = positive_list(c, "dilation", dims);
  Windows windows;
  for (size_t i = 0; i < dims; ++i) {
    Window window{i == 0 ? c.integer("taps") : weight[i],
                  stride[i],
                  padding[i],
                  dilation[i],
                  image[2 + i],
                  1};
    window.out = window_count(window);
    windows.push_back(window);
  }
  return windows;
}

void check_types(const Call& c) {
  const ir::Type& image = c.type("input");
  const ir::Type& weight = c.type("weight");
  if (image.dtype != DType::u8 || image.rank() < 3 || image.rank() > 5)
    c.fail(c.describe("input") + " must be u8 with 3 to 5 dimensions");
  if (weight.dtype != DType::i32 || weight.rank() != image.rank() - 1)
    c.fail(c.describe("weight") + " must be packed, in i32, with a dimension less than " +
           c.describe("input"));
  if (!sym::known_eq(image.sizes[1], weight.sizes.back()))
    c.fail(c.describe("input") + " and " + c.describe("weight") + ": channels differ");
  const std::optional<int64_t> taps = c.integer("taps").constant();
  if (!taps || *taps < 1 ||
      !sym::known_eq(weight.sizes[0], sym::ceil_div(sym::Expr(*taps), kParts)))
    c.fail(c.describe("weight") + " has other packs than the taps need");
  const std::optional<int64_t> fill = c.integer("fill").constant();
  if (!fill || *fill < 0 || *fill > 255) c.fail("fill must be a number that a u8 holds");
}

Types types(const Call& c) {
  check_types(c);
  const Sizes& image = c.type("input").sizes;
  Sizes sizes{image[0], image[1]};
  for (const Window& window : windows_of(c)) sizes.push_back(window.out);
  return {ir::Type::tensor(DType::i32, sizes)};
}

/// Four rows at one place. A row that no tap reads is not read: its weight is 0.
Val packed_rows(Lowering& lowering, const Call& c, const Windows& windows, const Index& out,
                const Index& r) {
  loop::ScalarPool& pool = lowering.scalars();
  const int64_t fill = *c.integer("fill").constant();
  const Val beside = pool.integer(DType::u8, fill);
  std::vector<Val> parts;
  for (int64_t part = 0; part < kParts; ++part) {
    Index taps = r;
    taps[0] = r[0] * kParts + part;
    const Val is_tap = in_range(pool, taps[0], windows[0].kernel);
    if (is_tap == pool.integer(DType::boolean, 0)) {
      parts.push_back(beside);
      continue;
    }
    const Read read = read_windows(pool, windows, std::span(out).subspan(2), taps);
    Index at{out[0], out[1]};
    at.insert(at.end(), read.at.begin(), read.at.end());
    const Val inside = all_of(pool, read.inside, is_tap);
    const Val loaded = lowering.load(c.value("input"), at, inside);
    parts.push_back(pool.select(inside, loaded, beside));
  }
  return pool.pack(std::move(parts));
}

Definition lower(Lowering& lowering, const Call& c) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = packed_combiner(kParts, c.boolean("saturates"));
  const Sizes& weight = c.type("weight").sizes;
  definition.reduce_sizes = Sizes(weight.begin(), weight.end() - 1);
  definition.input = [&lowering, c, windows = windows_of(c)](const Index& out, const Index& r) {
    Index right = r;
    right.push_back(out[1]);
    return std::vector<Val>{packed_rows(lowering, c, windows, out, r),
                            lowering.load(c.value("weight"), right)};
  };
  return definition;
}

const OpDef kPackedDepthwise{
    .schema =
        "tandem::packed_depthwise_convolution(Tensor input, Tensor weight, SymInt[] stride, "
        "SymInt[] padding, SymInt[] dilation, int taps, int fill, bool saturates=False) -> Tensor",
    .types = types,
    .lower = lower,
    .no_grad = "its results are integers",
    .samples = {"u8[2, 8, 9, 9], i32[1, 3, 8], [1, 1], [1, 1], [1, 1], 3, 7",
                "u8[1, 6, 8, 11], i32[1, 3, 6], [2, 2], [1, 1], [1, 1], 3, 0",
                "u8[1, 6, 8, 11], i32[1, 3, 6], [2, 2], [1, 1], [1, 1], 3, 0, true",
                "u8[1, 5, 12, 9], i32[2, 5, 5], [1, 1], [2, 2], [1, 1], 5, 128",
                "u8[1, 4, 9, 9], i32[2, 7, 4], [2, 2], [3, 3], [1, 1], 7, 3",
                "u8[1, 4, 9, 9], i32[1, 3, 4], [1, 1], [2, 2], [2, 2], 3, 3",
                "u8[2, 4, 12], i32[1, 4], [1], [2], [2], 4, 128",
                "u8[1, 3, 4, 5, 6], i32[1, 3, 3, 3], [1, 1, 1], [1, 1, 1], [1, 1, 1], 3, 9",
                "u8[0, 4, 6, 6], i32[1, 3, 4], [1, 1], [1, 1], [1, 1], 3, 0"}};

const OpDef* const kOps[] = {&kPackedDepthwise};

}  // namespace

Family packed_depthwise_family() { return kOps; }

}  // namespace tandem::ops
