// `to` in its overloads, copies of views, and what tells the compiler something and computes
// nothing. `to` gives its operand itself where nothing changes, so it is a view that may copy.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }

// --- to
// -------------------------------------------------------------------------------------------

/// Programs are for the CPU; the text of a device is "cpu" or "cpu:0".
void check_device(const Call& c) {
  if (c.op().schema.find("device") < 0) return;
  const std::string* device = std::get_if<std::string>(&c.arg("device"));
  if (device != nullptr && !device->starts_with("cpu"))
    c.fail(fmt::format("device \"{}\": only the CPU is supported", *device));
}
DType target_dtype(const Call& c) {
  if (c.op().schema.find("other") >= 0) return c.type("other").dtype;
  return c.dtype("dtype", c.type("self").dtype);
}
/// Where a memory format is asked for, strides tell as well (passes/strides.cc).
bool gives_copy(const Call& c) {
  return c.boolean("copy") || target_dtype(c) != c.type("self").dtype;
}
Types to_types(const Call& c) {
  check_device(c);
  return {ir::Type::tensor(target_dtype(c), c.type("self").sizes)};
}
Tensors as_cast(Builder& b, const Call& c) {
  DType dtype = target_dtype(c);
  if (dtype != c.type("self").dtype) return {to(self_of(b, c), dtype)};
  const bool copies = gives_copy(c) || c.has("memory_format");
  return {copies ? call(b, "aten.clone", {self_of(b, c)}) : self_of(b, c)};
}
Tensor replaced(Builder&, const Call&, Tensor, Tensor value) { return value; }

#define TANDEM_TO(Name, text, ...)                                                             \
  const OpDef Name {                                                                           \
    .schema = "aten::to." text                                                                 \
              ", bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) " \
              "-> Tensor(a)",                                                                  \
    .types = to_types, .decompose = as_cast, .scatter = replaced, .copies = gives_copy,        \
    .samples = {__VA_ARGS__}, .sample_dtypes = DTypes::all                                     \
  }
TANDEM_TO(kToDtype, "dtype(Tensor(a) self, ScalarType dtype", "$[3, 4], f32", "$[3], bf16",
          "$[5], i64", "$[5], bool", "$[], f64, false, true", "$[2, 0], f16");
TANDEM_TO(kToDevice, "device(Tensor(a) self, Device device, ScalarType dtype",
          "$[3, 4], \"cpu\", f32", "$[3], \"cpu\", f64, true, true", "$[5], \"cpu\", i32");
TANDEM_TO(kToOther, "other(Tensor(a) self, Tensor other", "$[3, 4], f32[1]", "$[3], i64[2, 2]",
          "$[3], $[], false, true");
TANDEM_TO(kToLayout,
          "dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
          "device=None, bool? pin_memory=None",
          "$[3, 4], dtype=f32", "$[3]", "$[3], copy=true", "$[5], dtype=i64");
#undef TANDEM_TO

// --- what says something of a tensor
// --------------------------------------------------------------

const OpDef kLiftFresh{
    .schema = "aten::lift_fresh(Tensor(a) self) -> Tensor(a)",
    .types = unary_same,
    .decompose = [](Builder& b, const Call& c) -> Tensors { return {self_of(b, c)}; },
    .scatter = replaced,
    .samples = {"$[3, 4]", "$[]"}};
const OpDef kLiftFreshCopy{.schema = "aten::lift_fresh_copy(Tensor self) -> Tensor",
                           .types = unary_same,
                           .decompose = [](Builder& b, const Call& c) -> Tensors {
                             return {call(b, "aten.clone", {self_of(b, c)})};
                           },
                           .samples = {"$[3, 4]", "$[]"},
                           .out = true};

/// Sizes and dtype are known here and now; strides, devices and layouts are not compared.
const OpDef kAssertMetadata{
    .schema =
        "aten::_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, "
        "ScalarType? dtype=None, *, Device? device=None, Layout? layout=None) -> ()",
    .types = [](const Call& c) -> Types {
      const ir::Type& a = c.type("a");
      if (c.has("size") && !same_sizes(a.sizes, c.ints("size")))
        c.fail(
            fmt::format("{} must have sizes {}", c.describe("a"), ir::to_string(c.ints("size"))));
      if (c.dtype("dtype", a.dtype) != a.dtype)
        c.fail(fmt::format("{} must have dtype {}", c.describe("a"),
                           name_of(c.dtype("dtype", a.dtype))));
      return {};
    },
    .decompose = [](Builder&, const Call&) -> Tensors { return {}; },
    .no_grad = "there is no result",
    .samples = {"$[3, 4]", "$[3], [3]", "$[3], dtype=f32", "$[3], [4]"},
    .sample_dtypes = DTypes::f32_only};

// --- copies of views
// ------------------------------------------------------------------------------

/// The view that `x_copy` copies: the same arguments.
const ir::Op& copied_view(const Call& c) {
  std::string name = (c.op().functional == nullptr ? c.op() : *c.op().functional).name();
  return *op_table().find(name.erase(name.find("_copy"), 5));
}
Types copy_types(const Call& c) { return copied_view(c).types(Call(copied_view(c), c.args())); }
Tensors copied(Builder& b, const Call& c) {
  return call_many(b, copied_view(c).name(), {c.args().begin(), c.args().end()});
}
#define TANDEM_COPY(Name, text, has_out, ...)                                                    \
  const OpDef Name {                                                                             \
    .schema = "aten::" text, .types = copy_types, .decompose = copied, .samples = {__VA_ARGS__}, \
    .out = has_out                                                                               \
  }
TANDEM_COPY(kAliasCopy, "alias_copy(Tensor self) -> Tensor", true, "$[3, 4]");
TANDEM_COPY(kViewCopy, "view_copy(Tensor self, SymInt[] size) -> Tensor", true, "$[2, 6], [3, -1]",
            "$[4], [3]");
TANDEM_COPY(kExpandCopy,
            "expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor", true,
            "$[3, 1], [3, 4]");
TANDEM_COPY(kPermuteCopy, "permute_copy(Tensor self, int[] dims) -> Tensor", true,
            "$[2, 3, 4], [2, 0, 1]");
TANDEM_COPY(kTransposeCopy, "transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor", false,
            "$[2, 3, 4], 0, 2");
TANDEM_COPY(kTCopy, "t_copy(Tensor self) -> Tensor", true, "$[3, 4]");
TANDEM_COPY(kSqueezeCopy, "squeeze_copy(Tensor self) -> Tensor", true, "$[1, 3, 1]");
TANDEM_COPY(kSqueezeCopyDim, "squeeze_copy.dim(Tensor self, int dim) -> Tensor", false,
            "$[1, 3], 0");
TANDEM_COPY(kSqueezeCopyDims, "squeeze_copy.dims(Tensor self, int[] dim) -> Tensor", false,
            "$[1, 3, 1], [0, 2]");
TANDEM_COPY(kUnsqueezeCopy, "unsqueeze_copy(Tensor self, int dim) -> Tensor", true, "$[3, 4], 1");
TANDEM_COPY(kSelectCopy, "select_copy.int(Tensor self, int dim, SymInt index) -> Tensor", false,
            "$[3, 4], 1, -1");
TANDEM_COPY(kSliceCopy,
            "slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, "
            "SymInt step=1) -> Tensor",
            false, "$[5, 4], 0, 1, 4", "$[5, 4], 1, 0, -1, 2");
TANDEM_COPY(kSplitCopy, "split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
            false, "$[7, 4], 3");
TANDEM_COPY(kSplitSizesCopy,
            "split_with_sizes_copy(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
            false, "$[6, 4], [1, 5]");
TANDEM_COPY(kUnbindCopy, "unbind_copy.int(Tensor self, int dim=0) -> Tensor[]", false, "$[3, 4]");
TANDEM_COPY(kDiagonalCopy,
            "diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor", true,
            "$[3, 4], 1");
TANDEM_COPY(kUnfoldCopy, "unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor",
            true, "$[7], 0, 3, 2");
TANDEM_COPY(kAsStridedCopy,
            "as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, SymInt? "
            "storage_offset=None) -> Tensor",
            true, "$[12], [3, 2], [4, 1]");
#undef TANDEM_COPY

const OpDef* const kOps[] = {
    &kToDtype,         &kToDevice,       &kToOther,      &kToLayout,    &kLiftFresh,
    &kLiftFreshCopy,   &kAssertMetadata, &kAliasCopy,    &kViewCopy,    &kExpandCopy,
    &kPermuteCopy,     &kTransposeCopy,  &kTCopy,        &kSqueezeCopy, &kSqueezeCopyDim,
    &kSqueezeCopyDims, &kUnsqueezeCopy,  &kSelectCopy,   &kSliceCopy,   &kSplitCopy,
    &kSplitSizesCopy,  &kUnbindCopy,     &kDiagonalCopy, &kUnfoldCopy,  &kAsStridedCopy};

}  // namespace

Family conversion_family() { return kOps; }

}  // namespace tandem::ops
