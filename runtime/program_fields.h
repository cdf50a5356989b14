// A Program's structs for base/archive.h: one line of members each, all of them.
#pragma once

#include "abi/program.h"
#include "base/archive.h"

namespace tandem::abi {

template <class A>
void fields(A& archive, SizeInstruction& instruction) {
  auto& [op, value] = instruction;
  archive(op, value);
}

template <class A>
void fields(A& archive, Guard& guard) {
  auto& [relation, left, right, text] = guard;
  archive(relation, left, right, text);
}

template <class A>
void fields(A& archive, Buffer& buffer) {
  auto& [kind, index, dtype, bytes, label] = buffer;
  archive(kind, index, dtype, bytes, label);
}

template <class A>
void fields(A& archive, TensorRef& ref) {
  auto& [buffer, sizes, strides, offset] = ref;
  archive(buffer, sizes, strides, offset);
}

template <class A>
void fields(A& archive, Block& block) {
  auto& [threads, shared_bytes] = block;
  archive(threads, shared_bytes);
}

template <class A>
void fields(A& archive, TakeOver& pair) {
  auto& [written, read] = pair;
  archive(written, read);
}

template <class A>
void fields(A& archive, Launch& launch) {
  auto& [kernel, buffers, sizes, tasks, work, scratch, label, errors, beside, follows, block,
         takeovers] = launch;
  archive(kernel, buffers, sizes, tasks, work, scratch, label, errors, beside, follows, block,
          takeovers);
}

template <class A>
void fields(A& archive, ConvParams& params) {
  auto& [stride, padding, dilation, groups] = params;
  archive(stride, padding, dilation, groups);
}

template <class A>
void fields(A& archive, RankParams& params) {
  auto& [descending, limit] = params;
  archive(descending, limit);
}

template <class A>
void fields(A& archive, LibraryCall& call) {
  auto& [op, args, has_bias, out, conv, rank, label] = call;
  archive(op, args, has_bias, out, conv, rank, label);
}

template <class A>
void fields(A& archive, HostCall& call) {
  auto& [function, args, sizes, results, label] = call;
  archive(function, args, sizes, results, label);
}

template <class A>
void fields(A& archive, Callee& callee) {
  auto& [body, sizes, takes_seed] = callee;
  archive(body, sizes, takes_seed);
}

template <class A>
void fields(A& archive, Control& control) {
  auto& [kind, callees, args, carried, rows, seed, stream, reverse, results, label] = control;
  archive(kind, callees, args, carried, rows, seed, stream, reverse, results, label);
}

template <class A>
void fields(A& archive, ReadScalar& read) {
  auto& [source, slot, least, most, name, label] = read;
  archive(source, slot, least, most, name, label);
}

template <class A>
void fields(A& archive, Input& input) {
  auto& [name, is_scalar, scalar_slot, dtype, sizes, strides, mutated] = input;
  archive(name, is_scalar, scalar_slot, dtype, sizes, strides, mutated);
}

template <class A>
void fields(A& archive, Output& output) {
  auto& [kind, ref, input, scalar, dtype, name] = output;
  archive(kind, ref, input, scalar, dtype, name);
}

template <class A>
void fields(A& archive, WriteBack& write) {
  auto& [input, src] = write;
  archive(input, src);
}

template <class A>
void fields(A& archive, Constant& constant) {
  auto& [name, dtype, sizes, bytes, setup_output, strides, zeros] = constant;
  archive(name, dtype, sizes, bytes, setup_output, strides, zeros);
}

template <class A>
void fields(A& archive, KernelRef& kernel) {
  auto& [identity, symbol] = kernel;
  archive(identity, symbol);
}

template <class A>
void fields(A& archive, Program& program) {
  auto& [name, slots, inputs, guards, buffers, kernels, instructions, outputs, write_backs,
         constants, setup, bodies] = program;
  archive(name, slots, inputs, guards, buffers, kernels, instructions, outputs, write_backs,
          constants, setup, bodies);
}

}  // namespace tandem::abi
