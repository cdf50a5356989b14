"""Behaviours 19 to 27: convolutions trained with fake quantization. No batch norm is left.

They are parts of one model, because torchao needs a quarter of a minute to convert any.
"""

import pytest
import torch
from behaviours import behaviour
from converted import NEAR, Exact, check_steps, compare, compiled_once, quantize_in_training
from torch import nn


class Unit(nn.Sequential):
    def __init__(self, before, after, *last):
        super().__init__(nn.Conv2d(before, after, 3), nn.BatchNorm2d(after), *last)


def two(activation):
    return nn.Sequential(Unit(3, 16, activation()), Unit(16, 16, activation()))


class Sum(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.one, self.two, self.last = Unit(3, 8), Unit(3, 8), last

    def forward(self, x):
        return self.last(self.one(x) + self.two(x))


class Parts(nn.Module):
    """Each of an input of its own."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict(
            {
                "19": Unit(3, 16),
                "20": two(nn.ReLU),
                "21": two(nn.ReLU6),
                "22": two(nn.Hardtanh),
                "23": two(nn.SiLU),
                "24": two(nn.Hardswish),
                "25": Sum(nn.Identity()),
                "26": Sum(nn.ReLU()),
                "27": nn.Sequential(nn.BatchNorm2d(3), Unit(3, 8)),
            }
        )

    def forward(self, *inputs):
        parts = self.parts.values()
        return tuple(part(x) for part, x in zip(parts, inputs, strict=True))


@pytest.fixture(scope="module")
def results():
    """Ours, eager's and exact ones of each part; the report."""
    torch.manual_seed(0)
    model = Parts()
    inputs = [torch.randn(4, 3, 8, 8) for _ in model.parts]
    converted = quantize_in_training(model, *inputs)
    ours, graph = compiled_once(converted, *inputs)
    with torch.no_grad():
        triples = zip(ours, converted(*inputs), Exact(converted).run(*inputs), strict=True)
    return dict(zip(model.parts, triples, strict=True)), graph


PARTS = [
    pytest.param("20", marks=behaviour("20")),
    pytest.param("21", marks=behaviour("21")),
    pytest.param("22", marks=behaviour("22")),
    pytest.param("23", marks=behaviour("23")),
    pytest.param("24", marks=behaviour("24")),
]


@pytest.mark.parametrize("name", PARTS)
def test_activation(results, name):
    compare(*results[0][name], NEAR)


@behaviour("19")
def test_convolution_and_norm(results):
    compare(*results[0]["19"], NEAR)


@behaviour("25")
def test_sum(results):
    compare(*results[0]["25"], NEAR)


@behaviour("26")
def test_sum_and_relu(results):
    compare(*results[0]["26"], NEAR)


@behaviour("27")
def test_norm_in_front(results):
    compare(*results[0]["27"], NEAR)


def test_steps(results):
    """Quantizations of the inputs side by side, one of them behind the norm that stays; then each
    product with all that follows it. No other norm is left."""
    graph = results[1]
    check_steps(graph, products=16, launches=17)
    assert sum(count for op, count in graph["ops"].items() if "batch_norm" in op) == 1
