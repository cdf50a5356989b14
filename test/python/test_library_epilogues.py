"""What is computed of a convolution by the library, element by element, runs along its lines."""

import pytest
import torch
import torch.nn.functional as F
from graphs import build

SIZES = {
    "rows": ([2, 16, 20, 18], [32, 16, 3, 3]),
    "channels": ([2, 256, 7, 7], [512, 256, 3, 3]),
    "volumes": ([2, 8, 5, 6, 7], [24, 8, 3, 3, 3]),
    "one dimension": ([3, 16, 40], [32, 16, 3]),
}
EPILOGUES = {
    "relu": ("aten.relu(%y)", lambda y, r, s: y.relu()),
    "residual": ("aten.add.Tensor(%y, %r)", lambda y, r, s: y + r),
    "scaled": ("aten.mul.Tensor(%y, %s)", lambda y, r, s: y * s),
    "bounds": ("aten.hardtanh(%y, 0.0, 0.5)", lambda y, r, s: F.hardtanh(y, 0.0, 0.5)),
    "gate": ("aten.silu(%y)", lambda y, r, s: F.silu(y)),
}


@pytest.fixture(autouse=True)
def by_the_library(monkeypatch):
    """Whatever this machine's rates say of other ways."""
    monkeypatch.setenv("TANDEM_DISABLE", "winograd")


def convolution(result, x, w, dims, padding):
    ones, zeros = [1] * dims, [0] * dims
    return (
        f"{result} = aten.convolution({x}, {w}, none, {ones}, {[padding] * dims}, {ones}, false, "
        f"{zeros}, 1)"
    )


def all_sizes(sizes):
    x, w = SIZES[sizes]
    ones = [1] * (len(x) - 2)
    return [x, w, [x[0], w[0], *x[2:]], [1, w[0], *ones], [16, w[0], *ones]]


def compiled(sizes, line):
    """Between two convolutions, where channels come last."""
    given = zip("xwrsv", all_sizes(sizes))
    dims = len(SIZES[sizes][0]) - 2
    lines = [
        convolution("%y", "%x", "%w", dims, 1),
        f"%z = {line}",
        convolution("%u", "%z", "%v", dims, 0),
    ]
    inputs = ", ".join(f"%{name}: f32{size}" for name, size in given)
    return build(inputs, lines, "%u", report=True)


def arguments(sizes):
    torch.manual_seed(0)
    return [torch.randn(size) / 8 for size in all_sizes(sizes)]


def eager(sizes, function, x, w, r, s, v):
    convolve = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.dim()]
    return convolve(function(convolve(x, w, padding=1), r, s), v)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues(sizes, epilogue):
    line, function = EPILOGUES[epilogue]
    executable = compiled(sizes, line)
    assert "along tandem_" in executable.report
    given = arguments(sizes)
    actual = executable.run(given)[0]
    torch.testing.assert_close(actual, eager(sizes, function, *given), rtol=1e-4, atol=1e-5)


def test_nan_stays():
    """The library's own activations make 0 of it."""
    executable = compiled("rows", EPILOGUES["relu"][0])
    given = arguments("rows")
    given[0][1, 3, 4, 5] = float("nan")
    actual = executable.run(given)[0]
    expected = eager("rows", EPILOGUES["relu"][1], *given)
    assert expected.isnan().any()
    assert torch.equal(actual.isnan(), expected.isnan())


def test_the_residual_is_what_the_convolution_reads():
    """Other lines still need it, so the sum must not lie in its place."""
    x, w, v = torch.randn(2, 32, 20, 18), torch.randn(32, 32, 3, 3) / 17, torch.randn(8, 32, 1, 1)
    inputs = "%x: f32[2, 32, 20, 18], %w: f32[32, 32, 3, 3], %v: f32[8, 32, 1, 1]"
    lines = [
        convolution("%a", "%x", "%w", 2, 1),
        convolution("%y", "%a", "%w", 2, 1),
        "%z = aten.add.Tensor(%y, %a)",
        convolution("%u", "%z", "%v", 2, 0),
    ]
    executable = build(inputs, lines, "%u", report=True)
    assert "along tandem_" in executable.report
    a = F.conv2d(x, w, padding=1)
    expected = F.conv2d(F.conv2d(a, w, padding=1) + a, v)
    for _ in range(3):
        torch.testing.assert_close(executable.run([x, w, v])[0], expected, rtol=1e-4, atol=1e-4)


def test_apart_where_it_is_disabled(monkeypatch):
    monkeypatch.setenv("TANDEM_DISABLE", "winograd,follow_calls")
    assert "along tandem_" not in compiled("rows", "aten.relu(%y)").report


def test_same_bits_apart(monkeypatch):
    together = compiled("rows", "aten.silu(%y)").run(arguments("rows"))[0]
    monkeypatch.setenv("TANDEM_DISABLE", "winograd,follow_calls")
    apart = compiled("rows", "aten.silu(%y)").run(arguments("rows"))[0]
    assert torch.equal(together, apart)
