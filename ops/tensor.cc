// Thin: each function is the call it names. Numbers stay literals, so `x * 2` is mul.Scalar.
#include "ops/tensor.h"

#include <span>

#include "base/check.h"

namespace tandem::ops {

Operand::Operand(Tensor tensor) {
  if (tensor) arg = tensor.value();
}
Operand::Operand(const Tensors& tensors) {
  ir::Values values;
  for (const Tensor& tensor : tensors) values.push_back(tensor.value());
  arg = std::move(values);
}
Operand::Operand(int number) : arg(sym::Expr(number)) {}
Operand::Operand(int64_t number) : arg(sym::Expr(number)) {}
Operand::Operand(sym::Expr number) : arg(number) {}
Operand::Operand(double number) : arg(number) {}
Operand::Operand(bool flag) : arg(flag) {}
Operand::Operand(DType dtype) : arg(dtype) {}
Operand::Operand(const ir::Ints& ints) : arg(ints) {}
Operand::Operand(const std::vector<int64_t>& ints) : arg(ir::Ints(ints.begin(), ints.end())) {}
Operand::Operand(const char* text) : arg(std::string(text)) {}
Operand::Operand(const ir::Arg& raw) : arg(raw) {}
Operand::Operand(const Operand& other) = default;
Operand::Operand(Operand&& other) noexcept = default;
Operand& Operand::operator=(const Operand& other) = default;
Operand& Operand::operator=(Operand&& other) noexcept = default;
Operand::~Operand() = default;

namespace {

Tensors called(ir::Builder& builder, std::string_view op, std::span<const Operand> args) {
  std::vector<ir::Arg> positional;
  for (const Operand& operand : args) positional.push_back(operand.arg);
  ir::Node* node = builder.call(op, std::move(positional));
  Tensors results;
  for (ir::Value* value : node->results) results.emplace_back(builder, value);
  return results;
}

Tensor first_of(std::string_view op, const Tensors& results) {
  TD_CHECK(!results.empty()) << op << " has no result";
  return results[0];
}

}  // namespace

Tensors call_many(ir::Builder& builder, std::string_view op, std::initializer_list<Operand> args) {
  return called(builder, op, args);
}
Tensors call_many(ir::Builder& builder, std::string_view op, const std::vector<Operand>& args) {
  return called(builder, op, args);
}
Tensor call(ir::Builder& builder, std::string_view op, std::initializer_list<Operand> args) {
  return first_of(op, called(builder, op, args));
}
Tensor call(ir::Builder& builder, std::string_view op, const std::vector<Operand>& args) {
  return first_of(op, called(builder, op, args));
}

namespace {

Tensor unary(std::string_view op, Tensor x) { return call(x.builder(), op, {x}); }

}  // namespace

Tensor operator+(Tensor a, Tensor b) { return call(a.builder(), "aten.add.Tensor", {a, b}); }
Tensor operator-(Tensor a, Tensor b) { return call(a.builder(), "aten.sub.Tensor", {a, b}); }
Tensor operator*(Tensor a, Tensor b) { return call(a.builder(), "aten.mul.Tensor", {a, b}); }
Tensor operator/(Tensor a, Tensor b) { return call(a.builder(), "aten.div.Tensor", {a, b}); }
Tensor operator+(Tensor a, double b) { return call(a.builder(), "aten.add.Scalar", {a, b}); }
Tensor operator-(Tensor a, double b) { return call(a.builder(), "aten.sub.Scalar", {a, b}); }
Tensor operator*(Tensor a, double b) { return call(a.builder(), "aten.mul.Scalar", {a, b}); }
Tensor operator/(Tensor a, double b) { return call(a.builder(), "aten.div.Scalar", {a, b}); }
Tensor operator+(double a, Tensor b) { return b + a; }
Tensor operator-(double a, Tensor b) { return call(b.builder(), "aten.rsub.Scalar", {b, a}); }
Tensor operator*(double a, Tensor b) { return b * a; }
Tensor operator/(double a, Tensor b) { return reciprocal(b) * a; }
Tensor operator-(Tensor a) { return unary("aten.neg", a); }

Tensor exp(Tensor x) { return unary("aten.exp", x); }
Tensor log(Tensor x) { return unary("aten.log", x); }
Tensor sqrt(Tensor x) { return unary("aten.sqrt", x); }
Tensor rsqrt(Tensor x) { return unary("aten.rsqrt", x); }
Tensor reciprocal(Tensor x) { return unary("aten.reciprocal", x); }
Tensor sin(Tensor x) { return unary("aten.sin", x); }
Tensor cos(Tensor x) { return unary("aten.cos", x); }
Tensor tanh(Tensor x) { return unary("aten.tanh", x); }
Tensor erf(Tensor x) { return unary("aten.erf", x); }
Tensor sigmoid(Tensor x) { return unary("aten.sigmoid", x); }
Tensor sign(Tensor x) { return unary("aten.sign", x); }
Tensor abs(Tensor x) { return unary("aten.abs", x); }
Tensor logical_not(Tensor x) { return unary("aten.logical_not", x); }

Tensor pow(Tensor x, double exponent) {
  return call(x.builder(), "aten.pow.Tensor_Scalar", {x, exponent});
}
Tensor where(Tensor cond, Tensor a, Tensor b) {
  return call(cond.builder(), "aten.where.self", {cond, a, b});
}
Tensor where(Tensor cond, Tensor a, double b) {
  return call(cond.builder(), "aten.where.ScalarOther", {cond, a, b});
}
Tensor where(Tensor cond, double a, Tensor b) {
  return call(cond.builder(), "aten.where.ScalarSelf", {cond, a, b});
}
Tensor eq(Tensor a, Tensor b) { return compare("eq", a, b); }
Tensor compare(std::string_view op, Tensor a, double b) {
  return call(a.builder(), "aten." + std::string(op) + ".Scalar", {a, b});
}
Tensor compare(std::string_view op, Tensor a, Tensor b) {
  return call(a.builder(), "aten." + std::string(op) + ".Tensor", {a, b});
}
Tensor clamp(Tensor x, double lo, double hi) {
  return call(x.builder(), "aten.clamp", {x, lo, hi});
}

Tensor sum(Tensor x, const std::vector<int64_t>& dims, bool keepdim) {
  return call(x.builder(), "aten.sum.dim_IntList", {x, dims, keepdim});
}
Tensor sum_all(Tensor x) { return unary("aten.sum", x); }
Tensor mean(Tensor x, const std::vector<int64_t>& dims, bool keepdim) {
  return call(x.builder(), "aten.mean.dim", {x, dims, keepdim});
}
Tensor amax(Tensor x, const std::vector<int64_t>& dims, bool keepdim) {
  return call(x.builder(), "aten.amax", {x, dims, keepdim});
}
Tensor mm(Tensor a, Tensor b) { return call(a.builder(), "aten.mm", {a, b}); }
Tensor bmm(Tensor a, Tensor b) { return call(a.builder(), "aten.bmm", {a, b}); }
Tensor matmul(Tensor a, Tensor b) { return call(a.builder(), "aten.matmul", {a, b}); }
Tensor t(Tensor x) { return unary("aten.t", x); }
Tensor transpose(Tensor x, int64_t a, int64_t b) {
  return call(x.builder(), "aten.transpose.int", {x, a, b});
}
Tensor permute(Tensor x, const std::vector<int64_t>& dims) {
  return call(x.builder(), "aten.permute", {x, dims});
}
Tensor reshape(Tensor x, const ir::Sizes& sizes) {
  return x.sizes() == sizes ? x : call(x.builder(), "aten.reshape", {x, sizes});
}
Tensor expand(Tensor x, const ir::Sizes& sizes) {
  return x.sizes() == sizes ? x : call(x.builder(), "aten.expand", {x, sizes});
}
Tensor unsqueeze(Tensor x, int64_t dim) { return call(x.builder(), "aten.unsqueeze", {x, dim}); }
Tensor squeeze(Tensor x, int64_t dim) { return call(x.builder(), "aten.squeeze.dim", {x, dim}); }
Tensor select(Tensor x, int64_t dim, sym::Expr index) {
  return call(x.builder(), "aten.select.int", {x, dim, index});
}
Tensor slice(Tensor x, int64_t dim, sym::Expr start, sym::Expr end, int64_t step) {
  return call(x.builder(), "aten.slice.Tensor", {x, dim, start, end, step});
}
Tensor cat(const Tensors& parts, int64_t dim) {
  return call(parts[0].builder(), "aten.cat", {parts, dim});
}
Tensor to(Tensor x, DType dtype) {
  return x.dtype() == dtype ? x : call(x.builder(), "aten._to_copy", {x, dtype});
}
Tensor full(ir::Builder& builder, const ir::Sizes& sizes, double value, DType dtype) {
  return call(builder, "aten.full", {sizes, value, dtype});
}
Tensor arange(ir::Builder& builder, sym::Expr end, DType dtype) {
  return call(builder, "aten.arange", {end, dtype});
}
Tensor zeros_like(Tensor x) { return full(x.builder(), x.sizes(), 0, x.dtype()); }
Tensor ones_like(Tensor x) { return full(x.builder(), x.sizes(), 1, x.dtype()); }

Tensor sum_to(Tensor grad, const ir::Type& type) {
  int64_t added = grad.rank() - type.rank();
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < grad.rank(); ++i) {
    bool broadcast =
        i >= added && type.sizes[i - added] == sym::Expr(1) && grad.size(i) != sym::Expr(1);
    if (i < added || broadcast) dims.push_back(i);
  }
  if (!dims.empty()) grad = sum(grad, dims);
  return to(reshape(grad, type.sizes), type.dtype);
}

Tensor expand_reduced(Tensor grad, const ir::Sizes& sizes, const std::vector<int64_t>& dims,
                      bool keepdim) {
  if (!keepdim) {
    ir::Sizes kept = sizes;
    for (int64_t dim : dims) kept[dim] = 1;
    grad = reshape(grad, kept);
  }
  return expand(grad, sizes);
}

}  // namespace tandem::ops
