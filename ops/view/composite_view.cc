// Views that are other views under another name, and as_strided. A lowering is not needed for the
// former: they decompose; the scatter rule is that of the view they stand for.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }
Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Types self_with(const Call& c, Sizes sizes) {
  return {ir::Type::tensor(c.type("self").dtype, std::move(sizes))};
}

// --- narrow
// ---------------------------------------------------------------------------------------

struct Window {
  int64_t dim;
  Expr start, length;
};
Window window_of(const Call& c) {
  if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimension to narrow");
  int64_t dim = c.dim("dim", c.type("self").rank());
  Expr size = self_sizes(c)[dim];
  Window window{dim, c.integer("start"), c.integer("length")};
  if (sym::known_lt(window.start, 0)) window.start = window.start + size;
  if (sym::known_lt(window.length, 0) || sym::known_lt(window.start, 0) ||
      sym::known_lt(size, window.start + window.length))
    c.fail(fmt::format("start {} and length {} leave dimension {} of {}",
                       sym::to_string(c.integer("start")), sym::to_string(window.length), dim,
                       c.describe("self")));
  // A slice would clamp them to what is there.
  if (!sym::known_le(window.start + window.length, size))
    c.fail(
        fmt::format("that start {} and length {} stay inside of dimension {} of {} does not "
                    "follow from the ranges of their symbols; narrower ranges are accepted",
                    sym::to_string(c.integer("start")), sym::to_string(window.length), dim,
                    c.describe("self")));
  return window;
}
const OpDef kNarrow{
    .schema = "aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)",
    .types =
        [](const Call& c) {
          Window window = window_of(c);
          Sizes sizes = self_sizes(c);
          sizes[window.dim] = window.length;
          return self_with(c, sizes);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Window window = window_of(c);
      return {slice(self_of(b, c), window.dim, window.start, window.start + window.length)};
    },
    .scatter =
        [](Builder& b, const Call& c, Tensor base, Tensor value) {
          Window window = window_of(c);
          return call(b, "aten.slice_scatter",
                      {base, value, window.dim, window.start, window.start + window.length});
        },
    .samples = {"$[5, 4], 0, 1, 3", "$[5, 4], -1, -2, 1", "$[5], 0, 2, 0"}};

// --- permutations under other names
// ---------------------------------------------------------------

/// For real numbers the same as mT.
bool conjugates(const Call& c) {
  const std::string& name = c.op().schema.name;
  return name == "aten::mH" || name == "aten::adjoint" || name == "aten::matrix_H";
}
bool turns_matrices(const Call& c) { return c.op().schema.name == "aten::mT" || conjugates(c); }
/// Dimension of self that each result dimension shows.
std::vector<int64_t> order_of(const Call& c) {
  int64_t rank = c.type("self").rank();
  std::vector<int64_t> order(rank);
  for (int64_t i = 0; i < rank; ++i) order[i] = i;
  if (c.op().schema.name == "aten::numpy_T") {
    std::reverse(order.begin(), order.end());
  } else if (turns_matrices(c)) {
    if (rank == 1) c.fail(c.describe("self") + " must have at least 2 dimensions");
    if (rank > 2 && c.op().schema.name == "aten::matrix_H")
      c.fail(c.describe("self") + " must have 2 dimensions");
    if (rank > 0) std::swap(order[rank - 1], order[rank - 2]);
  } else if (rank > 0) {
    bool dims = c.op().schema.find("dim0") >= 0;
    std::swap(order[c.dim(dims ? "dim0" : "axis0", rank)],
              order[c.dim(dims ? "dim1" : "axis1", rank)]);
  }
  return order;
}
/// movedim: the dimensions named in source go to destination, the rest keep their order.
std::vector<int64_t> moved_order(const Call& c) {
  int64_t rank = c.type("self").rank();
  std::vector<int64_t> from = c.dims("source", rank);
  std::vector<int64_t> where = c.dims("destination", rank);
  if (c.ints("source").size() != c.ints("destination").size())
    c.fail("source and destination differ in length");
  bool none = c.op().schema.overload == "intlist" && c.ints("source").empty();
  std::vector<int64_t> order(rank, -1);
  for (size_t i = 0; !none && rank > 0 && i < from.size(); ++i) order[where[i]] = from[i];
  int64_t next = 0;
  for (int64_t& dim : order) {
    auto taken = [&](int64_t d) {
      return !none && std::find(from.begin(), from.end(), d) != from.end();
    };
    if (dim >= 0) continue;
    while (taken(next)) ++next;
    dim = next++;
  }
  return order;
}
template <auto Order>
Types ordered_types(const Call& c) {
  Sizes sizes;
  for (int64_t dim : called<Order>(c)) sizes.push_back(self_sizes(c)[dim]);
  return self_with(c, sizes);
}
template <auto Order>
Tensors as_permute(Builder& b, const Call& c) {
  return {permute(self_of(b, c), called<Order>(c))};
}
template <auto Order>
ComplexResults ordered_parts(const ComplexCall& c) {
  const std::vector<int64_t> order = called<Order>(c.whole);
  const ComplexParts z = c.given("self");
  const Tensor im = permute(z.im, order);
  return {{permute(z.re, order), conjugates(c.whole) ? -im : im}};
}
template <auto Order>
Tensor permute_back(Builder& b, const Call& c, Tensor, Tensor value) {
  if (is_complex(value.dtype()) && conjugates(c)) value = call(b, "aten.conj", {value});
  std::vector<int64_t> order = called<Order>(c);
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return permute(value, inverse);
}

#define TANDEM_PERMUTATION(Name, text, order, ...)                                 \
  const OpDef Name {                                                               \
    .schema = text, .types = ordered_types<order>, .decompose = as_permute<order>, \
    .scatter = permute_back<order>, .samples = {__VA_ARGS__}, .complex = {         \
      ordered_parts<order>                                                         \
    }                                                                              \
  }
TANDEM_PERMUTATION(kMovedim,
                   "aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)",
                   moved_order, "$[2, 3, 4], 0, 2", "$[2, 3, 4], -1, 0");
TANDEM_PERMUTATION(
    kMovedims,
    "aten::movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
    moved_order, "$[2, 3, 4], [0, 1], [2, 0]", "$[2, 3], [], []");
TANDEM_PERMUTATION(kMoveaxis,
                   "aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)",
                   moved_order, "$[2, 3, 4], 0, 2");
TANDEM_PERMUTATION(kSwapaxes, "aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)",
                   order_of, "$[2, 3, 4], 0, -1");
TANDEM_PERMUTATION(kSwapdims, "aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
                   order_of, "$[2, 3, 4], 0, -1");
TANDEM_PERMUTATION(kNumpyT, "aten::numpy_T(Tensor(a) self) -> Tensor(a)", order_of, "$[2, 3]",
                   "$[2, 3, 4]");
TANDEM_PERMUTATION(kMT, "aten::mT(Tensor(a) self) -> Tensor(a)", order_of, "$[2, 3]", "$[2, 3, 4]");
TANDEM_PERMUTATION(kMH, "aten::mH(Tensor(a) self) -> Tensor(a)", order_of, "$[]", "$[3]", "$[2, 3]",
                   "$[2, 3, 4]");
TANDEM_PERMUTATION(kAdjoint, "aten::adjoint(Tensor(a) self) -> Tensor(a)", order_of, "$[]", "$[3]",
                   "$[2, 3]", "$[2, 3, 4]");
TANDEM_PERMUTATION(kMatrixH, "aten::matrix_H(Tensor(a) self) -> Tensor(a)", order_of, "$[]", "$[3]",
                   "$[2, 3]", "$[2, 3, 4]");
#undef TANDEM_PERMUTATION

// --- as another tensor
// ----------------------------------------------------------------------------

Tensor reshape_back(Builder&, const Call&, Tensor base, Tensor value) {
  return reshape(value, base.sizes());
}

/// The view's own rules check the sizes, once it is built.
Types as_other(const Call& c) { return self_with(c, c.type("other").sizes); }
Types as_other_reshaped(const Call& c) {
  Expr count = c.type("self").numel();
  Expr other = c.type("other").numel();
  if (count != other && !sym::known_eq(count, other))
    c.fail(fmt::format("{} and {} differ in their number of elements", c.describe("self"),
                       c.describe("other")));
  return as_other(c);
}
Tensors as_reshape(Builder& b, const Call& c) {
  return {reshape(self_of(b, c), c.result()->type.sizes)};
}

const OpDef kExpandAs{.schema = "aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)",
                      .types =
                          [](const Call& c) {
                            const Sizes& sizes = c.type("other").sizes;
                            if (broadcast(c, self_sizes(c), sizes) != sizes)
                              c.fail(fmt::format("{} does not expand to {}", c.describe("self"),
                                                 c.describe("other")));
                            return as_other(c);
                          },
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        return {expand(self_of(b, c), c.type("other").sizes)};
                      },
                      // `value` has one element along each dimension that repeats self.
                      .scatter = [](Builder&, const Call& c, Tensor base, Tensor value) -> Tensor {
                        const Expr count = base.type().numel();
                        if (count != value.type().numel()) refuse_expanded_write(c);
                        return reshape(value, base.sizes());
                      },
                      .repeats = true,
                      .samples = {"$[3, 1], $[3, 4]", "$[4], $[2, 4]"}};
const OpDef kViewAs{.schema = "aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)",
                    .types = as_other_reshaped,
                    .decompose = as_reshape,
                    .scatter = reshape_back,
                    .samples = {"$[3, 4], $[6, 2]"}};
const OpDef kReshapeAs{.schema = "aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)",
                       .types = as_other_reshaped,
                       .decompose = as_reshape,
                       .scatter = reshape_back,
                       .samples = {"$[3, 4], $[6, 2]"}};
// Unlike the views above it copies where the strides ask for it, so its index map must be known.
const OpDef kRavel{.schema = "aten::ravel(Tensor(a) self) -> Tensor(a)",
                   .types = [](const Call& c) { return self_with(c, {c.type("self").numel()}); },
                   .lower = reindex<[](const Call& c, size_t, const Index& index) {
                     return reshape_index(self_sizes(c), c.result()->type.sizes, index);
                   }>,
                   .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
                     return {{"self", reshape(g[0], self_sizes(c))}};
                   },
                   .scatter = reshape_back,
                   .samples = {"$[3, 4]", "$[]", "$[4, 3]{1, 4}", "$[0, 2]"},
                   .batch = batch_reshape};
const OpDef kUnflatten{
    .schema = "aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)",
    .types =
        [](const Call& c) {
          Sizes sizes = self_sizes(c);
          int64_t dim = c.dim("dim", c.type("self").rank());
          if (sizes.empty()) c.fail("a 0-d tensor has no dimension to unflatten");
          Sizes parts = c.ints("sizes");
          for (const Expr& part : parts)
            if (part != Expr(-1) && part.range().hi < 0)
              c.fail("sizes " + ir::to_string(parts) + " are negative");
          Expr known = 1;
          for (Expr part : parts) known = part == Expr(-1) ? known : known * part;
          for (Expr& part : parts)
            if (part == Expr(-1) && known != Expr(0)) part = sym::floor_div(sizes[dim], known);
          if (sym::product(parts) != sizes[dim] && !sym::known_eq(sym::product(parts), sizes[dim]))
            c.fail(fmt::format("sizes {} do not multiply to dimension {} of {}",
                               ir::to_string(c.ints("sizes")), dim, c.describe("self")));
          sizes.erase(sizes.begin() + dim);
          sizes.insert(sizes.begin() + dim, parts.begin(), parts.end());
          return self_with(c, sizes);
        },
    .decompose = as_reshape,
    .scatter = reshape_back,
    .samples = {"$[3, 8], 1, [2, -1]", "$[6], 0, [2, 3]"}};
const OpDef kTypeAs{.schema = "aten::type_as(Tensor self, Tensor other) -> Tensor",
                    .types = [](const Call& c) -> Types {
                      return {ir::Type::tensor(c.type("other").dtype, self_sizes(c))};
                    },
                    .decompose = [](Builder& b, const Call& c) -> Tensors {
                      return {to(self_of(b, c), c.type("other").dtype)};
                    },
                    .samples = {"$[3, 4], f32[1]", "$[3], f64[2]"}};

const OpDef kMaskedFillTensor{
    .schema = "aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
    .types =
        [](const Call& c) {
          if (c.type("value").rank() != 0) c.fail(c.describe("value") + " must have 0 dimensions");
          if (c.type("mask").dtype != DType::boolean) c.fail(c.describe("mask") + " must be bool");
          return self_with(c, broadcast(c, self_sizes(c), c.type("mask").sizes));
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = self_of(b, c);
      return {
          where(Tensor{b, c.value("mask")}, to(Tensor{b, c.value("value")}, self.dtype()), self)};
    },
    .samples = {"$[3, 4], bool[3, 4], $[]", "$[3, 4], bool[4], $[]"},
    .inplace = true,
    .out = true,
    .out_as = "Tensor_out"};

// --- as_strided
// ----------------------------------------------------------------------------------- Strides count
// in the row-major layout of self: functionalize has made every base contiguous.

Expr storage_offset(const Call& c) {
  return c.has("storage_offset") ? c.integer("storage_offset") : Expr(0);
}

Expr address(const Call& c, const Index& index) {
  Expr linear = storage_offset(c);
  for (size_t i = 0; i < index.size(); ++i) linear = linear + index[i] * c.ints("stride")[i];
  return linear;
}
/// Places in memory from the first element to the last, where strides are written.
Expr extent(const ir::Type& type) {
  Expr places = 1;
  for (size_t i = 0; i < type.strides.size(); ++i)
    places = places + (type.sizes[i] - 1) * type.strides[i];
  return places;
}
Types strided_types(const Call& c) {
  const ir::Ints& size = c.ints("size");
  const ir::Ints& stride = c.ints("stride");
  if (size.size() != stride.size()) c.fail("size and stride differ in length");
  Expr last = storage_offset(c);
  for (const Expr& number : stride)
    if (number.range().hi < 0) c.fail(c.describe("stride") + " must not be negative");
  for (const Expr& number : size)
    if (number.range().hi < 0) c.fail(c.describe("size") + " must not be negative");
  if (last.range().hi < 0) c.fail(c.describe("storage_offset") + " must not be negative");
  for (size_t i = 0; i < size.size(); ++i) last = last + (size[i] - 1) * stride[i];
  bool empty = std::find(size.begin(), size.end(), Expr(0)) != size.end();
  if (!empty && sym::known_le(c.type("self").numel(), last) &&
      sym::known_le(extent(c.type("self")), last))
    c.fail(fmt::format("size {} and stride {} reach past the elements of {}", ir::to_string(size),
                       ir::to_string(stride), c.describe("self")));
  return self_with(c, size);
}
Tensor flat(Tensor x) { return reshape(x, {x.type().numel()}); }

const OpDef kAsStrided{
    .schema =
        "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? "
        "storage_offset=None) -> "
        "Tensor(a)",
    .types = strided_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return lowering.load(
                c.value("self"),
                reshape_index(self_sizes(c), {c.type("self").numel()}, {address(c, index)}));
          });
        },
    // Elements seen several times add up.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor self = self_of(b, c);
      DType wide = compute_type(self.dtype());
      Tensor zeros = full(b, {self.type().numel()}, 0, wide);
      Tensor sums = call(
          b, "tandem.strided_scatter",
          {zeros, to(flat(g[0]), wide), c.arg("size"), c.arg("stride"), storage_offset(c), true});
      return {{"self", reshape(to(sums, self.dtype()), self.sizes())}};
    },
    .scatter =
        [](Builder& b, const Call& c, Tensor base, Tensor value) {
          return call(b, "aten.as_strided_scatter",
                      {base, value, c.arg("size"), c.arg("stride"), storage_offset(c)});
        },
    .samples = {"$[12], [3, 2], [4, 1]", "$[3, 4], [2, 2], [1, 4], 1", "$[6], [4, 3], [1, 1]",
                "$[6], [0, 3], [1, 1]"},
    .sample_dtypes = DTypes::floats};
const OpDef kAsStridedScatter{
    .schema =
        "aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? "
        "storage_offset=None) -> Tensor",
    .types =
        [](const Call& c) {
          strided_types(c);
          for (size_t i = 0; i < c.ints("size").size(); ++i)
            if (c.ints("stride")[i] == Expr(0) && c.ints("size")[i] != Expr(1))
              c.fail(fmt::format("stride {} writes an element several times",
                                 ir::to_string(c.ints("stride"))));
          if (!same_sizes(c.type("src").sizes, c.ints("size")))
            c.fail(fmt::format("{} must have the sizes {} of what it overwrites", c.describe("src"),
                               ir::to_string(c.ints("size"))));
          return unary_same(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = self_of(b, c);
      Tensor result = call(b, "tandem.strided_scatter",
                           {flat(self), flat(Tensor{b, c.value("src")}), c.arg("size"),
                            c.arg("stride"), storage_offset(c), false});
      return {reshape(result, self.sizes())};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor zeros = zeros_like(Tensor{b, c.value("src")});
      ir::Arg offset = storage_offset(c);
      return {{"self", call(b, "aten.as_strided_scatter",
                            {g[0], zeros, c.arg("size"), c.arg("stride"), offset})},
              {"src", call(b, "aten.as_strided", {g[0], c.arg("size"), c.arg("stride"), offset})}};
    },
    // Integers only: eager's gradient of self is non-zero exactly where it was overwritten, which
    // is wrong.
    .samples = {"$[12], $[3, 2], [3, 2], [4, 1]", "$[3, 4], $[2, 2], [2, 2], [1, 4], 1"},
    .sample_dtypes = DTypes::integers,
    .out = true,
    .complex = {complex_each}};
// y = self with src added, or stored, at the places: dsrc = dy there.
Gradients strided_scatter_vjp(Builder& b, const Call& c, Grads g) {
  const ir::Arg& offset = c.arg("storage_offset");
  const Tensor read = call(b, "aten.as_strided", {g[0], c.arg("size"), c.arg("stride"), offset});
  const Tensor self = c.boolean("accumulate")
                          ? g[0]
                          : call(b, "tandem.strided_scatter",
                                 {g[0], zeros_like(Tensor{b, c.value("src")}), c.arg("size"),
                                  c.arg("stride"), offset, false});
  return {{"self", self}, {"src", flat(read)}};
}
const OpDef kStridedScatter{
    .schema =
        "tandem::strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt "
        "storage_offset, bool accumulate) -> Tensor",
    .types =
        [](const Call& c) {
          strided_types(c);
          need_rank(c, "self", 1, 1);
          need_rank(c, "src", 1, 1);
          need_same_dtype(c, {"self", "src"});
          if (sym::known_ne(c.type("src").numel(), sym::product(c.ints("size"))))
            c.fail(fmt::format("{} has not as many elements as size {}", c.describe("src"),
                               ir::to_string(c.ints("size"))));
          return unary_same(c);
        },
    .lower =
        [](Lowering& lowering, const Call& c) {
          Definition definition;
          definition.kind = Definition::Kind::scatter;
          definition.map = [&lowering, c](size_t, const Index& at) {
            return lowering.load(c.value("self"), at);
          };
          definition.source_sizes = c.type("src").sizes;
          definition.destination = [&lowering, c](const Index& source) {
            Index view = reshape_index(c.ints("size"), c.type("src").sizes, source);
            return lowering.scalars().index(address(c, view));
          };
          definition.value = [&lowering, c](const Index& source) {
            return lowering.load(c.value("src"), source);
          };
          definition.accumulate = c.boolean("accumulate");
          return definition;
        },
    .vjp = strided_scatter_vjp,
    .samples = {"f32[12], f32[6], [3, 2], [4, 1], 0, false"}};

const OpDef* const kOps[] = {&kNarrow,        &kMovedim,
                             &kMovedims,      &kMoveaxis,
                             &kSwapaxes,      &kSwapdims,
                             &kNumpyT,        &kMT,
                             &kExpandAs,      &kViewAs,
                             &kReshapeAs,     &kUnflatten,
                             &kRavel,         &kMH,
                             &kAdjoint,       &kMatrixH,
                             &kTypeAs,        &kMaskedFillTensor,
                             &kAsStrided,     &kAsStridedScatter,
                             &kStridedScatter};

}  // namespace

Family composite_view_family() { return kOps; }

}  // namespace tandem::ops
