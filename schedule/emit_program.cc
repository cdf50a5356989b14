// The only writer of abi::Program: buffers, size code, instructions in execution order, epilogue.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/text.h"
#include "ir/writes.h"
#include "loop/match.h"
#include "schedule/check_kernel.h"
#include "schedule/emit_program.h"
#include "schedule/launch_sizes.h"
#include "schedule/library_call.h"
#include "schedule/size_slots.h"
#include "schedule/steps.h"
#include "schedule/take_over.h"

namespace tandem::schedule {
namespace {

using abi::SizeInstruction;
using ir::Value;
using sym::Expr;

/// Buffers of the program, each made when it is first asked for.
class Buffers {
 public:
  Buffers(const KernelGraph& graph, abi::Program& program, SizeSlots& sizes)
      : graph_(graph), program_(program), sizes_(sizes) {
    for (const ir::Output& output : graph_.graph->outputs())
      if (output.value != nullptr && output.value->node != nullptr)
        is_output_[leaves_as(output.value)] = true;
  }

  const Value* leaves_as(const Value* output) const {
    const Value* other = graph_.leaves_as.at(output);
    return other == nullptr ? output : other;
  }

  uint32_t of(const Value* value) {
    if (value->node == nullptr) return input_buffer_.at(value);
    Home home = graph_.homes.at(value);
    TD_CHECK(home.item != nullptr) << "no buffer for " << ir::to_string(*value->node);
    return of(home);
  }

  uint32_t of(const Home& home) {
    const Slot& slot = home.item->slots[home.slot];
    if (slot.in_place_of != nullptr) return input_buffer_.at(slot.in_place_of);
    std::pair<const Item*, uint32_t> key{home.item, home.slot};
    std::map<std::pair<const Item*, uint32_t>, uint32_t>::iterator it = item_buffer_.find(key);
    if (it != item_buffer_.end()) return it->second;
    bool leaves = slot.value != nullptr && is_output_.at(slot.value);
    uint32_t number = add_buffer(leaves ? abi::BufferKind::output : abi::BufferKind::temporary, 0,
                                 slot.dtype, sym::product(slot.sizes), label_of(*home.item, slot));
    item_buffer_[key] = number;
    return number;
  }

  void add_input(const Value* value, abi::BufferKind kind, uint32_t index) {
    input_buffer_[value] =
        add_buffer(kind, index, value->type.dtype, value->type.numel(), "%" + value->name);
  }

 private:
  /// What is no value of the graph, such as a partial sum, has none of its names.
  std::string label_of(const Item& item, const Slot& slot) const {
    const std::string name = slot.value == nullptr ? "" : "%" + names_.at(slot.value) + " ";
    return name + item.node->op->name();
  }

  uint32_t add_buffer(abi::BufferKind kind, uint32_t index, DType dtype, Expr elements,
                      std::string label) {
    abi::Buffer buffer;
    buffer.kind = kind;
    buffer.index = index;
    buffer.dtype = dtype;
    buffer.bytes = sizes_.code(elements * size_of(dtype));
    buffer.label = std::move(label);
    program_.buffers.push_back(std::move(buffer));
    return static_cast<uint32_t>(program_.buffers.size()) - 1;
  }

  const KernelGraph& graph_;
  abi::Program& program_;
  SizeSlots& sizes_;
  DenseMap<Value, std::string> names_ = ir::value_names(*graph_.graph);
  std::map<const Value*, uint32_t> input_buffer_;
  std::map<std::pair<const Item*, uint32_t>, uint32_t> item_buffer_;
  DenseMap<Value, char> is_output_;
};

/// Equal kernels are one.
class Kernels {
 public:
  explicit Kernels(Scheduled& out) : out_(out) {}

  /// The kernel must stay where it is.
  uint32_t number_of(const loop::Kernel& kernel) {
    const auto is_same = [&](const auto& known) {
      return loop::matched(*known.first, kernel).has_value();
    };
    const auto same = std::ranges::find_if(numbers_, is_same);
    if (same != numbers_.end()) {
      TD_CHECK(!is_verifying() || number_by_text(kernel) == same->second)
          << loop::to_string(kernel);
      return same->second;
    }
    numbers_.emplace_back(&kernel, number_by_text(kernel));
    return numbers_.back().second;
  }

 private:
  uint32_t number_by_text(const loop::Kernel& kernel) {
    loop::Kernel own = loop::canonical(kernel);
    uint32_t number = static_cast<uint32_t>(out_.program.kernels.size());
    const auto [known, is_new] = kernel_of_text_.emplace(loop::identity_text(own), number);
    if (!is_new) return known->second;
    const uint64_t identity = loop::identity(own);
    out_.program.kernels.push_back({identity, fmt::format("tandem_{:016x}", identity)});
    own.name = out_.program.kernels.back().symbol;
    out_.kernels.push_back(std::move(own));
    return number;
  }

  Scheduled& out_;
  std::vector<std::pair<const loop::Kernel*, uint32_t>> numbers_;
  std::map<std::string, uint32_t> kernel_of_text_;
};

/// The dimensions of a permuted result back in their places.
abi::TensorRef in_order(const abi::TensorRef& ref, const std::vector<int64_t>& order) {
  abi::TensorRef result = ref;
  for (size_t i = 0; i < order.size(); ++i) {
    result.sizes[static_cast<size_t>(order[i])] = ref.sizes[i];
    result.strides[static_cast<size_t>(order[i])] = ref.strides[i];
  }
  return result;
}

void note_batch(KernelGraph& graph, const std::vector<size_t>& together) {
  const Group& first = graph.groups[together[0]];
  graph.notes.push_back(
      {label_of(first), first.is_library()
                            ? "a kernel runs along its lines"
                            : fmt::format("{} launches side by side", together.size())});
}

class Emitter {
 public:
  explicit Emitter(KernelGraph& graph)
      : graph_(graph),
        sizes_(out_.program, graph.computations.launch_args()),
        buffers_(graph, out_.program, sizes_),
        kernels_(out_) {}

  Scheduled run() {
    out_.program.name = graph_.graph->name();
    add_inputs();
    add_instructions();
    add_outputs();
    add_write_backs();
    check_symbols();
    out_.notes = graph_.notes;
    return std::move(out_);
  }

 private:
  abi::Program& program() { return out_.program; }

  // --- buffers
  // ------------------------------------------------------------------------------------

  /// A size that an input before it has is known there by its slot.
  uint32_t scalar_slot(const Value* value) {
    const uint32_t slot = is_size(value) ? sizes_.slot_of(value->name) : program().slots++;
    sizes_.bind(value, slot);
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
        input.sizes = sizes_.codes(value->type.sizes);
        input.strides = sizes_.codes(graph_.strides_of(value));
        input.mutated = ir::is_written(value);
        buffers_.add_input(value, abi::BufferKind::input, next_input());
      }
      input_number_[value] = next_input();
      program().inputs.push_back(std::move(input));
    }
    add_range_guards();
  }

  uint32_t next_input() { return static_cast<uint32_t>(program().inputs.size()); }

  void add_constant(const Value* value) {
    if (ir::is_written(value))
      throw UserError(fmt::format("input %{} is constant, and the program writes it", value->name));
    abi::Constant constant;
    constant.name = value->name;
    constant.dtype = value->type.dtype;
    constant.zeros = value->zeros;
    for (Expr size : value->type.sizes) constant.sizes.push_back(*size.constant());
    for (Expr stride : graph_.strides_of(value)) constant.strides.push_back(*stride.constant());
    input_number_[value] = static_cast<uint32_t>(program().constants.size());
    buffers_.add_input(value, abi::BufferKind::constant, input_number_[value]);
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
        {abi::Guard::Relation::le, sizes_.code(left), sizes_.code(right), std::move(text)});
  }

  /// A symbol gets its value from an input that has it as a size.
  void check_symbols() const {
    std::set<std::string> bound;
    for (const Value* value : graph_.graph->inputs()) {
      if (is_size(value)) bound.insert(value->name);
      for (Expr size : value->type.sizes)
        if (size.is_symbol()) bound.insert(size.name());
    }
    for (const ir::Node* node = graph_.graph->first(); node != nullptr; node = node->next)
      for (const Value* result : node->results)
        if (!result->type.is_tensor()) bound.insert(result->name);
    for (const std::pair<const std::string, uint32_t>& slot : sizes_.all())
      if (bound.count(slot.first) == 0)
        throw UserError(fmt::format(
            "nothing gives {} a value: it is the size of no input, and no node makes it",
            slot.first));
  }

  // --- order
  // --------------------------------------------------------------------------------------

  void add_instructions() {
    for (const std::vector<size_t>& together : graph_.order) {
      for (size_t number : together) add_group(graph_.groups[number], number != together[0]);
      if (together.size() > 1) note_batch(graph_, together);
    }
  }

  void add_group(Group& group, bool beside) {
    if (group.is_library()) {
      program().instructions.push_back(library_call(
          graph_, group.first(), sizes_, [&](const StridedRef& r) { return ref_of(r); }));
      return;
    }
    add_launch(group);
    abi::Launch& launch = std::get<abi::Launch>(program().instructions.back());
    launch.follows = group.follows.has_value();
    launch.beside = beside && !launch.follows;
  }

  // --- kernels
  // ------------------------------------------------------------------------------------

  void add_launch(Group& group) {
    loop::Kernel& kernel = group.kernel;
    kernel.sizes = size_symbols(kernel);
    abi::Launch launch;
    launch.kernel = kernels_.number_of(kernel);
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      if (kernel.buffers[i].access == loop::Access::scratch) continue;
      const Value* value = group.buffer_values[i];
      launch.buffers.push_back(value != nullptr ? buffers_.of(value)
                                                : buffers_.of(group.buffer_homes[i]));
    }
    launch.sizes = sizes_.codes(kernel.sizes);
    launch.tasks = sizes_.code(tasks_of(group));
    launch.work = sizes_.code(work_of(kernel));
    launch.scratch_bytes = sizes_.code(scratch_bytes(kernel, loop::Space::global));
    launch.block.threads = static_cast<uint32_t>(kernel.threads);
    if (kernel.threads > 0)
      launch.block.shared_bytes = sizes_.code(scratch_bytes(kernel, loop::Space::shared));
    launch.label = label_of(group);
    launch.errors = kernel.errors;
    launch.takeovers = takeovers(kernel);
    program().instructions.push_back(std::move(launch));
  }

  abi::TensorRef ref_of(const StridedRef& ref) {
    uint32_t number = buffers_.of(ref.root);
    return {number, sizes_.codes(ref.sizes), sizes_.codes(ref.strides), sizes_.code(ref.offset)};
  }

  // --- epilogue
  // -----------------------------------------------------------------------------------

  abi::TensorRef whole(const Value* value) {
    uint32_t number = buffers_.of(value);
    return {number, sizes_.codes(value->type.sizes), sizes_.codes(graph_.strides_of(value)),
            sizes_.code(0)};
  }

  /// A scalar input handed on, or the size that a saved_size output names.
  void add_scalar_output(const ir::Output& output) {
    abi::Output out;
    out.kind = abi::Output::Kind::scalar;
    out.name = output.value == nullptr ? output.name : output.value->name;
    out.dtype = output.value == nullptr ? DType::i64 : output.value->type.dtype;
    Expr symbol = output.value == nullptr ? *graph_.graph->pool().find_symbol(out.name) : Expr(0);
    if (output.value == nullptr)
      out.scalar = sizes_.code(symbol);
    else
      out.scalar = {{SizeInstruction::Op::slot, sizes_.slot_of(output.value)}};
    program().outputs.push_back(std::move(out));
    out_.output_strides.emplace_back();
  }

  ir::Sizes output_strides(const Value* output) {
    return graph_.leaves_as.at(output) == nullptr ? graph_.strides_of(output)
                                                  : ir::contiguous_strides(output->type.sizes);
  }

  void add_outputs() {
    for (const ir::Output& output : graph_.graph->outputs()) {
      bool is_scalar = output.value == nullptr ? output.kind == ir::OutputKind::saved_size
                                               : !output.value->type.is_tensor();
      if (is_scalar)
        add_scalar_output(output);
      else if (output.value != nullptr)
        add_tensor_output(output);
    }
  }

  void add_tensor_output(const ir::Output& output) {
    abi::Output out;
    out.name = output.name.empty() ? std::string(name_of(output.kind)) : output.name;
    out.dtype = output.value->type.dtype;
    const std::optional<StridedRef> shown = shown_input(graph_, output.value);
    out.ref = in_order(shown ? ref_of(*shown) : whole_output(output.value), output.order);
    const Value* start = shown ? shown->root : output.value;
    if (start->node == nullptr) {
      out.kind = start->constant ? abi::Output::Kind::constant_view : abi::Output::Kind::input_view;
      out.input = input_number_.at(start);
    }
    program().outputs.push_back(std::move(out));
    out_.output_strides.push_back(shown ? shown->strides : output_strides(output.value));
  }

  abi::TensorRef whole_output(const Value* value) {
    return {buffers_.of(buffers_.leaves_as(value)), sizes_.codes(value->type.sizes),
            sizes_.codes(output_strides(value)), sizes_.code(0)};
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
  SizeSlots sizes_;
  Buffers buffers_;
  Kernels kernels_;
  std::map<const Value*, uint32_t> input_number_;  // in Program::inputs, or Program::constants
};

}  // namespace

Scheduled emit_program(KernelGraph& graph) { return Emitter(graph).run(); }

}  // namespace tandem::schedule
