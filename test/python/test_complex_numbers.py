"""Complex numbers: transforms of every length and norm, arithmetic, gradients, inputs and results,
writes to parts, and what is refused."""

import re

import pytest
import torch
from compiled import compile_with
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows

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
    "no rule": (lambda x: torch.fft.fft(x).sinc().real, "sinc. of complex numbers"),
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


ROWS = torch.tensor([2, 0])
PLACES = ROWS[:, None].expand(2, 3)


def written_places(z):
    z = z.clone()
    z[ROWS] = 2j
    z[ROWS, 1] += z[0, :2]
    z[z.real > 1] = 0
    return z


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
    "written places": written_places,
    "a mask": lambda z: (z[z.real > 0], z.masked_fill(z.real > 0, 2j)),
    "places": lambda z: z.index_add(0, ROWS, z[:2]) + z.scatter_add(0, PLACES, z[:2, :3]),
    "replaced": lambda z: z.index_copy(0, ROWS, z[:2]) + z.scatter(0, PLACES, 2),
    "numbers": lambda z: (torch.where(z.real > 0, z, 1j), torch.full_like(z, 2 - 1j) * z),
    "filled": lambda z: z + torch.ones_like(z) * torch.full((), 1j) + torch.eye(1, dtype=z.dtype),
    "sums": lambda z: z.cumsum(0) + z.sum(0) + torch.logsumexp(z.real, 0),
    "products": lambda z: (z.cumprod(1), z.prod(1), z.prod()),
    "spread": lambda z: (z.var(0), z.std(), *torch.var_mean(z, 1)),
    "norms": lambda z: torch.linalg.vector_norm(z, dim=1) + torch.linalg.vector_norm(z, 3),
    "distances": lambda z: torch.nn.functional.triplet_margin_loss(z, z + 1, z.flip(0)),
    "dots": lambda z: (torch.vdot(z[0], z[1]), torch.linalg.vecdot(z, z + 1), z[0].dot(z[1])),
    "added products": lambda z: (torch.addmm(z @ z.mT, z, z.mT, beta=0.5, alpha=2),
                                 torch.addmv(z[:, 0], z, z[0], beta=0.5),
                                 torch.addcdiv(z, z, z + 4, value=0.5).addcmul(z, z)),
    "linear": lambda z: torch.nn.functional.linear(z, z[:2], z[0, :2]),
    "convolution": lambda z: torch.nn.functional.conv1d(z[None], z[:2, None, :2].expand(2, 3, 2)),
    "moved towards": lambda z: torch.lerp(z, z.flip(0), 0.25),
    "signs": lambda z: torch.sgn(z),
    "padded": lambda z: torch.nn.functional.pad(z[None], (1, 2), mode="reflect"),
    "diagonals": lambda z: torch.diag_embed(z).sum(-1) + z[:, :3].trace(),
    "powers of numbers": lambda z: (z + 3) ** 0.5 + 2**z + (z + 3) ** -1.5 + z**5,
    "powers of each other": lambda z: (z + 3) ** z.flip(0) + (z + 3) ** z.real,
}


@pytest.mark.parametrize("name", ON_COMPLEX)
def test_complex_inputs(name):
    torch.manual_seed(0)
    is_same_outcome(ON_COMPLEX[name], torch.randn(3, 4, dtype=torch.complex64))
    is_same_outcome(ON_COMPLEX[name], torch.randn(4, 3, dtype=torch.complex128).t())


FUNCTIONS_OF_ONE = (
    "sqrt rsqrt log log2 log10 log1p exp exp2 expm1 sin cos tan sinh cosh tanh asin acos atan "
    "asinh acosh atanh sigmoid"
).split()


@pytest.mark.parametrize("name", FUNCTIONS_OF_ONE)
def test_elementary_functions(name):
    """Values and gradients, first and second, and at the cuts."""
    torch.manual_seed(0)
    is_same_outcome(getattr(torch, name), torch.randn(5, 4, dtype=torch.complex64))
    z = 2 * torch.randn(40, dtype=torch.complex128)
    is_same_outcome(getattr(torch, name), z)
    program = compile_with(getattr(torch, name), fullgraph=True)
    on_axis = torch.complex(z.real, torch.tensor([0.0, -0.0], dtype=torch.float64).repeat(20))
    torch.testing.assert_close(program(on_axis), getattr(torch, name)(on_axis))
    if name not in ("asin", "acos", "acosh"):  # eager's slopes are those of one side of the cut
        is_same_outcome(getattr(torch, name), on_axis)
    second = []
    for function in (program, getattr(torch, name)):
        leaf = z.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(leaf), leaf, z.flip(0), create_graph=True)
        second.append(torch.autograd.grad(first, leaf, z.roll(1))[0])
    torch.testing.assert_close(*second)


def test_tests():
    z = torch.tensor([0j, 1j, 2 + 0j, complex("nan"), complex(1, float("inf"))])
    questions = (
        torch.isnan, torch.isinf, torch.isfinite, torch.isreal, torch.any, torch.all, torch.nonzero,
        torch.logical_not, lambda z: z.bool(), lambda z: z == z.flip(0), lambda z: z != 2,
        lambda z: torch.isclose(z, z + 1e-9, equal_nan=True), lambda z: torch.logical_xor(z, z[0]),
    )  # fmt: skip
    for question in questions:
        assert torch.equal(compile_with(question, fullgraph=True)(z), question(z))


def through_a_branch(z):
    return torch.cond(z.real.sum() > 0, lambda z: z * 2j, lambda z: z.conj() + 1, (z,))


def through_a_scan(z):
    return scan(lambda carry, row: (carry * row, carry + row), torch.ones_like(z[0]), z)


def through_a_loop(z):
    steps = torch.tensor(0)
    return while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z * (1 + 1j)), (steps, z))[1]


@torch.compiler.nested_compile_region
def square_in_a_region(z):
    return z * z + 1


def is_not_in_python():
    graph = tandem.report()["graphs"][-1]
    return not graph["fallbacks"] and not graph["control flow in Python"]


def test_branches():
    torch.manual_seed(0)
    for sign in (1, -1):
        z = torch.randn(3, 4, dtype=torch.complex64)
        is_same_outcome(through_a_branch, z + 10 * sign)
        assert is_not_in_python()


def test_regions():
    torch.manual_seed(0)
    z = torch.randn(3, 4, dtype=torch.complex64)
    is_same_outcome(lambda z: square_in_a_region(square_in_a_region(z)), z)
    assert not tandem.report()["graphs"][-1]["regions inline"]


# What torch itself has no gradients of, where numbers are complex.
WITHOUT_GRADIENTS = {
    "scan": through_a_scan,
    "while_loop": through_a_loop,
    "map": lambda z: map_rows(lambda row: row * 2j + row.abs(), z),
    "associative_scan": lambda z: associative_scan(
        lambda a, b: a * b, z, 0, combine_mode="generic"
    ),
    "silu": torch.nn.functional.silu,
}


@pytest.mark.parametrize("name", WITHOUT_GRADIENTS)
def test_values(name):
    torch.manual_seed(0)
    z, function = torch.randn(3, 4, dtype=torch.complex64), WITHOUT_GRADIENTS[name]
    torch.testing.assert_close(compile_with(function, fullgraph=True)(z), function(z))
    assert is_not_in_python()


def test_gradients_inside():
    def inner(z):
        (slope,) = torch.autograd.grad((z * z.conj()).real.sum(), z, create_graph=True)
        return slope * z

    torch.manual_seed(0)
    z = torch.randn(3, dtype=torch.complex64)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        actual = compile_with(inner, fullgraph=True)(z.clone().requires_grad_())
    torch.testing.assert_close(actual, inner(z.clone().requires_grad_()))


def test_rows_at_once():
    torch.manual_seed(0)
    z = torch.randn(3, 4, dtype=torch.complex64)
    function = torch.vmap(lambda row: row.sin() * row.sum())
    torch.testing.assert_close(compile_with(function, fullgraph=True)(z), function(z))


def test_frozen_weights_that_change():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(5, 4, dtype=torch.complex64).t())

        def forward(self, z):
            return z * (self.weight.exp() + 1)

    torch.manual_seed(0)
    model, z = Scale(), torch.randn(4, 5, dtype=torch.complex64)
    with torch.no_grad():
        for kind in (True, "checked"):
            frozen = compile_with(model, fullgraph=True, freeze=kind)
            torch.testing.assert_close(frozen(z), model(z))
            assert tandem.report()["graphs"][-1]["frozen"]["sets"] == 1
            model.weight.mul_(2j)
            torch.testing.assert_close(frozen(z), model(z))
            model.weight.data = torch.randn(4, 5, dtype=torch.complex64)
            torch.testing.assert_close(frozen(z), model(z))


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
    "over a number": lambda z, w: torch.stack([w / 2, w / -3, w / 0.0]),
    "times a number": lambda z, w: w * 2,
    "times real numbers": lambda z, w: z * w.real,
    # Of squares that overflow eager gives NaN or infinity, by where an element lies.
    "powers": lambda z, w: torch.stack([w**-1, w**0, w**1, (w * (w.abs() < 1e20)) ** 2]),
    **{
        name: lambda z, w, function=getattr(torch, name): function(w)
        for name in "sqrt log sinh cosh tanh sin cos tan asinh acosh asin acos atan expm1".split()
    },
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


@pytest.mark.parametrize("transform", [torch.fft.irfft, torch.fft.irfft2, torch.fft.irfftn])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_transforms_to_real_numbers_of_real_ones(transform, dtype):
    """No complex number is in such a program."""
    x = torch.arange(24).reshape(4, 6).to(dtype)
    torch.testing.assert_close(compile_with(transform)(x), transform(x))


def parts(z):
    """In eager a conjugate is not seen as real numbers before it is resolved."""
    return torch.stack([z.real, z.imag])


SYMMETRIC = {
    "hfft": lambda x, norm: torch.fft.hfft(torch.fft.fft(x), norm=norm),
    "hfft of a length": lambda x, norm: torch.fft.hfft(torch.fft.fft(x), n=9, dim=0, norm=norm),
    "hfft of real numbers": lambda x, norm: torch.fft.hfft(x, norm=norm),
    "hfft2": lambda x, norm: torch.fft.hfft2(torch.fft.fft(x), s=(3, 8), norm=norm),
    "hfftn": lambda x, norm: torch.fft.hfftn(torch.fft.fft(x), norm=norm),
    "ihfft": lambda x, norm: parts(torch.fft.ihfft(x, norm=norm)),
    "ihfft2": lambda x, norm: parts(torch.fft.ihfft2(x, norm=norm)),
    "ihfftn": lambda x, norm: parts(torch.fft.ihfftn(x, s=(5, 4), norm=norm)),
}


@pytest.mark.parametrize("norm", ["backward", "forward", "ortho", None])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_transforms_of_what_is_symmetric(name, norm):
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    own = x.detach().requires_grad_()
    found = compile_with(SYMMETRIC[name])(x, norm)
    wanted = SYMMETRIC[name](own, norm)
    torch.testing.assert_close(found, wanted)
    weight = torch.randn(wanted.shape, dtype=wanted.dtype)
    (found * weight).sum().backward()
    (wanted * weight).sum().backward()
    torch.testing.assert_close(x.grad, own.grad)
