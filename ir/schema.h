// ATen schemas: the exact text `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) ->
// Tensor`, parsed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "sym/sym.h"

namespace tandem::ir {

struct Value;

/// One argument of a node. A Scalar parameter holds an Expr, a double, a bool or a scalar Value*.
struct None {
  bool operator==(const None&) const = default;
};
using Ints = std::vector<sym::Expr>;
using Floats = std::vector<double>;
using Values = std::vector<Value*>;  // an entry is null in a Tensor?[] list
using Arg =
    std::variant<None, Value*, Values, sym::Expr, Ints, double, Floats, bool, std::string, DType>;

enum class ParamType : uint8_t {
  tensor,
  tensor_list,
  integer,
  int_list,
  floating,
  float_list,
  boolean,
  scalar,
  scalar_list,
  string,
  dtype,
  layout,
  device,
  memory_format,
  generator,
  graph,
  unknown,
};

struct Param {
  std::string name;
  ParamType type = ParamType::unknown;
  bool optional = false;          // `Tensor?`
  bool element_optional = false;  // `Tensor?[]`
  bool keyword_only = false;
  int64_t list_size = 0;  // `int[2]`: a single number stands for the whole list
  std::string alias;      // "a" of Tensor(a) and Tensor(a!), empty when none
  bool mutates = false;
  std::optional<Arg> default_value;
};

struct Schema {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor", empty for the default one
  std::vector<Param> params;
  struct Result {
    ParamType type = ParamType::tensor;
    std::string alias;
    bool mutates = false;
    std::string name;
  };
  std::vector<Result> results;

  int find(std::string_view param) const;  // -1 when absent
  /// "aten.add.Tensor", the name both IRs print.
  std::string dotted_name() const;
  /// "aten::add.Tensor", the name errors print.
  std::string full_name() const;
  bool mutates_anything() const;
  /// True when a result aliases a parameter without mutating it.
  bool is_view() const;
};

/// Parses schema text; throws UserError naming the column on malformed text.
Schema parse_schema(std::string_view text);

}  // namespace tandem::ir
