"""Operands of library calls that are views without plain strides: a batch that a reshape made of
two dimensions of which one is repeated. All operands of a product are cut in the same place, or
one is copied first; also what is added, and images. Against PyTorch eager."""

import pytest
import tandem
import torch
from graphs import graph_text
from torch.nn import functional as F


def repeated(x, times):
    """Each of a batch so many times, one after the other: a view but for the reshape."""
    return x.unsqueeze(1).expand(-1, times, -1, -1).flatten(0, 1)


def repeated_lines(x, sizes, result):
    batch, *rest = sizes
    return [
        f"%{result}1 = aten.unsqueeze(%{x}, 1)",
        f"%{result}2 = aten.expand(%{result}1, [{batch}, 2, {rest[0]}, {rest[1]}])",
        f"%{result} = aten.reshape(%{result}2, [{2 * batch}, {rest[0]}, {rest[1]}])",
    ]


CASES = {
    # The batch of four is cut in two by two, of eight heads in two by four.
    "heads in groups beside batches": (
        [(4, 5, 8), (2, 2, 7, 8), (2, 7, 8)],
        ["%r = aten.scaled_dot_product_attention(%x0, %x1, %x2, enable_gqa=true)"],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    ),
    "what is added": (
        [(2, 5, 6), (4, 5, 40), (4, 40, 6)],
        [*repeated_lines("x0", (2, 5, 6), "v"), "%r = aten.baddbmm(%v, %x1, %x2)"],
        lambda a, x, y: torch.baddbmm(repeated(a, 2), x, y),
    ),
    "a factor, beside one batch that is added": (
        [(1, 5, 600), (2, 5, 400), (4, 400, 600)],
        [*repeated_lines("x1", (2, 5, 400), "v"), "%r = aten.baddbmm(%x0, %v, %x2)"],
        lambda a, x, y: torch.baddbmm(a, repeated(x, 2), y),
    ),
    "a factor, beside a batch that is added": (
        [(4, 5, 600), (2, 5, 400), (4, 400, 600)],
        [*repeated_lines("x1", (2, 5, 400), "v"), "%r = aten.baddbmm(%x0, %v, %x2)"],
        lambda a, x, y: torch.baddbmm(a, repeated(x, 2), y),
    ),
}

CASES["images"] = (
    [(2, 3, 8, 8), (4, 3, 3, 3)],
    [
        "%v1 = aten.unsqueeze(%x0, 1)",
        "%v2 = aten.expand(%v1, [2, 2, 3, 8, 8])",
        "%v = aten.reshape(%v2, [4, 3, 8, 8])",
        "%r = aten.conv2d(%v, %x1)",
    ],
    lambda x, w: F.conv2d(x.repeat_interleave(2, 0), w),
)


@pytest.mark.parametrize("name", CASES)
def test_views_that_repeat(name):
    sizes, lines, function = CASES[name]
    torch.manual_seed(0)
    # Sums of small integers have no rounding, in whatever order.
    inputs = [torch.randint(-3, 4, size).float() for size in sizes]
    declared = ", ".join(f"%x{i}: f32{list(size)}" for i, size in enumerate(sizes))
    actual = tandem.compile_text(graph_text(declared, lines, "%r")).run(inputs)[0]
    wanted = function(*inputs)
    assert actual.shape == wanted.shape
    torch.testing.assert_close(actual, wanted)
