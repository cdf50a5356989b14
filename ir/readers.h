// The layers under the parser of graphs: types, arguments, and what stands before a graph's body.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/lexer.h"
#include "ir/text.h"

namespace tandem::ir {

/// Types and integer expressions.
class TypeReader : protected TokenReader {
 protected:
  explicit TypeReader(std::string_view text) : TokenReader(tokenize(text)), text_(text) {}

  static bool is_role(std::string_view word);
  int64_t integer();
  Type parse_type(sym::Pool& pool);
  Ints parse_sizes(sym::Pool& pool, std::string_view open, std::string_view close);
  /// An integer expression up to the next `,` or closing bracket at this depth, read by sym::parse.
  /// It ends with its line, as sym::parse knows no others: brackets that nobody closes must not
  /// make each of many bad lines as long as the rest of the text.
  sym::Expr parse_expr(sym::Pool& pool);

 private:
  std::string_view text_;
};

/// Arguments of calls, the values that they name, and what is said behind a call.
class ArgReader : protected TypeReader {
 protected:
  ArgReader(std::string_view text, const OpTable& ops)
      : TypeReader(text), module_(std::make_unique<Module>(ops)) {}

  /// Before anything is read.
  void bind(const Bindings& bindings);
  void define(const std::string& name, Value* value);
  Arg parse_arg();
  Value* read_value();
  /// A number from 0 to 1.
  double parse_share();
  /// `order [0, 2, 3, 1]`: a permutation of the value's dimensions.
  std::vector<int64_t> parse_order(const Value* value);
  /// The type that `{autocast bf16}` behind the call at hand names.
  std::optional<DType> autocast_ahead() const;
  /// What `loc` says at the end of the line.
  std::string_view place_ahead(int line) const;

  std::unique_ptr<Module> module_;
  std::map<std::string, Value*, std::less<>> values_;
  std::set<std::string> broken_;  // values of lines with errors
  bool reads_broken_ = false;     // the line at hand

 private:
  /// No operator takes lists of lists: reading them would only nest as deep as the text does.
  Arg parse_list();
  Arg list_of(const std::vector<Arg>& items) const;
  Arg list_of_values(const std::vector<Arg>& items) const;
  Arg list_of_floats(const std::vector<Arg>& items) const;

  std::map<std::string, double, std::less<>> floats_;  // values that are numbers as arguments
};

/// Inputs and ranges of symbols.
class SignatureReader : protected ArgReader {
 protected:
  using ArgReader::ArgReader;

  /// Ranges of symbols stand after the inputs that use them: read them first.
  void parse_where_ahead();
  /// The size of an input is not negative, so neither is a symbol that is one. Expressions simplify
  /// by the ranges that their symbols have when they are read, so this is found out in a pool that
  /// goes away, before any is read; and again, as one range may make a symbol of what was none.
  void narrow_sizes();
  void skip_where();
  void parse_input();
  Subject parse_subject();
  Writes parse_writes();
  Within parse_within();
  /// A gradient is written with the name of its input, of this graph or of the forward one.
  Subject gradient_subject(const std::string& name) const;

  Graph* graph_ = nullptr;

 private:
  void parse_ranges();
  /// A symbol belongs to the module: every range that is written for it holds.
  void narrow(std::string_view name, const sym::Range& range);
  /// Of all inputs.
  std::vector<sym::Expr> sizes_ahead(sym::Pool& pool);
  Role parse_role();

  std::map<std::string, sym::Range> ranges_;  // of symbols
};

}  // namespace tandem::ir
