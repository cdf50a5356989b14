#include "runtime/weight_reorder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

namespace tandem::runtime {
namespace {

using Bytes = std::vector<std::byte>;

dnnl_memory_desc_t tagged(const std::array<int64_t, 4>& sizes, dnnl_data_type_t type,
                          dnnl_format_tag_t tag) {
  dnnl_memory_desc_t desc;
  EXPECT_EQ(onednn().memory_desc_init_by_tag(&desc, 4, sizes.data(), type, tag), dnnl_success);
  return desc;
}

Bytes memory_of(const dnnl_memory_desc_t& desc) {
  return Bytes(onednn().memory_desc_get_size(&desc));
}

Bytes numbers(const dnnl_memory_desc_t& desc) {
  Bytes bytes = memory_of(desc);
  const std::span<float> values(reinterpret_cast<float*>(bytes.data()), bytes.size() / 4);
  std::iota(values.begin(), values.end(), 1.0f);
  return bytes;
}

Bytes whole(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to, Bytes data) {
  TeamPrimitive primitive(from, to);
  primitive.prepare(1);
  Bytes result = memory_of(to);
  Bytes scratchpad(static_cast<size_t>(primitive.primitive().scratchpad_bytes()));
  primitive.run(0, std::array<void*, 2>{data.data(), result.data()}, scratchpad.data());
  return result;
}

// The last slice first: none depends on another one.
void run(WeightReorder& reorder, Bytes& caller, Bytes& library) {
  reorder.prepare(1);
  Bytes scratchpad(static_cast<size_t>(reorder.scratchpad_bytes()));
  for (size_t i = reorder.slices(); i-- > 0;)
    reorder.run(i, 0, caller.data(), library.data(), scratchpad.data());
}

using Case = std::tuple<std::array<int64_t, 4>, dnnl_format_tag_t, size_t>;
class Layouts : public ::testing::TestWithParam<Case> {};

TEST_P(Layouts, SlicesAreTheWhole) {
  const auto& [sizes, tag, slices] = GetParam();
  const dnnl_memory_desc_t own = tagged(sizes, dnnl_f32, dnnl_abcd);
  for (const dnnl_data_type_t type : {dnnl_f32, dnnl_bf16}) {
    const dnnl_memory_desc_t packed = tagged(sizes, type, tag);
    WeightReorder to_library(WeightReorder::Way::to_library, own, packed);
    if (type == dnnl_f32) EXPECT_EQ(to_library.slices(), slices);
    Bytes caller = numbers(own), library = memory_of(packed);
    run(to_library, caller, library);
    EXPECT_EQ(library, whole(own, packed, caller));

    WeightReorder to_caller(WeightReorder::Way::to_caller, own, packed);
    Bytes back = memory_of(own);
    run(to_caller, back, library);
    EXPECT_EQ(back, whole(packed, own, library));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reorders, Layouts,
    ::testing::Values(Case{{128, 64, 3, 3}, dnnl_ABcd16a16b, 8},  // blocks of outputs
                      Case{{112, 64, 3, 3}, dnnl_ABcd16a16b, 7},
                      Case{{64, 128, 3, 3}, dnnl_BAcd16a16b, 8},  // of inputs, for data gradients
                      Case{{128, 64, 1, 1}, dnnl_Acdb16a, 1},     // one slice is enough
                      Case{{120, 64, 3, 3}, dnnl_ABcd16a16b, 8},  // the last block is padded
                      Case{{150, 64, 3, 3}, dnnl_Acdb16a, 5},     // the last slice is smaller
                      Case{{128, 64, 3, 3}, dnnl_cdba, 3}),       // by taps
    [](const ::testing::TestParamInfo<Case>& each) { return "Case" + std::to_string(each.index); });

}  // namespace
}  // namespace tandem::runtime
