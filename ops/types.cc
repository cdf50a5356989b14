// PyTorch's rules, once: every family's type rule calls these.
#include "ops/types.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ir/graph.h"

namespace tandem::ops {
namespace {

int category(DType dtype) {
  return is_complex(dtype) ? 3 : is_float(dtype) ? 2 : is_int(dtype) ? 1 : 0;
}

const ir::Type& self_type(const ir::Call& call) {
  return call.type(call.op().schema.params[0].name);
}

}  // namespace

ir::Sizes broadcast(const ir::Call& call, const ir::Sizes& a, const ir::Sizes& b) {
  ir::Sizes result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    sym::Expr x = i < a.size() ? a[a.size() - 1 - i] : sym::Expr(1);
    sym::Expr y = i < b.size() ? b[b.size() - 1 - i] : sym::Expr(1);
    if (x != y && x != sym::Expr(1) && y != sym::Expr(1) && !sym::known_eq(x, y))
      call.fail(fmt::format("sizes {} and {} do not broadcast: {} and {} differ", ir::to_string(a),
                            ir::to_string(b), sym::to_string(x), sym::to_string(y)));
    result[result.size() - 1 - i] = x == sym::Expr(1) ? y : x;
  }
  return result;
}

bool same_sizes(const ir::Sizes& a, const ir::Sizes& b) {
  return std::ranges::equal(a, b,
                            [](sym::Expr x, sym::Expr y) { return x == y || sym::known_eq(x, y); });
}

void need_float(const ir::Call& call, std::string_view param) {
  if (call.has(param) && !is_float(call.type(param).dtype))
    call.fail("needs a float dtype, not " + call.describe(param));
}

void need_number(const ir::Call& call, std::string_view param) {
  if (call.has(param) && call.type(param).dtype == DType::boolean)
    call.fail("is not defined for bool: " + call.describe(param));
}

void need_rank(const ir::Call& call, std::string_view param, int64_t least, int64_t most) {
  int64_t rank = call.type(param).rank();
  if (rank >= least && rank <= most) return;
  std::string range =
      least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
  call.fail(fmt::format("{} must have {} dimensions", call.describe(param), range));
}

void need_same_dtype(const ir::Call& call, std::initializer_list<std::string_view> params) {
  std::string_view first;
  for (std::string_view param : params) {
    if (!call.has(param)) continue;
    if (first.empty()) first = param;
    if (call.type(param).dtype != call.type(first).dtype)
      call.fail(fmt::format("{} and {} must have the same dtype", call.describe(first),
                            call.describe(param)));
  }
}

void need_layer_dtype(const ir::Call& call, std::initializer_list<std::string_view> params) {
  need_same_dtype(call, params);
  DType input = call.type("input").dtype;
  for (std::string_view param : params) {
    if (!call.has(param)) continue;
    DType own = call.type(param).dtype;
    bool mixed = size_of(input) == 2 && own == DType::f32;
    if (own != input && !mixed)
      call.fail(fmt::format("{} must have the dtype of {}, or f32 beside 16-bit floats",
                            call.describe(param), call.describe("input")));
  }
}

void need_alpha(const ir::Call& call, DType result) {
  const ir::Arg& alpha = call.arg("alpha");
  if (std::holds_alternative<bool>(alpha) && result != DType::boolean)
    call.fail(fmt::format("{} is for results of bool, not of {}", call.describe("alpha"),
                          name_of(result)));
  if (std::holds_alternative<double>(alpha) && !is_float(result))
    call.fail(fmt::format("{} is a float, but the result is {}", call.describe("alpha"),
                          name_of(result)));
}

bool wants_output(const ir::Call& call, size_t i) {
  const ir::Ints& mask = call.ints("output_mask");
  if (mask.size() != 3) call.fail(call.describe("output_mask") + " must have 3 elements");
  return mask[i] != sym::Expr(0);
}

void Promotion::merge(int group, DType dtype) {
  mixes_float8_ |=
      seen_[group] && dtypes_[group] != dtype && (is_float8(dtype) || is_float8(dtypes_[group]));
  dtypes_[group] = seen_[group] ? promote(dtypes_[group], dtype) : dtype;
  seen_[group] = true;
}

void Promotion::add(const ir::Type& type) {
  merge(type.kind == ir::Type::Kind::scalar ? 2 : type.sizes.empty() ? 1 : 0, type.dtype);
}

void Promotion::add(const ir::Arg& arg) {
  if (ir::Value* const* value = std::get_if<ir::Value*>(&arg)) {
    const ir::Type& type = (*value)->type;
    // A scalar value of f64 stands for a Python float: the default float type.
    bool is_scalar = type.kind == ir::Type::Kind::scalar && type.dtype == DType::f64;
    is_scalar ? merge(2, DType::f32) : add(type);
  }
  if (std::holds_alternative<double>(arg)) merge(2, DType::f32);
  if (std::holds_alternative<sym::Expr>(arg)) merge(2, DType::i64);
  if (std::holds_alternative<bool>(arg)) merge(2, DType::boolean);
}

DType Promotion::result(const ir::Call& call) const {
  if (mixes_float8_) call.fail("8-bit floats are promoted with no other type; convert them first");
  bool any = false;
  DType best = DType::f32;
  for (int group = 0; group < 3; ++group) {
    if (!seen_[group]) continue;
    const DType next = dtypes_[group];
    if (any && is_float(best) && is_complex(next))
      best = complex_type(best);  // of the precision that the tensors have
    else if (!any || category(next) > category(best))
      best = next;
    any = true;
  }
  return best;
}

DType common_dtype(const ir::Call& call, std::initializer_list<std::string_view> params) {
  Promotion promotion;
  for (std::string_view param : params) promotion.add(call.arg(param));
  return promotion.result(call);
}

DType to_float(DType dtype) { return is_float(dtype) || is_complex(dtype) ? dtype : DType::f32; }

bool is_tensor(const ir::Call& call, std::string_view param) {
  ir::Value* const* value = std::get_if<ir::Value*>(&call.arg(param));
  return value != nullptr && (*value)->type.is_tensor();
}

ir::Sizes broadcast_of(const ir::Call& call, std::initializer_list<std::string_view> params) {
  ir::Sizes sizes;
  for (std::string_view param : params)
    if (is_tensor(call, param)) sizes = broadcast(call, sizes, call.type(param).sizes);
  return sizes;
}

Types unary_same(const ir::Call& call) {
  return {ir::Type::tensor(self_type(call).dtype, self_type(call).sizes)};
}
Types unary_number(const ir::Call& call) {
  need_number(call, call.op().schema.params[0].name);
  return unary_same(call);
}
Types unary_float(const ir::Call& call) {
  return {ir::Type::tensor(to_float(self_type(call).dtype), self_type(call).sizes)};
}
Types unary_bool(const ir::Call& call) {
  return {ir::Type::tensor(DType::boolean, self_type(call).sizes)};
}

Types binary(const ir::Call& call) {
  return {ir::Type::tensor(common_dtype(call, {"self", "other"}),
                           broadcast_of(call, {"self", "other"}))};
}

Types binary_float(const ir::Call& call) {
  Types types = binary(call);
  types[0].dtype = to_float(types[0].dtype);
  return types;
}

Types binary_bool(const ir::Call& call) {
  Types types = binary(call);
  types[0].dtype = DType::boolean;
  return types;
}

void refuse_expanded_write(const ir::Call& call) {
  throw Unsupported(
      fmt::format("[{}] writing to an expanded tensor: more than one element refers to one memory "
                  "place; a clone of it is accepted",
                  call.op().schema.full_name()));
}

}  // namespace tandem::ops
