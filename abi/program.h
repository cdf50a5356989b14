// What compiler and runtime agree on: a compiled program as plain, serialisable structs. No logic
// here.
//
// A Program is immutable. At a call the runtime binds sizes (slots), checks guards, evaluates size
// code into slot values, places the arena and runs the instructions in order; then the epilogue:
// write-backs to mutated inputs, outputs, regenerated views.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"

namespace tandem::abi {

/// Postfix code over i64 slots. A constant is one instruction. floor_div and mod follow sym::Kind.
struct SizeInstruction {
  enum class Op : uint8_t { constant, slot, add, mul, floor_div, mod, min, max } op;
  int64_t value = 0;  // the constant, or the slot's number
  bool operator==(const SizeInstruction&) const = default;
};
using SizeCode = std::vector<SizeInstruction>;

/// Condition checked at a call before anything runs.
struct Guard {
  enum class Relation : uint8_t { eq, ne, lt, le } relation;
  SizeCode left;
  SizeCode right;
  std::string text;  // "s0 <= 4096", as the error prints it
};

enum class BufferKind : uint8_t {
  input,      // the caller's memory of input `index`
  constant,   // constants[index]
  temporary,  // of this call, alive from its first use to its last one
  output,     // a block of its own, handed to the caller (saved activations too)
};

/// Memory that instructions read and write.
struct Buffer {
  BufferKind kind = BufferKind::temporary;
  uint32_t index = 0;  // which input or constant
  DType dtype = DType::f32;
  SizeCode bytes;     // size in bytes
  std::string label;  // the value it holds, for reports: "%12 aten.mm"
};

/// Elements of a buffer as a strided tensor; all in elements.
struct TensorRef {
  uint32_t buffer = 0;
  std::vector<SizeCode> sizes;
  std::vector<SizeCode> strides;
  SizeCode offset;
};

/// A compiled kernel over a range of tasks. Status 0 is success; otherwise 1 + number of the failed
/// check, and the lowest failing range decides which one is reported.
///   int64_t kernel(void* const* buffers, const int64_t* sizes, int64_t lo, int64_t hi, void*
///   scratch)
using KernelFunction = int64_t (*)(void* const* buffers, const int64_t* sizes, int64_t lo,
                                   int64_t hi, void* scratch);

/// What the blocks of a kernel of threads need of the machine that starts them.
struct Block {
  uint32_t threads = 0;   // 0: it is a kernel of tasks
  SizeCode shared_bytes;  // seen by all threads of a block
};

/// Places in Launch::buffers. What is written may take over the memory of what is read, as far as
/// the kernel is concerned: it reads each byte before it writes over it.
struct TakeOver {
  uint32_t written = 0;
  uint32_t read = 0;
};

struct Launch {
  uint32_t kernel = 0;            // index into Program::kernels
  std::vector<uint32_t> buffers;  // one per slot of the kernel
  std::vector<SizeCode>
      sizes;               // one per size argument; scalar inputs arrive here too (f64 as bits)
  SizeCode tasks;          // the kernel runs over [0, tasks): tasks, or blocks of threads
  SizeCode work;           // about how many nanoseconds on one core: small work stays on one thread
  SizeCode scratch_bytes;  // per thread (of a kernel of threads: per block), 64-byte aligned
  std::string label;       // origin: "aten.softmax, aten.mul (model.cc:12)"
  std::vector<std::string> errors;  // text of each check that can fail
  /// Runs at the same time as the launch before it: neither writes what the other reads or writes,
  /// and neither has checks.
  bool beside = false;
  /// Runs along the library call before it: task i is of line i of that call's result, of images
  /// times rows of the first spatial dimension, and may run as soon as that line is there. It
  /// writes nothing that the call reads, and has no checks.
  bool follows = false;
  Block block;
  std::vector<TakeOver> takeovers;
};

enum class LibraryOp : uint8_t {
  /// args: a[..., m, k], b[..., k, n], optional bias (broadcast to out), out[..., m, n]
  matmul,
  /// args: x[n, c, *], weight[o, c/g, *], optional bias[o], out; params: see ConvParams
  convolution,
  /// args: grad_out, weight, out = grad of x
  convolution_backward_data,
  /// args: grad_out, x, out = grad of weight
  convolution_backward_weights,
  /// args: x; out: i64 or i32 of x's sizes, the place of each element in its sorted row; see
  /// RankParams
  rank,
  /// args: a[i, k], b[g, k, n], groups[i] (i64), out[i, n]: row i of a times b[groups[i]]
  grouped_rows,
  /// args: a[m, i], b[i, n], groups[i] (i64), out[g, m, n]: sums over the i with groups[i] = g
  grouped_sums,
};

struct ConvParams {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
};

/// Rows run along the last dimension. Equal elements keep their order; NaN is the largest.
struct RankParams {
  bool descending = false;
  int64_t limit = -1;  // places from here on are given as `limit`; negative: no limit
};

struct LibraryCall {
  LibraryOp op = LibraryOp::matmul;
  std::vector<TensorRef> args;  // inputs in the order given at LibraryOp
  bool has_bias = false;
  TensorRef out;
  ConvParams conv;
  RankParams rank;
  std::string label;
};

/// A function of the caller, by number: it reads `args` and writes `results`. It may throw.
struct HostCall {
  uint32_t function = 0;
  std::vector<TensorRef> args;
  std::vector<SizeCode> sizes;
  std::vector<TensorRef> results;
  std::string label;
};

/// A program of Program::bodies, and what it takes behind its tensors.
struct Callee {
  uint32_t body = 0;
  std::vector<SizeCode> sizes;  // one for each i64 input
  bool takes_seed = false;      // the last input, an i64
};

/// Runs programs, each with a frame of its own: once, or again and again. `args` are, in order: the
/// predicate of a branch, what is carried, rows, other operands. What each callee gets: carried, a
/// row of each of `rows`, operands; then sizes; then a seed of its own, which follows from the
/// given one, the stream and the number of the step.
struct Control {
  enum class Kind : uint8_t {
    branch,  // callees: where the predicate holds, where it does not; results: what it gives
    repeat,  // callees: condition (one bool), body; results: what is carried at the end
    rows,    // callee: body; gives what is carried, then one row of each further result
    /// The gradient of `repeat`. Callees: condition; body, which gives what is carried, then what
    /// its gradient reads; that gradient, which gets what is carried backwards, what the body gave
    /// behind what is carried, and the operands. `args`: carried and operands of the loop, then
    /// what is carried backwards, as the results are.
    repeat_backward,
    call,  // callee: body, which runs once
  } kind = Kind::branch;
  std::vector<Callee> callees;
  std::vector<TensorRef> args;
  uint32_t carried = 0;
  uint32_t rows = 0;
  SizeCode seed;
  int64_t stream = 0;    // of the seed
  bool reverse = false;  // from the last row to the first
  std::vector<TensorRef> results;
  std::string label;
};

/// Gives a slot the value of a number that instructions before it have made: an i64, or the bits of
/// an f64. An i64 must be in [least, most], and equal where the slot has a value before. Codes that
/// read the slot belong to later instructions, and to buffers that only these use, outputs and
/// write-backs.
struct ReadScalar {
  TensorRef source;  // 0-d, i64 or f64
  uint32_t slot = 0;
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
  std::string name;  // of the number, for the error
  std::string label;
};

using Instruction = std::variant<Launch, LibraryCall, HostCall, Control, ReadScalar>;

/// A tensor or scalar the caller passes.
struct Input {
  std::string name;
  bool is_scalar = false;  // i64 or f64 (by dtype): its value goes to `scalar_slot`
  uint32_t scalar_slot = 0;
  DType dtype = DType::f32;
  /// A size that is one slot not bound yet binds it; any other size must equal the actual one.
  std::vector<SizeCode> sizes;
  /// What the instructions assume; a tensor with other strides is copied into a block that has them
  /// (and back, if mutated).
  std::vector<SizeCode> strides;
  bool mutated = false;
};

struct Output {
  enum class Kind : uint8_t {
    tensor,         // `ref` names a buffer of kind output
    input_view,     // a view (`ref` sizes, strides, offset) of the caller's input `input`
    scalar,         // value of `scalar`
    constant_view,  // the same of constants[`input`]; the caller must not write to it
  } kind = Kind::tensor;
  TensorRef ref;
  uint32_t input = 0;
  SizeCode scalar;
  DType dtype = DType::f32;
  std::string name;
};

/// After the last instruction: the caller's input `input` takes the value held in `src`.
struct WriteBack {
  uint32_t input = 0;
  TensorRef src;
};

/// A value that is the same at every call: an output of `setup`, or `bytes`, or, where it has
/// neither, an array given by `name` when the program is loaded.
struct Constant {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes;
  std::vector<std::byte> bytes;  // contiguous
  int32_t setup_output = -1;     // output number of Program::setup
  std::vector<int64_t> strides;  // what the instructions assume; empty: contiguous
  bool zeros = false;            // they assume that all its elements are 0; asked when it is given
};

struct KernelRef {
  uint64_t identity = 0;  // hash of the mapped loop IR, target and compiler build
  std::string symbol;     // name in the object code
};

struct Program {
  std::string name;
  uint32_t slots = 0;
  std::vector<Input> inputs;
  std::vector<Guard> guards;
  std::vector<Buffer> buffers;
  std::vector<KernelRef> kernels;
  std::vector<Instruction> instructions;
  std::vector<Output> outputs;
  std::vector<WriteBack> write_backs;
  std::vector<Constant> constants;
  /// Computes constants from the arrays that have the names of its inputs; run once when they are
  /// given, and again when they change. Null when there is none.
  std::shared_ptr<Program> setup;
  /// What Control instructions run, of this program and of its bodies; a body calls those before
  /// it. Bodies launch the kernels of this program, and have no constants.
  std::vector<std::shared_ptr<Program>> bodies;
};

}  // namespace tandem::abi
