// What forward saves for backward may be kept in fewer bits. Behind remat, backward reads nothing
// of forward but saved values: each large one is made small at the end of forward, that is saved
// instead, and backward reads what is made of it again. All of it is pointwise work beside that
// which makes and reads the value, but for the scale, a maximum:
//   s = max |x| / 127    q = round(x / s)    x' = s q,    so |x - x'| <= s / 2
// 8-bit floats round by themselves: s = max |x| / M, q = float8(x / s), M the largest of the type.
// Unscaled ones are float8(x), x held to [-M, M].
// Masks become bits (mask_bits.cc), whatever the kind, and lose nothing.
// What is not finite makes its whole row NaN, as it would have made the gradient. What lives
// anyway, inputs and results of the program, stays as it is: a copy would be more memory.
#include "passes/partition/storage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/diagnostic.h"
#include "ops/tensor.h"
#include "passes/partition/kept_bytes.h"
#include "passes/partition/mask_bits.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::Tensor;
using Kind = SavedStorage::Kind;

constexpr double kLeastScale = 1e-30;  // of rows of zeros; its reciprocal is finite in f32
constexpr std::array<std::string_view, 9> kNames = {
    "none",           "bf16",     "int8",   "int8_row",
    "int8_block",     "f8e4m3fn", "f8e5m2", "f8e4m3fn_unscaled",
    "f8e5m2_unscaled"};

DType dtype_of(Kind kind) {
  switch (kind) {
    case Kind::bf16: return DType::bf16;
    case Kind::f8e4m3fn_unscaled:
    case Kind::f8e4m3fn: return DType::f8e4m3fn;
    case Kind::f8e5m2_unscaled:
    case Kind::f8e5m2: return DType::f8e5m2;
    default: return DType::i8;
  }
}

/// The value as rows of blocks where it can be cut so.
Tensor in_blocks(Tensor x, Kind kind) {
  if (!is_in_blocks(x.value()->type, kind)) return x;
  ir::Sizes sizes = x.sizes();
  sizes.back() = sym::Expr(*sizes.back().constant() / kSavedBlock);
  sizes.push_back(sym::Expr(kSavedBlock));
  return reshape(x, sizes);
}

bool is_scaled(Kind kind) {
  return kind != Kind::bf16 && kind != Kind::f8e4m3fn_unscaled && kind != Kind::f8e5m2_unscaled;
}

/// Within the type's numbers. x - x is 0, or NaN where x is not finite: what overflowed must not
/// come back as a large number.
Tensor saturated(Tensor x, DType dtype) {
  const double most = largest_finite(dtype);
  return ops::call(x.builder(), "aten.clamp", {x, -most, most}) + (x - x);
}

ir::Values shrink(Tensor x, Kind kind) {
  if (x.dtype() == DType::boolean) return {pack_bits(x).value()};
  if (kind == Kind::bf16) return {to(x, DType::bf16).value()};
  if (!is_scaled(kind))
    return {to(saturated(to(x, DType::f32), dtype_of(kind)), dtype_of(kind)).value()};
  x = in_blocks(to(x, DType::f32), kind);
  std::vector<int64_t> dims{x.rank() - 1};
  if (kind == Kind::int8) {
    dims.resize(static_cast<size_t>(x.rank()));
    std::iota(dims.begin(), dims.end(), 0);
  }
  const DType dtype = dtype_of(kind);
  const double greatest = is_float(dtype) ? largest_finite(dtype) : 127;
  Tensor scale = amax(abs(x), dims, true) / greatest;
  scale = ops::call(x.builder(), "aten.clamp_min", {scale, kLeastScale});
  Tensor scaled = x / scale;
  if (!is_float(dtype)) scaled = ops::call(x.builder(), "aten.round", {scaled});
  return {to(scaled, dtype).value(), scale.value()};
}

Tensor grow(ir::Builder& b, const ir::Values& saved, const ir::Type& type) {
  Tensor x{b, saved[0]};
  if (type.dtype == DType::boolean) return unpack_bits(x, type);
  if (saved.size() > 1) x = reshape(to(x, DType::f32) * Tensor{b, saved[1]}, type.sizes);
  return to(x, type.dtype);
}

class Storing {
 public:
  Storing(ir::Graph& graph, const SavedStorage& storage) : graph_(graph), storage_(storage) {}

  void run() {
    replace_saved();
    for (Node* node = graph_.first(); node != nullptr; node = node->next)
      if (node->backward) serve(*node);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ir::Output& output = graph_.outputs()[i];
      if (output.kind == ir::OutputKind::gradient && output.value != nullptr)
        graph_.set_output(i, grown(output.value, first_write_back(graph_)));
    }
  }
  size_t made() const { return made_; }

 private:
  void replace_saved() {
    ir::Values all;
    for (const ir::Output& output : graph_.outputs()) {
      if (output.kind != ir::OutputKind::saved) continue;
      names_[output.value] = output.name;
      if (is_kept_small(graph_, *output.value, output.name, storage_)) {
        ir::Builder builder(graph_, output.value->node->next);
        builder.stamp() = ir::Builder::stamp_of(*output.value->node);
        ir::Values& small = small_[output.value];
        small = shrink(Tensor{builder, output.value}, storage_.kind);
        all.insert(all.end(), small.begin(), small.end());
        for (const Value* part : small) names_[part] = output.name;
        ++made_;
      } else {
        all.push_back(output.value);
      }
    }
    std::vector<ir::Output> outputs = graph_.outputs();
    std::erase_if(outputs, [](const auto& o) { return o.kind == ir::OutputKind::saved; });
    graph_.clear_outputs();
    for (const ir::Output& output : outputs) graph_.add_output(output);
    set_saved(graph_, all);
    std::vector<std::string> names;
    for (const ir::Output& output : graph_.outputs())
      if (output.kind == ir::OutputKind::saved) names.push_back(names_.at(output.value));
    name_saved(graph_, names);
  }

  void serve(Node& reader) {
    for (size_t i = 0; i < reader.args.size(); ++i) {
      ir::Arg seen =
          ir::map_operands(reader.args[i], [&](Value* value) { return grown(value, &reader); });
      if (seen != reader.args[i]) graph_.set_arg(&reader, i, std::move(seen));
    }
  }

  /// What backward reads for the value: itself, or what is made of it before its first reader.
  Value* grown(Value* value, Node* before) {
    const ir::Values& small = small_.at(value);
    if (small.empty()) return value;
    Value*& made = grown_[value];
    if (made != nullptr) return made;
    ir::Builder builder(graph_, before);
    builder.stamp() = ir::Builder::stamp_of(*value->node);
    builder.stamp().backward = true;
    made = grow(builder, small, value->type).value();
    return made;
  }

  ir::Graph& graph_;
  const SavedStorage& storage_;
  DenseMap<Value, std::string> names_;  // in the report
  DenseMap<Value, ir::Values> small_;
  DenseMap<Value, Value*> grown_;
  size_t made_ = 0;
};

}  // namespace

std::string_view name_of(Kind kind) { return kNames[static_cast<size_t>(kind)]; }

int64_t element_bytes(Kind kind) { return kind == Kind::bf16 ? 2 : 1; }

bool is_in_blocks(const ir::Type& type, Kind kind) {
  const std::optional<int64_t> last = type.sizes.back().constant();
  return kind == Kind::int8_block && last && *last % kSavedBlock == 0;
}

namespace {

/// Operators have a namespace, values a mark, places a line.
bool may_name(const std::string& word) {
  return (word.starts_with('%') && word.size() > 1) || word.find('.') != std::string::npos ||
         word.find(':') != std::string::npos || word == "symbolic" || dtype_from_name(word);
}

}  // namespace

SavedStorage storage_named(std::string_view name, int64_t least_bytes,
                           std::vector<std::string> except) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == kNames.end())
    throw UserError(fmt::format("saved activations are kept as one of {}, not '{}'",
                                fmt::join(kNames, ", "), name));
  if (least_bytes < 0)
    throw UserError(fmt::format("bytes from which saved activations are kept small: {} is below 0",
                                least_bytes));
  for (const std::string& word : except)
    if (!may_name(word))
      throw UserError(
          fmt::format("what stays whole of saved activations is an operator "
                      "('aten.gelu'), a value ('%12'), a place ('model.py:31'), an element type "
                      "('f32') or 'symbolic', not '{}'",
                      word));
  return {static_cast<Kind>(found - kNames.begin()), least_bytes, std::move(except)};
}

std::string to_string(const SavedStorage& storage) {
  return fmt::format("{} from {}{}{}", name_of(storage.kind), storage.least_bytes,
                     storage.except.empty() ? "" : " except ", fmt::join(storage.except, ", "));
}

void store_saved(ir::Graph& graph, GraphCtx& ctx) {
  if (ctx.storage.kind == Kind::whole) return;
  Storing storing(graph, ctx.storage);
  storing.run();
  ctx.notes.push_back(
      fmt::format("store_saved: {} values are kept as {}", storing.made(), to_string(ctx.storage)));
}

}  // namespace tandem::passes
