// Weights in tiles against the library's own reorders, bit for bit.
#include "runtime/weight_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/conv_shape.h"

namespace tandem::runtime {
namespace {

using Dims = std::vector<int64_t>;

struct Case {
  dnnl_format_tag_t tag;
  Dims sizes;
  bool channels_last = false;
  Dims strides = {};
};

dnnl_memory_desc_t blocked_desc(const Case& one) {
  dnnl_memory_desc_t desc;
  EXPECT_EQ(onednn().memory_desc_init_by_tag(&desc, static_cast<int>(one.sizes.size()),
                                             one.sizes.data(), dnnl_f32, one.tag),
            dnnl_success);
  return desc;
}

Dims strides_of(const Case& one) {
  if (!one.strides.empty()) return one.strides;
  if (one.channels_last) return convolution::channels_last(one.sizes);
  Dims strides(one.sizes.size(), 1);
  for (size_t i = strides.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * one.sizes[i + 1];
  return strides;
}

std::vector<float> numbered(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

std::vector<float> reordered(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to,
                             std::vector<float>& values) {
  const int64_t bytes = static_cast<int64_t>(onednn().memory_desc_get_size(&to));
  std::vector<float> result(static_cast<size_t>(bytes) / sizeof(float), -1);
  TeamPrimitive reorder(from, to);
  reorder.prepare(1);
  std::vector<std::byte> scratch(static_cast<size_t>(reorder.primitive().scratchpad_bytes()));
  const std::array<void*, 2> data = {values.data(), result.data()};
  const OneThread one;
  reorder.run(0, data, scratch.data());
  return result;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {dnnl_Acdb64a, {64, 64, 3, 3}},
      {dnnl_Acdb64a, {100, 40, 3, 3}},
      {dnnl_Acdb64a, {128, 1024, 1, 1}},
      {dnnl_Acdb32a, {64, 3, 7, 7}},
      {dnnl_Acdb32a, {24, 300, 3, 3}, true},
      {dnnl_Acdb16a, {40, 21, 1, 1}},
      {dnnl_ABcd16b16a, {64, 64, 3, 3}},
      {dnnl_ABcd16b16a, {36, 20, 3, 5}},
      {dnnl_ABcd16b16a, {96, 24, 1, 1}},
      {dnnl_ABcd16a16b, {64, 48, 3, 3}},
      {dnnl_ABcd16a16b, {20, 36, 3, 3}},
      {dnnl_BAcd16a16b, {96, 160, 1, 1}},
      {dnnl_BAcd16a16b, {24, 40, 1, 1}},
      {dnnl_BAcd16a16b, {20, 36, 5, 5}, true},
      {dnnl_ABcd8b8a, {24, 20, 3, 3}},
      {dnnl_ABcd8a8b, {20, 300, 3, 3}},
      {dnnl_Abcde16a, {40, 1, 1, 3, 3}},
      {dnnl_Acdb64a, {1, 16, 3, 3}},
      {dnnl_Acdb16a, {16, 1, 1, 1}},
      // One lane, one column: their strides say nothing.
      {dnnl_Acdb16a, {1, 1, 3, 3}, false, {1, 1, 3, 1}},
      {dnnl_ABcd16b16a, {1, 20, 1, 1}, false, {1, 1, 1, 1}},
      {dnnl_BAcd16a16b, {20, 1, 1, 1}, false, {1, 20, 20, 20}},
  };
  return all;
}

std::string name_of(const Case& one) {
  std::string name = "tag " + std::to_string(one.tag) + " of";
  for (const int64_t size : one.sizes) name += " " + std::to_string(size);
  return name + (one.channels_last ? ", channels last" : "");
}

TEST(WeightCopyTest, AgreesWithTheLibrary) {
  for (const Case& one : cases()) {
    const dnnl_memory_desc_t blocked = blocked_desc(one);
    const Dims strides = strides_of(one);
    const dnnl_memory_desc_t own = strided_desc(DType::f32, one.sizes, strides);
    std::vector<float> values = numbered(convolution::product_of(one.sizes));
    std::vector<float> expected = reordered(own, blocked, values);
    const std::optional<TiledCopy> copy = TiledCopy::of(DType::f32, one.sizes, strides, blocked);
    ASSERT_TRUE(copy.has_value()) << name_of(one);
    std::vector<float> got(expected.size(), -1);
    for (int64_t part = copy->parts(); part-- > 0;)
      copy->to_blocked(values.data(), got.data(), part, part + 1);
    EXPECT_EQ(got, expected) << name_of(one);
    std::ranges::fill(got, -1.0F);
    copy->to_blocked(values.data(), got.data(), 0, copy->parts());
    EXPECT_EQ(got, expected) << name_of(one) << ", in one";
    std::vector<float> back(values.size(), -1);
    copy->from_blocked(back.data(), got.data(), 0, copy->parts());
    EXPECT_EQ(back, values) << name_of(one) << ", back";
  }
}

// What it does not know is left to the library: 16 bits in pairs, lanes of no register.
TEST(WeightCopyTest, LeavesOtherLayouts) {
  const Case one{dnnl_ABcd16b16a, {32, 32, 3, 3}};
  const Dims strides = strides_of(one);
  EXPECT_FALSE(TiledCopy::of(DType::bf16, one.sizes, strides, blocked_desc(one)));
  const dnnl_memory_desc_t pairs = blocked_desc({dnnl_ABcd8b16a2b, one.sizes});
  EXPECT_FALSE(TiledCopy::of(DType::f32, one.sizes, strides, pairs));
  const dnnl_memory_desc_t narrow = blocked_desc({dnnl_ABcd4b4a, one.sizes});
  EXPECT_FALSE(TiledCopy::of(DType::f32, one.sizes, strides, narrow));
  const dnnl_memory_desc_t plain = strided_desc(DType::f32, one.sizes, strides);
  EXPECT_FALSE(TiledCopy::of(DType::f32, one.sizes, strides, plain));
  Dims apart = strides;
  apart[3] = 2;
  EXPECT_FALSE(TiledCopy::of(DType::f32, one.sizes, apart, blocked_desc(one)));
}

}  // namespace
}  // namespace tandem::runtime
