"""Slopes of losses where the distance is NaN: it is neither near nor far, and stays."""

import pytest
import torch

import tandem

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", ["smooth_l1_loss_backward", "huber_loss_backward"])
def test_slope_of_nan(name):
    x = torch.tensor([NAN, INF, -INF, 0.25, 1.0, -1.0] * 8)
    y, grad = torch.zeros(48), torch.ones(48)
    text = (
        "graph @one(%g: f32[48], %x: f32[48], %y: f32[48]) {\n"
        f"  %r = aten.{name}(%g, %x, %y, 0, 1.0)\n  return %r\n}}"
    )
    actual = tandem.compile_text(text).run([grad, x, y])[0]
    expected = getattr(torch.ops.aten, name)(grad, x, y, 0, 1.0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
