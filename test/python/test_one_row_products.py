"""One row against frozen weights of 4 and 8 bits: sums of integers, group by group, with the left
factor as digits, are held to what the floats mean; beside eager where torchao has such tensors."""

import pytest
import tandem
import torch
import torch.nn.functional as F
import torchao.quantization as ao
from compiled import compile_with, reported_kernels
from machine import ISAS
from torch import nn
from torchao.quantization.granularity import PerGroup

aten = torch.ops.aten
JOINED = "summed where its groups are added"
EPSILON = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@pytest.fixture(params=ISAS, autouse=True)
def isa(request, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", request.param)


class Module(nn.Module):
    def __init__(self, function, **held):
        super().__init__()
        self.function = function
        for name, value in held.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


def run(module, x, joins=True):
    torch._dynamo.reset()
    with torch.no_grad():
        result = compile_with(module, freeze=True, report=True)(x)
    assert (JOINED in reported_kernels()) == joins
    return result


def check(result, x, weight, group):
    """`weight` f64. Of each group m is the largest |x|: three digits leave 2**-24 m, two 2**-16 m,
    and making them rounds three times. Integers become floats, are scaled and added by as many
    roundings as there are digits and groups, and three; then the result is rounded."""
    x = x.double().reshape(-1, group)
    rows, terms = weight.shape
    assert x.numel() == terms
    magnitude = weight.abs().reshape(rows, -1, group).sum(2) @ x.abs().amax(1)
    left = 2.0**-24 if result.dtype == torch.float32 else 2.0**-16
    roundings = 2.0**-24 * (3 + 3 * terms // group + 3)
    expected = weight @ x.reshape(-1)
    bound = (left + roundings) * magnitude + EPSILON[result.dtype] * expected.abs()
    assert ((result.double().reshape(-1) - expected).abs() <= bound).all()


def affine(q, scale, zero, group, least, most):
    return torch.ops.torchao.dequantize_affine(q, [1, group], scale, zero, q.dtype, least, most)


def of_four_bits(q, scale, **held):
    """A linear layer of groups of 32."""

    def product(self, x):
        return F.linear(x, affine(self.q, self.scale, None, 32, -8, 7))

    return Module(product, q=q, scale=scale, **held)


RANGES = {
    "i4": (torch.int8, -8, 7),
    "u4": (torch.uint8, 0, 15),
    "i8": (torch.int8, -128, 127),
    "u8": (torch.uint8, 0, 255),
}


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize(("rows", "terms", "group"), [(32, 64, 32), (96, 384, 128), (64, 256, 256)])
def test_weights_in_groups(rows, terms, group, kind, has_zero, dtype):
    torch.manual_seed(rows)
    of, least, most = RANGES[kind]
    q = torch.randint(least, most + 1, (rows, terms)).to(of)
    scale = torch.rand(rows, terms // group) + 0.1
    zero = torch.randint(least, most + 1, scale.shape, dtype=torch.int32) if has_zero else None

    def product(self, x):
        weight = affine(self.q, self.scale, self.zero, group, least, most)
        return F.linear(x, weight.to(x.dtype))

    x = torch.randn(1, 1, terms).mul(3).to(dtype)
    x[0, 0, 5] = 200  # the others of its group have fewer digits
    whole = q.double().reshape(rows, -1, group) - (zero[:, :, None].double() if has_zero else 0)
    weight = (whole * scale[:, :, None].double()).reshape(rows, terms)
    check(run(Module(product, q=q, scale=scale, zero=zero), x), x, weight, group)


@pytest.mark.parametrize("rows", [64, 112])
def test_weights_as_pytorch_packs_them(rows):
    torch.manual_seed(rows)
    whole = torch.randint(0, 16, (rows, 128), dtype=torch.int32)
    packed = aten._convert_weight_to_int4pack_for_cpu(whole, 1)
    pairs = torch.randn(4, rows, 2)

    def product(self, x):
        return aten._weight_int4pack_mm_for_cpu(x, self.packed, 32, self.pairs)

    x = torch.randn(1, 128)
    scale, offset = pairs.repeat_interleave(32, 0).permute(2, 1, 0).double()
    # Rows that fill no panel are read as floats. What cancels in a weight counts as well.
    result = run(Module(product, packed=packed, pairs=pairs), x, joins=rows % 32 == 0).double()
    magnitude = ((whole - 8).abs() * scale.abs() + offset.abs()).sum(1) * x.abs().max()
    expected = x.double() @ ((whole - 8) * scale + offset).t()
    assert ((result - expected).abs() <= 40 * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
def test_bytes_with_one_scale(dtype):
    torch.manual_seed(0)
    q = torch.randint(-128, 128, (64, 512), dtype=torch.int8)
    scales = torch.rand(64).add(0.1).to(dtype)

    def product(self, x):
        return aten._weight_int8pack_mm(x, self.q, self.scales)

    x = torch.randn(1, 512).to(dtype)
    weight = q.double() * scales.double()[:, None]
    check(run(Module(product, q=q, scales=scales), x), x, weight, 256)


def narrow_product(kind, rows, terms):
    """A product with a weight of that kind, what it holds, and the weight in f64."""
    q = torch.randint(-8, 8, (rows, terms), dtype=torch.int8)
    scale = torch.rand(rows, terms // 32) + 0.1
    wide = scale.double().repeat_interleave(32, 1)
    if kind == "bytes":
        held = {"q": q, "scale": scale[:, 0].contiguous()}
        weight = q.double() * held["scale"].double()[:, None]
        return lambda self, x: aten._weight_int8pack_mm(x, self.q, self.scale), held, weight
    if kind == "nibbles":
        pairs = torch.stack([scale.t(), torch.randn(terms // 32, rows)], 2).contiguous()
        q4 = aten._convert_weight_to_int4pack_for_cpu(q.int() + 8, 1)
        weight = q.double() * wide + pairs[:, :, 1].t().double().repeat_interleave(32, 1)
        return (
            lambda self, x: aten._weight_int4pack_mm_for_cpu(x, self.q, 32, self.pairs),
            {"q": q4, "pairs": pairs},
            weight,
        )
    zero = torch.randint(-8, 8, scale.shape, dtype=torch.int8) if kind == "zeros" else None
    moved = 0 if zero is None else zero.double().repeat_interleave(32, 1)

    def product(self, x):
        return F.linear(x, affine(self.q, self.scale, self.zero, 32, -8, 7))

    return product, {"q": q, "scale": scale, "zero": zero}, (q.double() - moved) * wide


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("zero", [0, 3, 100])
@pytest.mark.parametrize("kind", ["groups", "zeros", "bytes", "nibbles"])
def test_a_row_of_bytes(kind, zero, dtype):
    """Sums of integers are exact. A group is scaled twice, gets its offset and is added: three or
    four roundings of what is at most 256 sa |w|; so is the row's sum of weights, of |za| sa |w|,
    and what is left rounds twice more: 6 and 3 for each of four groups, 2**-24 each. Offsets of
    nibbles are held to that as well, though |w| may be less than its two parts."""
    torch.manual_seed(zero)
    product, held, weight = narrow_product(kind, 64, 128)
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    unpack = torch.ops.quantized_decomposed.dequantize_per_tensor.default

    def quantized(self, x):
        return product(self, unpack(x, 0.02, zero, least, most, dtype))

    x = torch.randint(least, most + 1, (1, 128)).to(dtype)
    result = run(Module(quantized, **held), x).double()
    scale = torch.tensor(0.02).double()  # rounds once more
    expected = ((x.double() - zero) * scale) @ weight.t()
    magnitude = (256 + abs(zero)) * scale * weight.abs().sum(1)
    assert ((result - expected).abs() <= (6 + 3 * 4) * 2.0**-24 * magnitude).all()


def test_a_bias_and_what_follows():
    torch.manual_seed(0)
    q = torch.randint(-8, 8, (32, 64), dtype=torch.int8)
    scale, bias = torch.rand(32, 2), torch.randn(32)
    weight = q.double() * scale.double().repeat_interleave(32, 1)

    def product(self, x):
        return F.silu(F.linear(x, affine(self.q, self.scale, None, 32, -8, 7), self.bias))

    x = torch.randn(1, 64)
    result = run(Module(product, q=q, scale=scale, bias=bias), x)
    expected = F.silu(x.double() @ weight.t() + bias.double())
    torch.testing.assert_close(result, expected.float())


@pytest.mark.parametrize("count", [2, 5])
def test_products_of_one_row_stay_apart(count):
    """Those of equal sizes would be one kernel, and hold no sums of groups."""
    torch.manual_seed(0)
    layers = nn.Sequential(*[nn.Linear(64, 32) for _ in range(count)])
    ao.quantize_(layers, ao.IntxWeightOnlyConfig(torch.int4, PerGroup(32)))
    x = torch.randn(1, 64)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = compile_with(lambda x: [layer(x) for layer in layers], freeze=True, report=True)
        results = compiled(x)
        expected = [layer(x) for layer in layers]
    assert reported_kernels().count(JOINED) == count
    torch.testing.assert_close(results, expected)


def test_several_rows_read_floats():
    torch.manual_seed(0)
    q = torch.randint(-8, 8, (32, 64), dtype=torch.int8)
    module = of_four_bits(q, torch.rand(32, 2))
    x = torch.randn(5, 64)
    torch.testing.assert_close(run(module, x, joins=False), module(x))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_what_is_no_number_gives_none(value):
    x = torch.ones(1, 64)
    x[0, 40] = value
    q = torch.ones(32, 64, dtype=torch.int8)
    assert run(of_four_bits(q, torch.ones(32, 2)), x).isnan().all()


@pytest.mark.parametrize("value", [0.0, 1e-38, 1e-25, 1e35])
def test_small_and_large_numbers(value):
    q = torch.full((32, 64), 3, dtype=torch.int8)
    result = run(of_four_bits(q, torch.ones(32, 2)), torch.full((1, 64), value)).double()
    assert ((result - 192 * value).abs() <= 192 * (value * 2.0**-21 + 1e-30 * 2.0**-24)).all()


def test_integers_out_of_their_range_are_no_numbers():
    q = torch.zeros(32, 64, dtype=torch.int8)
    q[3, 40], q[4, 1] = 8, -9
    result = run(of_four_bits(q, torch.ones(32, 2)), torch.ones(1, 64)).isnan()
    assert result[0, 3] and result[0, 4] and result.sum() == 2


def config_of(name):
    if name == "int8":
        return ao.Int8WeightOnlyConfig()
    if name == "int4":
        return ao.IntxWeightOnlyConfig(torch.int4, PerGroup(32))
    return ao.Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["int4", "int8", "dynamic, int4"])
def test_tensors_of_torchao(name, dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 32)).to(dtype)
    ao.quantize_(module, config_of(name))
    x = torch.randn(1, 128).to(dtype)
    with torch.no_grad():
        expected = module(x)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(run(module, x), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("wide", [300, -300, 2**33 + 5])
def test_zero_points_that_are_no_bytes_are_no_numbers(wide):
    """Their sums might leave 32 bits."""
    q = torch.zeros(32, 64, dtype=torch.int8)
    zero = torch.zeros(32, 2, dtype=torch.int64)
    zero[5, 1] = wide

    def product(self, x):
        return F.linear(x, affine(self.q, self.scale, self.zero, 32, -8, 7))

    result = run(Module(product, q=q, scale=torch.ones(32, 2), zero=zero), torch.ones(1, 64))
    assert result.isnan()[0, 5] and result.isnan().sum() == 1


REFUSALS = {
    "tandem.pack_terms(%x, 4, 4)": ["u8[33, 8]", "u8[32, 12]", "i8[32, 8]"],
    "tandem.pack_terms(%x, 4, 3)": ["u8[32, 8]"],
    "tandem.pack_terms(%x, 2, 4)": ["u8[32, 8]"],
    "tandem.row_panels(%x)": ["f32[33, 3]", "f32[32]"],
    "tandem.unpack_int4(%x)": ["u8[24, 32]", "i8[32, 32]", "u8[64]"],
    "tandem.group_sums(%x, %p, 32, 4, 4)": ["u8[1, 64]", "i8[1, 96]", "i8[64]"],
    "tandem.group_sums(%x, %p, 48, 4, 4)": ["i8[1, 64]"],
}


@pytest.mark.parametrize(("call", "type"), [(c, t) for c, ts in REFUSALS.items() for t in ts])
def test_refusals_name_the_operator(call, type):
    operator = call.split("(")[0].replace(".", "::")
    text = f"graph @g(%x: {type}, %p: i32[2, 8, 32]) {{\n  %0 = {call}\n  return %0\n}}\n"
    with pytest.raises(tandem.UserError, match=operator):
        tandem.compile_text(text)
