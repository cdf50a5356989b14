"""One token against weights of 4 and 8 bits (one_row_products), through torch.compile, beside the
same in f64: the weight is read as it is, x as integers that stand for all of its bits."""

import pytest
import tandem
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers quantized_decomposed)
import torchao.quantization as ao
from compiled import compile_with
from torch import nn
from torchao.quantization.granularity import PerGroup

ROWS, TERMS = 96, 512
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-11}


class Dequantized(nn.Module):
    """Groups of a row, with zero points or without."""

    def __init__(self, bits, group, has_zeros, bias=False, signed=True):
        super().__init__()
        generator = torch.Generator().manual_seed(bits + group)
        self.least = -(1 << bits - 1) if signed else 0
        self.most = self.least + (1 << bits) - 1
        self.dtype = torch.int8 if signed else torch.uint8
        self.group = group

        def integers(*sizes):
            whole = torch.randint(self.least, self.most + 1, sizes, generator=generator)
            return whole.to(self.dtype)

        groups = TERMS // group
        self.register_buffer("q", integers(ROWS, TERMS))
        self.register_buffer("scale", torch.rand(ROWS, groups, generator=generator) / 64)
        self.register_buffer("zero", integers(ROWS, groups) if has_zeros else None)
        self.register_buffer("bias", torch.randn(ROWS, generator=generator) if bias else None)

    def weight(self, dtype):
        return torch.ops.torchao.dequantize_affine(
            self.q, [1, self.group], self.scale, self.zero, self.dtype, self.least, self.most,
            output_dtype=dtype)

    def forward(self, x):
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return nn.functional.linear(x, self.weight(x.dtype), bias)


def notes():
    [graph] = tandem.report()["graphs"]
    return [each for each in graph["notes"] if each.startswith("one_row_products")]


def ours(module, x):
    with torch.no_grad():
        return compile_with(module, freeze=True)(x)


def check(result, x, weight, bias=None, weight_unit=0.0):
    """What x as digits leaves of each group's largest, sums of so many terms, one rounding."""
    exact = x.double().reshape(1, -1) @ weight.double().t()
    exact = exact if bias is None else exact + bias.double()
    unit = UNIT[x.dtype]
    size = x.double().abs().max() * weight.double().abs().sum(1)
    digits = 2.0**-24 if x.dtype == torch.float32 else 2.0**-16
    bound = size * (digits + 2.0**-20 + weight_unit) + 2 * unit * exact.abs()
    assert ((result.double().reshape(1, -1) - exact).abs() <= bound).all()


@pytest.mark.parametrize("sizes", [(1, TERMS), (1, 1, TERMS), (TERMS,)], ids=str)
@pytest.mark.parametrize("dtype", UNIT, ids=str)
@pytest.mark.parametrize(
    "module",
    [
        Dequantized(4, 32, False),
        Dequantized(4, 128, True, bias=True),
        Dequantized(4, 64, True, signed=False),
        Dequantized(8, 64, False, bias=True),
        Dequantized(8, 256, True),
        Dequantized(8, 32, True, signed=False),
        Dequantized(3, 32, True),
    ],
    ids=["4", "4zb", "4zu", "8b", "8z", "8zu", "3z"],
)
def test_groups_equal_f64(module, dtype, sizes):
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(1)).to(dtype)
    result = ours(module, x)
    assert len(notes()) == 1
    assert result.shape == (*sizes[:-1], ROWS)
    assert result.dtype == dtype
    # A weight of 16-bit floats is rounded in eager, and not here: exact is what is not rounded.
    bias = None if module.bias is None else module.bias.to(dtype)
    check(result, x, module.weight(torch.float32), bias)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_nan(value):
    x = torch.randn(1, TERMS)
    x[0, 37] = value
    assert ours(Dequantized(4, 32, False), x).isnan().all()


def test_small_and_large_groups():
    """Each group has a scale of its own: small ones are as exact as large ones."""
    module = Dequantized(4, 32, False)
    x = torch.randn(1, TERMS) * 10.0 ** torch.randint(-20, 20, (1, TERMS // 32)).repeat_interleave(
        32, dim=1)
    x[:, :32] = 0
    result = ours(module, x)
    assert len(notes()) == 1
    exact = x.double() @ module.weight(torch.float32).double().t()
    size = (x.double().abs() @ module.weight(torch.float32).double().abs().t())
    assert ((result - exact).abs() <= 2.0**-19 * size).all()


def test_integers_out_of_their_range_are_nan():
    module = Dequantized(4, 32, False)
    module.q[5, 40] = 9  # in a byte, not in 4 bits
    result = ours(module, torch.randn(1, TERMS))
    assert result[0, 5].isnan()
    assert result[0, :5].isfinite().all()
    assert result[0, 6:].isfinite().all()


def bytes_of_rows(**more):
    class Bytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("q", torch.randint(-128, 128, (ROWS, TERMS), dtype=torch.int8))
            self.register_buffer("scale", torch.rand(ROWS) / 64)

        def forward(self, x):
            return torch._weight_int8pack_mm(x, self.q, self.scale.to(x.dtype))

    return Bytes(**more)


@pytest.mark.parametrize("dtype", UNIT, ids=str)
def test_bytes_with_a_scale_for_each_row(dtype):
    module = bytes_of_rows()
    x = torch.randn(1, TERMS).to(dtype)
    result = ours(module, x)
    assert len(notes()) == 1
    check(result, x, module.q.double() * module.scale.to(dtype).double()[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_as_torch_packs_them(group, dtype):
    q = torch.randint(0, 16, (ROWS, TERMS), dtype=torch.int32)
    parameters = torch.rand(TERMS // group, ROWS, 2) / 16

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1)
            self.register_buffer("packed", packed)
            self.register_buffer("parameters", parameters.to(dtype))

        def forward(self, x):
            return torch.ops.aten._weight_int4pack_mm_for_cpu(
                x, self.packed, group, self.parameters)

    # nn.Module.parameters is a method: buffers may have its name only behind it.
    module = Packed.__new__(Packed)
    nn.Module.__init__(module)
    module.register_buffer("packed", torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1))
    object.__setattr__(module, "parameters_", None)
