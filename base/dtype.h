// Element types, as PyTorch names them, and the facts about each that every room needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

/// f8e4m3fn and f8e5m2 are PyTorch's float8_e4m3fn (no infinity; 448 is the largest, and what is
/// beyond becomes it) and float8_e5m2. c64 and c128 are complex numbers, pairs of f32 and of f64:
/// of graphs as they are read alone (passes/complex_parts.cc).
enum class DType : uint8_t {
  f32,
  f64,
  bf16,
  f16,
  i8,
  u8,
  i16,
  i32,
  i64,
  boolean,
  f8e4m3fn,
  f8e5m2,
  c64,
  c128
};
inline constexpr int kDTypeCount = 14;

/// Bytes of one element in memory; bool takes one byte.
int64_t size_of(DType dtype);

/// Text form used by both IRs: f32, f64, bf16, f16, i8, u8, i16, i32, i64, bool, f8e4m3fn, f8e5m2,
/// c64, c128.
std::string_view name_of(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

bool is_float(DType dtype);
/// Floats of 8 bits: they are stored and converted; PyTorch promotes them with no other type.
bool is_float8(DType dtype);
bool is_complex(DType dtype);
/// The type of the parts of complex numbers; else the type itself.
DType part_type(DType dtype);
/// Complex numbers that hold such numbers: c128 for f64 and c128, else c64.
DType complex_type(DType dtype);
/// Integer types proper: bool is not one.
bool is_int(DType dtype);
bool is_signed(DType dtype);

/// PyTorch's promotion of two tensors of equal standing: i32 + f16 = f16, bf16 + f16 = f32, u8 + i8
/// = i16. Of 8-bit floats, which PyTorch does not promote, with other floats: the other one.
DType promote(DType a, DType b);

/// The largest finite number of a float type.
double largest_finite(DType dtype);

/// The type arithmetic runs in: 16-bit and 8-bit floats compute in f32, everything else in itself.
DType compute_type(DType dtype);

/// The type sums and products accumulate in: f32 for small floats, i64 for integers and bool.
DType accumulate_type(DType dtype);

/// The same for running ones, whose terms are added one after the other: f64 for f32, as in
/// PyTorch.
DType running_type(DType dtype);

enum class Device : uint8_t { cpu, cuda };
std::string_view name_of(Device device);

}  // namespace tandem
