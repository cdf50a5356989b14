"""torch.compile(dynamic=True): what one program serves, and what must be known when compiling."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tandem
from compiled import compile_with
from test_long_attention import check_beside


def graph_count():
    return len(tandem.report()["graphs"])


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_networks_reach_the_backend(kind):
    torch.manual_seed(0)
    layers = kind(6, 5, 2, batch_first=True, bidirectional=True)
    compiled = compile_with(layers, dynamic=False)
    x = torch.randn(3, 4, 6)
    actual, expected = compiled(x)[0], layers(x)[0]
    torch.testing.assert_close(actual, expected)
    weight = layers.weight_hh_l0
    gradients = [torch.autograd.grad(y.square().sum(), weight)[0] for y in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert graph_count() == 1


def test_recurrent_network_of_any_length():
    """Its steps are a scan: one program each for training and without gradients."""
    torch.manual_seed(0)
    layers = nn.LSTM(6, 5, batch_first=True)
    compiled = compile_with(layers, dynamic=True)
    for batch, length in ((2, 4), (3, 4), (7, 5), (3, 40)):
        x = torch.randn(batch, length, 6)
        torch.testing.assert_close(compiled(x)[0], layers(x)[0])
        with torch.no_grad():
            torch.testing.assert_close(compiled(x)[0], layers(x)[0])
        ours, eager = (
            torch.autograd.grad(call(x)[0].sin().sum(), list(layers.parameters()))
            for call in (compiled, layers)
        )
        for a, b in zip(ours, eager, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert graph_count() == 2


def test_functions_of_floats():
    def function(x, scale):
        return x * math.sqrt(2.0 / scale) + math.cos(scale)

    compiled = compile_with(function, dynamic=True)
    for size in (3, 4, 9):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x, 1.7), function(x, 1.7))
    assert graph_count() == 1


def test_an_equation_of_one_size_is_its_range():
    """The average over all places is one element wide as long as the image is."""

    def function(x):
        y = F.avg_pool2d(x[:, :, ::2, ::2], 20, ceil_mode=True)
        return y.reshape(y.shape[:2])

    compiled = compile_with(function, dynamic=True)
    for batch, side in ((2, 32), (3, 24), (5, 40)):
        x = torch.randn(batch, 3, side, side)
        torch.testing.assert_close(compiled(x), function(x))
    assert graph_count() == 1


def test_floats_read_after_dispatch():
    """vmap cannot be captured before dispatch; after it, floats are read by another operator."""

    def function(x, p):
        scaled = torch.vmap(lambda row: row[: row.shape[0] - 1] * p)(x)
        return scaled.flatten()

    compiled = compile_with(function, dynamic=True)
    for rows, columns in ((2, 5), (3, 7), (4, 6)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x, 0.5), function(x, 0.5))
    assert graph_count() == 1


def test_sizes_that_are_multiples():
    """Halves of halves that are put together again fit only where the side is a multiple of 4."""

    def function(x):
        half = F.avg_pool2d(x, 2)
        again = torch.cat([half, F.interpolate(F.avg_pool2d(half, 2), scale_factor=2.0)], 1)
        return torch.cat([x, F.interpolate(again, scale_factor=2.0)], 1), x.shape[2] * 2

    compiled = compile_with(function, dynamic=True)
    for batch, side in ((2, 16), (3, 24), (5, 20)):
        x = torch.randn(batch, 3, side, side)
        torch.testing.assert_close(compiled(x), function(x))
    assert graph_count() == 1
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        compiled(torch.randn(2, 3, 18, 18))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.avg_pool2d(x, 1280, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 100, 7, 50, count_include_pad=False),
        lambda x: F.max_pool2d(x, 100, 7, 50),
    ],
    ids=["global", "average", "max"],
)
def test_pool_larger_than_its_image(pool):
    """Windows visit what they can touch, whatever the image's size turns out to be."""
    torch._dynamo.reset()
    options = {"on_unsupported": "error"}
    run = torch.compile(pool, backend=tandem.backend, dynamic=True, options=options)
    for side in (7, 9, 30, 110):
        x = torch.randn(2, 3, side, side + 3, requires_grad=True)
        expected, found = pool(x), run(x)
        torch.testing.assert_close(found, expected)
        tangent = torch.randn_like(expected)
        gradients = [torch.autograd.grad(y, x, tangent)[0] for y in (found, expected)]
        torch.testing.assert_close(*gradients)


def test_the_length_that_must_be_known():
    """The error names it, and the batch stays open."""

    def function(x):
        return torch.fft.fft(x).real

    compiled = compile_with(function, dynamic=True)
    for batch in (2, 3, 7):
        x = torch.randn(batch, 12)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)
    assert graph_count() == 1
    x = torch.randn(5, 10)
    torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)
    assert graph_count() == 2


def flat_sum(x, y):
    return x.reshape(-1) + 2 * y.reshape(-1)


def flat_cat(x, y):
    return torch.cat([x.reshape(1, -1), y.reshape(1, -1)]).sum(0)


def flat_product(x, y):
    return x.reshape(-1) @ y.reshape(-1)


def as_the_other(x, y):
    return x.view(y.shape) * y


@pytest.mark.parametrize("function", [flat_sum, flat_cat, flat_product, as_the_other])
def test_equations_between_sizes(function):
    """Torch guards `s0*s1 == s2*s3` alone. Sizes of the two sides that are equal are one to the
    program, which Dynamo guards, too; others are numbers."""
    compiled = compile_with(function, dynamic=True)

    def check(shape, other):
        x, y = torch.randn(shape, requires_grad=True), torch.randn(other)
        actual, expected = compiled(x, y), function(x, y)
        torch.testing.assert_close(actual, expected)
        gradients = [torch.autograd.grad(z.sin().sum(), x)[0] for z in (actual, expected)]
        torch.testing.assert_close(*gradients)

    for shape, other in (((4, 6), (6, 4)), ((5, 12), (12, 5)), ((3, 2), (2, 3))):
        check(shape, other)
    assert graph_count() == 1
    check((4, 6), (8, 3))
    check((5, 12), (10, 6))
    assert graph_count() > 1


def test_sizes_that_must_be_equal_stay_sizes():
    """Marked as dynamic, torch takes no two of them for one; keys and values have one length."""
    attend = F.scaled_dot_product_attention
    compiled = compile_with(attend)
    for length in (40, 75, 33):
        q, k, v = (torch.randn(2, 2, length, 32) for _ in range(3))
        for t in (q, k, v):
            torch._dynamo.mark_dynamic(t, 2)
        actual, eager = compiled(q, k, v), attend(q, k, v)
        torch.testing.assert_close(actual, eager, rtol=2e-5, atol=2e-5)
        check_beside(actual, eager, attend(*(t.double() for t in (q, k, v))))
    assert graph_count() == 1


def test_a_float_that_must_be_known():
    """The kind of distance decides which loops there are. It follows from a size; its value is
    guarded, and the other sizes stay open."""

    def function(x, y):
        return torch.cdist(x, y, p=x.shape[0] * 0.5)

    compiled = compile_with(function, dynamic=True)
    for rows, width in ((5, 3), (5, 4), (5, 7)):
        x, y = torch.randn(rows, width), torch.randn(9, width)
        torch.testing.assert_close(compiled(x, y), function(x, y))
    assert graph_count() == 1
    x, y = torch.randn(7, 4), torch.randn(9, 4)
    torch.testing.assert_close(compiled(x, y), function(x, y))
    assert graph_count() == 2


def test_whether_all_fits_must_be_known():
    """Pairs of elements of two sizes: of neither alone it follows that their product is even."""

    def function(x):
        return x.view(-1, 2).sum(1)

    compiled = compile_with(function, dynamic=True)
    for rows, columns in ((3, 4), (5, 6), (4, 3)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x), function(x))


def test_programs_of_other_numbers_in_the_cache(tmp_path, monkeypatch):
    """One text, and a number that is no part of it: an entry serves the calls it was made for."""
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))

    def function(x):
        return torch.fft.fft(x).real

    for length in (12, 10, 12):
        compiled = compile_with(function, dynamic=True)
        x = torch.randn(3, length)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)


def test_a_size_without_text():
    """The larger image has the floor of a product with a float: a number here, which is guarded."""

    def function(x):
        return F.interpolate(x, scale_factor=1.7, mode="bilinear").sum(1)

    compiled = compile_with(function, dynamic=True)
    for batch, side in ((2, 8), (3, 8), (3, 11)):
        x = torch.randn(batch, 3, side, side)
        torch.testing.assert_close(compiled(x), function(x))
    assert graph_count() == 2
