// Pools and convolutions over images: strides, padding, groups, channels by themselves.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "test/property/lines.h"

namespace tandem::property {
namespace {

constexpr double kExact = 1 << 24;

struct Window {
  int64_t size = 3;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t over(int64_t image) const { return (image + 2 * padding - size) / stride + 1; }
};

Window some_window(Writer& w) {
  Window window;
  window.size = 1 + static_cast<int64_t>(w.random().below(3));
  window.stride = 1 + static_cast<int64_t>(w.random().below(2));
  window.padding = static_cast<int64_t>(w.random().below(static_cast<size_t>(window.size / 2 + 1)));
  return window;
}

bool is_image(const Value& v, int64_t least) {
  return v.is_float() && v.rank() == 4 && !v.dims[1].is_symbolic() && !v.dims[2].is_symbolic() &&
         !v.dims[3].is_symbolic() && v.dims[2].most >= least && v.dims[3].most >= least;
}

size_t new_image(Writer& w) {
  const auto size = [&] { return known(3 + static_cast<int64_t>(w.random().below(8))); };
  const Dim images =
      w.random().one_in(2) ? known(1 + static_cast<int64_t>(w.random().below(2))) : w.dim();
  const Dim channels =
      known(w.random().one_in(2) ? 8 : 1 + static_cast<int64_t>(w.random().below(9)));
  const Dims dims{images.most > 6 ? known(2) : images, channels, size(), size()};
  return w.input(w.float_type(), dims, 3);
}

size_t image(Writer& w, int64_t least) {
  std::vector<size_t> found;
  for (size_t i = 0; i < w.size(); ++i)
    if (is_image(w.value(i), least)) found.push_back(i);
  if (found.empty() || w.random().one_in(4)) return new_image(w);
  return found.back();
}

Dims seen_by(const Window& window, Dims dims) {
  for (size_t i : {size_t{2}, size_t{3}}) dims[i] = known(window.over(dims[i].most));
  return dims;
}

std::string pair(int64_t number) { return fmt::format("[{}, {}]", number, number); }

/// Output channels of a convolution in so many groups.
size_t convolve(Writer& w, size_t from, int64_t channels, int64_t groups, const Window& window) {
  const int64_t deep = w.value(from).dims[1].most / groups;
  const double terms = static_cast<double>(deep * window.size * window.size);
  const size_t x = w.tamed(from, std::floor(kExact / 8 / terms));
  const Value v = w.value(x);
  Dims dims = seen_by(window, v.dims);
  dims[1] = known(channels);
  if (!w.affords(2 * static_cast<double>(count(dims)) * terms)) return SIZE_MAX;
  const size_t weight =
      w.input(v.dtype, {known(channels), known(deep), known(window.size), known(window.size)}, 2);
  const bool biased = w.random().one_in(2);
  const size_t bias = biased ? w.input(v.dtype, {known(channels)}, 3) : 0;
  const Value product{"", DType::f32, {}, 2 * v.most, v.whole, 2 * v.error};
  Value result{"", v.dtype, dims, 2 * v.most * terms + 3, v.whole, error_of_sum(product, terms)};
  result.error = rounded(result.error, result.most);
  w.feature(groups == 1 ? "convolution"
            : deep == 1 ? "depthwise convolution"
                        : "grouped convolution");
  const double points = static_cast<double>(count(dims));
  const int64_t readers = channels / groups * window.size * window.size;
  std::vector<Slope> slopes{{x, 2 * static_cast<double>(readers)}, {weight, v.most * points}};
  if (biased) slopes.push_back({bias, points});
  return w.add(fmt::format("convolution(%{}, %{}, {}, {}, {}, [1, 1], false, [0, 0], {})", v.name,
                           w.name(weight), biased ? "%" + w.name(bias) : "none",
                           pair(window.stride), pair(window.padding), groups),
               result, slopes);
}

size_t active(Writer& w, size_t id) {
  Value result = w.value(id);
  return w.add(fmt::format("relu(%{})", result.name), result, {{id, 1}});
}

}  // namespace

void add_pool(Writer& w) {
  const Window window = some_window(w);
  const size_t id = image(w, window.size);
  const Value from = w.value(id);
  const double taps = static_cast<double>(window.size * window.size);
  if (!w.affords(static_cast<double>(count(from.dims)) * taps)) return;
  Value result = from;
  result.dims = seen_by(window, from.dims);
  const std::string rest = fmt::format("(%{}, {}, {}, {}", from.name, pair(window.size),
                                       pair(window.stride), pair(window.padding));
  if (w.random().one_in(2) && from.error == 0) {
    Value place = result;
    place.dtype = DType::i64;
    place.whole = true;
    place.most = static_cast<double>(count(from.dims));
    w.feature("max_pool");
    if (w.random().one_in(2)) {
      w.add_several("max_pool2d_with_indices" + rest + ")", {result, place});
    } else {
      w.add("max_pool2d" + rest + ")", result, {{id, taps}});
    }
    return;
  }
  w.feature("avg_pool");
  result.whole = false;
  result.error = rounded(error_of_sum(from, taps) / taps, from.most);
  w.add("avg_pool2d" + rest + fmt::format(", {}, {})", w.random().one_in(2), true), result);
}

void add_convolution(Writer& w) {
  const Window window = some_window(w);
  const size_t id = image(w, window.size);
  const int64_t channels = w.value(id).dims[1].most;
  int64_t groups = w.random().one_in(2) ? channels : 1;
  if (channels % 4 == 0 && w.random().one_in(3)) groups = channels / 2;
  const size_t made =
      convolve(w, id, groups == 1 ? 1 + static_cast<int64_t>(w.random().below(12)) : channels,
               groups, window);
  if (made != SIZE_MAX && w.random().one_in(2)) active(w, made);
}

/// Tiles of 4x4 and blocks of 2x2, as the pass winograd writes them, what stands behind done on the
/// way. Sums of up to 4 and 9 values.
void add_transforms(Writer& w) {
  w.allow(200000);
  const size_t id = w.tamed(image(w, 3), 64);
  const Value from = w.value(id);
  if (from.dtype != DType::f32 || !w.affords(64 * static_cast<double>(count(from.dims)))) return;
  const int64_t padding = static_cast<int64_t>(w.random().below(3));
  const auto tiles_of = [&](const Dim& side) { return known((side.most + 2 * padding - 1) / 2); };
  const Dim rows = tiles_of(from.dims[2]);
  const Dim columns = tiles_of(from.dims[3]);
  Value tiles = from;
  tiles.dims = {from.dims[0], rows, columns, known(4), known(4), from.dims[1]};
  tiles.most = 4 * from.most;
  tiles.error = rounded(error_of_sum(from, 4), tiles.most);
  size_t at = w.add(fmt::format("tandem.winograd_tiles(%{}, {})", from.name, pair(padding)), tiles);
  tiles.dims = {known(4), known(4), from.dims[0], rows, columns, from.dims[1]};
  at = w.add(fmt::format("permute(%{}, [3, 4, 0, 1, 2, 5])", w.name(at)), tiles);
  Value blocks = w.value(at);
  blocks.dims = {from.dims[0], rows, known(2), columns, known(2), from.dims[1]};
  blocks.most = 9 * tiles.most;
  blocks.error = rounded(error_of_sum(tiles, 9), blocks.most);
  at = w.add(fmt::format("tandem.winograd_blocks(%{})", w.name(at)), blocks);
  if (w.random().one_in(2)) active(w, at);
  w.feature("transforms");
}

namespace {

/// The largest element of what is written over the image: who adds it runs behind that.
size_t largest_of_update(Writer& w, size_t image) {
  Value next = w.value(image);
  next.most = 2;
  w.write_back(image, w.add(fmt::format("clamp(%{}, -2, 1)", w.name(image)), next));
  next.dims.clear();
  w.feature("updated image");
  return w.add(fmt::format("amax(%{}, [0, 1, 2, 3])", w.name(image)), next);
}

}  // namespace

/// Both neighbours of the windows are convolutions, hence channels-last.
void add_inverted_residual(Writer& w) {
  w.allow(120000);
  const auto side = [&] { return known(7 + static_cast<int64_t>(w.random().below(8))); };
  const Dim narrow = known(w.random().one_in(2) ? 4 : 7);
  const int64_t wide = w.random().one_in(2) ? 16 : 24;
  const size_t x = w.input(DType::f32, {known(1), narrow, side(), side()}, 2);
  size_t at = convolve(w, x, wide, 1, {1, 1, 0});
  if (at == SIZE_MAX) return;
  if (w.random().one_in(4)) {  // somebody else reads the wide image
    const Value wide_image = w.value(at);
    Value most = wide_image;
    most.dims = {wide_image.dims[0], wide_image.dims[1]};
    w.add(fmt::format("amax(%{}, [2, 3])", wide_image.name), most);
  }
  at = w.tamed(at, 8);
  if (!w.random().one_in(3)) at = active(w, at);
  if (w.random().one_in(2)) {
    Value padded = w.value(at);
    padded.dims[2] = plus(padded.dims[2], known(2));
    padded.dims[3] = plus(padded.dims[3], known(2));
    at =
        w.add(fmt::format("constant_pad_nd(%{}, [1, 1, 1, 1], 0)", padded.name), padded, {{at, 1}});
  }
  const Window window{3, 1 + static_cast<int64_t>(w.random().below(2)),
                      static_cast<int64_t>(w.random().below(2))};
  at = convolve(w, at, wide, wide, window);
  if (at == SIZE_MAX) return;
  if (w.random().one_in(2)) {
    const size_t largest = largest_of_update(w, x);
    Value sum = w.value(at);
    sum.most += w.value(largest).most;
    at = w.add(fmt::format("add.Tensor(%{}, %{})", w.name(at), w.name(largest)), sum);
  }
  at = active(w, w.tamed(at, 64));
  convolve(w, at, 5, 1, {1, 1, 0});
  w.feature("inverted residual");
}

/// What stands between two convolutions runs along the lines of the first, which may read the image
/// that is added.
void add_residual_block(Writer& w) {
  w.allow(160000);
  const auto side = [&] { return known(4 + static_cast<int64_t>(w.random().below(4))); };
  const int64_t wide = w.random().one_in(2) ? 8 : 12;
  const Dim images = known(1 + static_cast<int64_t>(w.random().below(2)));
  size_t from = w.input(DType::f32, {images, known(wide), side(), side()}, 2);
  if (w.random().one_in(2)) from = convolve(w, from, wide, 1, {1, 1, 0});
  if (from == SIZE_MAX) return;
  from = w.tamed(from, 8);
  size_t at = convolve(w, from, wide, 1, {3, 1, 1});
  if (at == SIZE_MAX) return;
  if (!w.random().one_in(3)) {
    Value sum = w.value(at);
    sum.most += w.value(from).most;
    at = w.add(fmt::format("add.Tensor(%{}, %{})", w.name(at), w.name(from)), sum);
  }
  convolve(w, active(w, w.tamed(at, 8)), 5, 1, {1, 1, 0});
  w.feature("residual block");
}

}  // namespace tandem::property
