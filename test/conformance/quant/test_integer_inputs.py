"""Behaviours 55 to 58: products of integers and weights alone, as torchao writes them."""

import pytest
import torch
from behaviours import behaviour
from converted import check_steps, compiled_once, distance
from torch import nn

BF16 = torch.bfloat16
aten = torch.ops.aten
integers = torch.randint


class Smooth(nn.Module):
    """_int_mm, then the scales of rows and columns."""

    def __init__(self, has_bias, is_dynamic, dtype, terms=64, results=32):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("w", integers(-128, 128, (results, terms), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(results).to(dtype) * 0.02)
        self.register_buffer("x_scale", torch.tensor(0.02, dtype=dtype))
        self.bias = nn.Parameter(torch.randn(results).to(dtype)) if has_bias else None
        self.is_dynamic, self.dtype = is_dynamic, dtype

    def scale_of(self, x):
        if not self.is_dynamic:
            return self.x_scale
        return x.abs().amax(-1, keepdim=True).clamp_min(1e-5) / 127

    def forward(self, x):
        scale = self.scale_of(x)
        q = torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)
        sums = aten._int_mm(q.reshape(-1, q.shape[-1]), self.w.t())
        if self.is_dynamic:
            scale = scale.reshape(-1, 1)
        y = sums.to(self.dtype) * scale * self.scales
        y = y.reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def check_integers(model, x, near, launches):
    """Sums are exact in both, so what differs is the rounding of a scale."""
    with torch.no_grad():
        expected = model(x)
    result, graph = compiled_once(model, x)
    assert result.dtype == expected.dtype
    assert distance(result, expected) < near
    check_steps(graph, 1, launches)


@behaviour("55")
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("is_dynamic", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("sizes", [(8, 64), (2, 5, 64)])
def test_smooth_quantization(sizes, dtype, is_dynamic, has_bias):
    x = torch.randn(sizes).to(dtype)
    model = Smooth(has_bias, is_dynamic, dtype)
    near = 1e-6 if dtype == torch.float32 else 4e-3
    check_integers(model, x, near, launches=2)


@behaviour("56")
@pytest.mark.parametrize("rows", [1, 32])
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_scale_for_each_row(rows, dtype):
    x = torch.randn(rows, 64).to(dtype)
    model = Smooth(True, True, dtype)
    near = 1e-6 if dtype == torch.float32 else 4e-3
    check_integers(model, x, near, launches=2)


@behaviour("56")
def test_one_row_and_an_addition_in_place():
    model = Smooth(False, False, torch.float32)
    x, other = torch.randn(1, 64), torch.randn(1, 32)
    with torch.no_grad():
        expected = other + model(x)
    result, graph = compiled_once(lambda x, other: other.clone().add_(model(x)), x, other)
    assert distance(result, expected) < 1e-6
    check_steps(graph, 1, 2)


class WeightOnly(nn.Module):
    def __init__(self, is_permuted):
        super().__init__()
        torch.manual_seed(0)
        w = integers(-128, 128, (64, 256), dtype=torch.int8)
        self.register_buffer("w", w.t().contiguous() if is_permuted else w)
        self.register_buffer("scales", (torch.rand(64) * 0.02).bfloat16())
        self.is_permuted = is_permuted

    def forward(self, x):
        w = self.w if self.is_permuted else self.w.t()
        return torch.matmul(x, w.to(x.dtype)) * self.scales


weights = pytest.mark.parametrize("is_permuted", [True, False])


@behaviour("57")
@weights
@pytest.mark.parametrize("strides", [(256, 256, 1), (256, 32, 1)])
def test_weights_of_8_bits(strides, is_permuted):
    model = WeightOnly(is_permuted)
    x = torch.randn(1, 1, 256).bfloat16().as_strided((1, 1, 256), strides)
    weight = model.w if is_permuted else model.w.t()
    exact = torch.matmul(x.double(), weight.double()) * model.scales.double()
    result, _ = compiled_once(model, x)
    assert result.dtype == BF16
    assert distance(result, exact) < 8e-3


@behaviour("57", "the weight stays in bytes")
@weights
def test_weights_of_8_bits_stay_in_bytes(is_permuted):
    model = WeightOnly(is_permuted)
    _, graph = compiled_once(model, torch.randn(1, 256).bfloat16())
    # Panels of the bytes; the narrowest floats are twice as large.
    assert graph["frozen"]["bytes"] < 2 * 64 * 256


class FourBits(nn.Module):
    def __init__(self, terms=128, results=64, group=32, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.whole = integers(0, 16, (results, terms), dtype=torch.int32)
        self.register_buffer("packed", aten._convert_weight_to_int4pack_for_cpu(self.whole, 1))
        self.register_buffer("groups", (torch.rand(terms // group, results, 2)).bfloat16())
        self.group = group

    def forward(self, x):
        return aten._weight_int4pack_mm_for_cpu(x, self.packed, self.group, self.groups)

    def dense(self):
        scale, zero = self.groups.double().repeat_interleave(self.group, 0).permute(2, 1, 0)
        return (self.whole - 8) * scale + zero


def decibels(result, expected):
    return -20 * torch.log10(torch.tensor(distance(result, expected))).item()


@behaviour("58")
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_weights_of_4_bits(rows):
    model = FourBits()
    x = torch.randn(rows, 128).bfloat16()
    result, _ = compiled_once(model, x)
    assert decibels(result, x.double() @ model.dense().t()) > 40


@behaviour("58")
def test_packed_weights_are_those_that_were_packed():
    model = FourBits()
    identity = torch.eye(128).bfloat16()
    model.groups[..., 0], model.groups[..., 1] = 1, 8
    result, _ = compiled_once(model, identity)
    assert torch.equal(result.t().int(), model.whole)


@behaviour("58", "one step")
def test_three_products_of_one_activation():
    layers = nn.ModuleList(FourBits(seed=seed) for seed in range(3))
    x = torch.randn(1, 128).bfloat16()
    result, graph = compiled_once(lambda x: tuple(layer(x) for layer in layers), x)
    for each, layer in zip(result, layers, strict=True):
        assert decibels(each, x.double() @ layer.dense().t()) > 40
    assert graph["forward"]["launches"] == 1
