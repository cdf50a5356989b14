"""Complex numbers: transforms of every length and norm, arithmetic, gradients, inputs and results,
writes to parts, and what is refused."""

import re

import pytest
import torch
from compiled import compile_with

import tandem

LENGTHS = [1, 2, 7, 8, 31, 48, 60, 101, 128, 509]
NORMS = [None, "ortho", "forward"]
# Roundings of the largest element, half an epsilon each: a sum of n random terms has about the root
# of n, 23 for the longest (509); two transforms after each other have twice that.
ONE, TWO = 32, 64


def is_close(actual, expected, roundings):
    assert actual.shape == expected.shape
    tolerance = roundings * torch.finfo(actual.dtype).eps / 2 * expected.abs().max().item()
    assert (actual.double() - expected.double()).abs().max().item() <= tolerance


def check(function, *inputs, gradients=True, roundings=ONE):
    """Beside eager in f64, forward and backward."""
    program = compile_with(function, fullgraph=True)
    wide = [tensor.double().requires_grad_() for tensor in inputs]
    narrow = [tensor.clone().requires_grad_() for tensor in inputs]
    expected, actual = function(*wide), program(*narrow)
    assert actual.dtype == inputs[0].dtype
    is_close(actual, expected, roundings)
    if gradients:
        tangent = torch.randn(expected.shape, dtype=torch.float64)
        wanted = torch.autograd.grad(expected, wide, tangent)
        found = torch.autograd.grad(actual, narrow, tangent.to(actual.dtype))
        for got, want in zip(found, wanted, strict=True):
            is_close(got, want, roundings)
    assert not tandem.report()["graphs"][-1]["fallbacks"]


def test_fnet_s_mixing():
    torch.manual_seed(0)
    for shape in ((2, 16, 32), (1, 128, 48), (3, 11, 10)):
        check(lambda x: torch.fft.fftn(x, dim=(1, 2)).real, torch.randn(shape))


@pytest.mark.parametrize("n", LENGTHS)
def test_each_length(n):
    torch.manual_seed(n)
    check(lambda x: torch.view_as_real(torch.fft.fft(x)), torch.randn(3, n))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [6, 7, 64])
def test_there_and_back(n, norm):
    torch.manual_seed(n)

    def both(x):
        return torch.fft.ifft(torch.fft.fft(x, norm=norm) * (0.5 + 2j), norm=norm)

    check(lambda x: torch.view_as_real(both(x)), torch.randn(3, n))

    def half(x):
        return torch.fft.irfft(torch.fft.rfft(x, norm=norm) * 2, n=n, norm=norm)

    check(half, torch.randn(3, n))


def rotary(x):
    turns = torch.polar(x.new_ones(4), torch.arange(4.0).to(x.dtype))
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


def converted(x):
    return x.to(torch.complex64 if x.dtype == torch.float32 else torch.complex128)


def moved(x):
    return torch.fft.fft(x).transpose(0, 1)[1:, None].reshape(-1, 8)


FUNCTIONS = {
    "fft2": lambda x: torch.fft.fft2(x).imag,
    "fft2 dims": lambda x: torch.fft.fft2(x, dim=(0, 2)).imag,
    "rfft2": lambda x: torch.view_as_real(torch.fft.rfft2(x)),
    "rfftn cut": lambda x: torch.fft.rfftn(x, s=(4, 3), dim=(0, 1)).abs(),
    "fft padded": lambda x: torch.fft.fft(x, n=20, dim=1).real,
    "irfftn": lambda x: torch.fft.irfftn(torch.fft.rfftn(x).conj(), s=x.shape),
    "irfft of half": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=7),
    "ifft2": lambda x: torch.fft.ifft2(torch.fft.fft2(x) * x).real,
    "convolution": lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x.flip(-1))),
    "polar": lambda x: torch.view_as_real(torch.polar(x.abs() + 1, x) * torch.complex(x, -x)),
    "rotary": rotary,
    "angle": lambda x: torch.fft.fft(x + 3).angle().cos(),
    "moves": lambda x: torch.view_as_real(moved(x)),
    "sum": lambda x: torch.fft.fft(x).sum(1).mean(0).real,
    "to": lambda x: (converted(x) * 1j).imag,
    "minus": lambda x: torch.view_as_real(x - torch.fft.fft(x) / 2 + 1j),
    "joined": lambda x: torch.view_as_real(torch.cat([torch.fft.fft(x), torch.fft.ifft(x)], 1)),
    # over all frequencies the imaginary part would be zero
    "matmul": lambda x: (torch.fft.fft(x)[..., 1:4] @ torch.fft.fft(x)[..., 1:4].mT).imag,
    "parts": lambda x: torch.stack([part.real for part in torch.fft.fft(x).chunk(2, -1)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    torch.manual_seed(0)
    check(FUNCTIONS[name], torch.randn(6, 5, 8), roundings=TWO)


def test_double_precision():
    torch.manual_seed(0)
    x = torch.randn(3, 120, dtype=torch.float64)
    check(lambda x: torch.fft.fft(x).real, x)


REFUSED = {
    "no rule": (lambda x: torch.fft.fft(x).tan().real, "tan. of complex numbers"),
    "a large prime": (lambda x: torch.fft.fft(x, n=1031).real, "of 1031 no factor is below 1025"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_runs_in_torch(name):
    function, text = REFUSED[name]
    x = torch.randn(3, 8)
    with pytest.raises(Exception, match=text):
        compile_with(function)(x)
    with pytest.warns(UserWarning, match=text):
        result = compile_with(function, on_unsupported="eager")(x)
    assert torch.equal(result, function(x))


def write_to_the_whole(x):
    z = torch.fft.fft(x)
    torch.view_as_real(z).mul_(2)
    return z


def write_by_an_option(x):
    z = torch.fft.fft(x)
    torch.nn.functional.relu(z.real, inplace=True)
    return z.abs(), z


def write_to_a_conjugate(x):
    z = torch.fft.fft(x)
    z.conj()[0].imag.add_(1)
    return z


def write_numbers(x):
    z = torch.fft.fft(x)
    z[0] = 1 + 2j
    z[1].fill_(2)
    z[2, :3] = x[2, :3]
    return z


def views(x):
    z = torch.fft.fft(x)
    return z, z.real, z.imag[0], z.t()


def alone(x):
    return torch.fft.fft(x).real


WITH_RESULTS = {
    "a complex result": lambda x: torch.fft.fft(x),
    "turned": lambda x: torch.fft.fft(x).t(),
    "a write to the whole": write_to_the_whole,
    "a write by an option": write_by_an_option,
    "a write to a part": lambda x: torch.fft.fft(x).real.add_(1),
    "a write to a conjugate": write_to_a_conjugate,
    "written numbers": write_numbers,
    "in place": lambda x: torch.fft.fft(x).mul_(2j).add_(x),
    "views": views,
    "a view alone": alone,
    "wide": lambda x: torch.fft.fft(x.double()),
}


def outcome_of(function, inputs):
    """Results, inputs afterwards, and gradients where there are some."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    given = [leaf * 1 for leaf in leaves]
    results = function(*given)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    real = [torch.view_as_real(r.resolve_conj()) if r.is_complex() else r for r in results]
    loss = sum(r.sin().sum() for r in real)
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [*results, *given, *gradients], results


def is_same_outcome(function, *inputs):
    expected, made = outcome_of(function, inputs)
    actual, found = outcome_of(compile_with(function, fullgraph=True), inputs)
    for a, e in zip(actual, expected, strict=True):
        assert (a is None) == (e is None)
        if e is not None:
            assert a.dtype == e.dtype and a.shape == e.shape
            torch.testing.assert_close(a, e)
    memories = [[r.untyped_storage().data_ptr() for r in each] for each in (made, found)]
    shared = [[m.index(p) for p in m] for m in memories]
    assert shared[0] == shared[1]
    assert [r.stride() for r in made] == [r.stride() for r in found]
    assert not tandem.report()["graphs"][-1]["fallbacks"]


@pytest.mark.parametrize("name", WITH_RESULTS)
def test_results(name):
    torch.manual_seed(0)
    is_same_outcome(WITH_RESULTS[name], torch.randn(3, 8))


def scaled(z):
    z.mul_(2 - 1j)
    return z.abs()


def written_part(z):
    z.imag.zero_()
    return z * z


ON_COMPLEX = {
    "a square": lambda z: z * z.conj(),
    "a quotient": lambda z: z / (z[0] + 3),
    "by real ones": lambda z: z / (z.real.square() + 1) + z.real / (z.abs() + 1j),
    "by numbers": lambda z: torch.arange(1, z.shape[1] + 1) * z / torch.arange(1, z.shape[1] + 1),
    "one over": lambda z: (2 + 1j) / (z + 4),
    "powers": lambda z: z**2 + torch.square(z[0]) + z.pow(3),
    "e to it": lambda z: torch.exp(1j * z.real) + z.exp(),
    "a reciprocal": lambda z: (z + 4).reciprocal(),
    "its angle": lambda z: torch.where(z.real > 0, z, 0).angle().contiguous(),
    "an adjoint": lambda z: z.mH @ z,
    "parts": lambda z: (z.real, z.imag, z.abs()),
    "real ones joined": lambda z: torch.stack([z, z.real.to(z.dtype)], -1).sum(0),
    "chosen": lambda z: torch.where(z.real > 0, z, z.new_zeros(())),
    "moved": lambda z: z[[2, 0]].flip(1).roll(1, 0).reshape(-1),
    "alias": lambda z: (z, z.t(), z.real),
    "minus": lambda z: 1 - z * 2j + z.real - 0.5 * z,
    "written": scaled,
    "a written part": written_part,
}


@pytest.mark.parametrize("name", ON_COMPLEX)
def test_complex_inputs(name):
    torch.manual_seed(0)
    is_same_outcome(ON_COMPLEX[name], torch.randn(3, 4, dtype=torch.complex64))
    is_same_outcome(ON_COMPLEX[name], torch.randn(4, 3, dtype=torch.complex128).t())


def test_complex_weights():
    class Mixing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(5, 5, dtype=torch.complex64))

        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x) @ self.weight, n=x.shape[-1])

    torch.manual_seed(0)
    model, x = Mixing(), torch.randn(3, 8)
    program = compile_with(model, fullgraph=True)
    expected, actual = model(x), program(x)
    torch.testing.assert_close(actual, expected)
    wanted = torch.autograd.grad(expected.square().sum(), model.weight)
    found = torch.autograd.grad(actual.square().sum(), model.weight)
    torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        frozen = compile_with(model, fullgraph=True, freeze=True)
        torch.testing.assert_close(frozen(x), expected)


def test_any_size():
    torch.manual_seed(0)
    program = compile_with(lambda z: (z * z.conj()).sum(0), dynamic=True)
    for rows in (3, 7):
        z = torch.randn(rows, 4, dtype=torch.complex64)
        torch.testing.assert_close(program(z), (z * z.conj()).sum(0))


def test_a_gradient_of_a_gradient():
    torch.manual_seed(0)
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    program = compile_with(lambda z: (z * z * z.conj()).abs().sum(), fullgraph=True)
    second = []
    for function in (program, lambda z: (z * z * z.conj()).abs().sum()):
        (first,) = torch.autograd.grad(function(z), z, create_graph=True)
        second.append(torch.autograd.grad(torch.view_as_real(first).square().sum(), z)[0])
    torch.testing.assert_close(*second)


def test_a_text_of_complex_numbers():
    """As a C++ program has them: parts lie along a last dimension."""
    program = tandem.compile_text(
        "graph @f(%z: c64[3, 4]) {\n  %0 = aten.fft_fft(%z)\n  %1 = aten.abs(%0)\n"
        "  return %0, %1\n}\n"
    )
    torch.manual_seed(0)
    z = torch.randn(3, 4, dtype=torch.complex64)
    whole, size = program([torch.view_as_real(z)])
    is_close(whole, torch.view_as_real(torch.fft.fft(z)), TWO)
    is_close(size, torch.fft.fft(z).abs(), TWO)


TEXTS = [
    ((3, 4), "none, [1]", lambda z: torch.fft.fft(z)),
    ((2, 60), "none, [-1]", lambda z: torch.fft.fft(z)),
    ((4, 6), "[7, 3], [0, 1]", lambda z: torch.fft.fft2(z, (7, 3))),
]


@pytest.mark.parametrize("shape, words, eager", TEXTS)
def test_a_text(shape, words, eager):
    """As a C++ program has them: two real tensors go in and come out."""
    sizes = ", ".join(map(str, shape))
    program = tandem.compile_text(
        f"graph @f(%re: f64[{sizes}], %im: f64[{sizes}]) {{\n"
        f'  %a, %b = tandem.fft(%re, %im, {words}, "backward", false)\n  return %a, %b\n}}\n'
    )
    torch.manual_seed(0)
    re, im = torch.randn(2, *shape, dtype=torch.float64)
    expected = torch.view_as_real(eager(torch.complex(re, im)))
    is_close(torch.stack(program([re, im]), -1), expected, TWO)


@pytest.mark.parametrize(
    "words, message",
    [
        ('none, [0], "none", false', 'norm "none" is none of backward, ortho, forward'),
        ('[4, 4], [0], "ortho", false', "2 sizes for 1 dimensions"),
        ('[0], [0], "ortho", false', "a transform of length 0 is not defined"),
        ('[2062], [0], "ortho", false', "of 1031 no factor is below 1025"),
        ('[2305843009213693951], [0], "ortho", false', "no factor is below 1025"),
        ('none, [1], "ortho", false', "the length of a transform must be known when compiling: n"),
    ],
)
def test_a_text_that_is_refused(words, message):
    text = (
        "graph @f(%x: f32[3, n]) where n in [2, 9] {\n"
        f"  %a, %b = tandem.fft(%x, none, {words})\n  return %a, %b\n}}\n"
    )
    with pytest.raises(tandem.UserError, match=re.escape(message)):
        tandem.compile_text(text)


ODD = [0.0, -0.0, 1.0, -2.0, float("inf"), -float("inf"), float("nan"), 1e-30, 1e30]
OF_ODD = {
    "product": lambda z, w: z * w,
    "quotient": lambda z, w: z / w,
    "quotient by real numbers": lambda z, w: z / w.real,
    "quotient of real numbers": lambda z, w: z.real / w,
    "reciprocal": lambda z, w: w.reciprocal(),
    "exponential": lambda z, w: w.exp(),
    "magnitude": lambda z, w: w.abs(),
    "angle": lambda z, w: w.angle(),
}


@pytest.mark.parametrize("function", OF_ODD.values(), ids=OF_ODD.keys())
def test_zeros_infinities_and_nan(function):
    numbers = torch.tensor([complex(re, im) for re in ODD for im in ODD])
    z, w = numbers.repeat_interleave(len(numbers)), numbers.repeat(len(numbers))
    actual, expected = compile_with(function, fullgraph=True)(z, w), function(z, w)
    if expected.is_complex():  # a part that is NaN says nothing of the other one
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    torch.testing.assert_close(actual, expected, equal_nan=True)
