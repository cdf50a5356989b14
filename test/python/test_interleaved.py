"""A few values side by side (the channels of an image) for each of many places: lanes run along the
places, and what they compute is interleaved in registers. Against eager, with and without tails."""

import pytest
import torch

import tandem
from graphs import build
from machine import ISAS

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "u8": torch.uint8}


def ramp(sizes, dtype):
    torch.manual_seed(sum(sizes))
    return (torch.randn(sizes) * 20).abs().to(dtype)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("places", [[16, 16], [5, 7], [37, 41], [1, 200]])
def test_channels_last(dtype, channels, places, isa, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", isa)
    value = ramp([2, channels, *places], DTYPES[dtype])
    sizes = list(value.shape)
    lines = [
        "%0 = aten.mul.Tensor(%x, %x)",
        "%1 = aten.permute(%0, [0, 2, 3, 1])",
        "%r = aten.clone(%1, memory_format=0)",
        "%2 = aten.gt.Scalar(%1, 100.0)",
        "%s = aten.clone(%2, memory_format=0)",
    ]
    executable = build(f"%x: {dtype}{sizes}", lines, results="%r, %s", report=True)
    assert ("+avx512f" in executable.report) == (isa == "avx512")
    actual, large = executable.run([value])
    expected = (value * value).permute(0, 2, 3, 1)
    assert torch.equal(actual, expected) and actual.is_contiguous()
    assert torch.equal(large, expected > 100)
    for threads in (1, 3):
        tandem.set_threads(threads)
        assert all(map(torch.equal, executable.run([value]), (actual, large)))
    tandem.set_threads(1)


@pytest.mark.parametrize("padding", [[0, 1, 0, 1], [2, 3, 1, 0]])
def test_padded(padding):
    """What is read is masked; its own elements stay outside of the mask."""
    value = ramp([3, 3, 30, 33], torch.float32)
    lines = [
        f"%0 = aten.constant_pad_nd(%x, {padding}, -1.5)",
        "%1 = aten.permute(%0, [0, 2, 3, 1])",
        "%r = aten.clone(%1, memory_format=0)",
    ]
    inputs = f"%x: f32{list(value.shape)}"
    expected = torch.nn.functional.pad(value, padding, value=-1.5).permute(0, 2, 3, 1)
    for options in ({}, {"interpret": True}):
        (actual,) = build(inputs, lines, **options).run([value])
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_random_numbers(channels):
    """Numbers belong to places: those of a kernel whose lanes run along memory."""
    value = torch.rand(1000, 1)
    draw = f"%0 = tandem.random_uniform([1000, {channels}], stream=1, seed=%seed)"
    inputs = "%x: f32[1000, 1], %seed: i64 {seed}"
    (actual,) = build(inputs, [draw, "%r = aten.mul.Tensor(%0, %x)"]).run([value, 7])
    (numbers,) = build(inputs, [draw, "%r = aten.add.Scalar(%0, 0.0)"]).run([value, 7])
    assert torch.equal(actual, numbers * value)
