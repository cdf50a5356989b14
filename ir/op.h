// What the tensor graph knows of an operator: schema and type rule. The rest lives in ops/ behind
// `def`.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/schema.h"
#include "ir/type.h"

namespace tandem::ops {
struct OpDef;
}

namespace tandem::ir {

class Call;
/// Types of the results of a call; throws UserError on arguments that the op does not accept.
using TypeRule = std::vector<Type> (*)(const Call&);

/// Of an op that gives results of a size which only data tell: the dimension of its first result
/// that has it (-1: of this call all sizes follow from the operands), and the types of its results,
/// where `size` is that size.
struct DataSized {
  int64_t (*dim)(const Call&) = nullptr;
  std::vector<Type> (*types)(const Call&, sym::Expr size) = nullptr;
};

/// What an autocast region does with the float operands of a call: nothing, casts them to its
/// 16-bit type, the same but for the state `hx`, to f32, or to the widest of theirs.
enum class Autocast : uint8_t { none, lower, lower_factors, full, promote };

struct Op {
  Schema schema;
  TypeRule types = nullptr;
  const ops::OpDef* def = nullptr;
  /// For in-place and out= variants: the op they derive from, and the parameter that receives the
  /// result.
  const Op* functional = nullptr;
  Autocast autocast = Autocast::none;
  DataSized data_sized{};

  std::string name() const { return schema.dotted_name(); }
  bool is_view() const { return schema.is_view(); }
  bool mutates() const { return schema.mutates_anything(); }
};

/// All operators by dotted name. Filled once by ops/; read-only afterwards.
class OpTable {
 public:
  Op& add(Op op);
  /// By "aten.add.Tensor" or "aten::add.Tensor"; null when unknown.
  const Op* find(std::string_view name) const;
  /// In order of registration.
  const std::deque<Op>& ops() const { return ops_; }

 private:
  std::deque<Op> ops_;
  std::map<std::string, const Op*, std::less<>> by_name_;
};

/// A call's arguments by parameter name, for type rules, decompositions, gradients and lowerings.
class Call {
 public:
  Call(const Op& op, const std::vector<Arg>& args) : op_(&op), args_(&args) {}
  Call(const Op& op, const std::vector<Arg>& args, const Values& results)
      : op_(&op), args_(&args), results_(&results) {}

  const Op& op() const { return *op_; }
  const std::vector<Arg>& args() const { return *args_; }
  const Arg& arg(std::string_view name) const;
  bool has(std::string_view name) const;  // present in the schema and not none

  Value* value(std::string_view name) const;  // null when none
  const Type& type(std::string_view name) const;
  const Values& values(std::string_view name) const;
  sym::Expr integer(std::string_view name) const;
  /// An integer that must be known at compile time (a dimension number, a stride of a convolution).
  int64_t constant(std::string_view name) const;
  const Ints& ints(std::string_view name) const;
  std::vector<int64_t> constants(std::string_view name) const;
  bool boolean(std::string_view name) const;
  double floating(std::string_view name) const;  // from float or Scalar arguments
  std::string string(std::string_view name) const;
  DType dtype(std::string_view name, DType otherwise) const;
  /// A dimension number wrapped into [0, rank); UserError when out of range. 0-d accepts -1 and 0.
  int64_t dim(std::string_view name, int64_t rank) const;
  int64_t wrapped(int64_t dim, int64_t rank) const;
  /// Dimension list wrapped; empty or none means all. UserError on repeats.
  std::vector<int64_t> dims(std::string_view name, int64_t rank) const;

  Value* result(size_t i = 0) const;
  size_t result_count() const { return results_ == nullptr ? 0 : results_->size(); }

  /// Throws UserError `[aten::mm] text`.
  [[noreturn]] void fail(const std::string& text) const;
  /// Throws UserError `[aten::mm] what must be known when compiling: s0*2`, of which the diagnostic
  /// names the symbols.
  [[noreturn]] void fail_unknown(const std::string& what, sym::Expr size) const;
  /// `self f32[3, 4]`, for messages.
  std::string describe(std::string_view name) const;

 private:
  const Op* op_;
  const std::vector<Arg>* args_;
  const Values* results_ = nullptr;
};

/// Of a list of tensors or numbers.
size_t list_length(const Arg& list);
Arg list_element(const Arg& list, size_t i);

/// `5`, `0.5`, `[2, 3]`, `true`, `"mean"`, `f32`, `none`, `%x`: the form the parser reads.
std::string to_string(const Arg& arg);
std::string to_string(double number);

}  // namespace tandem::ir
