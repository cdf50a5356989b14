"""Behaviours 19 to 27: convolutions trained with fake quantization. No batch norm is left."""

import pytest
import torch
from behaviours import behaviour
from converted import check, quantize_in_training
from torch import nn


def image():
    torch.manual_seed(0)
    return torch.randn(4, 3, 8, 8)


class Unit(nn.Sequential):
    def __init__(self, before, after, *last):
        super().__init__(nn.Conv2d(before, after, 3), nn.BatchNorm2d(after), *last)


def has_no_norm(graph):
    return not any("batch_norm" in op for op in graph["ops"])


@behaviour("19")
def test_convolution_and_norm():
    x = image()
    graph = check(quantize_in_training(Unit(3, 16), x), x, products=1, launches=2)
    assert has_no_norm(graph)


CASES = [
    pytest.param(nn.ReLU, marks=behaviour("20"), id="relu"),
    pytest.param(nn.ReLU6, marks=behaviour("21"), id="relu6"),
    pytest.param(nn.Hardtanh, marks=behaviour("22"), id="hardtanh"),
    pytest.param(nn.SiLU, marks=behaviour("23"), id="silu"),
    pytest.param(nn.Hardswish, marks=behaviour("24"), id="hardswish"),
]


@pytest.mark.parametrize("activation", CASES)
def test_activation(activation):
    x = image()
    model = nn.Sequential(Unit(3, 16, activation()), Unit(16, 16, activation()))
    graph = check(quantize_in_training(model, x), x, products=2, launches=3)
    assert has_no_norm(graph)


class Sum(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.one, self.two, self.last = Unit(3, 8), Unit(3, 8), last

    def forward(self, x):
        return self.last(self.one(x) + self.two(x))


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(nn.Identity, marks=behaviour("25"), id="add"),
        pytest.param(nn.ReLU, marks=behaviour("26"), id="relu"),
    ],
)
def test_sum(last):
    x = image()
    graph = check(quantize_in_training(Sum(last()), x), x, products=2, launches=3)
    assert has_no_norm(graph)


@behaviour("27")
def test_norm_in_front():
    x = image()
    model = nn.Sequential(nn.BatchNorm2d(3), Unit(3, 8))
    graph = check(quantize_in_training(model, x), x, products=1)
    assert sum(count for op, count in graph["ops"].items() if "batch_norm" in op) == 1
