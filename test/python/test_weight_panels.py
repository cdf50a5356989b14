"""Frozen weights of f32 products in panels of columns: the same sums in the same order, so the same
bits as where the weight lies as the module has it."""

import pytest
import torch
import torch.nn.functional as F
from compiled import compile_with, reported_kernels
from machine import ISAS
from torch import nn

PRODUCTS = {
    "linear": lambda x, w: F.linear(x, w.t()),
    "matmul": torch.matmul,
    "a part of it": lambda x, w: x[:, 3:] @ w[3:],
    "computed": lambda x, w: x @ (w * 2),
    "read twice": lambda x, w: (x @ w) + (x.flip(1) @ w),
}


class Product(nn.Module):
    def __init__(self, function, *sizes):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(sizes))

    def forward(self, x):
        return torch.relu(self.function(x, self.weight))


def check(module, *inputs):
    with torch.no_grad():
        frozen = compile_with(module, freeze=True, report=True)
        results = [frozen(x) for x in inputs]
        assert "its columns lie in panels" in reported_kernels()
        torch._dynamo.reset()
        live = compile_with(module)
        for x, result in zip(inputs, results, strict=True):
            assert torch.equal(result, live(x))
            # Two orders of a sum of n terms differ by n 2**-23 of the sum of what they are without
            # sign, at most; the functions above make up to twice as large a sum.
            terms = module.weight.size(0)
            magnitude = x.abs().sum(1, keepdim=True) * module.weight.abs().max()
            assert ((result - module(x)).abs() <= 2 * terms * 2.0**-23 * magnitude).all()


@pytest.fixture(params=ISAS, autouse=True)
def isa(request, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", request.param)


@pytest.mark.parametrize(("terms", "columns"), [(40, 64), (65, 100), (300, 257)])
@pytest.mark.parametrize("function", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_the_same_bits(terms, columns, function):
    torch.manual_seed(terms)
    check(Product(function, terms, columns), torch.randn(70, terms))


def test_streamed_panels():
    """Larger than the second-level cache: a tile asks for lines of the panel behind its own."""
    torch.manual_seed(0)
    check(Product(torch.matmul, 1024, 1040), torch.randn(40, 1024))


def test_any_number_of_rows():
    torch.manual_seed(1)
    check(Product(torch.matmul, 64, 48), *[torch.randn(rows, 64) for rows in (33, 40, 5)])
