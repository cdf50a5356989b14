// What forward saves for backward may be kept in fewer bits. Behind remat, backward reads nothing
// of forward but saved values: each large one is made small at the end of forward, that is saved
// instead, and backward reads what is made of it again. All of it is pointwise work beside that
// which makes and reads the value, but for the scale, a maximum:
//   s = max |x| / 127    q = round(x / s)    x' = s q,    so |x - x'| <= s / 2
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
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::Tensor;
using Kind = SavedStorage::Kind;

constexpr int64_t kBlock = 64;
constexpr double kGreatest = 127;
constexpr double kLeastScale = 1e-30;  // of rows of zeros; its reciprocal is finite in f32
constexpr std::array<std::string_view, 5> kNames = {"none", "bf16", "int8", "int8_row",
                                                    "int8_block"};

bool is_handed_out(const ir::Graph& graph, const Value* value) {
  return std::ranges::any_of(value->uses, [&](const ir::Use& use) {
    if (use.node != nullptr) return false;
    const ir::OutputKind kind = graph.outputs()[use.arg].kind;
    return kind != ir::OutputKind::saved && kind != ir::OutputKind::gradient;
  });
}

bool is_worth_it(const ir::Graph& graph, const Value* value, const SavedStorage& storage) {
  if (value->node == nullptr || !value->type.is_tensor() || value->type.rank() == 0) return false;
  if (!is_float(value->type.dtype) || is_handed_out(graph, value)) return false;
  const int64_t small = storage.kind == Kind::bf16 ? 2 : 1;
  const int64_t bytes = typical_bytes(value);
  return size_of(value->type.dtype) > small && bytes > 0 && bytes >= storage.least_bytes;
}

/// The value as rows of blocks where it can be cut so.
Tensor in_blocks(Tensor x, Kind kind) {
  ir::Sizes sizes = x.sizes();
  const std::optional<int64_t> last = sizes.back().constant();
  if (kind != Kind::int8_block || !last || *last % kBlock != 0) return x;
  sizes.back() = sym::Expr(*last / kBlock);
  sizes.push_back(sym::Expr(kBlock));
  return reshape(x, sizes);
}

ir::Values shrink(Tensor x, Kind kind) {
  if (kind == Kind::bf16) return {to(x, DType::bf16).value()};
  x = in_blocks(to(x, DType::f32), kind);
  std::vector<int64_t> dims{x.rank() - 1};
  if (kind == Kind::int8) {
    dims.resize(static_cast<size_t>(x.rank()));
    std::iota(dims.begin(), dims.end(), 0);
  }
  Tensor scale = amax(abs(x), dims, true) / kGreatest;
  scale = ops::call(x.builder(), "aten.clamp_min", {scale, kLeastScale});
  Tensor steps = ops::call(x.builder(), "aten.round", {x / scale});
  return {to(steps, DType::i8).value(), scale.value()};
}

Tensor grow(ir::Builder& b, const ir::Values& saved, const ir::Type& type) {
  Tensor x{b, saved[0]};
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
      if (is_worth_it(graph_, output.value, storage_)) {
        ir::Builder builder(graph_, output.value->node->next);
        builder.stamp() = ir::Builder::stamp_of(*output.value->node);
        ir::Values& small = small_[output.value];
        small = shrink(Tensor{builder, output.value}, storage_.kind);
        all.insert(all.end(), small.begin(), small.end());
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
  DenseMap<Value, ir::Values> small_;
  DenseMap<Value, Value*> grown_;
  size_t made_ = 0;
};

}  // namespace

SavedStorage storage_named(std::string_view name, int64_t least_bytes) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == kNames.end())
    throw UserError(fmt::format("saved activations are kept as one of {}, not '{}'",
                                fmt::join(kNames, ", "), name));
  if (least_bytes < 0)
    throw UserError(fmt::format("bytes from which saved activations are kept small: {} is below 0",
                                least_bytes));
  return {static_cast<Kind>(found - kNames.begin()), least_bytes};
}

std::string to_string(const SavedStorage& storage) {
  return fmt::format("{} from {}", kNames[static_cast<size_t>(storage.kind)], storage.least_bytes);
}

void store_saved(ir::Graph& graph, GraphCtx& ctx) {
  if (ctx.storage.kind == Kind::whole) return;
  Storing storing(graph, ctx.storage);
  storing.run();
  ctx.notes.push_back(
      fmt::format("store_saved: {} values are kept as {}", storing.made(), to_string(ctx.storage)));
}

}  // namespace tandem::passes
