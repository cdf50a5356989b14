// PyTorch has many operators twice: NumPy's names (multiply, arccos), those of Python's operators
// (__and__) and torch.special's. One line each: the alias has the original's schema, type rule and
// a couple of its samples, and decomposes into a call of it.
#include "ops/aliases.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "base/check.h"

namespace tandem::ops {
namespace {

// clang-format off: one line each
constexpr Alias kAliases[] = {
    {"multiply.Tensor", "mul.Tensor", Forms::both},
    {"multiply.Scalar", "mul.Scalar", Forms::inplace},
    {"subtract.Tensor", "sub.Tensor", Forms::both},
    {"subtract.Scalar", "sub.Scalar", Forms::inplace},
    {"divide.Tensor", "div.Tensor", Forms::both},
    {"divide.Scalar", "div.Scalar", Forms::inplace},
    {"true_divide.Tensor", "div.Tensor", Forms::both},
    {"true_divide.Scalar", "div.Scalar", Forms::inplace},
    {"divide.Tensor_mode", "div.Tensor_mode", Forms::both},
    {"divide.Scalar_mode", "div.Scalar_mode", Forms::inplace},
    {"greater.Tensor", "gt.Tensor", Forms::both},
    {"greater.Scalar", "gt.Scalar", Forms::both},
    {"greater_equal.Tensor", "ge.Tensor", Forms::both},
    {"greater_equal.Scalar", "ge.Scalar", Forms::both},
    {"less.Tensor", "lt.Tensor", Forms::both},
    {"less.Scalar", "lt.Scalar", Forms::both},
    {"less_equal.Tensor", "le.Tensor", Forms::both},
    {"less_equal.Scalar", "le.Scalar", Forms::both},
    {"not_equal.Tensor", "ne.Tensor", Forms::both},
    {"not_equal.Scalar", "ne.Scalar", Forms::both},
    {"negative", "neg", Forms::both},
    {"absolute", "abs", Forms::both},
    {"fix", "trunc", Forms::both},
    {"arccos", "acos", Forms::both},
    {"arccosh", "acosh", Forms::both},
    {"arcsin", "asin", Forms::both},
    {"arcsinh", "asinh", Forms::both},
    {"arctan", "atan", Forms::both},
    {"arctanh", "atanh", Forms::both},
    {"clip", "clamp", Forms::both},
    {"clip.Tensor", "clamp.Tensor", Forms::both},
    {"arctan2", "atan2", Forms::both},
    {"__and__.Tensor", "bitwise_and.Tensor", Forms::inplace},
    {"__and__.Scalar", "bitwise_and.Scalar", Forms::inplace},
    {"__or__.Tensor", "bitwise_or.Tensor", Forms::inplace},
    {"__or__.Scalar", "bitwise_or.Scalar", Forms::inplace},
    {"__xor__.Tensor", "bitwise_xor.Tensor", Forms::inplace},
    {"__xor__.Scalar", "bitwise_xor.Scalar", Forms::inplace},
    {"__lshift__.Tensor", "bitwise_left_shift.Tensor", Forms::inplace},
    {"__lshift__.Scalar", "bitwise_left_shift.Tensor_Scalar", Forms::inplace},
    {"__rshift__.Tensor", "bitwise_right_shift.Tensor", Forms::inplace},
    {"__rshift__.Scalar", "bitwise_right_shift.Tensor_Scalar", Forms::inplace},
    {"special_erf", "erf", Forms::out},
    {"special_erfc", "erfc", Forms::out},
    {"special_erfinv", "erfinv", Forms::out},
    {"special_exp2", "exp2", Forms::out},
    {"special_expm1", "expm1", Forms::out},
    {"special_log1p", "log1p", Forms::out},
    {"special_sinc", "sinc", Forms::out},
    {"special_logit", "logit", Forms::out},
    {"special_digamma", "digamma", Forms::out},
    {"special_i0", "i0", Forms::out},
    {"special_polygamma", "polygamma", Forms::out},
    {"special_expit", "sigmoid", Forms::out},
    {"special_psi", "digamma", Forms::out},
    {"special_gammaln", "lgamma", Forms::out},
    {"special_multigammaln", "mvlgamma", Forms::out},
    {"special_xlogy", "xlogy.Tensor", Forms::out, "out"},
    {"special_xlogy.other_scalar", "xlogy.Scalar_Other", Forms::out, "other_scalar_out"},
    {"special_xlogy.self_scalar", "xlogy.Scalar_Self", Forms::out, "self_scalar_out"},
};
// clang-format on

const std::string& original_of(const std::string& dotted) {
  static const std::map<std::string, std::string> kOriginals = [] {
    std::map<std::string, std::string> originals;
    for (const Alias& alias : kAliases)
      originals[fmt::format("aten.{}", alias.name)] = fmt::format("aten.{}", alias.of);
    return originals;
  }();
  return kOriginals.at(dotted);
}

Tensors call_original(ir::Builder& b, const ir::Call& c) {
  std::vector<Operand> operands(c.args().begin(), c.args().end());
  return call_many(b, original_of(c.op().name()), operands);
}

const ir::Op& original(const ir::OpTable& table, const Alias& alias) {
  const ir::Op* op = table.find(fmt::format("aten.{}", alias.of));
  TD_CHECK(op != nullptr) << "alias " << alias.name << " of an unknown op";
  return *op;
}

}  // namespace

std::span<const Alias> aliases() { return kAliases; }

ir::Schema alias_schema(const ir::OpTable& table, const Alias& alias) {
  ir::Schema schema = original(table, alias).schema;
  size_t dot = alias.name.find('.');
  schema.name = fmt::format("aten::{}", alias.name.substr(0, dot));
  schema.overload = dot == std::string_view::npos ? "" : alias.name.substr(dot + 1);
  return schema;
}

const OpDef& definition_of(const ir::OpTable& table, const Alias& alias) {
  static std::deque<OpDef> definitions;  // filled once
  constexpr size_t kSamples = 2;         // the original is tested with all of them
  OpDef def = def_of(original(table, alias));
  def.lower = nullptr;
  def.vjp = nullptr;
  def.decompose = call_original;
  def.samples.resize(std::min(def.samples.size(), kSamples));
  def.fast.clear();
  if (!alias.out_as.empty()) def.out_as = alias.out_as;
  def.inplace = alias.forms == Forms::inplace || alias.forms == Forms::both;
  def.out = alias.forms == Forms::out || alias.forms == Forms::both;
  definitions.push_back(std::move(def));
  return definitions.back();
}

}  // namespace tandem::ops
