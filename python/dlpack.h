// The C structs of DLPack 1.x that cross between torch and us, and torch's table of C functions for
// them (its "exchange API", DLPack 1.2 on). A layout shared by two libraries: no field may move.
#pragma once

#include <cstdint>

namespace tandem::dlpack {

struct Device {
  int32_t type;  // 1: CPU
  int32_t id;
};
inline constexpr int32_t kCpu = 1;

struct DataType {
  uint8_t code;  // 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct Version {
  uint32_t major;
  uint32_t minor;
};

struct ManagedTensor {
  Version version;
  void* manager;
  void (*deleter)(ManagedTensor*);
  uint64_t flags;
  Tensor tensor;
};

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;
};

/// Functions return 0, or -1 with a Python error set.
struct Exchange {
  ExchangeHeader header;
  int (*allocate)(Tensor*, ManagedTensor**, void*, void (*)(void*, const char*, const char*));
  int (*from_object)(void* object, ManagedTensor** out);
  int (*to_object)(ManagedTensor* tensor, void** out_object);  // takes the tensor over
  int (*view_object)(void* object, Tensor* out);               // borrows shape and strides
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // namespace tandem::dlpack
