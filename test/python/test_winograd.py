"""Convolutions by windows of 3x3 as products of tiles: when they are, and what they give."""

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import ERROR, compile_with, reported_kernels

# n, c, o, h, w, padding
SHAPES = {
    "residual": (2, 64, 64, 28, 28, 1),
    "one image": (1, 128, 96, 28, 28, 1),
    "wide": (1, 96, 80, 10, 90, 1),
    "without padding": (2, 64, 64, 30, 30, 0),
    "padding of two": (2, 64, 64, 26, 26, 2),
}


@pytest.fixture(params=["native", "avx2"])
def isa(request, monkeypatch):
    if request.param == "avx2":
        monkeypatch.setenv("TANDEM_ISA", "avx2")
    return request.param


def tensors(shape):
    torch.manual_seed(0)
    n, c, o, h, w, padding = shape
    image = torch.randn(n, c, h, w)
    weight = torch.randn(o, c, 3, 3) / (3 * c**0.5)
    return image, weight, torch.randn(o), padding


def goes_by_tiles():
    return "winograd_tiles" in reported_kernels()


def off(actual, exact):
    """Mean error, of the mean magnitude."""
    error = (actual.double() - exact).square().mean().sqrt()
    return (error / exact.square().mean().sqrt()).item()


def assert_as_exact(actual, eager, exact):
    """Transforms add a few roundings to a sum of some hundred terms, of values up to four times as
    large: in the mean 1.2 to 1.6 times eager's error, measured here. A wrong place would be 1e6
    times that."""
    assert off(actual, exact) <= 2 * off(eager, exact)
    # Of results of size 1: a sum of 9 c products, of transformed values of size 2,
    # has an error of about sqrt(9 c) * 2**-24 * 4 = 6e-6 at c = 64, and 20,000 of them up to three
    # times that.
    torch.testing.assert_close(actual.double(), exact, rtol=0, atol=2e-5)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_inference_is_as_exact_as_eager(name, freeze, last, isa):
    image, weight, bias, padding = tensors(SHAPES[name])
    if last:
        image = image.contiguous(memory_format=torch.channels_last)
    layer = torch.nn.Conv2d(*weight.shape[1::-1], 3, padding=padding)
    layer.load_state_dict({"weight": weight, "bias": bias})
    network = torch.nn.Sequential(layer, torch.nn.ReLU())
    with torch.no_grad():
        eager = network(image)
        actual = compile_with(network, freeze=freeze, report=True)(image)
        exact = F.conv2d(image.double(), weight.double(), bias.double(), padding=padding).relu()
    assert goes_by_tiles()
    assert_as_exact(actual, eager, exact)
    assert actual.stride() == eager.stride()


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_a_transposed_convolution_is_one_with_windows_turned_around(padding, isa):
    torch.manual_seed(0)
    layer = torch.nn.ConvTranspose2d(64, 80, 3, padding=padding)
    image = torch.randn(2, 64, 28, 28)
    with torch.no_grad():
        actual = compile_with(layer, report=True)(image)
        eager, exact = layer(image), layer.double()(image.double())
    assert goes_by_tiles()
    assert_as_exact(actual, eager, exact)


def test_a_training_step_keeps_windows():
    """It was no faster by tiles (docs/measured.md)."""
    image, weight, bias, padding = tensors(SHAPES["residual"])
    function = compile_with(lambda *t: F.conv2d(*t, padding=padding), report=True)
    function(image, weight.requires_grad_(), bias).sum().backward()
    assert not goes_by_tiles()


def test_any_number_of_threads_gives_the_same_bits():
    image, weight, bias, padding = tensors(SHAPES["residual"])
    function = compile_with(lambda *t: F.conv2d(*t, padding=padding).relu())
    with torch.no_grad():
        tandem.set_threads(1)
        wanted = function(image, weight, bias)
        for threads in (2, 3, 8):
            tandem.set_threads(threads)
            assert torch.equal(function(image, weight, bias), wanted)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e38])
def test_what_is_not_finite_stays_near(number):
    """In eager a place touches the results whose windows see it; here all of a tile of 4x4, and
    never fewer. 1e38 overflows in neither."""
    image, weight, bias, padding = tensors(SHAPES["residual"])
    image[0, 3, 11, 14] = number
    with torch.no_grad():
        eager = F.conv2d(image, weight, bias, padding=padding)
        actual = compile_with(
            lambda *t: F.conv2d(*t, padding=padding), report=True
        )(image, weight, bias)
    assert goes_by_tiles()
    near = torch.zeros(28, 28, dtype=torch.bool)
    near[9:14, 12:17] = True  # the window's 3x3, and what shares a block of 2x2 with it
    assert torch.equal(actual.isfinite() | eager.isfinite(), eager.isfinite())
    torch.testing.assert_close(actual[1], eager[1], rtol=1e-5, atol=2e-5)
    far = ~near.expand(64, 28, 28)
    torch.testing.assert_close(actual[0][far], eager[0][far], rtol=1e-5, atol=2e-5)


OTHERS = {
    "odd": dict(size=27),
    "few tiles": dict(size=6, channels=512),
    "stride": dict(stride=2),
    "dilation": dict(dilation=2, padding=2),
    "groups": dict(groups=2),
    "window": dict(kernel_size=5, padding=2),
    "bf16": dict(dtype=torch.bfloat16),
    "f64": dict(dtype=torch.float64),
    "few channels": dict(channels=4),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_convolutions(name):
    torch.manual_seed(0)
    how = {"kernel_size": 3, "padding": 1, "channels": 64, "size": 28} | OTHERS[name]
    dtype = how.pop("dtype", torch.float32)
    channels, size = how.pop("channels"), how.pop("size")
    layer = torch.nn.Conv2d(channels, channels, **how).to(dtype)
    image = torch.randn(2, channels, size, size, dtype=dtype)
    with torch.no_grad():
        actual = compile_with(layer, report=True)(image)
        tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(actual, layer(image), rtol=tolerance, atol=tolerance)
    assert not goes_by_tiles()


def test_a_batch_of_any_size():
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(64, 64, 3, padding=1)
    function = torch.compile(
        layer, backend=tandem.backend, dynamic=True, options=ERROR | {"report": True}
    )
    with torch.no_grad():
        for batch in (2, 3, 5):
            image = torch.randn(batch, 64, 28, 28)
            torch.testing.assert_close(function(image), layer(image), rtol=1e-5, atol=2e-5)


EVEN_SIDES = """
graph @g(%x: f32[s2, 256, s0, s1], %w: f32[64, 64, 3, 3])
    where s0 in [2, 30], s1 in [2, 30], s2 in [1, 2] {
  %p = aten.pixel_shuffle(%x, 2)
  %y = aten.convolution(%p, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %r = aten.relu(%y)
  return %r
}
"""


def test_sides_that_are_even_whatever_they_are():
    torch.manual_seed(0)
    weight = torch.randn(64, 64, 3, 3) / 24
    executable = tandem.compile_text(EVEN_SIDES, report=True)
    assert "winograd_tiles" in executable.report
    for n, h, w in ((2, 20, 24), (1, 30, 17), (1, 2, 3), (2, 7, 30)):
        image = torch.randn(n, 256, h, w)
        wanted = F.conv2d(F.pixel_shuffle(image, 2), weight, padding=1).relu()
        actual = executable.run([image, weight])[0]
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-5)
