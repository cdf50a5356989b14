// Operator sugar: a value and the builder that goes on from it, so that graphs read as formulas.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"

namespace tandem::ops {

class Tensor {
 public:
  Tensor() = default;
  Tensor(ir::Builder& builder, ir::Value* value) : builder_(&builder), value_(value) {}

  explicit operator bool() const { return value_ != nullptr; }
  ir::Value* value() const { return value_; }
  ir::Builder& builder() const { return *builder_; }
  const ir::Type& type() const { return value_->type; }
  DType dtype() const { return value_->type.dtype; }
  const ir::Sizes& sizes() const { return value_->type.sizes; }
  sym::Expr size(int64_t dim) const { return sizes()[dim < 0 ? dim + rank() : dim]; }
  int64_t rank() const { return value_->type.rank(); }

 private:
  ir::Builder* builder_ = nullptr;
  ir::Value* value_ = nullptr;
};
using Tensors = std::vector<Tensor>;

/// An argument of `call`: tensors, lists of them, numbers, lists, none. Nothing of it is inline: a
/// formula makes and drops hundreds, and the variant's code would be most of what it compiles to.
struct Operand {
  Operand(Tensor tensor);                     // NOLINT(google-explicit-constructor)
  Operand(const Tensors& tensors);            // NOLINT
  Operand(int number);                        // NOLINT
  Operand(int64_t number);                    // NOLINT
  Operand(sym::Expr number);                  // NOLINT
  Operand(double number);                     // NOLINT
  Operand(bool flag);                         // NOLINT
  Operand(DType dtype);                       // NOLINT
  Operand(const ir::Ints& ints);              // NOLINT
  Operand(const std::vector<int64_t>& ints);  // NOLINT
  Operand(const char* text);                  // NOLINT
  Operand(const ir::Arg& raw);                // NOLINT
  Operand(const Operand& other);
  Operand(Operand&& other) noexcept;
  Operand& operator=(const Operand& other);
  Operand& operator=(Operand&& other) noexcept;
  ~Operand();
  ir::Arg arg;
};

/// Any op by name, arguments in schema order; keyword-only ones may be given in order too.
Tensor call(ir::Builder& builder, std::string_view op, std::initializer_list<Operand> args);
Tensor call(ir::Builder& builder, std::string_view op, const std::vector<Operand>& args);
Tensors call_many(ir::Builder& builder, std::string_view op, std::initializer_list<Operand> args);
Tensors call_many(ir::Builder& builder, std::string_view op, const std::vector<Operand>& args);

Tensor operator+(Tensor a, Tensor b);
Tensor operator-(Tensor a, Tensor b);
Tensor operator*(Tensor a, Tensor b);
Tensor operator/(Tensor a, Tensor b);
Tensor operator+(Tensor a, double b);
Tensor operator-(Tensor a, double b);
Tensor operator*(Tensor a, double b);
Tensor operator/(Tensor a, double b);
Tensor operator+(double a, Tensor b);
Tensor operator-(double a, Tensor b);
Tensor operator*(double a, Tensor b);
Tensor operator/(double a, Tensor b);
Tensor operator-(Tensor a);

// ATen names, for formulas.
Tensor exp(Tensor x);
Tensor log(Tensor x);
Tensor sqrt(Tensor x);
Tensor rsqrt(Tensor x);
Tensor reciprocal(Tensor x);
Tensor sin(Tensor x);
Tensor cos(Tensor x);
Tensor tanh(Tensor x);
Tensor erf(Tensor x);
Tensor sigmoid(Tensor x);
Tensor sign(Tensor x);
Tensor abs(Tensor x);
Tensor pow(Tensor x, double exponent);
Tensor where(Tensor cond, Tensor a, Tensor b);
Tensor where(Tensor cond, Tensor a, double b);
Tensor where(Tensor cond, double a, Tensor b);
Tensor eq(Tensor a, Tensor b);
Tensor compare(std::string_view op, Tensor a, double b);  // op: "lt", "le", "gt", "ge", "eq", "ne"
Tensor compare(std::string_view op, Tensor a, Tensor b);
Tensor clamp(Tensor x, double lo, double hi);
Tensor logical_not(Tensor x);
Tensor sum(Tensor x, const std::vector<int64_t>& dims, bool keepdim = false);
Tensor sum_all(Tensor x);
Tensor mean(Tensor x, const std::vector<int64_t>& dims, bool keepdim = false);
Tensor amax(Tensor x, const std::vector<int64_t>& dims, bool keepdim = false);
Tensor mm(Tensor a, Tensor b);
Tensor bmm(Tensor a, Tensor b);
Tensor matmul(Tensor a, Tensor b);
Tensor t(Tensor x);
Tensor transpose(Tensor x, int64_t a, int64_t b);
Tensor permute(Tensor x, const std::vector<int64_t>& dims);
Tensor reshape(Tensor x, const ir::Sizes& sizes);
Tensor expand(Tensor x, const ir::Sizes& sizes);
Tensor unsqueeze(Tensor x, int64_t dim);
Tensor squeeze(Tensor x, int64_t dim);
Tensor select(Tensor x, int64_t dim, sym::Expr index);
Tensor slice(Tensor x, int64_t dim, sym::Expr start, sym::Expr end, int64_t step = 1);
Tensor cat(const Tensors& parts, int64_t dim);
Tensor to(Tensor x, DType dtype);
Tensor full(ir::Builder& builder, const ir::Sizes& sizes, double value, DType dtype);
Tensor arange(ir::Builder& builder, sym::Expr end, DType dtype);
Tensor zeros_like(Tensor x);
Tensor ones_like(Tensor x);

/// Sums the dimensions that broadcasting added, so that the result has `sizes`, and casts to
/// `dtype`: the gradient of an operand that was broadcast (and promoted).
Tensor sum_to(Tensor grad, const ir::Type& type);
/// `grad` of a reduction brought back to the reduced operand's shape: kept dims put back, then
/// expanded.
Tensor expand_reduced(Tensor grad, const ir::Sizes& sizes, const std::vector<int64_t>& dims,
                      bool keepdim);

}  // namespace tandem::ops
