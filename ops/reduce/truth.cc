// any and all: of everything, of one dimension, of several.
#include "ops/families.h"
#include "ops/reduce/reductions.h"

namespace tandem::ops {
namespace {

using loop::Combiner;
using loop::Val;

constexpr std::string_view kTruth = "the result is not differentiable (bool)";

/// bool; u8 stays u8, as in eager.
Types truth_types(const Call& c) {
  return reduced_types(c, c.type("self").dtype == DType::u8 ? DType::u8 : DType::boolean);
}
template <Combiner combiner>
Definition truth_lower(Lowering& lowering, const Call& c) {
  auto input = [](Element x, const Index&) {
    return std::vector<Val>{x.cast(DType::boolean).value()};
  };
  return reduce_self(lowering, c, reduced_dims(c), keeps_dims(c), combiner,
                     compute_type(c.type("self").dtype), input);
}
const Samples kTruthSamples = {"$[3, 4]", "$[]", "$[0]", "bool[70]", "$[7]:special"};
const Samples kTruthDimSamples = {"$[3, 4], 1", "$[3, 4], 0, true", "$[0, 3], 0", "bool[4, 70], 1",
                                  "$[], 0"};
const Samples kTruthDimsSamples = {"$[3, 4], [1]", "$[2, 3, 4], [0, 2], true", "bool[4, 5]"};
#define TANDEM_TRUTH(Name, text, combiner)                                                       \
  const OpDef Name{.schema = "aten::" text "(Tensor self) -> Tensor",                            \
                   .types = truth_types,                                                         \
                   .lower = truth_lower<combiner>,                                               \
                   .no_grad = kTruth,                                                            \
                   .samples = kTruthSamples,                                                     \
                   .sample_dtypes = DTypes::all,                                                 \
                   .batch = batch_whole,                                                         \
                   .complex = {.composition = truth_of_complex}};                                \
  const OpDef Name##Dim{                                                                         \
      .schema = "aten::" text ".dim(Tensor self, int dim, bool keepdim=False) -> Tensor",        \
      .types = truth_types,                                                                      \
      .lower = truth_lower<combiner>,                                                            \
      .no_grad = kTruth,                                                                         \
      .samples = kTruthDimSamples,                                                               \
      .sample_dtypes = DTypes::all,                                                              \
      .batch = batch_along_dims,                                                                 \
      .complex = {.composition = truth_of_complex}};                                             \
  const OpDef Name##Dims {                                                                       \
    .schema = "aten::" text ".dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", \
    .types = truth_types, .lower = truth_lower<combiner>, .no_grad = kTruth,                     \
    .samples = kTruthDimsSamples, .sample_dtypes = DTypes::all, .batch = batch_reduction,        \
    .complex = {                                                                                 \
      .composition = truth_of_complex                                                            \
    }                                                                                            \
  }
TANDEM_TRUTH(kAny, "any", Combiner::any);
TANDEM_TRUTH(kAll, "all", Combiner::all);
#undef TANDEM_TRUTH

const OpDef* const kOps[] = {&kAny, &kAnyDim, &kAnyDims, &kAll, &kAllDim, &kAllDims};

}  // namespace

Family truth_family() { return kOps; }

}  // namespace tandem::ops
