// Batch norm: statistics over every dimension but the channels. In training ATen's ops also update
// the running statistics in place, most of them without saying so in their schema; here they name
// what they write, and functionalize turns each into a pure form whose extra results are the new
// running values.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }
Tensor wide(Builder& b, const Call& c, std::string_view name) {
  return c.has(name) ? widened({b, c.value(name)}) : Tensor();
}
bool has(const Call& c, std::string_view name) {
  return c.op().schema.find(name) >= 0 && c.has(name);
}
Expr channels(const Call& c) { return c.type("input").sizes[1]; }

/// A tensor of one element a channel, to broadcast against the input.
Tensor by_channel(Tensor x, const Call& c) {
  if (!x) return x;
  Sizes sizes(c.type("input").sizes.size(), Expr(1));
  sizes[1] = channels(c);
  return reshape(x, sizes);
}
std::vector<int64_t> all_but_channels(const Call& c) {
  std::vector<int64_t> dims{0};
  for (int64_t i = 2; i < c.type("input").rank(); ++i) dims.push_back(i);
  return dims;
}
/// Elements of one channel.
Expr channel_count(const Call& c) {
  Expr count = 1;
  for (int64_t dim : all_but_channels(c)) count = count * c.type("input").sizes[dim];
  return count;
}
/// A sum a channel, against the input. Summed in f64: the gradients of what stands before a norm
/// sum to nearly zero, and what is left of a long sum in f32 is as much rounding as gradient.
Tensor channel_sum(Tensor x, const Call& c) {
  return to(sum(to(x, DType::f64), all_but_channels(c), true), x.dtype());
}
Tensor channel_mean(Tensor sum, const Call& c) {
  return call(sum.builder(), "aten.div.Scalar", {sum, channel_count(c)});
}

/// Whether the batch's own statistics are used.
bool uses_batch(const Call& c) {
  if (c.op().schema.name == "aten::_batch_norm_with_update") return true;
  if (c.op().schema.find("training") < 0) return false;
  return c.boolean("training") || !has(c, "running_mean");
}
void check_input(const Call& c) {
  const ir::Type& input = c.type("input");
  need_float(c, "input");
  need_layer_dtype(c, {"weight", "bias"});
  if (input.rank() < 2) c.fail(c.describe("input") + " needs a batch and a channel dimension");
  for (std::string_view name : {"weight", "bias", "running_mean", "running_var"})
    if (has(c, name) && c.type(name).sizes != Sizes{channels(c)})
      c.fail(c.describe(name) + " must have one element for each channel of " +
             c.describe("input"));
}
Types output_types(const Call& c) {
  check_input(c);
  bool trains = c.op().schema.find("training") >= 0 ? c.boolean("training") : uses_batch(c);
  for (std::string_view name : {"running_mean", "running_var"})
    if (!trains && c.op().schema.find(name) >= 0 && !c.has(name))
      c.fail(fmt::format("{} must be given where the batch's own statistics are not used", name));
  return {ir::Type::tensor(c.type("input").dtype, c.type("input").sizes)};
}
/// Output, mean and inverse deviation; the latter two are empty when the batch's own are not used.
Types saving_types(const Call& c) {
  Types types = output_types(c);
  DType dtype = has(c, "weight") ? promote(types[0].dtype, c.type("weight").dtype) : types[0].dtype;
  ir::Type saved = ir::Type::tensor(dtype, {uses_batch(c) ? channels(c) : Expr(0)});
  return {types[0], saved, saved};
}
Types functional_types(const Call& c) {
  Types types = saving_types(c);
  for (std::string_view name : {"running_mean", "running_var"})
    types.push_back(ir::Type::tensor(c.type(name).dtype, {channels(c)}));
  return types;
}

struct Normalised {
  Tensor output, mean, rstd;  // per channel, against the input
  Tensor variance;            // of the batch, biased
};
Normalised normalised(Builder& b, const Call& c) {
  Tensor x = wide(b, c, "input");
  Normalised n;
  Tensor centred;
  if (uses_batch(c)) {
    n.mean = channel_mean(channel_sum(x, c), c);
    centred = x - n.mean;
    n.variance = channel_mean(channel_sum(centred * centred, c), c);
    n.rstd = rsqrt(n.variance + c.floating("eps"));
  } else {
    n.mean = by_channel(wide(b, c, "running_mean"), c);
    centred = x - n.mean;
    n.rstd = rsqrt(by_channel(wide(b, c, "running_var"), c) + c.floating("eps"));
  }
  n.output = centred * n.rstd;
  if (c.has("weight")) n.output = n.output * by_channel(wide(b, c, "weight"), c);
  if (c.has("bias")) n.output = n.output + by_channel(wide(b, c, "bias"), c);
  return n;
}

/// running (1 - momentum) + batch momentum
Tensor updated(Builder& b, const Call& c, std::string_view name, Tensor of_batch) {
  double momentum = c.floating("momentum");
  Tensor running = wide(b, c, name);
  Tensor next = running * (1 - momentum) + reshape(of_batch, running.sizes()) * momentum;
  return to(next, c.type(name).dtype);
}
/// The variance over n - 1 that the running one follows.
Tensor unbiased(const Call& c, Tensor variance) {
  Expr n = channel_count(c);
  Tensor scaled = call(variance.builder(), "aten.mul.Scalar", {variance, n});
  return call(variance.builder(), "aten.div.Scalar", {scaled, n - 1});
}

Tensors batch_norm_parts(Builder& b, const Call& c) {
  Normalised n = normalised(b, c);
  auto rounded = [&](Tensor x, size_t i) {
    const ir::Type& type = c.result(i)->type;
    return to(reshape(x, type.sizes), type.dtype);
  };
  Tensors results{rounded(n.output, 0)};
  for (size_t i = 1; i < 3; ++i) {
    const ir::Type& type = c.result(i)->type;
    results.push_back(uses_batch(c) ? rounded(i == 1 ? n.mean : n.rstd, i)
                                    : full(b, type.sizes, 0, type.dtype));
  }
  if (c.result_count() == 3) return results;
  bool updates = c.boolean("training");
  results.push_back(updates ? updated(b, c, "running_mean", n.mean)
                            : Tensor{b, c.value("running_mean")});
  results.push_back(updates ? updated(b, c, "running_var", unbiased(c, n.variance))
                            : Tensor{b, c.value("running_var")});
  return results;
}

Operand operand_or_none(const Call& c, std::string_view name) {
  return has(c, name) ? Operand(c.arg(name)) : Operand(ir::Arg(ir::None{}));
}
/// What the gradients of the saved mean and rstd, of a batch of n elements a channel, add:
/// gmean / n - grstd rstd^2 xhat / n. Only the gradient of a gradient has them: no program does.
Tensor statistics_gradient(Builder& b, const Call& c, Grads g) {
  Tensor rstd = by_channel(widened({b, c.result(2)}), c);
  Tensor xhat = (wide(b, c, "input") - by_channel(widened({b, c.result(1)}), c)) * rstd;
  Tensor total;
  if (g[2]) total = -(by_channel(widened(g[2]), c) * rstd * rstd * xhat);
  if (g[1]) {
    Tensor of_mean = by_channel(widened(g[1]), c);
    total = total ? total + of_mean : expand(of_mean, xhat.sizes());
  }
  return to(channel_mean(total, c), c.type("input").dtype);
}
Gradients batch_norm_vjp(Builder& b, const Call& c, Grads g) {
  Tensor of_statistics;
  if (uses_batch(c) && (g[1] || g[2])) of_statistics = statistics_gradient(b, c, g);
  if (!g[0]) return {{"input", of_statistics}};
  ir::Ints mask = {Expr(1), Expr(has(c, "weight") ? 1 : 0), Expr(has(c, "bias") ? 1 : 0)};
  Tensors grads =
      call_many(b, "aten.native_batch_norm_backward",
                {g[0], c.arg("input"), c.arg("weight"), operand_or_none(c, "running_mean"),
                 operand_or_none(c, "running_var"), Tensor{b, c.result(1)}, Tensor{b, c.result(2)},
                 uses_batch(c), c.arg("eps"), mask});
  Gradients result{{"input", of_statistics ? grads[0] + of_statistics : grads[0]}};
  if (has(c, "weight")) result.push_back({"weight", grads[1]});
  if (has(c, "bias")) result.push_back({"bias", grads[2]});
  return result;
}

/// A program that calls the op itself gets no gradient through what is saved, as in eager.
Tensors without_history(Builder& b, const Call& c) {
  std::vector<Operand> args;
  for (const ir::Param& param : c.op().schema.params) args.emplace_back(c.arg(param.name));
  Tensors results = call_many(b, c.op().name(), args);
  for (size_t i = 1; i < results.size(); ++i) results[i] = call(b, "aten.detach", {results[i]});
  return results;
}

const OpDef kFunctional{
    .schema =
        "aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, "
        "Tensor "
        "running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, "
        "Tensor, Tensor, "
        "Tensor running_mean_out, Tensor running_var_out)",
    .types = functional_types,
    .decompose = batch_norm_parts,
    .vjp = batch_norm_vjp,
    .functional = without_history,
    .samples = {"f32[4, 3], f32[3], f32[3], f32[3], f32[3]:positive, true, 0.1, 1e-5",
                "f32[2, 3, 4, 5], f32[3], f32[3], f32[3], f32[3]:positive, true, 0.3, 1e-5"}};
const OpDef kNoStats{.schema =
                         "aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, "
                         "Tensor? bias, bool training, "
                         "float momentum, float eps) -> (Tensor, Tensor, Tensor)",
                     .types = saving_types,
                     .decompose = batch_norm_parts,
                     .vjp = batch_norm_vjp,
                     .functional = without_history,
                     .samples = {"$[4, 3], $[3], $[3], true, 0.1, 1e-5",
                                 "$[2, 3, 4, 5], none, none, true, 0.1, 1e-5"}};
const OpDef kNoTraining{
    .schema =
        "aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, "
        "Tensor "
        "running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    .types = saving_types,
    .decompose = batch_norm_parts,
    .vjp = batch_norm_vjp,
    .samples = {"f32[4, 3], f32[3], f32[3], f32[3], f32[3]:positive, 0.1, 1e-5",
                "f32[2, 3, 4, 5], none, none, f32[3], f32[3]:positive, 0.1, 1e-5"}};

Types backward_types(const Call& c) {
  check_input(c);
  ir::Type input = ir::Type::tensor(c.type("input").dtype, c.type("input").sizes);
  ir::Type row =
      ir::Type::tensor(c.has("weight") ? c.type("weight").dtype : input.dtype, {channels(c)});
  return {input, row, row};
}
// xhat = (x - mean) rstd, dbias = sum(g), dweight = sum(g xhat): with the statistics of the batch's
// n elements a channel dx = w rstd (g - dbias / n - xhat dweight / n), else w rstd g.
Tensors backward_parts(Builder& b, const Call& c) {
  bool train = c.boolean("train");
  Tensor g = wide(b, c, "grad_out");
  Tensor center = by_channel(wide(b, c, train ? "save_mean" : "running_mean"), c);
  Tensor rstd = train ? by_channel(wide(b, c, "save_invstd"), c)
                      : rsqrt(by_channel(wide(b, c, "running_var"), c) + c.floating("eps"));
  Tensor xhat = (wide(b, c, "input") - center) * rstd;
  Tensor dbias = channel_sum(g, c), dweight = channel_sum(g * xhat, c);
  Tensor dx = g;
  if (train) dx = g - channel_mean(dbias, c) - xhat * channel_mean(dweight, c);
  dx = dx * rstd;
  if (c.has("weight")) dx = dx * by_channel(wide(b, c, "weight"), c);
  auto row = [&](Tensor x) { return to(reshape(x, {channels(c)}), c.result(1)->type.dtype); };
  return {to(dx, c.result(0)->type.dtype), row(dweight), row(dbias)};
}
const OpDef kBackward{.schema =
                          "aten::native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? "
                          "weight, Tensor? running_mean, "
                          "Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool "
                          "train, float eps, bool[3] "
                          "output_mask) -> (Tensor, Tensor, Tensor)",
                      .types = backward_types,
                      .decompose = backward_parts,
                      .samples = {"f32[4, 3], f32[4, 3], f32[3], f32[3], f32[3]:positive, f32[3], "
                                  "f32[3]:positive, true, 1e-5, [true, "
                                  "true, true]",
                                  "f32[2, 3, 4], f32[2, 3, 4], f32[3], f32[3], f32[3]:positive, "
                                  "none, none, false, 1e-5, [true, true, "
                                  "true]"}};

/// Three results, then the new running mean and variance where training changes them.
Tensors pure_batch_norm(Builder& b, const Call& c) {
  Operand momentum = c.arg("momentum");
  Operand eps = c.arg("eps");
  std::vector<Operand> args{c.arg("input"), c.arg("weight"), c.arg("bias")};
  std::string_view op = "aten._native_batch_norm_legit.no_stats";
  if (c.has("running_mean")) {
    args.insert(args.end(), {c.arg("running_mean"), c.arg("running_var")});
    op = uses_batch(c) ? "aten._native_batch_norm_legit_functional"
                       : "aten._native_batch_norm_legit_no_training";
  }
  if (uses_batch(c)) args.emplace_back(true);
  args.insert(args.end(), {momentum, eps});
  Tensors results = call_many(b, op, args);
  // What is saved for the gradient, and buffers, have no history.
  for (size_t i = 1; i < results.size(); ++i) results[i] = call(b, "aten.detach", {results[i]});
  results.resize(5);
  return results;
}
const OpDef kLegit{.schema =
                       "aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, "
                       "Tensor(a!) running_mean, "
                       "Tensor(b!) running_var, bool training, float momentum, float eps) -> "
                       "(Tensor, Tensor, Tensor)",
                   .types = saving_types,
                   .functional = pure_batch_norm};
const OpDef kNative{
    .schema =
        "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
        "Tensor? "
        "running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    .types = saving_types,
    .functional = pure_batch_norm,
    .mutates = {"running_mean", "running_var"}};
// The fourth result is room that other devices ask for; the CPU leaves it empty.
const OpDef kWithUpdate{
    .schema =
        "aten::_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) "
        "running_mean, Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, "
        "Tensor, Tensor)",
    .types = [](const Call& c) -> Types {
      Types types = saving_types(c);
      types.push_back(ir::Type::tensor(DType::u8, {0}));
      return types;
    },
    .functional = [](Builder& b, const Call& c) -> Tensors {
      Tensors all = pure_batch_norm(b, c);
      all.insert(all.begin() + 3, full(b, {0}, 0, DType::u8));
      return all;
    }};
const OpDef kBatchNorm{
    .schema =
        "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
        "Tensor? running_var, "
        "bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    .types = output_types,
    .functional = [](Builder& b, const Call& c) -> Tensors {
      Tensors all = pure_batch_norm(b, c);
      return {all[0], all[3], all[4]};
    },
    .mutates = {"running_mean", "running_var"}};

// --- instance norm
// --------------------------------------------------------------------------------
// The statistics of one image: a batch norm whose channels are all channels of all images. The
// running values follow the mean over the batch.

/// One copy of a channel's parameter for each image.
Operand for_images(Builder& b, const Call& c, std::string_view name, Expr images) {
  if (!has(c, name)) return ir::Arg(ir::None{});
  return call(b, "aten.repeat", {Tensor{b, c.value(name)}, ir::Ints{images}});
}
Tensors instance_norm_parts(Builder& b, const Call& c) {
  const Sizes& sizes = c.type("input").sizes;
  Sizes flat = sizes;
  flat[0] = 1;
  flat[1] = sizes[0] * sizes[1];
  Tensor x = reshape(Tensor{b, c.value("input")}, flat);
  bool runs = has(c, "running_mean");
  std::vector<Operand> args{x, for_images(b, c, "weight", sizes[0]),
                            for_images(b, c, "bias", sizes[0])};
  if (runs)
    for (std::string_view name : {"running_mean", "running_var"})
      args.push_back(for_images(b, c, name, sizes[0]));
  bool trains = c.boolean("use_input_stats");
  if (trains) args.push_back(true);
  args.insert(args.end(), {c.arg("momentum"), c.arg("eps")});
  const char* op = !trains ? "aten._native_batch_norm_legit_no_training"
                   : runs  ? "aten._native_batch_norm_legit_functional"
                           : "aten._native_batch_norm_legit.no_stats";
  Tensors parts = call_many(b, op, args);
  Tensors results{reshape(parts[0], sizes), Tensor(), Tensor()};
  if (trains && runs)
    for (size_t i = 0; i < 2; ++i) {
      Tensor each = reshape(call(b, "aten.detach", {parts[3 + i]}), {sizes[0], sizes[1]});
      results[1 + i] = mean(each, {0});
    }
  return results;
}
const OpDef kInstanceNorm{
    .schema =
        "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? "
        "running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, "
        "bool cudnn_enabled) -> Tensor",
    .types = [](const Call& c) -> Types {
      check_input(c);
      if (has(c, "running_mean") != has(c, "running_var"))
        c.fail("running_mean and running_var must be given together");
      if (!c.boolean("use_input_stats") && !has(c, "running_mean"))
        c.fail("running_mean must be given where the input's own statistics are not used");
      return {ir::Type::tensor(c.type("input").dtype, c.type("input").sizes)};
    },
    .functional = instance_norm_parts,
    .mutates = {"running_mean", "running_var"}};

const OpDef* const kOps[] = {&kFunctional, &kNoStats,   &kNoTraining,   &kBackward,  &kLegit,
                             &kNative,     &kBatchNorm, &kInstanceNorm, &kWithUpdate};

}  // namespace

Family batch_norm_family() { return kOps; }

}  // namespace tandem::ops
