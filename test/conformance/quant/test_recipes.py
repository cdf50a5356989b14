"""Behaviours 59 to 62: what recipes quantize, and graphs in which nothing is."""

import pytest
import torch
import torch.nn.functional as F
from behaviours import behaviour
from compiled import compile_with
from converted import check, quantize
from torch import nn

import tandem


def counts(model):
    """Quantizations and dequantizations of tensors, dequantizations by channel."""
    names = [str(node.target).split(".")[1] for node in model.graph.nodes if node.op != "output"
             and "quantized_decomposed" in str(node.target)]
    kinds = ("quantize_per_tensor", "dequantize_per_tensor", "dequantize_per_channel")
    return tuple(names.count(kind) for kind in kinds)


class Cat(nn.Module):
    """`kind`: three parts of inputs of their own, one part twice, one part."""

    def __init__(self, kind):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)
        self.three = nn.Conv2d(3, 8, 3, padding=1)
        self.kind = kind

    def forward(self, x):
        first = self.one(x)
        if self.kind == "same":
            return torch.cat([first, first], 1)
        if self.kind == "single":
            return torch.cat([first], 1)
        return torch.cat([first, self.two(x.pow(2)), self.three(x + 3)], 1)


@behaviour("59")
@pytest.mark.parametrize(
    ("kind", "expected"), [("three", (7, 7, 3)), ("same", (3, 3, 1)), ("single", (3, 3, 1))]
)
def test_cat(kind, expected):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    model = quantize(Cat(kind), x)
    assert counts(model) == expected
    check(model, x, products=expected[2])


class Mul(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.other = other

    def forward(self, x):
        return x * (self.other if self.other is not None else x.flip(0))


@behaviour("60")
@pytest.mark.parametrize(
    ("other", "expected"), [(None, (2, 2, 0)), (3.0, (0, 0, 0)), (torch.ones(1, 4), (0, 0, 0))]
)
def test_mul(other, expected):
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    model = quantize(Mul(other), x)
    assert counts(model) == expected
    check(model, x, products=0, launches=1)


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1)
        self.two = nn.Conv2d(after, after, 3, 1, 1)
        self.skip = nn.Conv2d(before, after, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.two(F.relu(self.one(x))) + self.skip(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.last = nn.Linear(16, 10)

    def forward(self, x):
        y = self.blocks(F.max_pool2d(F.relu(self.stem(x)), 2))
        return self.last(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


@behaviour("61")
def test_small_residual_network():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 16, 16)
    check(quantize(Residual(), x), x, products=7)


PLAIN = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu6": F.relu6,
    "silu": F.silu,
    "hardsigmoid": F.hardsigmoid,
    "bounds that cross": lambda x: torch.clamp(x, 1.0, -1.0),
    "bounds of tensors": lambda x: torch.clamp(x, torch.tensor(-0.5), torch.tensor(0.5)),
    "slope of a tensor": lambda x: torch.where(x > 0, x, x * torch.tensor(0.3)),
    "prelu": lambda x: F.prelu(x, torch.full((8,), 0.3)),
    "the same twice": lambda x: x + x,
    "alpha": lambda x: torch.add(x, x.flip(0), alpha=2.5),
    "mixed": lambda x: x + x.to(torch.bfloat16),
}


@behaviour("62")
@pytest.mark.parametrize("last", PLAIN.values(), ids=PLAIN.keys())
def test_floats_stay_as_they_are(last):
    x = torch.randn(2, 3, 8, 8)
    weight = torch.randn(8, 3, 3, 3) * 0.2

    def function(x):
        return last(F.conv2d(x, weight))

    with torch.no_grad():
        result = compile_with(function, freeze=True)(x)
        torch.testing.assert_close(result, function(x), rtol=1e-4, atol=1e-4)
    assert tandem.report()["graphs"][-1]["quantized products"] == []


@behaviour("62")
def test_an_addend_that_is_an_input_is_not_written():
    layer = nn.Conv2d(3, 3, 3, padding=1)
    x, other = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    kept = other.clone()
    with torch.no_grad():
        result = compile_with(lambda x, other: layer(x) + other, freeze=True)(x, other)
        torch.testing.assert_close(result, layer(x) + other, rtol=1e-4, atol=1e-4)
    assert torch.equal(other, kept)
