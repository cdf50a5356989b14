"""Writing through a view changes its base, and a view that is a copy after all leaves it alone;
both as eager does."""

import pytest
import torch

from graphs import build

VIEWS = [
    ("aten.diagonal(%x, 1)", lambda x: x.diagonal(1)),
    ("aten.linalg_diagonal(%x, offset=-1)", lambda x: torch.linalg.diagonal(x, offset=-1)),
    ("aten.diagonal(%x, 0, 1, 0)", lambda x: x.diagonal(0, 1, 0)),
    ("aten.unfold(%x, 1, 2, 2)", lambda x: x.unfold(1, 2, 2)),
    ("aten.unfold(%x, 0, 2, 3)", lambda x: x.unfold(0, 2, 3)),
    ("aten.broadcast_to(%x, [4, 6])", lambda x: x.broadcast_to(4, 6)),
    ("aten.lift_fresh(%x)", torch.ops.aten.lift_fresh),
    ("aten.to.dtype(%x, f32)", lambda x: x.to(torch.float32)),
    ("aten.to.dtype(%x, bf16)", lambda x: x.to(torch.bfloat16)),
    ("aten.to.dtype(%x, f64)", lambda x: x.to(torch.float64)),
    ("aten.to.dtype(%x, f32, false, true)", lambda x: x.to(torch.float32, copy=True)),
    ("aten.to.dtype_layout(%x)", torch.ops.aten.to.dtype_layout),
    ("aten.to.other(%x, %x)", lambda x: x.to(x)),
]
SPLITS = [
    ("aten.tensor_split.sections(%x, 3, 1)", lambda x: x.tensor_split(3, 1)),
    ("aten.tensor_split.indices(%x, [1, 3])", lambda x: x.tensor_split([1, 3])),
    ("aten.hsplit.int(%x, 3)", lambda x: x.hsplit(3)),
    ("aten.hsplit.array(%x, [1, 4])", lambda x: x.hsplit([1, 4])),
    ("aten.vsplit.array(%x, [1, 3])", lambda x: x.vsplit([1, 3])),
]


def check(lines, eager):
    x = torch.randn(4, 6)
    graph = build("%a: f32[4, 6]", ["%x = aten.clone(%a)", *lines], "%x, %y")
    wanted = x.clone()
    view = eager(wanted)
    view.mul_(2)
    changed, shown = graph.run([x])
    assert torch.equal(changed, wanted)
    assert torch.equal(shown, view)


@pytest.mark.parametrize("call, eager", VIEWS)
def test_views(call, eager):
    check([f"%y = {call}", "%z = aten.mul_.Scalar(%y, 2)"], eager)


@pytest.mark.parametrize("call, eager", SPLITS)
def test_splits(call, eager):
    lines = [f"%p, %y, %q = {call}", "%z = aten.mul_.Scalar(%y, 2)"]
    check(lines, lambda x: eager(x)[1])
