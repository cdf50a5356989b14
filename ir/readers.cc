// What a text says before and inside of its lines. Every error names its place; none is deeper than
// the text is: lists hold no lists, and expressions end with their line.
#include "ir/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/diagnostic.h"
#include "ir/text.h"

namespace tandem::ir {

bool TypeReader::is_role(std::string_view word) {
  return word == "param" || word == "buffer" || word == "tangent" || word == "saved" ||
         word == "seed" || word == "token" || word == "input" || word == "result" || word == "base";
}

int64_t TypeReader::integer() {
  bool negative = accept("-");
  std::string word = (negative ? "-" : "") + std::string(expect(Kind::number, "a number"));
  int64_t value = 0;
  const std::from_chars_result read =
      std::from_chars(word.data(), word.data() + word.size(), value);
  if (read.ec == std::errc::result_out_of_range)
    fail(fmt::format("{} does not fit into 64 bits", word));
  if (read.ptr != word.data() + word.size()) fail(fmt::format("'{}' is no integer", word));
  return value;
}

Type TypeReader::parse_type(sym::Pool& pool) {
  std::string_view word = expect(Kind::name, "a type");
  std::optional<DType> dtype = dtype_from_name(word);
  if (!dtype) fail(fmt::format("unknown type '{}'", word));
  if (!at("[")) return Type::scalar(*dtype);
  Type type = Type::tensor(*dtype, parse_sizes(pool, "[", "]"));
  for (const sym::Expr& size : type.sizes)
    if (size.range().hi < (size.is_constant() ? 0 : 1))
      fail("a size is negative: " + to_string(type));
  if (at("{") && !is_role(peek(1).text)) type.strides = parse_sizes(pool, "{", "}");
  if (!type.strides.empty() && type.strides.size() != type.sizes.size())
    fail("as many strides as sizes are needed: " + to_string(type));
  return type;
}

Ints TypeReader::parse_sizes(sym::Pool& pool, std::string_view open, std::string_view close) {
  expect(open);
  Ints sizes;
  while (!accept(close)) {
    sizes.push_back(parse_expr(pool));
    if (!at(close)) expect(",");
  }
  return sizes;
}

sym::Expr TypeReader::parse_expr(sym::Pool& pool) {
  const size_t first = at_;
  const int line = peek().line;
  size_t start = peek().offset;
  size_t end = start;
  int depth = 0;
  while (peek().kind != Kind::end && peek().line == line) {
    bool closing = at(")") || at("]") || at("}");
    if (depth == 0 && (closing || at(","))) break;
    depth += at("(") ? 1 : closing ? -1 : 0;
    end = peek().offset + peek().text.size() + (peek().kind == Kind::value ? 1 : 0);
    ++at_;
  }
  std::string error;
  std::string_view text = text_.substr(start, end - start);
  std::optional<sym::Expr> expr = sym::parse(pool, text, &error);
  if (expr) return *expr;
  at_ = first;  // the line to blame, and to go on behind
  fail(fmt::format("'{}' is no integer expression: {}", text, error));
}

void ArgReader::bind(const Bindings& bindings) {
  sym::Pool& pool = module_->pool();
  for (const auto& [name, number] : bindings.sizes) pool.bind(name, number);
  for (const auto& [name, other] : bindings.equal) pool.bind(name, pool.symbol(other));
  floats_.insert(bindings.floats.begin(), bindings.floats.end());
}

void ArgReader::define(const std::string& name, Value* value) {
  if (!values_.emplace(name, value).second) fail("%" + name + " is defined twice");
}

Arg ArgReader::parse_arg() {
  const Token& token = peek();
  if (token.kind == Kind::value) {
    const auto number = floats_.find(token.text);
    if (number != floats_.end()) return ++at_, number->second;
    return read_value();
  }
  if (token.kind == Kind::string) return std::string(next().text);
  if (at("[")) return parse_list();
  if (token.kind == Kind::name) {
    if (accept("none")) return None{};
    if (accept("true")) return true;
    if (accept("false")) return false;
    if (accept("inf")) return HUGE_VAL;
    if (accept("nan")) return std::nan("");
    if (std::optional<DType> dtype = dtype_from_name(token.text)) return ++at_, *dtype;
  }
  if (at("-") && peek(1).text == "inf") return at_ += 2, -HUGE_VAL;
  bool negative = at("-");
  const Token& number = peek(negative ? 1 : 0);
  bool is_float =
      number.kind == Kind::number && number.text.find_first_of(".eE") != std::string_view::npos;
  if (!is_float) return parse_expr(module_->pool());
  at_ += negative ? 2 : 1;
  double value = std::strtod(std::string(number.text).c_str(), nullptr);
  return negative ? -value : value;
}

double ArgReader::parse_share() {
  const Arg share = parse_arg();
  const double* number = std::get_if<double>(&share);
  const sym::Expr* whole = std::get_if<sym::Expr>(&share);
  const double value = number != nullptr  ? *number
                       : whole != nullptr ? static_cast<double>(whole->constant().value_or(-1))
                                          : -1;
  if (!(value >= 0 && value <= 1)) fail("a memory_budget of nodes is a number from 0 to 1");
  return value + 0.0;  // -0 is 0, as which it would be read again
}

Value* ArgReader::read_value() {
  std::string_view name = peek().text;
  std::map<std::string, Value*, std::less<>>::iterator it = values_.find(name);
  if (it != values_.end()) return ++at_, it->second;
  reads_broken_ = broken_.count(std::string(name)) != 0;
  fail(fmt::format("%{} is not defined", name));
}

Arg ArgReader::parse_list() {
  expect("[");
  std::vector<Arg> items;
  while (!accept("]")) {
    if (at("[")) fail("a list holds no lists");
    items.push_back(parse_arg());
    if (!at("]")) expect(",");
  }
  return list_of(items);
}

Arg ArgReader::list_of(const std::vector<Arg>& items) const {
  bool values = false;
  bool floats = false;
  for (const Arg& item : items) {
    values |= std::holds_alternative<Value*>(item);
    floats |= std::holds_alternative<double>(item);
  }
  if (values) return list_of_values(items);
  if (floats) return list_of_floats(items);
  Ints ints;
  for (const Arg& item : items) {
    const bool* flag = std::get_if<bool>(&item);
    if (flag == nullptr && !std::holds_alternative<sym::Expr>(item))
      fail("a list mixes kinds of elements");
    ints.push_back(flag != nullptr ? sym::Expr(*flag ? 1 : 0) : std::get<sym::Expr>(item));
  }
  return ints;
}

Arg ArgReader::list_of_values(const std::vector<Arg>& items) const {
  Values list;
  for (const Arg& item : items) {
    Value* const* value = std::get_if<Value*>(&item);
    if (value == nullptr && !std::holds_alternative<None>(item))
      fail("a list mixes kinds of elements");
    list.push_back(value == nullptr ? nullptr : *value);
  }
  return list;
}

Arg ArgReader::list_of_floats(const std::vector<Arg>& items) const {
  Floats list;
  for (const Arg& item : items) {
    const sym::Expr* expr = std::get_if<sym::Expr>(&item);
    if (expr != nullptr && expr->constant()) {
      list.push_back(static_cast<double>(*expr->constant()));
    } else if (std::holds_alternative<double>(item)) {
      list.push_back(std::get<double>(item));
    } else {
      fail("a list mixes kinds of elements");
    }
  }
  return list;
}

std::vector<int64_t> ArgReader::parse_order(const Value* value) {
  std::vector<int64_t> order;
  if (!accept("order")) return order;
  expect("[");
  while (!accept("]")) {
    order.push_back(integer());
    if (!at("]")) expect(",");
  }
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool fits = value == nullptr || static_cast<int64_t>(order.size()) == value->type.rank();
  for (size_t i = 0; i < sorted.size(); ++i) fits &= sorted[i] == static_cast<int64_t>(i);
  if (!fits) fail("an order names each dimension of its value once");
  return order;
}

std::optional<DType> ArgReader::autocast_ahead() const {
  for (size_t ahead = 0; at("{") && peek(ahead).kind != Kind::end; ++ahead) {
    if (peek(ahead).text == "}" || peek(ahead).text == "=") break;  // a next line, if not closed
    if (peek(ahead).text == "autocast") return dtype_from_name(peek(ahead + 1).text);
  }
  return std::nullopt;
}

std::string_view ArgReader::place_ahead(int line) const {
  size_t ahead = 0;
  while (peek(ahead).kind != Kind::end && peek(ahead).line == line && peek(ahead).text != "loc")
    ++ahead;
  const bool has_place = peek(ahead).text == "loc" && peek(ahead + 2).kind == Kind::string;
  return has_place ? peek(ahead + 2).text : std::string_view();
}

void SignatureReader::parse_where_ahead() {
  size_t back = at_;
  while (!at("{") || (peek(1).kind == Kind::name && (at_ == 0 || peek(1).text != "return") &&
                      is_role(peek(1).text))) {
    if (peek().kind == Kind::end || at("where")) break;
    ++at_;
  }
  if (accept("where")) parse_ranges();
  at_ = back;
}

void SignatureReader::parse_ranges() {
  do {
    std::string_view name = expect(Kind::name, "a symbol");
    expect("in");
    expect("[");
    sym::Range range;
    range.lo = integer();
    expect(",");
    range.hi = accept("inf") ? sym::Range::kMax : integer();
    expect("]");
    if (range.lo > range.hi)
      fail(fmt::format("range [{}, {}] of {} is empty", range.lo, range.hi, name));
    narrow(name, range);
  } while (accept(","));
}

void SignatureReader::narrow(std::string_view name, const sym::Range& range) {
  if (std::optional<sym::Expr> known = module_->pool().find_symbol(name)) {
    sym::Range before = known->range();
    if (range.lo > before.hi || range.hi < before.lo)
      fail(fmt::format("range [{}, {}] of {} contradicts [{}, {}]", range.lo, range.hi, name,
                       before.lo, before.hi));
  }
  sym::Range& all = ranges_[std::string(name)];
  all = {std::max(all.lo, range.lo), std::min(all.hi, range.hi)};
  module_->pool().symbol(name, range);
}

void SignatureReader::narrow_sizes() {
  const size_t back = at_;
  for (bool narrows = true; std::exchange(narrows, false); at_ = back) {
    sym::Pool pool;
    for (const auto& [name, range] : ranges_) pool.symbol(name, range);
    for (const sym::Expr& size : sizes_ahead(pool)) {
      if (!size.is_symbol() || size.range().lo >= 0) continue;
      narrow(size.name(), {0, sym::Range::kMax});
      pool.symbol(size.name(), {0, sym::Range::kMax});
      narrows = true;
    }
  }
}

std::vector<sym::Expr> SignatureReader::sizes_ahead(sym::Pool& pool) {
  std::vector<sym::Expr> sizes;
  while (!at(")") && peek().kind != Kind::end) {
    expect(Kind::value, "an input");
    expect(":");
    const Type type = parse_type(pool);
    sizes.insert(sizes.end(), type.sizes.begin(), type.sizes.end());
    while (!at(",") && !at(")") && peek().kind != Kind::end) next();  // the role
    accept(",");
  }
  return sizes;
}

void SignatureReader::skip_where() {
  if (accept("where")) parse_ranges();
}

void SignatureReader::parse_input() {
  std::string name(expect(Kind::value, "an input"));
  expect(":");
  Type type = parse_type(module_->pool());
  Role role = Role::input;
  std::string target;
  bool requires_grad = false;
  bool constant = false;
  bool zeros = false;
  Subject subject;
  Within within;
  Writes writes;
  if (accept("{")) {
    role = parse_role();
    if (accept("of")) subject = parse_subject();
    if (peek().kind == Kind::string) target = std::string(next().text);
    requires_grad = accept("grad");
    constant = accept("constant");
    zeros = accept("zeros");
    if (accept("within")) within = parse_within();
    if (accept("written")) writes = parse_writes();
    expect("}");
  }
  Value* input = graph_->add_input(name, std::move(type), role, target);
  input->requires_grad = requires_grad;
  input->constant = constant;
  input->zeros = zeros;
  input->subject = subject;
  input->within = within;
  input->writes = writes;
  define(name, input);
}

Role SignatureReader::parse_role() {
  std::string_view word = expect(Kind::name, "a role");
  for (int i = 0; i <= static_cast<int>(Role::base); ++i)
    if (name_of(static_cast<Role>(i)) == word) return static_cast<Role>(i);
  fail(fmt::format("unknown role '{}'", word));
}

/// `within %base at 4`; the base may stand behind what lies in it.
Within SignatureReader::parse_within() {
  Within within;
  within.base = std::string(expect(Kind::value, "a base"));
  expect("at");
  within.offset = integer();
  return within;
}

Writes SignatureReader::parse_writes() {
  Writes writes;
  writes.recorded = accept("recorded");
  writes.hidden = accept("hidden");
  writes.no_grad = accept("no_grad");
  writes.backward = accept("backward");
  if (!writes.any()) fail("written is recorded, hidden, no_grad or backward");
  return writes;
}

Subject SignatureReader::parse_subject() {
  const bool is_output = accept("output");
  if (!is_output) expect("input");
  const int64_t number = integer();
  if (number < 0 || number > std::numeric_limits<uint32_t>::max())
    fail(fmt::format("{} is no number of an input or output", number));
  return {is_output ? Subject::Kind::output : Subject::Kind::input, static_cast<uint32_t>(number)};
}

Subject SignatureReader::gradient_subject(const std::string& name) const {
  const bool is_backward = graph_->role().kind == GraphRole::Kind::backward;
  const Graph* of = is_backward ? module_->find(graph_->role().of) : graph_;
  if (of == nullptr) return {};
  for (const Value* input : of->inputs())
    if (input->name == name) return {Subject::Kind::input, input->index};
  return {};
}

}  // namespace tandem::ir
