// Problem: a choice compares what values take, and with fewer bits for some a large one may take
// less than a small one that stays whole. Approach: one table, by the same question that
// store_saved asks, so that what is weighed is what is kept.
#include "passes/partition/kept_bytes.h"

#include <algorithm>

#include "ir/text.h"
#include "ir/writes.h"
#include "passes/partition/mask_bits.h"
#include "passes/partition/partition.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using Kind = SavedStorage::Kind;

bool is_handed_out(const ir::Graph& graph, const Value& value) {
  return std::ranges::any_of(value.uses, [&](const ir::Use& use) {
    if (use.node != nullptr) return false;
    const ir::OutputKind kind = graph.outputs()[use.arg].kind;
    return kind != ir::OutputKind::saved && kind != ir::OutputKind::gradient;
  });
}

/// "aten.add" is each of its overloads.
bool is_operator(const Node& node, const std::string& word) {
  const std::string name = node.op->name();
  return name == word || name.starts_with(word + ".");
}

bool is_excluded(const Value& value, const std::string& name, const SavedStorage& storage) {
  const Node& node = *value.node;
  return std::ranges::any_of(storage.except, [&](const std::string& word) {
    const bool is_type = word == name_of(value.type.dtype);
    const bool varies = word == "symbolic" && !known_bytes(&value);
    return word == name || word == node.origin.place || is_type || varies ||
           is_operator(node, word);
  });
}

/// Elements that share a scale; 0: there is none.
double elements_of_scale(const Value& value, double elements, Kind kind) {
  const double row = static_cast<double>(typical_size(value.type.sizes.back()));
  switch (kind) {
    case Kind::whole:
    case Kind::f8e4m3fn_unscaled:
    case Kind::f8e5m2_unscaled:
    case Kind::bf16: return 0;
    case Kind::int8: return elements;
    case Kind::f8e4m3fn:
    case Kind::f8e5m2:
    case Kind::int8_row: return row;
    case Kind::int8_block: return is_in_blocks(value.type, kind) ? double{kSavedBlock} : row;
  }
  return 0;
}

int64_t small_bytes(const Value& value, Kind kind) {
  if (value.type.dtype == DType::boolean) return typical_bytes(&value) / 8;
  const double elements =
      static_cast<double>(typical_bytes(&value)) / static_cast<double>(size_of(value.type.dtype));
  const double share = elements_of_scale(value, elements, kind);
  const double scales = share > 0 ? 4 * elements / share : 0;
  return static_cast<int64_t>(elements * static_cast<double>(element_bytes(kind)) + scales);
}

bool takes_fewer_bits(const ir::Type& type, Kind kind) {
  const bool is_rounded = is_float(type.dtype) && size_of(type.dtype) > element_bytes(kind);
  return is_rounded || packed_dim(type).has_value();
}

bool names_values(const SavedStorage& storage) {
  return std::ranges::any_of(storage.except,
                             [](const std::string& word) { return word.starts_with('%'); });
}

}  // namespace

bool is_kept_small(const ir::Graph& graph, const Value& value, const std::string& name,
                   const SavedStorage& storage) {
  if (storage.kind == Kind::whole || value.node == nullptr || !value.type.is_tensor() ||
      value.type.rank() == 0)
    return false;
  if (!takes_fewer_bits(value.type, storage.kind) || is_handed_out(graph, value)) return false;
  const int64_t bytes = typical_bytes(&value);
  return bytes > 0 && bytes >= storage.least_bytes && !is_excluded(value, name, storage);
}

KeptBytes::KeptBytes(const ir::Graph& graph, const SavedStorage& storage, Arguments arguments)
    : bytes_(graph.value_ids()) {
  const DenseMap<Value, std::string> names =
      names_values(storage) ? ir::value_names(graph) : DenseMap<Value, std::string>();
  const auto measure = [&](const Value* value) {
    const bool is_small = is_kept_small(graph, *value, "%" + names.at(value), storage);
    const bool is_argument = value->node == nullptr && !ir::is_written(value);
    const bool is_free = lives_anyway(value) || (is_argument && arguments == Arguments::free);
    bytes_[value] = is_free    ? 0
                    : is_small ? small_bytes(*value, storage.kind)
                               : typical_bytes(value);
  };
  for (const Value* input : graph.inputs()) measure(input);
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    for (const Value* result : node->results) measure(result);
}

int64_t KeptBytes::of(const ir::Values& values) const {
  int64_t total = 0;
  for (const Value* value : values) total += of(value);
  return total;
}

}  // namespace tandem::passes
