// Distances between the rows of two tensors: the norm of differences, which are never stored. Eager
// expands the square of long rows instead; that is a product, and loses digits of small distances.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }

void need_pair(const Call& c) {
  need_float(c, "x1");
  need_float(c, "x2");
  if (c.type("x1").rank() < 2 || c.type("x2").rank() < 2)
    c.fail("x1 and x2 must have at least 2 dimensions");
  Expr width = c.type("x1").sizes.back();
  if (width != c.type("x2").sizes.back() && !sym::known_eq(width, c.type("x2").sizes.back()))
    c.fail(fmt::format("rows of {} and {} differ in length", c.describe("x1"), c.describe("x2")));
  if (c.op().schema.find("p") >= 0 && c.floating("p") < 0)
    c.fail(c.describe("p") + " must not be negative");
}
Types all_pairs_types(const Call& c) {
  need_pair(c);
  need_same_dtype(c, {"x1", "x2"});
  Sizes left = c.type("x1").sizes;
  Sizes right = c.type("x2").sizes;
  Sizes sizes =
      broadcast(c, Sizes(left.begin(), left.end() - 2), Sizes(right.begin(), right.end() - 2));
  sizes.push_back(left[left.size() - 2]);
  sizes.push_back(right[right.size() - 2]);
  return {ir::Type::tensor(c.type("x1").dtype, sizes)};
}
Tensors all_pairs(Builder& b, const Call& c) {
  Tensor rows = unsqueeze(tensor(b, c, "x1"), -2);
  Tensor others = unsqueeze(tensor(b, c, "x2"), -3);
  double p = c.op().schema.find("p") >= 0 ? c.floating("p") : 2;
  return {call(b, "aten.linalg_vector_norm", {rows - others, p, std::vector<int64_t>{-1}})};
}
const OpDef kCdist{
    .schema = "aten::cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor",
    .types = all_pairs_types,
    .decompose = all_pairs,
    .samples = {"f32[3, 4], f32[5, 4]", "f64[2, 3, 4], f64[2, 5, 4], 1.0",
                "f64[2, 1, 3, 4], f64[5, 2, 4], 3.0", "f64[3, 4], f64[5, 4], 0.0",
                "f32[3, 0], f32[2, 0]", "f32[0, 4], f32[2, 4]", "f64[30, 7], f64[40, 7], 2.0, 2",
                "f32[3, 4], f32[5, 3]", "f32[3], f32[3]", "f32[3, 4], f32[5, 4], -1.0"}};
const OpDef kCdistForward{
    .schema = "aten::_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor",
    .types = all_pairs_types,
    .decompose = all_pairs,
    .samples = {"f32[3, 4], f32[5, 4], 2.0, none", "f64[2, 3, 4], f64[2, 5, 4], 1.0, none"},
    .out = true};
const OpDef kEuclidean{.schema = "aten::_euclidean_dist(Tensor x1, Tensor x2) -> Tensor",
                       .types = all_pairs_types,
                       .decompose = all_pairs,
                       .samples = {"f64[3, 4], f64[5, 4]", "f64[2, 3, 4], f64[2, 5, 4]"},
                       .out = true};

const OpDef kPairwise{.schema =
                          "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., float "
                          "eps=9.9999999999999995e-07, bool keepdim=False) -> Tensor",
                      .types = [](const Call& c) -> Types {
                        Sizes sizes = broadcast(c, c.type("x1").sizes, c.type("x2").sizes);
                        DType dtype = part_type(to_float(common_dtype(c, {"x1", "x2"})));
                        if (sizes.empty()) return {ir::Type::tensor(dtype, {})};
                        sizes.back() = 1;
                        if (!c.boolean("keepdim")) sizes.pop_back();
                        return {ir::Type::tensor(dtype, sizes)};
                      },
                      .decompose = [](Builder& b, const Call& c) -> Tensors {
                        Tensor difference =
                            tensor(b, c, "x1") - tensor(b, c, "x2") + c.floating("eps");
                        std::vector<int64_t> last{-1};
                        return {call(b, "aten.linalg_vector_norm",
                                     {difference, c.floating("p"), last, c.boolean("keepdim")})};
                      },
                      .samples = {"$[3, 4], $[3, 4]", "$[3, 4], $[4], 1.0, 0.5, true",
                                  "$[4], $[4], 3.0", "$[2, 3, 4], $[3, 4]", "$[0, 4], $[0, 4]",
                                  "i64[3, 4], i64[3, 4]", "i32[3, 4], $[3, 4]"}};

/// Pairs i < j of rows, in that order.
const OpDef kPdist{
    .schema = "aten::pdist(Tensor self, float p=2.) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_float(c, "self");
      need_rank(c, "self", 2, 2);
      if (c.floating("p") < 0) c.fail(c.describe("p") + " must not be negative");
      std::optional<int64_t> rows = c.type("self").sizes[0].constant();
      if (!rows) c.fail_unknown("the number of rows", c.type("self").sizes[0]);
      if (*rows > INT32_MAX) c.fail(c.describe("self") + " has 2**31 rows or more");
      return {ir::Type::tensor(c.type("self").dtype, {*rows * (*rows - 1) / 2})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = tensor(b, c, "self");
      Expr rows = x.size(0);
      Tensor pairs = call(b, "aten.triu_indices", {rows, rows, 1});
      auto row = [&](int64_t i) {
        return call(b, "aten.index_select", {x, 0, select(pairs, 0, i)});
      };
      std::vector<int64_t> last{-1};
      return {call(b, "aten.linalg_vector_norm", {row(0) - row(1), c.floating("p"), last})};
    },
    .samples = {"f32[4, 3]", "f64[5, 2], 1.0", "f64[2, 3]", "f32[3]", "f64[7, 3], 3.0"}};

const OpDef* const kOps[] = {&kCdist, &kCdistForward, &kEuclidean, &kPairwise, &kPdist};

}  // namespace

Family distance_family() { return kOps; }

}  // namespace tandem::ops
