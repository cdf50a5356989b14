"""H1 to H10: graphs that look like others and mean something else."""

import pytest
import torch
import torch.nn.functional as F
from behaviours import behaviour
from converted import WIDENS, Q, check, check_bits, compiled_once, distance, quantize
from torch import nn

RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


def integers(*sizes, dtype=torch.uint8):
    low, high = RANGES[dtype]
    return torch.randint(low, high + 1, sizes, dtype=dtype)


def dq(q, scale=0.02, zero=3, low=0, high=255):
    return Q.dequantize_per_tensor(q, scale, zero, low, high, q.dtype)


def quant(x, scale=0.02, zero=3, low=0, high=255, dtype=torch.uint8):
    return Q.quantize_per_tensor(x, scale, zero, low, high, dtype)


class Of(nn.Module):
    """`function` of inputs and constant buffers, whose weight is made by `weight`."""

    def __init__(self, function, q, scales, zeros, axis=0):
        super().__init__()
        self.function, self.axis = function, axis
        for name, value in (("q", q), ("scales", scales), ("zeros", zeros)):
            self.register_buffer(name, value)

    def forward(self, *inputs):
        low, high = RANGES[self.q.dtype]
        w = Q.dequantize_per_channel(
            self.q, self.scales, self.zeros, self.axis, low, high, self.q.dtype
        )
        return self.function(*inputs, w)


def model(function, *sizes, axis=0, zeros=None, dtype=torch.int8):
    count = sizes[axis]
    zeros = torch.zeros(count, dtype=torch.int64) if zeros is None else zeros
    return Of(function, integers(*sizes, dtype=dtype), torch.rand(count) * 0.02, zeros, axis)


def near(module, *inputs, products, reason=None, launches=None, dynamic=None):
    """Like eager; of integers, or not and why; beside kernels that widen its bytes, `launches`."""
    with torch.no_grad():
        expected = module(*inputs)
    result, graph = compiled_once(module, *inputs, int8=None, dynamic=dynamic)
    assert result.dtype == expected.dtype
    assert distance(result, expected) < 1e-5
    reasons = [each for _, each in graph["quantized products"]]
    assert reasons == ([""] * products if reason is None else [reason])
    if launches is not None:
        assert graph["forward"]["launches"] == launches + WIDENS
    return graph


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@behaviour("H1")
@pytest.mark.parametrize("alpha", [2, 0.5, -1])
@pytest.mark.parametrize("is_second", [True, False])
def test_alpha(alpha, is_second):
    def function(q, other, w):
        y = F.conv2d(dq(q), w)
        pair = (dq(other, 0.05), y) if is_second else (y, dq(other, 0.05))
        return torch.add(*pair, alpha=alpha)

    near(model(function, 8, 4, 1, 1), integers(2, 4, 5, 5), integers(2, 8, 5, 5), products=1)


@behaviour("H2")
def test_pool_between_two_scales():
    def function(q):
        return quant(F.max_pool2d(dq(q, 0.02, 3), 2), 0.05, 9)

    check_bits(function, integers(2, 8, 8, 8), launches=1)


PLACES = {
    "cat, other scales": lambda q: quant(torch.cat([dq(q), dq(q, 0.05)], 1)),
    "cat, other dtype": lambda q: quant(
        torch.cat([dq(q), dq(q)], 1), 0.02, 3, -128, 127, torch.int8
    ),
    "cat, narrower": lambda q: quant(torch.cat([dq(q), dq(q)], 1), high=100),
    "reshape, other dtype": lambda q: quant(dq(q).reshape(-1), 0.02, 3, -128, 127, torch.int8),
    "reshape, narrower": lambda q: quant(dq(q).reshape(-1), low=50, high=100),
    "reshape, other zero": lambda q: quant(dq(q).reshape(-1), zero=4),
}


@behaviour("H3")
@pytest.mark.parametrize("function", PLACES.values(), ids=PLACES.keys())
def test_other_dtype_or_range(function):
    check_bits(function, integers(4, 8), launches=1)


@behaviour("H4")
@pytest.mark.parametrize("bounds", [(0, 127), (10, 20)])
def test_narrow_bounds(bounds):
    low, high = bounds
    layer = model(lambda q, w: quant(F.linear(dq(q), w), 0.01, 12, low, high), 16, 32)
    q = integers(40, 32)
    with torch.no_grad():
        expected = layer(q)
    result, graph = compiled_once(layer, q)
    assert result.min() == expected.min() == low and result.max() == expected.max() == high
    assert (result.int() - expected.int()).abs().max() <= 1
    assert graph["forward"]["launches"] == 1 + WIDENS


@behaviour("H4")
def test_reduced_range():
    """Outliers beyond what was calibrated end at 127, as the graph says."""
    x = torch.randn(2, 3, 8, 8)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    check(quantize(network, x, reduce_range=True), 3 * x, products=2, launches=3)


TRANSPOSED = {
    "2x2, stride 2": dict(weight=(8, 6, 2, 2), stride=2),
    "3x3, stride 2": dict(weight=(8, 6, 3, 3), stride=2, padding=1, output_padding=1),
    "3x3": dict(weight=(8, 6, 3, 3), stride=1, padding=1),
    "4x4, padded": dict(weight=(8, 6, 4, 4), stride=2, padding=1),
    "beyond the last tap": dict(weight=(8, 6, 2, 2), stride=2, output_padding=1),
    "gaps": dict(weight=(8, 6, 2, 2), stride=3, output_padding=2),
    "two strides": dict(weight=(8, 6, 3, 2), stride=(3, 1), padding=(0, 1)),
    "groups": dict(weight=(8, 3, 3, 3), stride=2, padding=1, groups=2),
    "1-d": dict(weight=(8, 5, 5), stride=2),
    "3-d": dict(weight=(8, 5, 2, 3, 2), stride=2, padding=1),
}
transposed = pytest.mark.parametrize("case", TRANSPOSED.values(), ids=TRANSPOSED.keys())


def transpose_of(case):
    options = dict(case)
    sizes = options.pop("weight")
    function = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][len(sizes) - 3]
    return (lambda q, w: function(dq(q), w, **options)), sizes


@behaviour("H5")
@transposed
@pytest.mark.parametrize("is_whole", [True, False])
def test_transposed_convolution_by_result(case, is_whole):
    """Its results are dimension 1 of its weight."""
    function, sizes = transpose_of(case)
    q = integers(2, 8, *[5, 4, 3][: len(sizes) - 2])
    if not is_whole:
        near(model(function, *sizes, axis=1), q, products=1)
        return
    weight = integers(*sizes, dtype=torch.int8)
    near(lambda q: function(q, dq(weight, 0.01, 0, -128, 127)), q, products=1)


@behaviour("H5")
def test_transposed_convolution_of_a_batch_that_varies():
    function, sizes = transpose_of(TRANSPOSED["3x3, stride 2"])
    layer = model(function, *sizes, axis=1)
    near(layer, integers(5, 8, 7, 6), products=1, dynamic=True)


@behaviour("H5")
def test_transposed_convolution_by_term():
    function, sizes = transpose_of(TRANSPOSED["3x3, stride 2"])
    reason = "the scales of its right factor run along its terms"
    near(model(function, *sizes), integers(2, 8, 5, 5), products=0, reason=reason)


@behaviour("H5")
def test_transposed_convolution_that_stays():
    function, sizes = transpose_of(dict(weight=(8, 6, 3, 3), dilation=2))
    reason = "it is transposed and dilated"
    near(model(function, *sizes, axis=1), integers(2, 8, 5, 5), products=0, reason=reason)
    function, sizes = transpose_of(TRANSPOSED["3x3, stride 2"])
    reason = "it is transposed, and its weight has zero points"
    layer = model(function, *sizes, axis=1, zeros=torch.arange(6))
    near(layer, integers(2, 8, 5, 5), products=0, reason=reason)


@behaviour("H5")
def test_scales_along_the_terms():
    layer = model(lambda q, w: F.linear(dq(q), w), 16, 32, axis=1)
    reason = "the scales of its right factor run along its terms"
    near(layer, integers(4, 32), products=0, reason=reason)


@behaviour("H5")
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("activation", RANGES)
def test_zero_points_and_dtypes(dtype, activation):
    zeros = torch.arange(16) + (100 if dtype == torch.uint8 else -8)
    low, high = RANGES[activation]

    def linear(q, w):
        return F.linear(dq(q, 0.02, 3, low, high), w)

    def conv(q, w):
        return F.conv2d(dq(q, 0.02, 3, low, high), w, padding=1)

    rows = integers(4, 32, dtype=activation)
    near(model(linear, 16, 32, zeros=zeros, dtype=dtype), rows, products=1)
    image = integers(2, 8, 6, 6, dtype=activation)
    near(model(conv, 16, 8, 3, 3, zeros=zeros, dtype=dtype), image, products=1)


@behaviour("H6")
@pytest.mark.parametrize("bounds", [(1.0, -1.0), (float("nan"), 1.0), (-0.5, 0.5)])
def test_bounds_that_cross(bounds):
    def function(q, w):
        return torch.clamp(F.linear(dq(q), w), *bounds).nan_to_num(7.0)

    near(model(function, 16, 32), integers(4, 32), products=1, launches=1)


LAST = {
    "leaky_relu": F.leaky_relu,
    "leaky_relu of a tensor": lambda x: torch.where(x > 0, x, x * torch.full((1,), 0.3)),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "mish": F.mish,
}


@behaviour("H7")
@pytest.mark.parametrize("last", LAST.values(), ids=LAST.keys())
def test_any_activation_is_an_epilogue(last):
    layer = model(lambda q, w: last(F.linear(dq(q), w)), 16, 32)
    near(layer, integers(4, 32), products=1, launches=1)


@behaviour("H7")
def test_product_of_two_activations():
    def function(a, b):
        return torch.matmul(dq(a), dq(b, 0.04, 100))

    a, b = integers(2, 6, 16), integers(2, 16, 5)
    result, graph = compiled_once(function, a, b)
    assert distance(result, function(a, b)) < 1e-6
    assert [reason for _, reason in graph["quantized products"]] == [""]
    # The second factor in packs, the sums that zero points need of both, the product.
    assert graph["forward"]["launches"] == 4


@behaviour("H8")
@pytest.mark.parametrize("scales", [(1e-5, 1.9e-5), (2e-6, 1e-5)])
def test_small_scales_are_not_the_same(scales):
    before, after = scales

    def function(q):
        return quant(dq(torch.cat([q, q], 1), before), after)

    check_bits(function, integers(4, 8), launches=1)


@behaviour("H9")
def test_half_is_not_bfloat():
    def function(q, w):
        x, w = dq(q).half(), w.half()
        return F.linear(x, w)

    layer = model(function, 16, 32)
    q = integers(4, 32)
    with torch.no_grad():
        expected = layer(q)
    result, _ = compiled_once(layer, q)
    assert result.dtype == expected.dtype == torch.float16
    assert distance(result, expected) < 2e-3


@behaviour("H9")
def test_half_autocast():
    x = torch.randn(2, 3, 8, 8)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    converted = quantize(network, x)
    check(converted, x, products=2, autocast=torch.float16)


@behaviour("H10")
def test_addend_is_an_input():
    def function(q, other, w):
        return F.conv2d(dq(q), w) + other

    other = torch.randn(2, 8, 5, 5)
    kept = other.clone()
    near(model(function, 8, 4, 1, 1), integers(2, 4, 5, 5), other, products=1, launches=1)
    assert torch.equal(other, kept)


@behaviour("H10")
def test_addend_is_a_view_of_an_input():
    def function(q, other, w):
        return (F.linear(dq(q), w) + other[1:]).relu(), other

    module = model(lambda q, other, w: function(q, other, w)[0], 16, 32)
    other = torch.randn(5, 16)
    kept = other.clone()
    near(module, integers(4, 32), other, products=1, launches=1)
    assert torch.equal(other, kept)


@behaviour("H10")
def test_addend_is_read_again():
    """In another layer's epilogue and in the result."""

    def function(q, w):
        y = F.conv2d(dq(q), w)
        z = quant(y)
        return F.conv2d(dq(z), w) + dq(z) + F.max_pool2d(dq(z), 3, 1, 1)

    near(model(function, 4, 4, 1, 1), integers(2, 4, 5, 5), products=2)


@behaviour("H10")
def test_four_bits_with_another_reader():
    """The activation has a reader that is no product."""
    whole = torch.randint(0, 16, (64, 128), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1)
    parameters = torch.rand(4, 64, 2)

    def function(x):
        four = torch.ops.aten._weight_int4pack_mm_for_cpu
        y = four(x, packed, 32, parameters), four(x, packed, 32, parameters * 2)
        return torch.cat([*y, x.exp()], 1)

    x = torch.randn(3, 128)
    result, _ = compiled_once(function, x)
    scale, zero = parameters.repeat_interleave(32, 0).permute(2, 1, 0).double()
    once = x.double() @ ((whole - 8) * scale + zero).t()
    expected = torch.cat([once, 2 * once, x.double().exp()], 1)
    assert distance(result, expected) < 1e-6
