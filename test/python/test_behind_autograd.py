"""Programs that torch can trace from behind autograd alone (vmap inside): regions without
gradients, casts and gradients of custom functions hold as elsewhere."""

import pytest
import torch
import torch.utils.checkpoint as checkpointing
from torch._higher_order_ops import scan

import tandem
from compared import beside_eager


class Odd(torch.autograd.Function):
    """Its gradient is not the one of its forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * 10


def rows(x):
    return torch.vmap(lambda row: row.sin() * row.sum())(x)


def custom_function(x, w):
    return rows(Odd.apply(x @ w))


def region_without_gradients(x, w):
    with torch.no_grad():
        factor = (x @ w).sin()
        with torch.enable_grad():
            y = x * 3
    return rows(x @ w) * factor + y.sum()


def autocast_region(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = x @ w
        with torch.autocast("cpu", enabled=False):
            exact = x @ w
    return rows(product.float()), exact


def checkpoint_region(x, w):
    return rows(checkpointing.checkpoint(lambda x: (x @ w).sin().exp(), x, use_reentrant=False))


def loop_body(x, w):
    def step(carry, row):
        with torch.no_grad():
            factor = row.sin()
        return carry * factor + torch.vmap(lambda a: a * a.sum())(w).sum(0), carry * row

    if torch.compiler.is_dynamo_compiling():
        return scan(step, torch.zeros(4), x)
    carry, columns = torch.zeros(4), []
    for row in x:
        carry, column = step(carry, row)
        columns.append(column)
    return carry, torch.stack(columns)


ALL = [loop_body, custom_function, region_without_gradients, autocast_region, checkpoint_region]


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_as_in_eager(function):
    torch.manual_seed(0)
    x, w = torch.randn(5, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    beside_eager(function, x, w, tolerance=3e-2 if function is autocast_region else 1e-5)
    assert tandem.report()["graphs"][0]["dialect"] == "post"
