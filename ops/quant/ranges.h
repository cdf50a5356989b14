// What quantization ops ask of their arguments: ranges of quantized values, parameters of one
// element or one for each channel.
#pragma once

#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {

/// A dtype argument, which must be an integer type of at most 32 bits.
DType quantized_dtype(const Call& c, std::string_view param = "dtype");
/// quant_min and quant_max must be within the range of `dtype`.
void check_range(const Call& c, DType dtype);
/// The least and the greatest number of an integer type.
struct Range {
  int64_t least, greatest;
};
Range range_of(DType dtype);

/// Type of what is quantized: the first parameter, f32 or a 16-bit float.
const ir::Type& float_input(const Call& c);
/// The first parameter must have dtype `dtype` of the call; its type.
const ir::Type& quantized_input(const Call& c);
/// out_dtype or output_dtype, f32 where it is none; must be a float.
DType dequantized_dtype(const Call& c, std::string_view param);

/// A parameter of parts of a tensor has a number for each: "the 3 channels"; or one for all of
/// them.
enum class Counts : uint8_t { each, each_or_one };
void need_for_each(const Call& c, std::string_view param, Expr count, std::string_view parts,
                   Counts counts = Counts::each);

/// A parameter of the whole tensor has one element, whatever its dimensions.
void need_one_element(const Call& c, std::string_view param);
Index first_place(const Call& c, std::string_view param);

}  // namespace tandem::ops
