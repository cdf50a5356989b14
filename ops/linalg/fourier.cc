// Discrete Fourier transforms. A complex tensor is two real ones here, and one without imaginary
// parts is real; PyTorch's transforms of complex tensors are these of their parts (ops/complex.h).
//
// A transform of length n = n1 n2 is n2 transforms of length n1, factors, and n1 of length n2
// (Cooley and Tukey 1965); one that no such pair divides is a product with the matrix
// exp(-2 pi i j k / n), of which each angle is rounded once: j k is taken modulo n first. Both are
// other ops, so gradients follow.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/diagnostic.h"
#include "ops/linalg/operands.h"

namespace tandem::ops {

using namespace linalg;  // NOLINT(google-build-using-namespace): what the files of linalg/ share

namespace {

constexpr int64_t kLongestFactor = 1024;  // its matrix has 8 MiB
constexpr int64_t kShort = 32;  // up to here one product is as fast as two and a transposition

/// `re + i im`; without `im`, real numbers.
struct Parts {
  Tensor re, im;
};

/// Of a function that is linear over the reals, or moves elements.
template <typename Function>
Parts both(const Parts& x, const Function& function) {
  return {function(x.re), x.im ? function(x.im) : Tensor()};
}

/// (a + i b)(c + i d) = (a c - b d) + i (a d + b c)
template <typename Multiply>
Parts product(const Parts& x, const Parts& y, const Multiply& multiply) {
  if (!x.im) return {multiply(x.re, y.re), multiply(x.re, y.im)};
  const Tensor ac = multiply(x.re, y.re);
  const Tensor bd = multiply(x.im, y.im);
  const Tensor ad = multiply(x.re, y.im);
  const Tensor bc = multiply(x.im, y.re);
  return {ac - bd, ad + bc};
}

Parts operands(Builder& b, const Call& c) {
  return {tensor(b, c, "re"), c.has("im") ? tensor(b, c, "im") : Tensor()};
}

// --- one dimension ---

/// The largest factor of n up to its root.
int64_t factor_of(int64_t n) {
  int64_t factor = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (factor > 1 && n % factor != 0) --factor;
  return std::max<int64_t>(factor, 1);
}

/// exp(-2 pi i j k / n), for the inverse exp(2 pi i j k / n), of a matrix of j and k.
Parts waves(Tensor like, int64_t rows, int64_t columns, int64_t n, bool inverse) {
  Builder& b = like.builder();
  Tensor j = unsqueeze(arange(b, rows, DType::i64), 1);
  Tensor k = arange(b, columns, DType::i64);
  Tensor turns = to(call(b, "aten.remainder.Scalar", {j * k, n}), DType::f64);
  Tensor angle = turns * (2 * std::numbers::pi / static_cast<double>(n));
  Tensor sine = inverse ? sin(angle) : -sin(angle);
  return {to(cos(angle), like.dtype()), to(sine, like.dtype())};
}

Tensor turned(Tensor part) { return transpose(part, -1, -2); }

Tensor with_last(Tensor part, const Sizes& last, int64_t taken) {
  Sizes sizes(part.sizes().begin(), part.sizes().end() - taken);
  sizes.insert(sizes.end(), last.begin(), last.end());
  return reshape(part, sizes);
}

/// Along the last dimension, not scaled. It calls itself as often as n has factors.
Parts along_last(const Parts& x, bool inverse) {  // NOLINT(misc-no-recursion)
  const int64_t n = *x.re.size(-1).constant();
  const int64_t first = n <= kShort ? 1 : factor_of(n);
  if (first == 1) return product(x, waves(x.re, n, n, n, inverse), matmul);
  const int64_t second = n / first;
  // x[j1 n2 + j2] and X[k1 + n1 k2]
  Parts y = both(x, [&](Tensor part) { return turned(with_last(part, {first, second}, 1)); });
  y = along_last(y, inverse);  // [.., j2, k1]
  y = product(y, waves(x.re, second, first, n, inverse), [](Tensor a, Tensor w) { return a * w; });
  y = along_last(both(y, turned), inverse);  // [.., k1, k2]
  return both(y, [&](Tensor part) { return with_last(turned(part), {Expr(n)}, 2); });
}

Tensor moved(Tensor part, int64_t from, int64_t to) {
  if (from == to || part.rank() == 1) return part;
  return call(part.builder(), "aten.movedim.int", {part, from, to});
}

Parts along(const Parts& x, int64_t dim, bool inverse) {
  const int64_t last = x.re.rank() - 1;
  const Parts turned = both(x, [&](Tensor part) { return moved(part, dim, last); });
  return both(along_last(turned, inverse), [&](Tensor part) { return moved(part, last, dim); });
}

/// Cut, or with zeros behind.
Tensor resized(Tensor part, int64_t dim, int64_t size) {
  const int64_t now = *part.size(dim).constant();
  if (size == now) return part;
  if (size < now) return slice(part, dim, 0, size);
  ir::Ints pad(static_cast<size_t>(2 * (part.rank() - dim)), Expr(0));
  pad.back() = Expr(size - now);
  return call(part.builder(), "aten.constant_pad_nd", {part, pad, 0});
}

Parts scaled(const Parts& x, double count, const std::string& norm, bool inverse) {
  const bool divides = norm == "ortho" || (norm == "backward") == inverse;
  if (!divides) return x;
  const double by = norm == "ortho" ? 1 / std::sqrt(count) : 1 / count;
  return both(x, [&](Tensor part) { return part * by; });
}

// --- what is asked for ---

/// What is left of n without its factors up to `most`.
int64_t without_factors(int64_t n, int64_t most) {
  for (int64_t factor = 2; factor <= most && n > 1; ++factor)
    while (n % factor == 0) n /= factor;
  return n;
}

void check_length(const Call& c, Expr size) {
  const std::optional<int64_t> n = size.constant();
  if (!n) c.fail_unknown("the length of a transform", size);
  if (*n < 1) c.fail(fmt::format("a transform of length {} is not defined", *n));
  const int64_t rest = without_factors(*n, kLongestFactor);
  if (rest > 1)
    throw Unsupported(
        fmt::format("[{}] a length of {} is not supported: of {} no factor is below {}",
                    c.op().schema.full_name(), *n, rest, kLongestFactor + 1));
}

void check_operands(const Call& c) {
  const ir::Type& re = c.type("re");
  if (re.dtype != DType::f32 && re.dtype != DType::f64)
    c.fail(c.describe("re") + " must have elements of f32 or f64");
  if (c.has("im") && (c.type("im").dtype != re.dtype || c.type("im").sizes != re.sizes))
    c.fail(fmt::format("{} and {} differ", c.describe("re"), c.describe("im")));
  const std::string norm = c.string("norm");
  if (norm != "backward" && norm != "ortho" && norm != "forward")
    c.fail(fmt::format("norm \"{}\" is none of backward, ortho, forward", norm));
}

/// The length along each of `dim`: that of `s`, or the operand's where it is -1 or there is no `s`.
Sizes lengths(const Call& c, const std::vector<int64_t>& dims) {
  const ir::Ints& given = c.ints("s");
  if (c.has("s") && given.size() != dims.size())
    c.fail(fmt::format("{} sizes for {} dimensions", given.size(), dims.size()));
  Sizes sizes;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool keeps = given.empty() || given[i] == Expr(-1);
    sizes.push_back(keeps ? c.type("re").sizes[static_cast<size_t>(dims[i])] : given[i]);
  }
  return sizes;
}

Types fft_types(const Call& c) {
  check_operands(c);
  Sizes sizes = c.type("re").sizes;
  const std::vector<int64_t> dims = c.dims("dim", c.type("re").rank());
  if (dims.empty() || sizes.empty()) c.fail("a transform over no dimension is not defined");
  const Sizes all = lengths(c, dims);
  for (size_t i = 0; i < dims.size(); ++i) {
    check_length(c, all[i]);
    check_length(c, std::exchange(sizes[static_cast<size_t>(dims[i])], all[i]));
  }
  const ir::Type result = ir::Type::tensor(c.type("re").dtype, sizes);
  return {result, result};
}

Tensors fft(Builder& b, const Call& c) {
  const bool inverse = c.boolean("inverse");
  Parts value = operands(b, c);
  const std::vector<int64_t> dims = c.dims("dim", value.re.rank());
  const Sizes sizes = lengths(c, dims);
  double count = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t n = *sizes[i].constant();
    value = both(value, [&](Tensor part) { return resized(part, dims[i], n); });
    value = along(value, dims[i], inverse);
    count *= static_cast<double>(n);
  }
  value = scaled(value, count, c.string("norm"), inverse);
  return {value.re, value.im};
}

const OpDef kFft{
    .schema =
        "tandem::fft(Tensor re, Tensor? im, SymInt[]? s, int[] dim, str norm, bool inverse) "
        "-> (Tensor, Tensor)",
    .types = fft_types,
    .decompose = fft,
    .samples = {"f64[3, 4], f64[3, 4], none, [1], \"backward\", false",
                "f64[3, 4], none, none, [0, 1], \"ortho\", false",
                "f64[2, 36], f64[2, 36], none, [-1], \"backward\", true",
                "f64[5, 3], f64[5, 3], [7, 2], [0, 1], \"forward\", true",
                "f32[4, 6], none, [-1], [0], \"forward\", false"}};

int64_t whole_length(const Call& c, int64_t dim) {
  if (c.has("n")) return c.constant("n");
  return 2 * (*c.type("re").sizes[static_cast<size_t>(dim)].constant() - 1);
}

Types irfft_types(const Call& c) {
  check_operands(c);
  Sizes sizes = c.type("re").sizes;
  const int64_t dim = c.dim("dim", c.type("re").rank());
  if (sizes.empty()) c.fail("a transform over no dimension is not defined");
  check_length(c, sizes[static_cast<size_t>(dim)]);
  sizes[static_cast<size_t>(dim)] = whole_length(c, dim);
  check_length(c, sizes[static_cast<size_t>(dim)]);
  return {ir::Type::tensor(c.type("re").dtype, sizes)};
}

/// Of a half: X[n - k] is the conjugate of X[k]. The imaginary parts of X[0], and of X[n / 2] for
/// even n, do not count: they are those of the result, which is left out.
Tensors irfft(Builder& b, const Call& c) {
  const int64_t dim = c.dim("dim", c.type("re").rank());
  const int64_t n = whole_length(c, dim);
  const Parts half =
      both(operands(b, c), [&](Tensor part) { return resized(part, dim, n / 2 + 1); });
  const auto mirrored = [&](Tensor part) {
    const Tensor behind = slice(part, dim, 1, 1 + (n - 1) / 2);
    return call(b, "aten.flip", {behind, std::vector<int64_t>{dim}});
  };
  Parts whole{cat({half.re, mirrored(half.re)}, dim), Tensor()};
  if (half.im) whole.im = cat({half.im, -mirrored(half.im)}, dim);
  const Parts all = along(whole, dim, true);
  return {scaled({all.re, Tensor()}, static_cast<double>(n), c.string("norm"), true).re};
}

const OpDef kIrfft{
    .schema = "tandem::irfft(Tensor re, Tensor? im, SymInt? n, int dim, str norm) -> Tensor",
    .types = irfft_types,
    .decompose = irfft,
    .samples = {"f64[3, 4], f64[3, 4], none, 1, \"backward\"",
                "f64[3, 4], f64[3, 4], 7, -1, \"ortho\"", "f64[3, 4], none, none, 0, \"forward\"",
                "f32[4], f32[4], 5, 0, \"backward\""}};

// --- PyTorch's transforms, of complex numbers ---

/// What a call asks for: the length along each dimension (-1: the operand's), and which way.
struct Transform {
  std::vector<int64_t> dims;
  ir::Ints lengths;
  std::string norm;
  bool inverse = false;
};

/// The last ones, as many as there are sizes; all, where nothing is said.
std::vector<int64_t> transformed_dims(const Call& c, const ir::Ints& sizes) {
  const int64_t rank = c.type("self").rank();
  if (c.op().schema.find("dim") < 0 || !c.has("dim")) {
    const int64_t count = sizes.empty() ? rank : static_cast<int64_t>(sizes.size());
    std::vector<int64_t> dims;
    for (int64_t i = std::max<int64_t>(rank - count, 0); i < rank; ++i) dims.push_back(i);
    return dims;
  }
  if (std::holds_alternative<Expr>(c.arg("dim"))) return {c.dim("dim", rank)};
  return c.dims("dim", rank);
}

/// hfft and ihfft, of what is symmetric up to the conjugate: hfft(x) = n irfft(conj x), and
/// ihfft(x) = conj(rfft(x)) / n, in all dimensions.
bool is_of_symmetric(const Call& c) { return c.op().schema.name.find("hfft") != std::string::npos; }

/// The scale that the transform the other way has.
std::string other_way(const std::string& norm) {
  return norm == "backward" ? "forward" : norm == "forward" ? "backward" : norm;
}

Transform transform_of(const Call& c) {
  Transform asked;
  const bool is_one = c.op().schema.find("n") >= 0;
  if (is_one)
    asked.lengths = {c.has("n") ? c.integer("n") : Expr(-1)};
  else if (c.has("s"))
    asked.lengths = c.ints("s");
  asked.dims = transformed_dims(c, asked.lengths);
  if (asked.dims.empty()) c.fail("a transform over no dimension is not defined");
  if (asked.lengths.empty()) asked.lengths.assign(asked.dims.size(), Expr(-1));
  if (asked.lengths.size() != asked.dims.size())
    c.fail(fmt::format("{} sizes for {} dimensions", asked.lengths.size(), asked.dims.size()));
  const std::string norm = c.has("norm") ? c.string("norm") : "backward";
  asked.norm = is_of_symmetric(c) ? other_way(norm) : norm;
  asked.inverse = c.op().schema.name.starts_with("aten::fft_i") != is_of_symmetric(c);
  return asked;
}

/// Sizes of the whole transform.
Sizes transformed_sizes(const Call& c, const Transform& asked) {
  Sizes sizes = c.type("self").sizes;
  for (size_t i = 0; i < asked.dims.size(); ++i)
    if (asked.lengths[i] != Expr(-1)) sizes[static_cast<size_t>(asked.dims[i])] = asked.lengths[i];
  return sizes;
}

Expr half(Expr length) { return sym::floor_div(length, 2) + 1; }

DType float_type(const Call& c) { return part_type(to_float(c.type("self").dtype)); }

Types whole_types(const Call& c) {
  return {ir::Type::tensor(complex_type(float_type(c)), transformed_sizes(c, transform_of(c)))};
}
Types half_types(const Call& c) {
  Types types = whole_types(c);
  Expr& last = types[0].sizes[static_cast<size_t>(transform_of(c).dims.back())];
  last = half(last);
  return types;
}
/// Without a length it is the longest of which the operand is the half.
Types real_types(const Call& c) {
  const Transform asked = transform_of(c);
  Sizes sizes = transformed_sizes(c, asked);
  Expr& last = sizes[static_cast<size_t>(asked.dims.back())];
  if (asked.lengths.back() == Expr(-1)) last = (last - 1) * 2;
  return {ir::Type::tensor(float_type(c), sizes)};
}

ComplexParts transformed(ComplexParts x, const Transform& asked) {
  const Tensors made =
      call_many(x.re.builder(), "tandem.fft",
                {x.re, x.im, asked.lengths, asked.dims, asked.norm.c_str(), asked.inverse});
  return {made[0], made[1]};
}

ComplexParts self_parts(const ComplexCall& c) {
  const ComplexParts x = c.given("self");
  return {to(x.re, float_type(c.whole)), x.im};
}

ComplexResults whole_parts(const ComplexCall& c) {
  return {transformed(self_parts(c), transform_of(c.whole))};
}
ComplexResults half_parts(const ComplexCall& c) {
  const ComplexParts whole = whole_parts(c)[0];
  const int64_t dim = transform_of(c.whole).dims.back();
  const Expr end = c.whole.result()->type.sizes[static_cast<size_t>(dim)];
  return {{slice(whole.re, dim, 0, end), slice(whole.im, dim, 0, end)}};
}
ComplexResults symmetric_half_parts(const ComplexCall& c) {
  const ComplexParts half = half_parts(c)[0];
  return {{half.re, -half.im}};
}
/// The last dimension is that of the half.
ComplexResults real_parts(const ComplexCall& c) {
  Transform asked = transform_of(c.whole);
  ComplexParts x = self_parts(c);
  if (x.im && is_of_symmetric(c.whole)) x.im = -x.im;
  const int64_t dim = asked.dims.back();
  const Expr length = asked.lengths.back();
  asked.dims.pop_back();
  asked.lengths.pop_back();
  if (!asked.dims.empty()) x = transformed(x, asked);
  const Operand n = length == Expr(-1) ? Operand(ir::Arg(ir::None{})) : Operand(length);
  return {{call(c.builder, "tandem.irfft", {x.re, x.im, n, dim, asked.norm.c_str()}), {}}};
}

OpDef of_complex(std::string_view schema, ir::TypeRule types, ComplexRule rule) {
  return {.schema = schema, .types = types, .complex = {rule}};
}

#define TANDEM_ONE "(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"
#define TANDEM_TWO "(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor"
#define TANDEM_ALL "(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor"
const OpDef kComplex[] = {
    of_complex("aten::fft_fft" TANDEM_ONE, whole_types, whole_parts),
    of_complex("aten::fft_ifft" TANDEM_ONE, whole_types, whole_parts),
    of_complex("aten::fft_fft2" TANDEM_TWO, whole_types, whole_parts),
    of_complex("aten::fft_ifft2" TANDEM_TWO, whole_types, whole_parts),
    of_complex("aten::fft_fftn" TANDEM_ALL, whole_types, whole_parts),
    of_complex("aten::fft_ifftn" TANDEM_ALL, whole_types, whole_parts),
    of_complex("aten::fft_rfft" TANDEM_ONE, half_types, half_parts),
    of_complex("aten::fft_rfft2" TANDEM_TWO, half_types, half_parts),
    of_complex("aten::fft_rfftn" TANDEM_ALL, half_types, half_parts),
    of_complex("aten::fft_irfft" TANDEM_ONE, real_types, real_parts),
    of_complex("aten::fft_irfft2" TANDEM_TWO, real_types, real_parts),
    of_complex("aten::fft_irfftn" TANDEM_ALL, real_types, real_parts),
    of_complex("aten::fft_hfft" TANDEM_ONE, real_types, real_parts),
    of_complex("aten::fft_hfft2" TANDEM_TWO, real_types, real_parts),
    of_complex("aten::fft_hfftn" TANDEM_ALL, real_types, real_parts),
    of_complex("aten::fft_ihfft" TANDEM_ONE, half_types, symmetric_half_parts),
    of_complex("aten::fft_ihfft2" TANDEM_TWO, half_types, symmetric_half_parts),
    of_complex("aten::fft_ihfftn" TANDEM_ALL, half_types, symmetric_half_parts),
};
#undef TANDEM_ONE
#undef TANDEM_TWO
#undef TANDEM_ALL

const std::vector<const OpDef*> kOps = listed(kComplex, {&kFft, &kIrfft});

}  // namespace

Family fourier_family() { return kOps; }

}  // namespace tandem::ops
