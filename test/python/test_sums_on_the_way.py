"""Wide images that are never stored: a convolution of few terms whose only readers are windows
(schedule/compute_at_windows.cc). Sizes are such that the image is larger than a second-level
cache."""

import pytest
import tandem
import torch
from compiled import reported, reported_kernels

F = torch.nn.functional
CONVOLUTIONS = [F.conv1d, F.conv2d, F.conv3d]
NOTE = "summed where windows see it"


class Way:
    """A first convolution of `taps` of `inputs` channels, windows over its result, a last one."""

    def __init__(self, size, inputs=16, channels=64, images=2, **more):
        self.size, self.inputs, self.channels, self.images = size, inputs, channels, images
        self.taps = more.get("taps", 1)
        self.first = more.get("first", {})
        self.pad = more.get("pad", (1, 1) * len(size))
        self.windows = more.get("windows", {})
        self.kernel = more.get("kernel", 3)
        self.bias = more.get("bias", True)
        self.last_format = more.get("format", torch.contiguous_format)

    def function(self, x, first, bias, weight, last):
        conv = CONVOLUTIONS[len(self.size) - 1]
        x = conv(x, first, bias if self.bias else None, **self.first)
        x = F.pad(F.hardtanh(x, -0.5, 2.0) if self.bias else F.relu6(x), self.pad)
        x = conv(x, weight, groups=weight.shape[0], **self.windows)
        return conv(F.relu6(x), last)

    def arguments(self):
        torch.manual_seed(0)
        dims = len(self.size)
        x = torch.randn(self.images, self.inputs, *self.size)
        if dims == 2:
            x = x.contiguous(memory_format=self.last_format)
        return [
            x,
            torch.randn(self.channels, self.inputs, *[self.taps] * dims) / self.inputs**0.5,
            torch.randn(self.channels),
            torch.randn(self.channels, 1, *[self.kernel] * dims),
            torch.randn(4, self.channels, *[1] * dims) / self.channels,
        ]


WAYS = {
    "MobileNet, stride 2": Way((112, 112), channels=96, pad=(0, 1, 0, 1), windows={"stride": 2}),
    "one register even": Way((56, 56), inputs=24, channels=144),
    "tails everywhere": Way((93, 77), inputs=5, channels=53, images=3),
    "few of a lane": Way((300, 300), inputs=3, channels=7, images=3),
    "no bias": Way((70, 71), bias=False),
    "channels last": Way((70, 71), format=torch.channels_last),
    "a window before": Way(
        (161, 151), inputs=3, channels=32, taps=3, first={"stride": 2}, images=4
    ),
    "dilated windows": Way((80, 80), pad=(2, 2, 2, 2), windows={"dilation": 2, "stride": 2}),
    "five by five": Way((80, 80), pad=(2, 2, 2, 2), kernel=5),
    "no padding": Way((80, 80), pad=(0, 0, 0, 0)),
    "cut away": Way((80, 80), pad=(-2, 1, 1, -3)),
    "asymmetric": Way((80, 80), pad=(3, 0, 0, 2)),
    "one dimension": Way((9000,), inputs=8, kernel=4),
    "three dimensions": Way((20, 22, 24), inputs=4),
    "padded windows": Way((70, 71), pad=(0, 0, 0, 0), windows={"padding": 1}),
    "padded windows, stride 2": Way(
        (112, 112), channels=96, pad=(0, 0, 0, 0), windows={"stride": 2, "padding": 1}
    ),
    "both padded, a window before": Way(
        (161, 151),
        inputs=3,
        channels=32,
        taps=3,
        first={"stride": 2, "padding": 1},
        pad=(0, 0, 0, 0),
        windows={"padding": 1},
        images=4,
    ),
    "a point padded": Way((70, 71), first={"padding": 1}),
    "padded, one dimension": Way(
        (9000,), inputs=8, kernel=4, pad=(0, 0), windows={"padding": 3}
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_equals_eager(name):
    way = WAYS[name]
    given = way.arguments()
    results = []
    with torch.no_grad():
        run = reported(way.function)
        for threads in (1, 2, 5):
            tandem.set_threads(threads)
            try:
                results.append(run(*given))
            finally:
                tandem.set_threads(2)
        expected = way.function(*(x.double() for x in given))
        eager_error = (way.function(*given) - expected).abs().max()
    assert NOTE in reported_kernels()
    assert (results[0] - expected).abs().max() <= 4 * eager_error + 1e-6 * expected.abs().max()
    assert all(torch.equal(result, results[0]) for result in results)


def test_values_that_are_not_finite():
    """Beside the border a window sees zeros, whatever stands at the nearest place inside."""
    way = Way((70, 71))
    given = way.arguments()
    for row, column, value in [(0, 0, "nan"), (69, 70, "inf"), (30, 70, "-inf"), (40, 40, "nan")]:
        given[0][0, 3, row, column] = float(value)
    given[1][9, 2] = float("inf")
    given[3][11, 0, 1, 1] = float("nan")
    with torch.no_grad():
        found, expected = reported(way.function)(*given), way.function(*given)
    assert NOTE in reported_kernels()
    assert torch.equal(found.isnan(), expected.isnan())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_padding_counts_as_nothing():
    """Neither the windows' nor that of the convolution before them is multiplied."""
    way = WAYS["both padded, a window before"]

    def function(x, first, bias, weight, last):
        x = torch.nan_to_num(F.conv2d(x, first, bias, **way.first), 7.0, 8.0, -8.0)
        x = F.conv2d(x, weight, groups=len(weight), **way.windows)
        return F.conv2d(torch.nan_to_num(x, 7.0, 8.0, -8.0), last)

    given = way.arguments()
    for channel in range(9):
        given[1][channel, 0, channel // 3, channel % 3] = float("inf")
        given[3][channel + 5, 0, channel // 3, channel % 3] = float("nan")
    given[0][0, 1, 0, 0] = float("-inf")
    with torch.no_grad():
        found, expected = reported(function)(*given), function(*given)
    assert NOTE in reported_kernels()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def image_read_twice(way):
    def function(x, first, bias, weight, last):
        wide = F.conv2d(x, first, bias)
        return F.conv2d(F.conv2d(wide, weight, groups=len(weight)), last), wide.mean()

    return function


def image_returned(way):
    def function(x, first, bias, weight, last):
        wide = F.conv2d(x, first, bias)
        return F.conv2d(F.conv2d(wide, weight, groups=len(weight)), last), wide

    return function


def input_written(way):
    """The input is written over between the sum and the windows that would sum later."""

    def function(x, first, bias, weight, last):
        wide = F.conv2d(x, first, bias)
        x.mul_(2)
        return F.conv2d(F.conv2d(wide, weight, groups=len(weight)), last)

    return function


@pytest.mark.parametrize(
    "way, make, is_summed",
    [
        (Way((70, 71), inputs=33), lambda way: way.function, False),
        (Way((10, 11)), lambda way: way.function, False),
        (Way((70, 71)), image_read_twice, False),
        (Way((70, 71)), image_returned, False),
        (Way((70, 71)), input_written, None),
    ],
    ids=["many terms", "small", "read twice", "returned", "input written"],
)
def test_where_it_stays_in_memory(way, make, is_summed):
    function = make(way)
    given, expected_given = way.arguments(), way.arguments()
    with torch.no_grad():
        found, expected = reported(function)(*given), function(*expected_given)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(given[0], expected_given[0])
    if is_summed is not None:
        assert (NOTE in reported_kernels()) == is_summed


def test_it_can_be_switched_off(monkeypatch):
    way = Way((70, 71))
    monkeypatch.setenv("TANDEM_DISABLE", "compute_at_windows")
    with torch.no_grad():
        reported(way.function)(*way.arguments())
    assert NOTE not in reported_kernels()


def test_a_row_that_begins_with_a_product_is_none():
    """Two stages, the first a sum of products: of the row itself, not of what windows see."""

    def function(x, v):
        return (x * torch.mv(x, v)[:, None]).exp()

    x, v = torch.randn(300, 40) / 10, torch.randn(40)
    torch.testing.assert_close(reported(function)(x, v), function(x, v))
    assert NOTE not in reported_kernels()
