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
#include "ir/data_sizes.h"
#include "ir/readers.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace tandem::ir {
namespace {

/// The symbol that stands for the size which only data tell; or what it must turn out to be.
sym::Expr written_size(const std::string& op, const Type& type, int64_t dim, sym::Pool& pool) {
  const size_t at = static_cast<size_t>(dim);
  if (at < type.sizes.size() && type.sizes[at].constant()) return type.sizes[at];
  if (at < type.sizes.size() && type.sizes[at].is_symbol())
    return pool.symbol(type.sizes[at].name(), {0, sym::Range::kMax});
  throw UserError(
      fmt::format("[{}] result is {}: only data tell size {}, which must be a symbol or a number",
                  op, to_string(type), dim));
}

class Parser : private SignatureReader {
 public:
  Parser(std::string_view text, const OpTable& ops, const Bindings& bindings = {})
      : SignatureReader(text, ops) {
    bind(bindings);
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
    for (GraphRole::Kind kind :
         {GraphRole::Kind::setup, GraphRole::Kind::backward, GraphRole::Kind::signature}) {
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
    for (const Diagnostic& problem : error.problems())
      problems_.add({problem.text, at, problem.unknown});
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
    std::vector<Keyword> keywords;
    for (const std::pair<std::string, Arg>& entry : named)
      keywords.emplace_back(entry.first, entry.second);
    if (found != nullptr && found->data_sized.dim != nullptr && is_typed) {
      std::vector<Arg> args = complete_args(*found, std::move(positional), std::move(keywords));
      if (const int64_t dim = data_dim(*found, args); dim >= 0) {
        const sym::Expr size = written_size(op, *written[0].type, dim, module_->pool());
        std::vector<Type> types = data_sized_types(*found, args, size);
        return Builder(*graph_).call_typed(*found, std::move(args), std::move(types));
      }
      return Builder(*graph_).call(*found, std::move(args));
    }
    if (found != nullptr && found->types == nullptr && is_typed) {
      std::vector<Type> types;
      for (const Written& result : written) types.push_back(*result.type);
      for (const Type& type : types)
        if (!type.is_tensor()) fail(fmt::format("[{}] gives tensors alone", op));
      return Builder(*graph_).call_typed(
          *found, complete_args(*found, std::move(positional), std::move(keywords)),
          std::move(types));
    }
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
    } else if (word == "memory_budget") {
      node.memory_budget = parse_share();
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

  Diagnostics problems_;
};

}  // namespace

std::unique_ptr<Module> parse_module(std::string_view text, const OpTable& ops) {
  return Parser(text, ops).parse();
}

std::unique_ptr<Module> parse_module(std::string_view text, const OpTable& ops,
                                     const Bindings& bindings) {
  return Parser(text, ops, bindings).parse();
}

}  // namespace tandem::ir
