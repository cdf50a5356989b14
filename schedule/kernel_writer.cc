// Problem: computations are data over axes of their own, and kernels have other axes, buffers with
// addresses and errors with numbers. Approach: one rewrite, in which axes are substituted and each
// kind of leaf becomes what the kernel has for it.
#include "schedule/kernel_writer.h"

#include <algorithm>

#include "ops/elements.h"
#include "schedule/inline.h"

namespace tandem::schedule {

using ir::Value;
using loop::Val;
using sym::Expr;

Expr address_of(const ops::Index& index, const ir::Sizes& strides) {
  Expr address = 0;
  for (size_t i = 0; i < index.size(); ++i) address = address + index[i] * strides[i];
  return address;
}

KernelWriter::KernelWriter(KernelGraph& graph, Group& group)
    : graph_(graph),
      group_(group),
      element_([this](const Value* value, const ops::Index& index, Val mask) {
        return load_value(value, index, mask);
      }) {}

namespace {

/// Neighbours in memory are one load; null where the parts are anything else.
Val wide_load(loop::ScalarPool& pool, std::span<const Val> parts) {
  const Val first = parts[0];
  if (first->opcode != loop::Opcode::load) return nullptr;
  const int64_t count = static_cast<int64_t>(parts.size());
  const bool starts_apart = !sym::known_divisible(first->index, count);
  if (starts_apart || first->args.size() > static_cast<size_t>(first->masked)) return nullptr;
  for (size_t i = 1; i < parts.size(); ++i) {
    const bool follows = parts[i]->opcode == loop::Opcode::load && parts[i]->slot == first->slot &&
                         parts[i]->args == first->args && parts[i]->masked == first->masked &&
                         parts[i]->index == first->index + static_cast<int64_t>(i);
    if (!follows) return nullptr;
  }
  return pool.load(first->slot, DType::i32, sym::floor_div(first->index, count),
                   first->masked ? first->args[0] : nullptr);
}

}  // namespace

std::vector<Val> KernelWriter::written(std::span<const Val> roots, const sym::Substitution& at,
                                       std::span<const Val> locals) {
  loop::Rewrite how;
  how.map_index = [&](Expr e) { return sym::substitute(e, at); };
  how.replace = [&](const loop::Scalar& node, std::span<const Val> args) -> Val {
    if (node.opcode == loop::Opcode::local) return locals[static_cast<size_t>(node.slot)];
    if (node.opcode == loop::Opcode::pack) return wide_load(scalars(), args);
    return node.opcode == loop::Opcode::check ? check(args[0], args[1], node.slot) : nullptr;
  };
  how.element = [&](const loop::Scalar& part, std::span<const Val> args) -> Val {
    const Value* value = graph_.computations.value(part.slot);
    if (!value->type.is_tensor()) return scalar_input(value);
    Val read = element_(value, part.at, part.masked ? args[0] : nullptr);
    for (Val place : args.subspan(part.masked ? 1 : 0))
      read = ops::with_check(scalars(), read, place);
    return read;
  };
  return loop::rewrite(scalars(), graph_.scalars, roots, how);
}

Val KernelWriter::point(const Computation& of, size_t result, const ops::Index& at) {
  sym::Substitution map;
  bind_axes(map, of.results[result].axes, at);
  return written(std::span(&of.results[result].value, 1), map)[0];
}

std::vector<Val> KernelWriter::inputs(const Computation& of, const ops::Index& out,
                                      const ops::Index& r) {
  sym::Substitution map;
  bind_axes(map, of.out, out);
  bind_axes(map, of.reduce, r);
  return written(of.inputs, map);
}

std::vector<Val> KernelWriter::finished(const Computation& of, std::span<const Val> combined,
                                        const ops::Index& out) {
  if (of.finished.empty()) return {combined.begin(), combined.end()};
  sym::Substitution map;
  bind_axes(map, of.out, out);
  return written(of.finished, map, combined);
}

Val KernelWriter::check(Val holds, Val value, int32_t error) {
  const Val checked = scalars().check(holds, value, 0);
  if (checked == value) return value;
  return scalars().check(holds, value, number_of(graph_.computations.error_text(error)));
}

Val KernelWriter::scalar_input(const Value* value) {
  Val bits = scalars().index(graph_.computations.argument(value));
  return value->type.dtype == DType::f64 ? scalars().bitcast(bits, DType::f64)
                                         : scalars().cast(bits, value->type.dtype);
}

int32_t KernelWriter::number_of(const std::string& text) {
  std::vector<std::string>& errors = group_.kernel.errors;
  std::vector<std::string>::iterator it = std::find(errors.begin(), errors.end(), text);
  if (it == errors.end()) it = errors.insert(errors.end(), text);
  return static_cast<int32_t>(it - errors.begin());
}

int32_t KernelWriter::buffer(const Value* value, const Home& home, DType dtype,
                             loop::Access access) {
  std::vector<loop::Buffer>& buffers = group_.kernel.buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Home& known = group_.buffer_homes[i];
    bool same = value != nullptr
                    ? group_.buffer_values[i] == value
                    : known.item == home.item && known.slot == home.slot && known.item != nullptr;
    if (!same || buffers[i].access == loop::Access::scratch) continue;
    if (buffers[i].access != access) buffers[i].access = loop::Access::read_write;
    return static_cast<int32_t>(i);
  }
  buffers.push_back({dtype, access, 0, true, ""});
  group_.buffer_values.push_back(value);
  group_.buffer_homes.push_back(home);
  return static_cast<int32_t>(buffers.size()) - 1;
}

Val KernelWriter::load_value(const Value* value, const ops::Index& index, Val mask) {
  int32_t slot = buffer(graph_.memory_of(value), {}, value->type.dtype, loop::Access::read);
  return scalars().load(slot, value->type.dtype, address_of(index, graph_.strides_of(value)), mask);
}

void KernelWriter::store(std::vector<loop::Store>& list, const SlotKey& key,
                         const ops::Index& index, Val value) {
  const Slot& slot = key.first->slots[key.second];
  const Value* memory = slot.value == nullptr ? nullptr : graph_.memory_of(slot.value);
  Home home{const_cast<Item*>(key.first), key.second};
  int32_t number =
      buffer(memory, memory == nullptr ? home : Home{}, slot.dtype, loop::Access::write);
  list.push_back({number, address_of(index, slot.strides), value, false});
}

int32_t KernelWriter::add_scratch(DType dtype, Expr elements) {
  group_.kernel.buffers.push_back({dtype, loop::Access::scratch, elements, true, ""});
  group_.buffer_values.push_back(nullptr);
  group_.buffer_homes.push_back({});
  return static_cast<int32_t>(group_.kernel.buffers.size()) - 1;
}

}  // namespace tandem::schedule
