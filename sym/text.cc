// Text of symbolic expressions, both ways. Problem: what is printed must parse back to the same
// node, and read like a formula. Approach: precedence climbing in both directions over three levels
// (sums, products and divisions, atoms); products print the constant last, `%` inside a product
// keeps parentheses because its spaces mislead.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>

#include "base/check.h"
#include "sym/linear.h"
#include "sym/sym.h"

namespace tandem::sym {
namespace {

constexpr int kMaxDepth = 200;
// Of things that are not known: a product or quotient with hundreds of factors is as deep as it is
// long, and the time to simplify it grows with its square. Sums have no such limit.
constexpr int kMaxProducts = 200;

void print(Expr e, std::string& out);

bool is_division(Expr e) { return e.kind() == Kind::floor_div || e.kind() == Kind::mod; }

bool is_negative(Expr e) { return e.is_constant() && *e.constant() < 0; }

void print_wrapped(Expr e, bool wrap, std::string& out) {
  if (wrap) out += '(';
  print(e, out);
  if (wrap) out += ')';
}

/// A symbol, with a coefficient or without.
bool is_simple(Expr term) {
  if (term.kind() != Kind::mul) return term.is_symbol();
  return term.args().size() == 2 && term.args()[0].is_constant() && term.args()[1].is_symbol();
}

/// Operands stand in the order in which they were made. A reader makes symbols in the same order,
/// but what is made of them as it comes to it, which may be another one. So symbols come first, as
/// they are, then the others by their text, then the constant.
std::vector<Expr> in_order(std::span<const Expr> operands) {
  std::vector<Expr> ordered;
  std::vector<std::pair<std::string, Expr>> made;
  std::ranges::copy_if(operands, std::back_inserter(ordered), is_simple);
  for (const Expr& each : operands)
    if (!is_simple(each) && !each.is_constant()) print(each, made.emplace_back("", each).first);
  const auto by_text = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::ranges::sort(made, by_text);
  for (const auto& [text, each] : made) ordered.push_back(each);
  for (const Expr& each : operands)
    if (each.is_constant()) ordered.push_back(each);
  return ordered;
}

void print_factor(Expr e, bool first, std::string& out) {
  const bool quotient_first = first && e.kind() == Kind::floor_div;
  print_wrapped(e, e.kind() == Kind::add || (is_division(e) && !quotient_first), out);
}

/// coefficient * factors without a sign of its own. Only `-1` is dropped by the caller's minus.
void print_product(std::span<const Expr> operands, uint64_t coefficient, bool after_sign,
                   std::string& out) {
  const std::vector<Expr> factors = in_order(operands);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (i != 0) out += '*';
    print_factor(factors[i], i == 0 && !after_sign, out);
  }
  if (coefficient != 1) out += "*" + std::to_string(coefficient);
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

void print_mul(Expr e, std::string& out) {
  std::span<const Expr> args = e.args();
  if (!args[0].is_constant()) return print_product(args, 1, false, out);
  const int64_t coefficient = *args[0].constant();
  if (coefficient == INT64_MIN) {  // whose magnitude is no number to parse
    print_product(args.subspan(1), 1, false, out);
    out += "*" + std::to_string(coefficient);
    return;
  }
  if (coefficient < 0) out += '-';
  print_product(args.subspan(1), magnitude(coefficient), coefficient < 0, out);
}

void print_later_term(Expr e, std::string& out) {
  const bool negative_product =
      e.kind() == Kind::mul && is_negative(e.args()[0]) && *e.args()[0].constant() != INT64_MIN;
  if (is_negative(e) && *e.constant() != INT64_MIN) {
    out += " - " + std::to_string(magnitude(*e.constant()));
  } else if (negative_product) {
    std::span<const Expr> factors = e.args().subspan(1);
    const uint64_t coefficient = magnitude(*e.args()[0].constant());
    out += " - ";
    if (factors.size() == 1 && coefficient == 1) return print_wrapped(factors[0], false, out);
    print_product(factors, coefficient, false, out);
  } else {
    out += " + ";
    print(e, out);
  }
}

void print_division(Expr e, std::string& out) {
  const Expr a = e.args()[0];
  const Expr b = e.args()[1];
  print_wrapped(a, a.kind() == Kind::add || a.kind() == Kind::mod, out);
  out += e.kind() == Kind::mod ? " % " : "//";
  print_wrapped(b, b.kind() == Kind::add || b.kind() == Kind::mul || is_division(b), out);
}

/// In the order in which the operands were made: which of them is the largest is proven from what
/// was made last, so one that is read in another order may turn out to be simpler.
void print_extremum(Expr e, std::string& out) {
  out += e.kind() == Kind::min ? "min(" : "max(";
  for (size_t i = 0; i < e.args().size(); ++i) {
    if (i != 0) out += ", ";
    print(e.args()[i], out);
  }
  out += ')';
}

bool is_taken_away(Expr term) { return term.kind() == Kind::mul && is_negative(term.args()[0]); }

/// What is taken away behind the rest, so that few formulas begin with a minus.
void print_sum(std::span<const Expr> operands, std::string& out) {
  std::vector<Expr> terms = in_order(operands);
  const auto constant = terms.end() - (terms.back().is_constant() ? 1 : 0);
  std::stable_partition(terms.begin(), constant, std::not_fn(is_taken_away));
  print(terms[0], out);
  for (const Expr& term : std::span(terms).subspan(1)) print_later_term(term, out);
}

void print(Expr e, std::string& out) {
  switch (e.kind()) {
    case Kind::constant: out += std::to_string(*e.constant()); return;
    case Kind::symbol: out += e.name(); return;
    case Kind::add: print_sum(e.args(), out); return;
    case Kind::mul: print_mul(e, out); return;
    case Kind::floor_div:
    case Kind::mod: print_division(e, out); return;
    case Kind::min:
    case Kind::max: print_extremum(e, out); return;
  }
}

class Parser {
 public:
  Parser(Pool& pool, std::string_view text) : pool_(pool), text_(text) {}

  std::optional<Expr> run() {
    std::optional<Expr> result = parse_sum();
    skip_spaces();
    if (result.has_value() && at_ != text_.size()) return fail("unexpected text");
    return result;
  }
  const std::string& error() const { return error_; }

 private:
  std::optional<Expr> parse_sum();
  std::optional<Expr> parse_product();
  std::optional<Expr> parse_unary();
  std::optional<Expr> parse_atom();
  std::optional<Expr> parse_integer(bool negative);
  std::optional<Expr> parse_name();
  std::optional<Expr> parse_extremum(bool is_min);
  std::optional<Expr> divide(Expr a, Expr b, bool is_mod);
  bool count_product(Expr a, Expr b);
  bool eat(std::string_view token);
  bool at_digit() const;
  void skip_spaces();
  std::nullopt_t fail(std::string_view what);

  Pool& pool_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  int products_ = 0;
  std::string error_;
};

void Parser::skip_spaces() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
}

bool Parser::eat(std::string_view token) {
  skip_spaces();
  if (!text_.substr(at_).starts_with(token)) return false;
  at_ += token.size();
  return true;
}

// The first failure is the one that is reported.
std::nullopt_t Parser::fail(std::string_view what) {
  if (error_.empty()) {
    error_ = std::string(what) + " at column " + std::to_string(at_ + 1) + " of `" +
             std::string(text_) + "`";
  }
  return std::nullopt;
}

std::optional<Expr> Parser::parse_sum() {
  std::optional<Expr> result = parse_product();
  while (result.has_value()) {
    const bool minus = eat("-");
    if (!minus && !eat("+")) break;
    const std::optional<Expr> right = parse_product();
    if (!right.has_value()) return std::nullopt;
    result = minus ? *result - *right : *result + *right;
  }
  return result;
}

std::optional<Expr> Parser::parse_product() {
  std::optional<Expr> result = parse_unary();
  while (result.has_value()) {
    const bool times = eat("*");
    const bool quotient = !times && eat("//");
    if (!times && !quotient && !eat("%")) break;
    const std::optional<Expr> right = parse_unary();
    if (!right.has_value()) return std::nullopt;
    if (!count_product(*result, *right)) return std::nullopt;
    result = times ? std::optional<Expr>(*result * *right) : divide(*result, *right, !quotient);
  }
  return result;
}

bool Parser::count_product(Expr a, Expr b) {
  if (a.is_constant() || b.is_constant() || ++products_ <= kMaxProducts) return true;
  fail("too many products, quotients and extrema of symbols");
  return false;
}

std::optional<Expr> Parser::divide(Expr a, Expr b, bool is_mod) {
  if (b.is_constant() && *b.constant() <= 0) return fail("divisor is not positive");
  return is_mod ? mod(a, b) : floor_div(a, b);
}

std::optional<Expr> Parser::parse_unary() {
  bool negative = false;
  while (eat("-")) negative = !negative;
  skip_spaces();
  if (at_digit()) return parse_integer(negative);
  const std::optional<Expr> value = parse_atom();
  if (!value.has_value() || !negative) return value;
  return -*value;
}

std::optional<Expr> Parser::parse_atom() {
  if (eat("(")) {
    if (++depth_ > kMaxDepth) return fail("too deep");
    const std::optional<Expr> value = parse_sum();
    --depth_;
    if (value.has_value() && !eat(")")) return fail("expected `)`");
    return value;
  }
  if (at_ == text_.size()) return fail("expected an expression");
  return parse_name();
}

bool Parser::at_digit() const {
  return at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0;
}

// With its sign: the lowest number has no positive counterpart.
std::optional<Expr> Parser::parse_integer(bool negative) {
  uint64_t magnitude = 0;
  const char* begin = text_.data() + at_;
  const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), magnitude);
  const uint64_t most = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (code != std::errc() || magnitude > most) return fail("number out of range");
  at_ += static_cast<size_t>(end - begin);
  return Expr(static_cast<int64_t>(negative ? 0 - magnitude : magnitude));
}

std::optional<Expr> Parser::parse_name() {
  const auto is_letter = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto continues = [&](char c) {
    return is_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '$';
  };
  if (!is_letter(text_[at_])) return fail("expected an expression");
  const size_t begin = at_;
  while (at_ < text_.size() && continues(text_[at_])) ++at_;
  const std::string_view name = text_.substr(begin, at_ - begin);
  if ((name == "min" || name == "max") && eat("(")) return parse_extremum(name == "min");
  if (name == "inf" || name == "nan") return fail("this is a number of floats, and no size");
  return pool_.symbol(name);
}

std::optional<Expr> Parser::parse_extremum(bool is_min) {
  if (++depth_ > kMaxDepth) return fail("too deep");
  std::optional<Expr> result = parse_sum();
  while (result.has_value() && eat(",")) {
    const std::optional<Expr> right = parse_sum();
    if (!right.has_value() || !count_product(*result, *right)) return std::nullopt;
    result = is_min ? min(*result, *right) : max(*result, *right);
  }
  --depth_;
  if (result.has_value() && !eat(")")) return fail("expected `)`");
  return result;
}

std::string_view symbol_of(Guard::Relation relation) {
  switch (relation) {
    case Guard::Relation::eq: return " == ";
    case Guard::Relation::ne: return " != ";
    case Guard::Relation::lt: return " < ";
    case Guard::Relation::le: return " <= ";
  }
  return " ? ";
}

}  // namespace

std::string to_string(Expr e) {
  std::string text;
  print(e, text);
  return text;
}

std::optional<Expr> parse(Pool& pool, std::string_view text, std::string* error) {
  Parser parser(pool, text);
  const std::optional<Expr> result = parser.run();
  if (!result.has_value() && error != nullptr) *error = parser.error();
  return result;
}

std::string Guard::to_string() const {
  return sym::to_string(left) + std::string(symbol_of(relation)) + sym::to_string(right);
}

}  // namespace tandem::sym
