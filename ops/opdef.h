// One op, one value, one place: what an ATen operator is. docs/add-an-op.md walks through one.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/target.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "loop/kernel.h"
#include "ops/batch.h"
#include "ops/complex.h"
#include "ops/tensor.h"

namespace tandem::ops {

using Index = std::vector<sym::Expr>;
class Lowering;

/// An op as loops. `map`: every element by itself. `reduce`: combines inputs over reduce_sizes,
/// then `finish`. `scan`: as reduce, but every point of the (one) reduced axis is a result.
/// `scatter`: result starts as `map` and receives combined values or stores at computed places, in
/// source order.
struct Definition {
  enum class Kind : uint8_t { map, reduce, scan, scatter };
  Kind kind = Kind::map;

  /// Element of result number `result` at `index`, in the result's compute type.
  std::function<loop::Val(size_t result, const Index& index)> map;

  loop::Combiner combiner = loop::Combiner::sum;
  std::vector<sym::Expr> reduce_sizes;
  /// Inputs of the combiner (arity many) at output index `out` and reduce point `r`.
  std::function<std::vector<loop::Val>(const Index& out, const Index& r)> input;
  /// Results from the combined values; when empty result i is value i.
  std::function<std::vector<loop::Val>(std::span<const loop::Val> combined, const Index& out)>
      finish;
  /// Where the reduction runs over dimensions of one shape: that shape, and which of its dimensions
  /// are reduced. Lets pointwise work over the same shape share the kernel. Empty for products and
  /// windows.
  ir::Sizes full_sizes;
  std::vector<int64_t> reduced_dims;
  /// Windows that slide over this operand, each channel by itself: an element is read by as many
  /// points as a window has taps, and by few tasks. Null where any point may read any element.
  const ir::Value* windows_over = nullptr;

  /// Scatter: source points, the destination's index, the value; `scatter_dim` is the dimension of
  /// the destination that is computed, all others equal the source's index.
  ir::Sizes source_sizes;
  int64_t scatter_dim = 0;
  std::function<loop::Val(const Index& source)>
      destination;  // i64 position along scatter_dim, checked
  std::function<loop::Val(const Index& source)> value;
  bool accumulate = true;  // by `combiner`: sum, prod, min or max
};

/// What a lowering may ask for while it writes scalar expressions. Implemented by schedule/, where
/// loops come of it, and by ops/positional.h, where values are known by their places.
class Lowering {
 public:
  virtual ~Lowering() = default;
  virtual loop::ScalarPool& scalars() = 0;
  /// Element of a tensor in its compute type (16-bit floats widened). With a mask: 0 where it is
  /// false, and the index may be anything there.
  virtual loop::Val load(const ir::Value* tensor, const Index& index, loop::Val mask = nullptr) = 0;
  /// A Scalar argument (number or scalar value) converted to dtype.
  virtual loop::Val scalar(const ir::Arg& arg, DType dtype) = 0;
  /// A number that belongs to the call, not to the kernel: passed at launch, so that calls which
  /// differ only in it share their code.
  virtual loop::Val launch_number(int64_t number) = 0;
  /// Number of a check with that error text.
  virtual int32_t error(const std::string& text) = 0;
  /// `value`; where `holds` is false the kernel fails with that error. Where the reader masks the
  /// place out (beside a padded tensor, behind the end of a reduction) nothing is checked.
  virtual loop::Val check(loop::Val holds, loop::Val value, int32_t error) {
    return scalars().check(holds, value, error);
  }
};

using LowerRule = Definition (*)(Lowering&, const ir::Call&);
using DecomposeRule = Tensors (*)(ir::Builder&, const ir::Call&);

/// Gradient of one argument; `element` numbers the tensors of a list argument. Absent means zero.
struct Gradient {
  std::string_view param;
  Tensor grad;
  int32_t element = 0;
};
using Gradients = std::vector<Gradient>;
/// Adds nodes for the gradients of a call; grads[i] is the gradient of result i, empty where it is
/// zero. May use arguments and results of the forward call.
using VjpRule = Gradients (*)(ir::Builder&, const ir::Call& forward, std::span<const Tensor> grads);
/// An op that mutates some of its parameters, without doing so: its results, then a new value for
/// each mutated parameter in schema order (empty where the call leaves it alone).
using FunctionalRule = Tensors (*)(ir::Builder&, const ir::Call&);
/// New value of a view's base after `value` was written through the view.
using ScatterRule = Tensor (*)(ir::Builder&, const ir::Call& view, Tensor base, Tensor value);
/// The same for a view with several results: `value` was written through result number `result`.
using ScatterPartRule = Tensor (*)(ir::Builder&, const ir::Call& view, size_t result, Tensor base,
                                   Tensor value);

/// Of an op that gives (q - zero point) * scale: for how much of `input` one of each stands. Of a
/// tensor they are `scale` and `zero_point`, else `scales` and `zero_points`, of channels along
/// `axis`. Blocks are parts of several dimensions.
enum class Scales : uint8_t { none, tensor, channel, token, block };

/// Of an op that sums products, perhaps with a bias: where its factors have the terms.
enum class ProductKind : uint8_t {
  none,
  matrix,       // [.., m, k] and [.., k, n]
  linear,       // `input` [.., k] and `weight` [n, k], `bias`
  convolution,  // `input` [b, c, places..] and `weight` [o, c / groups, kernel..], `bias`
  transposed,   // `grad_output` [b, c, places..] and `weight` [c, o / groups, kernel..]
};
/// Of a product of floats `self` [m, k] with a weight `mat2` that only loops make floats: i8 [n, k]
/// with `scales` [n]; or 4 bits each as PyTorch packs them for this processor, with
/// `qScaleAndZeros` for each `qGroupSize` terms.
enum class NarrowFactor : uint8_t { none, bytes, nibbles };
struct ProductFactors {
  std::string_view left, right, added;  // added: to the product; empty where the op adds nothing
};

/// A route besides the definition: what a library call can compute, some dtypes and shapes.
enum class RouteKind : uint8_t {
  matmul,  // out[..., m, n] = a[..., m, k] b[..., k, n]; arguments self/mat1/batch1 and
           // mat2/batch2/other
  convolution,
  convolution_backward_data,
  convolution_backward_weights,
  host,             // arguments of tandem::host
  branch,           // of tandem::cond; this and the next two run graphs of the module
  repeat,           // of tandem::while_loop
  rows,             // of tandem::scan
  repeat_backward,  // of tandem::while_loop_backward
  call,             // of a program, once
  rank,  // out[..., i] = place of self[..., i] in the sorted row; arguments self, descending, limit
  grouped_rows,  // arguments and result of tandem::grouped_rows
  grouped_sums,  // of tandem::grouped_sums
  read_scalar,   // of tandem::read_scalar
};
struct Route {
  RouteKind kind;
  /// Empty when it applies, else the reason why not.
  std::string (*declines)(const ir::Call&, const Target&) = nullptr;
  /// Whether the definition is a stencil: windows of few taps over channels that are each by
  /// itself.
  bool (*slides)(const ir::Call&) = nullptr;
};

/// Test inputs as argument lists: `$[3, 4], $[4], alpha=2`. `$` runs over `sample_dtypes`. A tensor
/// is `f32[3, 4]{1, 3}:fill`, fill one of normal (default), positive, unit, special (nan, inf, -0),
/// index(n) (integers in [0, n)), constant(x), halves (of integers), bytes, bool.
using Samples = std::vector<std::string_view>;
enum class DTypes : uint8_t { floats, numbers, integers, all, f32_only, booleans };

struct OpDef {
  std::string_view schema{};          // exact ATen text
  ir::TypeRule types = nullptr;       // the only source of result types
  ir::DataSized data_sized{};         // of calls whose sizes only data tell
  LowerRule lower = nullptr;          // loops: serves every dtype and shape …
  DecomposeRule decompose = nullptr;  // … or other ops
  /// Calls that are always decomposed, though the op has loops and a gradient for the others (a
  /// convolution that is transposed).
  bool (*composite)(const ir::Call&) = nullptr;
  VjpRule vjp = nullptr;                   // gradient; none: through the decomposition, or
  std::string_view no_grad{};              // the reason why there is none
  ScatterRule scatter = nullptr;           // views only
  ScatterPartRule scatter_part = nullptr;  // views with several results
  /// In eager the results show self's memory, though the schema does not say so.
  bool shows_self = false;
  /// The list parameter whose tensors the results are, in eager.
  std::string_view hands_on{};
  /// Of a view that puts dimensions in another order: dimension i of the result is dimension
  /// order[i] of the operand.
  std::vector<int64_t> (*order)(const ir::Call&) = nullptr;
  /// Only sizes change: the elements stay in row-major order.
  bool keeps_order = false;
  /// The elements are the operand's, over and over along dimensions where it has one, or none.
  bool repeats = false;
  /// Each element is the operand's, in another type.
  bool casts = false;
  /// Of a view: calls that give a copy after all (a cast). Null: its index map says.
  bool (*copies)(const ir::Call&) = nullptr;
  /// Of an op that writes operands besides giving new results (batch norm's running statistics), or
  /// some of whose results have no history in a user's program.
  /// `mutates` names the parameters where the schema text does not mark them.
  FunctionalRule functional = nullptr;
  std::vector<std::string_view> mutates{};
  std::vector<Route> fast{};  // tried in order by schedule/
  Samples samples{};
  DTypes sample_dtypes = DTypes::floats;
  bool pointwise =
      false;             // result element i depends on operand elements i only (after broadcasting)
  bool inplace = false;  // `name_` exists; derived
  bool out = false;      // `name.out` exists; derived
  std::string_view inplace_as{};  // the overload of the in-place form, where it is another
  /// Of the in-place form, where its name or defaults are others too: parameters in the same order.
  std::string_view inplace_schema{};
  std::string_view out_as{};  // the overload of the out= form, where it is not `out`
  /// The results are integers, held to parameters quant_min and quant_max.
  bool quantizes = false;
  Scales dequantizes = Scales::none;
  ProductKind multiplies = ProductKind::none;
  NarrowFactor narrow = NarrowFactor::none;
  /// The operand of which each element of the result is one element, found by indices.
  std::string_view gathers{};
  bool random = false;
  bool can_fail = false;  // has checks on data
  /// Stays one node: types are given, there are no loops, only a route. Never merged, computed
  /// twice, or removed before its error is known.
  bool opaque = false;
  /// Parameters that name graphs of the module, which the op runs as programs of their own; each
  /// takes tensors alone, and sizes mean there what they mean around the call. `check_bodies`:
  /// UserError where they do not fit the call.
  std::vector<std::string_view> runs{};
  void (*check_bodies)(const ir::Call&, const ir::Module&) = nullptr;
  /// Of each row at once (vmap). Pointwise ops broadcast; others that have no rule are decomposed,
  /// or done row by row.
  BatchRule batch = nullptr;
  /// Of complex numbers. Views that say nothing are taken of each part; others that say nothing are
  /// decomposed.
  ComplexForm complex{};
};

inline const OpDef& def_of(const ir::Op& op) { return *op.def; }
inline const OpDef& def_of(const ir::Node& node) { return *node.op->def; }
/// A rule for complex numbers is all that the op has: its calls become calls over real parts
/// (passes/complex_parts.cc), of real operands as well.
bool is_parted(const OpDef& def);

/// The parameters of a product.
ProductFactors factors_of(const ir::Op& op);

/// A family: the ops of one file.
using Family = std::span<const OpDef* const>;

/// The vocabulary, made on first use; ops named in families.cc.
const ir::OpTable& op_table();

/// What is wrong with the table; empty when it is total: every op has a definition, and for every
/// differentiable argument a gradient, a decomposition or a reason.
std::vector<std::string> check_table(const ir::OpTable& table);

}  // namespace tandem::ops
