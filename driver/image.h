// A compiled function as data, for base/archive.h and the cache of functions.
#pragma once

#include "driver/compiler.h"
#include "driver/graph_function.h"
#include "runtime/program_fields.h"

namespace tandem::codegen {

template <class A>
void fields(A& archive, ObjectCode& object) {
  auto& [symbol, bytes] = object;
  archive(symbol, bytes);
}

}  // namespace tandem::codegen

namespace tandem::schedule {

template <class A>
void fields(A& archive, Note& note) {
  auto& [place, text] = note;
  archive(place, text);
}

}  // namespace tandem::schedule

namespace tandem::passes {

template <class A>
void fields(A& archive, QuantizedProduct& product) {
  auto& [name, reason] = product;
  archive(name, reason);
}

template <class A>
void fields(A& archive, CutRow& row) {
  auto& [kind, name, what, why, bytes_text, bytes, is_free, microseconds, flops, reads] = row;
  archive(kind, name, what, why, bytes_text, bytes, is_free, microseconds, flops, reads);
}

template <class A>
void fields(A& archive, CutTable& table) {
  auto& [graph, rows] = table;
  archive(graph, rows);
}

}  // namespace tandem::passes

namespace tandem::ir {

template <class A>
void fields(A& archive, Bindings& bindings) {
  auto& [sizes, equal, floats] = bindings;
  archive(sizes, equal, floats);
}

}  // namespace tandem::ir

namespace tandem::driver {

template <class A>
void fields(A& archive, CutDecisions& decisions) {
  auto& [text, table, joint] = decisions;
  archive(text, table, joint);
}

template <class A>
void fields(A& archive, Image& image) {
  auto& [target, program, kernels, setup_kernels, notes, report] = image;
  archive(target, program, kernels, setup_kernels, notes, report);
}

template <class A>
void fields(A& archive, Mutation& mutation) {
  auto& [input, has_tangent] = mutation;
  archive(input, has_tangent);
}

template <class A>
void fields(A& archive, HandedOn& handed) {
  auto& [result, input] = handed;
  archive(result, input);
}

template <class A>
void fields(A& archive, SavedPlace& place) {
  auto& [kind, number] = place;
  archive(kind, number);
}

template <class A>
void fields(A& archive, ReplayStep& step) {
  auto& [op, arguments, results, no_grad] = step;
  archive(op, arguments, results, no_grad);
}

template <class A>
void fields(A& archive, Replay& replay) {
  auto& [steps, returned] = replay;
  archive(steps, returned);
}

template <class A>
void fields(A& archive, FunctionShape& shape) {
  auto& [inputs, results, replay, signature, saved_sizes, takes_seed, has_backward, mutations,
         handed_on, has_tangent, has_gradient, later, saved_places, names, reads, tangents,
         gradient_inputs] = shape;
  archive(inputs, results, replay, signature, saved_sizes, takes_seed, has_backward, mutations,
          handed_on, has_tangent, has_gradient, later, saved_places, names, reads, tangents,
          gradient_inputs);
}

/// Forward, and backward where there is a program for it.
struct FunctionImage {
  FunctionShape shape;
  std::vector<Image> programs;
  std::vector<QuantizedProduct> products;
  CutDecisions decisions;
  ir::Bindings assumed;
};

template <class A>
void fields(A& archive, FunctionImage& image) {
  auto& [shape, programs, products, decisions, assumed] = image;
  archive(shape, programs, products, decisions, assumed);
}

}  // namespace tandem::driver
