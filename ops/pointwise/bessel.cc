// Bessel functions of order 0 and 1 and Airy's function, by the approximations of Cephes, as in
// eager: near 0 a quotient of polynomials, far from it a slowly changing amplitude and phase.
// Eager gives them for f32, f64 and integers (as f32), and no gradients.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ops/elementary.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Coefficients of falling powers.
constexpr double kJ0PP[] = {7.96936729297347051624e-04, 8.28352392107440799803e-02,
                            1.23953371646414299388e+00, 5.44725003058768775090e+00,
                            8.74716500199817011941e+00, 5.30324038235394892183e+00,
                            9.99999999999999997821e-01};
constexpr double kJ0PQ[] = {9.24408810558863637013e-04, 8.56288474354474431428e-02,
                            1.25352743901058953537e+00, 5.47097740330417105182e+00,
                            8.76190883237069594232e+00, 5.30605288235394617618e+00,
                            1.00000000000000000218e+00};
constexpr double kJ0QP[] = {-1.13663838898469149931e-02, -1.28252718670509318512e+00,
                            -1.95539544257735972385e+01, -9.32060152123768231369e+01,
                            -1.77681167980488050595e+02, -1.47077505154951170175e+02,
                            -5.14105326766599330220e+01, -6.05014350600728481186e+00};
constexpr double kJ0QQ[] = {6.43178256118178023184e+01, 8.56430025976980587198e+02,
                            3.88240183605401609683e+03, 7.24046774195652478189e+03,
                            5.93072701187316984827e+03, 2.06209331660327847417e+03,
                            2.42005740240291393179e+02};
constexpr double kJ0RP[] = {-4.79443220978201773821e+09, 1.95617491946556577543e+12,
                            -2.49248344360967716204e+14, 9.70862251047306323952e+15};
constexpr double kJ0RQ[] = {4.99563147152651017219e+02, 1.73785401676374683123e+05,
                            4.84409658339962045305e+07, 1.11855537045356834862e+10,
                            2.11277520115489217587e+12, 3.10518229857422583814e+14,
                            3.18121955943204943306e+16, 1.71086294081043136091e+18};
constexpr double kJ1PP[] = {7.62125616208173112003e-04, 7.31397056940917570436e-02,
                            1.12719608129684925192e+00, 5.11207951146807644818e+00,
                            8.42404590141772420927e+00, 5.21451598682361504063e+00,
                            1.00000000000000000254e+00};
constexpr double kJ1PQ[] = {5.71323128072548699714e-04, 6.88455908754495404082e-02,
                            1.10514232634061696926e+00, 5.07386386128601488557e+00,
                            8.39985554327604159757e+00, 5.20982848682361821619e+00,
                            9.99999999999999997461e-01};
constexpr double kJ1QP[] = {5.10862594750176621635e-02, 4.98213872951233449420e+00,
                            7.58238284132545283818e+01, 3.66779609360150777800e+02,
                            7.10856304998926107277e+02, 5.97489612400613639965e+02,
                            2.11688757100572135698e+02, 2.52070205858023719784e+01};
constexpr double kJ1QQ[] = {7.42373277035675149943e+01, 1.05644886038262816351e+03,
                            4.98641058337653607651e+03, 9.56231892404756170795e+03,
                            7.99704160447350683650e+03, 2.82619278517639096600e+03,
                            3.36093607810698293419e+02};
constexpr double kJ1RP[] = {-8.99971225705559398224e+08, 4.52228297998194034323e+11,
                            -7.27494245221818276015e+13, 3.68295732863852883286e+15};
constexpr double kJ1RQ[] = {6.20836478118054335476e+02, 2.56987256757748830383e+05,
                            8.35146791431949253037e+07, 2.21511595479792499675e+10,
                            4.74914122079991414898e+12, 7.84369607876235854894e+14,
                            8.95222336184627338078e+16, 5.32278620332680085395e+18};
constexpr double kY0P[] = {1.55924367855235737965e+04, -1.46639295903971606143e+07,
                           5.43526477051876500413e+09, -9.82136065717911466409e+11,
                           8.75906394395366999549e+13, -3.46628303384729719441e+15,
                           4.42733268572569800351e+16, -1.84950800436986690637e+16};
constexpr double kY0Q[] = {1.04128353664259848412e+03, 6.26107330137134956842e+05,
                           2.68919633393814121987e+08, 8.64002487103935000337e+10,
                           2.02979612750105546709e+13, 3.17157752842975028269e+15,
                           2.50596256172653059228e+17};
constexpr double kY1P[] = {1.26320474790178026440e+09, -6.47355876379160291031e+11,
                           1.14509511541823727583e+14, -8.12770255501325109621e+15,
                           2.02439475713594898196e+17, -7.78877196265950026825e+17};
constexpr double kY1Q[] = {5.94301592346128195359e+02, 2.35564092943068577943e+05,
                           7.34811944459721705660e+07, 1.87601316108706159478e+10,
                           3.88231277496238566008e+12, 6.20557727146953693363e+14,
                           6.87141087355300489866e+16, 3.97270608116560655612e+18};
constexpr double kK0Near[] = {1.37446543561352307156e-16, 4.25981614279661018399e-14,
                              1.03496952576338420167e-11, 1.90451637722020886025e-09,
                              2.53479107902614945675e-07, 2.28621210311945178607e-05,
                              1.26461541144692592338e-03, 3.59799365153615016266e-02,
                              3.44289899924628486886e-01, -5.35327393233902768720e-01};
constexpr double kK0Far[] = {
    5.30043377268626276149e-18,  -1.64758043015242134646e-17, 5.21039150503902756861e-17,
    -1.67823109680541210385e-16, 5.51205597852431940784e-16,  -1.84859337734377901440e-15,
    6.34007647740507060557e-15,  -2.22751332699166985548e-14, 8.03289077536357521100e-14,
    -2.98009692317273043925e-13, 1.14034058820847496303e-12,  -4.51459788337394416547e-12,
    1.85594911495471785253e-11,  -7.95748924447710747776e-11, 3.57739728140030116597e-10,
    -1.69753450938905987466e-09, 8.57403401741422608519e-09,  -4.66048989768794782956e-08,
    2.76681363944501510342e-07,  -1.83175552271911948767e-06, 1.39498137188764993662e-05,
    -1.28495495816278026384e-04, 1.56988388573005337491e-03,  -3.14481013119645005427e-02,
    2.44030308206595545468e+00};
constexpr double kK1Near[] = {
    -7.02386347938628759343e-18, -2.42744985051936593393e-15, -6.66690169419932900609e-13,
    -1.41148839263352776110e-10, -2.21338763073472585583e-08, -2.43340614156596823496e-06,
    -1.73028895751305206302e-04, -6.97572385963986435018e-03, -1.22611180822657148235e-01,
    -3.53155960776544875667e-01, 1.52530022733894777053e+00};
constexpr double kK1Far[] = {
    -5.75674448366501715755e-18, 1.79405087314755922667e-17,  -5.68946255844285935196e-17,
    1.83809354436663880070e-16,  -6.05704724837331885336e-16, 2.03870316562433424052e-15,
    -7.01983709041831346144e-15, 2.47715442448130437068e-14,  -8.97670518232499435011e-14,
    3.34841966607842919884e-13,  -1.28917396095102890680e-12, 5.13963967348173025100e-12,
    -2.12996783842756842877e-11, 9.21831518760500529508e-11,  -4.19035475934189648750e-10,
    2.01504975519703286596e-09,  -1.03457624656780970260e-08, 5.74108412545004946722e-08,
    -3.50196060308781257119e-07, 2.40648494783721712015e-06,  -1.93619797416608296024e-05,
    1.95215518471351631108e-04,  -2.85781685962277938680e-03, 1.03923736576817238437e-01,
    2.72062619048444266945e+00};
constexpr double kAiryAN[] = {3.46538101525629032477e-01, 1.20075952739645805542e+01,
                              7.62796053615234516538e+01, 1.68089224934630576269e+02,
                              1.59756391350164413639e+02, 7.05360906840444183113e+01,
                              1.40264691163389668864e+01, 9.99999999999999995305e-01};
constexpr double kAiryAD[] = {5.67594532638770212846e-01, 1.47562562584847203173e+01,
                              8.45138970141474626562e+01, 1.77318088145400459522e+02,
                              1.64234692871529701831e+02, 7.14778400825575695274e+01,
                              1.40959135607834029598e+01, 1.00000000000000000470e+00};
constexpr double kAiryAFN[] = {
    -1.31696323418331795333e-01, -6.26456544431912369773e-01, -6.93158036036933542233e-01,
    -2.79779981545119124951e-01, -4.91900132609500318020e-02, -4.06265923594885404393e-03,
    -1.59276496239262096340e-04, -2.77649108155232920844e-06, -1.67787698489114633780e-08};
constexpr double kAiryAFD[] = {
    1.33560420706553243746e+01, 3.26825032795224613948e+01, 2.67367040941499554804e+01,
    9.18707402907259625840e+00, 1.47529146771666414581e+00, 1.15687173795188044134e-01,
    4.40291641615211203805e-03, 7.54720348287414296618e-05, 4.51850092970580378464e-07};
constexpr double kAiryAGN[] = {
    1.97339932091685679179e-02, 3.91103029615688277255e-01, 1.06579897599595591108e+00,
    9.39169229816650230044e-01, 3.51465656105547619242e-01, 6.33888919628925490927e-02,
    5.85804113048388458567e-03, 2.82851600836737019778e-04, 6.98793669997260967291e-06,
    8.11789239554389293311e-08, 3.41551784765923618484e-10};
constexpr double kAiryAGD[] = {9.30892908077441974853e+00, 1.98352928718312140417e+01,
                               1.55646628932864612953e+01, 5.47686069422975497931e+00,
                               9.54293611618961883998e-01, 8.64580826352392193095e-02,
                               4.12656523824222607191e-03, 1.01259085116509135510e-04,
                               1.17166733214413521882e-06, 4.91834570062930015649e-09};

Element cos(Element x) { return x.apply(Opcode::cos); }
Element sin(Element x) { return x.apply(Opcode::sin); }

/// First coefficient: of the highest power.
template <size_t terms>
Element polynomial(Element x, const double (&c)[terms]) {
  Element sum = x.number(c[0]);
  for (size_t i = 1; i < terms; ++i) sum = sum * x + c[i];
  return sum;
}
template <size_t p, size_t q>
Element quotient(Element x, const double (&above)[p], const double (&below)[q]) {
  return polynomial(x, above) / polynomial(x, below);
}
/// Chebyshev's series with half its last term, by Clenshaw's rule.
template <size_t terms>
Element chebyshev(Element x, const double (&c)[terms]) {
  Element before = x.number(0);
  Element last = x.number(0);
  Element sum = x.number(c[0]);
  for (size_t i = 1; i < terms; ++i) {
    before = last;
    last = sum;
    sum = x * last - before + c[i];
  }
  return (sum - before) * 0.5;
}

// --- J and Y
// --------------------------------------------------------------------------------------

/// sqrt(2 / (pi x)) (a cos(x - shift) + b sin(x - shift)), of which the derivative in the shift
/// makes Y from J.
struct Wave {
  Element amplitude, slope, cosine, sine, scale;
  Element j() const { return (amplitude * cosine - slope * sine) * scale; }
  Element y() const { return (amplitude * sine + slope * cosine) * scale; }
};
Wave wave(Element x, double shift, Element amplitude, Element quotient) {
  Element phase = x - shift;
  Element scale = x.number(std::sqrt(2 / kPi)) / sqrt(x);
  return {amplitude, 5.0 / x * quotient, cos(phase), sin(phase), scale};
}
Wave wave0(Element x) {
  Element z = 25.0 / (x * x);
  return wave(x, kPi / 4, quotient(z, kJ0PP, kJ0PQ), quotient(z, kJ0QP, kJ0QQ));
}
Wave wave1(Element x) {
  Element z = 25.0 / (x * x);
  return wave(x, 3 * kPi / 4, quotient(z, kJ1PP, kJ1PQ), quotient(z, kJ1QP, kJ1QQ));
}

Element j0(Element x) {
  x = abs(x);
  Element z = x * x;
  Element low = (z - 5.78318596294678452118) * (z - 30.4712623436620863991);
  low = choose(x < 0.00001, 1.0 - z / 4, low * quotient(z, kJ0RP, kJ0RQ));
  return choose(x <= 5, low, wave0(x).j());
}
Element j1(Element signed_x) {
  Element x = abs(signed_x);
  Element z = x * x;
  Element low = quotient(z, kJ1RP, kJ1RQ) * x;
  low = low * (z - 14.6819706421238932572) * (z - 49.2184563216946036703);
  Element value = choose(x <= 5, low, wave1(x).j());
  return choose(signed_x < 0, -value, value);
}
/// -inf at 0, NaN below.
Element from_zero(Element x, Element value, double at_zero) {
  value = choose(equal(x, x.number(0)), x.number(at_zero), value);
  return choose(x < 0, x.number(kNan), value);
}
Element y0(Element x) {
  Element low = quotient(x * x, kY0P, kY0Q) + j0(x) * log(x) * (2 / kPi);
  return from_zero(x, choose(x <= 5, low, wave0(x).y()), -HUGE_VAL);
}
Element y1(Element x) {
  Element low = quotient(x * x, kY1P, kY1Q) * x + (j1(x) * log(x) - 1.0 / x) * (2 / kPi);
  return from_zero(x, choose(x <= 5, low, wave1(x).y()), -HUGE_VAL);
}
/// sin(x) / x, by its series near 0.
Element spherical_j0(Element x) {
  constexpr double kSeries[] = {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                                1.0 / 120,        -1.0 / 6,        1.0};
  Element m = abs(x);
  Element value = choose(m < 0.5, polynomial(x * x, kSeries), sin(x) / x);
  return choose(equal(m, m.number(HUGE_VAL)), m.number(0), value);
}

// --- I and K
// --------------------------------------------------------------------------------------

Element i0(Element x) { return i0e(x) * exp(abs(x)); }
Element i1(Element x) { return i1e(x) * exp(abs(x)); }
/// K(x), or exp(x) K(x), from the function below 2 and sqrt(x) exp(x) times that above.
template <bool scaled>
Element joined(Element x, Element low, Element high) {
  high = high / sqrt(x);
  Element value = scaled ? choose(x <= 2, low * exp(x), high) : choose(x <= 2, low, high * exp(-x));
  return from_zero(x, value, HUGE_VAL);
}
template <bool scaled>
Element k0(Element x) {
  Element low = chebyshev(x * x - 2.0, kK0Near) - log(x * 0.5) * i0(x);
  return joined<scaled>(x, low, chebyshev(8.0 / x - 2.0, kK0Far));
}
template <bool scaled>
Element k1(Element x) {
  Element low = log(x * 0.5) * i1(x) + chebyshev(x * x - 2.0, kK1Near) / x;
  return joined<scaled>(x, low, chebyshev(8.0 / x - 2.0, kK1Far));
}

// --- Airy
// -----------------------------------------------------------------------------------------

/// Far below 0: a wave whose phase is 2/3 |x|^(3/2) + pi/4.
Element airy_below(Element x) {
  Element root = sqrt(x);
  Element zeta = x * 2.0 * root / 3.0;
  Element z = 1.0 / zeta;
  Element phase = zeta + kPi / 4;
  Element sines = 1.0 + z * z * quotient(z * z, kAiryAFN, kAiryAFD);
  Element cosines = z * quotient(z * z, kAiryAGN, kAiryAGD);
  return (sin(phase) * sines - cos(phase) * cosines) / sqrt(root) / std::sqrt(kPi);
}
Element airy_above(Element x) {
  Element root = sqrt(x);
  Element zeta = x * 2.0 * root / 3.0;
  Element falling = quotient(1.0 / zeta, kAiryAN, kAiryAD) / (sqrt(root) * exp(zeta) * 2.0);
  return falling / std::sqrt(kPi);
}
/// Taylor's series about 0, of which 12 pairs of terms are enough for |x| < 2.09.
Element airy_near(Element x) {
  Element cube = x * x * x;
  Element even = x.number(1);
  Element odd = x;
  Element f = even;
  Element g = odd;
  for (double k = 3; k <= 36; k += 3) {
    even = even * cube / (k * (k - 1));
    odd = odd * cube / (k * (k + 1));
    f = f + even;
    g = g + odd;
  }
  return f * 0.355028053887817239260 - g * 0.258819403792806798405;
}
Element airy_ai(Element x) {
  Element value = choose(x < -2.09, airy_below(-x), choose(x >= 2.09, airy_above(x), airy_near(x)));
  value = choose(x > 103.892, x.number(0), value);
  return choose(equal(abs(x), x.number(HUGE_VAL)), x.number(kNan), value);
}

// --- the table
// ------------------------------------------------------------------------------------

Types bessel_types(const Call& c) {
  DType dtype = c.type(c.op().schema.params[0].name).dtype;
  if (dtype != compute_type(dtype)) c.fail(fmt::format("is not defined for {}", name_of(dtype)));
  return unary_float(c);
}
template <auto F>
OpDef bessel(std::string_view schema) {
  return {.schema = schema,
          .types = bessel_types,
          .lower = unary<F>,
          .no_grad = "eager does not differentiate it",
          .samples = {"$[3, 4]", "$[]", "$[0, 3]", "$[4, 3]{1, 4}", "$[67]:special",
                      "$[64]:positive", "f32[200]:index(200)", "f64[200]:index(200)"},
          .sample_dtypes = DTypes::all,
          .pointwise = true,
          .out = true};
}
const OpDef kTable[] = {
    bessel<j0>("aten::special_bessel_j0(Tensor self) -> Tensor"),
    bessel<j1>("aten::special_bessel_j1(Tensor self) -> Tensor"),
    bessel<y0>("aten::special_bessel_y0(Tensor self) -> Tensor"),
    bessel<y1>("aten::special_bessel_y1(Tensor self) -> Tensor"),
    bessel<spherical_j0>("aten::special_spherical_bessel_j0(Tensor x) -> Tensor"),
    bessel<i0>("aten::special_modified_bessel_i0(Tensor self) -> Tensor"),
    bessel<i1>("aten::special_modified_bessel_i1(Tensor self) -> Tensor"),
    bessel<k0<false>>("aten::special_modified_bessel_k0(Tensor self) -> Tensor"),
    bessel<k1<false>>("aten::special_modified_bessel_k1(Tensor self) -> Tensor"),
    bessel<k0<true>>("aten::special_scaled_modified_bessel_k0(Tensor x) -> Tensor"),
    bessel<k1<true>>("aten::special_scaled_modified_bessel_k1(Tensor x) -> Tensor"),
    bessel<airy_ai>("aten::special_airy_ai(Tensor x) -> Tensor"),
};

}  // namespace

Family bessel_family() {
  static const std::vector<const OpDef*> kOps = listed(kTable);
  return kOps;
}

}  // namespace tandem::ops
