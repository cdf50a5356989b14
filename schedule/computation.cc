// Problem: an op's definition is functions from an index to a scalar, so to learn what it reads or
// computes a step has to run it, against something that pretends to be a kernel. Approach: it is
// run once, at placeholder axes, against a pool in which what is read are elements: of a tensor, at
// a position, before anybody knows where that tensor lies. Numbers of one call (streams of random
// numbers) are symbols, so that calls which differ only in them have one kernel.
#include "schedule/computation.h"

#include <charconv>

#include "base/check.h"
#include "ops/elements.h"

namespace tandem::schedule {

using loop::Val;
using Kind = Computation::Kind;

Computations::Computations(sym::Pool& symbols) : pool_(symbols) {}
Computations::~Computations() = default;

const Computation& Computations::of(const ir::Node* node) {
  std::unique_ptr<const Computation>& made = made_[node];
  if (made == nullptr) made = std::make_unique<const Computation>(computed(*node));
  return *made;
}

int32_t Computations::number(const ir::Value* value) {
  const int32_t number = static_cast<int32_t>(value->id);
  values_[number] = value;
  return number;
}

Val Computations::load(const ir::Value* tensor, const ops::Index& index, Val mask) {
  return pool_.element(number(tensor), compute_type(tensor->type.dtype), index, mask);
}

Val Computations::scalar(const ir::Arg& arg, DType dtype) {
  if (const Val known = ops::number_of(pool_, arg, dtype)) return known;
  ir::Value* const* value = std::get_if<ir::Value*>(&arg);
  TD_CHECK(value != nullptr) << "a scalar argument is " << ir::to_string(arg);
  return pool_.cast(pool_.element(number(*value), (*value)->type.dtype, {}), dtype);
}

// How text spells what is no size.
constexpr std::string_view kLaunch = "launch$";
constexpr std::string_view kScalar = "scalar$";

void Computations::know_argument(sym::Expr symbol, const ir::Graph& graph) {
  const std::string_view name = symbol.name();
  if (name.starts_with(kLaunch)) {
    int64_t number = 0;
    std::from_chars(name.data() + kLaunch.size(), name.data() + name.size(), number);
    launch_args_[symbol.name()] = number;
  }
  if (!name.starts_with(kScalar)) return;
  const auto know = [&](const ir::Value* value) {
    if (value->name == name.substr(kScalar.size())) launch_args_[symbol.name()] = value;
  };
  for (const ir::Value* input : graph.inputs()) know(input);
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    for (const ir::Value* result : node->results)
      if (!result->type.is_tensor()) know(result);
}

sym::Expr Computations::argument(const ir::Value* scalar) {
  const sym::Expr symbol = pool_.symbols().symbol(std::string(kScalar) + scalar->name);
  launch_args_[symbol.name()] = scalar;
  return symbol;
}

Val Computations::launch_number(int64_t number) {
  const sym::Expr symbol = pool_.symbols().symbol(std::string(kLaunch) + std::to_string(number));
  launch_args_[symbol.name()] = number;
  return pool_.index(symbol);
}

int32_t Computations::error(const std::string& text) { return error_number(text); }

int32_t Computations::error_number(const std::string& text) {
  errors_.push_back(text);
  return static_cast<int32_t>(errors_.size()) - 1;
}

ops::Index Computations::placeholders(const ir::Sizes& sizes) {
  ops::Index axes;
  for (sym::Expr size : sizes) axes.push_back(pool_.symbols().index("p", size));
  return axes;
}

Computation Computations::computed(const ir::Node& node) {
  const ops::OpDef& op = ops::def_of(node);
  TD_CHECK(op.lower != nullptr) << node.op->name() << " has no lowering: decompose first";
  const ops::Definition def = op.lower(*this, node.call());
  Computation made;
  made.kind = def.kind;
  made.combiner = def.combiner;
  made.reduce_sizes = def.reduce_sizes;
  made.full_sizes = def.full_sizes;
  made.reduced_dims = def.reduced_dims;
  made.windows_over = def.windows_over;
  if (def.map) add_results(made, def, node);
  if (def.input) add_reduction(made, def, node);
  if (def.kind == Kind::scatter) add_scatter(made, def);
  return made;
}

void Computations::add_results(Computation& made, const ops::Definition& def,
                               const ir::Node& node) {
  for (size_t i = 0; i < node.results.size(); ++i) {
    const ops::Index axes = placeholders(node.results[i]->type.sizes);
    made.results.push_back({axes, def.map(i, axes)});
  }
}

void Computations::add_reduction(Computation& made, const ops::Definition& def,
                                 const ir::Node& node) {
  made.out = placeholders(node.results[0]->type.sizes);
  made.reduce = placeholders(def.reduce_sizes);
  made.inputs = def.input(made.out, made.reduce);
  if (!def.finish) return;
  std::vector<Val> combined;
  for (size_t i = 0; i < static_cast<size_t>(loop::results(def.combiner)); ++i)
    combined.push_back(pool_.local(static_cast<int32_t>(i), made.inputs[i]->dtype));
  made.finished = def.finish(combined, made.out);
}

void Computations::add_scatter(Computation& made, const ops::Definition& def) {
  made.source_sizes = def.source_sizes;
  made.source = placeholders(def.source_sizes);
  made.scatter_dim = def.scatter_dim;
  made.destination = def.destination(made.source);
  made.value = def.value(made.source);
  made.accumulate = def.accumulate;
}

}  // namespace tandem::schedule
