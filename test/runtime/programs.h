// Programs written by hand, for tests of the runtime.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "abi/program.h"
#include "runtime/executor.h"

namespace tandem::runtime {

using abi::BufferKind;
using abi::SizeCode;
using Op = abi::SizeInstruction::Op;
using Dims = std::vector<int64_t>;

inline SizeCode constant(int64_t value) { return {{Op::constant, value}}; }
inline SizeCode slot(int64_t number) { return {{Op::slot, number}}; }
inline SizeCode times(SizeCode code, int64_t factor) {
  code.push_back({Op::constant, factor});
  code.push_back({Op::mul, 0});
  return code;
}

// buffers: x, out; sizes: elements
inline int64_t double_kernel(void* const* buffers, const int64_t*, int64_t lo, int64_t hi, void*) {
  const float* const x = static_cast<const float*>(buffers[0]);
  float* const out = static_cast<float*>(buffers[1]);
  for (int64_t i = lo; i < hi; ++i) out[i] = 2 * x[i];
  return 0;
}

inline abi::TensorRef vector_ref(uint32_t buffer, SizeCode size) {
  return {buffer, {std::move(size)}, {constant(1)}, constant(0)};
}

inline abi::Launch launch(uint32_t kernel, std::vector<uint32_t> buffers, SizeCode tasks,
                          int64_t work = 0) {
  abi::Launch result;
  result.kernel = kernel;
  result.buffers = std::move(buffers);
  result.tasks = std::move(tasks);
  result.work = constant(work);
  result.scratch_bytes = constant(0);
  return result;
}

inline abi::Buffer buffer(BufferKind kind, uint32_t index, SizeCode bytes) {
  return {kind, index, DType::f32, std::move(bytes), ""};
}

inline abi::Input vector_input(const char* name, SizeCode size) {
  abi::Input input;
  input.name = name;
  input.sizes = {std::move(size)};
  input.strides = {constant(1)};
  return input;
}

inline abi::Output vector_output(uint32_t buffer_number, SizeCode size) {
  abi::Output output;
  output.ref = vector_ref(buffer_number, std::move(size));
  return output;
}

// out = 8 x through two temporaries, for x of s0 elements, s0 <= 4096.
inline abi::Program chain() {
  abi::Program program;
  program.name = "chain";
  program.slots = 1;
  program.inputs = {vector_input("x", slot(0))};
  program.guards = {{abi::Guard::Relation::le, slot(0), constant(4096), "s0 <= 4096"}};
  const SizeCode bytes = times(slot(0), 4);
  program.buffers = {buffer(BufferKind::input, 0, bytes), buffer(BufferKind::temporary, 0, bytes),
                     buffer(BufferKind::temporary, 0, bytes), buffer(BufferKind::output, 0, bytes)};
  program.kernels.resize(1);
  program.instructions = {launch(0, {0, 1}, slot(0)), launch(0, {1, 2}, slot(0), 100000),
                          launch(0, {2, 3}, slot(0))};
  program.outputs = {vector_output(3, slot(0))};
  return program;
}

inline Array vector_of(std::vector<float> values) {
  const Array array = Array::empty(DType::f32, Dims{static_cast<int64_t>(values.size())});
  if (!values.empty()) std::memcpy(array.raw(), values.data(), values.size() * 4);
  return array;
}

inline std::vector<float> values_of(const Value& value) {
  const Array array = std::get<Array>(value).contiguous();
  return {array.data<float>(), array.data<float>() + array.numel()};
}

using Floats = std::vector<float>;

}  // namespace tandem::runtime
