// Bitwise logic and shifts of integers and bool: one table row for each overload. A shift distance
// outside the width shifts everything out, as in eager; the opcodes themselves leave that open.
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kIntegers = "integers have no gradient";

const Samples kPairs = {"$[3, 4], $[3, 4]", "$[3, 4], $[4]", "$[2, 1, 5], $[3, 1]",
                        "$[], $[3]",        "$[0, 4], $[4]", "$[4, 3]{1, 4}, $[4, 3]",
                        "$[3], i64[3]",     "$[3], f32[3]"};
const Samples kNumberRight = {"$[3, 4], 2", "$[5], 3",   "$[0], 1", "$[4, 3]{1, 4}, 5",
                              "$[4], true", "$[3], 1.5", "$[], 3"};
const Samples kNumberLeft = {"2, $[3, 4]", "3, $[5]", "1, $[0]", "true, $[4]", "1.5, $[3]"};
const Samples kDistances = {
    "$[3, 4], $[3, 4]:index(7)",       "$[3, 4], $[4]", "$[], $[3]:positive", "$[0, 4], $[4]",
    "$[4, 3]{1, 4}, $[4, 3]:index(9)", "$[3], f32[3]"};
const Samples kDistanceRight = {"$[3, 4], 2", "$[5], 0",  "$[0], 1",
                                "$[7], 8",    "$[7], 64", "$[4, 3]{1, 4}, 3"};
const Samples kDistanceLeft = {"2, $[3, 4]:index(5)", "-3, $[5]:index(9)", "1, $[0]"};

Types bit_types(const Call& c) {
  Types types = binary(c);
  if (is_float(types[0].dtype)) c.fail("needs integers or bool, not " + to_string(types[0]));
  return types;
}
Types shift_types(const Call& c) {
  Types types = bit_types(c);
  if (types[0].dtype == DType::boolean) c.fail("is not defined for bool");
  return types;
}

template <Opcode op>
constexpr auto kBits = [](Element a, Element b) { return a.apply(op, b); };

/// a shifted by b bits; `out` where b is not in [0, width).
template <Opcode op>
Element shifted(Element a, Element b, Element out) {
  int64_t width = size_of(a.dtype()) * 8;
  Element inside = both(b >= b.integer(0), b < b.integer(width));
  return choose(inside, a.apply(op, choose(inside, b, b.integer(0))), out);
}
constexpr auto kLeft = [](Element a, Element b) {
  return shifted<Opcode::shift_left>(a, b, a.integer(0));
};
constexpr auto kRight = [](Element a, Element b) {
  Element sign = choose(a < a.integer(0), a.integer(-1), a.integer(0));
  return shifted<Opcode::shift_right>(a, b, sign);
};

template <auto F>
OpDef bits(std::string_view schema, std::string_view out_as, bool inplace, const Samples& samples) {
  return {.schema = schema,
          .types = bit_types,
          .lower = binary_map<F>,
          .no_grad = kIntegers,
          .samples = samples,
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .inplace = inplace,
          .out = true,
          .out_as = out_as};
}
template <auto F>
OpDef shift(std::string_view schema, std::string_view out_as, bool inplace,
            const Samples& samples) {
  OpDef def = bits<F>(schema, out_as, inplace, samples);
  def.types = shift_types;
  return def;
}

constexpr auto kAnd = kBits<Opcode::bit_and>;
constexpr auto kOr = kBits<Opcode::bit_or>;
constexpr auto kXor = kBits<Opcode::bit_xor>;

const OpDef kTable[] = {
    bits<kAnd>("aten::bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor", "Tensor_out", true,
               kPairs),
    bits<kAnd>("aten::bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor", "Scalar_out", true,
               kNumberRight),
    bits<kAnd>("aten::bitwise_and.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
               "Scalar_Tensor_out", false, kNumberLeft),
    bits<kOr>("aten::bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor", "Tensor_out", true,
              kPairs),
    bits<kOr>("aten::bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor", "Scalar_out", true,
              kNumberRight),
    bits<kOr>("aten::bitwise_or.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
              "Scalar_Tensor_out", false, kNumberLeft),
    bits<kXor>("aten::bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor", "Tensor_out", true,
               kPairs),
    bits<kXor>("aten::bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor", "Scalar_out", true,
               kNumberRight),
    bits<kXor>("aten::bitwise_xor.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
               "Scalar_Tensor_out", false, kNumberLeft),
    shift<kLeft>("aten::bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor",
                 "Tensor_out", true, kDistances),
    shift<kLeft>("aten::bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
                 "Tensor_Scalar_out", true, kDistanceRight),
    shift<kLeft>("aten::bitwise_left_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
                 "Scalar_Tensor_out", false, kDistanceLeft),
    shift<kRight>("aten::bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor",
                  "Tensor_out", true, kDistances),
    shift<kRight>("aten::bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
                  "Tensor_Scalar_out", true, kDistanceRight),
    shift<kRight>("aten::bitwise_right_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
                  "Scalar_Tensor_out", false, kDistanceLeft),
};

const OpDef kBitwiseNot{.schema = "aten::bitwise_not(Tensor self) -> Tensor",
                        .types =
                            [](const Call& c) {
                              if (is_float(c.type("self").dtype))
                                c.fail("needs integers, not " + c.describe("self"));
                              return unary_same(c);
                            },
                        .lower = unary<[](Element x) { return x.apply(Opcode::bit_not); }>,
                        .no_grad = kIntegers,
                        .samples = {"$[3, 4]", "$[]", "$[0, 3]", "$[4, 3]{1, 4}"},
                        .sample_dtypes = DTypes::all,
                        .pointwise = true,
                        .inplace = true,
                        .out = true};

}  // namespace

Family bitwise_family() {
  static const std::vector<const OpDef*> kOps = listed(kTable, {&kBitwiseNot});
  return kOps;
}

}  // namespace tandem::ops
