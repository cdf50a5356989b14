"""How far the element formulas of ops/elementary.h are from the truth, in units of the last place.

f32 and f64 against 60 digits of mpmath on about a thousand points. The bounds are what was
measured, rounded up; op_check compares with PyTorch, which has errors too. Where a function crosses
0 away from 0 (lgamma, digamma) the error is taken relative to 1.
"""

import math

import mpmath
import numpy
import pytest
import torch

import tandem

mpmath.mp.dps = 60


def psi(order):
    return lambda x: mpmath.psi(order, x)


# op text, exact function, domain, bound in ulp of f32, of f64, relative to 1 below 1
FUNCTIONS = {
    "atan": ("aten.atan(%x)", mpmath.atan, (-1e6, 1e6), 2, 2, False),
    "asin": ("aten.asin(%x)", mpmath.asin, (-1, 1), 2, 2, False),
    "acos": ("aten.acos(%x)", mpmath.acos, (-1, 1), 2, 2, False),
    "tan": ("aten.tan(%x)", mpmath.tan, (-20, 20), 4, 3, False),
    "sinh": ("aten.sinh(%x)", mpmath.sinh, (-89, 89), 4, 4, False),
    "cosh": ("aten.cosh(%x)", mpmath.cosh, (-89, 89), 4, 4, False),
    "asinh": ("aten.asinh(%x)", mpmath.asinh, (-1e9, 1e9), 4, 4, False),
    "acosh": ("aten.acosh(%x)", mpmath.acosh, (1, 1e9), 4, 4, False),
    "atanh": ("aten.atanh(%x)", mpmath.atanh, (-0.999, 0.999), 4, 4, False),
    "log10": ("aten.log10(%x)", mpmath.log10, (1e-30, 1e30), 3, 2, False),
    "exp2": ("aten.exp2(%x)", lambda x: mpmath.power(2, x), (-120, 120), 2, 2, False),
    "erfc": ("aten.erfc(%x)", mpmath.erfc, (-6, 9), 5, 5, False),
    "erfcx": (
        "aten.special_erfcx(%x)",
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        (-5, 1e4),
        5,
        5,
        False,
    ),
    "erfinv": ("aten.erfinv(%x)", mpmath.erfinv, (-0.999, 0.999), 5, 5, False),
    "lgamma": ("aten.lgamma(%x)", lambda x: mpmath.re(mpmath.loggamma(x)), (0.01, 1e4), 1, 4, True),
    "digamma": ("aten.digamma(%x)", psi(0), (0.01, 1e4), 8, 6, True),
    "polygamma2": ("aten.polygamma(2, %x)", psi(2), (0.5, 100), 5, 6, False),
    "polygamma3": ("aten.polygamma(3, %x)", psi(3), (-2.9, -2.1), 9, 9, False),
    "i0e": (
        "aten.special_i0e(%x)",
        lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x),
        (-700, 700),
        4,
        8,
        False,
    ),
    "i1e": (
        "aten.special_i1e(%x)",
        lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x),
        (-700, 700),
        6,
        8,
        False,
    ),
    "ndtri": (
        "aten.special_ndtri(%x)",
        lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
        (1e-30, 0.9999),
        8,
        8,
        False,
    ),
    "log_ndtr": (
        "aten.special_log_ndtr(%x)",
        lambda x: mpmath.log(mpmath.ncdf(x)),
        (-30, 5),
        20,  # erfc(x) has the error of x * sqrt(1/2), 2 x^2 times
        30,
        False,
    ),
}
POINTS = 400  # of each kind


def points(domain, dtype):
    """Evenly spread over the domain, and denser toward 0 (or toward its lower end)."""
    low, high = domain
    even = torch.linspace(low, high, POINTS, dtype=torch.float64)
    start = low if low > 0 else 1e-6
    dense = torch.logspace(math.log10(start), math.log10(high if high > 0 else 1), POINTS)
    x = torch.cat([even, dense.double(), -dense.double()])
    x = x[(x >= low) & (x <= high)].to(dtype)
    return x[(x.double() >= low) & (x.double() <= high)]


def ulp_error(got, exact, dtype, relative_to_one):
    numpy_type = numpy.float32 if dtype == torch.float32 else numpy.float64
    size = max(abs(exact), 1) if relative_to_one else abs(exact)
    unit = numpy.spacing(numpy_type(float(size)))
    return float(abs(mpmath.mpf(got) - exact) / mpmath.mpf(float(unit)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(name, dtype):
    text, exact, domain, f32_bound, f64_bound, relative_to_one = FUNCTIONS[name]
    x = points(domain, dtype)
    type_text = "f32" if dtype == torch.float32 else "f64"
    graph = f"graph @f(%x: {type_text}[{len(x)}]) {{\n  %y = {text}\n  return %y\n}}"
    result = tandem.compile_text(graph).run([x])[0]
    worst, at = max(
        (ulp_error(got, exact(mpmath.mpf(value)), dtype, relative_to_one), value)
        for value, got in zip(x.double().tolist(), result.double().tolist())
    )
    bound = f32_bound if dtype == torch.float32 else f64_bound
    assert worst <= bound, f"{worst:.2f} ulp at {at!r}"


@pytest.mark.parametrize("text", sorted({entry[0] for entry in FUNCTIONS.values()}))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_interpreter_gives_the_same_bits(text, dtype):
    """Where no function of the machine's library is called, code and interpreter agree exactly."""
    x = points((-0.99, 0.99), tandem_dtype(dtype))
    graph = f"graph @f(%x: {dtype}[{len(x)}]) {{\n  %y = {text}\n  return %y\n}}"
    own_series = any(op in text for op in ("atan(", "asin(", "acos(")) and "h(" not in text
    compiled = tandem.compile_text(graph).run([x])[0]
    interpreted = tandem.compile_text(graph, interpret=True).run([x])[0]
    if own_series:
        assert torch.equal(compiled, interpreted)
    else:
        tolerance = 1e-5 if dtype == "f32" else 1e-13
        torch.testing.assert_close(
            compiled, interpreted, rtol=tolerance, atol=tolerance, equal_nan=True
        )


def tandem_dtype(name):
    return {"f32": torch.float32, "f64": torch.float64}[name]


@pytest.mark.parametrize("interpret", [False, True], ids=["code", "interpreter"])
@pytest.mark.parametrize(
    "text, function",
    [
        ("aten.relu(%x)", torch.relu),
        ("aten.clamp(%x, 0.0, 6.0)", lambda x: torch.clamp(x, 0, 6)),
        ("aten.hardtanh(%x, -0.0, 0.0)", lambda x: torch.nn.functional.hardtanh(x, -0.0, 0.0)),
        ("aten.clamp_max(%x, -2.0)", lambda x: torch.clamp_max(x, -2)),
    ],
)
def test_bounds_keep_nan_and_signed_zeros(text, function, interpret):
    """Of equal operands the first, as eager's wide code does: relu(-0) is -0."""
    x = torch.tensor([-0.0, 0.0, math.nan, -math.nan, math.inf, -math.inf, -1.0, 7.0]).repeat(8)
    graph = f"graph @f(%x: f32[{len(x)}]) {{\n  %y = {text}\n  return %y\n}}"
    got = tandem.compile_text(graph, interpret=interpret).run([x])[0]
    expected = function(x)
    assert torch.equal(torch.isnan(got), torch.isnan(expected))
    numbers = ~torch.isnan(expected)
    assert torch.equal(got[numbers], expected[numbers])
    assert torch.equal(torch.signbit(got[numbers]), torch.signbit(expected[numbers]))
