// Reads the text form of kernels. Problem: tests and bug reports are written by hand, so what is
// wrong must be said with its line, and no text may reach a failing check of a pool. Approach: one
// line is one statement; its first word decides what it is. Operand types are compared here before
// a scalar is built. Symbols must be in scope: sizes, axes of the stage, bound indirect symbols.
#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <unordered_set>

#include "base/diagnostic.h"
#include "base/line_cursor.h"
#include "loop/kernel.h"

namespace tandem::loop {
namespace {

using Cursor = LineCursor;
constexpr std::string_view kRoom = "kernel";
constexpr int64_t kMostLanes = 4096;  // of an axis, and threads of a block

std::optional<Access> access_from_name(std::string_view name) {
  if (name == "read") return Access::read;
  if (name == "write") return Access::write;
  if (name == "read_write") return Access::read_write;
  if (name == "scratch") return Access::scratch;
  return std::nullopt;
}

class Parser {
 public:
  Parser();
  Kernel run(std::string_view text, int first_line);

 private:
  enum class Where : uint8_t { before, kernel, stage, after_kernel };

  void statement(Cursor& line);
  void header(Cursor& line);
  void kernel_item(Cursor& line);
  void size(Cursor& line);
  void buffer(Cursor& line);
  void error_text(Cursor& line);
  void open_stage(Cursor& line);
  void stage_item(Cursor& line);
  Axis axis(Cursor& line);
  void value(Cursor& line);
  void reduction(Cursor& line);
  void store(Cursor& line);
  void binding(Cursor& line);

  Val expression(Cursor& line, DType dtype);
  Val load(Cursor& line, DType dtype);
  Val element(Cursor& line, DType dtype);
  Val mask(Cursor& line);
  Val operation(Cursor& line, Opcode opcode, DType dtype);
  Val check(Cursor& line);
  Val pack(Cursor& line);
  Val local(Cursor& line, DType dtype);
  Val operand(Cursor& line);
  Val constant(Cursor& line);
  Val number(Cursor& line, DType dtype, std::string_view text);
  std::vector<Val> operands(Cursor& line, size_t count);
  DType dtype(Cursor& line);
  sym::Expr index(Cursor& line, std::string_view text);
  std::string_view new_symbol(Cursor& line);
  void use_local(int32_t number) { kernel_.locals = std::max(kernel_.locals, number + 1); }

  Kernel kernel_;
  ScalarPool& pool_;
  Where where_ = Where::before;
  bool in_after_ = false;
  std::unordered_map<int32_t, Val> values_;  // of the stage
  std::unordered_set<sym::Expr, sym::ExprHash> scope_;
  std::vector<sym::Expr> stage_scope_;
  /// Indirect symbols whose value turned out to have another name or none.
  sym::Substitution aliases_;
};

Kernel empty_kernel() {
  Kernel kernel;
  kernel.symbols = std::make_shared<sym::Pool>();
  kernel.scalars = std::make_shared<ScalarPool>(*kernel.symbols);
  return kernel;
}

Parser::Parser() : kernel_(empty_kernel()), pool_(*kernel_.scalars) {}

Kernel Parser::run(std::string_view text, int first_line) {
  int number = first_line;
  for (; !text.empty(); ++number) {
    size_t end = std::min(text.find('\n'), text.size());
    Cursor line(without_comment(text.substr(0, end)), number, kRoom);
    if (!line.done()) statement(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (where_ != Where::after_kernel)
    throw UserError("[kernel] line " + std::to_string(number) +
                    ": the text ends inside the kernel");
  return std::move(kernel_);
}

void Parser::statement(Cursor& line) {
  switch (where_) {
    case Where::before: header(line); break;
    case Where::kernel: kernel_item(line); break;
    case Where::stage: stage_item(line); break;
    case Where::after_kernel: line.fail("text after the kernel"); break;
  }
  line.expect_end();
}

void Parser::header(Cursor& line) {
  line.expect("kernel");
  if (line.looks_at("\"")) kernel_.name = line.quoted();
  if (line.eat("target")) kernel_.target = line.quoted();
  if (line.eat("ordered")) kernel_.parallel = false;
  line.expect("{");
  where_ = Where::kernel;
}

void Parser::kernel_item(Cursor& line) {
  if (line.eat("size")) {
    if (!kernel_.outer.empty() || !kernel_.stages.empty())
      line.fail("sizes stand before outer and stages");
    return size(line);
  }
  if (line.eat("buffer")) return buffer(line);
  if (line.eat("error")) return error_text(line);
  if (line.eat("locals")) {
    kernel_.locals = static_cast<int32_t>(std::min<int64_t>(line.integer(), 1'000'000));
  } else if (line.eat("threads")) {
    const int64_t threads = line.integer();
    if (threads < 1 || threads > kMostLanes) line.fail("a block has 1 to 4096 threads");
    kernel_.threads = static_cast<int32_t>(threads);
  } else if (line.eat("outer")) {
    if (!kernel_.stages.empty()) line.fail("outer stands before the stages");
    kernel_.outer.push_back(axis(line));
  } else if (line.eat("stage")) {
    open_stage(line);
  } else if (line.eat("}")) {
    where_ = Where::after_kernel;
  } else {
    line.fail("expected size, buffer, error, locals, threads, outer, stage or `}`");
  }
}

std::string_view Parser::new_symbol(Cursor& line) {
  std::string_view name = line.word();
  if (std::isdigit(static_cast<unsigned char>(name[0])) != 0)
    line.fail("a symbol starts with a letter");
  if (pool_.symbols().find_symbol(name))
    line.fail("symbol " + std::string(name) + " is used twice");
  return name;
}

int64_t range_end(Cursor& line) {
  if (line.eat("-inf")) return sym::Range::kMin;
  return line.eat("inf") ? sym::Range::kMax : line.integer();
}

void Parser::size(Cursor& line) {
  std::string_view name = new_symbol(line);
  sym::Range range;
  if (line.eat("in")) {
    line.expect("[");
    range.lo = range_end(line);
    line.expect(",");
    range.hi = range_end(line);
    line.expect("]");
  }
  if (range.lo > range.hi) line.fail("an empty range");
  sym::Expr symbol = pool_.symbols().symbol(name, range);
  scope_.insert(symbol);
  kernel_.sizes.push_back(symbol);
}

void Parser::buffer(Cursor& line) {
  int32_t number = line.numbered('b');
  if (static_cast<size_t>(number) != kernel_.buffers.size()) line.fail("buffers count from b0");
  line.expect(":");
  Buffer result;
  result.dtype = dtype(line);
  if (line.looks_at("[")) result.elements = index(line, line.bracketed());
  std::optional<Access> access = access_from_name(line.word());
  if (!access) line.fail("expected read, write, read_write or scratch");
  result.access = *access;
  for (Space space : {Space::shared, Space::registers})
    if (result.access == Access::scratch && line.eat(name_of(space))) result.space = space;
  result.no_alias = !line.eat("aliased");
  result.far = line.eat("far");
  if (line.looks_at("\"")) result.label = line.quoted();
  kernel_.buffers.push_back(std::move(result));
}

void Parser::error_text(Cursor& line) {
  int64_t number = line.integer();
  if (number != static_cast<int64_t>(kernel_.errors.size())) line.fail("errors count from 0");
  kernel_.errors.push_back(line.quoted());
}

void Parser::open_stage(Cursor& line) {
  StageKind kind = StageKind::loops;
  for (StageKind named : {StageKind::footprint, StageKind::gather})
    if (line.eat(name_of(named))) kind = named;
  const bool barrier = line.eat("barrier");
  line.expect("{");
  where_ = Where::stage;
  in_after_ = false;
  values_.clear();
  aliases_.clear();
  for (sym::Expr symbol : stage_scope_) scope_.erase(symbol);
  stage_scope_.clear();
  kernel_.stages.emplace_back();
  kernel_.stages.back().kind = kind;
  kernel_.stages.back().barrier = barrier;
}

/// Terms of an index print in the order in which their symbols came to be: the text declares them
/// as it prints them, or what is printed would read otherwise.
void Parser::stage_item(Cursor& line) {
  Stage& stage = kernel_.stages.back();
  if (line.eat("axis")) {
    if (stage.axes.size() != stage_scope_.size())
      line.fail("axis stands before reduce and before bound indices");
    stage.axes.push_back(axis(line));
  } else if (line.eat("reduce")) {
    if (stage.axes.size() + stage.reduce_axes.size() != stage_scope_.size())
      line.fail("reduce stands before bound indices");
    stage.reduce_axes.push_back(axis(line));
  } else if (line.eat("prefetch")) {
    int32_t buffer = line.numbered('b');
    stage.prefetches.push_back({buffer, index(line, line.bracketed())});
  } else if (line.eat("after")) {
    in_after_ = true;
  } else if (line.eat("}")) {
    where_ = Where::kernel;
  } else if (line.looks_at("%")) {
    value(line);
  } else if (line.at_numbered('l')) {
    reduction(line);
  } else if (line.at_numbered('b')) {
    store(line);
  } else {
    binding(line);
  }
}

/// `64` of a text that ends in ` vector(64)`, which is taken off; nothing where it ends otherwise.
std::optional<int64_t> take_mark(std::string_view& text, std::string_view mark,
                                 const Cursor& line) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  const size_t at = text.rfind(' ');
  if (at == std::string_view::npos || !text.substr(at + 1).starts_with(mark)) return std::nullopt;
  const std::string_view rest = text.substr(at + 1 + mark.size());
  if (!rest.starts_with("(")) return std::nullopt;
  Cursor number(rest.substr(1), 0, kRoom);
  const int64_t found = number.integer();
  if (found < 1 || found > (1 << 20) || !number.eat(")") || !number.done())
    line.fail("bad " + std::string(mark) + "(number)");
  text = text.substr(0, at);
  return found;
}

bool take_word(std::string_view& text, std::string_view word) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (!text.ends_with(word) || !text.substr(0, text.size() - word.size()).ends_with(' '))
    return false;
  text.remove_suffix(word.size() + 1);
  return true;
}

/// What stands behind the extent, the last mark first.
void take_marks(Axis& axis, std::string_view& text, const Cursor& line) {
  axis.streams = take_word(text, "streams");
  axis.ahead = take_mark(text, "ahead", line).value_or(0);
  axis.stride = static_cast<int>(take_mark(text, "stride", line).value_or(1));
  if (take_word(text, "kept")) axis.steps = Steps::kept;
  if (take_word(text, "written_out")) axis.steps = Steps::written_out;
  if (take_word(text, "task")) axis.kind = AxisKind::task;
  if (take_word(text, "block")) axis.kind = AxisKind::block;
  constexpr std::pair<std::string_view, AxisKind> kKinds[] = {
      {"vector", AxisKind::vector},         {"unroll", AxisKind::unroll},
      {"thread", AxisKind::thread},         {"transpose", AxisKind::transpose},
      {"interleave", AxisKind::interleave}, {"matrix", AxisKind::matrix}};
  for (const auto& [name, kind] : kKinds) {
    const std::optional<int64_t> lanes = take_mark(text, name, line);
    if (!lanes) continue;
    if (*lanes > kMostLanes || axis.kind != AxisKind::serial) line.fail("bad vector(lanes)");
    axis.kind = kind;
    axis.lanes = static_cast<int>(*lanes);
  }
}

/// `x0 < n0*4 task`: the annotation is at the end, after an expression.
Axis Parser::axis(Cursor& line) {
  std::string_view name = new_symbol(line);
  line.expect("<");
  std::string_view text = line.rest();
  Axis result;
  take_marks(result, text, line);
  result.extent = index(line, text);
  result.index = pool_.symbols().index(name, result.extent);
  scope_.insert(result.index);
  if (where_ == Where::stage) stage_scope_.push_back(result.index);
  return result;
}

DType Parser::dtype(Cursor& line) {
  std::optional<DType> found = dtype_from_name(line.word());
  if (!found) line.fail("expected a dtype before");
  return *found;
}

sym::Expr Parser::index(Cursor& line, std::string_view text) {
  std::string error;
  std::optional<sym::Expr> parsed = sym::parse(pool_.symbols(), text, &error);
  if (!parsed) line.fail(error);
  for (sym::Expr symbol : sym::free_symbols(*parsed))
    if (!scope_.contains(symbol)) line.fail("no symbol " + symbol.name() + " in scope");
  return aliases_.empty() ? *parsed : sym::substitute(*parsed, aliases_);
}

void Parser::value(Cursor& line) {
  int32_t number = line.numbered('%');
  line.expect(":");
  DType type = dtype(line);
  line.expect("=");
  Val result = expression(line, type);
  if (result->dtype != type)
    line.fail("the value is " + std::string(name_of(result->dtype)) + ", not " +
              std::string(name_of(type)));
  if (!values_.emplace(number, result).second)
    line.fail("value %" + std::to_string(number) + " is defined twice");
}

void Parser::reduction(Cursor& line) {
  Reduction result;
  result.first_local = line.numbered('l');
  int count = 1;
  for (; line.eat(","); ++count)
    if (line.numbered('l') != result.first_local + count)
      line.fail("results are successive locals");
  line.expect("=");
  result.scan = line.eat("scan");
  std::optional<Combiner> combiner = combiner_from_name(line.word());
  if (!combiner) line.fail("expected a combiner before");
  if (results(*combiner) != count) line.fail("wrong number of results");
  result.combiner = *combiner;
  result.inputs = operands(line, static_cast<size_t>(arity(*combiner)));
  if (in_after_) line.fail("a reduction stands before `after`");
  use_local(result.first_local + count - 1);
  kernel_.stages.back().reductions.push_back(std::move(result));
}

void Parser::store(Cursor& line) {
  Store result;
  result.buffer = line.numbered('b');
  result.index = index(line, line.bracketed());
  for (Combiner combiner : {Combiner::sum, Combiner::prod, Combiner::min, Combiner::max}) {
    if (result.accumulate || !line.eat(assignment_of(combiner))) continue;
    result.accumulate = true;
    result.combiner = combiner;
  }
  if (!result.accumulate) line.expect("=");
  result.value = operand(line);
  result.nontemporal = line.eat("nontemporal");
  Stage& stage = kernel_.stages.back();
  (in_after_ ? stage.after : stage.body).push_back(result);
}

/// `t0 < n0 = %2`: the scalar as part of an index, in [0, n0).
void Parser::binding(Cursor& line) {
  std::string_view name = line.word();
  line.expect("<");
  sym::Expr extent = index(line, line.until("="));
  line.expect("=");
  Val bound = operand(line);
  if (bound->dtype != DType::i64) line.fail("an index must be i64");
  sym::Expr result = pool_.as_index(bound, extent, name);
  sym::Expr written = pool_.symbols().symbol(name);
  if (!scope_.insert(written).second) line.fail("symbol " + std::string(name) + " is used twice");
  stage_scope_.push_back(written);
  if (!(result == written)) aliases_.emplace_back(written, result);
}

Val Parser::expression(Cursor& line, DType type) {
  if (line.at_numbered('l')) return local(line, type);
  if (line.eat("load")) return load(line, type);
  if (line.eat("element")) return element(line, type);
  if (line.eat("check")) return check(line);
  Cursor before = line;
  bool starts_word = !line.looks_at("%") && !line.looks_at("[");
  std::optional<Opcode> opcode = starts_word ? opcode_from_name(line.word()) : std::nullopt;
  if (opcode && *opcode > Opcode::local) return operation(line, *opcode, type);
  line = before;
  return operand(line);
}

Val Parser::local(Cursor& line, DType type) {
  int32_t number = line.numbered('l');
  use_local(number);
  return pool_.local(number, type);
}

Val Parser::load(Cursor& line, DType type) {
  int32_t buffer = line.numbered('b');
  sym::Expr place = index(line, line.bracketed());
  return pool_.load(buffer, type, place, mask(line));
}

Val Parser::mask(Cursor& line) {
  Val found = line.eat("if") ? operand(line) : nullptr;
  if (found != nullptr && found->dtype != DType::boolean) line.fail("a mask is bool");
  return found;
}

Val Parser::element(Cursor& line, DType type) {
  int32_t tensor = line.numbered('v');
  std::vector<sym::Expr> at;
  for (std::string_view part : parts_of(line.bracketed())) at.push_back(index(line, part));
  return pool_.element(tensor, type, std::move(at), mask(line));
}

Val Parser::check(Cursor& line) {
  std::vector<Val> args = operands(line, 2);
  line.expect(",");
  line.expect("error");
  int64_t number = line.integer();
  if (number < 0 || number > 1'000'000) line.fail("error number out of range");
  return pool_.check(args[0], args[1], static_cast<int32_t>(number));
}

Val Parser::pack(Cursor& line) {
  std::vector<Val> parts{operand(line)};
  while (line.eat(",")) parts.push_back(operand(line));
  const DType type = parts[0]->dtype;
  const bool alike = std::ranges::all_of(parts, [&](Val part) { return part->dtype == type; });
  if (!alike || !is_int(type) || size_of(type) * static_cast<int64_t>(parts.size()) != 4 ||
      parts.size() == 1)
    line.fail("a pack is of integers of one type, four of 8 bits or two of 16,");
  return pool_.pack(std::move(parts));
}

Val Parser::operation(Cursor& line, Opcode opcode, DType type) {
  if (opcode == Opcode::cast) return pool_.cast(operand(line), type);
  if (opcode == Opcode::bitcast) {
    Val value = operand(line);
    if (size_of(value->dtype) != size_of(type)) line.fail("bitcast to another size");
    return pool_.bitcast(value, type);
  }
  if (opcode == Opcode::pack) return pack(line);
  if (opcode == Opcode::philox) {
    std::vector<Val> args = operands(line, 3);
    return pool_.philox(args[0], args[1], args[2]);
  }
  if (opcode == Opcode::fma) {
    std::vector<Val> args = operands(line, 3);
    bool equal = args[0]->dtype == args[1]->dtype && args[1]->dtype == args[2]->dtype;
    if (!equal) line.fail("the operands of an fma have one type");
    return pool_.fma(args[0], args[1], args[2]);
  }
  if (opcode == Opcode::select) {
    std::vector<Val> args = operands(line, 3);
    if (args[0]->dtype != DType::boolean) line.fail("the condition of a select is bool");
    if (args[1]->dtype != args[2]->dtype) line.fail("the arms of a select have one type");
    return pool_.select(args[0], args[1], args[2]);
  }
  if (opcode < Opcode::add) return pool_.unary(opcode, operand(line));
  std::vector<Val> args = operands(line, 2);
  if (args[0]->dtype != args[1]->dtype)
    line.fail(std::string(name_of(opcode)) + " of " + std::string(name_of(args[0]->dtype)) +
              " and " + std::string(name_of(args[1]->dtype)));
  return pool_.binary(opcode, args[0], args[1]);
}

std::vector<Val> Parser::operands(Cursor& line, size_t count) {
  std::vector<Val> result;
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) line.expect(",");
    result.push_back(operand(line));
  }
  return result;
}

Val Parser::operand(Cursor& line) {
  if (line.looks_at("[")) return pool_.index(index(line, line.bracketed()));
  if (!line.looks_at("%")) return constant(line);
  std::unordered_map<int32_t, Val>::iterator found = values_.find(line.numbered('%'));
  if (found == values_.end()) line.fail("an undefined value before");
  return found->second;
}

Val Parser::constant(Cursor& line) {
  DType type = dtype(line);
  line.expect("(");
  std::string_view text = line.until(")");
  line.expect(")");
  if (type == DType::boolean) {
    if (text != "true" && text != "false") line.fail("expected true or false before");
    return pool_.integer(type, text == "true");
  }
  return number(line, type, text);
}

template <class T>
T read_number(Cursor& line, std::string_view text) {
  T value = 0;
  std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size())
    line.fail("`" + std::string(text) + "` is no number of that type, before");
  return value;
}

Val Parser::number(Cursor& line, DType type, std::string_view text) {
  if (!is_float(type)) {
    int64_t integer = read_number<int64_t>(line, text);
    Val result = pool_.integer(type, integer);
    if (result->integer != integer) line.fail("number out of range before");
    return result;
  }
  if (text.starts_with("nan.")) {
    uint64_t bits = read_number<uint64_t>(line, text.substr(4));
    return pool_.constant(type, std::bit_cast<double>(bits));
  }
  if (type == DType::f64) return pool_.constant(type, read_number<double>(line, text));
  return pool_.constant(type, static_cast<double>(read_number<float>(line, text)));
}

}  // namespace

std::optional<Combiner> combiner_from_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Combiner::all); ++i)
    if (name_of(static_cast<Combiner>(i)) == name) return static_cast<Combiner>(i);
  return std::nullopt;
}

Kernel parse_kernel(std::string_view text, int first_line) {
  return Parser().run(text, first_line);
}

}  // namespace tandem::loop
