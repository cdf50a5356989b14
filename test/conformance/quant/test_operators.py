"""Behaviours 48 to 54: pools, cat, reshapes, attention, embedding bags."""

import re

import pytest
import torch
import torch.nn.functional as F
from behaviours import behaviour
from converted import (
    FACTOR,
    Q,
    check,
    check_bits,
    check_steps,
    compiled_once,
    distance,
    quantize,
    recipe,
)
from machine import FEWEST_ROWS
from torch import nn


def image(channels=3, size=14):
    torch.manual_seed(0)
    return torch.randn(2, channels, size, size)


POOLS = {
    "stride": dict(stride=2),
    "padding": dict(stride=2, padding=1),
    "dilation": dict(stride=2, padding=1, dilation=1),
    "ceil_mode": dict(stride=2, padding=1, dilation=1, ceil_mode=True),
}


def written(graph):
    """The dtypes of what its kernels write."""
    return re.findall(r"buffer b\d+: (\w+) write", graph["kernels"])


@behaviour("48")
@pytest.mark.parametrize("options", POOLS.values(), ids=POOLS.keys())
def test_max_pool(options):
    x = image()
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(3, **options))
    graph = check(quantize(model, x), x, products=1, launches=3)
    # What the convolution reads, what the pool reads: that is of bytes anywhere.
    assert written(graph)[:3] == [FACTOR, "u8", "f32"]


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return torch.cat([self.one(x), self.two(x.pow(2))], 1)


@behaviour("49")
def test_cat():
    x = image()
    check(quantize(TwoBranches(), x), x, products=2)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.linear = nn.Linear(16, 5)

    def forward(self, x):
        y = F.adaptive_avg_pool2d(self.conv(x).relu(), 1)
        return self.linear(torch.cat([torch.flatten(y, 1), torch.flatten(y, 1)], 1))


@behaviour("50")
def test_flatten():
    x = image()
    check(quantize(Flat(), x), x, products=2)


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x):
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / 4
        y = torch.matmul(scores.softmax(-1), v)
        return self.dense(y.permute(0, 2, 1, 3).reshape(x.shape))


@behaviour("51")
@pytest.mark.parametrize("has_products", [True, False])
def test_attention(has_products):
    torch.manual_seed(0)
    x = torch.randn(2, 16, 64)
    quantizer = recipe()
    if has_products:
        config = quantizer.get_global_quantization_config()
        quantizer.set_function_type_qconfig(torch.matmul, config)
    model = quantize(Attention(), x, quantizer=quantizer)
    # The products of floats are library calls where 16 rows are few.
    library = 0 if has_products or FEWEST_ROWS <= 16 else 2
    check(model, x, products=6 if has_products else 4, library=library)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.linear = nn.Linear(16, 10)

    def forward(self, x):
        y = F.max_pool2d(self.conv(x).relu(), 3, stride=2, padding=1)
        return self.linear(y.mean((2, 3)))


@behaviour("52")
def test_batch_that_varies():
    x = image()
    shapes = ({0: torch.export.Dim("batch", min=2, max=64)},)
    model = quantize(Classifier(), x, dynamic_shapes=shapes)
    graph = check(model, x, products=2, dynamic=True)
    assert re.search(r"size n0 in \[2, \d+\]", graph["kernels"])
    assert written(graph)[0] == FACTOR


class Bag(nn.Module):
    def __init__(self, rows, width, by_row):
        super().__init__()
        self.register_buffer("q", torch.randint(-128, 128, (rows, width), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(rows) * 0.1)
        self.register_buffer("zeros", torch.zeros(rows, dtype=torch.int64))
        self.by_row = by_row

    def forward(self, indices, offsets):
        if self.by_row:
            table = Q.dequantize_per_channel(
                self.q, self.scales, self.zeros, 0, -128, 127, torch.int8
            )
        else:
            table = Q.dequantize_per_tensor(self.q, 0.04, 0, -128, 127, torch.int8)
        return F.embedding_bag(
            indices, table, offsets, mode="sum", include_last_offset=True
        )


class QuantizedBag(Bag):
    def forward(self, indices, offsets):
        y = super().forward(indices, offsets)
        return Q.quantize_per_tensor(y, 0.5, 3, 0, 255, torch.uint8)


class Table(Bag):
    def forward(self, indices):
        return F.embedding(indices, Q.dequantize_per_tensor(self.q, 0.04, 3, -128, 127, torch.int8))


@behaviour("53")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("kind", [Bag, QuantizedBag])
@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize(("bags", "each", "width"), [(1, 1, 1), (3, 2, 128), (10, 20, 512)])
def test_embedding_bag(bags, each, width, by_row, kind, dtype):
    torch.manual_seed(0)
    model = kind(1000, width, by_row)
    indices = torch.randint(0, 1000, (bags * each,), dtype=dtype)
    offsets = torch.arange(0, bags * each + 1, each, dtype=dtype)
    with torch.no_grad():
        expected = model(indices, offsets)
    result, graph = compiled_once(model, indices, offsets)
    assert result.dtype == expected.dtype
    assert distance(result, expected) < 1e-6
    check_steps(graph, 0)
    assert graph["frozen"]["bytes"] < 1000 * width / 2 + 16384  # no table of floats


@behaviour("53")
def test_embedding_of_bytes():
    torch.manual_seed(0)
    indices = torch.randint(0, 1000, (3, 7))
    graph = check_bits(Table(1000, 64, False), indices, launches=1)
    assert graph["frozen"]["bytes"] < 16384


@behaviour("54")
@pytest.mark.parametrize("count", [2, 3])
def test_cat_quantized_again(count):
    torch.manual_seed(0)
    inputs = [torch.randint(0, 256, (4, 8), dtype=torch.uint8) for _ in range(count)]

    def function(*inputs):
        y = torch.cat(inputs, 1)
        x = Q.dequantize_per_tensor(y, 0.02, 7, 0, 255, torch.uint8)
        return Q.quantize_per_tensor(x, 0.02, 7, 0, 255, torch.uint8)

    check_bits(function, *inputs, launches=1)
