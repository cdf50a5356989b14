// Problem: bodies that one node runs take the same operands, and each may name parameters of its
// own. Approach: a body begins with the parameters that the bodies before it named, and those
// before it get the ones that it adds, so that all take them in one order.
#include "nn/control.h"

#include <fmt/format.h>

#include <deque>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace tandem::nn {
namespace {

/// Bodies of one node, traced one after the other.
class Bodies {
 public:
  Bodies(Trace& outer, std::string name) : outer_(outer), name_(std::move(name)) {}

  /// Gives the results, which are tensors of the body.
  Tensors trace(const std::string& what, const std::vector<ir::Type>& types,
                const BodyFunction& function) {
    ir::Module& module = outer_.builder().graph().module();
    ir::Graph& graph = module.add_graph(
        module.free_name(fmt::format("{}_{}_{}", outer_.builder().graph().name(), name_, what)));
    Trace& trace = traces_.emplace_back(graph, outer_.training());
    Tensors inputs;
    for (size_t i = 0; i < types.size(); ++i)
      inputs.push_back(trace.input(fmt::format("x{}", i), types[i].dtype, types[i].sizes));
    for (const Parameter* parameter : used_) trace(*parameter);
    const Tensors results = function(trace, inputs);
    used_ = trace.used();
    for (Trace& other : traces_)
      for (const Parameter* parameter : used_) other(*parameter);
    for (const Tensor& result : results) graph.add_output(result.value());
    check(graph);
    names_.push_back(graph.name());
    return results;
  }

  /// Types of what a body takes: tensors, or rows of them.
  static void add(std::vector<ir::Type>& types, const Tensors& tensors, bool rows = false) {
    for (const Tensor& tensor : tensors) {
      const ir::Sizes& sizes = tensor.sizes();
      if (rows && sizes.empty()) throw UserError("[scan] a tensor without dimensions has no rows");
      types.push_back(
          ir::Type::tensor(tensor.dtype(), {sizes.begin() + (rows ? 1 : 0), sizes.end()}));
    }
  }

  const std::string& name(size_t i) const { return names_.at(i); }

  /// The last body goes where the module has an equal one. Whose parameters it names is a matter of
  /// the call, so there they are numbered inputs.
  void merge() {
    ir::Module& module = outer_.builder().graph().module();
    ir::Graph& graph = *module.find(names_.back());
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      ir::Value& input = *graph.inputs()[i];
      input.name = fmt::format("x{}", i);
      input.role = ir::Role::input;
      input.target.clear();
      input.requires_grad = false;
    }
    const auto text = [](const ir::Graph& of) {
      const std::string all = ir::to_string(of);
      return all.substr(all.find('('));
    };
    const std::string own = text(graph);
    for (const std::unique_ptr<ir::Graph>& other : module.graphs())
      if (other.get() != &graph && text(*other) == own) {
        names_.back() = other->name();
        return module.erase(graph.name());
      }
  }

  /// Operands, then the parameters that the bodies name.
  ir::Arg operands(const Tensors& given) {
    Tensors all = given;
    for (const Parameter* parameter : used_) all.push_back(outer_(*parameter));
    return ops::Operand(all).arg;
  }

  Tensors call(std::string_view op, std::vector<ir::Arg> args, std::vector<ir::Type> types) {
    ir::Builder& builder = outer_.builder();
    const ir::Node* node =
        builder.call_typed(*builder.graph().ops().find(op), std::move(args), std::move(types));
    Tensors results;
    for (ir::Value* result : node->results) results.emplace_back(builder, result);
    return results;
  }

 private:
  void check(const ir::Graph& graph) const {
    const std::vector<Diagnostic> problems = ir::verify(graph);
    if (problems.empty()) return;
    throw UserError(fmt::format("[{}] a body reads a tensor that it was not given: {}", name_,
                                problems[0].text));
  }

  Trace& outer_;
  std::string name_;
  std::deque<Trace> traces_;
  std::vector<const Parameter*> used_;
  std::vector<std::string> names_;
};

std::vector<ir::Type> types_of(const Tensors& tensors) {
  std::vector<ir::Type> types;
  Bodies::add(types, tensors);
  return types;
}

ir::Arg list(const Tensors& tensors) { return ops::Operand(tensors).arg; }

constexpr int64_t kNoStream = 0;

/// -1 where there are none.
int64_t place_of_rows(const ir::Type& type, std::optional<int64_t> dim) {
  if (!dim) return -1;
  if (*dim < -type.rank() || *dim >= type.rank())
    throw UserError(fmt::format("[vmap] {} has no dimension {}", ir::to_string(type), *dim));
  return *dim < 0 ? *dim + type.rank() : *dim;
}

}  // namespace

Tensors cond(Trace& trace, Tensor predicate, const Tensors& operands, const BodyFunction& then,
             const BodyFunction& otherwise) {
  Bodies bodies(trace, "cond");
  const std::vector<ir::Type> types = types_of(operands);
  const Tensors results = bodies.trace("then", types, then);
  bodies.trace("otherwise", types, otherwise);
  return bodies.call("tandem.cond",
                     {predicate.value(), bodies.operands(operands), bodies.name(0), bodies.name(1),
                      sym::Expr(kNoStream), ir::None{}, std::string(), std::string()},
                     types_of(results));
}

Tensors invoke_subgraph(Trace& trace, const Tensors& operands, const BodyFunction& body) {
  Bodies bodies(trace, "region");
  const std::vector<ir::Type> results =
      types_of(bodies.trace("body", types_of(operands), body));  // which may go with their graph
  bodies.merge();
  return bodies.call(
      "tandem.invoke_subgraph",
      {bodies.operands(operands), bodies.name(0), sym::Expr(kNoStream), ir::None{}, std::string()},
      results);
}

Tensors vmap(Trace& trace, const Tensors& operands, const std::vector<std::optional<int64_t>>& dims,
             const BodyFunction& body) {
  if (dims.size() != operands.size())
    throw UserError(
        fmt::format("[vmap] {} dimensions of rows for {} operands", dims.size(), operands.size()));
  std::optional<sym::Expr> rows;
  std::vector<int64_t> places;
  std::vector<ir::Type> types;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Type& type = operands[i].type();
    places.push_back(place_of_rows(type, dims[i]));
    types.push_back(ir::Type::tensor(type.dtype, type.sizes));
    if (places[i] < 0) continue;
    if (!rows) rows = type.sizes[static_cast<size_t>(places[i])];
    types[i].sizes.erase(types[i].sizes.begin() + places[i]);
  }
  if (!rows) throw UserError("[vmap] no operand has rows");
  Bodies bodies(trace, "vmap");
  std::vector<ir::Type> results = types_of(bodies.trace("body", types, body));
  for (ir::Type& type : results) type.sizes.insert(type.sizes.begin(), *rows);
  const ir::Arg all = bodies.operands(operands);
  places.resize(std::get<ir::Values>(all).size(), -1);
  return bodies.call("tandem.vmap", {all, ir::Ints(places.begin(), places.end()), bodies.name(0)},
                     std::move(results));
}

Tensors while_loop(Trace& trace, const Tensors& carried, const Tensors& operands,
                   const std::function<Tensor(Trace&, const Tensors&)>& condition,
                   const BodyFunction& body) {
  Bodies bodies(trace, "while");
  std::vector<ir::Type> types = types_of(carried);
  Bodies::add(types, operands);
  bodies.trace("condition", types,
               [&](Trace& inner, const Tensors& in) -> Tensors { return {condition(inner, in)}; });
  bodies.trace("body", types, body);
  return bodies.call("tandem.while_loop",
                     {list(carried), bodies.operands(operands), bodies.name(0), bodies.name(1),
                      sym::Expr(kNoStream), ir::None{}, std::string(), std::string()},
                     types_of(carried));
}

Scanned scan(Trace& trace, const Tensors& carried, const Tensors& rows, const Tensors& operands,
             const std::function<Scanned(Trace&, const Tensors& carried, const Tensors& row,
                                         const Tensors& operands)>& body,
             ScanOptions options) {
  if (rows.empty()) throw UserError("[scan] there are no rows to go over");
  Bodies bodies(trace, "scan");
  std::vector<ir::Type> types = types_of(carried);
  Bodies::add(types, rows, true);
  Bodies::add(types, operands);
  Scanned given;
  bodies.trace("body", types, [&](Trace& inner, const Tensors& in) {
    const auto at = [&](size_t first, size_t count) {
      return Tensors(in.begin() + static_cast<std::ptrdiff_t>(first),
                     in.begin() + static_cast<std::ptrdiff_t>(first + count));
    };
    const size_t row = carried.size();
    const size_t rest = row + rows.size();
    given = body(inner, at(0, row), at(row, rows.size()), at(rest, operands.size()));
    Tensors all = given.carried;
    all.insert(all.end(), given.rows.begin(), given.rows.end());
    return all;
  });
  std::vector<ir::Type> results = types_of(carried);
  for (const Tensor& row : given.rows) {
    ir::Sizes sizes = row.sizes();
    sizes.insert(sizes.begin(), rows[0].sizes().at(0));
    results.push_back(ir::Type::tensor(row.dtype(), std::move(sizes)));
  }
  const Tensors all =
      bodies.call("tandem.scan",
                  {list(carried), list(rows), bodies.operands(operands), bodies.name(0),
                   options.reverse, sym::Expr(kNoStream), ir::None{}, std::string()},
                  std::move(results));
  const std::ptrdiff_t end = static_cast<std::ptrdiff_t>(carried.size());
  return {Tensors(all.begin(), all.begin() + end), Tensors(all.begin() + end, all.end())};
}

}  // namespace tandem::nn
