"""ATen's distributions have the moments that they should, in functional and in-place form. Seeds
are fixed; a mean lies within five standard deviations of what is expected."""

import math

import pytest
import torch

from graphs import build

N = 1 << 17
SIGMAS = 5
SEED = 20240607


def drawn(lines, results, inputs="", arguments=()):
    executable = build(inputs, lines, results)
    known = {"seed": SEED, **dict(arguments)}
    return executable.run([known[name] for name in executable.inputs])


def draw(call, dtype="f32"):
    """A call over %x, a tensor of N zeros."""
    return drawn([f"%x = aten.zeros([{N}], dtype={dtype})", f"%r = {call}"], "%r")[0].double()


def near(values, mean, sigma):
    assert abs(values.mean().item() - mean) <= SIGMAS * sigma / math.sqrt(values.numel())


def has_moments(x, mean, variance, fourth):
    """`fourth` is the fourth central moment: the variance of squares is fourth - variance^2."""
    near(x, mean, math.sqrt(variance))
    near((x - mean) ** 2, variance, math.sqrt(fourth - variance**2))


EULER = 0.5772156649015329


@pytest.mark.parametrize("form", ["", "_"])
def test_continuous(form):
    x = draw(f"aten.uniform{form}(%x, -2.0, 4.0)")
    assert -2 <= x.min() and x.max() < 4
    has_moments(x, 1, 3, 6**4 / 80)
    has_moments(draw(f"aten.exponential{form}(%x, 2.0)"), 0.5, 0.25, 9 / 16)
    logs = draw(f"aten.log_normal{form}(%x, 0.5, 0.25)").log()
    has_moments(logs, 0.5, 1 / 16, 3 / 256)
    x = draw(f"aten.cauchy{form}(%x, 1.0, 2.0)")  # no moments: its quartiles are median +- sigma
    for bound, share in [(-1, 0.25), (1, 0.5), (3, 0.75)]:
        near((x < bound).double(), share, math.sqrt(share * (1 - share)))


@pytest.mark.parametrize("op", ["aten.normal_", "aten.normal_functional"])
def test_normal(op):
    has_moments(draw(f"{op}(%x, 1.0, 3.0)"), 1, 9, 3 * 81)


def test_normal_of_tensors():
    lines = [
        f"%m = aten.full([{N}], 2.0)",
        f"%s = aten.full([{N}], 0.5)",
        "%a = aten.normal.Tensor_Tensor(%m, %s)",
        "%b = aten.normal.Tensor_float(%m, 0.5)",
        "%c = aten.normal.float_Tensor(2.0, %s)",
        f"%d = aten.normal.float_float(2.0, 0.5, [{N}])",
    ]
    for x in drawn(lines, "%a, %b, %c, %d"):
        has_moments(x.double(), 2, 0.25, 3 / 16)


@pytest.mark.parametrize("form", ["", "_"])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_geometric(form, dtype):
    x = draw(f"aten.geometric{form}(%x, 0.25)", dtype)
    assert x.min() == 1 and torch.equal(x, x.floor())
    near(x, 4, math.sqrt(12))
    for k in range(1, 6):
        share = 0.25 * 0.75 ** (k - 1)
        near((x == k).double(), share, math.sqrt(share * (1 - share)))


def test_bernoulli():
    lines = [
        f"%p = aten.full([{N}], 0.3)",
        "%x = aten.zeros_like(%p)",
        "%a = aten.bernoulli(%p)",
        "%b = aten.bernoulli.p(%x, 0.3)",
        "%c = aten.bernoulli.Tensor(%x, %p)",
        "%y = aten.clone(%x)",
        "%d = aten.bernoulli_.float(%y, 0.3)",
    ]
    for x in drawn(lines, "%a, %b, %c, %d, %y"):
        assert ((x == 0) | (x == 1)).all()
        near(x.double(), 0.3, math.sqrt(0.21))


@pytest.mark.parametrize("low, high", [(0, 7), (-3, 4), (0, 2**40), (-(2**50), 2**57)])
def test_integers(low, high):
    x = drawn([f"%r = aten.randint.low({low}, {high}, [{N}])"], "%r")[0].double()
    assert low <= x.min() and x.max() < high
    span = high - low
    near(x, (low + high - 1) / 2, span / math.sqrt(12))
    for share in (0.1, 0.5, 0.9):
        count = math.ceil(span * share)
        p = count / span
        near((x < low + count).double(), p, math.sqrt(p * (1 - p)))


@pytest.mark.parametrize("dtype, largest", [("u8", 255), ("i16", 32767), ("f32", 2**24)])
def test_random(dtype, largest):
    x = draw("aten.random_(%x)", dtype)
    assert 0 <= x.min() and x.max() <= largest
    near(x, largest / 2, (largest + 1) / math.sqrt(12))
    x = draw("aten.random_.from(%x, 2, 9)", dtype)
    assert x.min() == 2 and x.max() == 8
    near(x, 5, 2)


def test_permutations():
    names = [f"%r{i}" for i in range(300)]
    many = torch.stack(drawn([f"{name} = aten.randperm(5)" for name in names], ", ".join(names)))
    assert torch.equal(many.sort(1).values, torch.arange(5).expand(300, 5))
    for place in range(5):
        for value in range(5):
            near((many[:, place] == value).double(), 0.2, 0.4)


def test_multinomial():
    weights = torch.tensor([0.5, 1.0, 0.0, 2.5])
    argument = [("w", weights)]
    given = "%w: f32[4]"
    x = drawn([f"%r = aten.multinomial(%w, {N}, true)"], "%r", given, argument)[0]
    for k, share in enumerate((weights / weights.sum()).tolist()):
        near((x == k).double(), share, math.sqrt(share * (1 - share)))
    rows = f"%v = aten.expand(%w, [{N}, 4])"
    pairs = drawn([rows, "%r = aten.multinomial(%v, 2)"], "%r", given, argument)[0]
    assert (pairs[:, 0] != pairs[:, 1]).all()
    near((pairs[:, 0] == 3).double(), 0.625, math.sqrt(0.625 * 0.375))
    share = 0.625 * 1 / 1.5  # 1 after 3
    near((pairs == torch.tensor([3, 1])).all(1).double(), share, math.sqrt(share * (1 - share)))


def test_dropouts():
    lines = [
        "%a = aten.feature_dropout(%x, 0.25, true)",
        "%b = aten.alpha_dropout(%y, 0.25, true)",
        "%c = aten.feature_alpha_dropout(%x, 0.25, true)",
    ]
    x = torch.rand(64, 512, 4) + 1
    y = torch.randn(N)
    arguments = [("x", x), ("y", y)]
    inputs = f"%x: f32[64, 512, 4], %y: f32[{N}]"
    a, b, c = drawn(lines, "%a, %b, %c", inputs, arguments)
    kept = (a != 0).all(2)
    assert torch.equal(kept, (a != 0).any(2))
    near(kept.double(), 0.75, math.sqrt(0.75 * 0.25))
    torch.testing.assert_close(a[kept], x[kept] / 0.75)
    assert abs(b.mean().item() - y.mean().item()) < 0.02 and abs(b.var().item() - 1) < 0.03
    constant = (c - c[:, :, :1]).abs().amax(2) == 0
    near(constant.double(), 0.25, math.sqrt(0.75 * 0.25))
