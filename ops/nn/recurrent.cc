// Recurrent layers and their cells. By decomposition: the input's projection is one product over
// the whole sequence, then the steps are unrolled where the length is known, and a scan where it is
// not. Dropout between layers is aten::dropout.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic.h"
#include "ir/graph.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) {
  return c.has(name) ? Tensor{b, c.value(name)} : Tensor();
}
/// Autocast casts what goes into a product, which the state does.
Tensor linear(Tensor x, Tensor weight, Tensor bias) {
  return call(x.builder(), "aten.linear", {to(x, weight.dtype()), weight, bias});
}
Tensor relu(Tensor x) { return call(x.builder(), "aten.relu", {x}); }
Tensors gates(Tensor x, int64_t count) {
  return call_many(x.builder(), "aten.chunk", {x, count, -1});
}

// --- cells
// ----------------------------------------------------------------------------------------

/// A state may be wider than what goes into products: in an autocast region it keeps its type.
bool fits_state(const ir::Type& state, const ir::Type& input) {
  return state.dtype == input.dtype || (state.dtype == DType::f32 && size_of(input.dtype) == 2);
}

/// What a cell carries from step to step: h, and c of an LSTM.
using State = std::vector<Tensor>;
struct Weights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};
/// The next state from the input's projection and the state.
using Cell = State (*)(Tensor projected, const State& state, const Weights& w);

// i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c')
State lstm_step(Tensor projected, const State& state, const Weights& w) {
  Tensors g = gates(projected + linear(state[0], w.w_hh, w.b_hh), 4);
  Tensor c = sigmoid(g[1]) * state[1] + sigmoid(g[0]) * tanh(g[2]);
  Tensor h = sigmoid(g[3]) * tanh(c);
  return {w.w_hr ? linear(h, w.w_hr, Tensor()) : h, c};
}
// r, z, n: n' = tanh(n_x + sigmoid(r) n_h), h' = (h - n') sigmoid(z) + n'
State gru_step(Tensor projected, const State& state, const Weights& w) {
  Tensors x = gates(projected, 3);
  Tensors h = gates(linear(state[0], w.w_hh, w.b_hh), 3);
  Tensor next = tanh(x[2] + sigmoid(x[0] + h[0]) * h[2]);
  return {(state[0] - next) * sigmoid(x[1] + h[1]) + next};
}
State tanh_step(Tensor projected, const State& state, const Weights& w) {
  return {tanh(projected + linear(state[0], w.w_hh, w.b_hh))};
}
State relu_step(Tensor projected, const State& state, const Weights& w) {
  return {relu(projected + linear(state[0], w.w_hh, w.b_hh))};
}

/// A cell and how many gates it has.
struct Kind {
  Cell step;
  int64_t gates;
  bool is_lstm;
};
constexpr Kind kLstmKind{lstm_step, 4, true};
constexpr Kind kGruKind{gru_step, 3, false};
constexpr Kind kTanhKind{tanh_step, 1, false};
constexpr Kind kReluKind{relu_step, 1, false};

bool equal_size(Expr a, Expr b) { return a == b || sym::known_eq(a, b); }
void need_sizes(const Call& c, const std::string& what, const ir::Type& type, const Sizes& sizes) {
  if (!same_sizes(type.sizes, sizes))
    c.fail(
        fmt::format("{} is {}, its sizes must be {}", what, to_string(type), ir::to_string(sizes)));
}

// --- layers
// ---------------------------------------------------------------------------------------

/// Sizes of a call, and where its parameters are.
struct Layers {
  const Call& c;
  Kind kind;
  int64_t count() const { return c.constant("num_layers"); }
  int64_t directions() const { return c.boolean("bidirectional") ? 2 : 1; }
  bool projects() const {
    const ir::Values& params = c.values("params");
    size_t each = c.boolean("has_biases") ? 4 : 2;
    auto cells = static_cast<size_t>(count() * directions());
    return kind.is_lstm && params.size() == cells * (each + 1);
  }
  size_t params_each() const {
    return (c.boolean("has_biases") ? 4U : 2U) + (projects() ? 1U : 0U);
  }
  const ir::Type& input() const { return c.type("input"); }
  size_t time() const { return c.boolean("batch_first") ? 1 : 0; }
  Expr batch() const { return input().sizes[1 - time()]; }
  const ir::Type& state(size_t i) const {
    return kind.is_lstm ? c.values("hx")[i]->type : c.type("hx");
  }
  /// Of h, which may be projected, and of c and the gates.
  Expr hidden() const { return state(0).sizes.back(); }
  Expr inner() const { return kind.is_lstm ? state(1).sizes.back() : hidden(); }

  ir::Value* param(int64_t cell, size_t i) const {
    return c.values("params")[static_cast<size_t>(cell) * params_each() + i];
  }
  Weights weights(Builder& b, int64_t cell) const {
    Weights w{{b, param(cell, 0)}, {b, param(cell, 1)}, {}, {}, {}};
    if (c.boolean("has_biases")) {
      w.b_ih = {b, param(cell, 2)};
      w.b_hh = {b, param(cell, 3)};
    }
    if (projects()) w.w_hr = {b, param(cell, params_each() - 1)};
    return w;
  }
};

void check_count(const Layers& l) {
  const Call& c = l.c;
  if (l.count() < 1) c.fail(c.describe("num_layers") + " must be positive");
  if (l.count() > static_cast<int64_t>(c.values("params").size()))
    c.fail(c.describe("num_layers") + " are more than params");
}
void check_params(const Layers& l) {
  const Call& c = l.c;
  auto cells = static_cast<size_t>(l.count() * l.directions());
  if (c.values("params").size() != cells * l.params_each())
    c.fail(fmt::format("{} params are given, {} layers need {}", c.values("params").size(), cells,
                       cells * l.params_each()));
  Expr gates = l.inner() * l.kind.gates;
  for (size_t cell = 0; cell < cells; ++cell) {
    bool first = static_cast<int64_t>(cell) < l.directions();
    Expr width = first ? l.input().sizes[2] : l.hidden() * l.directions();
    auto param = [&](size_t i) -> const ir::Type& {
      const ir::Type& type = l.param(static_cast<int64_t>(cell), i)->type;
      if (type.dtype != l.input().dtype)
        c.fail(fmt::format("params must have the dtype of {}", c.describe("input")));
      return type;
    };
    need_sizes(c, "a weight of the input", param(0), {gates, width});
    need_sizes(c, "a weight of the state", param(1), {gates, l.hidden()});
    for (size_t i = 2; c.boolean("has_biases") && i < 4; ++i)
      need_sizes(c, "a bias", param(i), {gates});
    if (l.projects())
      need_sizes(c, "a projection", param(l.params_each() - 1), {l.hidden(), l.inner()});
  }
}
void check_states(const Layers& l) {
  const Call& c = l.c;
  if (l.kind.is_lstm && c.values("hx").size() != 2) c.fail("hx needs two tensors");
  for (size_t i = 0; i < (l.kind.is_lstm ? 2 : 1); ++i) {
    const ir::Type& state = l.state(i);
    if (state.rank() != 3 || !fits_state(state, l.input()))
      c.fail(fmt::format("hx {} does not fit {}", to_string(state), c.describe("input")));
    need_sizes(c, "hx", state, {Expr(l.count() * l.directions()), l.batch(), state.sizes.back()});
  }
}

template <const Kind* kind>
Types layer_types(const Call& c) {
  Layers l{c, *kind};
  need_float(c, "input");
  need_rank(c, "input", 3, 3);
  check_count(l);
  check_states(l);
  check_params(l);
  if (l.input().sizes[l.time()] == Expr(0)) c.fail(c.describe("input") + " has no steps");
  Sizes sizes = l.input().sizes;
  sizes[2] = l.hidden() * l.directions();
  Types types{ir::Type::tensor(l.state(0).dtype, sizes)};
  for (size_t i = 0; i < (kind->is_lstm ? 2 : 1); ++i)
    types.push_back(ir::Type::tensor(l.state(i).dtype, l.state(i).sizes));
  return types;
}

struct Run {
  Tensor outputs;  // by time
  State last;
};

/// The graph of one step: state, row and weights in, state and output out.
const ir::Graph& step_graph(Builder& b, const Kind& kind, const Tensors& carried, Tensor projected,
                            const Tensors& weights) {
  ir::Module& module = b.graph().module();
  ir::Graph& graph = module.add_graph(module.free_name(b.graph().name() + "_step"));
  Builder inner(graph);
  const auto add = [&](const std::string& name, DType dtype, Sizes sizes) -> Tensor {
    return {inner, graph.add_input(name, ir::Type::tensor(dtype, std::move(sizes)))};
  };
  State state;
  for (size_t i = 0; i < carried.size(); ++i)
    state.push_back(add(fmt::format("state{}", i), carried[i].dtype(), carried[i].sizes()));
  const Sizes& sizes = projected.sizes();
  const Tensor row = add("row", projected.dtype(), {sizes.begin() + 1, sizes.end()});
  std::array<Tensor, 3> given;
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i])
      given.at(i) = add(fmt::format("w{}", i), weights[i].dtype(), weights[i].sizes());
  state = kind.step(row, state, {{}, given[0], {}, given[1], given[2]});
  for (const Tensor& next : state) graph.add_output(next.value());
  graph.add_output(state[0].value());
  return graph;
}

/// One direction of one layer over x, [time, batch, width], of a length that only a call knows.
Run scanned(const Kind& kind, Tensor x, const State& state, const Weights& w, bool backwards) {
  Builder& b = x.builder();
  const Tensor projected = linear(x, w.w_ih, w.b_ih);
  const Tensors weights{w.w_hh, w.b_hh, w.w_hr};
  const ir::Graph& body = step_graph(b, kind, state, projected, weights);
  Tensors operands;
  for (const Tensor& weight : weights)
    if (weight) operands.push_back(weight);
  Types types;
  for (const Tensor& each : state) types.push_back(ir::Type::tensor(each.dtype(), each.sizes()));
  types.push_back(
      ir::Type::tensor(state[0].dtype(), {x.size(0), state[0].sizes()[0], state[0].sizes()[1]}));
  const ir::Node* node =
      b.call_typed(*b.graph().ops().find("tandem.scan"),
                   {Operand(state).arg, Operand(Tensors{projected}).arg, Operand(operands).arg,
                    body.name(), backwards, Expr(0), ir::None{}, std::string()},
                   std::move(types));
  Run result{{b, node->results.back()}, {}};
  for (size_t i = 0; i < state.size(); ++i) result.last.emplace_back(b, node->results[i]);
  return result;
}

/// The same, step by step.
Run unrolled(const Kind& kind, Tensor x, State state, const Weights& w, bool backwards,
             int64_t steps) {
  // Unbound at once: the gradient joins the steps' instead of adding up one padded one each.
  Tensors projected = call_many(x.builder(), "aten.unbind.int", {linear(x, w.w_ih, w.b_ih), 0});
  Tensors outputs(static_cast<size_t>(steps));
  for (int64_t step = 0; step < steps; ++step) {
    int64_t at = backwards ? steps - 1 - step : step;
    state = kind.step(projected[static_cast<size_t>(at)], state, w);
    outputs[static_cast<size_t>(at)] = state[0];
  }
  return {call(x.builder(), "aten.stack", {outputs, 0}), state};
}
/// All directions of layer `layer`; appends their last states.
Tensor layer_output(Builder& b, const Layers& l, Tensor x, int64_t layer,
                    std::vector<Tensors>& last) {
  Tensors sides;
  for (int64_t direction = 0; direction < l.directions(); ++direction) {
    int64_t cell = layer * l.directions() + direction;
    State state;
    for (size_t i = 0; i < last.size(); ++i) {
      ir::Value* given = l.kind.is_lstm ? l.c.values("hx")[i] : l.c.value("hx");
      state.push_back(select({b, given}, 0, cell));
    }
    const std::optional<int64_t> steps = x.size(0).constant();
    const Weights w = l.weights(b, cell);
    Run side = steps ? unrolled(l.kind, x, state, w, direction == 1, *steps)
                     : scanned(l.kind, x, state, w, direction == 1);
    sides.push_back(side.outputs);
    for (size_t i = 0; i < last.size(); ++i) last[i].push_back(side.last[i]);
  }
  return sides.size() == 1 ? sides[0] : cat(sides, 2);
}

template <const Kind* kind>
Tensors layer_parts(Builder& b, const Call& c) {
  Layers l{c, *kind};
  Tensor x = tensor(b, c, "input");
  if (c.boolean("batch_first")) x = transpose(x, 0, 1);
  std::vector<Tensors> last(kind->is_lstm ? 2 : 1);
  double dropout = c.floating("dropout");
  for (int64_t layer = 0; layer < l.count(); ++layer) {
    if (layer > 0 && c.boolean("train") && dropout > 0)
      x = call(b, "aten.dropout", {x, dropout, true});
    x = layer_output(b, l, x, layer, last);
  }
  if (c.boolean("batch_first")) x = transpose(x, 0, 1);
  Tensors results{x};
  for (const Tensors& states : last) results.push_back(call(b, "aten.stack", {states, 0}));
  return results;
}

const Samples kLstmSamples = {
    "$[4, 2, 3], [$[1, 2, 5], $[1, 2, 5]], [$[20, 3], $[20, 5], $[20], $[20]], true, 1, 0.0, "
    "false, false, false",
    "$[2, 3, 3], [$[1, 2, 5], $[1, 2, 5]], [$[20, 3], $[20, 5]], false, 1, 0.0, false, false, true",
    "$[3, 2, 3], [$[4, 2, 2], $[4, 2, 2]], [$[8, 3], $[8, 2], $[8], $[8], $[8, 3], $[8, 2], $[8], "
    "$[8], $[8, 4], $[8, 2], $[8], $[8], $[8, 4], $[8, 2], $[8], $[8]], true, 2, 0.5, false, true, "
    "false",
    "$[3, 2, 3], [$[1, 2, 2], $[1, 2, 4]], [$[16, 3], $[16, 2], $[16], $[16], $[2, 4]], true, 1, "
    "0.0, false, false, false"};
const Samples kGruSamples = {
    "$[4, 2, 3], $[1, 2, 5], [$[15, 3], $[15, 5], $[15], $[15]], true, 1, 0.0, false, false, "
    "false",
    "$[2, 3, 3], $[2, 2, 2], [$[6, 3], $[6, 2], $[6, 3], $[6, 2]], false, 1, 0.0, false, true, "
    "true",
    "$[3, 2, 3], $[2, 2, 2], [$[6, 3], $[6, 2], $[6], $[6], $[6, 2], $[6, 2], $[6], $[6]], true, "
    "2, 0.5, true, false, false",
    "$[3, 2, 3], $[1, 3, 2], [$[6, 3], $[6, 2]], false, 1, 0.0, false, false, false"};
const Samples kPlainSamples = {
    "$[4, 2, 3], $[1, 2, 5], [$[5, 3], $[5, 5], $[5], $[5]], true, 1, 0.0, false, false, false",
    "$[2, 3, 3], $[4, 2, 2], [$[2, 3], $[2, 2], $[2, 3], $[2, 2], $[2, 4], $[2, 2], $[2, 4], $[2, "
    "2]], false, 2, 0.0, false, true, true"};
#define TANDEM_RECURRENT(Name, text, hx, results, kind, set)                                \
  const OpDef Name {                                                                        \
    .schema = "aten::" text ".input(Tensor input, " hx                                      \
              " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool " \
              "train, bool bidirectional, bool batch_first) -> (" results ")",              \
    .types = layer_types<&kind>, .decompose = layer_parts<&kind>, .samples = set            \
  }
TANDEM_RECURRENT(kLstm, "lstm", "Tensor[]", "Tensor, Tensor, Tensor", kLstmKind, kLstmSamples);
TANDEM_RECURRENT(kGru, "gru", "Tensor", "Tensor, Tensor", kGruKind, kGruSamples);
TANDEM_RECURRENT(kTanh, "rnn_tanh", "Tensor", "Tensor, Tensor", kTanhKind, kPlainSamples);
TANDEM_RECURRENT(kRelu, "rnn_relu", "Tensor", "Tensor, Tensor", kReluKind, kPlainSamples);
#undef TANDEM_RECURRENT

// --- one step
// -------------------------------------------------------------------------------------

template <const Kind* kind>
Types cell_types(const Call& c) {
  const ir::Type& input = c.type("input");
  need_float(c, "input");
  need_rank(c, "input", 1, 2);
  if (kind->is_lstm && c.values("hx").size() != 2) c.fail("hx needs two tensors");
  Types states;
  for (size_t i = 0; i < (kind->is_lstm ? 2 : 1); ++i) {
    const ir::Type& state = kind->is_lstm ? c.values("hx")[i]->type : c.type("hx");
    if (state.rank() != input.rank() || !fits_state(state, input))
      c.fail(fmt::format("hx {} does not fit {}", to_string(state), c.describe("input")));
    if (input.rank() == 2 && !equal_size(state.sizes[0], input.sizes[0]))
      c.fail(
          fmt::format("hx {} and {} differ in their batch", to_string(state), c.describe("input")));
    states.push_back(ir::Type::tensor(state.dtype, state.sizes));
  }
  Expr hidden = states[0].sizes.back();
  Expr gates = hidden * kind->gates;
  need_same_dtype(c, {"input", "w_ih", "w_hh", "b_ih", "b_hh"});
  need_sizes(c, "w_ih", c.type("w_ih"), {gates, input.sizes.back()});
  need_sizes(c, "w_hh", c.type("w_hh"), {gates, hidden});
  for (std::string_view name : {"b_ih", "b_hh"})
    if (c.has(name)) need_sizes(c, std::string(name), c.type(name), {gates});
  return states;
}
template <const Kind* kind>
Tensors cell_parts(Builder& b, const Call& c) {
  State state;
  if (kind->is_lstm)
    for (ir::Value* given : c.values("hx")) state.push_back({b, given});
  else
    state.push_back(tensor(b, c, "hx"));
  Weights w{
      tensor(b, c, "w_ih"), tensor(b, c, "w_hh"), tensor(b, c, "b_ih"), tensor(b, c, "b_hh"), {}};
  return kind->step(linear(tensor(b, c, "input"), w.w_ih, w.b_ih), state, w);
}
#define TANDEM_CELL(Name, text, hx, results, kind, ...)                                           \
  const OpDef Name {                                                                              \
    .schema = "aten::" text "(Tensor input, " hx                                                  \
              " hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> " results, \
    .types = cell_types<&kind>, .decompose = cell_parts<&kind>, .samples = {                      \
      __VA_ARGS__                                                                                 \
    }                                                                                             \
  }
TANDEM_CELL(kLstmCell, "lstm_cell", "Tensor[]", "(Tensor, Tensor)", kLstmKind,
            "$[2, 3], [$[2, 5], $[2, 5]], $[20, 3], $[20, 5], $[20], $[20]",
            "$[2, 3], [$[2, 5], $[2, 5]], $[20, 3], $[20, 5]");
TANDEM_CELL(kGruCell, "gru_cell", "Tensor", "Tensor", kGruKind,
            "$[2, 3], $[2, 5], $[15, 3], $[15, 5], $[15], $[15]",
            "$[2, 3], $[2, 5], $[15, 3], $[15, 5]", "$[2, 3], $[2, 5], $[14, 3], $[15, 5]");
TANDEM_CELL(kTanhCell, "rnn_tanh_cell", "Tensor", "Tensor", kTanhKind,
            "$[2, 3], $[2, 5], $[5, 3], $[5, 5], $[5], $[5]", "$[2, 3], $[2, 5], $[5, 3], $[5, 5]");
TANDEM_CELL(kReluCell, "rnn_relu_cell", "Tensor", "Tensor", kReluKind,
            "$[2, 3], $[2, 5], $[5, 3], $[5, 5], $[5], $[5]", "$[2, 3], $[2, 5], $[5, 3], $[5, 5]");
#undef TANDEM_CELL

const OpDef* const kOps[] = {&kLstm,     &kGru,     &kTanh,     &kRelu,
                             &kLstmCell, &kGruCell, &kTanhCell, &kReluCell};

}  // namespace

Family recurrent_family() { return kOps; }

}  // namespace tandem::ops
