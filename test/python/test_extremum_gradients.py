"""Gradients of extrema at ties, NaN and infinities, against eager."""

import pytest
import torch

from graphs import build

NAN, INF = torch.nan, torch.inf
ROWS = [
    [1, 2, 3, 4],
    [2, 2, 2, 2],
    [1, 3, 3, 0],
    [NAN, 1, 2, 2],
    [NAN, NAN, 1, 1],
    [INF, INF, 1, -INF],
    [-INF, -INF, -INF, -INF],
    [0.0, -0.0, 0.0, -0.0],
]
CALLS = [
    ("aten.amax(%x, [1])", lambda x: x.amax(1)),
    ("aten.amin(%x, [1])", lambda x: x.amin(1)),
    ("aten.amax(%x, [0], true)", lambda x: x.amax(0, True)),
    ("aten.amax(%x, [0, 1])", lambda x: x.amax((0, 1))),
    ("aten.max(%x)", lambda x: x.max()),
    ("aten.min(%x)", lambda x: x.min()),
    ("aten.max.dim(%x, 1)", lambda x: x.max(1).values),
    ("aten.min.dim(%x, 1)", lambda x: x.min(1).values),
    ("aten.max.dim(%x, 0, true)", lambda x: x.max(0, True).values),
]
DATA = [ROWS, *[[row] for row in ROWS]]


@pytest.mark.parametrize("call, eager", CALLS, ids=[call for call, _ in CALLS])
@pytest.mark.parametrize("rows", DATA, ids=["all", *map(str, ROWS)])
def test_gradient(call, eager, rows):
    x = torch.tensor(rows, dtype=torch.float32, requires_grad=True)
    expected = eager(x)
    tangent = torch.arange(1.0, 1.0 + expected.numel()).reshape(expected.shape)
    (wanted,) = torch.autograd.grad(expected, x, tangent)
    first = "%r, %i" if ".dim" in call else "%r"
    text = f"%x: f32[{len(rows)}, 4] {{input grad}}"
    executable = build(text, f"{first} = {call}", "%r", gradients="tangents")
    known = {"x": x.detach(), "tangent0": tangent}
    result, grad = executable.run([known[name] for name in executable.inputs])
    torch.testing.assert_close(result, expected.detach(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(grad, wanted, equal_nan=True)
