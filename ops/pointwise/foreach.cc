// `_foreach_*`, the ops of torch's optimizers over lists of tensors: element i of the result is an
// ordinary op of the lists' elements i. One line each: the schema, and the op of an element.
// Whoever wants fewer launches finds independent kernels in the schedule, whatever ops they came
// from.
#include <fmt/format.h>

#include <deque>
#include <map>
#include <string>

#include "base/check.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

using ir::ParamType;

struct Foreach {
  std::string_view name;  // without `aten::`
  std::string_view params;
  std::string_view of;  // op of an element: parameters of equal names, else of equal places
  bool inplace;
  const Samples* samples;
  std::string_view result = "Tensor[]";
};

// Parameters.
constexpr std::string_view kSelf = "(Tensor[] self)";
constexpr std::string_view kLists = "(Tensor[] self, Tensor[] other)";
constexpr std::string_view kListsAlpha = "(Tensor[] self, Tensor[] other, *, Scalar alpha=1)";
constexpr std::string_view kScalar = "(Tensor[] self, Scalar scalar)";
constexpr std::string_view kScalars = "(Tensor[] self, Scalar[] scalars)";
constexpr std::string_view kByTensor = "(Tensor[] self, Tensor other)";
constexpr std::string_view kByTensorAlpha = "(Tensor[] self, Tensor other, *, Scalar alpha=1)";
constexpr std::string_view kThreeValue =
    "(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1)";
constexpr std::string_view kThreeScalars =
    "(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar[] scalars)";

// A list of one strided and one tensor without dimensions, an empty tensor, special values; lists
// that do not fit.
const Samples kOne = {"[$[4, 3]{1, 4}, $[]]", "[$[0, 2], $[33]:special, $[5]]", "[$[2]]"};
const Samples kPositive = {"[$[4, 3]{1, 4}:positive, $[]:positive]", "[$[0], $[33]:special]"};
const Samples kTwo = {"[$[4, 3]{1, 4}, $[]], [$[4, 3], $[]:positive]",
                      "[$[0, 2], $[33]], [$[0, 2], $[33]:special]", "[$[2]], [$[]:positive]",
                      "[$[2], $[2]], [$[2]]"};
const Samples kTwoAlpha = {"[$[4, 3]{1, 4}, $[]], [$[4, 3], $[]], alpha=0.5",
                           "[$[0, 2], $[33]], [$[0, 2], $[33]:special]", "[$[2]], [$[]], alpha=2"};
const Samples kPowers = {"[$[4, 3]:positive, $[]:positive], [$[4, 3], $[]]", "[$[0]], [$[0]]"};
const Samples kNumber = {"[$[4, 3]{1, 4}, $[]], 2", "[$[0, 2], $[33]:special], 0.5"};
const Samples kExponent = {"[$[4, 3]{1, 4}, $[]], 2", "[$[0, 2], $[33]:special], 3"};
const Samples kNumbers = {"[$[4, 3]{1, 4}, $[]], [2, 0.5]", "[$[0, 2], $[33]:special], [3, 2]",
                          "[$[2], $[2]], [1]"};
const Samples kTensor = {"[$[4, 3]{1, 4}, $[]], $[]:positive", "[$[0, 2], $[33]], $[]:positive"};
const Samples kTensorAlpha = {"[$[4, 3]{1, 4}, $[]], $[], alpha=2", "[$[0, 2], $[33]], $[]"};
const Samples kBase = {"0.9, [$[4, 3]{1, 4}, $[]]", "2, [$[0, 2], $[33]]"};
const Samples kThree = {
    "[$[4, 3]{1, 4}, $[]], [$[4, 3], $[]], [$[4, 3]:positive, $[]:positive], value=0.1",
    "[$[0], $[33]:special], [$[0], $[33]], [$[0], $[33]:positive]"};
const Samples kThreeNumbers = {
    "[$[4, 3]{1, 4}, $[]], [$[4, 3], $[]], [$[4, 3]:positive, $[]:positive], [0.1, 2]"};
const Samples kWeight = {"[$[4, 3]{1, 4}, $[]], [$[4, 3], $[]], 0.1", "[$[0]], [$[0]], 0.7"};
const Samples kWeights = {"[$[4, 3]{1, 4}, $[]], [$[4, 3], $[]], [$[4, 3]:unit, $[]:unit]"};
const Samples kWeightNumbers = {"[$[4, 3]{1, 4}, $[]], [$[4, 3], $[]], [0.1, 0.9]"};
const Samples kFilled = {"[$[4, 3]{1, 4}, $[]]", "[$[33]:special, $[5]]"};
const Samples kSources = {"[$[4, 3]{1, 4}, $[]], [f32[3], f64[]]",
                          "[$[0, 2], $[33]], [$[2], $[1]]"};
const Samples kNorms = {"[$[4, 3]{1, 4}, $[]]", "[$[33], $[5]], 1", "[$[33]], inf", "[$[4]], 3",
                        "[f32[4]], dtype=f64"};

const Foreach kForeach[] = {
    {"_foreach_add.List", kListsAlpha, "add.Tensor", true, &kTwoAlpha},
    {"_foreach_add.Scalar", kScalar, "add.Scalar", true, &kNumber},
    {"_foreach_add.ScalarList", kScalars, "add.Scalar", true, &kNumbers},
    {"_foreach_add.Tensor", kByTensorAlpha, "add.Tensor", true, &kTensorAlpha},
    {"_foreach_sub.List", kListsAlpha, "sub.Tensor", true, &kTwoAlpha},
    {"_foreach_sub.Scalar", kScalar, "sub.Scalar", true, &kNumber},
    {"_foreach_sub.ScalarList", kScalars, "sub.Scalar", true, &kNumbers},
    {"_foreach_mul.List", kLists, "mul.Tensor", true, &kTwo},
    {"_foreach_mul.Scalar", kScalar, "mul.Scalar", true, &kNumber},
    {"_foreach_mul.ScalarList", kScalars, "mul.Scalar", true, &kNumbers},
    {"_foreach_mul.Tensor", kByTensor, "mul.Tensor", true, &kTensor},
    {"_foreach_div.List", kLists, "div.Tensor", true, &kTwo},
    {"_foreach_div.Scalar", kScalar, "div.Scalar", true, &kNumber},
    {"_foreach_div.ScalarList", kScalars, "div.Scalar", true, &kNumbers},
    {"_foreach_div.Tensor", kByTensor, "div.Tensor", true, &kTensor},
    {"_foreach_maximum.List", kLists, "maximum", true, &kTwo},
    {"_foreach_maximum.Scalar", kScalar, "clamp_min", true, &kNumber},
    {"_foreach_maximum.ScalarList", kScalars, "clamp_min", true, &kNumbers},
    {"_foreach_minimum.List", kLists, "minimum", true, &kTwo},
    {"_foreach_minimum.Scalar", kScalar, "clamp_max", true, &kNumber},
    {"_foreach_minimum.ScalarList", kScalars, "clamp_max", true, &kNumbers},
    {"_foreach_clamp_min.List", kLists, "clamp_min.Tensor", true, &kTwo},
    {"_foreach_clamp_min.Scalar", kScalar, "clamp_min", true, &kNumber},
    {"_foreach_clamp_min.ScalarList", kScalars, "clamp_min", true, &kNumbers},
    {"_foreach_clamp_max.List", kLists, "clamp_max.Tensor", true, &kTwo},
    {"_foreach_clamp_max.Scalar", kScalar, "clamp_max", true, &kNumber},
    {"_foreach_clamp_max.ScalarList", kScalars, "clamp_max", true, &kNumbers},
    {"_foreach_pow.List", "(Tensor[] self, Tensor[] exponent)", "pow.Tensor_Tensor", true,
     &kPowers},
    {"_foreach_pow.Scalar", "(Tensor[] self, Scalar exponent)", "pow.Tensor_Scalar", true,
     &kExponent},
    {"_foreach_pow.ScalarList", "(Tensor[] self, Scalar[] exponent)", "pow.Tensor_Scalar", true,
     &kNumbers},
    {"_foreach_pow.ScalarAndTensor", "(Scalar self, Tensor[] exponent)", "pow.Scalar", false,
     &kBase},
    {"_foreach_addcmul.Scalar", kThreeValue, "addcmul", true, &kThree},
    {"_foreach_addcmul.ScalarList", kThreeScalars, "addcmul", true, &kThreeNumbers},
    {"_foreach_addcdiv.Scalar", kThreeValue, "addcdiv", true, &kThree},
    {"_foreach_addcdiv.ScalarList", kThreeScalars, "addcdiv", true, &kThreeNumbers},
    {"_foreach_lerp.List", "(Tensor[] self, Tensor[] tensors1, Tensor[] weights)", "lerp.Tensor",
     true, &kWeights},
    {"_foreach_lerp.Scalar", "(Tensor[] self, Tensor[] tensors1, Scalar weight)", "lerp.Scalar",
     true, &kWeight},
    {"_foreach_lerp.ScalarList", "(Tensor[] self, Tensor[] tensors1, Scalar[] weight)",
     "lerp.Scalar", true, &kWeightNumbers},
    {"_foreach_norm.Scalar", "(Tensor[] self, Scalar ord=2, ScalarType? dtype=None)",
     "linalg_vector_norm", false, &kNorms},
    {"_foreach_max", kSelf, "max", false, &kFilled},
    {"_foreach_copy", "(Tensor[] self, Tensor[] src, bool non_blocking=False)", "copy", true,
     &kSources, "Tensor[] self_out"},
    {"_foreach_clone", "(Tensor[] self, *, MemoryFormat? memory_format=None)", "clone", false,
     &kOne},
    {"_foreach_zero", kSelf, "zero", true, &kOne, "Tensor[] self_out"},
    {"_foreach_abs", kSelf, "abs", true, &kOne},
    {"_foreach_acos", kSelf, "acos", true, &kOne},
    {"_foreach_asin", kSelf, "asin", true, &kOne},
    {"_foreach_atan", kSelf, "atan", true, &kOne},
    {"_foreach_ceil", kSelf, "ceil", true, &kOne},
    {"_foreach_cos", kSelf, "cos", true, &kOne},
    {"_foreach_cosh", kSelf, "cosh", true, &kOne},
    {"_foreach_erf", kSelf, "erf", true, &kOne},
    {"_foreach_erfc", kSelf, "erfc", true, &kOne},
    {"_foreach_exp", kSelf, "exp", true, &kOne},
    {"_foreach_expm1", kSelf, "expm1", true, &kOne},
    {"_foreach_floor", kSelf, "floor", true, &kOne},
    {"_foreach_frac", kSelf, "frac", true, &kOne},
    {"_foreach_lgamma", kSelf, "lgamma", true, &kPositive},
    {"_foreach_log", kSelf, "log", true, &kPositive},
    {"_foreach_log10", kSelf, "log10", true, &kPositive},
    {"_foreach_log1p", kSelf, "log1p", true, &kPositive},
    {"_foreach_log2", kSelf, "log2", true, &kPositive},
    {"_foreach_neg", kSelf, "neg", true, &kOne},
    {"_foreach_reciprocal", kSelf, "reciprocal", true, &kOne},
    {"_foreach_round", kSelf, "round", true, &kOne},
    {"_foreach_rsqrt", kSelf, "rsqrt", true, &kPositive},
    {"_foreach_sigmoid", kSelf, "sigmoid", true, &kOne},
    {"_foreach_sign", kSelf, "sign", true, &kOne},
    {"_foreach_sin", kSelf, "sin", true, &kOne},
    {"_foreach_sinh", kSelf, "sinh", true, &kOne},
    {"_foreach_sqrt", kSelf, "sqrt", true, &kPositive},
    {"_foreach_tan", kSelf, "tan", true, &kOne},
    {"_foreach_tanh", kSelf, "tanh", true, &kOne},
    {"_foreach_trunc", kSelf, "trunc", true, &kOne},
};

/// The op of an element, by the list op's dotted name.
const ir::Op& op_of_element(const Call& c) {
  static const std::map<std::string, const ir::Op*> kOps = [] {
    std::map<std::string, const ir::Op*> ops;
    for (const Foreach& line : kForeach) {
      const ir::Op* op = op_table().find(fmt::format("aten.{}", line.of));
      TD_CHECK(op != nullptr) << line.name << " of an unknown op";
      ops[fmt::format("aten.{}", line.name)] = op;
    }
    return ops;
  }();
  const ir::Op* functional = c.op().functional;  // null where it is the functional form
  return *kOps.at(functional == nullptr ? c.op().name() : functional->name());
}

bool is_list(const ir::Param& param) {
  return param.type == ParamType::tensor_list || param.type == ParamType::scalar_list;
}

/// Elements of the lists, which must be equally many.
size_t length_of(const Call& c) {
  std::optional<size_t> length;
  for (size_t i = 0; i < c.args().size(); ++i) {
    if (!is_list(c.op().schema.params[i])) continue;
    size_t own = ir::list_length(c.args()[i]);
    if (own != length.value_or(own))
      c.fail(fmt::format("lists of {} and {} elements", *length, own));
    length = own;
  }
  if (length.value_or(0) == 0) c.fail("a list has no elements");
  return *length;
}

/// Arguments of the op of element `i`.
std::vector<ir::Arg> arguments_of(const Call& c, const ir::Op& op, size_t i) {
  std::vector<ir::Keyword> named;
  for (size_t place = 0; place < c.args().size(); ++place) {
    const ir::Param& param = c.op().schema.params[place];
    bool has_name = op.schema.find(param.name) >= 0;
    ir::Arg arg = is_list(param) ? ir::list_element(c.args()[place], i) : c.args()[place];
    named.emplace_back(has_name ? param.name : op.schema.params[place].name, std::move(arg));
  }
  return ir::complete_args(op, {}, std::move(named));
}

Types types_of_elements(const Call& c) {
  const ir::Op& op = op_of_element(c);
  Types types;
  for (size_t i = 0; i < length_of(c); ++i) {
    std::vector<ir::Arg> args = arguments_of(c, op, i);
    types.push_back(op.types(Call(op, args))[0]);
  }
  return types;
}

Tensors elements(ir::Builder& b, const Call& c) {
  const ir::Op& op = op_of_element(c);
  Tensors results;
  for (size_t i = 0; i < length_of(c); ++i)
    results.emplace_back(b, b.call(op, arguments_of(c, op, i))->results[0]);
  return results;
}

}  // namespace

Family foreach_family() {
  static const std::vector<const OpDef*> kOps = [] {
    static std::deque<std::pair<std::string, OpDef>> definitions;  // filled once
    std::vector<const OpDef*> ops;
    for (const Foreach& line : kForeach) {
      definitions.emplace_back(fmt::format("aten::{}{} -> {}", line.name, line.params, line.result),
                               OpDef{});
      OpDef& def = definitions.back().second;
      def.schema = definitions.back().first;
      def.types = types_of_elements;
      def.decompose = elements;
      def.samples = *line.samples;
      def.inplace = line.inplace;
      ops.push_back(&def);
    }
    return ops;
  }();
  return kOps;
}

}  // namespace tandem::ops
