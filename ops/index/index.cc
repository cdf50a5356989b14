// Reading and writing at computed places. A read is a map whose address holds a checked index; a
// write starts from the old values and takes the sources in order, so equal indices give the same
// bits on any machine. Every scatter comes down to one primitive, tandem::scatter; sums of 16-bit
// floats pass through f32 there.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ops/asserts.h"
#include "ops/elements.h"
#include "ops/families.h"
#include "ops/index/index_batch.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
Tensor flat(Tensor x) { return reshape(x, {x.type().numel()}); }
Tensor at_least_1d(Tensor x) { return x.rank() == 0 ? reshape(x, {1}) : x; }

void check_index(const Call& c, std::string_view name) {
  DType dtype = c.type(name).dtype;
  if (dtype != DType::i64 && dtype != DType::i32)
    c.fail(fmt::format("{} must have dtype i64 or i32", c.describe(name)));
}

/// The index at `at` as i64 and whether it lies in [0, extent). Eager takes no negative index in
/// these ops.
struct Checked {
  loop::Val inside;
  loop::Val value;
  int32_t error;
};
Checked read_index(Lowering& lowering, const ir::Value* indices, const Index& at, Expr extent,
                   std::string_view op) {
  loop::ScalarPool& pool = lowering.scalars();
  loop::Val value = pool.cast(lowering.load(indices, at), DType::i64);
  loop::Val inside =
      pool.binary(Opcode::bit_and, pool.binary(Opcode::ge, value, pool.integer(DType::i64, 0)),
                  pool.binary(Opcode::lt, value, pool.index(extent)));
  return {inside, value,
          lowering.error(fmt::format("[{}] index out of range: an index is not in [0, {})", op,
                                     sym::to_string(extent)))};
}
loop::Val checked_index(Lowering& lowering, const ir::Value* indices, const Index& at, Expr extent,
                        std::string_view op) {
  Checked index = read_index(lowering, indices, at, extent, op);
  return lowering.check(index.inside, index.value, index.error);
}
/// Element of `tensor` at `at`, with dimension dim replaced by the index read at `read`.
loop::Val element_at(Lowering& lowering, const Call& c, std::string_view tensor, Index at,
                     int64_t dim, std::string_view indices, const Index& read) {
  Expr extent = c.type(tensor).sizes[dim];
  loop::Val place =
      checked_index(lowering, c.value(indices), read, extent, c.op().schema.full_name());
  at[dim] = lowering.scalars().as_index(place, extent);
  return with_check(lowering.scalars(), lowering.load(c.value(tensor), at), place);
}

// --- embedding
// ------------------------------------------------------------------------------------

const OpDef kEmbedding{
    .schema =
        "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool "
        "scale_grad_by_freq=False, bool sparse=False) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_index(c, "indices");
      const ir::Type& weight = c.type("weight");
      if (weight.rank() != 2) c.fail(c.describe("weight") + " must have 2 dimensions");
      Sizes sizes = c.type("indices").sizes;
      sizes.push_back(weight.sizes[1]);
      return {ir::Type::tensor(weight.dtype, sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            Index read(index.begin(), index.end() - 1);
            return element_at(lowering, c, "weight", {0, index.back()}, 0, "indices", read);
          });
        },
    // Row w of the gradient sums the gradients of all places that read it; the padding row gets
    // none.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"weight", call(b, "aten.embedding_dense_backward",
                              {g[0], tensor(b, c, "indices"), c.type("weight").sizes[0],
                               c.integer("padding_idx"), c.boolean("scale_grad_by_freq")})}};
    },
    .samples = {"$[5, 4], i64[3]:index(5)", "$[7, 3], i64[2, 3]:index(7), 2",
                "$[5, 4], i64[]:index(5)", "$[5, 4], i64[0]", "$[5, 33], i32[9]:index(5), 1"},
    .out = true,
    .gathers = "weight",
    .can_fail = true,
    .batch = batch_embedding};

/// 1 / (how often row i's index occurs), one a source row.
Tensor inverse_frequency(Builder& b, Tensor indices, Expr rows, DType dtype) {
  Tensor ones = full(b, indices.sizes(), 1, dtype);
  Tensor counts =
      call(b, "tandem.scatter",
           {full(b, {rows}, 0, dtype), 0, indices, ones, true, "aten::embedding_dense_backward"});
  return reciprocal(call(b, "aten.index_select", {counts, 0, indices}));
}

Tensors embedding_backward(Builder& b, const Call& c) {
  Tensor grad = tensor(b, c, "grad_output");
  Expr width = grad.size(-1);
  Expr rows = c.integer("num_weights");
  DType dtype = grad.dtype();
  Expr count = c.type("indices").numel();
  Tensor indices = reshape(tensor(b, c, "indices"), {count});
  grad = to(reshape(grad, {count, width}), compute_type(dtype));
  if (c.boolean("scale_grad_by_freq"))
    grad = grad * unsqueeze(inverse_frequency(b, indices, rows, grad.dtype()), 1);
  if (c.integer("padding_idx") != Expr(-1)) {
    Tensor padding = call(b, "aten.eq.Scalar", {indices, c.integer("padding_idx")});
    grad = where(unsqueeze(padding, 1), 0.0, grad);
  }
  Tensor zeros = full(b, {rows, width}, 0, grad.dtype());
  Tensor sums =
      call(b, "tandem.scatter", {zeros, 0, indices, grad, true, "aten::embedding_dense_backward"});
  return {to(sums, dtype)};
}

const OpDef kEmbeddingBackward{
    .schema =
        "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, "
        "SymInt "
        "padding_idx, bool scale_grad_by_freq) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_index(c, "indices");
      const ir::Type& grad = c.type("grad_output");
      if (grad.rank() == 0) c.fail(c.describe("grad_output") + " needs a dimension");
      return {ir::Type::tensor(grad.dtype, {c.integer("num_weights"), grad.sizes.back()})};
    },
    .decompose = embedding_backward,
    // Linear in the gradient: the transpose reads rows again, each by its frequency.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor indices = tensor(b, c, "indices");
      Tensor grad = call(b, "aten.embedding", {g[0], indices});
      if (c.boolean("scale_grad_by_freq")) {
        Tensor flat = reshape(indices, {c.type("indices").numel()});
        const DType wide = compute_type(grad.dtype());
        Tensor by = inverse_frequency(b, flat, c.integer("num_weights"), wide);
        by = unsqueeze(reshape(by, indices.sizes()), -1);
        grad = to(to(grad, wide) * by, grad.dtype());
      }
      if (c.integer("padding_idx") != Expr(-1)) {
        Tensor padding = call(b, "aten.eq.Scalar", {indices, c.integer("padding_idx")});
        grad = where(unsqueeze(padding, -1), 0.0, grad);
      }
      return {{"grad_output", grad}};
    },
    .samples = {"$[3, 4], i64[3]:index(5), 5, -1, false",
                "$[2, 3, 4], i64[2, 3]:index(4), 4, 1, false",
                "$[9, 40], i64[9]:index(3), 3, -1, false", "$[6, 4], i64[6]:index(3), 5, 1, true"},
    .out = true,
    .can_fail = true};

// --- gather, index_select
// -------------------------------------------------------------------------

int64_t indexed_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }

/// gather and scatter: one index an element; no dimension but `dim` may be longer than the tensor
/// indexed.
void check_same_rank(const Call& c) {
  const ir::Type& self = c.type("self");
  const ir::Type& index = c.type("index");
  if (index.numel() == Expr(0)) return;  // eager asks nothing of it then
  check_index(c, "index");
  if (std::max<int64_t>(self.rank(), 1) != std::max<int64_t>(index.rank(), 1))
    c.fail(fmt::format("{} and {} must have the same number of dimensions", c.describe("self"),
                       c.describe("index")));
  int64_t dim = indexed_dim(c);
  if (self.rank() == 0 || index.rank() == 0) return;
  for (int64_t i = 0; i < self.rank(); ++i)
    if (i != dim && sym::known_lt(self.sizes[i], index.sizes[i]))
      c.fail(fmt::format("{} is larger than {} in dimension {}", c.describe("index"),
                         c.describe("self"), i));
}

/// self at `at`, with dimension dim replaced by the index read at `read`.
loop::Val indexed(Lowering& lowering, const Call& c, Index at, const Index& read) {
  const Sizes& sizes = c.type("self").sizes;
  if (sizes.empty()) {  // nothing to address, but a wrong index is still an error
    Checked index = read_index(lowering, c.value("index"), read, 1, c.op().schema.full_name());
    return lowering.check(index.inside, lowering.load(c.value("self"), {}), index.error);
  }
  at.resize(sizes.size());
  return element_at(lowering, c, "self", at, indexed_dim(c), "index", read);
}

const OpDef kGather{
    .schema =
        "aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_same_rank(c);
      return {ir::Type::tensor(c.type("self").dtype, c.type("index").sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return indexed(lowering, c, index, index);
          });
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor none = slice(flat(tensor(b, c, "self")), 0, 0, 0);
      return {reshape(none, c.type("index").sizes)};
    },
    .composite = [](const Call& c) { return c.type("index").numel() == Expr(0); },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor zeros = zeros_like(tensor(b, c, "self"));
      return {{"self", call(b, "aten.scatter_add",
                            {zeros, c.constant("dim"), tensor(b, c, "index"), g[0]})}};
    },
    .samples = {"$[3, 4], 1, i64[3, 2]:index(4)", "$[3, 4], 0, i64[2, 4]:index(3)",
                "$[5], -1, i64[7]:index(5)", "$[3, 4], 0, i64[0, 4]", "$[5], 0, u8[0]",
                "$[5], 0, u8[2, 0]", "$[], 0, i64[]:index(1)",
                "$[2, 3, 40], 1, i64[2, 5, 33]:index(3)"},
    .sample_dtypes = DTypes::all,
    .out = true,
    .gathers = "self",
    .can_fail = true,
    .batch = batch_by_elements,
    .complex = {.rule = complex_each, .places = "index"}};

const OpDef kIndexSelect{
    .schema = "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_index(c, "index");
      if (c.type("index").rank() > 1) c.fail(c.describe("index") + " must have 1 dimension");
      Sizes sizes = c.type("self").sizes;
      int64_t dim = indexed_dim(c);
      if (!sizes.empty()) sizes[dim] = c.type("index").numel();
      return {ir::Type::tensor(c.type("self").dtype, sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            Index read;
            if (c.type("index").rank() == 1)
              read.push_back(index.empty() ? Expr(0) : index[indexed_dim(c)]);
            return indexed(lowering, c, index, read);
          });
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor zeros = zeros_like(tensor(b, c, "self"));
      return {{"self",
               call(b, "aten.index_add", {zeros, c.constant("dim"), tensor(b, c, "index"), g[0]})}};
    },
    .samples = {"$[3, 4], 0, i64[5]:index(3)", "$[3, 4], -1, i64[2]:index(4)", "$[3, 4], 1, i64[0]",
                "$[2, 3, 40], 1, i32[4]:index(3)", "$[5], 0, i64[]:index(5)"},
    .sample_dtypes = DTypes::all,
    .out = true,
    .gathers = "self",
    .can_fail = true,
    .batch = batch_index_select,
    .complex = {.rule = complex_each, .places = "index"}};

// --- scatter
// --------------------------------------------------------------------------------------

[[noreturn]] void fail_past(const Call& c, std::string_view larger, std::string_view smaller,
                            int64_t dim) {
  c.fail(fmt::format("{} is larger than {} in dimension {}", c.describe(larger),
                     c.describe(smaller), dim));
}

/// One place for each element of src, or, where index is a list, for each slice of it.
Types primitive_scatter_types(const Call& c) {
  const int64_t rank = c.type("self").rank();
  const ir::Type& index = c.type("index");
  const ir::Type& src = c.type("src");
  const int64_t dim = indexed_dim(c);
  check_index(c, "index");
  need_same_dtype(c, {"self", "src"});
  need_rank(c, "self", 1, INT64_MAX);
  if (index.rank() != 1) need_rank(c, "index", rank, rank);
  need_rank(c, "src", rank, rank);
  if (index.numel() == Expr(0) || src.numel() == Expr(0)) return unary_same(c);
  const bool slices = index.rank() == 1 && rank != 1;
  for (int64_t i = 0; i < rank; ++i) {
    const Expr places = slices ? src.sizes[i] : index.sizes[i];
    if (sym::known_lt(src.sizes[i], places)) fail_past(c, "index", "src", i);
    if (i != dim && sym::known_lt(c.type("self").sizes[i], places))
      fail_past(c, slices ? "src" : "index", "self", i);
  }
  if (slices && sym::known_lt(index.sizes[0], src.sizes[dim])) fail_past(c, "src", "index", dim);
  return unary_same(c);
}

loop::Combiner scatter_combiner(const std::string& name) {
  if (name == "prod") return loop::Combiner::prod;
  if (name == "amax") return loop::Combiner::max;
  return name == "amin" ? loop::Combiner::min : loop::Combiner::sum;
}
/// What of src was read: it may have more than the index says.
Tensor widened_to(Tensor part, const ir::Sizes& sizes) {
  for (int64_t i = 0; i < part.rank(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (part.sizes()[at] == sizes[at]) continue;
    Sizes wider = part.sizes();
    wider[at] = sizes[at];
    part = call(part.builder(), "aten.slice_backward", {part, wider, i, 0, part.size(i), 1});
  }
  return part;
}
// y = self with src at the places: dself = dy but where src was stored, dsrc = dy at the places. Of
// two sources at one place both get it, as in eager.
Gradients scatter_vjp(Builder& b, const Call& c, Grads g) {
  if (c.boolean("accumulate") && c.string("combine") != "sum")
    throw Unsupported(fmt::format("[{}] has no gradient where it combines by {}", c.string("op"),
                                  c.string("combine")));
  const Tensor src{b, c.value("src")};
  const Tensor index{b, c.value("index")};
  const bool slices = index.rank() == 1 && g[0].rank() > 1;
  const Tensor read =
      call(b, slices ? "aten.index_select" : "aten.gather", {g[0], c.constant("dim"), index});
  const Tensor self =
      c.boolean("accumulate")
          ? g[0]
          : call(b, "tandem.scatter",
                 {g[0], c.constant("dim"), index, zeros_like(src), false, c.arg("op")});
  return {{"self", self}, {"src", slices ? read : widened_to(read, src.sizes())}};
}
/// Places as i64, each in [0, extent), or an error of `op`.
const OpDef kCheckedPlaces{
    .schema = "tandem::checked_places(Tensor self, SymInt extent, str op) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_index(c, "self");
      return {ir::Type::tensor(DType::i64, c.type("self").sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& at) {
            return checked_index(lowering, c.value("self"), at, c.integer("extent"),
                                 c.string("op"));
          });
        },
    .no_grad = "indices are integers",
    .samples = {"i64[3]:index(5), 5, \"tandem::scatter\"",
                "i32[2, 2]:index(3), 3, \"aten::scatter\""},
    .can_fail = true};

bool are_in(const ir::Value* places, Expr extent) {
  return places->node != nullptr && is_checked_first(*places->node) &&
         places->node->call().integer("extent") == extent;
}

ComplexResults scattered_parts(const ComplexCall& c) {
  if (c.whole.boolean("accumulate") && c.whole.string("combine") != "sum")
    throw Unsupported(fmt::format("[{}] of complex numbers combined by {}", c.whole.string("op"),
                                  c.whole.string("combine")));
  return complex_each(c);
}
/// self with src stored, or combined, at index along dim. A 1-d index serves all elements of a
/// slice of src.
const OpDef kScatter{
    .schema =
        "tandem::scatter(Tensor self, int dim, Tensor index, Tensor src, bool accumulate, str op, "
        "str combine=\"sum\") -> Tensor",
    .types = primitive_scatter_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          int64_t dim = indexed_dim(c);
          bool slices = c.type("index").rank() == 1;
          Expr extent = c.type("self").sizes[dim];
          Definition definition;
          definition.kind = Definition::Kind::scatter;
          definition.map = [&lowering, c](size_t, const Index& at) {
            return lowering.load(c.value("self"), at);
          };
          definition.source_sizes = c.type("src").sizes;
          if (!slices || c.type("self").rank() == 1)
            definition.source_sizes = c.type("index").sizes;
          definition.scatter_dim = dim;
          definition.destination = [&lowering, c, dim, slices, extent](const Index& source) {
            const ir::Value* places = c.value("index");
            const Index at = slices ? Index{source[dim]} : source;
            return are_in(places, extent)
                       ? lowering.load(places, at)
                       : checked_index(lowering, places, at, extent, c.string("op"));
          };
          definition.value = [&lowering, c](const Index& source) {
            return lowering.load(c.value("src"), source);
          };
          definition.accumulate = c.boolean("accumulate");
          definition.combiner = scatter_combiner(c.string("combine"));
          return definition;
        },
    .vjp = scatter_vjp,
    .samples = {"$[5, 4], 0, i64[3]:index(5), $[3, 4], false, \"tandem::scatter\"",
                "$[5, 40], 0, i64[9]:index(5), $[9, 40], true, \"tandem::scatter\", \"prod\"",
                "$[5], 0, i64[9]:index(5), $[9]:special, true, \"tandem::scatter\", \"amax\""},
    .sample_dtypes = DTypes::f32_only,
    .can_fail = true,
    .batch = batch_scatter,
    .complex = {.rule = scattered_parts, .places = "index"}};

/// Sums of 16-bit floats round once, at the end; a sum of bools is true where any is.
DType scatter_dtype(DType dtype, bool accumulate) {
  if (!accumulate) return dtype;
  return dtype == DType::boolean ? DType::i64 : compute_type(dtype);
}

/// An index without elements, which writes nothing, may have any number of dimensions, and dtype.
Tensor scatter_into(const Call& c, Tensor self, Tensor index, Tensor src, bool accumulate) {
  if (index.type().numel() == Expr(0)) return self;
  DType dtype = scatter_dtype(self.dtype(), accumulate);
  const Sizes& sizes = self.sizes();
  Builder& b = self.builder();
  Tensor result =
      call(b, "tandem.scatter",
           {to(at_least_1d(self), dtype), indexed_dim(c), at_least_1d(index),
            to(at_least_1d(src), dtype), accumulate, c.op().schema.full_name().c_str()});
  return reshape(to(result, self.dtype()), sizes);
}

Types scatter_types(const Call& c) {
  check_same_rank(c);
  if (c.op().schema.find("src") < 0) return unary_same(c);
  const ir::Type& src = c.type("src");
  const ir::Type& index = c.type("index");
  if (src.dtype != c.type("self").dtype)
    c.fail(
        fmt::format("{} and {} must have the same dtype", c.describe("self"), c.describe("src")));
  if (std::max<int64_t>(src.rank(), 1) != std::max<int64_t>(index.rank(), 1))
    c.fail(fmt::format("{} and {} must have the same number of dimensions", c.describe("src"),
                       c.describe("index")));
  for (int64_t i = 0; i < std::min(src.rank(), index.rank()); ++i)
    if (sym::known_lt(src.sizes[i], index.sizes[i])) fail_past(c, "index", "src", i);
  return unary_same(c);
}

/// Gradient of src: what its elements were written to; elements past the index were not read.
Tensor source_grad(Builder& b, const Call& c, Tensor grad) {
  Tensor read = call(b, "aten.gather", {grad, c.constant("dim"), tensor(b, c, "index")});
  const Sizes& sizes = c.type("src").sizes;
  for (int64_t i = 0; i < read.rank(); ++i) {
    if (read.size(i) == sizes[i]) continue;
    Sizes wider = read.sizes();
    wider[i] = sizes[i];
    read = call(b, "aten.slice_backward", {read, wider, i, 0, read.size(i), 1});
  }
  return read;
}
/// Gradient of self where sources replace: zero at the places written.
Tensor overwritten_grad(Builder& b, const Call& c, Tensor grad) {
  return call(b, "aten.scatter.value", {grad, c.constant("dim"), tensor(b, c, "index"), 0});
}

const OpDef kScatterAdd{
    .schema = "aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
    .types = scatter_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {
          scatter_into(c, tensor(b, c, "self"), tensor(b, c, "index"), tensor(b, c, "src"), true)};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", g[0]}, {"src", source_grad(b, c, g[0])}};
    },
    .samples = {"$[3, 4], 1, i64[3, 2]:index(4), $[3, 2]",
                "$[3, 4], 0, i64[2, 4]:index(3), $[2, 4]",
                "$[3, 4], 0, i64[5, 2]:index(3), $[5, 2]", "$[5], 0, i64[9]:index(5), $[9]",
                "$[], 0, i64[]:index(1), $[]", "$[3, 4], 0, i64[0, 4], $[0, 4]"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .out = true,
    .can_fail = true,
    .batch = batch_by_elements};
const OpDef kScatterSrc{
    .schema = "aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
    .types = scatter_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {
          scatter_into(c, tensor(b, c, "self"), tensor(b, c, "index"), tensor(b, c, "src"), false)};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", overwritten_grad(b, c, g[0])}, {"src", source_grad(b, c, g[0])}};
    },
    .samples = {"$[3, 4], 1, i64[3, 1]:index(4), $[3, 1]",
                "$[3, 4], 0, i64[2, 4]:index(3), $[2, 4]"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .can_fail = true,
    .batch = batch_by_elements};
const OpDef kScatterValue{
    .schema = "aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
    .types = scatter_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = tensor(b, c, "self");
      Tensor index = tensor(b, c, "index");
      Tensor src = call(b, "aten.full", {index.sizes(), c.arg("value"), self.dtype()});
      return {scatter_into(c, self, index, src, false)};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", overwritten_grad(b, c, g[0])}};
    },
    .samples = {"$[3, 4], 1, i64[3, 2]:index(4), 2", "$[3, 4], 0, i64[2, 4]:index(3), 0.5",
                "$[5], 0, i64[0], 1"},
    .sample_dtypes = DTypes::floats,
    .inplace = true,
    .can_fail = true,
    .batch = batch_by_elements};

const OpDef kIndexAdd{
    .schema =
        "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> "
        "Tensor",
    .types =
        [](const Call& c) {
          check_index(c, "index");
          const ir::Type& source = c.type("source");
          if (c.type("index").rank() > 1) c.fail(c.describe("index") + " must have 1 dimension");
          if (source.dtype != c.type("self").dtype)
            c.fail(fmt::format("{} and {} must have the same dtype", c.describe("self"),
                               c.describe("source")));
          Sizes sizes = c.type("self").sizes;
          int64_t dim = indexed_dim(c);
          if (!sizes.empty()) sizes[dim] = c.type("index").numel();
          if (source.rank() > 0 && !sizes.empty() && source.sizes != sizes)
            c.fail(
                fmt::format("{} must have sizes {}", c.describe("source"), ir::to_string(sizes)));
          return unary_same(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor source = tensor(b, c, "source");
      if (c.arg("alpha") != ir::Arg(Expr(1)))
        source = call(b, "aten.mul.Scalar", {source, c.arg("alpha")});
      return {scatter_into(c, tensor(b, c, "self"), tensor(b, c, "index"), source, true)};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor source =
          call(b, "aten.index_select", {g[0], c.constant("dim"), tensor(b, c, "index")});
      if (c.arg("alpha") != ir::Arg(Expr(1)))
        source = call(b, "aten.mul.Scalar", {source, c.arg("alpha")});
      return {{"self", g[0]}, {"source", reshape(source, c.type("source").sizes)}};
    },
    .samples = {"$[3, 4], 0, i64[5]:index(3), $[5, 4]", "$[3, 4], 1, i64[2]:index(4), $[3, 2]",
                "$[3, 40], 0, i64[5]:index(3), $[5, 40], alpha=2", "$[3, 4], 0, i64[0], $[0, 4]"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .out = true,
    .can_fail = true};

/// 1 at each place, 0 beside it. How many classes there are must be said: else data tell, and
/// Dynamo breaks the graph.
const OpDef kOneHot{
    .schema = "aten::one_hot(Tensor self, int num_classes=-1) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.type("self").dtype != DType::i64) c.fail(c.describe("self") + " must be i64");
      const int64_t classes = c.constant("num_classes");
      if (classes < 1) c.fail(c.describe("num_classes") + " must be positive");
      Sizes sizes = c.type("self").sizes;
      sizes.emplace_back(classes);
      return {ir::Type::tensor(DType::i64, sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      const Expr classes = c.constant("num_classes");
      const Tensor places =
          call(b, "tandem.checked_places", {c.arg("self"), classes, "aten::one_hot"});
      return {to(call(b, "aten.eq.Tensor", {unsqueeze(places, -1), arange(b, classes, DType::i64)}),
                 DType::i64)};
    },
    .no_grad = "indices are integers",
    .samples = {"i64[3, 4]:index(5), 5", "i64[0], 3", "i64[]:index(2), 2", "i64[7]:index(3), 100"},
    .can_fail = true};

const OpDef* const kOps[] = {&kEmbedding,     &kEmbeddingBackward, &kGather,     &kIndexSelect,
                             &kCheckedPlaces, &kScatter,           &kScatterAdd, &kScatterSrc,
                             &kScatterValue,  &kIndexAdd,          &kOneHot};

}  // namespace

bool is_checked_first(const ir::Node& node) { return &def_of(node) == &kCheckedPlaces; }

Family index_family() { return kOps; }

}  // namespace tandem::ops
