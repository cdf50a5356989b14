"""Weights of 8 bits that are only read as floats (weight_only_products), through torch.compile,
beside eager: the bytes reach the product's loops, and no copy of them in floats is kept."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers quantized_decomposed)
from torch.nn.functional import linear

import tandem

COLUMNS, TERMS = 96, 160


class Weight(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight = torch.randint(-128, 128, (COLUMNS, TERMS), dtype=torch.int8, generator=generator)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", (torch.rand(COLUMNS, generator=generator) / 64).to(dtype))
        self.register_buffer("bias", torch.randn(COLUMNS, generator=generator).to(dtype))
        self.register_buffer("zeros", torch.zeros(COLUMNS, dtype=torch.int64))


class ScaledBehind(Weight):
    def forward(self, x):
        return linear(x, self.weight.to(x.dtype)) * self.scales


class ScaledInside(Weight):
    def forward(self, x):
        return linear(x, self.weight.to(x.dtype) * self.scales[:, None], self.bias)


class Dequantized(Weight):
    def forward(self, x):
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.weight, self.scales.float(), self.zeros, 0, -128, 127, torch.int8)
        return torch.addmm(self.bias, x.flatten(0, -2), weight.to(x.dtype).t())


class Matmul(Weight):
    def forward(self, x):
        return torch.matmul(x, (self.weight.t().to(x.dtype) * self.scales)) + self.bias


def frozen(module, x):
    torch._dynamo.reset()
    with torch.no_grad():
        result = torch.compile(module, backend=tandem.backend, options={"freeze": True})(x)
    return result, tandem.report()["graphs"][-1]


@pytest.mark.parametrize("rows", [(1,), (3,), (40,), (2, 5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("model", [ScaledBehind, ScaledInside, Dequantized, Matmul])
def test_equals_eager_in_f64(model, dtype, rows):
    module = model(dtype)
    x = torch.randn(*rows, TERMS, generator=torch.Generator().manual_seed(1)).to(dtype)
    result, graph = frozen(module, x)
    exact = module.double()(x.double())
    eager = (model(dtype)(x).double() - exact).abs().max()
    # Sums in another order, and a scale rounded to the factors' dtype: twice eager's own error,
    # and a unit of the largest result.
    unit = torch.finfo(dtype).eps * exact.abs().max()
    assert (result.double() - exact).abs().max() <= 2 * eager + unit
    # Less than the weight in floats is kept beside the weights; but of many rows 16-bit floats may
    # be, where tile registers multiply them.
    if dtype == torch.float32 or rows != (40,):
        assert graph["frozen"]["bytes"] < COLUMNS * TERMS * 2


class Floats(ScaledInside):
    """Numbers of 8 bits, all but NaN and infinities."""

    def __init__(self, dtype, kind):
        super().__init__(dtype)
        numbers = self.weight.view(kind)
        self.weight = numbers.float().nan_to_num(1, 2, 2).clamp(-448, 448).to(kind)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_floats_of_8_bits_stay_so(kind, dtype, rows):
    module = Floats(dtype, kind)
    x = torch.randn(rows, TERMS, generator=torch.Generator().manual_seed(1)).to(dtype)
    result, graph = frozen(module, x)
    weight = module.weight.double() * module.scales[:, None].double()
    exact = linear(x.double(), weight, module.bias.double())
    eager = (module(x).double() - exact).abs().max()
    unit = torch.finfo(dtype).eps * exact.abs().max()
    assert (result.double() - exact).abs().max() <= 2 * eager + unit
    if dtype == torch.float32 or rows != 40:
        assert graph["frozen"]["bytes"] < COLUMNS * TERMS * 2
