"""Writes to tensors of which several elements are one place in memory, as far as eager takes them:
parts that have no place twice, one number, one number where a mask is true. Values, gradients and
what other views show are eager's; the rest is refused, as it is there."""

import pytest
import torch

from compiled import compile_with

pytestmark = pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded")


def one_number(x, w):
    y = (x * 2).expand(3, 4)
    z = y * w
    y.fill_(1.5)
    return y + z


def a_row(x, w):
    base = x * 2
    y = base.expand(3, 4)
    y[1].mul_(w)
    return y.sin() + base


def a_part_of_a_row(x, w):
    base = x * 2
    y = base.expand(3, 4)
    y[2, 1:3].mul_(w[1:3])
    return y * w, base


def of_an_inner_dimension(x, w):
    base = (x * w).view(4, 1)
    y = base.expand(2, 4, 3)
    y[1, :, 2].mul_(w)
    return y.exp(), base


def several_rows_of_one_number(x, w):
    base = x * w
    y = base.expand(3, 4)
    y[1:, 1:3].zero_()
    return base, y * 2


def where_a_mask_is_true(x, w):
    base = x * w
    y = base.expand(3, 4)
    mask = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]) > 0
    y.masked_fill_(mask, 7)
    return base, y * w


def an_input(x, w):
    x.expand(2, 4)[0].mul_(w)
    return x * 2


def without_history(x, w):
    base = x * w
    with torch.no_grad():
        base.expand(2, 4)[0].mul_(3)
    return base * w


def an_alias(x, w):
    base = x * w
    y = base.expand(2, 4).detach()
    y[1].mul_(w)
    return y * 2, base * w


# Eager has no gradient of the others: its backward writes to an expanded tensor as well.
WITH_GRADIENTS = [a_row, a_part_of_a_row, of_an_inner_dimension, an_input, without_history]
FUNCTIONS = [
    *WITH_GRADIENTS,
    one_number,
    several_rows_of_one_number,
    where_a_mask_is_true,
    an_alias,
]


def outcome(function, requires_grad):
    leaf = torch.linspace(0.1, 1, 4, dtype=torch.float64, requires_grad=requires_grad)
    w = torch.linspace(1, 2, 4, dtype=torch.float64, requires_grad=requires_grad)
    x = leaf * 1
    results = function(x, w)
    results = results if isinstance(results, tuple) else (results,)
    if not requires_grad:
        return [*results, x]
    total = sum((k + 2) * (result * result).sum() for k, result in enumerate(results)) + x.sum()
    return [*results, x, *torch.autograd.grad(total, (leaf, w))]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
def test_values(function, dynamic):
    compiled = compile_with(function, dynamic=dynamic, fullgraph=True)
    for ours, eager in zip(outcome(compiled, False), outcome(function, False), strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("function", WITH_GRADIENTS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(function, dynamic):
    compiled = compile_with(function, dynamic=dynamic, fullgraph=True)
    for ours, eager in zip(outcome(compiled, True), outcome(function, True), strict=True):
        torch.testing.assert_close(ours, eager)


def test_several_numbers_are_refused():
    """And nothing is written."""
    x = torch.ones(4)

    def function(x):
        x.expand(2, 4).mul_(2)
        return x

    with pytest.raises(RuntimeError, match="single memory location"):
        function(x)
    with pytest.raises(Exception, match=r"mul_.Scalar\] writing to an expanded tensor"):
        compile_with(function)(x)
    assert torch.equal(x, torch.ones(4))
