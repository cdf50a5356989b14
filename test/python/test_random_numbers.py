"""Philox's numbers have the distribution that is asked for. Seeds are fixed; every bound is five
standard deviations of the statistic over N independent draws."""

import math
import re

import pytest
import torch

import tandem
from compiled import compile_with
from graphs import build

N = 1 << 18
SIGMAS = 5
SEEDS = [0, 1, 12345, 2**62 + 3]


def draws(call, seed, inputs="", arguments=()):
    executable = build(inputs, [f"%r = {call}", f"%s = {call}"], "%r, %s")
    known = {"seed": seed, **dict(arguments)}
    return [r.double() for r in executable.run([known[name] for name in executable.inputs])]


def moment(power, mean, sigma):
    """The mean of power(x) lies within five standard deviations of what is expected."""
    assert abs(power.mean().item() - mean) < SIGMAS * sigma / math.sqrt(power.numel())


def uncorrelated(x, y):
    """Correlation of independent samples: standard deviation 1 / sqrt(n)."""
    x, y = x - x.mean(), y - y.mean()
    correlation = (x * y).mean() / (x.std() * y.std())
    assert abs(correlation.item()) < SIGMAS / math.sqrt(x.numel())


def chi_square(counts, expected):
    """Over k bins: mean k - 1, variance 2 (k - 1)."""
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    freedom = counts.numel() - 1
    assert abs(statistic - freedom) < SIGMAS * math.sqrt(2 * freedom)


def independent(x):
    """Neighbours, at the distances of Philox's four words, lanes and rows."""
    for lag in [1, 2, 3, 4, 8, 16, 512]:
        uncorrelated(x[:-lag], x[lag:])


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform(seed):
    x, y = draws(f"aten.rand([{N}])", seed)
    for values in (x, y):
        assert 0 <= values.min() and values.max() < 1
        for power in [1, 2, 3, 4]:  # E x^k = 1 / (k + 1)
            mean = 1 / (power + 1)
            moment(values**power, mean, math.sqrt(1 / (2 * power + 1) - mean**2))
        chi_square(torch.histc(values, 256, 0, 1), torch.full((256,), N / 256))
        independent(values)
    pairs = torch.histogramdd(torch.stack([x, y], 1), [16, 16], range=[0.0, 1.0, 0.0, 1.0])[0]
    chi_square(pairs.flatten(), torch.full((256,), N / 256))
    uncorrelated(x, y)  # streams


@pytest.mark.parametrize("seed", SEEDS)
def test_normal(seed):
    x, y = draws(f"aten.randn([{N}])", seed)
    for values in (x, y):
        # E x^2k = 1 3 5 ... (2k - 1); the variance of x^k is E x^2k - (E x^k)^2.
        for power, mean, square in [(1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105)]:
            moment(values**power, mean, math.sqrt(square - mean**2))
        edges = torch.linspace(-3, 3, 61, dtype=torch.float64)
        normal = torch.special.ndtr(edges)
        share = torch.cat([normal[:1], normal.diff(), 1 - normal[-1:]])
        counts = torch.bincount(torch.bucketize(values, edges), minlength=62)
        chi_square(counts, share * N)
        independent(values)
        independent(values.abs())  # a shared radius would show here
    uncorrelated(x, y)
    uncorrelated(x.abs(), y.abs())


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout(p):
    ones = torch.ones(N)
    call = f"aten.dropout(%x, {p}, true)"
    masks = [d != 0 for d in draws(call, 5, f"%x: f32[{N}]", {"x": ones}.items())]
    for mask in masks:
        moment(mask.double(), 1 - p, math.sqrt(p * (1 - p)))
        independent(mask.double())
    uncorrelated(masks[0].double(), masks[1].double())


def test_seeds_and_streams():
    samples = [x for seed in SEEDS for x in draws(f"aten.rand([{N}])", seed)]
    for i, x in enumerate(samples):
        for y in samples[:i]:
            uncorrelated(x, y)


DRAWS_REFUSED = {
    "bernoulli": (lambda x: torch.bernoulli(x), "a probability is not in [0, 1]", (1.5, -0.5)),
    "bernoulli_": (
        lambda x: torch.zeros(5).bernoulli_(x),
        "a probability is not in [0, 1]",
        (1.5, -0.5),
    ),
    "normal": (lambda x: torch.normal(0.0, x), "an element of std is negative or NaN", (-1.0,)),
    "normal of means": (
        lambda x: torch.normal(x * 2, x),
        "an element of std is negative or NaN",
        (-1.0, torch.nan),
    ),
    "multinomial": (
        lambda x: torch.multinomial(x, 2),
        "a weight is negative, infinite or NaN",
        (-1.0, torch.nan, torch.inf),
    ),
    "multinomial, replaced": (
        lambda x: torch.multinomial(x, 9, True),
        "a weight is negative, infinite or NaN",
        (-1.0, torch.nan, torch.inf),
    ),
}


@pytest.mark.parametrize("name", DRAWS_REFUSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_that_nothing_is_drawn_by(name, dtype):
    """Eager refuses them, apart from a deviation that is NaN."""
    function, text, bad = DRAWS_REFUSED[name]
    compiled = compile_with(function)
    good = torch.tensor([0.5, 0.25, 1.0, 0.0, 0.125], dtype=dtype)
    compiled(good)
    for value in bad:
        for place in (0, 4):
            x = good.clone()
            x[place] = value
            with pytest.raises(tandem.UserError, match=re.escape(text)):
                compiled(x)
    compiled(good)


@pytest.mark.parametrize("replacement", [False, True])
def test_a_row_without_weight(replacement):
    compiled = compile_with(lambda x: torch.multinomial(x, 2, replacement))
    x = torch.rand(3, 4)
    assert compiled(x).shape == (3, 2)
    x[1] = 0
    with pytest.raises(tandem.UserError, match="no weight of a row is above 0"):
        compiled(x)


@pytest.mark.parametrize("draw", ["normal_", "bernoulli_", "uniform_", "exponential_"])
def test_what_is_drawn_in_place_is_the_tensor(draw):
    """A write to the result is one to the operand, an input, a part of one, or a tensor of the
    graph."""

    def function(x):
        whole = getattr(x, draw)()
        whole.add_(100)
        made = torch.zeros(8)
        part = getattr(made[2:6], draw)()
        part.sub_(100)
        return whole, x + 0, made

    x = torch.full((6,), 0.5)
    whole, copy, made = compile_with(function)(x)
    assert whole is x
    torch.testing.assert_close(copy, x, rtol=0, atol=0)
    assert (x > 50).all()
    assert (made[2:6] < -50).all() and not made[:2].any() and not made[6:].any()


DRAWS_OF_A_TENSOR = {
    "bernoulli": torch.bernoulli,
    "normal of means": lambda x: torch.normal(x, 1.0),
    "normal of deviations": lambda x: torch.normal(0.0, x),
    "normal of both": lambda x: torch.normal(x, x),
    "bernoulli_": lambda x: (x * 1).bernoulli_(0.5),
    "bernoulli_ by x": lambda x: torch.zeros(3).bernoulli_(x),
    "cauchy_": lambda x: (x * 1).cauchy_(),
    "exponential_": lambda x: (x * 1).exponential_(),
    "geometric_": lambda x: (x * 1).geometric_(0.5),
    "log_normal_": lambda x: (x * 1).log_normal_(),
    "normal_": lambda x: (x * 1).normal_(),
    "random_": lambda x: (x * 1).random_(9),
    "uniform_": lambda x: (x * 1).uniform_(),
    "rand_like": torch.rand_like,
}


@pytest.mark.parametrize("name", DRAWS_OF_A_TENSOR)
def test_a_draw_has_a_history_of_zeros(name):
    """Apart from what only takes sizes."""
    draw = DRAWS_OF_A_TENSOR[name]
    x = torch.full((3,), 0.5, requires_grad=True)
    expected, actual = draw(x), compile_with(draw)(x)
    assert actual.requires_grad == expected.requires_grad == (name != "rand_like")
    if actual.requires_grad:
        (gradient,) = torch.autograd.grad(actual.sum(), x)
        assert not gradient.any()
    with torch.no_grad():
        assert not compile_with(draw)(x).requires_grad
