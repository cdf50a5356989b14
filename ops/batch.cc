// Problem: an op says what it does of one set of operands, and vmap asks for the same of each row.
// Most ops do it at once, when their dimension numbers move up by one: so rules belong to families,
// not to ops, and an op names the one it obeys. What has none is done row by row (passes/vmap.cc).
#include "ops/batch.h"

#include <algorithm>
#include <array>

#include "base/dtype.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

using ir::Arg;
using ir::Value;
using sym::Expr;

constexpr std::array kDims = {"dim", "dims", "dim0", "dim1", "dim2", "dimension"};
constexpr std::array kSizes = {"size", "input_sizes"};

bool is_one_of(std::span<const char* const> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// Counted from the end it stays what it is.
Expr moved_up(Expr dim) { return dim.constant().value_or(0) < 0 ? dim : dim + 1; }

Arg moved_up(const Arg& dims) {
  if (const Expr* one = std::get_if<Expr>(&dims)) return moved_up(*one);
  ir::Ints all = std::get<ir::Ints>(dims);
  for (Expr& dim : all) dim = moved_up(dim);
  return all;
}

bool names_dims(const Arg& arg) {
  const ir::Ints* list = std::get_if<ir::Ints>(&arg);
  return list == nullptr ? std::holds_alternative<Expr>(arg) : !list->empty();
}

Tensors results_of(const BatchedCall& c, const ir::Node* node) {
  Tensors results;
  for (Value* result : node->results) results.emplace_back(c.builder, result);
  return results;
}

/// A number among tensors counts for less in the common dtype than a tensor, and with rows it is
/// one: so it takes the dtype that it takes in a row.
Tensor as_number(const BatchedCall& c, const Value* value, Tensor with_rows) {
  if (value->type.rank() != 0) return with_rows;
  for (const Arg& arg : c.row.args()) {
    Value* const* other = std::get_if<Value*>(&arg);
    if (other == nullptr || !(*other)->type.is_tensor() || (*other)->type.rank() == 0) continue;
    const DType dtype = (*other)->type.dtype;
    const bool same_kind = is_float(dtype) == is_float(value->type.dtype) &&
                           (dtype == DType::boolean) == (value->type.dtype == DType::boolean);
    if (same_kind && dtype != value->type.dtype) return to(with_rows, dtype);
  }
  return with_rows;
}

/// A number has a dimension 0 and -1, which with rows are others. Of a gradient the numbers are of
/// what it is a gradient of.
bool counts_no_dims(const ir::Call& row) {
  if (row.op().schema.find("input_sizes") >= 0) return false;
  bool has_number = false;
  const Arg& self = row.args()[0];
  ir::map_operands(self, [&](Value* value) {
    has_number |= value->type.rank() == 0;
    return value;
  });
  return has_number;
}

const ir::Op* with_dimension(const BatchedCall& c) {
  for (const char* overload : {".dim_IntList", ".dim", ".dim_int"})
    if (const ir::Op* found =
            c.builder.graph().ops().find(c.row.op().schema.dotted_name() + overload))
      return found;
  return nullptr;
}

}  // namespace

bool BatchedCall::has_rows(std::string_view param) const {
  const Value* value = row.value(param);
  return value != nullptr && has_rows(value);
}

ir::Sizes BatchedCall::sizes(const ir::Sizes& of_row) const {
  ir::Sizes all{rows};
  all.insert(all.end(), of_row.begin(), of_row.end());
  return all;
}

Tensor BatchedCall::with_rows(const Value* value) const {
  const Found found = find_(value);
  const Tensor tensor(builder, found.value);
  return found.has_rows ? tensor : expand(tensor, sizes(value->type.sizes));
}

Tensor BatchedCall::aligned(const Value* value, int64_t rank) const {
  const Tensor tensor = given(value);
  const int64_t lacks = rank - value->type.rank();
  if (!has_rows(value) || lacks <= 0) return tensor;
  ir::Sizes of_row(static_cast<size_t>(lacks), Expr(1));
  of_row.insert(of_row.end(), value->type.sizes.begin(), value->type.sizes.end());
  return reshape(tensor, sizes(of_row));
}

Tensors batch_pointwise(const BatchedCall& c) {
  const int64_t rank = c.row.result(0)->type.rank();
  std::vector<Arg> args;
  for (const Arg& arg : c.row.args())
    args.push_back(ir::map_operands(arg, [&](const Value* value) {
      if (!value->type.is_tensor()) return c.given(value).value();
      const Tensor aligned = c.aligned(value, rank);
      return (c.has_rows(value) ? as_number(c, value, aligned) : aligned).value();
    }));
  const int format = c.row.op().schema.find("memory_format");
  if (format >= 0) args[static_cast<size_t>(format)] = ir::None{};  // it says of four dimensions
  Tensors results = results_of(c, c.builder.call(c.row.op(), std::move(args)));
  for (size_t i = 0; i < results.size(); ++i)
    results[i] = to(results[i], c.row.result(i)->type.dtype);
  return results;
}

Tensors batch_along_dims(const BatchedCall& c) {
  if (counts_no_dims(c.row)) return {};
  const ir::Schema& schema = c.row.op().schema;
  std::vector<Arg> args;
  for (size_t i = 0; i < schema.params.size(); ++i) {
    const Arg& arg = c.row.args()[i];
    const std::string& name = schema.params[i].name;
    if (is_one_of(kDims, name)) {
      if (!names_dims(arg)) return {};
      args.push_back(moved_up(arg));
    } else if (is_one_of(kSizes, name) && std::holds_alternative<ir::Ints>(arg)) {
      args.push_back(c.sizes(std::get<ir::Ints>(arg)));
    } else {
      args.push_back(ir::map_operands(arg, [&](const Value* value) {
        return (value->type.is_tensor() ? c.with_rows(value) : c.given(value)).value();
      }));
    }
  }
  return results_of(c, c.builder.call(c.row.op(), std::move(args)));
}

Tensors batch_reshape(const BatchedCall& c) {
  return {
      reshape(c.with_rows(c.row.op().schema.params[0].name), c.sizes(c.row.result(0)->type.sizes))};
}

Tensors batch_reduction(const BatchedCall& c) {
  const Value* self = c.row.value("self");
  Tensor x = c.with_rows(self);
  std::vector<int64_t> dims = c.row.dims("dim", self->type.rank());
  for (int64_t& dim : dims) ++dim;
  if (self->type.rank() == 0) {
    x = unsqueeze(x, 1);
    dims = {1};
  }
  std::vector<Arg> args = c.row.args();
  const ir::Schema& schema = c.row.op().schema;
  args[0] = x.value();
  args[static_cast<size_t>(schema.find("dim"))] = ir::Ints(dims.begin(), dims.end());
  if (self->type.rank() == 0) args[static_cast<size_t>(schema.find("keepdim"))] = false;
  return results_of(c, c.builder.call(c.row.op(), std::move(args)));
}

Tensors batch_whole(const BatchedCall& c) {
  const ir::Op* op = with_dimension(c);
  if (op == nullptr) return {};
  const Value* self = c.row.value("self");
  const Tensor flat = reshape(c.with_rows(self), {c.rows, self->type.numel()});
  const bool is_list = op->schema.params[1].type == ir::ParamType::int_list;
  std::vector<Arg> args{flat.value(), is_list ? Arg(ir::Ints{Expr(1)}) : Arg(Expr(1)), false};
  std::vector<ir::Keyword> keywords;
  if (c.row.op().schema.find("dtype") >= 0) keywords.emplace_back("dtype", c.row.arg("dtype"));
  return results_of(c, c.builder.call(*op, std::move(args), std::move(keywords)));
}

}  // namespace tandem::ops
