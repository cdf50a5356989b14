// The only writer of abi::Program: buffers, size code, instructions in execution order, epilogue.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/text.h"
#include "loop/stage.h"
#include "schedule/check_kernel.h"
#include "schedule/emit_program.h"
#include "schedule/strided.h"

namespace tandem::schedule {
namespace {

using abi::SizeCode;
using abi::SizeInstruction;
using ir::Value;
using sym::Expr;

SizeInstruction::Op size_op(sym::Kind kind) {
  switch (kind) {
    case sym::Kind::add: return SizeInstruction::Op::add;
    case sym::Kind::mul: return SizeInstruction::Op::mul;
    case sym::Kind::floor_div: return SizeInstruction::Op::floor_div;
    case sym::Kind::mod: return SizeInstruction::Op::mod;
    case sym::Kind::min: return SizeInstruction::Op::min;
    case sym::Kind::max: return SizeInstruction::Op::max;
    case sym::Kind::constant:
    case sym::Kind::symbol: break;
  }
  return SizeInstruction::Op::constant;
}

class Emitter {
 public:
  explicit Emitter(KernelGraph& graph) : graph_(graph) {}

  Scheduled run() {
    out_.program.name = graph_.graph->name();
    add_inputs();
    mark_outputs();
    add_instructions();
    add_outputs();
    add_write_backs();
    check_symbols();
    out_.notes = graph_.notes;
    return std::move(out_);
  }

 private:
  abi::Program& program() { return out_.program; }

  // --- size code ---

  uint32_t slot_of(const std::string& symbol) {
    std::map<std::string, uint32_t>::iterator it = slots_.find(symbol);
    if (it == slots_.end()) it = slots_.emplace(symbol, program().slots++).first;
    return it->second;
  }

  SizeCode code(Expr e) {
    if (e.constant()) return {{SizeInstruction::Op::constant, *e.constant()}};
    if (e.is_symbol()) {
      const std::map<std::string, int64_t>& numbers = graph_.computations.launch_numbers();
      std::map<std::string, int64_t>::const_iterator number = numbers.find(e.name());
      if (number != numbers.end()) return {{SizeInstruction::Op::constant, number->second}};
      return {{SizeInstruction::Op::slot, slot_of(e.name())}};
    }
    SizeCode result;
    std::span<const Expr> args = e.args();
    for (size_t i = 0; i < args.size(); ++i) {
      SizeCode part = code(args[i]);  // depth of a size expression, not of the user's program
      result.insert(result.end(), part.begin(), part.end());
      if (i > 0) result.push_back({size_op(e.kind()), 0});
    }
    return result;
  }

  std::vector<SizeCode> codes(const ir::Sizes& sizes) {
    std::vector<SizeCode> result;
    for (Expr size : sizes) result.push_back(code(size));
    return result;
  }

  // --- buffers
  // ------------------------------------------------------------------------------------

  /// A size that an input before it has is known there by its slot.
  uint32_t scalar_slot(const Value* value) {
    const uint32_t slot = is_size(value) ? slot_of(value->name) : program().slots++;
    slots_["scalar$" + value->name] = slot;
    return slot;
  }

  void add_inputs() {
    for (const Value* value : graph_.graph->inputs()) {
      if (value->constant) {
        add_constant(value);
        continue;
      }
      abi::Input input;
      input.name = value->name;
      input.dtype = value->type.dtype;
      if (value->type.kind == ir::Type::Kind::scalar) {
        input.is_scalar = true;
        input.scalar_slot = scalar_slot(value);
      } else {
        input.sizes = codes(value->type.sizes);
        input.strides = codes(graph_.strides_of(value));
        input.mutated = is_mutated(value);
        input_buffer_[value] = add_buffer(abi::BufferKind::input, next_input(), value->type.dtype,
                                          value->type.numel(), "%" + value->name);
      }
      input_number_[value] = next_input();
      program().inputs.push_back(std::move(input));
    }
    add_range_guards();
  }

  uint32_t next_input() { return static_cast<uint32_t>(program().inputs.size()); }

  void add_constant(const Value* value) {
    if (is_mutated(value))
      throw UserError(fmt::format("input %{} is constant, and the program writes it", value->name));
    abi::Constant constant;
    constant.name = value->name;
    constant.dtype = value->type.dtype;
    for (Expr size : value->type.sizes) constant.sizes.push_back(*size.constant());
    for (Expr stride : graph_.strides_of(value)) constant.strides.push_back(*stride.constant());
    input_number_[value] = static_cast<uint32_t>(program().constants.size());
    input_buffer_[value] = add_buffer(abi::BufferKind::constant, input_number_[value],
                                      value->type.dtype, value->type.numel(), "%" + value->name);
    program().constants.push_back(std::move(constant));
  }

  /// An i64 with a symbol's name gives that symbol its value.
  bool is_size(const Value* input) const {
    return input->type == ir::Type::scalar(DType::i64) &&
           graph_.graph->pool().find_symbol(input->name);
  }

  void add_range_guards() {
    std::vector<Expr> symbols;
    for (const Value* value : graph_.graph->inputs())
      for (Expr size : value->type.sizes) sym::collect_symbols(size, symbols);
    for (Expr symbol : symbols) {
      sym::Range range = symbol.range();
      if (range.lo > 0)
        add_guard(Expr(range.lo), symbol, fmt::format("{} >= {}", symbol.name(), range.lo));
      if (range.hi < sym::Range::kMax)
        add_guard(symbol, Expr(range.hi), fmt::format("{} <= {}", symbol.name(), range.hi));
    }
  }

  void add_guard(Expr left, Expr right, std::string text) {
    program().guards.push_back(
        {abi::Guard::Relation::le, code(left), code(right), std::move(text)});
  }

  /// A symbol gets its value from an input that has it as a size.
  void check_symbols() const {
    std::set<std::string> bound;
    for (const Value* value : graph_.graph->inputs()) {
      if (value->type.kind == ir::Type::Kind::scalar) bound.insert("scalar$" + value->name);
      if (is_size(value)) bound.insert(value->name);
      for (Expr size : value->type.sizes)
        if (size.is_symbol()) bound.insert(size.name());
    }
    for (const std::pair<const std::string, uint32_t>& slot : slots_)
      if (bound.count(slot.first) == 0)
        throw UserError(
            fmt::format("nothing gives {} a value: it is the size of no input", slot.first));
  }

  static bool is_mutated(const Value* input) {
    return std::any_of(input->uses.begin(), input->uses.end(), [](const ir::Use& use) {
      return use.node != nullptr && use.node->op->mutates() && use.arg == 0;
    });
  }

  uint32_t add_buffer(abi::BufferKind kind, uint32_t index, DType dtype, Expr elements,
                      std::string label) {
    abi::Buffer buffer;
    buffer.kind = kind;
    buffer.index = index;
    buffer.dtype = dtype;
    buffer.bytes = code(elements * size_of(dtype));
    buffer.label = std::move(label);
    program().buffers.push_back(std::move(buffer));
    return static_cast<uint32_t>(program().buffers.size()) - 1;
  }

  void mark_outputs() {
    for (const ir::Output& output : graph_.graph->outputs())
      if (output.value != nullptr && output.value->node != nullptr)
        is_output_[leaves_as(output.value)] = true;
  }

  uint32_t buffer_of(const Value* value) {
    if (value->node == nullptr) return input_buffer_.at(value);
    Home home = graph_.homes.at(value);
    TD_CHECK(home.item != nullptr) << "no buffer for " << ir::to_string(*value->node);
    return buffer_of(home);
  }

  uint32_t buffer_of(const Home& home) {
    const Slot& slot = home.item->slots[home.slot];
    if (slot.in_place_of != nullptr) return input_buffer_.at(slot.in_place_of);
    std::pair<const Item*, uint32_t> key{home.item, home.slot};
    std::map<std::pair<const Item*, uint32_t>, uint32_t>::iterator it = item_buffer_.find(key);
    if (it != item_buffer_.end()) return it->second;
    bool leaves = slot.value != nullptr && is_output_.at(slot.value);
    uint32_t number = add_buffer(leaves ? abi::BufferKind::output : abi::BufferKind::temporary, 0,
                                 slot.dtype, sym::product(slot.sizes), home.item->node->op->name());
    item_buffer_[key] = number;
    return number;
  }

  // --- order
  // --------------------------------------------------------------------------------------

  void add_instructions() {
    for (const std::vector<size_t>& together : graph_.order) {
      for (size_t number : together) add_group(graph_.groups[number], number != together[0]);
      if (together.size() > 1) note_batch(graph_.groups[together[0]], together.size());
    }
  }

  void add_group(Group& group, bool beside) {
    if (group.is_library()) return add_library(group);
    add_launch(group);
    std::get<abi::Launch>(program().instructions.back()).beside = beside;
  }

  void note_batch(const Group& first, size_t count) {
    graph_.notes.push_back({label_of(first), fmt::format("{} launches side by side", count)});
  }

  // --- kernels
  // ------------------------------------------------------------------------------------

  void add_launch(Group& group) {
    loop::Kernel& kernel = group.kernel;
    kernel.sizes = size_symbols(kernel);
    abi::Launch launch;
    launch.kernel = kernel_number(kernel);
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      if (kernel.buffers[i].access == loop::Access::scratch) continue;
      const Value* value = group.buffer_values[i];
      launch.buffers.push_back(value != nullptr ? buffer_of(value)
                                                : buffer_of(group.buffer_homes[i]));
    }
    launch.sizes = codes(kernel.sizes);
    launch.tasks = code(tasks_of(group));
    launch.work = code(work_of(kernel));
    launch.scratch_bytes = code(scratch_bytes(kernel, loop::Space::global));
    launch.block.threads = static_cast<uint32_t>(kernel.threads);
    if (kernel.threads > 0)
      launch.block.shared_bytes = code(scratch_bytes(kernel, loop::Space::shared));
    launch.label = label_of(group);
    launch.errors = kernel.errors;
    program().instructions.push_back(std::move(launch));
  }

  /// None where no result has elements and nothing can fail: the loops could be long all the same.
  static Expr tasks_of(const Group& group) {
    const loop::Kernel& kernel = group.kernel;
    Expr written = 0;
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      const loop::Access access = kernel.buffers[i].access;
      if (access != loop::Access::write && access != loop::Access::read_write) continue;
      const Value* value = group.buffer_values[i];
      written = written + (value != nullptr ? value->type.numel() : elements_of(group, i));
    }
    const bool has_work = written.range().lo > 0 || !kernel.errors.empty();
    return has_work ? kernel.tasks() : kernel.tasks() * sym::min(written, 1);
  }

  static Expr elements_of(const Group& group, size_t buffer) {
    const Home& home = group.buffer_homes[buffer];
    return sym::product(home.item->slots[home.slot].sizes);
  }

  static Expr scratch_bytes(const loop::Kernel& kernel, loop::Space space) {
    Expr bytes = 0;
    for (const loop::Buffer& buffer : kernel.buffers)
      if (buffer.access == loop::Access::scratch && buffer.space == space)
        bytes = bytes + sym::ceil_div(buffer.elements * size_of(buffer.dtype), 64) * 64;
    return bytes;
  }

  /// Nanoseconds on one core, roughly: enough to decide whether a team is worth waking.
  static Expr work_of(const loop::Kernel& kernel) {
    Expr points = 1;
    for (const loop::Axis& axis : kernel.outer) points = points * axis.extent;
    Expr inner = 0;
    int weight = 0;
    for (const loop::Stage& stage : kernel.stages) {
      Expr count = 1;
      for (const loop::Axis& axis : stage.axes) count = count * bound(kernel, stage, axis.extent);
      for (const loop::Axis& axis : stage.reduce_axes)
        count = count * bound(kernel, stage, axis.extent);
      for (loop::Val value : loop::all_scalars_of(*kernel.scalars, stage))
        weight += loop::is_transcendental(value->opcode) ? 12 : 1;
      inner = inner + count;
    }
    return sym::floor_div(points * inner * std::max(weight, 4), 40) + 1;
  }

  /// An extent without the axes around it. That of a block is min(block, n - start): the first one
  /// is whole.
  static Expr bound(const loop::Kernel& kernel, const loop::Stage& stage, Expr extent) {
    sym::Substitution first;
    for (const std::vector<loop::Axis>* axes : {&kernel.outer, &stage.axes})
      for (const loop::Axis& axis : *axes) first.emplace_back(axis.index, Expr(0));
    return sym::substitute(extent, first);
  }

  uint32_t kernel_number(const loop::Kernel& kernel) {
    loop::Kernel own = loop::canonical(kernel);
    uint32_t number = static_cast<uint32_t>(program().kernels.size());
    const auto [known, is_new] = kernel_of_text_.emplace(loop::identity_text(own), number);
    if (!is_new) return known->second;
    const uint64_t identity = loop::identity(own);
    program().kernels.push_back({identity, fmt::format("tandem_{:016x}", identity)});
    own.name = program().kernels.back().symbol;
    out_.kernels.push_back(std::move(own));
    return number;
  }

  static std::string label_of(const Group& group) {
    std::string label;
    for (const Member& member : group.members)
      label += (label.empty() ? "" : ", ") + member.item->node->op->name();
    const std::string& place = group.first().node->origin.place;
    return place.empty() ? label : label + " (" + place + ")";
  }

  // --- library calls

  abi::TensorRef ref_of(const StridedRef& ref) {
    uint32_t number = buffer_of(ref.root);
    return {number, codes(ref.sizes), codes(ref.strides), code(ref.offset)};
  }

  StridedRef view(const Value* value, Expr split) {
    const Value* root = stored_root(graph_, value);
    std::optional<StridedRef> ref = strided_view(graph_, view_of(graph_, value, root), split);
    TD_CHECK(ref.has_value()) << "a library operand has no strides";
    return *ref;
  }

  Expr split_of(const Value* value) {
    if (graph_.is_realized(value)) return 1;
    const View shown = view_of(graph_, value, stored_root(graph_, value));
    return strided_view(graph_, shown) ? Expr(1) : batch_split(graph_, shown);
  }

  void add_library(const Group& group) {
    const Item& item = group.first();
    switch (item.route) {
      case ops::RouteKind::matmul: return add_matmul(item);
      case ops::RouteKind::convolution: return add_convolution(item, abi::LibraryOp::convolution);
      case ops::RouteKind::convolution_backward_data:
        return add_convolution(item, abi::LibraryOp::convolution_backward_data);
      case ops::RouteKind::convolution_backward_weights:
        return add_convolution(item, abi::LibraryOp::convolution_backward_weights);
      case ops::RouteKind::rank: return add_rank(item);
      case ops::RouteKind::grouped_rows:
        return add_call(call_of(item, abi::LibraryOp::grouped_rows));
      case ops::RouteKind::grouped_sums:
        return add_call(call_of(item, abi::LibraryOp::grouped_sums));
      case ops::RouteKind::host: return add_host(item);
    }
  }

  /// The last two tensor arguments are the factors; an earlier one is added (addmm's self).
  void add_matmul(const Item& item) {
    std::vector<const Value*> operands;
    ir::for_each_operand(item.node->args, [&](const Value* value) { operands.push_back(value); });
    const Value* b = operands.back();
    const Value* a = operands[operands.size() - 2];
    Expr split = split_of(a);
    if (split == Expr(1)) split = split_of(b);
    abi::LibraryCall call;
    call.op = abi::LibraryOp::matmul;
    call.label = item.node->op->name();
    call.args = {ref_of(view(a, split)), ref_of(view(b, split))};
    call.has_bias = operands.size() == 3;
    if (call.has_bias) call.args.push_back(ref_of(view(operands[0], 1)));
    call.out = ref_of(view(item.slots[0].value, split));
    add_call(std::move(call));
  }

  /// Of the node's tensors, in their order, and its result.
  abi::LibraryCall call_of(const Item& item, abi::LibraryOp op) {
    abi::LibraryCall call;
    call.op = op;
    call.label = item.node->op->name();
    ir::for_each_operand(item.node->args,
                         [&](const Value* value) { call.args.push_back(ref_of(view(value, 1))); });
    call.out = ref_of(view(item.slots[0].value, 1));
    return call;
  }

  void add_convolution(const Item& item, abi::LibraryOp op) {
    ir::Call node = item.node->call();
    abi::LibraryCall call = call_of(item, op);
    call.has_bias = call.args.size() == 3;
    call.conv = {node.constants("stride"), node.constants("padding"), node.constants("dilation"),
                 node.constant("groups")};
    add_call(std::move(call));
  }

  void add_rank(const Item& item) {
    ir::Call node = item.node->call();
    abi::LibraryCall call = call_of(item, abi::LibraryOp::rank);
    call.rank = {node.boolean("descending"), node.constant("limit")};
    add_call(std::move(call));
  }

  void add_host(const Item& item) {
    ir::Call node = item.node->call();
    abi::HostCall call;
    call.function = static_cast<uint32_t>(node.constant("function"));
    ir::for_each_operand(item.node->args,
                         [&](const Value* value) { call.args.push_back(ref_of(view(value, 1))); });
    for (Expr size : node.ints("sizes")) call.sizes.push_back(code(size));
    for (const Slot& slot : item.slots) call.results.push_back(ref_of(view(slot.value, 1)));
    call.label = node.string("label");
    program().instructions.push_back(std::move(call));
  }

  void add_call(abi::LibraryCall call) { program().instructions.push_back(std::move(call)); }

  // --- epilogue
  // -----------------------------------------------------------------------------------

  abi::TensorRef whole(const Value* value) {
    uint32_t number = buffer_of(value);
    return {number, codes(value->type.sizes), codes(graph_.strides_of(value)), code(0)};
  }

  /// A scalar input handed on, or the size that a saved_size output names.
  void add_scalar_output(const ir::Output& output) {
    abi::Output out;
    out.kind = abi::Output::Kind::scalar;
    out.name = output.value == nullptr ? output.name : output.value->name;
    out.dtype = output.value == nullptr ? DType::i64 : output.value->type.dtype;
    Expr symbol = output.value == nullptr ? *graph_.graph->pool().find_symbol(out.name) : Expr(0);
    if (output.value == nullptr)
      out.scalar = code(symbol);
    else
      out.scalar = {{SizeInstruction::Op::slot, slots_.at("scalar$" + out.name)}};
    program().outputs.push_back(std::move(out));
    out_.output_strides.emplace_back();
  }

  /// The dimensions of a permuted result back in their places.
  static abi::TensorRef in_order(const abi::TensorRef& ref, const std::vector<int64_t>& order) {
    abi::TensorRef result = ref;
    for (size_t i = 0; i < order.size(); ++i) {
      result.sizes[static_cast<size_t>(order[i])] = ref.sizes[i];
      result.strides[static_cast<size_t>(order[i])] = ref.strides[i];
    }
    return result;
  }

  const Value* leaves_as(const Value* output) const {
    const Value* other = graph_.leaves_as.at(output);
    return other == nullptr ? output : other;
  }

  ir::Sizes output_strides(const Value* output) {
    return graph_.leaves_as.at(output) == nullptr ? graph_.strides_of(output)
                                                  : ir::contiguous_strides(output->type.sizes);
  }

  void add_outputs() {
    for (const ir::Output& output : graph_.graph->outputs()) {
      bool is_scalar = output.value == nullptr ? output.kind == ir::OutputKind::saved_size
                                               : !output.value->type.is_tensor();
      if (is_scalar) add_scalar_output(output);
      if (is_scalar || output.value == nullptr) continue;
      abi::Output out;
      out.name = output.name.empty() ? std::string(name_of(output.kind)) : output.name;
      out.dtype = output.value->type.dtype;
      out.ref = {buffer_of(leaves_as(output.value)), codes(output.value->type.sizes),
                 codes(output_strides(output.value)), code(0)};
      out.ref = in_order(out.ref, output.order);
      if (output.value->node == nullptr) {
        out.kind = output.value->constant ? abi::Output::Kind::constant_view
                                          : abi::Output::Kind::input_view;
        out.input = input_number_.at(output.value);
      }
      program().outputs.push_back(std::move(out));
      out_.output_strides.push_back(output_strides(output.value));
    }
  }

  /// One value may be written to several inputs, and lie in place in one of them.
  void add_write_backs() {
    for (const ir::Node* node = graph_.graph->first(); node != nullptr; node = node->next) {
      if (!node->op->mutates()) continue;
      const Value* input = std::get<Value*>(node->args[0]);
      const Value* source = std::get<Value*>(node->args[1]);
      if (graph_.memory_of(source) == input && source != input) continue;
      program().write_backs.push_back({input_number_.at(input), whole(source)});
    }
  }

  KernelGraph& graph_;
  Scheduled out_;
  std::map<std::string, uint32_t> kernel_of_text_;
  std::map<std::string, uint32_t> slots_;
  std::map<const Value*, uint32_t> input_buffer_;
  std::map<const Value*, uint32_t> input_number_;  // in Program::inputs, or Program::constants
  std::map<std::pair<const Item*, uint32_t>, uint32_t> item_buffer_;
  DenseMap<Value, char> is_output_;
};

}  // namespace

Scheduled emit_program(KernelGraph& graph) { return Emitter(graph).run(); }

}  // namespace tandem::schedule
