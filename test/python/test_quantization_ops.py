"""Quantization ops where samples do not reach: through torch.compile, bit for bit, as nodes that
passes find, at places where eager's own answers depend on the data."""

import subprocess
from pathlib import Path

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers quantized_decomposed)
from compiled import compile_with
from graphs import build

import tandem

q = torch.ops.quantized_decomposed
aten = torch.ops.aten
TANDEM = Path(tandem.__file__).parents[2] / "bin/tandem"


def same(actual, expected):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert torch.equal(actual, expected), (actual - expected).abs().max()


def static(x, w, s, z):
    """Quantized activations and weights, as a converted model has them."""
    a = q.quantize_per_tensor(x, 0.05, 3, 0, 255, torch.uint8)
    a = q.dequantize_per_tensor(a, 0.05, 3, 0, 255, torch.uint8)
    b = q.quantize_per_channel(w, s, z, 0, -127, 127, torch.int8)
    return a, b, q.dequantize_per_channel(b, s, z, 0, -127, 127, torch.int8)


def dynamic(x, w, s, z):
    scale, zero = q.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
    a = q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return scale, zero, q.dequantize_per_tensor.tensor(a, scale, zero, -128, 127, torch.int8)


def by_token(x, w, s, z):
    scale, zero = q.choose_qparams_per_token_asymmetric(x, torch.int8)
    a = q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
    return a, q.dequantize_per_token(a, scale, zero, -128, 127, torch.int8, torch.float32)


def integers(x, w, s, z):
    a = q.quantize_per_tensor(x, 0.05, 0, -128, 127, torch.int8)
    b = q.quantize_per_channel(w, s, z, 0, -128, 127, torch.int8)
    return aten._int_mm(a, b.t()), aten._int_mm(a, b.t()).float() * s


@pytest.mark.parametrize("model", [static, dynamic, by_token, integers])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_through_torch_compile(model, dtype):
    torch.manual_seed(0)
    x, w = torch.randn(7, 48).to(dtype), torch.randn(24, 48)
    s, z = torch.rand(24) * 0.02 + 0.01, torch.randint(-3, 4, (24,))
    compiled = compile_with(model)
    for actual, expected in zip(compiled(x, w, s, z), model(x, w, s, z), strict=True):
        same(actual, expected)


def test_one_sided_activations_keep_zero_in_range():
    """What Inductor's decomposition does not: every value would become 1."""
    x = torch.linspace(10, 11, 64)

    def model(x):
        scale, zero = q.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        a = q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        return q.dequantize_per_tensor.tensor(a, scale, zero, 0, 255, torch.uint8)

    actual = compile_with(model)(x)
    same(actual, model(x))
    assert (actual - x).abs().max() < 0.03


@pytest.mark.parametrize("form", ["tensor", "channel", "torch.ao"])
def test_training_with_fake_quantization(form):
    torch.manual_seed(0)
    w = torch.randn(6, 16, requires_grad=True)
    x = torch.randn(5, 16)
    scale = torch.full((6,), 0.02)
    zero = torch.tensor([1, 0, -1, 2, 0, 3], dtype=torch.int32)

    def model(w, x):
        if form == "tensor":
            faked = torch.fake_quantize_per_tensor_affine(w, 0.02, 1, -64, 63)
        elif form == "channel":
            faked = torch.fake_quantize_per_channel_affine(w, scale, zero, 0, -64, 63)
        else:
            faked = q.fake_quant_per_channel(w, scale, zero, 0, -64, 63)
        return (x @ faked.t()).square().sum()

    (expected,) = torch.autograd.grad(model(w, x), w)
    (actual,) = torch.autograd.grad(compile_with(model)(w, x), w)
    torch.testing.assert_close(actual, expected)
    assert (actual == 0).sum() == (expected == 0).sum() > 0  # outside of the range


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_parameters_follow_a_moving_average(by_row, symmetric):
    """As training uses it: steps that observe and quantize, then one with fixed parameters."""
    torch.manual_seed(0)
    count = 4 if by_row else 1

    def state():
        ends = torch.full((count,), torch.inf), torch.full((count,), -torch.inf)
        return [*ends, torch.ones(count), torch.zeros(count, dtype=torch.int32)]

    def step(x, observe, fake, low, high, scale, zero):
        y = torch.fused_moving_avg_obs_fake_quant(
            x, observe, fake, low, high, scale, zero, 0.1, -128, 127, 0, by_row, symmetric
        )
        return y.square()

    compiled = compile_with(step)
    ours, theirs = state(), state()
    for observe, fake, size in [(1, 1, 1), (1, 1, 3), (1, 0, 5), (0, 1, 9), (1, 1, 1e-7)]:
        x = torch.randn(4, 33).mul(size).requires_grad_()
        flags = torch.tensor([observe]), torch.tensor([fake])
        expected, actual = step(x, *flags, *theirs), compiled(x, *flags, *ours)
        same(actual, expected)
        for a, e in zip(ours, theirs, strict=True):
            same(a, e)
        gradient = [torch.autograd.grad(y.sum(), x)[0] for y in (actual, expected)]
        same(*gradient)


def test_products_with_packed_weights():
    torch.manual_seed(0)
    x = torch.randn(5, 128)
    whole = torch.randint(0, 16, (96, 128), dtype=torch.int32)
    packed = aten._convert_weight_to_int4pack_for_cpu(whole, 1)
    parameters = torch.rand(4, 96, 2)
    weight = torch.randint(-128, 128, (96, 128), dtype=torch.int8)

    def model(x):
        four = aten._weight_int4pack_mm_for_cpu(x, packed, 32, parameters)
        return four, aten._weight_int8pack_mm(x, weight, parameters[0, :, 0].contiguous())

    scale, zero = parameters.repeat_interleave(32, 0).permute(2, 1, 0).double()
    expected = x.double() @ ((whole - 8) * scale + zero).t()
    four, eight = compile_with(model)(x)
    torch.testing.assert_close(four, expected.float(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(eight, model(x)[1], rtol=1e-5, atol=1e-3)


def test_int8_products_sum_in_32_bits():
    """Pairs of products do not saturate, as they do in instructions for pairs of u8 and i8."""
    a = torch.full((3, 640), 255, dtype=torch.uint8)
    b = torch.full((640, 5), -128, dtype=torch.int8)
    (actual,) = build("%a: u8[3, 640], %b: i8[640, 5]", "%r = aten._int_mm(%a, %b)").run([a, b])
    assert (actual == -255 * 128 * 640).all()


def test_bounds_that_tensors_give_are_checked():
    body = "%r = quantized_decomposed.quantize_per_tensor.tensor2(%x, %s, %z, %l, %h, u8)"
    executable = build("%x: f32[4], %s: f32[], %z: i64[], %l: i64[], %h: i64[]", body)
    x, s, z = torch.ones(4), torch.tensor(0.5), torch.tensor(1)
    same(executable.run([x, s, z, torch.tensor(0), torch.tensor(2)])[0], torch.full((4,), 2).byte())
    with pytest.raises(tandem.UserError, match="quant_max is outside of the range of u8"):
        executable.run([x, s, z, torch.tensor(0), torch.tensor(256)])


def test_dtypes_of_tokens():
    call = "quantized_decomposed.choose_qparams_per_token(%x, u8)"
    with pytest.raises(tandem.UserError, match="dtype u8 is not i8"):
        build("%x: f32[3]", f"%r, %z = {call}")


NODES = [
    "quantized_decomposed.quantize_per_tensor(%x, 0.1, 0, 0, 255, u8)",
    "quantized_decomposed.quantize_per_channel(%x, %s, %z, 0, -128, 127, i8)",
    "quantized_decomposed.quantize_per_token(%x, %t, %t, -128, 127, i8)",
    "quantized_decomposed.dequantize_per_tensor(%q, 0.1, 0, -128, 127, i8)",
    "quantized_decomposed.dequantize_per_channel(%q, %s, %z, 0, -128, 127, i8)",
    "quantized_decomposed.dequantize_per_token(%q, %t, %t, -128, 127, i8, f32)",
    "quantized_decomposed.choose_qparams.tensor(%x, -128, 127, 1e-5, i8)",
    "quantized_decomposed.choose_qparams_per_token(%x, i8)",
    "torchao.quantize_affine(%x, [1, 64], %s, %z, i8)",
    "torchao.dequantize_affine(%q, [1, 64], %s, %z, i8)",
    'torchao.choose_qparams_affine(%x, "SYMMETRIC", [1, 64], i8)',
    "aten._int_mm(%q, %p)",
    "aten._weight_int8pack_mm(%x, %w, %s)",
    "aten._weight_int4pack_mm_for_cpu(%x, %u, 32, %g)",
]


@pytest.mark.parametrize("call", NODES)
def test_is_a_node_where_patterns_are_sought(call, tmp_path):
    """After decompose_composite, which takes apart what has no gradient rule and no reason why."""
    results = "%r, %r1" if "choose" in call else "%r"
    text = tmp_path / "one.tir"
    inputs = "%x: f32[3, 64], %s: f32[3], %z: i64[3], %t: f32[3, 1], %q: i8[3, 64], %p: i8[64, 3]"
    inputs += ", %w: i8[3, 64], %u: u8[16, 32], %g: f32[2, 16, 2]"
    text.write_text(f"graph @one({inputs}) {{\n  {results} = {call}\n  return {results}\n}}\n")
    passes = ["--pass", "functionalize", "--pass", "decompose_composite"]
    command = [str(TANDEM), "opt", *passes, str(text)]
    graph = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert call.split("(")[0] + "(" in graph


def test_sizes_that_vary():
    torch.manual_seed(0)

    def model(x, w, s, z):
        scale, zero = q.choose_qparams_per_token_asymmetric(x, torch.int8)
        a = q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        b = q.quantize_per_channel(w, s, z, -1, -128, 127, torch.int8)
        return q.dequantize_per_token(a, scale, zero, -128, 127, torch.int8, torch.float32), b

    compiled = compile_with(model, dynamic=True)
    for rows in (2, 5, 33):
        x, w = torch.randn(rows, 3, 16), torch.randn(rows, 8)
        s, z = torch.rand(8) + 0.1, torch.randint(-3, 4, (8,))
        for actual, expected in zip(compiled(x, w, s, z), model(x, w, s, z), strict=True):
            same(actual, expected)


BLOCKS = [
    "torchao.quantize_affine(%x, [1, 32], %s, %z, i8)",
    'torchao.choose_qparams_affine(%x, "ASYMMETRIC", [1, 32], i8, keepdim=true)',
    "quantized_decomposed.quantize_per_channel_group(%x, %s, %z, -8, 7, i8, 32)",
]


@pytest.mark.parametrize("call", BLOCKS)
def test_blocks_of_sizes_that_vary(call):
    inputs = "%x: f32[s0, 64], %s: f32[s0, 2], %z: i64[s0, 2]"
    results = "%r, %r1" if "choose" in call else "%r"
    where = "s0 in [2, 4096]"
    executable = build(inputs, f"{results} = {call}", results, where)
    for rows in (2, 7):
        x, s, z = torch.randn(rows, 64), torch.rand(rows, 2) + 0.1, torch.ones(rows, 2).long()
        known = {"x": x, "s": s, "z": z}
        actual = executable.run([known[name] for name in executable.inputs])
        fixed = inputs.replace("s0", str(rows))
        expected = build(fixed, f"{results} = {call}", results).run([x, s, z])
        assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))
