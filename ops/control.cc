// Loops, branches and calls. A node runs graphs of the module, its bodies, each compiled as a
// program of its own; it hands them tensors alone, and a body reads nothing else. Sizes are the
// same in a body as around the call.
//
//   cond        r = p ? then(x) : otherwise(x)
//   while_loop  c = carried; while condition(c, x): c = body(c, x)
//   scan        (c, y[i]) = body(c, rows[i], x) for each row i
//   invoke_subgraph  y = body(x): a region of a program that is compiled once, and run from many
//               places
//   vmap        y[i] = body(x[i]) along dimension dims[k] of operand k, or its whole where that is
//               -1; gone before gradients are asked for (passes/vmap.cc)
//   while_loop_backward  runs the loop again, keeps what each step gives behind what it carries,
//               and then d c, s = gradient(d c, s, kept, x) from the last step to the first
//
// The pass body_gradients names the graphs that gradients run. Their inputs say by role and subject
// what they are of the call: `tangent of output j` the gradient of result j, `tangent of input i` a
// sum over the steps so far for operand i, `saved of output j` and `saved of input i` a result and
// an operand. The gradient of
//   scan:  d c_i, d rows[i], s_i = gradient(d c_{i+1}, s_{i+1}, d y[i], saved[i], x), backwards:
// a scan again, whose columns are the gradients of the rows, and whose s ends as those of x. How
// often a while_loop ran is a size that only data tell, and so is that of what its steps save:
// therefore its gradient is one node, which finds it out again.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ir/graph.h"
#include "ops/bodies.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

using ir::Builder;
using ir::Call;
using ir::Graph;
using ir::Value;

// --- what bodies take and give

const Graph& body_of(const Call& c, const ir::Module& module, std::string_view parameter) {
  const Graph* body = module.find(c.string(parameter));
  if (body == nullptr) c.fail("there is no graph @" + c.string(parameter));
  return *body;
}

bool may_be(const ir::Type& type, const ir::Type& other) {
  if (!type.is_tensor() || type.dtype != other.dtype || type.rank() != other.rank()) return false;
  for (size_t i = 0; i < type.sizes.size(); ++i)
    if (sym::known_ne(type.sizes[i], other.sizes[i])) return false;
  return true;
}

void check_inputs(const Call& c, const Graph& body, const Types& given) {
  size_t tensors = 0;
  for (const Value* input : body.inputs()) {
    if (!input->type.is_tensor()) {
      const bool is_size = body.pool().find_symbol(input->name).has_value();
      if (input->role == ir::Role::seed || (is_size && input->type == ir::Type::scalar(DType::i64)))
        continue;
      c.fail(
          fmt::format("@{} takes the number %{}: bodies take tensors", body.name(), input->name));
    }
    if (tensors < given.size() && !may_be(input->type, given[tensors]))
      c.fail(fmt::format("@{} takes {} for %{}, not {}", body.name(), to_string(input->type),
                         input->name, to_string(given[tensors])));
    ++tensors;
  }
  if (tensors != given.size())
    c.fail(fmt::format("@{} takes {} tensors, not {}", body.name(), tensors, given.size()));
  for (const ir::Node* node = body.first(); node != nullptr; node = node->next)
    if (node->op->mutates())
      throw Unsupported(fmt::format("[{}] @{} writes to what it is given",
                                    c.op().schema.full_name(), body.name()),
                        node->origin.place);
}

void check_outputs(const Call& c, const Graph& body, const Types& wanted) {
  if (body.outputs().size() != wanted.size())
    c.fail(fmt::format("@{} gives {} results, not {}", body.name(), body.outputs().size(),
                       wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Value* given = body.outputs()[i].value;
    if (given == nullptr || !may_be(given->type, wanted[i]))
      c.fail(fmt::format("@{} gives {} for result {}, not {}", body.name(),
                         given == nullptr ? "none" : to_string(given->type), i,
                         to_string(wanted[i])));
  }
}

void add_types(Types& types, const ir::Values& values) {
  for (const Value* value : values) types.push_back(value->type);
}

Types result_types(const Call& c) {
  Types types;
  for (size_t i = 0; i < c.result_count(); ++i) types.push_back(c.result(i)->type);
  return types;
}

const ir::Type kFlag = ir::Type::tensor(DType::boolean, {});

void check_cond(const Call& c, const ir::Module& module) {
  const ir::Type& predicate = c.type("predicate");
  if (predicate.dtype != DType::boolean || !sym::known_eq(predicate.numel(), 1))
    c.fail("the predicate is " + to_string(predicate) + ", not one bool");
  Types given;
  add_types(given, c.values("operands"));
  for (std::string_view name : {"then", "otherwise"}) {
    check_inputs(c, body_of(c, module, name), given);
    check_outputs(c, body_of(c, module, name), result_types(c));
  }
}

void check_call(const Call& c, const ir::Module& module) {
  Types given;
  add_types(given, c.values("operands"));
  check_inputs(c, body_of(c, module, "body"), given);
  check_outputs(c, body_of(c, module, "body"), result_types(c));
}

/// Operands without their dimension of rows, results with one in front, of one length.
void check_vmap(const Call& c, const ir::Module& module) {
  const ir::Values& operands = c.values("operands");
  const std::vector<int64_t> dims = c.constants("dims");
  if (dims.size() != operands.size())
    c.fail(fmt::format("{} dims for {} operands", dims.size(), operands.size()));
  std::optional<sym::Expr> rows;
  const auto take_row = [&](ir::Type type, int64_t dim) {
    if (dim >= type.rank()) c.fail(fmt::format("{} has no dimension {}", to_string(type), dim));
    if (sym::known_ne(rows.value_or(type.sizes[dim]), type.sizes[dim]))
      c.fail(fmt::format("dimension {} of {} is not of {} rows, as another is", dim,
                         to_string(type), sym::to_string(*rows)));
    if (!rows) rows = type.sizes[dim];
    type.sizes.erase(type.sizes.begin() + dim);
    return type;
  };
  Types given;
  Types wanted;
  for (size_t i = 0; i < operands.size(); ++i)
    given.push_back(dims[i] < 0 ? operands[i]->type : take_row(operands[i]->type, dims[i]));
  if (!rows) c.fail("no operand has rows");
  for (const ir::Type& type : result_types(c)) {
    if (type.rank() == 0) c.fail("a result has no rows");
    wanted.push_back(take_row(type, 0));
  }
  check_inputs(c, body_of(c, module, "body"), given);
  check_outputs(c, body_of(c, module, "body"), wanted);
}

void check_while(const Call& c, const ir::Module& module) {
  Types carried;
  add_types(carried, c.values("carried"));
  Types given = carried;
  add_types(given, c.values("operands"));
  if (c.result_count() != carried.size())
    c.fail(fmt::format("{} results for {} carried", c.result_count(), carried.size()));
  check_inputs(c, body_of(c, module, "condition"), given);
  check_outputs(c, body_of(c, module, "condition"), {kFlag});
  check_inputs(c, body_of(c, module, "body"), given);
  check_outputs(c, body_of(c, module, "body"), carried);
  check_outputs(c, body_of(c, module, "body"), result_types(c));
}

/// A row of each: without the first dimension, which is the number of steps.
Types types_of_rows(const Call& c, std::span<const ir::Type> stacked, sym::Expr steps) {
  Types rows;
  for (const ir::Type& type : stacked) {
    if (type.rank() == 0 || sym::known_ne(type.sizes[0], steps))
      c.fail(fmt::format("{} has no {} rows", to_string(type), sym::to_string(steps)));
    rows.push_back(ir::Type::tensor(type.dtype, {type.sizes.begin() + 1, type.sizes.end()}));
  }
  return rows;
}

void check_scan(const Call& c, const ir::Module& module) {
  const ir::Values& rows = c.values("rows");
  if (rows.empty() || rows[0]->type.rank() == 0) c.fail("there are no rows to go over");
  Types carried;
  Types stacked;
  add_types(carried, c.values("carried"));
  add_types(stacked, rows);
  const sym::Expr steps = rows[0]->type.sizes[0];
  Types given = carried;
  const Types row = types_of_rows(c, stacked, steps);
  given.insert(given.end(), row.begin(), row.end());
  add_types(given, c.values("operands"));
  if (c.result_count() < carried.size())
    c.fail(fmt::format("{} results for {} carried", c.result_count(), carried.size()));
  Types wanted = carried;
  const Types results = result_types(c);
  const Types columns = types_of_rows(c, std::span(results).subspan(carried.size()), steps);
  wanted.insert(wanted.end(), columns.begin(), columns.end());
  check_inputs(c, body_of(c, module, "body"), given);
  check_outputs(c, body_of(c, module, "body"), wanted);
}

// --- gradients

const Graph& gradient_of(Builder& b, const Call& c, std::string_view parameter) {
  if (c.string(parameter).empty())
    throw Unsupported(fmt::format("[{}] has no gradient here", c.op().schema.full_name()));
  return body_of(c, b.graph().module(), parameter);
}

/// What the inputs of gradient graphs are of.
struct Operands {
  Builder& b;
  const Call& c;
  std::span<const Tensor> grads;
  ir::Values of_call;  // tensors, in order, without a predicate

  Tensor tangent(size_t result) const {
    return grads[result] ? grads[result] : zeros_like({b, c.result(result)});
  }
  Tensor of(const Value& input) const {
    const size_t number = input.subject.number;
    const bool is_input = input.subject.kind == ir::Subject::Kind::input;
    if (number >= (is_input ? of_call.size() : c.result_count()))
      c.fail(fmt::format("%{} of a gradient graph is of nothing of the call", input.name));
    if (is_input) {
      const Tensor operand(b, of_call.at(number));
      return input.role == ir::Role::tangent ? zeros_like(operand) : operand;
    }
    return input.role == ir::Role::tangent ? tangent(number) : Tensor(b, c.result(number));
  }
};

ir::Arg arg_of(const Tensors& tensors) { return Operand(tensors).arg; }

/// Types of the gradients: of the operands that the outputs are of.
Types gradient_types(const Call& c, const Graph& gradient, const ir::Values& operands) {
  Types types;
  for (const ir::Output& output : gradient.outputs()) {
    if (output.subject.number >= operands.size())
      c.fail(fmt::format("@{} gives the gradient of no operand", gradient.name()));
    const ir::Type& type = operands[output.subject.number]->type;
    types.push_back(ir::Type::tensor(type.dtype, type.sizes));
  }
  return types;
}

/// The parameter and the place in it of the tensor that is operand `number`.
Gradient gradient_for(const Call& c, std::initializer_list<std::string_view> lists, size_t number,
                      Tensor value) {
  for (std::string_view name : lists) {
    const size_t count = c.values(name).size();
    if (number < count) return {name, value, static_cast<int32_t>(number)};
    number -= count;
  }
  c.fail("a gradient graph names an operand that is none");
}

/// What a gradient graph takes that runs once.
ir::Arg given_once(const Graph& gradient, const Operands& operands) {
  Tensors given;
  for (const Value* input : gradient.inputs())
    if (input->type.is_tensor()) given.push_back(operands.of(*input));
  return arg_of(given);
}

/// Results of `node`, which runs `gradient`, by operand.
Gradients gradients_of(Builder& b, const Call& c, const Graph& gradient, const ir::Node& node,
                       std::initializer_list<std::string_view> lists) {
  Gradients gradients;
  for (size_t i = 0; i < node.results.size(); ++i)
    gradients.push_back(
        gradient_for(c, lists, gradient.outputs()[i].subject.number, {b, node.results[i]}));
  return gradients;
}

Gradients cond_vjp(Builder& b, const Call& c, std::span<const Tensor> grads) {
  const Graph& gradient = gradient_of(b, c, "then_gradient");
  const ir::Node* node =
      b.call_typed(c.op(),
                   {c.arg("predicate"), given_once(gradient, {b, c, grads, c.values("operands")}),
                    c.arg("then_gradient"), c.arg("otherwise_gradient"), c.arg("stream"),
                    c.arg("seed"), std::string(), std::string()},
                   gradient_types(c, gradient, c.values("operands")));
  return gradients_of(b, c, gradient, *node, {"operands"});
}

Gradients call_vjp(Builder& b, const Call& c, std::span<const Tensor> grads) {
  const Graph& gradient = gradient_of(b, c, "gradient");
  const ir::Node* node =
      b.call_typed(c.op(),
                   {given_once(gradient, {b, c, grads, c.values("operands")}), c.arg("gradient"),
                    c.arg("stream"), c.arg("seed"), std::string()},
                   gradient_types(c, gradient, c.values("operands")));
  return gradients_of(b, c, gradient, *node, {"operands"});
}

/// Where an input of the gradient's body stands in the scan over it.
enum class Place : uint8_t { carried, rows, operands };

Place place_of(const Call& c, const Value& input) {
  const size_t carried = c.values("carried").size();
  const size_t number = input.subject.number;
  const bool is_tangent = input.role == ir::Role::tangent;
  if (input.subject.kind == ir::Subject::Kind::output)
    return is_tangent && number < carried ? Place::carried : Place::rows;
  if (is_tangent) return Place::carried;
  return number < carried + c.values("rows").size() ? Place::rows : Place::operands;
}

Gradients scan_vjp(Builder& b, const Call& c, std::span<const Tensor> grads) {
  const Graph& gradient = gradient_of(b, c, "gradient");
  ir::Values all;
  for (std::string_view name : {"carried", "rows", "operands"})
    all.insert(all.end(), c.values(name).begin(), c.values(name).end());
  const Operands operands{b, c, grads, all};
  Tensors parts[3];
  for (const Value* input : gradient.inputs())
    if (input->type.is_tensor())
      parts[static_cast<int>(place_of(c, *input))].push_back(operands.of(*input));
  Types types = gradient_types(c, gradient, all);
  const ir::Node* node =
      b.call_typed(c.op(),
                   {arg_of(parts[0]), arg_of(parts[1]), arg_of(parts[2]), c.arg("gradient"),
                    !c.boolean("reverse"), c.arg("stream"), c.arg("seed"), std::string()},
                   std::move(types));
  return gradients_of(b, c, gradient, *node, {"carried", "rows", "operands"});
}

Gradients while_vjp(Builder& b, const Call& c, std::span<const Tensor> grads) {
  const Graph& gradient = gradient_of(b, c, "gradient");
  ir::Values all = c.values("carried");
  all.insert(all.end(), c.values("operands").begin(), c.values("operands").end());
  const Operands operands{b, c, grads, all};
  Tensors tangents;  // what is carried backwards, first of all that the gradient takes
  for (const Value* input : gradient.inputs())
    if (input->role == ir::Role::tangent) tangents.push_back(operands.of(*input));
  Types types = gradient_types(c, gradient, all);
  if (types.size() != tangents.size()) c.fail("a gradient graph carries other than it gives");
  const ir::Node* node =
      b.call_typed(*b.graph().ops().find("tandem.while_loop_backward"),
                   {c.arg("carried"), c.arg("operands"), arg_of(tangents), c.arg("condition"),
                    c.arg("saving"), c.arg("gradient"), c.arg("stream"), c.arg("seed")},
                   std::move(types));
  return gradients_of(b, c, gradient, *node, {"carried", "operands"});
}

Gradients second_vjp(Builder&, const Call&, std::span<const Tensor>) {
  throw Unsupported(
      "[tandem::while_loop] has no gradients beyond the first (create_graph=True) here: the pass "
      "body_gradients writes loops for it that have");
}

std::string never(const Call&, const Target&) { return ""; }

/// Bodies have taken their complex inputs for real ones with two parts behind, and give such.
ComplexResults called_with_parts(const ComplexCall& c) {
  std::vector<ir::Arg> args;
  for (const ir::Arg& arg : c.whole.args())
    args.push_back(ir::map_operands(arg, [&](const Value* value) {
      const ComplexParts z = c.given(value);
      return z.im ? stacked(z).value() : z.re.value();
    }));
  Types types = result_types(c.whole);
  for (ir::Type& type : types) {
    if (!is_complex(type.dtype)) continue;
    type = ir::Type::tensor(part_type(type.dtype), type.sizes);
    type.sizes.emplace_back(2);
  }
  const ir::Node* node = c.builder.call_typed(c.whole.op(), std::move(args), std::move(types));
  ComplexResults results;
  for (size_t i = 0; i < node->results.size(); ++i) {
    const Tensor made{c.builder, node->results[i]};
    const bool is_whole = is_complex(c.whole.result(i)->type.dtype);
    results.push_back(is_whole ? ComplexParts{select(made, -1, 0), select(made, -1, 1)}
                               : ComplexParts{made, {}});
  }
  return results;
}

const OpDef kCond{
    .schema =
        "tandem::cond(Tensor predicate, Tensor[] operands, str then, str otherwise, int stream=0, "
        "Scalar? seed=None, str then_gradient=\"\", str otherwise_gradient=\"\") -> Tensor[]",
    .vjp = cond_vjp,
    .fast = {{RouteKind::branch, never}},
    .can_fail = true,
    .opaque = true,
    .runs = {"then", "otherwise"},
    .check_bodies = check_cond,
    .complex = {called_with_parts}};
const OpDef kWhileLoop{
    .schema =
        "tandem::while_loop(Tensor[] carried, Tensor[] operands, str condition, str body, int "
        "stream=0, Scalar? seed=None, str saving=\"\", str gradient=\"\") -> Tensor[]",
    .vjp = while_vjp,
    .fast = {{RouteKind::repeat, never}},
    .can_fail = true,
    .opaque = true,
    .runs = {"condition", "body"},
    .check_bodies = check_while,
    .complex = {called_with_parts}};
const OpDef kWhileLoopBackward{
    .schema =
        "tandem::while_loop_backward(Tensor[] carried, Tensor[] operands, Tensor[] tangents, str "
        "condition, str saving, str gradient, int stream=0, Scalar? seed=None) -> Tensor[]",
    .vjp = second_vjp,
    .fast = {{RouteKind::repeat_backward, never}},
    .can_fail = true,
    .opaque = true,
    .runs = {"condition", "saving", "gradient"}};
const OpDef kScan{
    .schema =
        "tandem::scan(Tensor[] carried, Tensor[] rows, Tensor[] operands, str body, bool "
        "reverse=False, int stream=0, Scalar? seed=None, str gradient=\"\") -> Tensor[]",
    .vjp = scan_vjp,
    .fast = {{RouteKind::rows, never}},
    .can_fail = true,
    .opaque = true,
    .runs = {"body"},
    .check_bodies = check_scan,
    .complex = {called_with_parts}};
const OpDef kInvokeSubgraph{
    .schema =
        "tandem::invoke_subgraph(Tensor[] operands, str body, int stream=0, Scalar? seed=None, str "
        "gradient=\"\") -> Tensor[]",
    .vjp = call_vjp,
    .fast = {{RouteKind::call, never}},
    .can_fail = true,
    .opaque = true,
    .runs = {"body"},
    .check_bodies = check_call,
    .complex = {called_with_parts}};

const OpDef kVmap{.schema = "tandem::vmap(Tensor[] operands, int[] dims, str body) -> Tensor[]",
                  .no_grad = "its body has gradients, in whose place it is",
                  .can_fail = true,
                  .opaque = true,
                  .runs = {"body"},
                  .check_bodies = check_vmap,
                  .complex = {called_with_parts}};

const OpDef* const kOps[] = {&kCond, &kWhileLoop,      &kWhileLoopBackward,
                             &kScan, &kInvokeSubgraph, &kVmap};

}  // namespace

Family control_family() { return kOps; }

}  // namespace tandem::ops
