// Error functions, gamma functions and Bessel functions of elements.
//
// erfc goes through erfcx(x) = exp(x^2) erfc(x), which is smooth enough for one polynomial over all
// x >= 0: in 1 - 2k / (x + k), divided by 1 + 2x. exp(x^2) takes what x * x rounds away as a second
// factor. The gamma functions are moved to large arguments by recurrence, unrolled because lanes
// differ in the number of steps, and end in the asymptotic series; negative arguments are
// reflected. Coefficients without a name are Chebyshev fits made with 60 digits.
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "ops/elementary.h"
#include "ops/series.h"

namespace tandem::ops {

using loop::Opcode;

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kTwoOverRootPi = 1.12837916709551257390;

// (1 + 2x) erfcx(x) in 1 - 2k / (x + k), x >= 0.
constexpr double kScaleF32 = 2;
constexpr double kScaleF64 = 4;
constexpr Series<12, 25> kErfcx{
    {1.2769783911921504, -0.0927638157446718, -0.16603109041503114, 0.16405049712323114,
     -0.054211995236502546, -0.008024739102564817, 0.008689252695108455, 0.0012305032172237062,
     -0.0013958050883530445, -0.00037092841141352225, 0.00016084034633495793,
     6.807514758960506e-05},
    {1.2329951186255526,     -0.13962111684056228,    0.015379652102619974,
     0.06809705425466839,    -0.10103906603631811,    0.09373283499911264,
     -0.06633036581186058,   0.03716751552633804,     -0.016197734062934732,
     0.0050319700691019735,  -0.000757773243594545,   -0.0001992571524713568,
     0.0001506214260878378,  -2.4397731146810393e-05, -1.1221135669821299e-05,
     5.7065783064535425e-06, 2.917342630737619e-07,   -8.210648022334532e-07,
     7.771942334659641e-08,  1.0631818280210142e-07,  -2.07257955004908e-08,
     -1.233873440484995e-08, 3.2323942893412914e-09,  9.297630942021953e-10,
     -2.7641144530301157e-10}};
// exp(-x) I0(x) and exp(-x) I1(x) / x in x / 4 - 1, x <= 8; sqrt(x) exp(-x) I(x) in 16 / x - 1.
constexpr Series<18, 31> kI0Near{
    {0.2070019236960542, -0.11300432782525216, 0.09451522840742617, -0.08904328935517108,
     0.0873540400773373, -0.08496741817534578, 0.07916705742834407, -0.06950006317644594,
     0.05732588823414282, -0.04319487770478447, 0.028625284356183882, -0.019090664146748454,
     0.014507777636494707, -0.007766332662051006, 0.0012403794731531738, -0.0008991624061954382,
     0.001978308759881825, -0.0008179725460897107},
    {0.2070019212239867,     -0.11300432688620549,    0.09451562853995128,
     -0.08904344136075963,   0.08734341617550435,     -0.08496338091616289,
     0.07927522590771639,    -0.06954119561719706,    0.056777032011386216,
     -0.04298594945476025,   0.030177912102218134,    -0.019682654690840354,
     0.011960077426792047,   -0.006792399871927492,   0.0036171284436899067,
     -0.0018118867976067608, 0.0008563094235043086,   -0.0003829020871854531,
     0.00016241773604398465, -6.55086273259746e-05,   2.518366139612992e-05,
     -9.251665226971573e-06, 3.249540060602951e-06,   -1.0883515439592516e-06,
     3.523604963439924e-07,  -1.1383482679942732e-07, 3.385378043608712e-08,
     -7.725039968045779e-09, 2.2221132168174095e-09,  -1.1849657986148584e-09,
     2.997850940661288e-10}};
constexpr Series<16, 28> kI1Near{
    {0.04468770119634699, -0.06112433463582289, 0.06805870958143567, -0.06848304015866997,
     0.0637442367181468, -0.05527097528911072, 0.044857808407224795, -0.033743109428976834,
     0.022979754635066275, -0.015294328041598342, 0.011043956964806728, -0.0061085617355639225,
     0.0013735992184270094, -0.0008943831798935703, 0.0016381289785512617, -0.0006973577877297636},
    {0.04468770987560883,     -0.06112433802966629,   0.06805759990951267,
     -0.06848260620582576,    0.06376740371333725,    -0.05528003922703299,
     0.04467457262304859,     -0.03367135552039122,   0.023686016933733296,
     -0.015571309250544394,   0.009583962342948091,   -0.0055345678088487725,
     0.003005761422600446,    -0.0015388747130763492, 0.0007445158546973146,
     -0.00034117562574038554, 0.0001484126353082137,  -6.142435066991627e-05,
     2.4248618918164148e-05,  -9.135581253751598e-06, 3.2758896983910484e-06,
     -1.133551346432692e-06,  3.9091632529126733e-07, -1.2376686539665326e-07,
     2.9883402742599985e-08,  -9.144761049555143e-09, 5.211654337723065e-09,
     -1.3931836382589292e-09}};
constexpr Series<6, 23> kI0Far{
    {0.40217651278964583, 0.003360553136607531, 0.0001361561535066766, 1.1122155735920146e-05,
     1.6390398325735378e-06, 3.5476200819216834e-07},
    {0.4021765094450081,     0.0033605519836677235,   0.00013621607439187193,
     1.1143033802583682e-05, 1.4838475863096976e-06,  2.9735956581528157e-07,
     8.872154618944625e-08,  3.932926571091252e-08,   2.155681110989874e-08,
     7.532386417555123e-09,  -6.805980075129678e-09,  -1.331979859201994e-08,
     -5.162517880939013e-09, 7.323310735122893e-09,   6.789790403895736e-09,
     -3.11851456121224e-09,  -4.8482509221176966e-09, 1.0924527246468664e-09,
     2.3981927228949238e-09, -2.748111637276033e-10,  -7.473844621887592e-10,
     3.525321019700796e-11,  1.0881994785468934e-10}};
constexpr Series<6, 23> kI1Far{
    {0.38939845525806843, -0.009749578479405616, -0.00021916826846330527, -1.5015275311128437e-05,
     -2.0096372716216985e-06, -4.1209135964051693e-07},
    {0.38939845902587233,     -0.009749577193235609,   -0.000219235763833829,
     -1.503854721127423e-05,  -1.8349101539664522e-06, -3.483853071371078e-07,
     -1.0001220638799958e-07, -4.31323156237458e-08,   -2.3382691353601083e-08,
     -8.407326839577817e-09,  6.795073490187386e-09,   1.3952625102162603e-08,
     5.722677527454156e-09,   -7.432535335623792e-09,  -7.222524178953976e-09,
     3.0717395650769477e-09,  5.094016301574338e-09,   -1.0476127785270019e-09,
     -2.5062162405593894e-09, 2.582169443152386e-10,   7.79067217908059e-10,
     -3.2677656089803323e-11, -1.13288885034257e-10}};

// erfinv(1 - 2q) in sqrt(-log q), highest power first, to about three digits.
constexpr double kTailNumerator[] = {1.641345311, 3.429567803, -1.624906493, -1.970840454};
constexpr double kTailDenominator[] = {1.637067800, 3.543889200, 1.0};

bool is_f32(Element x) { return x.dtype() == DType::f32; }
Element is_whole(Element x) { return equal(x, x.apply(Opcode::trunc)); }

/// exp(x^2) or exp(-x^2) of 0 <= x <= 30, beyond which both have left every range.
Element exp_of_square(Element x, double sign) {
  Element bounded = min(x, x.number(30));
  Element square = bounded * bounded;
  Element rest = fma(bounded, bounded, -square);
  Element rough = exp(square * sign);
  Element exact = fma(rough, rest * sign, rough);
  return choose(equal(rough, x.number(kInfinity)), rough, exact);
}

/// erfcx(x), x >= 0.
Element erfcx_of_positive(Element x) {
  double k = is_f32(x) ? kScaleF32 : kScaleF64;
  return kErfcx.at(1.0 - 2 * k / (x + k)) / (x * 2 + 1);
}

Element polynomial(Element x, std::span<const double> highest_first) {
  Element sum = x.number(highest_first[0]);
  for (double c : highest_first.subspan(1)) sum = sum * x + c;
  return sum;
}

/// First guess of erfinv(y), 0 <= y < 1, good to about three digits.
Element guess_erfinv(Element y) {
  constexpr double kA[] = {-0.140543331, 0.914624893, -1.645349621, 0.886226899};
  constexpr double kB[] = {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0};
  Element square = y * y;
  Element z = sqrt(-log((1.0 - y) * 0.5));
  return choose(y <= 0.7, y * polynomial(square, kA) / polynomial(square, kB),
                polynomial(z, kTailNumerator) / polynomial(z, kTailDenominator));
}

/// Adds step(x) to sum and 1 to x, `times` over, where x is below `limit`.
template <class Step>
void raise(Element& x, Element& sum, int times, double limit, Step step) {
  for (int i = 0; i < times; ++i) {
    Element below = x < limit;
    sum = choose(below, sum + step(x), sum);
    x = choose(below, x + 1, x);
  }
}

Element int_power(Element x, int64_t exponent) {
  Element result = x.number(1);
  for (Element base = x; exponent > 0; exponent /= 2, base = base * base)
    if (exponent % 2 == 1) result = result * base;
  return result;
}

/// digamma(x), x > 0.
Element digamma_of_positive(Element x) {
  constexpr double kBernoulli[] = {1.0 / 12,  -691.0 / 32760, 1.0 / 132, -1.0 / 240,
                                   1.0 / 252, -1.0 / 120,     1.0 / 12};
  Element sum = x.number(0);
  raise(x, sum, 10, 10, [](Element at) { return -1.0 / at; });
  Element z = 1.0 / (x * x);
  return sum + log(x) - 0.5 / x - z * polynomial(z, kBernoulli);
}

/// The first derivative of digamma, with eager's six steps and three terms.
Element trigamma(Element x) {
  Element low = x < 0.5;
  Element sine = (x * kPi).apply(Opcode::sin);
  Element sum = choose(low, -(kPi * kPi) / (sine * sine), x.number(0));
  Element y = choose(low, 1.0 - x, x);
  for (int i = 0; i < 6; ++i, y = y + 1) sum = sum + 1.0 / (y * y);
  Element z = 1.0 / (y * y);
  Element tail = 1.0 + 1.0 / (y * 2) + z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42)));
  sum = sum + tail / y;
  return choose(low, -sum, sum);
}

/// Sum of (x + k)^-s over k = 0, 1, …, by Euler and Maclaurin; x > 0, s > 1.
Element hurwitz_zeta(int64_t s, Element x) {
  // (2k)! / B(2k)
  constexpr double kTerms[] = {12.0,
                               -720.0,
                               30240.0,
                               -1209600.0,
                               47900160.0,
                               -1.8924375803183791606e9,
                               7.47242496e10,
                               -2.950130727918164224e12,
                               1.1646782814350067249e14,
                               -4.5979787224074726105e15,
                               1.8152105401943546773e17,
                               -7.1661652561756670113e18};
  Element sum = x.number(0);
  for (int i = 0; i < 10; ++i, x = x + 1) sum = sum + int_power(1.0 / x, s);
  Element inverse = 1.0 / x;
  Element power = int_power(inverse, s);
  sum = sum + power * x / static_cast<double>(s - 1) + power * 0.5;
  power = power * inverse;
  double rising = static_cast<double>(s);
  for (int64_t k = 1; k <= std::ssize(kTerms); ++k) {
    sum = sum + power * (rising / kTerms[k - 1]);
    rising *= static_cast<double>((s + 2 * k - 1) * (s + 2 * k));
    power = power * inverse * inverse;
  }
  return sum;
}

/// The n-th derivative of cot(pi x), over pi^n: a polynomial in c = cot(pi x), because c' = -pi (1
/// + c^2).
Element cotangent_derivative(int64_t n, Element c) {
  std::vector<double> terms{0, 1};
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> next(terms.size() + 1, 0.0);
    for (size_t power = 1; power < terms.size(); ++power) {
      double slope = static_cast<double>(power) * terms[power];
      next[power - 1] -= slope;
      next[power + 1] -= slope;
    }
    terms = next;
  }
  Element sum = c.number(terms.back());
  for (size_t power = terms.size() - 1; power-- > 0;) sum = sum * c + terms[power];
  return sum;
}

}  // namespace

Element erfcx(Element x) {
  Element m = abs(x);
  Element value = erfcx_of_positive(m);
  return choose(x < 0, exp_of_square(m, 1) * 2 - value, value);
}

Element erfc(Element x) {
  Element m = abs(x);
  Element value = exp_of_square(m, -1) * erfcx_of_positive(m);
  return choose(x < 0, 2.0 - value, value);
}

/// Two steps of Newton's method; near 1 they compare 1 - y, which is exact, with erfc.
Element erfinv(Element x) {
  Element y = abs(x);
  Element root = guess_erfinv(y);
  for (int i = 0; i < 2; ++i) {
    Element error = choose(y <= 0.7, erf(root) - y, (1.0 - y) - erfc(root));
    root = root - error / (exp(-(root * root)) * kTwoOverRootPi);
  }
  root = choose(equal(y, y.number(1)), y.number(kInfinity), root);
  return copysign(root, x);
}

/// The middle by erfinv. In the tails erfc(r) = 2q by Newton's method on logarithms, which
/// converges however small q is.
Element ndtri(Element p) {
  Element q = min(p, 1.0 - p);
  Element root =
      polynomial(sqrt(-log(q)), kTailNumerator) / polynomial(sqrt(-log(q)), kTailDenominator);
  for (int i = 0; i < 3; ++i) {
    Element scaled = erfcx_of_positive(root);
    Element error = log(scaled / (q * 2)) - root * root;
    root = root + error * scaled / kTwoOverRootPi;
  }
  root = choose(equal(q, q.number(0)), q.number(kInfinity), root);
  Element middle = erfinv(p * 2 - 1);
  return choose(q > 0.15, middle, copysign(root, p - 0.5)) / kSqrtHalf;
}

/// log(erfc(-x / sqrt 2) / 2), by erfcx where erfc leaves its range.
Element log_ndtr(Element x) {
  Element t = x * kSqrtHalf;
  Element low = log(erfcx(-t) * 0.5) - t * t;
  return choose(x < -1, low, log1p(erfc(t) * -0.5));
}

Element lgamma(Element x) { return x.apply(Opcode::lgamma); }

/// Reflected below 0: digamma(1 - x) - pi / tan(pi x). Poles: NaN, but infinity at 0.
Element digamma(Element x) {
  Element negative = x < 0;
  // Exact, and small beside a pole, where the sine is as exact as it.
  Element part = (x - x.apply(Opcode::round)) * kPi;
  Element cotangent = part.apply(Opcode::cos) / part.apply(Opcode::sin);
  Element value = digamma_of_positive(choose(negative, 1.0 - x, x));
  value = choose(negative, value - cotangent * kPi, value);
  value = choose(both(negative, is_whole(x)), x.number(kNan), value);
  return choose(equal(x, x.number(0)), copysign(x.number(kInfinity), -x), value);
}

/// Reflected below 1/2: psi(n, x) = (-1)^n psi(n, 1 - x) - pi d^n/dx^n cot(pi x).
Element polygamma(int64_t n, Element x) {
  if (n == 1) return trigamma(x);
  double factorial = std::tgamma(static_cast<double>(n) + 1);
  double sign = n % 2 == 0 ? -1 : 1;
  Element low = x < 0.5;
  Element value = hurwitz_zeta(n + 1, choose(low, 1.0 - x, x)) * (sign * factorial);
  Element part = (x - x.apply(Opcode::round)) * kPi;
  Element cotangent = part.apply(Opcode::cos) / part.apply(Opcode::sin);
  Element slope = cotangent_derivative(n, cotangent) * std::pow(kPi, static_cast<double>(n) + 1);
  value = choose(low, value * -sign - slope, value);
  return choose(both(x <= 0, is_whole(x)), x.number(sign * kInfinity), value);
}

Element i0e(Element x) {
  Element m = abs(x);
  return choose(m <= 8, kI0Near.at(m * 0.25 - 1), kI0Far.at(16.0 / m - 1) / sqrt(m));
}

Element i1e(Element x) {
  Element m = abs(x);
  Element low = kI1Near.at(m * 0.25 - 1) * m;
  Element high = kI1Far.at(16.0 / m - 1) / sqrt(m);
  return copysign(choose(m <= 8, low, high), x);
}

}  // namespace tandem::ops
