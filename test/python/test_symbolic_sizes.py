"""Ops over sizes that are known at the call only: compiled once, run at several sizes."""

import pytest
import torch

import tandem
from graphs import build

SIZES = [3, 7, 40]
# Over %x: f32[n, 6], %i: i64[n, 6] with elements below 3 and %m: bool[n, 6].
CALLS = [
    ("aten.sort(%x, 0)", lambda x, i, m: x.sort(0), 2),
    ("aten.sort.stable(%i, stable=true, dim=0)", lambda x, i, m: i.sort(dim=0, stable=True), 2),
    ("aten.topk(%x, 2, 0)", lambda x, i, m: x.topk(2, 0), 2),
    ("aten.kthvalue(%x, 3, 0)", lambda x, i, m: x.kthvalue(3, 0), 2),
    ("aten.median.dim(%x, 0)", lambda x, i, m: x.median(0), 2),
    ("aten.msort(%x)", lambda x, i, m: x.msort(), 1),
    ("aten.diagonal(%x, 1)", lambda x, i, m: x.diagonal(1), 1),
    ("aten.diag_embed(%x)", lambda x, i, m: x.diag_embed(), 1),
    ("aten.unfold(%x, 0, 3, 2)", lambda x, i, m: x.unfold(0, 3, 2), 1),
    ("aten.tensor_split.sections(%x, 3)", lambda x, i, m: x.tensor_split(3), 3),
    ("aten.vstack([%x, %x])", lambda x, i, m: torch.vstack([x, x]), 1),
    ("aten.block_diag([%x, %x])", lambda x, i, m: torch.block_diag(x, x), 1),
    ("aten.rot90(%x)", lambda x, i, m: x.rot90(), 1),
    ("aten.cumprod(%x, 0)", lambda x, i, m: x.cumprod(0), 1),
    ("aten.cummax(%x, 0)", lambda x, i, m: x.cummax(0), 2),
    ("aten.logcumsumexp(%x, 0)", lambda x, i, m: x.logcumsumexp(0), 1),
    ("aten.diff(%x, 1, 0)", lambda x, i, m: x.diff(dim=0), 1),
    ("aten.trapezoid.dx(%x, dim=0)", lambda x, i, m: torch.trapezoid(x, dim=0), 1),
    ("aten.nanmean(%x, [0])", lambda x, i, m: x.nanmean(0), 1),
    ("aten.renorm(%x, 2, 0, 1)", lambda x, i, m: x.renorm(2, 0, 1), 1),
    ("aten.cdist(%x, %x, 1.0)", lambda x, i, m: torch.cdist(x, x, 1), 1),
    ('aten.einsum("ij,kj->ik", [%x, %x])', lambda x, i, m: torch.einsum("ij,kj->ik", x, x), 1),
    ("aten.tensordot(%x, %x, [0], [0])", lambda x, i, m: torch.tensordot(x, x, ([0], [0])), 1),
    ("aten.kron(%x, %x)", lambda x, i, m: torch.kron(x, x), 1),
    (
        'aten.scatter_reduce.two(%x, 0, %i, %x, "amax")',
        lambda x, i, m: x.scatter_reduce(0, i, x, "amax"),
        1,
    ),
    ("aten.take(%x, %i)", lambda x, i, m: x.take(i), 1),
    ("aten.masked_scatter(%x, %m, %x)", lambda x, i, m: x.masked_scatter(m, x), 1),
    ("aten.index_put(%x, [%m], %s)", lambda x, i, m: x.masked_fill(m, 2.0), 1),
    (
        "aten.searchsorted.Tensor(%b, %x)",
        lambda x, i, m: torch.searchsorted(torch.arange(5.0), x),
        1,
    ),
    ("aten.isin.Tensor_Tensor(%i, %i)", lambda x, i, m: torch.isin(i, i), 1),
]


def close(a, b):
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("call, eager, results", CALLS, ids=[call for call, _, _ in CALLS])
def test_symbolic(call, eager, results):
    names = ", ".join(f"%r{i}" for i in range(results))
    lines = ["%s = aten.full([], 2.0)", "%b = aten.arange(5, dtype=f32)", f"{names} = {call}"]
    graph = build(
        "%x: f32[n, 6], %i: i64[n, 6], %m: bool[n, 6]", lines, names, "n in [3, 1000]"
    )
    for n in SIZES:
        x = torch.randn(n, 6)
        i = torch.randint(0, 3, (n, 6))
        m = torch.rand(n, 6) < 0.5
        known = {"x": x, "i": i, "m": m}
        got = graph.run([known[name] for name in graph.inputs])
        wanted = eager(x, i, m)
        wanted = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted):
            assert a.shape == b.shape and close(a, b)


def test_size_that_only_a_stride_has_before_it_is_an_input():
    text = """graph @g(%a: f32[3]{s}, %s: i64) where s in [2, inf] {
  %v = aten.mul.Tensor(%a, 2)
  return %v
}
"""
    x = torch.arange(15.0).reshape(3, 5)[:, 1]
    (y,) = tandem.compile_text(text).run([x, 5])
    assert torch.equal(y, x * 2)
