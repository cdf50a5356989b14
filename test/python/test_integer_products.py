"""Products of dequantized factors: to the bit the integer sum, scaled once, and as near to eager's
sums of floats as floats are. With and without instructions for bytes."""

import re

import pytest
import tandem
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers the operators
import torch.nn.functional as F
from compiled import compile_with, reported_kernels
from machine import ISAS, multiplies_bytes
from torch import nn

Q = torch.ops.quantized_decomposed
RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", request.param)
    return request.param


def integers(dtype, *sizes):
    low, high = RANGES[dtype]
    return torch.randint(low, high + 1, sizes, dtype=dtype)


def zero_points(count, has_any=False):
    return torch.randint(-9, 9, (count,)) if has_any else torch.zeros(count, dtype=torch.int64)


class Weight(nn.Module):
    """Quantized for each of its first dimension, or as a whole where `scale` is a number."""

    def __init__(self, q, zeros, scale=None):
        super().__init__()
        self.scale = scale
        self.register_buffer("q", q)
        self.register_buffer("scales", torch.rand(q.shape[0]) * 0.02 + 0.001)
        self.register_buffer("zeros", zeros)

    def forward(self):
        low, high = RANGES[self.q.dtype]
        if self.scale is not None:
            zero = int(self.zeros[0])
            return Q.dequantize_per_tensor(self.q, self.scale, zero, low, high, self.q.dtype)
        return Q.dequantize_per_channel(self.q, self.scales, self.zeros, 0, low, high, self.q.dtype)

    def centred(self):
        return self.q.double() - self.zeros.view(-1, *[1] * (self.q.dim() - 1))


class Layer(nn.Module):
    """`operator` of a quantized input and a weight."""

    def __init__(self, operator, weight, bias, scale, zero, dtype):
        super().__init__()
        self.operator, self.weight = operator, weight
        self.bias = nn.Parameter(bias) if bias is not None else None
        self.scale, self.zero, self.dtype = scale, zero, dtype

    def forward(self, q):
        low, high = RANGES[self.dtype]
        x = Q.dequantize_per_tensor(q, self.scale, self.zero, low, high, self.dtype)
        return self.operator(x, self.weight(), self.bias)

    def exact(self, q):
        """As the program rounds: once to f32, once by the scale, once by the bias."""
        sums = self.operator(q.double() - self.zero, self.weight.centred(), None).float()
        each = [1] * (sums.dim() - 1)
        of_images = sums.dim() > 2 and self.weight.q.dim() > 2
        places = (1, -1, *each[1:]) if of_images else (*each, -1)
        if self.weight.scale is None:
            sums = sums * (self.weight.scales * self.scale).view(places)
        else:
            sums = sums * self.weight.scale * self.scale
        return sums if self.bias is None else sums + self.bias.view(places)


def steps():
    return [step for step in reported_kernels().split("\n") if step.startswith("  launch")]


def check(layer, *inputs):
    layer.eval()
    with torch.no_grad():
        compiled = compile_with(layer, freeze=True, report=True)
        for q in inputs:
            result = compiled(q)
            assert torch.equal(result, layer.exact(q)), (result - layer.exact(q)).abs().max()
            # Eager sums floats: terms of up to 70, partial sums of some 700, which round by 4e-5
            # each; of 576 terms that is 24 times as much at random, 1e-3, twice over.
            torch.testing.assert_close(result, layer(q), rtol=2e-5, atol=2e-3)
    assert "library" not in "".join(steps())
    return compiled


ZERO = {"no zero points": False, "zero points": True}


@pytest.mark.parametrize("has_zeros", ZERO.values(), ids=ZERO.keys())
@pytest.mark.parametrize("rows", [1, 3, 5, 37, 130])
@pytest.mark.parametrize(("terms", "results"), [(1, 1), (5, 7), (64, 33), (130, 64)])
@pytest.mark.parametrize("dtype", RANGES)
def test_linear(isa, rows, terms, results, dtype, has_zeros):
    torch.manual_seed(rows * terms)
    weight = Weight(integers(torch.int8, results, terms), zero_points(results, has_zeros))
    layer = Layer(F.linear, weight, torch.randn(results), 0.02, 7 if has_zeros else 0, dtype)
    check(layer, integers(dtype, rows, terms))


def test_saturating_factors_do_not_saturate(isa):
    """u8 times s8 by pairs of 16 bits would: 255 * 127 * 2 > 32767."""
    weight = Weight(torch.full((16, 256), 127, dtype=torch.int8), zero_points(16))
    layer = Layer(F.linear, weight, None, 0.02, 0, torch.uint8)
    check(layer, torch.full((8, 256), 255, dtype=torch.uint8))
    layer.weight.q.fill_(-128)
    check(layer, torch.full((8, 256), 255, dtype=torch.uint8))


def test_linear_of_more_dimensions_and_a_symbolic_batch(isa):
    weight = Weight(integers(torch.int8, 24, 40), zero_points(24))
    layer = Layer(F.linear, weight, torch.randn(24), 0.05, 128, torch.uint8)
    inputs = [integers(torch.uint8, batch, 6, 40) for batch in (2, 5, 9)]
    check(layer, *inputs)


CONVOLUTIONS = {
    "3x3": dict(image=(2, 8, 9, 11), weight=(20, 8, 3, 3), padding=1),
    "first of a network": dict(image=(1, 3, 20, 20), weight=(16, 3, 7, 7), padding=3, stride=2),
    "1x1": dict(image=(2, 32, 7, 7), weight=(16, 32, 1, 1)),
    "1x1 with a stride": dict(image=(2, 16, 9, 9), weight=(40, 16, 1, 1), stride=2),
    "3x3 with a stride": dict(image=(2, 16, 29, 30), weight=(64, 16, 3, 3), padding=1, stride=2),
    "strides as long as the kernel": dict(
        image=(1, 20, 15, 22), weight=(32, 20, 3, 2), stride=(3, 2)
    ),
    "dilated with a stride": dict(
        image=(1, 16, 31, 29), weight=(32, 16, 3, 3), padding=2, stride=(2, 3), dilation=(3, 2)
    ),
    "1x1 with a stride, many channels": dict(
        image=(3, 128, 14, 13), weight=(96, 128, 1, 1), stride=2
    ),
    # 2.3 MiB of weights: several images are one task.
    "small images": dict(image=(3, 256, 7, 7), weight=(1024, 256, 3, 3), padding=1),
    "small images with a stride": dict(
        image=(2, 256, 9, 9), weight=(1024, 256, 3, 3), padding=1, stride=2
    ),
    "dilated": dict(image=(1, 12, 13, 9), weight=(8, 12, 3, 2), padding=2, dilation=(2, 3)),
    "channels that fill no pack": dict(image=(1, 6, 8, 8), weight=(10, 6, 3, 3), padding=1),
    "groups": dict(image=(2, 16, 8, 8), weight=(24, 4, 3, 3), padding=1, groups=4),
    "depthwise": dict(image=(2, 32, 12, 12), weight=(32, 1, 3, 3), padding=1, groups=32),
    "depthwise, strided": dict(
        image=(2, 48, 17, 15), weight=(48, 1, 3, 3), padding=1, stride=2, groups=48
    ),
    "depthwise, 5x5": dict(image=(1, 20, 12, 9), weight=(20, 1, 5, 5), padding=2, groups=20),
    "depthwise, 7x7, strided": dict(
        image=(2, 33, 14, 15), weight=(33, 1, 7, 7), padding=3, stride=2, groups=33
    ),
    "depthwise, dilated": dict(
        image=(1, 16, 13, 11), weight=(16, 1, 3, 2), padding=2, dilation=2, groups=16
    ),
    "depthwise, 3-d": dict(image=(1, 8, 5, 6, 7), weight=(8, 1, 3, 3, 3), padding=1, groups=8),
    "one channel": dict(image=(2, 1, 8, 8), weight=(8, 1, 3, 3), padding=1),
    "1-d": dict(image=(2, 8, 33), weight=(12, 8, 5), padding=2),
    "3-d": dict(image=(1, 4, 5, 6, 7), weight=(9, 4, 3, 2, 3), padding=1),
    "an image as large as a kernel": dict(image=(3, 8, 3, 3), weight=(5, 8, 3, 3)),
}


@pytest.mark.parametrize("has_zeros", ZERO.values(), ids=ZERO.keys())
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution(isa, case, dtype, has_zeros):
    torch.manual_seed(1)
    case = dict(case)
    image, sizes = case.pop("image"), case.pop("weight")
    function = [F.conv1d, F.conv2d, F.conv3d][len(image) - 3]
    results = sizes[0]
    weight = Weight(integers(torch.int8, *sizes), zero_points(results, has_zeros))
    zero = 0 if not has_zeros else 131 if dtype == torch.uint8 else -5

    def operator(x, w, b):
        return function(x, w, b, **case)

    layer = Layer(operator, weight, torch.randn(results), 0.03, zero, dtype)
    check(layer, integers(dtype, *image))


class SevenBits(Layer):
    """What is quantized here, to 0 to 127: two products fit into 16 bits."""

    def integers(self, x):
        return Q.quantize_per_tensor(x, self.scale, self.zero, 0, 127, torch.uint8)

    def forward(self, x):
        return super().forward(self.integers(x))

    def exact(self, x):
        return super().exact(self.integers(x))


def sums_of_bytes():
    """How the kernels of the last graph sum products of bytes."""
    return set(re.findall(r"\bdot4\w*|\bdot2", tandem.report()["graphs"][-1]["kernels"]))


def how_seven_bits_are_summed():
    return {"dot4"} if multiplies_bytes() else {"dot4_saturating"}


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution_of_seven_bits(isa, case):
    torch.manual_seed(2)
    case = dict(case)
    image, sizes = case.pop("image"), case.pop("weight")
    function = [F.conv1d, F.conv2d, F.conv3d][len(image) - 3]
    weight = Weight(integers(torch.int8, *sizes), zero_points(sizes[0]))

    def operator(x, w, b):
        return function(x, w, b, **case)

    layer = SevenBits(operator, weight, torch.randn(sizes[0]), 0.03, 63, torch.uint8)
    check(layer, torch.randn(*image))
    if sizes[1] > 2:
        assert sums_of_bytes() == how_seven_bits_are_summed()


@pytest.mark.parametrize("rows", [1, 5, 37, 130])
def test_linear_of_seven_bits(isa, rows):
    """The greatest sums of two: 2 * 127 * 128, of either sign."""
    q = integers(torch.int8, 48, 70)
    q[:8], q[8:16] = -128, 127
    layer = SevenBits(F.linear, Weight(q, zero_points(48)), None, 0.02, 0, torch.uint8)
    x = torch.randn(rows, 70)
    x[0] = 99.0
    check(layer, x)
    assert sums_of_bytes() == how_seven_bits_are_summed()


def test_eight_bits_are_not_summed_in_sixteen(isa):
    """Bytes that somebody else quantized may be greater than their dequantization says."""
    weight = Weight(torch.full((32, 64), 127, dtype=torch.int8), zero_points(32))

    def claimed(q):
        return F.linear(Q.dequantize_per_tensor(q, 0.02, 0, 0, 127, torch.uint8), weight())

    def viewed(x):
        q = Q.quantize_per_tensor(x, 0.02, 0, -128, 127, torch.int8).view(torch.uint8)
        return claimed(q)

    q, x = torch.full((8, 64), 255, dtype=torch.uint8), torch.full((8, 64), -0.02)
    for function, operand in ((claimed, q), (viewed, x)):
        with torch.no_grad():
            found = compile_with(function, report=True)(operand)
        assert "dot4_saturating" not in sums_of_bytes()
        torch.testing.assert_close(found, function(operand))


@pytest.mark.parametrize("dtypes", [(a, b) for a in RANGES for b in RANGES])
def test_product_of_two_activations(isa, dtypes):
    """Attention's: views between a factor and its quantization, both with zero points."""
    a, b = integers(dtypes[0], 2, 9, 4, 16), integers(dtypes[1], 2, 11, 4, 16)

    zero = 250 if dtypes[1] == torch.uint8 else -2

    def scores(a, b):
        x = Q.dequantize_per_tensor(a, 0.02, 3, *RANGES[a.dtype], a.dtype)
        y = Q.dequantize_per_tensor(b, 0.05, zero, *RANGES[b.dtype], b.dtype)
        return x.permute(0, 2, 1, 3) @ y.permute(0, 2, 3, 1)

    result = compile_with(scores, report=True)(a, b)
    sums = (a.double() - 3).permute(0, 2, 1, 3) @ (b.double() - zero).permute(0, 2, 3, 1)
    assert torch.equal(result, sums.float() * 0.05 * 0.02)
    torch.testing.assert_close(result, scores(a, b))
    assert "packed_mm" in reported_kernels()


def quantized(x, scale, zero, dtype=torch.uint8):
    q = Q.quantize_per_tensor(x, scale, zero, *RANGES[dtype], dtype)
    return Q.dequantize_per_tensor(q, scale, zero, *RANGES[dtype], dtype)


class Network(nn.Module):
    """Two convolutions with a residual between them, pooling and a linear layer."""

    def __init__(self):
        super().__init__()
        nothing = zero_points(16)
        self.first = Weight(integers(torch.int8, 16, 8, 3, 3), nothing)
        self.second = Weight(integers(torch.int8, 16, 16, 3, 3), nothing)
        self.last = Weight(integers(torch.int8, 10, 16), zero_points(10))
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x):
        x = quantized(x, 0.02, 120)
        y = quantized(F.conv2d(x, self.first(), self.bias, padding=1).relu(), 0.05, 0)
        z = quantized(F.relu(F.conv2d(y, self.second(), None, padding=1) + y), 0.5, 0)
        z = quantized(F.max_pool2d(z, 2), 0.5, 0)
        return F.linear(quantized(z.mean((2, 3)), 0.25, 3), self.last())


def test_a_network_is_one_kernel_a_product(isa):
    network = Network().eval()
    x = torch.randn(2, 8, 12, 12)
    with torch.no_grad():
        compiled = compile_with(network, freeze=True, report=True)
        result, expected = compiled(x), network(x)
    # A step of a quantization between, where sums of floats round to the other side of a tie.
    assert (result - expected).norm() <= 1e-2 * expected.norm()
    graph = tandem.report()["graphs"][-1]
    # The input's quantization, three products, a pool and a mean, each quantized where it is made.
    assert graph["forward"]["launches"] == 6
    assert graph["forward"]["library_calls"] == 0
    assert [reason for _, reason in graph["quantized products"]] == [""] * 3
    assert "quantized: 3 products of integers" in str(tandem.report())


def test_dynamic_quantization(isa):
    """Scale and zero point are computed at each call; one for all, or one for each token."""
    weight = Weight(integers(torch.int8, 24, 64), zero_points(24))
    bias = torch.randn(24)

    def whole(x):
        scale, zero = Q.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        q = Q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        x = Q.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, torch.uint8)
        return F.linear(x, weight(), bias)

    def tokens(x):
        scale, zero = Q.choose_qparams_per_token(x, torch.int8)
        q = Q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        x = Q.dequantize_per_token(q, scale, zero, -128, 127, torch.int8, torch.float32)
        return F.linear(x, weight(), bias)

    x = torch.randn(3, 5, 64)
    for function in (whole, tokens):
        with torch.no_grad():
            result = compile_with(function, report=True)(x)
        assert "packed_mm" in reported_kernels(), reported_kernels()
        torch.testing.assert_close(result, function(x), rtol=1e-4, atol=1e-4)


IMAGES = {
    "padded": dict(padding=1),
    "strides and a wide border": dict(padding=2, stride=2),
    "groups": dict(padding=1, groups=2),
    "transposed": dict(stride=2, padding=1, output_padding=1),
}


@pytest.mark.parametrize("has_zeros", ZERO.values(), ids=ZERO.keys())
@pytest.mark.parametrize("case", IMAGES.values(), ids=IMAGES.keys())
def test_dynamic_quantization_of_images(isa, case, has_zeros):
    """The border is a zero point that only the call tells."""
    is_transposed = "output_padding" in case
    q = integers(torch.int8, 8, 8 // case.get("groups", 1), 3, 3)
    weight = Weight(q, zero_points(8, has_zeros))
    function = F.conv_transpose2d if is_transposed else F.conv2d

    class Dynamic(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = weight, nn.Parameter(torch.randn(8))

        def dequantized(self):
            if not is_transposed:
                return self.weight()
            return Q.dequantize_per_tensor(self.weight.q, 0.01, 0, -128, 127, torch.int8)

        def forward(self, x):
            scale, zero = Q.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
            q = Q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
            x = Q.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, torch.uint8)
            return function(x, self.dequantized(), self.bias, **case)

    model, x = Dynamic().eval(), torch.randn(2, 8, 7, 9) + 0.5
    with torch.no_grad():
        compiled = compile_with(model, freeze=True, report=True, int8="require")
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        assert "packed_convolution" in reported_kernels()
        # Else the sums of the border are made at each call.
        torch.testing.assert_close(compile_with(model)(x), model(x), rtol=1e-4, atol=1e-4)
    [(_, reason)] = tandem.report()["graphs"][-1]["quantized products"]
    assert reason.endswith("its right factor is no constant")


def test_weights_that_are_no_longer_symmetric():
    weight = Weight(integers(torch.int8, 8, 16), zero_points(8))
    layer = Layer(F.linear, weight, None, 0.02, 5, torch.uint8).eval()
    q = integers(torch.uint8, 4, 16)
    with torch.no_grad():
        compiled = compile_with(layer, freeze=True)
        torch.testing.assert_close(compiled(q), layer(q))
        weight.zeros.add_(3)
        with pytest.warns(UserWarning, match="runs in torch"):
            result = compiled(q)
        torch.testing.assert_close(result, layer(q))


def long_product(x, q):
    return quantized(q.repeat(1, 4200), 0.1, 0) @ quantized(x.repeat(4200, 1), 0.1, 0)


def test_other_zeros_are_no_promise():
    """A buffer of zeros that is no zero point may become something else."""
    module = nn.Module()
    module.register_buffer("shift", torch.zeros(4, dtype=torch.int64))
    with torch.no_grad():
        compiled = compile_with(lambda x: x + module.shift, freeze=True)
        x = torch.randn(4)
        assert torch.equal(compiled(x), x)
        module.shift.add_(3)
        assert torch.equal(compiled(x), x + 3)
    assert tandem.report()["graphs"][-1]["calls in torch"] == 0


REFUSED = {
    "its left factor is not dequantized": lambda x, q: x @ quantized(q, 0.1, 0),
    "its right factor is not dequantized": lambda x, q: quantized(q, 0.1, 0) @ x,
    "its sums may not fit 32 bits": long_product,
}


@pytest.mark.parametrize(("reason", "function"), REFUSED.items(), ids=REFUSED.keys())
def test_what_stays_in_floats_says_why(reason, function):
    x, q = torch.randn(16, 16), torch.randn(16, 16)
    result = compile_with(function)(x, q)
    torch.testing.assert_close(result, function(x, q), rtol=1e-4, atol=1e-2)
    [(product, why)] = tandem.report()["graphs"][-1]["quantized products"]
    assert why == reason and product.startswith("aten.mm(f32[16, ")
    assert f"in floats: {product}: {reason}" in str(tandem.report())
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=reason):
        compile_with(function, int8="require")(x, q)
