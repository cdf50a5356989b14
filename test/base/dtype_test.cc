// Promotion and the facts of each type, against PyTorch's tables.
#include "base/dtype.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(DType, PromotesAsPyTorch) {
  EXPECT_EQ(promote(DType::i32, DType::f16), DType::f16);
  EXPECT_EQ(promote(DType::bf16, DType::f16), DType::f32);
  EXPECT_EQ(promote(DType::u8, DType::i8), DType::i16);
  EXPECT_EQ(promote(DType::u8, DType::i32), DType::i32);
  EXPECT_EQ(promote(DType::boolean, DType::u8), DType::u8);
  EXPECT_EQ(promote(DType::boolean, DType::boolean), DType::boolean);
  EXPECT_EQ(promote(DType::i64, DType::f32), DType::f32);
  EXPECT_EQ(promote(DType::f64, DType::bf16), DType::f64);
  EXPECT_EQ(promote(DType::i64, DType::f8e5m2), DType::f8e5m2);
  EXPECT_EQ(promote(DType::c64, DType::bf16), DType::c64);
  EXPECT_EQ(promote(DType::i64, DType::c64), DType::c64);
  EXPECT_EQ(promote(DType::c64, DType::f64), DType::c128);
}

TEST(DType, PromotionCommutes) {
  for (int a = 0; a < kDTypeCount; ++a)
    for (int b = 0; b < kDTypeCount; ++b)
      EXPECT_EQ(promote(DType(a), DType(b)), promote(DType(b), DType(a))) << a << " " << b;
}

TEST(DType, NamesParseBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("float"), std::nullopt);
}

TEST(DType, AccumulatesWide) {
  EXPECT_EQ(accumulate_type(DType::bf16), DType::f32);
  EXPECT_EQ(accumulate_type(DType::f64), DType::f64);
  EXPECT_EQ(accumulate_type(DType::i8), DType::i64);
  EXPECT_EQ(accumulate_type(DType::boolean), DType::i64);
  EXPECT_EQ(compute_type(DType::f16), DType::f32);
  EXPECT_EQ(compute_type(DType::i8), DType::i8);
  EXPECT_EQ(compute_type(DType::f8e5m2), DType::f32);
  EXPECT_EQ(accumulate_type(DType::f8e4m3fn), DType::f32);
}

}  // namespace
}  // namespace tandem
