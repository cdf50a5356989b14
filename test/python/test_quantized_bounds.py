"""An activation in front of a quantization: bounds that the integers have as well are not computed,
others are. Numbers around every bound, ties, infinities and NaN give eager's bytes."""

import pytest
import tandem
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers the operators
from machine import ISAS

BOUNDS = [
    ("relu", 0.0, None), ("relu6", 0.0, 6.0), ("from above", None, 1.5), ("negative", -3.0, -0.5),
    ("narrow", 0.25, 0.75), ("wide", -1e4, 1e4), ("a bound that is no number", 0.0, float("nan")),
]  # fmt: skip
RANGES = [
    (0.02, 0, 0, 255, torch.uint8), (6 / 255, 0, 0, 255, torch.uint8),
    (0.05, 131, 0, 255, torch.uint8), (0.05, 3, 0, 127, torch.uint8),
    (0.05, -7, -128, 127, torch.int8), (2.0, 0, -128, 127, torch.int8),
    (1e-4, 9, 0, 255, torch.uint8),
]  # fmt: skip


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", request.param)


def numbers(scale, zero, low, high, bounds):
    steps = torch.arange(-300, 600) * 0.5 * scale
    edges = [b for b in bounds if b is not None]
    edges += [(each - zero + part) * scale for each in (low, high) for part in (-0.5, 0, 0.5)]
    edges = torch.tensor(edges)
    near = [edges, torch.nextafter(edges, torch.tensor(9e9)), torch.nextafter(edges, -edges)]
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 3e9, -3e9, 1e38, 0.0, -0.0])
    return torch.cat([steps, *near, special, torch.randn(77)])


@pytest.mark.parametrize("range_", RANGES, ids=str)
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: bounds[0])
@pytest.mark.usefixtures("isa")
def test_bounds_before_a_quantization(bounds, range_):
    _, least, most = bounds
    scale, zero, low, high, dtype = range_

    def program(x):
        y = torch.clamp(x * 1.0, least, most)
        return torch.ops.quantized_decomposed.quantize_per_tensor(y, scale, zero, low, high, dtype)

    x = numbers(scale, zero, low, high, (least, most))
    found = torch.compile(program, backend=tandem.backend)(x)
    expected = program(x)
    # Eager's cast of a NaN to an integer is the processor's; a NaN is 0 here.
    is_number = ~torch.clamp(x, least, most).isnan()
    assert torch.equal(found[is_number], expected[is_number])
    assert not found[~is_number].any()
