// Reads the text form through the builder, so that types are inferred and every argument is
// checked; a written type must agree with the inferred one. A line with an error is skipped and the
// rest is read on, so that all problems are reported at once.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/diagnostic.h"
#include "ir/autocast.h"
#include "ir/builder.h"
#include "ir/lexer.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace tandem::ir {
namespace {

class Parser : private TokenReader {
 public:
  Parser(std::string_view text, const OpTable& ops) : TokenReader(tokenize(text)), text_(text) {
    module_ = std::make_unique<Module>(ops);
  }

  std::unique_ptr<Module> parse() {
    try {
      while (peek().kind != Token::Kind::end) parse_graph();
    } catch (const UserError& error) {
      problems_.add(error);  // behind what earlier lines had
    }
    problems_.finish();
    return std::move(module_);
  }

 private:
  // --- graphs ---------------------------------------------------------------------------------

  void parse_graph() {
    expect("graph");
    expect("@");
    std::string name(expect(Kind::name, "a graph name"));
    if (module_->find(name) != nullptr) fail("graph @" + name + " is defined twice");
    graph_ = &module_->add_graph(name);
    values_.clear();
    parse_where_ahead();
    expect("(");
    narrow_sizes();
    while (!accept(")")) {
      parse_input();
      if (!at(")")) expect(",");
    }
    parse_graph_role();
    skip_where();
    expect("{");
    while (!at("return")) parse_line();
    parse_return();
    expect("}");
  }

  /// `backward of @f`: a text may hold @f or not, and holds one backward of it.
  void parse_graph_role() {
    for (GraphRole::Kind kind : {GraphRole::Kind::setup, GraphRole::Kind::backward}) {
      if (!accept(name_of(kind))) continue;
      expect("of");
      expect("@");
      GraphRole role{kind, std::string(expect(Kind::name, "a graph name"))};
      const Graph* of = module_->find(role.of);
      if (of == graph_ || (of != nullptr && module_->find(kind, *of) != nullptr))
        fail(fmt::format("@{} cannot be the {} of @{}, which {}", graph_->name(), name_of(kind),
                         role.of, of == graph_ ? "it is itself" : "has one"));
      graph_->set_role(std::move(role));
    }
  }

  /// Ranges of symbols stand after the inputs that use them: read them first.
  void parse_where_ahead() {
    size_t back = at_;
    while (!at("{") || (peek(1).kind == Kind::name && (at_ == 0 || peek(1).text != "return") &&
                        is_role(peek(1).text))) {
      if (peek().kind == Kind::end || at("where")) break;
      ++at_;
    }
    if (accept("where")) parse_ranges();
    at_ = back;
  }

  static bool is_role(std::string_view word) {
    return word == "param" || word == "buffer" || word == "tangent" || word == "saved" ||
           word == "seed" || word == "token" || word == "input";
  }

  void parse_ranges() {
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

  /// A symbol belongs to the module: every range that is written for it holds.
  void narrow(std::string_view name, const sym::Range& range) {
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

  /// The size of an input is not negative, so neither is a symbol that is one. Expressions simplify
  /// by the ranges that their symbols have when they are read, so this is found out in a pool that
  /// goes away, before any is read; and again, as one range may make a symbol of what was none.
  void narrow_sizes() {
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

  /// Of all inputs.
  std::vector<sym::Expr> sizes_ahead(sym::Pool& pool) {
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

  void skip_where() {
    if (accept("where")) parse_ranges();
  }

  int64_t integer() {
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

  void parse_input() {
    std::string name(expect(Kind::value, "an input"));
    expect(":");
    Type type = parse_type(module_->pool());
    Role role = Role::input;
    std::string target;
    bool requires_grad = false;
    bool constant = false;
    Subject subject;
    if (accept("{")) {
      role = parse_role();
      if (role == Role::tangent && accept("of")) subject = parse_subject();
      if (peek().kind == Kind::string) target = std::string(next().text);
      requires_grad = accept("grad");
      constant = accept("constant");
      expect("}");
    }
    Value* input = graph_->add_input(name, std::move(type), role, target);
    input->requires_grad = requires_grad;
    input->constant = constant;
    input->subject = subject;
    define(name, input);
  }

  Role parse_role() {
    std::string_view word = expect(Kind::name, "a role");
    for (int i = 0; i <= static_cast<int>(Role::token); ++i)
      if (name_of(static_cast<Role>(i)) == word) return static_cast<Role>(i);
    fail(fmt::format("unknown role '{}'", word));
  }

  Subject parse_subject() {
    const bool is_output = accept("output");
    if (!is_output) expect("input");
    const int64_t number = integer();
    if (number < 0 || number > std::numeric_limits<uint32_t>::max())
      fail(fmt::format("{} is no number of an input or output", number));
    return {is_output ? Subject::Kind::output : Subject::Kind::input,
            static_cast<uint32_t>(number)};
  }

  /// A gradient is written with the name of its input, of this graph or of the forward one.
  Subject gradient_subject(const std::string& name) const {
    const bool is_backward = graph_->role().kind == GraphRole::Kind::backward;
    const Graph* of = is_backward ? module_->find(graph_->role().of) : graph_;
    if (of == nullptr) return {};
    for (const Value* input : of->inputs())
      if (input->name == name) return {Subject::Kind::input, input->index};
    return {};
  }

  void define(const std::string& name, Value* value) {
    if (!values_.emplace(name, value).second) fail("%" + name + " is defined twice");
  }

  Type parse_type(sym::Pool& pool) {
    std::string_view word = expect(Kind::name, "a type");
    if (word == "token") return {Type::Kind::token, DType::i64, Device::cpu, {}, {}};
    if (word == "handle") return {Type::Kind::handle, DType::i64, Device::cpu, {}, {}};
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

  Ints parse_sizes(sym::Pool& pool, std::string_view open, std::string_view close) {
    expect(open);
    Ints sizes;
    while (!accept(close)) {
      sizes.push_back(parse_expr(pool));
      if (!at(close)) expect(",");
    }
    return sizes;
  }

  /// An integer expression up to the next `,` or closing bracket at this depth, read by sym::parse.
  /// It ends with its line, as sym::parse knows no others: brackets that nobody closes must not
  /// make each of many bad lines as long as the rest of the text.
  sym::Expr parse_expr(sym::Pool& pool) {
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

  // --- nodes ----------------------------------------------------------------------------------

  struct Written {
    std::string name;
    std::optional<Type> type;
  };

  void parse_line() {
    if (peek().kind == Kind::end) fail("graph without a return");
    int line = peek().line;
    size_t start = at_;
    try {
      parse_node(line);
    } catch (const UserError& error) {
      if (!reads_broken_) add_problems(error, line);
      skip_line(start, line);
    }
    reads_broken_ = false;
  }

  void add_problems(const UserError& error, int line) {
    std::string at = fmt::format("line {}", line);
    if (!place_ahead(line).empty()) at += fmt::format(", {}", place_ahead(line));
    for (const Diagnostic& problem : error.problems()) problems_.add(problem.text, at);
  }

  /// The type that `{autocast bf16}` behind the call at hand names.
  std::optional<DType> autocast_ahead() const {
    for (size_t ahead = 0; at("{") && peek(ahead).kind != Kind::end; ++ahead) {
      if (peek(ahead).text == "}" || peek(ahead).text == "=") break;  // a next line, if not closed
      if (peek(ahead).text == "autocast") return dtype_from_name(peek(ahead + 1).text);
    }
    return std::nullopt;
  }

  /// What `loc` says at the end of the line.
  std::string_view place_ahead(int line) const {
    size_t ahead = 0;
    while (peek(ahead).kind != Kind::end && peek(ahead).line == line && peek(ahead).text != "loc")
      ++ahead;
    const bool has_place = peek(ahead).text == "loc" && peek(ahead + 2).kind == Kind::string;
    return has_place ? peek(ahead + 2).text : std::string_view();
  }

  /// Goes on after a bad line, or at the line that its call could not be continued on: what was
  /// read without an error is not read again. The results get unusable names, and lines that read
  /// them are bad too without a word.
  void skip_line(size_t start, int line) {
    const int next = std::max(peek().line, line + 1);
    at_ = start;
    bool is_result = true;
    while (peek().kind != Kind::end && peek().line < next) {
      if (at("=")) is_result = false;
      if (peek().kind == Kind::value && is_result) broken_.insert(std::string(peek().text));
      ++at_;
    }
  }

  void parse_node(int line) {
    std::vector<Written> written;
    while (peek().kind == Kind::value) {
      Written& result = written.emplace_back();
      result.name = std::string(next().text);
      if (accept(":")) result.type = parse_type(module_->pool());
      if (!accept(",")) break;
    }
    if (!written.empty()) expect("=");
    std::string op(expect(Kind::name, "an operator"));
    expect("(");
    std::vector<Arg> positional;
    std::vector<std::pair<std::string, Arg>> named;
    while (!accept(")")) {
      if (peek().kind == Kind::name && peek(1).text == "=") {
        std::string name(next().text);
        next();
        named.emplace_back(name, parse_arg());
      } else {
        positional.push_back(parse_arg());
      }
      if (!at(")")) expect(",");
    }
    Node* node = build(op, std::move(positional), named, written);
    parse_attributes(*node);
    if (node->origin.place.empty()) node->origin.place = "";
    bind_results(*node, written, line);
  }

  Node* build(const std::string& op, std::vector<Arg> positional,
              const std::vector<std::pair<std::string, Arg>>& named,
              const std::vector<Written>& written) {
    const Op* found = module_->ops().find(op);
    const bool is_typed = !written.empty() && std::all_of(written.begin(), written.end(),
                                                          [](const Written& w) { return w.type; });
    if (found != nullptr && found->types == nullptr && is_typed && named.empty()) {
      std::vector<Type> types;
      for (const Written& result : written) types.push_back(*result.type);
      for (const Type& type : types)
        if (!type.is_tensor()) fail(fmt::format("[{}] gives tensors alone", op));
      return Builder(*graph_).call_typed(*found, std::move(positional), std::move(types));
    }
    std::vector<Keyword> keywords;
    for (const std::pair<std::string, Arg>& entry : named)
      keywords.emplace_back(entry.first, entry.second);
    Builder builder(*graph_);
    const bool casts = found != nullptr && found->autocast != Autocast::none;
    if (std::optional<DType> dtype = autocast_ahead(); dtype && casts) {
      std::vector<Arg> args = complete_args(*found, std::move(positional), std::move(keywords));
      ir::autocast(builder, *found, args, *dtype);
      return builder.call(*found, std::move(args));
    }
    return builder.call(op, std::move(positional), std::move(keywords));
  }

  void bind_results(Node& node, const std::vector<Written>& written, int line) {
    if (written.size() != node.results.size())
      fail(fmt::format("{} has {} results, {} are named", node.op->name(), node.results.size(),
                       written.size()));
    for (size_t i = 0; i < written.size(); ++i) {
      Value* value = node.results[i];
      const bool fits = !written[i].type || written[i].type->same_elements(value->type);
      if (written[i].type && fits) value->type.strides = written[i].type->strides;
      if (!fits)
        problems_.add(fmt::format("[{}] result is {}, not {}", node.op->schema.full_name(),
                                  to_string(value->type), to_string(*written[i].type)),
                      fmt::format("line {}", line));
      bool is_number = std::isdigit(static_cast<unsigned char>(written[i].name[0]));
      if (!is_number) value->name = written[i].name;
      define(written[i].name, value);
    }
  }

  Arg parse_arg() {
    const Token& token = peek();
    if (token.kind == Kind::value) return read_value();
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

  Value* read_value() {
    std::string_view name = peek().text;
    std::map<std::string, Value*, std::less<>>::iterator it = values_.find(name);
    if (it != values_.end()) return ++at_, it->second;
    reads_broken_ = broken_.count(std::string(name)) != 0;
    fail(fmt::format("%{} is not defined", name));
  }

  /// No operator takes lists of lists: reading them would only nest as deep as the text does.
  Arg parse_list() {
    expect("[");
    std::vector<Arg> items;
    while (!accept("]")) {
      if (at("[")) fail("a list holds no lists");
      items.push_back(parse_arg());
      if (!at("]")) expect(",");
    }
    return list_of(items);
  }

  Arg list_of(const std::vector<Arg>& items) const {
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

  Arg list_of_values(const std::vector<Arg>& items) const {
    Values list;
    for (const Arg& item : items) {
      Value* const* value = std::get_if<Value*>(&item);
      if (value == nullptr && !std::holds_alternative<None>(item))
        fail("a list mixes kinds of elements");
      list.push_back(value == nullptr ? nullptr : *value);
    }
    return list;
  }

  Arg list_of_floats(const std::vector<Arg>& items) const {
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

  void parse_attributes(Node& node) {
    if (accept("{")) {
      while (!accept("}")) {
        parse_attribute(node, expect(Kind::name, "an attribute"));
        if (!at("}")) expect(",");
      }
    }
    if (accept("loc")) {
      expect("(");
      node.origin.place = std::string(expect(Kind::string, "a place"));
      expect(")");
    }
  }

  void parse_attribute(Node& node, std::string_view word) {
    if (word == "no_grad") {
      node.no_grad = true;
    } else if (word == "backward") {
      node.backward = true;
    } else if (word == "autocast") {  // build has made its casts
      std::optional<DType> dtype = dtype_from_name(expect(Kind::name, "a dtype"));
      if (dtype != DType::bf16 && dtype != DType::f16) fail("autocast is to bf16 or f16");
    } else if (word == "region") {
      node.region = static_cast<int32_t>(integer());
    } else if (word == "must_recompute") {
      node.policy = RecomputePolicy::must_recompute;
    } else if (word == "prefer_recompute") {
      node.policy = RecomputePolicy::prefer_recompute;
    } else if (word == "prefer_save") {
      node.policy = RecomputePolicy::prefer_save;
    } else if (word == "must_save") {
      node.policy = RecomputePolicy::must_save;
    } else {
      fail(fmt::format("unknown attribute '{}'", word));
    }
  }

  void parse_return() {
    int line = peek().line;
    expect("return");
    while (!at("}")) {
      OutputKind kind = OutputKind::output;
      for (int i = 1; i <= static_cast<int>(OutputKind::saved_size); ++i)
        if (accept(name_of(static_cast<OutputKind>(i)))) kind = static_cast<OutputKind>(i);
      std::string name;
      if (peek().kind == Kind::string) name = std::string(next().text);
      const Subject subject = kind == OutputKind::gradient ? gradient_subject(name) : Subject();
      if (accept("none")) {
        graph_->add_output({nullptr, kind, name, {}, subject});
      } else {
        if (peek().kind != Kind::value) expect(Kind::value, "a value");
        bool is_broken = broken_.count(std::string(peek().text)) != 0;
        Value* value = is_broken ? (next(), nullptr) : read_value();
        std::vector<int64_t> order = parse_order(value);
        if (value != nullptr) graph_->add_output({value, kind, name, std::move(order), subject});
      }
      if (!at("}")) expect(",");
    }
    for (const Diagnostic& problem : verify(*graph_))
      problems_.add(problem.text, fmt::format("line {}", line));
  }

  /// `order [0, 2, 3, 1]`: a permutation of the value's dimensions.
  std::vector<int64_t> parse_order(const Value* value) {
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

  std::string_view text_;
  std::unique_ptr<Module> module_;
  std::map<std::string, sym::Range> ranges_;  // of symbols
  Graph* graph_ = nullptr;
  std::map<std::string, Value*, std::less<>> values_;
  std::set<std::string> broken_;
  bool reads_broken_ = false;  // the line at hand
  Diagnostics problems_;
};

}  // namespace

std::unique_ptr<Module> parse_module(std::string_view text, const OpTable& ops) {
  return Parser(text, ops).parse();
}

}  // namespace tandem::ir
