// Checks that quantization ops share. PyTorch makes most of them when an op runs on numbers; here
// they are part of the type rule, so that a program that compiles does not fail by them.
#include "ops/quant/ranges.h"

#include <fmt/format.h>

namespace tandem::ops {

Range range_of(DType dtype) {
  int64_t bits = size_of(dtype) * 8;
  if (!is_signed(dtype)) return {0, (int64_t{1} << bits) - 1};
  int64_t half = int64_t{1} << (bits - 1);
  return {-half, half - 1};
}

DType quantized_dtype(const Call& c, std::string_view param) {
  DType dtype = c.dtype(param, DType::i8);
  if (!is_int(dtype) || dtype == DType::i64)
    c.fail(fmt::format("{} {} is not one of the quantized types i8, u8, i16 and i32", param,
                       name_of(dtype)));
  return dtype;
}

void check_range(const Call& c, DType dtype) {
  Range range = range_of(dtype);
  int64_t least = c.constant("quant_min");
  int64_t greatest = c.constant("quant_max");
  if (least < range.least)
    c.fail(
        fmt::format("quant_min {} is below {}, the least {}", least, range.least, name_of(dtype)));
  if (greatest > range.greatest)
    c.fail(fmt::format("quant_max {} is above {}, the greatest {}", greatest, range.greatest,
                       name_of(dtype)));
}

const ir::Type& float_input(const Call& c) {
  std::string_view name = c.op().schema.params[0].name;
  const ir::Type& type = c.type(name);
  if (!is_float(type.dtype) || type.dtype == DType::f64)
    c.fail(c.describe(name) + " must have dtype f32, bf16 or f16");
  return type;
}

const ir::Type& quantized_input(const Call& c) {
  std::string_view name = c.op().schema.params[0].name;
  const ir::Type& type = c.type(name);
  DType dtype = quantized_dtype(c);
  if (type.dtype != dtype)
    c.fail(
        fmt::format("{} must have the dtype that is given, {}", c.describe(name), name_of(dtype)));
  return type;
}

DType dequantized_dtype(const Call& c, std::string_view param) {
  DType dtype = c.dtype(param, DType::f32);
  if (!is_float(dtype)) c.fail(fmt::format("{} {} is not a float", param, name_of(dtype)));
  return dtype;
}

void need_for_each(const Call& c, std::string_view param, Expr count, std::string_view parts,
                   Counts counts) {
  need_number(c, param);
  Expr given = sym::product(c.type(param).sizes);
  bool is_one = counts == Counts::each_or_one && given == Expr(1);
  if (!is_one && given != count && !sym::known_eq(given, count))
    c.fail(fmt::format("{} must have an element for each of the {} {}", c.describe(param),
                       sym::to_string(count), parts));
}

void need_one_element(const Call& c, std::string_view param) {
  for (const Expr& size : c.type(param).sizes)
    if (size != Expr(1) && !sym::known_eq(size, Expr(1)))
      c.fail(c.describe(param) + " must have one element");
}

Index first_place(const Call& c, std::string_view param) {
  return Index(c.type(param).sizes.size(), Expr(0));
}

}  // namespace tandem::ops
