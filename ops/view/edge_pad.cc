// Pads whose new elements are elements of the operand: reflected, replicated, or from the other end
// (circular). Each dimension is padded by itself. Forward is an index map, also of what is cut (a
// negative width); the gradient of a dimension adds the parts that were padded on to where they
// were read.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/view/pad.h"

namespace tandem::ops {
namespace {

enum class Edge : uint8_t { reflect, replicate, circular };
constexpr const char* kEdgeNames[] = {"reflect", "replicate", "circular"};

std::optional<Edge> edge_of(const std::string& name) {
  for (size_t i = 0; i < 3; ++i)
    if (name == kEdgeNames[i]) return static_cast<Edge>(i);
  return std::nullopt;
}

Expr absolute(Expr x) { return sym::max(x, -x); }

/// Where position `x`, in [-size, 2 size), reads.
Expr folded(Edge edge, Expr x, Expr size) {
  switch (edge) {
    case Edge::reflect: return (size - 1) - absolute((size - 1) - absolute(x));
    case Edge::replicate: return sym::max(sym::min(x, size - 1), 0);
    case Edge::circular: return sym::mod(x, size);
  }
  return x;
}

int64_t pad_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }

/// `length` elements of dimension `dim` from `start` on. A slice is clamped to what is there, so
/// that it has this length where that is known to be; elsewhere they are listed.
Tensor part(Tensor x, int64_t dim, Expr start, Expr length) {
  const Expr end = start + length;
  if (sym::known_le(0, start) && sym::known_le(start, end) && sym::known_le(end, x.size(dim)))
    return slice(x, dim, start, end);
  const Tensor places = arange(x.builder(), length, DType::i64);
  return call(x.builder(), "aten.index_select",
              {x, dim, call(x.builder(), "aten.add.Scalar", {places, start})});
}
/// Zeros around x in dimension `dim`.
Tensor placed(Tensor x, int64_t dim, Expr before, Expr after) {
  ir::Ints pad;
  for (int64_t i = x.rank() - 1; i > dim; --i) pad.insert(pad.end(), {Expr(0), Expr(0)});
  pad.insert(pad.end(), {before, after});
  return call(x.builder(), "aten.constant_pad_nd", {x, pad, 0});
}
/// The gradient of what was padded on, as it was read: `n` elements of an operand of `size`, next
/// to its front or its back.
Tensor returned(Tensor x, int64_t dim, Edge edge, Expr n, Expr size, bool front) {
  if (edge == Edge::replicate) {
    x = sum(x, {dim}, true);
    return front ? placed(x, dim, 0, size - 1) : placed(x, dim, size - 1, 0);
  }
  if (edge == Edge::circular) front = !front;
  Expr distance = edge == Edge::reflect ? 1 : 0;  // the edge itself is not read
  if (edge == Edge::reflect) x = call(x.builder(), "aten.flip", {x, std::vector<int64_t>{dim}});
  Expr rest = size - n - distance;
  return front ? placed(x, dim, distance, rest) : placed(x, dim, rest, distance);
}

/// How one dimension is padded: by what, and by what it is cut.
struct Widths {
  Expr cut_front, cut_back, before, after;
  bool cuts() const { return cut_front != Expr(0) || cut_back != Expr(0); }
};
Widths widths_of(Expr before, Expr after) {
  return {sym::max(-before, 0), sym::max(-after, 0), sym::max(before, 0), sym::max(after, 0)};
}

/// Gradients of what comes from its own place, as many as the operand has: a constant pad cuts the
/// others and puts zeros where the operand was cut. Nobody may know the signs of the widths. Where
/// all of the operand was cut, all comes from one edge.
Tensor own_gradient(Tensor grad, int64_t dim, Expr before, Expr after, Expr size) {
  if (sym::known_le(0, before) && sym::known_le(0, after)) return part(grad, dim, before, size);
  const Expr length = grad.size(dim);
  const Expr front = sym::min(sym::max(before, 0), length);
  const Expr zeros = sym::max(-before, 0);
  return placed(grad, dim, zeros - front, size - zeros - length + front);
}

/// y[i] = x[clamp(i - before, 0, size - 1)]: dx[j] = dy[before + j], and to the first and the last
/// comes what was read beyond them.
Tensor replicate_gradient(Tensor grad, int64_t dim, Expr before, Expr after, Expr size) {
  const Expr length = grad.size(dim);
  const Expr front = sym::min(sym::max(before, 0), length);
  const Expr back = sym::min(sym::max(after, 0), length);
  Tensor total = own_gradient(grad, dim, before, after, size);
  if (front != Expr(0))
    total = total + returned(part(grad, dim, 0, front), dim, Edge::replicate, front, size, true);
  if (back == Expr(0)) return total;
  const Tensor behind = part(grad, dim, length - back, back);
  return total + returned(behind, dim, Edge::replicate, back, size, false);
}

/// Of reflected elements and those from the other end: widths are not negative.
Tensor uncut_gradient(Tensor grad, int64_t dim, Edge edge, Expr before, Expr after, Expr size) {
  Tensor total = part(grad, dim, before, size);
  if (before != Expr(0))
    total = total + returned(part(grad, dim, 0, before), dim, edge, before, size, true);
  if (after != Expr(0))
    total = total + returned(part(grad, dim, before + size, after), dim, edge, after, size, false);
  return total;
}

/// Of `size` elements; widths as they are given, of which negative ones cut.
Tensor line_gradient(Tensor grad, int64_t dim, Edge edge, Expr before, Expr after, Expr size) {
  if (edge == Edge::replicate) return replicate_gradient(grad, dim, before, after, size);
  const Widths w = widths_of(before, after);
  if (edge == Edge::reflect) {
    if (w.cuts()) grad = placed(grad, dim, w.cut_front, w.cut_back);
    return uncut_gradient(grad, dim, edge, w.before, w.after, size);
  }
  const Expr kept = size - w.cut_front - w.cut_back;
  grad = uncut_gradient(grad, dim, edge, w.before, w.after, kept);
  return w.cuts() ? placed(grad, dim, w.cut_front, w.cut_back) : grad;
}

/// A reflection does not read past the other edge, and each new element is one of the operand.
Types line_types(const Call& c) {
  Sizes sizes = c.type("self").sizes;
  if (sizes.empty()) c.fail("a 0-d tensor has no edges");
  Expr& size = sizes[pad_dim(c)];
  const int64_t edge = c.constant("edge");
  if (edge < 0 || edge >= std::ssize(kEdgeNames)) c.fail(fmt::format("edge {} is not known", edge));
  const Expr least = edge == static_cast<int64_t>(Edge::reflect)
                         ? sym::max(c.integer("before"), c.integer("after")) + 1
                         : Expr(1);
  if (sym::known_lt(size, least))
    c.fail(fmt::format("dimension {} of {} has {} elements, {} are read", pad_dim(c),
                       c.describe("self"), sym::to_string(size), sym::to_string(least)));
  for (const char* width : {"before", "after"})
    if (edge == static_cast<int64_t>(Edge::circular) && sym::known_lt(c.integer(width), 0))
      c.fail(c.describe(width) + " must not be negative: what is cut of a circle is cut first");
  const Expr padded = size + c.integer("before") + c.integer("after");
  if (sym::known_lt(padded, 0))
    c.fail(fmt::format("more than the {} elements of dimension {} of {} are cut",
                       sym::to_string(size), pad_dim(c), c.describe("self")));
  size = padded;
  return {ir::Type::tensor(c.type("self").dtype, sizes)};
}

const OpDef kLine{
    .schema =
        "tandem::edge_pad(Tensor self, int dim, SymInt before, SymInt after, int edge) -> Tensor",
    .types = line_types,
    .lower = reindex<[](const Call& c, size_t, const Index& index) {
      Index at = index;
      int64_t dim = pad_dim(c);
      at[dim] = folded(static_cast<Edge>(c.constant("edge")), at[dim] - c.integer("before"),
                       c.type("self").sizes[dim]);
      return at;
    }>,
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      int64_t dim = pad_dim(c);
      return {{"self",
               line_gradient(g[0], dim, static_cast<Edge>(c.constant("edge")), c.integer("before"),
                             c.integer("after"), c.type("self").sizes[dim])}};
    },
    .samples = {"$[2, 5], 1, 2, 3, 0", "$[2, 5, 3], 1, 7, 1, 1", "$[5], 0, 2, 5, 2",
                "$[2, 5], 1, -1, 3, 0", "$[2, 5], 1, 4, -6, 0", "$[2, 5], 1, -4, -1, 1",
                "$[2, 4], 1, -4, 5, 1", "$[2, 4], 1, 6, -5, 1"},
    .complex = {complex_each}};

// --- all dimensions
// -------------------------------------------------------------------------------

/// What of a circular one is cut is cut first: what is padded on comes from what stays.
Tensor cut(Tensor x, int64_t dim, const Widths& w) {
  return w.cuts() ? part(x, dim, w.cut_front, x.size(dim) - w.cut_front - w.cut_back) : x;
}
/// `pad` lists pairs from the last dimension on. What is reflected is what was there before
/// anything was cut, as in eager.
Tensor padded(Tensor x, const ir::Ints& pad, Edge edge) {
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t dim = x.rank() - 1 - static_cast<int64_t>(i);
    Expr before = pad[2 * i];
    Expr after = pad[2 * i + 1];
    if (edge == Edge::circular) {
      const Widths w = widths_of(before, after);
      x = cut(x, dim, w);
      before = w.before;
      after = w.after;
    }
    if (before != Expr(0) || after != Expr(0))
      x = call(x.builder(), "tandem.edge_pad", {x, dim, before, after, static_cast<int>(edge)});
  }
  return x;
}
/// The transpose of `padded` for an operand of `sizes`.
Tensor padded_gradient(Tensor grad, const ir::Ints& pad, Edge edge, const Sizes& sizes) {
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t dim = grad.rank() - 1 - static_cast<int64_t>(i);
    grad = line_gradient(grad, dim, edge, pad[2 * i], pad[2 * i + 1], sizes[dim]);
  }
  return grad;
}

Sizes edge_sizes(const Call& c, const ir::Ints& pad, Edge edge) {
  const ir::Type& self = c.type("self");
  if (edge != Edge::circular) need_number(c, "self");
  Sizes sizes = self.sizes;
  if (pad.size() % 2 != 0 || pad.size() > 2 * sizes.size())
    c.fail(fmt::format("padding {} does not fit {}", ir::to_string(pad), c.describe("self")));
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    size_t dim = sizes.size() - 1 - i;
    Expr most = edge == Edge::reflect ? sizes[dim] - 1 : sizes[dim];
    for (Expr width : {pad[2 * i], pad[2 * i + 1]})
      if (edge != Edge::replicate && sym::known_lt(most, width))
        c.fail(fmt::format("padding {} is wider than dimension {} of {}", ir::to_string(pad), dim,
                           c.describe("self")));
    if (sizes[dim] == Expr(0))
      c.fail(fmt::format("dimension {} of {} is empty", dim, c.describe("self")));
    Expr cut = sizes[dim] + sym::min(pad[2 * i], 0) + sym::min(pad[2 * i + 1], 0);
    sizes[dim] = sizes[dim] + pad[2 * i] + pad[2 * i + 1];
    const bool wraps_nothing = edge == Edge::circular && sym::known_lt(cut, 1);
    if (sym::known_lt(sizes[dim], 1) || wraps_nothing)
      c.fail(
          fmt::format("padding {} leaves nothing of {}", ir::to_string(pad), c.describe("self")));
  }
  return sizes;
}

/// The sizes of a pad of the last `dims` dimensions, before which there are one or two.
Sizes fixed_sizes(const Call& c, Edge edge) {
  const ir::Ints& pad = c.ints("padding");
  auto dims = static_cast<int64_t>(c.op().schema.params.back().list_size / 2);
  need_rank(c, "self", dims + 1, dims + 2);
  if (static_cast<int64_t>(pad.size()) != 2 * dims)
    c.fail(fmt::format("padding needs {} numbers", 2 * dims));
  return edge_sizes(c, pad, edge);
}
template <Edge edge>
Types fixed_types(const Call& c) {
  return {ir::Type::tensor(c.type("self").dtype, fixed_sizes(c, edge))};
}
template <Edge edge>
Types gradient_types(const Call& c) {
  Sizes sizes = fixed_sizes(c, edge);
  need_float(c, "self");
  need_same_dtype(c, {"self", "grad_output"});
  if (!same_sizes(c.type("grad_output").sizes, sizes))
    c.fail(fmt::format("{} must have sizes {}", c.describe("grad_output"), ir::to_string(sizes)));
  return {c.type("self")};
}
template <Edge edge>
Tensors fixed_parts(Builder& b, const Call& c) {
  return {padded({b, c.value("self")}, c.ints("padding"), edge)};
}
template <Edge edge>
Tensors gradient_parts(Builder& b, const Call& c) {
  Tensor grad{b, c.value("grad_output")};
  DType dtype = grad.dtype();
  grad = to(grad, compute_type(dtype));
  return {to(padded_gradient(grad, c.ints("padding"), edge, c.type("self").sizes), dtype)};
}

#define TANDEM_EDGE_PAD(Name, text, edge, width, forwards, backwards)                            \
  const OpDef Name{.schema = "aten::" text "(Tensor self, SymInt[" width "] padding) -> Tensor", \
                   .types = fixed_types<edge>,                                                   \
                   .decompose = fixed_parts<edge>,                                               \
                   .samples = forwards};                                                         \
  const OpDef Name##Backward {                                                                   \
    .schema = "aten::" text "_backward(Tensor grad_output, Tensor self, SymInt[" width           \
              "] padding) -> Tensor",                                                            \
    .types = gradient_types<edge>, .decompose = gradient_parts<edge>, .samples = backwards       \
  }

const Samples kReflect1 = {
    "$[2, 3, 5], [2, 3]", "$[3, 5], [4, 0]", "$[2, 3, 5], [-1, 2]",  "$[2, 3, 5], [5, 0]",
    "$[0, 3, 5], [1, 1]", "$[5], [1, 1]",    "i64[2, 3, 5], [1, 4]", "$[2, 3, 5]:special, [2, 3]"};
const Samples kReflect1Backward = {"$[2, 3, 10], $[2, 3, 5], [2, 3]", "$[3, 9], $[3, 5], [4, 0]",
                                   "$[2, 3, 6], $[2, 3, 5], [-1, 2]"};
const Samples kReplicate1 = {"$[2, 3, 5], [2, 3]", "$[3, 5], [7, 0]",    "$[2, 3, 5], [-1, 2]",
                             "$[0, 3, 5], [1, 1]", "$[2, 3, 0], [1, 1]", "$[2, 3, 4], [-4, 5]",
                             "$[2, 3, 4], [6, -5]"};
const Samples kReplicate1Backward = {"$[2, 3, 10], $[2, 3, 5], [2, 3]",
                                     "$[3, 12], $[3, 5], [7, 0]"};
const Samples kEdge2 = {"$[2, 3, 4, 5], [1, 2, 3, 0]", "$[3, 4, 5], [2, 2, 1, 1]",
                        "$[2, 3, 4, 5]{60, 1, 15, 3}, [1, 1, 1, 1]", "$[2, 3, 4, 5], [0, 0, 0, 0]",
                        "$[2, 3, 4, 5], [1, -1, -1, 2]"};
const Samples kEdge2Backward = {"$[2, 3, 7, 8], $[2, 3, 4, 5], [1, 2, 3, 0]",
                                "$[3, 6, 9], $[3, 4, 5], [2, 2, 1, 1]"};
const Samples kEdge3 = {"$[1, 2, 3, 4, 5], [1, 2, 3, 0, 1, 2]",
                        "$[2, 3, 4, 5], [1, 1, 1, 1, 1, 1]"};
const Samples kEdge3Backward = {"$[1, 2, 6, 7, 8], $[1, 2, 3, 4, 5], [1, 2, 3, 0, 1, 2]"};

TANDEM_EDGE_PAD(kReflection1, "reflection_pad1d", Edge::reflect, "2", kReflect1, kReflect1Backward);
TANDEM_EDGE_PAD(kReflection2, "reflection_pad2d", Edge::reflect, "4", kEdge2, kEdge2Backward);
TANDEM_EDGE_PAD(kReflection3, "reflection_pad3d", Edge::reflect, "6", kEdge3, kEdge3Backward);
TANDEM_EDGE_PAD(kReplication1, "replication_pad1d", Edge::replicate, "2", kReplicate1,
                kReplicate1Backward);
TANDEM_EDGE_PAD(kReplication2, "replication_pad2d", Edge::replicate, "4", kEdge2, kEdge2Backward);
TANDEM_EDGE_PAD(kReplication3, "replication_pad3d", Edge::replicate, "6", kEdge3, kEdge3Backward);
#undef TANDEM_EDGE_PAD

// --- any mode
// -------------------------------------------------------------------------------------

/// The edge that a call of pad asks for; none for a constant.
std::optional<Edge> mode_of(const Call& c) {
  if (c.op().schema.find("mode") < 0) return Edge::circular;
  const ir::Arg& mode = c.arg("mode");
  if (std::holds_alternative<std::string>(mode)) {
    std::optional<Edge> edge = edge_of(c.string("mode"));
    if (!edge && c.string("mode") != "constant") c.fail("unknown mode " + c.describe("mode"));
    return edge;
  }
  int64_t number = c.constant("mode");  // reflect, replicate, circular, constant
  if (number < 0 || number > 3) c.fail("unknown mode " + c.describe("mode"));
  return number == 3 ? std::nullopt : std::optional(static_cast<Edge>(number));
}
void check_any(const Call& c) {
  auto rank = static_cast<size_t>(c.type("self").rank());
  size_t dims = c.ints("pad").size() / 2;
  if (c.op().schema.find("value") >= 0 && c.has("value") && c.floating("value") != 0)
    c.fail(c.describe("value") + " is for the mode \"constant\"");
  bool fits = rank == dims + 2 || rank == dims + 1;
  if (dims < 1 || dims > 3 || !fits || c.ints("pad").size() % 2 != 0)
    c.fail(
        fmt::format("pad {} must list 2, 4 or 6 numbers for the dimensions of {} behind a batch "
                    "and channels",
                    ir::to_string(c.ints("pad")), c.describe("self")));
}
Types any_types(const Call& c) {
  std::optional<Edge> edge = mode_of(c);
  const ir::Type& self = c.type("self");
  const ir::Ints& pad = c.ints("pad");
  if (edge) {
    check_any(c);
    return {ir::Type::tensor(self.dtype, edge_sizes(c, pad, *edge))};
  }
  return {ir::Type::tensor(self.dtype, padded_sizes(c))};
}
Tensors any_parts(Builder& b, const Call& c) {
  Tensor self{b, c.value("self")};
  if (std::optional<Edge> edge = mode_of(c)) return {padded(self, c.ints("pad"), *edge)};
  double value = c.has("value") ? c.floating("value") : 0;
  return {call(b, "aten.constant_pad_nd", {self, c.arg("pad"), value})};
}

const OpDef kPad{
    .schema =
        "aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor",
    .types = any_types,
    .decompose = any_parts,
    .samples = {"$[3, 4], [1, 2]", "$[3, 4], [1, 0, 2, 1], \"constant\", 0.5",
                "$[2, 3, 5], [1, 2], \"reflect\"", "$[2, 3, 4, 5], [1, 2, 0, 3], \"replicate\"",
                "$[2, 3, 4, 5], [1, 2, 0, 3], \"circular\"", "$[3, 4], [2, 4], \"circular\"",
                "$[1, 2, 3, 4, 5], [1, 2, 0, 3, 1, 1], \"circular\"",
                "$[1, 2, 3, 4, 5], [1, 2, 0, 3, 1, 1], \"reflect\"",
                "$[3, 4], [2, 5], \"circular\"", "$[2, 3, 5], [1, 2], \"other\"",
                "$[2, 3, 5], [1, 2], \"reflect\", 1.0", "$[2, 3, 5], [-1, 2], \"circular\"",
                "$[5], [1, 2], \"reflect\"", "$[2, 3, 4, 5], [1, 2], \"reflect\""}};
const OpDef kPadEnum{
    .schema = "aten::_pad_enum(Tensor self, SymInt[] pad, int mode, float? value=None) -> Tensor",
    .types = any_types,
    .decompose = any_parts,
    .samples = {"$[3, 4], [1, 2], 3, 2.0", "$[2, 3, 5], [1, 2], 0", "$[2, 3, 5], [1, 2], 1",
                "$[2, 3, 5], [1, 2], 2", "$[2, 3, 5], [1, 2], 0, 1.0"}};
const OpDef kPadCircular{.schema = "aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor",
                         .types = any_types,
                         .decompose = any_parts,
                         .samples = {"$[2, 3, 5], [1, 2]", "$[3, 4, 5], [1, 5, 4, 0]"}};

const OpDef* const kOps[] = {&kLine,
                             &kReflection1,
                             &kReflection1Backward,
                             &kReflection2,
                             &kReflection2Backward,
                             &kReflection3,
                             &kReflection3Backward,
                             &kReplication1,
                             &kReplication1Backward,
                             &kReplication2,
                             &kReplication2Backward,
                             &kReplication3,
                             &kReplication3Backward,
                             &kPad,
                             &kPadEnum,
                             &kPadCircular};

}  // namespace

Family edge_pad_family() { return kOps; }

}  // namespace tandem::ops
