// PyTorch's rules, once: every family's type rule calls these.
#include "ops/types.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph.h"

namespace tandem::ops {
namespace {

int category(DType dtype) { return is_float(dtype) ? 2 : is_int(dtype) ? 1 : 0; }

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

void Promotion::merge(int group, DType dtype) {
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

DType Promotion::result() const {
  bool any = false;
  DType best = DType::f32;
  for (int group = 0; group < 3; ++group) {
    if (!seen_[group]) continue;
    if (!any || category(dtypes_[group]) > category(best)) best = dtypes_[group];
    any = true;
  }
  return best;
}

DType common_dtype(const ir::Call& call, std::initializer_list<std::string_view> params) {
  Promotion promotion;
  for (std::string_view param : params) promotion.add(call.arg(param));
  return promotion.result();
}

DType to_float(DType dtype) { return is_float(dtype) ? dtype : DType::f32; }

Types unary_same(const ir::Call& call) {
  return {ir::Type::tensor(self_type(call).dtype, self_type(call).sizes)};
}
Types unary_float(const ir::Call& call) {
  return {ir::Type::tensor(to_float(self_type(call).dtype), self_type(call).sizes)};
}
Types unary_bool(const ir::Call& call) {
  return {ir::Type::tensor(DType::boolean, self_type(call).sizes)};
}

Types binary(const ir::Call& call) {
  ir::Sizes sizes = call.type("self").sizes;
  ir::Value* const* other = std::get_if<ir::Value*>(&call.arg("other"));
  if (other != nullptr && (*other)->type.is_tensor())
    sizes = broadcast(call, sizes, (*other)->type.sizes);
  return {ir::Type::tensor(common_dtype(call, {"self", "other"}), sizes)};
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

}  // namespace tandem::ops
