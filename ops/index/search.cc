// Positions in sorted sequences and membership. A search is eager's, step for step, so that it
// gives the same positions in sequences that are not sorted or hold NaN: as many steps as the
// length has bits, each of which reads the middle of what is left.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/index/data_sized.h"

namespace tandem::ops {
namespace {

constexpr std::string_view kPosition = "a position is not differentiable";
constexpr std::string_view kTruth = "the result is not differentiable (bool)";

bool searches_right(const Call& c) {
  bool right = c.boolean("right");
  if (!c.has("side")) return right;
  std::string side = c.string("side");
  if (side != "left" && side != "right")
    c.fail(fmt::format("side \"{}\" is neither \"left\" nor \"right\"", side));
  if (right && side == "left") c.fail("side \"left\" contradicts right=True");
  return side == "right";
}
DType position_dtype(const Call& c) { return c.boolean("out_int32") ? DType::i32 : DType::i64; }

void check_sorter(const Call& c) {
  if (!c.has("sorter")) return;
  if (c.type("sorter").dtype != DType::i64) c.fail(c.describe("sorter") + " must have dtype i64");
  if (!same_sizes(c.type("sorter").sizes, c.type("sorted_sequence").sizes))
    c.fail(c.describe("sorter") + " must have the sizes of sorted_sequence");
}
Types search_types(const Call& c) {
  const Sizes& sequence = c.type("sorted_sequence").sizes;
  searches_right(c);
  check_sorter(c);
  if (common_dtype(c, {"sorted_sequence", "self"}) == DType::boolean) c.fail("bool has no order");
  if (sequence.empty()) c.fail(c.describe("sorted_sequence") + " must have a dimension");
  bool is_tensor =
      std::holds_alternative<ir::Value*>(c.arg("self")) && c.value("self")->type.is_tensor();
  Sizes sizes = is_tensor ? c.type("self").sizes : Sizes{};
  bool fits = sequence.size() == 1 || sequence.size() == sizes.size();
  for (size_t i = 0; fits && sequence.size() > 1 && i + 1 < sizes.size(); ++i)
    fits = sequence[i] == sizes[i] || sym::known_eq(sequence[i], sizes[i]);
  if (!fits)
    c.fail(fmt::format("sizes {} do not fit {}: all but the last must be equal",
                       ir::to_string(sizes), c.describe("sorted_sequence")));
  return {ir::Type::tensor(position_dtype(c), sizes)};
}

/// Enough steps to narrow [0, length] down to one position.
int search_steps(Expr length) {
  int64_t most = length.constant().value_or(length.range().hi);
  int steps = 1;
  while (steps < 62 && (int64_t{1} << (steps - 1)) <= most) ++steps;
  return steps;
}

struct Search {
  Lowering& lowering;
  const Call& c;
  Index row;
  DType dtype;

  /// Element of the sequence at a position that is in it where `mask` holds.
  Element at(Element position, Element mask) const {
    loop::ScalarPool& pool = lowering.scalars();
    Index index = row;
    Expr length = c.type("sorted_sequence").sizes.back();
    index.push_back(pool.as_index(position.value(), length));
    if (c.has("sorter")) {
      loop::Val place = lowering.load(c.value("sorter"), index, mask.value());
      loop::Val inside =
          pool.binary(Opcode::bit_and, pool.binary(Opcode::ge, place, pool.integer(DType::i64, 0)),
                      pool.binary(Opcode::lt, place, pool.index(length)));
      std::string text = fmt::format("[{}] sorter index out of range", c.op().schema.full_name());
      index.back() = pool.as_index(lowering.check(inside, place, lowering.error(text)), length);
    }
    loop::Val found = lowering.load(c.value("sorted_sequence"), index, mask.value());
    return {pool, pool.cast(found, dtype)};
  }

  Element run(Element wanted, bool right) const {
    loop::ScalarPool& pool = lowering.scalars();
    Expr length = c.type("sorted_sequence").sizes.back();
    Element low{pool, pool.integer(DType::i64, 0)};
    Element high{pool, pool.index(length)};
    for (int i = search_steps(length); i > 0; --i) {
      Element open = low < high;
      Element middle = (low + high).apply(Opcode::shift_right, low.number(1));
      Element found = at(middle, open);
      Element stays = right ? found > wanted : found >= wanted;
      Element up = both(open, stays.apply(Opcode::logical_not));
      high = choose(both(open, stays), middle, high);
      low = choose(up, middle + 1.0, low);
    }
    return low;
  }
};
Definition search_lower(Lowering& lowering, const Call& c) {
  DType dtype = compute_type(common_dtype(c, {"sorted_sequence", "self"}));
  return map_definition(c, [&lowering, c, dtype](size_t, const Index& index) {
    bool shared = c.type("sorted_sequence").rank() == 1;
    Index row = shared || index.empty() ? Index{} : Index(index.begin(), index.end() - 1);
    Search search{lowering, c, row, dtype};
    Element wanted = operand(lowering, c, "self", index, dtype);
    return search.run(wanted, searches_right(c)).cast(position_dtype(c)).value();
  });
}
#define TANDEM_SEARCH_OPTIONS \
  "*, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor"
const OpDef kSearchsorted{
    .schema =
        "aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, " TANDEM_SEARCH_OPTIONS,
    .types = search_types,
    .lower = search_lower,
    .no_grad = kPosition,
    .samples = {"$[7], $[3, 4]", "$[2, 5], $[2, 3]", "$[2, 5], $[2, 3], right=true",
                "$[7], $[3, 4], out_int32=true, side=\"right\"", "$[0], $[3]", "$[4], $[]",
                "f32[8]:special, $[20]:special", "$[5], $[4], sorter=i64[5]:index(5)", "$[1], $[5]",
                "$[5], $[4], right=true, side=\"left\"", "$[2, 5], $[3, 3]", "f64[6], $[5]",
                "$[33], $[9]:special, right=true", "$[0, 3], $[0, 2]"},
    .sample_dtypes = DTypes::numbers,
    .can_fail = true};
const OpDef kSearchsortedScalar{
    .schema =
        "aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, " TANDEM_SEARCH_OPTIONS,
    .types = search_types,
    .lower = search_lower,
    .no_grad = kPosition,
    .samples = {"$[7], 0.25", "$[7], 1, right=true", "$[5], 1, sorter=i64[5]:index(5)",
                "$[2, 2], 1"},
    .can_fail = true};
#undef TANDEM_SEARCH_OPTIONS

Tensors bucketed(Builder& b, const Call& c) {
  bool scalar = c.op().schema.overload == "Scalar";
  return {call(b, scalar ? "aten.searchsorted.Scalar" : "aten.searchsorted.Tensor",
               {c.arg("boundaries"), c.arg("self"), c.arg("out_int32"), c.arg("right")})};
}
Types bucket_types(const Call& c) {
  if (c.type("boundaries").rank() != 1) c.fail(c.describe("boundaries") + " must have 1 dimension");
  bool scalar = c.op().schema.overload == "Scalar";
  return {ir::Type::tensor(position_dtype(c), scalar ? Sizes{} : c.type("self").sizes)};
}
const OpDef kBucketize{
    .schema =
        "aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, "
        "bool right=False) -> Tensor",
    .types = bucket_types,
    .decompose = bucketed,
    .no_grad = kPosition,
    .samples = {"$[3, 4], $[5]", "$[3], $[5], right=true", "$[3], $[5], out_int32=true",
                "$[], $[1]", "$[3], $[2, 2]"},
    .sample_dtypes = DTypes::numbers};
const OpDef kBucketizeScalar{
    .schema =
        "aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, "
        "bool right=False) -> Tensor",
    .types = bucket_types,
    .decompose = bucketed,
    .no_grad = kPosition,
    .samples = {"0.5, $[5]", "1, $[5], right=true"}};

// --- membership
// -----------------------------------------------------------------------------------

Tensors negated_if(const Call& c, Tensor found) {
  return {c.boolean("invert") ? logical_not(found) : found};
}
const OpDef kIsin{
    .schema =
        "aten::isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool "
        "assume_unique=False, bool invert=False) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_number(c, "elements");
      need_number(c, "test_elements");
      return {ir::Type::tensor(DType::boolean, c.type("elements").sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor elements{b, c.value("elements")};
      Tensor tests{b, c.value("test_elements")};
      Tensor same = eq(unsqueeze(elements, -1), reshape(tests, {tests.type().numel()}));
      return negated_if(c, call(b, "aten.any.dim", {same, -1}));
    },
    .no_grad = kTruth,
    .samples = {"$[3, 4], $[5]", "$[3, 4], $[2, 2], invert=true", "$[], $[3]", "$[4], $[0]",
                "$[0], $[3]", "$[20]:special, $[9]:special", "$[3], $[40], assume_unique=true"},
    .sample_dtypes = DTypes::numbers};
const OpDef kIsinScalar{
    .schema =
        "aten::isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool "
        "assume_unique=False, bool invert=False) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_number(c, "elements");
      return {ir::Type::tensor(DType::boolean, c.type("elements").sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return negated_if(c, call(b, "aten.eq.Scalar", {c.arg("elements"), c.arg("test_element")}));
    },
    .no_grad = kTruth,
    .samples = {"$[3, 4], 2", "$[12]:special, 1, invert=true"},
    .sample_dtypes = DTypes::numbers};
const OpDef kScalarIsin{
    .schema =
        "aten::isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool "
        "assume_unique=False, bool invert=False) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_number(c, "test_elements");
      return {ir::Type::tensor(DType::boolean, {})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor same = call(b, "aten.eq.Scalar", {c.arg("test_elements"), c.arg("element")});
      return negated_if(c, call(b, "aten.any", {same}));
    },
    .no_grad = kTruth,
    .samples = {"2, $[3, 4]", "1, $[3, 4], invert=true", "1, $[0]"},
    .sample_dtypes = DTypes::numbers};

// --- repeats by a tensor
// -------------------------------------------------------------------------- Result i is a copy of
// the element whose share of the running sum of repeats holds i. Where output_size does not say how
// many there are, only data tell.

void check_repeats(const Call& c) {
  DType dtype = c.type("repeats").dtype;
  if (dtype != DType::i64 && dtype != DType::i32)
    c.fail(c.describe("repeats") + " must have dtype i64 or i32");
  if (c.has("output_size") && c.integer("output_size").range().hi < 0)
    c.fail("output_size must not be negative");
}

/// Which element stands at each place, of `size` places that the call makes or is told.
Tensor repeated_places(Builder& b, const Call& c, Tensor repeats, Expr size) {
  if (!c.has("output_size")) {
    Tensor times = to(repeats, DType::i64);
    Tensor fits = call(b, "aten.all", {call(b, "aten.ge.Scalar", {times, 0})});
    Tensor checked = call(b, "tandem.assert_true", {fits, "repeats can not be negative"});
    make_size(call(b, "aten.sum", {times}) * to(checked, DType::i64), size);
  }
  Tensor sums = call(b, "aten.cumsum", {repeats, 0});
  Tensor place = arange(b, size, DType::i64);
  return call(b, "aten.searchsorted.Tensor", {sums, place, repeats.dtype() == DType::i32, true});
}

Types repeats_types(const Call& c, Expr size) {
  need_rank(c, "repeats", 1, 1);
  check_repeats(c);
  return {ir::Type::tensor(c.type("repeats").dtype, {size})};
}
const OpDef kRepeatTensor{
    .schema =
        "aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> "
        "Tensor",
    .types = [](const Call& c) -> Types { return repeats_types(c, c.integer("output_size")); },
    .data_sized = {[](const Call& c) -> int64_t { return c.has("output_size") ? -1 : 0; },
                   repeats_types},
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {repeated_places(b, c, Tensor{b, c.value("repeats")}, c.result()->type.sizes[0])};
    },
    .no_grad = kPosition,
    .samples = {"i64[1]:index(1), output_size=0", "i64[0], output_size=0", "i32[0], output_size=0",
                "i64[4]:index(3)", "i32[5]:index(4)", "i64[0]"}};

int64_t repeated_dim(const Call& c) {
  const int64_t rank = c.type("self").rank();
  if (c.has("dim") && rank == 0) c.fail("a 0-d tensor has no dimension to repeat");
  return c.has("dim") ? c.dim("dim", rank) : 0;
}
Types repeat_self_types(const Call& c, Expr size) {
  need_rank(c, "repeats", 0, 1);
  check_repeats(c);
  Sizes sizes = c.type("self").sizes;
  if (!c.has("dim")) sizes = {c.type("self").numel()};
  const size_t dim = static_cast<size_t>(repeated_dim(c));
  Expr count = c.type("repeats").numel();
  if (count != Expr(1) && count != sizes[dim] && !sym::known_eq(count, sizes[dim]))
    c.fail(c.describe("repeats") + " must have an element for each that is repeated");
  sizes[dim] = size;
  return {ir::Type::tensor(c.type("self").dtype, sizes)};
}
const OpDef kRepeatSelf{
    .schema =
        "aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, "
        "SymInt? output_size=None) -> Tensor",
    .types = [](const Call& c) -> Types { return repeat_self_types(c, c.integer("output_size")); },
    .data_sized = {[](const Call& c) { return c.has("output_size") ? -1 : repeated_dim(c); },
                   repeat_self_types},
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self{b, c.value("self")};
      Tensor repeats{b, c.value("repeats")};
      if (!c.has("dim")) self = reshape(self, {self.type().numel()});
      const int64_t dim = repeated_dim(c);
      repeats = expand(reshape(repeats, {repeats.type().numel()}), {self.size(dim)});
      const Expr size = c.result()->type.sizes[static_cast<size_t>(dim)];
      return {call(b, "aten.index_select", {self, dim, repeated_places(b, c, repeats, size)})};
    },
    .samples = {"$[3], i64[1]:index(1), 0, output_size=0", "$[0, 2], i64[0], 0, output_size=0",
                "$[4, 3], i64[4]:index(3), 0", "$[2, 3], i64[3]:index(3), -1",
                "$[5], i64[5]:index(4)", "$[2, 2], i64[1]:index(4), 1"},
    .can_fail = true};

const OpDef* const kOps[] = {
    &kRepeatTensor,    &kRepeatSelf, &kSearchsorted, &kSearchsortedScalar, &kBucketize,
    &kBucketizeScalar, &kIsin,       &kIsinScalar,   &kScalarIsin};

}  // namespace

Family search_family() { return kOps; }

}  // namespace tandem::ops
