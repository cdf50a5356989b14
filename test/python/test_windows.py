"""Convolutions of each channel by itself, between others: loops that know what they stand among
(schedule/map_window.cc). Against eager in every way that a window can move."""

import itertools

import pytest
import tandem
import torch
from compiled import reported, reported_kernels

F = torch.nn.functional
CONVOLUTIONS = [F.conv1d, F.conv2d, F.conv3d]


def network(dims, kernel, stride, dilation, pad):
    conv = CONVOLUTIONS[dims - 1]
    ones = [1] * dims

    def function(x, first, weight, bias, last):
        x = F.hardtanh(conv(x, first), -1.0, 2.0)
        x = F.pad(x, pad)
        x = conv(x, weight, bias, stride, 0, dilation, weight.shape[0])
        return conv(F.silu(x), last, None, ones)

    return function


def arguments(dims, kernel, channels, images, size, dtype=torch.float32):
    torch.manual_seed(0)
    ones = [1] * dims
    return (
        torch.randn(images, 3, *size[:dims], dtype=dtype),
        torch.randn(channels, 3, *ones, dtype=dtype),
        torch.randn(channels, 1, *[kernel] * dims, dtype=dtype),
        torch.randn(channels, dtype=dtype),
        torch.randn(4, channels, *ones, dtype=dtype) / channels,
    )


WAYS = [
    # dims, kernel, stride, dilation, pad, channels, images, size
    (2, 3, 1, 1, (1, 1, 1, 1), 40, 2, (13, 11)),
    (2, 3, 2, 1, (0, 1, 0, 1), 96, 1, (30, 17)),
    (2, 3, 1, 1, (1, 1, 1, 1), 144, 2, (20, 19)),  # one register comes out even, two do not
    (2, 3, 2, 2, (2, 2, 2, 2), 33, 3, (9, 9)),
    (2, 5, 1, 1, (2, 2, 2, 2), 7, 5, (6, 8)),
    (2, 7, 1, 1, (3, 3, 3, 3), 300, 4, (7, 7)),
    (2, 2, 3, 1, (0, 0, 0, 0), 17, 2, (10, 12)),
    (2, 3, 1, 1, (0, 0, 0, 0), 16, 6, (4, 5)),
    (1, 4, 1, 1, (3, 0), 48, 2, (50,)),
    (1, 9, 2, 1, (0, 0), 5, 1, (33,)),
    (1, 3, 1, 1, (1, 1), 70, 2, (20000,)),  # in blocks: a row is larger than the cache
    (3, 3, 1, 1, (1, 1, 1, 1, 1, 1), 12, 2, (6, 5, 7)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [1, 3])
def test_equals_eager(way, threads):
    dims, kernel, stride, dilation, pad, channels, images, size = way
    function = network(dims, kernel, stride, dilation, pad)
    given = arguments(dims, kernel, channels, images, size)
    with torch.no_grad():
        tandem.set_threads(threads)
        try:
            result = reported(function)(*given)
        finally:
            tandem.set_threads(2)
        expected = function(*(x.double() for x in given))
    assert "each channel is a window of its own" in reported_kernels()
    assert "scratch" in reported_kernels()
    error = (result - expected).abs().max()
    assert error <= 4 * (function(*given) - expected).abs().max() + 1e-6 * expected.abs().max()


def test_values_that_are_not_finite():
    function = network(2, 3, 1, 1, (1, 1, 1, 1))
    given = list(arguments(2, 3, 20, 2, (8, 8)))
    given[0][0, 0, 3, 3] = float("nan")
    given[0][1, 1, 5, 0] = float("inf")
    given[2][4, 0, 1, 1] = float("inf")
    with torch.no_grad():
        torch.testing.assert_close(reported(function)(*given), function(*given), equal_nan=True)


def test_any_number_of_images():
    function = network(2, 3, 2, 1, (0, 1, 0, 1))
    run = torch.compile(
        function, backend=tandem.backend, dynamic=True, options={"on_unsupported": "error"}
    )
    for images in (2, 3, 7):
        given = arguments(2, 3, 24, images, (14, 14))
        torch._dynamo.maybe_mark_dynamic(given[0], 0)
        with torch.no_grad():
            torch.testing.assert_close(run(*given), function(*given), rtol=1e-4, atol=1e-4)


def padded(dims, stride, dilation, padding, act):
    """The padding is an argument of the convolution."""
    conv = CONVOLUTIONS[dims - 1]

    def function(x, first, weight, bias, last):
        x = act(conv(x, first))
        return conv(act(conv(x, weight, bias, stride, padding, dilation, len(weight))), last)

    return function


PADDED = {
    # dims, kernel, stride, dilation, padding, activation, channels, images, size
    "MobileNet": (2, 3, 1, 1, 1, F.relu6, 144, 2, (20, 19)),
    "stride 2, even": (2, 3, 2, 1, 1, F.hardswish, 40, 3, (12, 14)),
    "stride 2, odd": (2, 5, 2, 1, 2, F.silu, 33, 2, (13, 9)),
    "strides differ": (2, 3, (1, 2), 1, (1, 0), F.relu6, 20, 2, (9, 12)),
    "only beside": (2, 3, 1, 1, (0, 1), F.relu6, 20, 2, (9, 12)),
    "only above and below": (2, 3, 1, 1, (1, 0), F.relu6, 20, 2, (9, 12)),
    "a window wider than the image": (2, 7, 1, 1, 3, F.silu, 48, 4, (5, 4)),
    "windows that see no image": (2, 3, 1, 1, 4, F.relu6, 17, 2, (5, 6)),
    "far beside": (2, 2, 1, 1, (0, 70), F.relu6, 17, 2, (4, 6)),
    "dilated": (2, 3, 2, 2, 2, F.relu6, 33, 3, (9, 11)),
    "same": (2, 3, 1, 1, "same", F.hardswish, 33, 3, (9, 11)),
    "same, uneven": (2, 4, 1, 1, "same", F.relu6, 33, 3, (9, 11)),
    "one dimension": (1, 4, 1, 1, 3, F.silu, 48, 2, (50,)),
    "one dimension, in blocks": (1, 3, 1, 1, 1, F.relu6, 70, 2, (20000,)),
    "three dimensions": (3, 3, 1, 1, 1, F.relu6, 12, 2, (6, 5, 7)),
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_of_the_convolution(name):
    dims, kernel, stride, dilation, padding, act, channels, images, size = PADDED[name]
    function = padded(dims, stride, dilation, padding, act)
    given = arguments(dims, kernel, channels, images, size)
    results = []
    with torch.no_grad():
        run = reported(function)
        for threads in (1, 3):
            tandem.set_threads(threads)
            try:
                results.append(run(*given))
            finally:
                tandem.set_threads(2)
        expected = function(*(x.double() for x in given))
        eager_error = (function(*given) - expected).abs().max()
    assert "each channel is a window of its own" in reported_kernels()
    assert "scratch" in reported_kernels()
    assert (results[0] - expected).abs().max() <= 4 * eager_error + 1e-6 * expected.abs().max()
    assert torch.equal(*results)


@pytest.mark.parametrize("stride", [1, 2])
def test_both_styles_of_padding_are_one(stride):
    """To the bit, and by as many calls of the library."""
    own = padded(2, stride, 1, 1, F.relu6)

    def layer(x, first, weight, bias, last):
        x = F.pad(F.relu6(F.conv2d(x, first)), (1, 1, 1, 1))
        x = F.relu6(F.conv2d(x, weight, bias, stride, 0, 1, len(weight)))
        return F.conv2d(x, last)

    given = arguments(2, 3, 48, 2, (17, 12))
    results, calls = [], []
    with torch.no_grad():
        for function in (own, layer):
            results.append(reported(function)(*given))
            calls.append(tandem.report()["graphs"][-1]["forward"]["library_calls"])
    assert torch.equal(*results)
    assert calls == [2, 2]


@pytest.mark.parametrize("value", ["inf", "nan"])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_counts_as_nothing(value, stride):
    """Eager never multiplies it, so a weight that is not finite reaches only what it sees."""

    def function(x, first, weight, bias, last):
        x = F.relu6(F.conv2d(x, first))
        x = F.conv2d(x, weight, bias, stride, 1, 1, len(weight))
        return F.conv2d(torch.nan_to_num(x, 7.0, 8.0, -8.0), last)

    given = arguments(2, 3, 20, 2, (8, 9))
    for channel in range(9):
        given[2][channel, 0, channel // 3, channel % 3] = float(value)
    given[0][0, 0, 0, 0] = float("-inf")
    given[0][1, 2, 7, 8] = float("nan")
    with torch.no_grad():
        found, expected = reported(function)(*given), function(*given)
    assert "each channel is a window of its own" in reported_kernels()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "what, change",
    [
        ("a stride that is no multiple of the dilation", lambda c: c | {"dilation": 2}),
        ("nothing before it", lambda c: c | {"first": False}),
        ("a single window", lambda c: c | {"size": (3, 9)}),
    ],
)
def test_others_stay_with_the_library(what, change):
    case = change({"dilation": 1, "first": True, "size": (9, 9)})

    def function(x, first, weight, last):
        x = F.conv2d(x, first) if case["first"] else x.repeat(1, 4, 1, 1)
        groups = weight.shape[0]
        x = F.conv2d(x, weight, None, 1, 0, case["dilation"], groups)
        return F.conv2d(x, last)

    x, first, weight, _, last = arguments(2, 3, 12, 2, case["size"])
    with torch.no_grad():
        result = reported(function)(x, first, weight, last)
        torch.testing.assert_close(result, function(x, first, weight, last), rtol=1e-4, atol=1e-4)
    assert "each channel is a window of its own" not in reported_kernels()


@pytest.mark.parametrize("own", [False, True], ids=["pad apart", "padding of its own"])
def test_training(own):
    function = padded(2, 1, 1, 1, F.silu) if own else network(2, 3, 1, 1, (1, 1, 1, 1))
    given = [x.requires_grad_() for x in arguments(2, 3, 24, 2, (10, 10))]
    gradients = []
    for run in (function, reported(function)):
        gradients.append(torch.autograd.grad(run(*given).square().mean(), given))
    for expected, found in itertools.zip_longest(*gradients):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert "each channel is a window of its own" in reported_kernels()


def test_parameters_that_learn_elsewhere():
    """Under no_grad a module's parameters still say that they want gradients."""
    function = padded(2, 1, 1, 1, F.relu6)
    given = [x.requires_grad_() for x in arguments(2, 3, 24, 2, (10, 10))]
    with torch.no_grad():
        torch.testing.assert_close(reported(function)(*given), function(*given))
    assert "each channel is a window of its own" in reported_kernels()
