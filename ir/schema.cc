// A small recursive-descent parser for ATen schema text. Types that only steer eager (layout,
// device, generator, memory format) are kept as parameters so that calls in PyTorch's argument
// order fit.
#include "ir/schema.h"

#include <cctype>
#include <cstdlib>

#include "base/diagnostic.h"

namespace tandem::ir {
namespace {

constexpr int64_t kMostElements = 64;  // that a list has by its type: one number is that many

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  Schema parse() {
    Schema schema;
    schema.name = name_with("_:");
    if (accept(".")) schema.overload = name_with("_");
    expect("(");
    parse_params(schema);
    expect("->");
    parse_results(schema);
    skip_space();
    if (at_ != text_.size()) fail("text after the end");
    return schema;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError("schema `" + std::string(text_) + "`: " + what + " at column " +
                    std::to_string(at_ + 1));
  }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected `" + std::string(token) + "`");
  }
  std::string name_with(std::string_view extra) {
    skip_space();
    size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  extra.find(text_[at_]) != std::string_view::npos))
      ++at_;
    if (at_ == start) fail("expected a name");
    return std::string(text_.substr(start, at_ - start));
  }

  static ParamType type_of(const std::string& word) {
    static const std::pair<const char*, ParamType> kTypes[] = {
        {"Tensor", ParamType::tensor},
        {"int", ParamType::integer},
        {"SymInt", ParamType::integer},
        {"float", ParamType::floating},
        {"bool", ParamType::boolean},
        {"Scalar", ParamType::scalar},
        {"str", ParamType::string},
        {"ScalarType", ParamType::dtype},
        {"Layout", ParamType::layout},
        {"Device", ParamType::device},
        {"MemoryFormat", ParamType::memory_format},
        {"Generator", ParamType::generator},
        {"Graph", ParamType::graph},
    };
    for (const std::pair<const char*, ParamType>& entry : kTypes)
      if (word == entry.first) return entry.second;
    return ParamType::unknown;
  }

  ParamType list_of(ParamType element) const {
    switch (element) {
      case ParamType::tensor: return ParamType::tensor_list;
      case ParamType::integer:
      case ParamType::boolean: return ParamType::int_list;  // bool[3]: ones and zeros
      case ParamType::floating: return ParamType::float_list;
      case ParamType::scalar: return ParamType::scalar_list;
      default: fail("no list of that type");
    }
  }

  void parse_alias(std::string& alias, bool& mutates) {
    if (!accept("(")) return;
    alias = name_with("_*|");
    mutates = accept("!");
    if (accept("->") && !accept("*")) name_with("_|");  // what elements of a result list alias
    expect(")");
  }

  Param parse_type() {
    Param param;
    param.type = type_of(name_with("_"));
    if (param.type == ParamType::unknown) fail("unknown type");
    parse_alias(param.alias, param.mutates);
    bool optional = accept("?");
    if (accept("[")) {
      param.element_optional = optional;
      param.type = list_of(param.type);
      if (!accept("]")) {
        param.list_size = integer(name_with(""));
        if (param.list_size < 0 || param.list_size > kMostElements) fail("a list of that size");
        expect("]");
      }
      optional = accept("?");
    }
    param.optional = optional;
    return param;
  }

  void parse_params(Schema& schema) {
    bool keyword_only = false;
    while (!accept(")")) {
      if (accept("*")) {
        keyword_only = true;
      } else {
        Param param = parse_type();
        param.name = name_with("_");
        param.keyword_only = keyword_only;
        if (accept("=")) param.default_value = parse_default(param);
        schema.params.push_back(std::move(param));
      }
      accept(",");
    }
  }

  std::string default_word() {
    skip_space();
    size_t start = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ')' && text_[at_] != ']') ++at_;
    if (at_ == start) fail("expected a value");
    return std::string(text_.substr(start, at_ - start));
  }

  static int64_t integer(const std::string& word) {
    return std::strtoll(word.c_str(), nullptr, 10);
  }

  /// Of a list of integers; 0 for a word.
  int64_t entry(const std::string& word) const {
    const bool is_word = std::isalpha(static_cast<unsigned char>(word[0])) != 0;
    if (!is_word && word.find_first_of(".eE") != std::string::npos)
      fail("`" + word + "` is no whole number");
    return integer(word);
  }

  /// PyTorch writes a dtype as a word, or as its number.
  Arg dtype_default(const std::string& word) const {
    static const std::pair<const char*, DType> kDTypes[] = {
        {"long", DType::i64},    {"0", DType::u8},    {"1", DType::i8},       {"2", DType::i16},
        {"3", DType::i32},       {"4", DType::i64},   {"5", DType::f16},      {"6", DType::f32},
        {"7", DType::f64},       {"15", DType::bf16}, {"11", DType::boolean}, {"23", DType::f8e5m2},
        {"24", DType::f8e4m3fn},
    };
    for (const std::pair<const char*, DType>& entry : kDTypes)
      if (word == entry.first) return entry.second;
    fail("`" + word + "` is not a dtype");
  }

  Arg parse_default(const Param& param) {
    if (accept("[")) return parse_list_default(param);
    std::string word = default_word();
    if (word == "None" || word == "contiguous_format") return None{};
    if (param.type == ParamType::dtype) return dtype_default(word);
    if (word == "True") return true;
    if (word == "False") return false;
    if (word == "Mean") return sym::Expr(1);  // at::Reduction
    if (word.front() == '"' || word.front() == '\'') return word.substr(1, word.size() - 2);
    if (param.type == ParamType::int_list)
      return Ints(param.list_size ? param.list_size : 1, integer(word));
    bool is_integer = word.find_first_of(".eE") == std::string::npos;
    if (param.type != ParamType::floating && is_integer) return sym::Expr(integer(word));
    return std::strtod(word.c_str(), nullptr);
  }

  Arg parse_list_default(const Param& param) {
    Ints ints;
    Floats floats;
    const bool is_of_floats = param.type == ParamType::float_list;
    while (!accept("]")) {
      const std::string word = default_word();
      if (is_of_floats) floats.push_back(std::strtod(word.c_str(), nullptr));
      if (!is_of_floats) ints.push_back(entry(word));
      accept(",");
    }
    if (is_of_floats) return floats;
    return ints;
  }

  Schema::Result parse_result() {
    Param type = parse_type();
    Schema::Result result{type.type, type.alias, type.mutates, ""};
    skip_space();
    if (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_])))
      result.name = name_with("_");
    return result;
  }

  void parse_results(Schema& schema) {
    if (!accept("(")) {
      schema.results.push_back(parse_result());
      return;
    }
    while (!accept(")")) {
      schema.results.push_back(parse_result());
      accept(",");
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

int Schema::find(std::string_view param) const {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == param) return static_cast<int>(i);
  return -1;
}

std::string Schema::full_name() const { return overload.empty() ? name : name + "." + overload; }

std::string Schema::dotted_name() const {
  std::string text = full_name();
  size_t colons = text.find("::");
  return colons == std::string::npos ? text : text.replace(colons, 2, ".");
}

bool Schema::mutates_anything() const {
  for (const Param& param : params)
    if (param.mutates) return true;
  return false;
}

bool Schema::is_view() const {
  if (mutates_anything()) return false;
  for (const Result& result : results)
    if (!result.alias.empty()) return true;
  return false;
}

Schema parse_schema(std::string_view text) { return SchemaParser(text).parse(); }

}  // namespace tandem::ir
