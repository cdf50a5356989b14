"""Products of bf16 through tile registers, where the processor has them: weights that are given at
each call and weights that are known, with what stands around them. Without tile registers the
library computes the same programs, to the same bound."""

import pytest
import torch
import torch.nn.functional as F
from compiled import compile_with, reported_kernels
from machine import has_tiles
from torch import nn

BF16 = torch.bfloat16


class Layer(nn.Module):
    """act(a W^T + b) + a residual."""

    def __init__(self, terms, columns, act):
        super().__init__()
        self.linear = nn.Linear(terms, columns, dtype=BF16)
        self.act = act

    def forward(self, x, residual):
        return self.act(self.linear(x)) + residual


ROUNDING = 2.0**-8 * (1 + 2.0**-6)  # to bf16, of what was rounded a few times before
F32 = 2.0**-23  # of each term of a sum in f32, of what it is without sign


def check(result, module, x, residual):
    """Three roundings to bf16, of the sum, of what act gives and of the result; neither act
    stretches what is off, nor gives more than it gets."""
    exact = module.double()(x.double(), residual.double())
    linear = module.linear
    sums = x.double().abs() @ linear.weight.abs().T + linear.bias.abs()
    rounded = exact.abs() + 2 * linear(x.double()).abs()
    bound = ROUNDING * rounded + x.size(-1) * F32 * sums
    module.bfloat16()
    assert ((result.double() - exact).abs() <= bound).all()


def product(rows, terms, columns, act):
    torch.manual_seed(rows)
    module = Layer(terms, columns, act)
    return module, torch.randn(rows, terms, dtype=BF16), torch.randn(rows, columns, dtype=BF16)


@pytest.mark.parametrize("act", [torch.relu, torch.tanh])
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [(32, 64, 64), (33, 40, 96), (197, 104, 50), (130, 768, 3072), (300, 2048, 1024), (64, 8, 7)],
)
def test_of_weights_given_and_known(rows, terms, columns, act):
    module, x, residual = product(rows, terms, columns, act)
    with torch.no_grad():
        live = compile_with(module, report=True)(x, residual)
        if has_tiles():
            assert "tile registers sum it" in reported_kernels()
        torch._dynamo.reset()
        known = compile_with(module, freeze=True, report=True)(x, residual)
        if has_tiles():
            assert ("in panels" in reported_kernels()) == (columns % 32 == 0 and columns > 32)
            assert torch.equal(live, known)  # the same sums in the same order
        check(live, module, x, residual)
        check(known, module, x, residual)


def test_any_number_of_rows():
    module, _, _ = product(32, 96, 64, torch.relu)
    compiled = compile_with(module, dynamic=True)
    with torch.no_grad():
        for rows in (40, 64, 33, 5, 257):
            _, x, residual = product(rows, 96, 64, torch.relu)
            check(compiled(x, residual), module, x, residual)


def test_heads_as_they_lie():
    """The terms of the left factor are two loops: heads, and what each has."""
    torch.manual_seed(0)
    heads, weight = torch.randn(4, 50, 16, dtype=BF16), torch.randn(64, 64, dtype=BF16)

    def out(heads, weight):
        return F.linear(heads.transpose(0, 1).reshape(50, 64), weight)

    exact = out(heads.double(), weight.double())
    sums = out(heads.double().abs(), weight.double().abs())
    found = compile_with(out, report=True)(heads, weight)
    if has_tiles():
        assert "tile registers sum it" in reported_kernels()
    assert ((found.double() - exact).abs() <= ROUNDING * exact.abs() + 64 * F32 * sums).all()


def test_gradients():
    """They are such products again, of numbers that are given; the left factor of the weight's lies
    transposed. Each is rounded once."""
    module, x, residual = product(128, 192, 96, lambda sums: sums)
    tangent = torch.randn(128, 96, dtype=BF16)
    x.requires_grad_()
    compile_with(module)(x, residual).backward(tangent)
    found = [x.grad, module.linear.weight.grad, module.linear.bias.grad]
    t, w, wide = tangent.double(), module.linear.weight.double(), x.detach().double()
    exact = [t @ w, t.T @ wide, t.sum(0)]
    sums = [t.abs() @ w.abs(), t.abs().T @ wide.abs(), t.abs().sum(0)]
    for gradient, reference, each in zip(found, exact, sums, strict=True):
        bound = ROUNDING * reference.abs() + 128 * F32 * each
        assert ((gradient.double() - reference).abs() <= bound).all()
