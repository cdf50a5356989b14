// Accuracy, special cases and speed of emit_math.
//
// Each function is compiled into a loop over an array, for AVX2 and AVX-512 and several lane
// counts. The f32 inputs are every 997th of all 2^32 bit patterns, the neighbourhood of every power
// of two and of the points where recipes switch. References are double libm (pow: long double).
#include "codegen/vector_math.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llvm/IR/IRBuilder.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "test/codegen/jit_function.h"

namespace tandem::codegen {
namespace {

using llvm::Value;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr float kMaximum = std::numeric_limits<float>::max();

template <typename Real>
using Kernel = void(const Real*, const Real*, Real*, int64_t);

/// for (i = 0; i < n; i += lanes) out[i..] = function(x[i..], y[i..]); n > 0, a multiple of lanes.
void emit_kernel(testing::JitModule& jit, MathFunction function, unsigned lanes, bool f64) {
  llvm::LLVMContext& context = jit.context();
  llvm::IRBuilder<> b(context);
  b.setFastMathFlags(llvm::FastMathFlags::getFast());  // emit_math must put them aside
  llvm::Type* pointer = b.getPtrTy();
  llvm::FunctionType* type =
      llvm::FunctionType::get(b.getVoidTy(), {pointer, pointer, pointer, b.getInt64Ty()}, false);
  llvm::Function* kernel = jit.add_function("kernel", type);
  llvm::BasicBlock* entry = llvm::BasicBlock::Create(context, "entry", kernel);
  llvm::BasicBlock* body = llvm::BasicBlock::Create(context, "body", kernel);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(context, "exit", kernel);
  llvm::Type* scalar = f64 ? b.getDoubleTy() : b.getFloatTy();
  llvm::Type* element = lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, lanes);
  b.SetInsertPoint(entry);
  b.CreateBr(body);
  b.SetInsertPoint(body);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  auto at = [&](unsigned argument) { return b.CreateGEP(scalar, kernel->getArg(argument), i); };
  llvm::Align align(4);
  Value* x = b.CreateAlignedLoad(element, at(0), align);
  Value* y = function == MathFunction::pow ? b.CreateAlignedLoad(element, at(1), align) : nullptr;
  b.CreateAlignedStore(emit_math(b, function, x, y), at(2), align);
  Value* next = b.CreateAdd(i, b.getInt64(lanes));
  i->addIncoming(b.getInt64(0), entry);
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpULT(next, kernel->getArg(3)), body, exit);
  b.SetInsertPoint(exit);
  b.CreateRetVoid();
}

/// One compiled loop.
template <typename Real>
class Compiled {
 public:
  Compiled(MathFunction function, unsigned lanes, const std::string& cpu)
      : jit_(cpu), lanes_(lanes) {
    emit_kernel(jit_, function, lanes, sizeof(Real) == 8);
    jit_.compile();
    kernel_ = jit_.find<Kernel<Real>>("kernel");
  }

  std::vector<Real> operator()(std::vector<Real> x, std::vector<Real> y = {}) const {
    size_t size = x.size();
    size_t padded = (size + lanes_ - 1) / lanes_ * lanes_;
    x.resize(padded);
    y.resize(padded);
    std::vector<Real> out(padded);
    kernel_(x.data(), y.data(), out.data(), static_cast<int64_t>(padded));
    out.resize(size);
    return out;
  }

  double nanoseconds_per_element(const std::vector<Real>& x, const std::vector<Real>& y) const {
    std::vector<Real> out(x.size());
    double best = 1e30;
    for (int repeat = 0; repeat < 50; ++repeat) {
      auto start = std::chrono::steady_clock::now();
      for (int k = 0; k < 4; ++k)
        kernel_(x.data(), y.data(), out.data(), static_cast<int64_t>(x.size()));
      std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
      best = std::min(best, time.count() / 4.0 / static_cast<double>(x.size()));
    }
    return best;
  }

 private:
  testing::JitModule jit_;
  unsigned lanes_;
  Kernel<Real>* kernel_ = nullptr;
};

struct Target {
  const char* cpu;
  unsigned lanes;
};
const Target kTargets[] = {{"x86-64-v3", 1}, {"x86-64-v3", 8}, {"x86-64-v3", 16},
                           {"x86-64-v4", 1}, {"x86-64-v4", 8}, {"x86-64-v4", 16}};

bool runs_here(const Target& target) {
  return target.cpu != std::string("x86-64-v4") || __builtin_cpu_supports("avx512dq");
}

double reference(MathFunction function, double x) {
  switch (function) {
    case MathFunction::exp: return std::exp(x);
    case MathFunction::expm1: return std::expm1(x);
    case MathFunction::log: return std::log(x);
    case MathFunction::log1p: return std::log1p(x);
    case MathFunction::log2: return std::log2(x);
    case MathFunction::sin: return std::sin(x);
    case MathFunction::cos: return std::cos(x);
    case MathFunction::tanh: return std::tanh(x);
    case MathFunction::lgamma: return std::lgamma(x);
    case MathFunction::erf: return std::erf(x);
    case MathFunction::pow: break;
  }
  return kNan;
}

/// Error in units of the last place of the exact result as f32. A wrong sign (of zero too), NaN for
/// a number and a number for NaN count as infinite. Infinity counts as 2^128.
template <typename Wide>
double ulps(float got, Wide exact) {
  if (std::isnan(exact) || std::isnan(got))
    return std::isnan(exact) == std::isnan(got) ? 0.0 : kInf;
  if (std::signbit(got) != std::signbit(exact)) return kInf;
  if (std::isinf(exact) && std::isinf(got)) return 0.0;
  Wide limit = 0x1p128;
  Wide a = std::isinf(got) ? limit : static_cast<Wide>(std::fabs(got));
  Wide e = std::min(std::fabs(exact), limit);
  int exponent = e == 0 ? -149 : std::clamp(std::ilogb(e) - 23, -149, 104);
  return static_cast<double>(std::fabs(a - e) / std::ldexp(Wide{1}, exponent));
}

std::vector<float> sweep() {
  std::vector<float> points;
  for (uint64_t bits = 0; bits < (1ULL << 32); bits += 997) {
    points.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const std::vector<float> centers{0.0f,       1.0f,       -1.0f,      0.17328f,   0.34657f,
                                   0.6931472f, 2.0f / 3,   4.0f / 3,   1.0f / 3,   88.722839f,
                                   -103.97f,   3.1415927f, 1.5707964f, 4.7123890f, 9.010913f,
                                   3.9192059f, kInf,       kMaximum};
  auto around = [&](float center) {
    for (int32_t d = -40; d <= 40; ++d) {
      uint32_t bits = std::bit_cast<uint32_t>(center) + static_cast<uint32_t>(d);
      points.push_back(std::bit_cast<float>(bits));
      points.push_back(-points.back());
    }
  };
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    around(std::bit_cast<float>(exponent << 23));
  for (float center : centers) around(center);
  // Floats next to multiples of pi / 2, where a reduction with too few bits fails.
  for (int k = 1; k < 200000; k += 1) points.push_back(static_cast<float>(k * 1.5707963267948966));
  points.insert(points.end(),
                {0x1.5ba9dep+99f, 16367173.0f * 0x1p72f, 1e30f, kMaximum, kNan,
                 std::bit_cast<float>(0x7fc00001u), std::bit_cast<float>(0xffc00fffu)});
  return points;
}

class VectorMath : public ::testing::TestWithParam<MathFunction> {};

/// Prints and returns the largest error.
double worst_error(const Target& target, const std::vector<float>& x, const std::vector<float>& got,
                   const std::vector<double>& exact) {
  double worst = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double error = ulps(got[i], exact[i]);
    if (error > worst) worst = error, at = i;
  }
  fmt::print("{:6} {} x{:<2} max {:.3f} ulp at {:a}\n", name_of(VectorMath::GetParam()), target.cpu,
             target.lanes, worst, x[at]);
  return worst;
}

/// Lanes whose numbers differ; any NaN equals any NaN.
size_t differences(const std::vector<float>& a, const std::vector<float>& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    count += std::isnan(a[i]) ? !std::isnan(b[i]) : a[i] != b[i];
  }
  return count;
}

TEST_P(VectorMath, SweepOfAllFloats) {
  MathFunction function = GetParam();
  const std::vector<float> x = sweep();
  std::vector<double> exact(x.size());
  std::transform(x.begin(), x.end(), exact.begin(),
                 [&](float v) { return reference(function, v); });
  std::vector<float> first;
  for (const Target& target : kTargets) {
    if (!runs_here(target)) continue;
    const std::vector<float> got = Compiled<float>(function, target.lanes, target.cpu)(x);
    EXPECT_LE(worst_error(target, x, got, exact), 2.0);
    // Lane count and feature set never change a bit.
    if (first.empty()) first = got;
    EXPECT_EQ(differences(first, got), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, VectorMath,
                         ::testing::Values(MathFunction::exp, MathFunction::expm1,
                                           MathFunction::log, MathFunction::log1p,
                                           MathFunction::log2, MathFunction::sin, MathFunction::cos,
                                           MathFunction::tanh, MathFunction::lgamma,
                                           MathFunction::erf),
                         [](const auto& test) { return std::string(name_of(test.param)); });

struct ExactPoints {
  MathFunction function;
  std::vector<std::pair<float, float>> points;  // x, function(x)
};

std::vector<ExactPoints> exact_points() {
  constexpr float kTiny = kDenormal;
  using enum MathFunction;
  // clang-format off
  return {
      {exp, {{0, 1}, {-0.0f, 1}, {kInf, kInf}, {-kInf, 0}, {88.73f, kInf}, {1e30f, kInf},
             {-1e30f, 0}, {kTiny, 1}, {-104, 0}}},
      {expm1, {{0, 0}, {-0.0f, -0.0f}, {kInf, kInf}, {-kInf, -1}, {kTiny, kTiny},
               {-kTiny, -kTiny}, {88.73f, kInf}, {-50, -1}}},
      {log, {{1, 0}, {0, -kInf}, {-0.0f, -kInf}, {-1, kNan}, {kInf, kInf}, {-kInf, kNan},
             {-kTiny, kNan}}},
      {log1p, {{0, 0}, {-0.0f, -0.0f}, {-1, -kInf}, {-1.5f, kNan}, {kInf, kInf}, {-kInf, kNan},
               {kTiny, kTiny}, {-kTiny, -kTiny}}},
      {log2, {{1, 0}, {8, 3}, {0.25f, -2}, {0, -kInf}, {-0.0f, -kInf}, {-2, kNan}, {kInf, kInf},
              {kTiny, -149}, {0x1p127f, 127}}},
      {sin, {{0, 0}, {-0.0f, -0.0f}, {kInf, kNan}, {-kInf, kNan}, {kTiny, kTiny},
             {-kTiny, -kTiny}}},
      {cos, {{0, 1}, {-0.0f, 1}, {kInf, kNan}, {-kInf, kNan}, {kTiny, 1}}},
      {tanh, {{0, 0}, {-0.0f, -0.0f}, {kInf, 1}, {-kInf, -1}, {kTiny, kTiny}, {-kTiny, -kTiny},
              {1e30f, 1}, {-20, -1}}},
      {erf, {{0, 0}, {-0.0f, -0.0f}, {kInf, 1}, {-kInf, -1}, {kTiny, kTiny}, {-kTiny, -kTiny},
             {5, 1}, {-1e30f, -1}}},
  };
  // clang-format on
}

void check_exact_points(const ExactPoints& cases, const Target& target) {
  Compiled<float> compiled(cases.function, target.lanes, target.cpu);
  EXPECT_TRUE(std::isnan(compiled({kNan})[0])) << name_of(cases.function);
  for (auto [x, expected] : cases.points) {
    float got = compiled({x})[0];
    EXPECT_EQ(ulps(got, static_cast<double>(expected)), 0.0)
        << name_of(cases.function) << "(" << x << ") = " << got;
  }
}

TEST(VectorMathSpecial, ExactPoints) {
  for (const Target& target : kTargets) {
    if (!runs_here(target)) continue;
    for (const ExactPoints& cases : exact_points()) check_exact_points(cases, target);
  }
}

double worst_pow(const Target& target, const std::vector<float>& x, const std::vector<float>& y) {
  const std::vector<float> got = Compiled<float>(MathFunction::pow, target.lanes, target.cpu)(x, y);
  double worst = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double error =
        ulps(got[i], std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i])));
    if (error > worst) worst = error, at = i;
  }
  fmt::print("pow    {} x{:<2} max {:.3f} ulp at ({:a}, {:a}) = {:a}\n", target.cpu, target.lanes,
             worst, x[at], y[at], got[at]);
  return worst;
}

/// What rounds to 0 is not scaled: each underflow takes processors of Intel 150 cycles, and scores
/// that a mask hides are many.
TEST(VectorMathSpecial, VanishingExponentialsDoNotUnderflow) {
  const std::vector<float> x{-kInf, -kMaximum, -1e9F, -200, -104, -103.98F, -103.972084F, -kInf,
                             0,     1,         -80,   kInf, kNan, 20,       -kDenormal,   3};
  for (const Target& target : kTargets) {
    if (!runs_here(target)) continue;
    const Compiled<float> exponential(MathFunction::exp, target.lanes, target.cpu);
    std::feclearexcept(FE_UNDERFLOW);
    const std::vector<float> found = exponential(x);
    EXPECT_EQ(std::fetestexcept(FE_UNDERFLOW), 0) << target.cpu << " x" << target.lanes;
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), 0U) << x[i];
    EXPECT_EQ(exponential({-103.97207F})[0], kDenormal);
  }
}

TEST(VectorMathPow, RandomGrid) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> log_of_power(-152, 130);
  std::uniform_real_distribution<float> near_one(0.5f, 2.0f);
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 300000; ++i) {
    float any = std::bit_cast<float>(static_cast<uint32_t>(random()));
    float positive = i % 3 == 0 ? near_one(random) : std::fabs(any);
    x.push_back(positive);
    y.push_back(log_of_power(random) / std::log2(positive));
    x.push_back(any);
    y.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    x.push_back(-near_one(random));
    y.push_back(static_cast<float>(static_cast<int>(random() % 400) - 200));
    x.push_back(1.0f + std::ldexp(near_one(random) - 1.0f, -static_cast<int>(random() % 24)));
    y.push_back(log_of_power(random) / std::log2(x.back()));
  }
  for (const Target& target : kTargets) {
    if (!runs_here(target)) continue;
    EXPECT_LE(worst_pow(target, x, y), 2.0);
  }
}

TEST(VectorMathPow, SpecialCases) {
  const std::vector<float> points{
      0.0f,         -0.0f,      1.0f,       -1.0f,    kInf,      -kInf,         kNan,
      0.5f,         -0.5f,      2.0f,       -2.0f,    3.0f,      -3.0f,         1.5f,
      -1.5f,        kDenormal,  -kDenormal, kMaximum, -kMaximum, 16777215.0f,   16777216.0f,
      -16777215.0f, 8388607.5f, 8388609.0f, 1e30f,    -1e30f,    0x1.fffffep-1f};
  std::vector<float> x;
  std::vector<float> y;
  for (float a : points) {
    for (float b : points) x.push_back(a), y.push_back(b);
  }
  for (const Target& target : kTargets) {
    if (!runs_here(target)) continue;
    EXPECT_LE(worst_pow(target, x, y), 1.0);
  }
}

TEST(VectorMathWidths, EveryLaneCountAgreesWithScalar) {
  std::mt19937 random(2);
  std::vector<float> x(256);
  std::vector<float> y(256);
  for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (float& v : y) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (int f = 0; f <= static_cast<int>(MathFunction::pow); ++f) {
    MathFunction function = static_cast<MathFunction>(f);
    const std::vector<float> expected = Compiled<float>(function, 1, "x86-64-v3")(x, y);
    for (unsigned lanes : {2u, 4u, 32u, 64u}) {
      const std::vector<float> got = Compiled<float>(function, lanes, "x86-64-v3")(x, y);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(ulps(got[i], static_cast<double>(expected[i])), 0.0)
            << name_of(function) << " " << x[i];
      }
    }
  }
}

TEST(VectorMathDouble, CallsLibm) {
  const std::vector<double> x{0.3, -0.0, 1.7, 25.0, -4.0};
  for (int f = 0; f < static_cast<int>(MathFunction::pow); ++f) {
    MathFunction function = static_cast<MathFunction>(f);
    for (unsigned lanes : {1u, 4u}) {
      const std::vector<double> got = Compiled<double>(function, lanes, "x86-64-v3")(x);
      for (size_t i = 0; i < x.size(); ++i) {
        double expected = reference(function, x[i]);
        EXPECT_TRUE(got[i] == expected || (std::isnan(got[i]) && std::isnan(expected)))
            << name_of(function);
      }
    }
  }
  const std::vector<double> power =
      Compiled<double>(MathFunction::pow, 4, "x86-64-v3")({2.0, 9.0}, {10.0, 0.5});
  EXPECT_EQ(power, (std::vector<double>{1024.0, 3.0}));
}

// Informational.
TEST(VectorMathSpeed, NanosecondsPerElement) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0.01f, 8.0f);
  std::vector<float> x(4096);
  std::vector<float> y(4096);
  for (float& v : x) v = uniform(random);
  for (float& v : y) v = uniform(random);
  fmt::print("ns/element    avx2 x8  avx512 x8  avx512 x16\n");
  for (int f = 0; f <= static_cast<int>(MathFunction::pow); ++f) {
    MathFunction function = static_cast<MathFunction>(f);
    fmt::print("{:10}", name_of(function));
    for (const Target& target : {kTargets[1], kTargets[4], kTargets[5]}) {
      if (!runs_here(target)) continue;
      double time =
          Compiled<float>(function, target.lanes, target.cpu).nanoseconds_per_element(x, y);
      fmt::print("  {:9.3f}", time);
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace tandem::codegen
