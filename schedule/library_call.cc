// Operands of library calls are strided views of what is stored; a batch that no single stride
// walks is split in two.
#include "schedule/library_call.h"

#include "base/check.h"
#include "ir/data_sizes.h"
#include "ops/bodies.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

struct LibraryCalls {
  KernelGraph& graph;
  SizeSlots& sizes;
  const RefOf& ref_of;

  StridedRef view(const Value* value, Expr split) const {
    const Value* root = stored_root(graph, value);
    std::optional<StridedRef> ref = strided_view(graph, view_of(graph, value, root), split);
    TD_CHECK(ref.has_value()) << "a library operand has no strides";
    return *ref;
  }

  Expr split_of(const Value* value) const {
    if (graph.is_materialized(value)) return 1;
    const View shown = view_of(graph, value, stored_root(graph, value));
    return strided_view(graph, shown) ? Expr(1) : batch_split(graph, shown);
  }

  abi::Instruction of(const Item& item) const {
    switch (item.route) {
      case ops::RouteKind::matmul: return matmul(item);
      case ops::RouteKind::convolution: return convolution(item, abi::LibraryOp::convolution);
      case ops::RouteKind::convolution_backward_data:
        return convolution(item, abi::LibraryOp::convolution_backward_data);
      case ops::RouteKind::convolution_backward_weights:
        return convolution(item, abi::LibraryOp::convolution_backward_weights);
      case ops::RouteKind::rank: return rank(item);
      case ops::RouteKind::grouped_rows: return call_of(item, abi::LibraryOp::grouped_rows);
      case ops::RouteKind::grouped_sums: return call_of(item, abi::LibraryOp::grouped_sums);
      case ops::RouteKind::host: return host(item);
      case ops::RouteKind::branch: return control(item, abi::Control::Kind::branch);
      case ops::RouteKind::repeat: return control(item, abi::Control::Kind::repeat);
      case ops::RouteKind::rows: return control(item, abi::Control::Kind::rows);
      case ops::RouteKind::repeat_backward:
        return control(item, abi::Control::Kind::repeat_backward);
      case ops::RouteKind::call: return control(item, abi::Control::Kind::call);
      case ops::RouteKind::read_scalar: return read_scalar(item);
    }
    TD_CHECK(false) << "no such route";
    return {};
  }

  /// The last two tensor arguments are the factors; an earlier one is added (addmm's self).
  abi::LibraryCall matmul(const Item& item) const {
    std::vector<const Value*> operands;
    ir::for_each_operand(item.node->args, [&](const Value* value) { operands.push_back(value); });
    const Value* b = operands.back();
    const Value* a = operands[operands.size() - 2];
    Expr split = 1;
    for (const Value* operand : operands)
      if (split == Expr(1)) split = split_of(operand);
    abi::LibraryCall call;
    call.op = abi::LibraryOp::matmul;
    call.label = item.node->op->name();
    call.args = {ref_of(view(a, split)), ref_of(view(b, split))};
    call.has_bias = operands.size() == 3;
    if (call.has_bias) {  // of one batch or of fewer dimensions it is broadcast
      const ir::Sizes& added = operands[0]->type.sizes;
      const bool is_batch = added.size() == 3 && added[0] == a->type.sizes[0];
      call.args.push_back(ref_of(view(operands[0], is_batch ? split : Expr(1))));
    }
    call.out = ref_of(view(item.slots[0].value, split));
    return call;
  }

  /// Of the node's tensors, in their order, and its result.
  abi::LibraryCall call_of(const Item& item, abi::LibraryOp op) const {
    abi::LibraryCall call;
    call.op = op;
    call.label = item.node->op->name();
    ir::for_each_operand(item.node->args,
                         [&](const Value* value) { call.args.push_back(ref_of(view(value, 1))); });
    call.out = ref_of(view(item.slots[0].value, 1));
    return call;
  }

  abi::LibraryCall convolution(const Item& item, abi::LibraryOp op) const {
    ir::Call node = item.node->call();
    abi::LibraryCall call = call_of(item, op);
    call.has_bias = call.args.size() == 3;
    call.conv = {node.constants("stride"), node.constants("padding"), node.constants("dilation"),
                 node.constant("groups")};
    return call;
  }

  abi::LibraryCall rank(const Item& item) const {
    ir::Call node = item.node->call();
    abi::LibraryCall call = call_of(item, abi::LibraryOp::rank);
    call.rank = {node.boolean("descending"), node.constant("limit")};
    return call;
  }

  abi::HostCall host(const Item& item) const {
    ir::Call node = item.node->call();
    abi::HostCall call;
    call.function = static_cast<uint32_t>(node.constant("function"));
    ir::for_each_operand(item.node->args,
                         [&](const Value* value) { call.args.push_back(ref_of(view(value, 1))); });
    for (Expr size : node.ints("sizes")) call.sizes.push_back(sizes.code(size));
    for (const Slot& slot : item.slots) call.results.push_back(ref_of(view(slot.value, 1)));
    call.label = node.string("label");
    return call;
  }

  /// An i64 with a symbol's name gives that symbol its value; its range is checked.
  abi::ReadScalar read_scalar(const Item& item) const {
    const Value& made = *item.slots[0].value;
    abi::ReadScalar read;
    read.source = ref_of(view(item.node->call().value("self"), 1));
    read.name = made.name;
    read.label = item.node->op->name();
    const std::optional<Expr> symbol = ir::symbol_made_by(*graph.graph, *item.node);
    read.slot = symbol ? sizes.slot_of(made.name) : sizes.slot_of(&made);
    sizes.bind(&made, read.slot);
    if (symbol) {
      const sym::Range range = symbol->range();
      if (range.lo > sym::Range::kMin) read.least = range.lo;
      if (range.hi < sym::Range::kMax) read.most = range.hi;
    }
    return read;
  }

  /// Bodies have the numbers that they have among those of this graph.
  abi::Callee callee(const std::string& name) const {
    const std::vector<ir::Graph*> bodies = ops::bodies_of(*graph.graph);
    abi::Callee callee;
    while (bodies.at(callee.body)->name() != name) ++callee.body;
    for (const Value* input : bodies[callee.body]->inputs()) {
      if (input->type.is_tensor()) continue;
      callee.takes_seed = input->role == ir::Role::seed;
      if (!callee.takes_seed)
        callee.sizes.push_back(sizes.code(*graph.graph->pool().find_symbol(input->name)));
    }
    return callee;
  }

  abi::Control control(const Item& item, abi::Control::Kind kind) const {
    ir::Call node = item.node->call();
    abi::Control control;
    control.kind = kind;
    for (const std::string& name : ops::bodies_of(*item.node))
      control.callees.push_back(callee(name));
    ir::for_each_operand(item.node->args, [&](const Value* value) {
      if (value->type.is_tensor()) control.args.push_back(ref_of(view(value, 1)));
    });
    const bool is_rows = kind == abi::Control::Kind::rows;
    if (kind != abi::Control::Kind::branch && kind != abi::Control::Kind::call)
      control.carried = static_cast<uint32_t>(node.values("carried").size());
    if (is_rows) control.rows = static_cast<uint32_t>(node.values("rows").size());
    control.reverse = is_rows && node.boolean("reverse");
    control.stream = node.constant("stream");
    if (const Value* seed = node.has("seed") ? node.value("seed") : nullptr)
      control.seed = {{abi::SizeInstruction::Op::slot, sizes.slot_of(seed)}};
    for (const Slot& slot : item.slots) control.results.push_back(ref_of(view(slot.value, 1)));
    control.label = item.node->op->name();
    return control;
  }
};

}  // namespace

abi::Instruction library_call(KernelGraph& graph, const Item& item, SizeSlots& sizes,
                              const RefOf& ref_of) {
  return LibraryCalls{graph, sizes, ref_of}.of(item);
}

}  // namespace tandem::schedule
