// Facts about element types as one table, so that a new type is one line.
#include "base/dtype.h"

#include <array>
#include <limits>

namespace tandem {
namespace {

enum class Category : uint8_t { boolean, integer, floating, complex };

struct Facts {
  std::string_view name;
  int64_t size;
  Category category;
  bool is_signed;
};

constexpr std::array<Facts, kDTypeCount> kFacts = {{
    {"f32", 4, Category::floating, true},
    {"f64", 8, Category::floating, true},
    {"bf16", 2, Category::floating, true},
    {"f16", 2, Category::floating, true},
    {"i8", 1, Category::integer, true},
    {"u8", 1, Category::integer, false},
    {"i16", 2, Category::integer, true},
    {"i32", 4, Category::integer, true},
    {"i64", 8, Category::integer, true},
    {"bool", 1, Category::boolean, false},
    {"f8e4m3fn", 1, Category::floating, true},
    {"f8e5m2", 1, Category::floating, true},
    {"c64", 8, Category::complex, true},
    {"c128", 16, Category::complex, true},
}};

const Facts& facts(DType dtype) { return kFacts[static_cast<size_t>(dtype)]; }

DType promote_floats(DType a, DType b) {
  if (a == b) return a;
  if (is_float8(a) && !is_float8(b)) return b;
  if (is_float8(b) && !is_float8(a)) return a;
  if (a == DType::f64 || b == DType::f64) return DType::f64;
  return DType::f32;  // f32 with a 16-bit type, bf16 with f16, and two kinds of 8 bits
}

DType promote_ints(DType a, DType b) {
  if (size_of(a) == size_of(b)) return a == b ? a : DType::i16;  // u8 and i8
  return size_of(a) > size_of(b) ? a : b;
}

}  // namespace

int64_t size_of(DType dtype) { return facts(dtype).size; }
std::string_view name_of(DType dtype) { return facts(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kFacts[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

bool is_float(DType dtype) { return facts(dtype).category == Category::floating; }
bool is_float8(DType dtype) { return is_float(dtype) && size_of(dtype) == 1; }
bool is_complex(DType dtype) { return facts(dtype).category == Category::complex; }
DType part_type(DType dtype) {
  if (!is_complex(dtype)) return dtype;
  return dtype == DType::c128 ? DType::f64 : DType::f32;
}
DType complex_type(DType dtype) {
  return part_type(dtype) == DType::f64 ? DType::c128 : DType::c64;
}
bool is_int(DType dtype) { return facts(dtype).category == Category::integer; }
bool is_signed(DType dtype) { return facts(dtype).is_signed; }

DType promote(DType a, DType b) {
  if (is_complex(a) || is_complex(b)) return complex_type(promote(part_type(a), part_type(b)));
  if (facts(a).category != facts(b).category) return facts(a).category > facts(b).category ? a : b;
  if (is_float(a)) return promote_floats(a, b);
  return is_int(a) ? promote_ints(a, b) : DType::boolean;
}

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::numeric_limits<double>::max();
    case DType::bf16: return 0x1.fep127;
    case DType::f16: return 65504;
    case DType::f8e4m3fn: return 448;
    case DType::f8e5m2: return 57344;
    default: return double{std::numeric_limits<float>::max()};
  }
}

DType compute_type(DType dtype) {
  return is_float(dtype) && size_of(dtype) < 4 ? DType::f32 : dtype;
}

DType accumulate_type(DType dtype) { return is_float(dtype) ? compute_type(dtype) : DType::i64; }

DType running_type(DType dtype) {
  return dtype == DType::f32 ? DType::f64 : accumulate_type(dtype);
}

std::string_view name_of(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

}  // namespace tandem
