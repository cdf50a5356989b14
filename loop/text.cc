// Text form of kernels. Problem: what is printed must parse back to the same kernel and read like a
// small program. Approach: one line per scalar in the shared line order (walk.h), numbered per
// stage; constants and plain indices stand inside the line that uses them. The grammar is in
// README.md.
#include "loop/text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/line_cursor.h"
#include "loop/walk.h"

namespace tandem::loop {
namespace {

template <class T>
std::string shortest(T value) {
  char text[64];
  std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

std::string nan_text(double value) {
  uint64_t bits = std::bit_cast<uint64_t>(value);
  uint64_t quiet = std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());
  if (bits == quiet) return "nan";
  if (bits == (quiet | (uint64_t{1} << 63))) return "-nan";
  return "nan." + std::to_string(bits);
}

std::string bound(int64_t value) {
  if (value <= sym::Range::kMin) return "-inf";
  if (value >= sym::Range::kMax) return "inf";
  return std::to_string(value);
}

std::string_view name_of_access(Access access) {
  switch (access) {
    case Access::read: return "read";
    case Access::write: return "write";
    case Access::read_write: return "read_write";
    case Access::scratch: return "scratch";
  }
  return "read";
}

/// Lines of one stage.
class Printer {
 public:
  explicit Printer(const ScalarPool* pool) : pool_(pool) {
    if (pool != nullptr) order_.emplace(*pool);
  }
  void kernel(const Kernel& kernel, bool with_names);
  void scalar(Val root);
  std::string take() { return std::move(out_); }

 private:
  void buffer(size_t number, const Buffer& buffer, bool with_names);
  void axis(std::string_view keyword, const Axis& axis, std::string_view indent);
  void stage(const Stage& stage);
  void reduction(const Reduction& reduction);
  void store(const Store& store);
  void lines();
  void line(Val value);
  void expression(Val value);
  void load(Val value);
  void element(Val value);
  void operands(std::span<const Val> values);
  void operand(Val value);
  /// Binds the indirect symbols that the next line uses first.
  void bindings(Val value);
  void bindings(sym::Expr index);
  void begin() { out_ += indent_; }

  const ScalarPool* pool_;
  std::optional<LineOrder> order_;
  std::string out_;
  std::string_view indent_ = "    ";
  std::vector<Val> lines_;
  std::unordered_map<Val, size_t> numbers_;
  std::unordered_set<sym::Expr, sym::ExprHash> bound_;
};

void Printer::kernel(const Kernel& kernel, bool with_names) {
  out_ += "kernel";
  if (with_names && !kernel.name.empty()) out_ += " " + quoted(kernel.name);
  if (!kernel.target.empty()) out_ += " target " + quoted(kernel.target);
  if (!kernel.parallel) out_ += " ordered";
  out_ += " {\n";
  for (sym::Expr size : kernel.sizes)
    out_ += "  size " + sym::to_string(size) + " in [" + bound(size.range().lo) + ", " +
            bound(size.range().hi) + "]\n";
  for (size_t i = 0; i < kernel.buffers.size(); ++i) buffer(i, kernel.buffers[i], with_names);
  for (size_t i = 0; with_names && i < kernel.errors.size(); ++i)
    out_ += "  error " + std::to_string(i) + " " + quoted(kernel.errors[i]) + "\n";
  if (kernel.locals != 0) out_ += "  locals " + std::to_string(kernel.locals) + "\n";
  if (kernel.threads != 0) out_ += "  threads " + std::to_string(kernel.threads) + "\n";
  for (const Axis& outer : kernel.outer) axis("outer", outer, "  ");
  for (const Stage& each : kernel.stages) stage(each);
  out_ += "}\n";
}

void Printer::buffer(size_t number, const Buffer& buffer, bool with_names) {
  out_ += "  buffer b" + std::to_string(number) + ": ";
  out_ += name_of(buffer.dtype);
  if (buffer.elements != sym::Expr(0)) out_ += "[" + sym::to_string(buffer.elements) + "]";
  out_ += " ";
  out_ += name_of_access(buffer.access);
  if (buffer.space != Space::global) out_ += " " + std::string(name_of(buffer.space));
  if (!buffer.no_alias) out_ += " aliased";
  if (buffer.far) out_ += " far";
  if (with_names && !buffer.label.empty()) out_ += " " + quoted(buffer.label);
  out_ += "\n";
}

void Printer::axis(std::string_view keyword, const Axis& axis, std::string_view indent) {
  out_ += indent;
  out_ += keyword;
  out_ += " " + axis.index.name() + " < " + sym::to_string(axis.extent);
  if (axis.kind == AxisKind::task) out_ += " task";
  if (axis.kind == AxisKind::block) out_ += " block";
  if (axis.kind == AxisKind::thread) out_ += " thread(" + std::to_string(axis.lanes) + ")";
  if (axis.kind == AxisKind::vector) out_ += " vector(" + std::to_string(axis.lanes) + ")";
  if (axis.kind == AxisKind::unroll) out_ += " unroll(" + std::to_string(axis.lanes) + ")";
  if (axis.kind == AxisKind::transpose) out_ += " transpose(" + std::to_string(axis.lanes) + ")";
  if (axis.kind == AxisKind::interleave) out_ += " interleave(" + std::to_string(axis.lanes) + ")";
  if (axis.kind == AxisKind::matrix) out_ += " matrix(" + std::to_string(axis.lanes) + ")";
  if (axis.steps == Steps::written_out) out_ += " written_out";
  if (axis.steps == Steps::kept) out_ += " kept";
  if (axis.stride != 1) out_ += " stride(" + std::to_string(axis.stride) + ")";
  if (axis.ahead != 0) out_ += " ahead(" + std::to_string(axis.ahead) + ")";
  if (axis.streams) out_ += " streams";
  out_ += "\n";
}

void Printer::stage(const Stage& stage) {
  order_->clear();
  numbers_.clear();
  bound_.clear();
  out_ += "  stage ";
  if (stage.kind != StageKind::loops) out_ += std::string(name_of(stage.kind)) + " ";
  if (stage.barrier) out_ += "barrier ";
  out_ += "{\n";
  for (const Axis& each : stage.axes) axis("axis", each, "    ");
  for (const Axis& each : stage.reduce_axes) axis("reduce", each, "    ");
  for (const Reduction& each : stage.reductions) reduction(each);
  for (const Prefetch& each : stage.prefetches)
    out_ +=
        "    prefetch b" + std::to_string(each.buffer) + "[" + sym::to_string(each.index) + "]\n";
  for (const Store& each : stage.body) store(each);
  if (!stage.after.empty()) out_ += "  after\n";
  for (const Store& each : stage.after) store(each);
  out_ += "  }\n";
}

void Printer::reduction(const Reduction& reduction) {
  for (Val input : reduction.inputs) order_->visit(input, lines_);
  lines();
  for (Val input : reduction.inputs) bindings(input);
  begin();
  for (int i = 0; i < results(reduction.combiner); ++i)
    out_ += (i == 0 ? "l" : ", l") + std::to_string(reduction.first_local + i);
  out_ += reduction.scan ? " = scan " : " = ";
  out_ += name_of(reduction.combiner);
  operands(reduction.inputs);
  out_ += "\n";
}

void Printer::store(const Store& store) {
  order_->visit(store.value, lines_);
  order_->visit_index(store.index, lines_);
  lines();
  bindings(store.index);
  bindings(store.value);
  begin();
  out_ += "b" + std::to_string(store.buffer) + "[" + sym::to_string(store.index) + "]";
  out_ += store.accumulate ? " " + std::string(assignment_of(store.combiner)) + " " : " = ";
  operand(store.value);
  out_ += store.nontemporal ? " nontemporal\n" : "\n";
}

void Printer::lines() {
  for (Val value : lines_) line(value);
  lines_.clear();
}

void Printer::line(Val value) {
  if (value->opcode == Opcode::load || value->opcode == Opcode::element) {
    for (sym::Expr at : value->at) bindings(at);
    bindings(value->index);
    if (value->masked) bindings(value->args[0]);
  } else {
    for (Val arg : value->args) bindings(arg);
  }
  size_t number = numbers_.size();
  numbers_.emplace(value, number);
  begin();
  out_ += "%" + std::to_string(number) + ": ";
  out_ += name_of(value->dtype);
  out_ += " = ";
  expression(value);
  out_ += "\n";
}

void Printer::expression(Val value) {
  if (value->opcode == Opcode::load) return load(value);
  if (value->opcode == Opcode::element) return element(value);
  if (value->opcode == Opcode::local) {
    out_ += "l" + std::to_string(value->slot);
    return;
  }
  out_ += name_of(value->opcode);
  operands(value->args);
  if (value->opcode == Opcode::check) out_ += ", error " + std::to_string(value->slot);
}

void Printer::load(Val value) {
  out_ += "load b" + std::to_string(value->slot) + "[" + sym::to_string(value->index) + "]";
  if (value->masked) {
    out_ += " if ";
    operand(value->args[0]);
  }
  // A scalar printed without its pool does not know which symbols are indirect.
  if (pool_ != nullptr || value->args.size() == (value->masked ? 1u : 0u)) return;
  out_ += " with";
  operands(std::span(value->args).subspan(value->masked ? 1 : 0));
}

void Printer::element(Val value) {
  out_ += "element v" + std::to_string(value->slot) + "[";
  for (size_t i = 0; i < value->at.size(); ++i)
    out_ += (i == 0 ? "" : ", ") + sym::to_string(value->at[i]);
  out_ += "]";
  if (!value->masked) return;
  out_ += " if ";
  operand(value->args[0]);
}

void Printer::operands(std::span<const Val> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    out_ += i == 0 ? " " : ", ";
    operand(values[i]);
  }
}

void Printer::operand(Val value) {
  if (value->opcode == Opcode::index) {
    out_ += "[" + sym::to_string(value->index) + "]";
  } else if (value->opcode == Opcode::constant) {
    out_ += name_of(value->dtype);
    out_ += "(" + literal(value) + ")";
  } else {
    out_ += "%" + std::to_string(numbers_.at(value));
  }
}

void Printer::bindings(Val value) {
  if (value->opcode == Opcode::index && !value->args.empty()) bindings(value->index);
}

void Printer::bindings(sym::Expr index) {
  if (pool_ == nullptr) return;
  for (const Indirect& indirect : indirects_of(*pool_, index)) {
    if (!bound_.insert(indirect.symbol).second) continue;
    bindings(indirect.value);
    begin();
    out_ += indirect.symbol.name() + " < " + sym::to_string(extent_of(indirect.symbol)) + " = ";
    operand(indirect.value);
    out_ += "\n";
  }
}

void Printer::scalar(Val root) {
  indent_ = "";
  for (Val value : reachable(std::span(&root, 1)))
    if (!is_inline(value)) line(value);
  if (is_inline(root)) operand(root);
}

}  // namespace

std::string literal(Val constant) {
  if (constant->dtype == DType::boolean) return constant->integer != 0 ? "true" : "false";
  if (!is_float(constant->dtype)) return std::to_string(constant->integer);
  if (std::isnan(constant->number)) return nan_text(constant->number);
  if (constant->dtype == DType::f64) return shortest(constant->number);
  return shortest(static_cast<float>(constant->number));
}

std::string print_kernel(const Kernel& kernel, bool with_names) {
  Printer printer(kernel.scalars.get());
  printer.kernel(kernel, with_names);
  return printer.take();
}

std::string to_string(const Kernel& kernel) { return print_kernel(kernel, true); }

std::string to_string(Val value) {
  Printer printer(nullptr);
  printer.scalar(value);
  return printer.take();
}

}  // namespace tandem::loop
