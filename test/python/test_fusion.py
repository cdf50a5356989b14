"""Fusion changes no bit: what one kernel computes is what several would. Sums are left out where a
fused stage has other lanes, and with them another tree, than a kernel of its own."""

import pytest
import torch

from graphs import build

SHAPE = "[6, 70]"
CASES = {
    "chain": [
        "%1 = aten.mul.Tensor(%x, %y)",
        "%2 = aten.add.Tensor(%1, %x)",
        "%3 = aten.sigmoid(%2)",
        "%4 = aten.sub.Tensor(%3, %y)",
        "%r = aten.mul.Scalar(%4, 1.7)",
    ],
    "activations": [
        "%1 = aten.gelu(%x)",
        "%2 = aten.silu(%1)",
        "%3 = aten.tanh(%2)",
        "%4 = aten.hardswish(%3)",
        "%r = aten.div.Tensor(%4, %y)",
    ],
    "rows": [
        "%1 = aten.mul.Scalar(%x, 0.3)",
        "%2 = aten.amax(%1, [1], true)",
        "%3 = aten.sub.Tensor(%1, %2)",
        "%4 = aten.exp(%3)",
        "%5 = aten.amin(%4, [1], true)",
        "%r = aten.div.Tensor(%4, %5)",
    ],
    "views": [
        "%1 = aten.add.Tensor(%x, %y)",
        "%2 = aten.t(%1)",
        "%3 = aten.exp(%2)",
        "%4 = aten.reshape(%3, [6, 70])",
        "%5 = aten.flip(%4, [0])",
        "%r = aten.mul.Tensor(%5, %x)",
    ],
    "choices": [
        "%1 = aten.gt.Tensor(%x, %y)",
        "%2 = aten.where.self(%1, %x, %y)",
        "%3 = aten.clamp(%2, -0.5, 0.5)",
        "%4 = aten.masked_fill.Scalar(%3, %1, 0.25)",
        "%r = aten.maximum(%4, %y)",
    ],
    "dropout": [
        "%1 = aten.mul.Tensor(%x, %y)",
        "%2 = aten.dropout(%1, 0.4, true)",
        "%3 = aten.add.Tensor(%2, %x)",
        "%4 = aten.dropout(%3, 0.2, true)",
        "%r = aten.relu(%4)",
    ],
    "product": [
        "%1 = aten.t(%y)",
        "%2 = aten.mm(%x, %1)",
        "%3 = aten.gelu(%2)",
        "%4 = aten.mm(%3, %y)",
        "%r = aten.add.Tensor(%4, %x)",
    ],
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}


def tensors(dtype):
    torch.manual_seed(5)
    x, y = torch.randn(6, 70), torch.randn(6, 70)
    x[1, 3], x[2, 5], y[4, 0], y[0, 69] = torch.nan, torch.inf, -torch.inf, 0.0
    return [x.to(dtype), y.to(dtype)]


def outcome(case, dtype, inputs):
    declared = f"%x: {dtype}{SHAPE}, %y: {dtype}{SHAPE}"
    executable = build(declared, CASES[case], report=True)
    seed = [3] * (len(executable.inputs) - len(inputs))
    return executable.run([*inputs, *seed])[0], executable.report


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_same_bits_fused_and_apart(case, dtype, monkeypatch):
    inputs = tensors(DTYPES[dtype])
    monkeypatch.setenv("TANDEM_LIBRARY", "0")
    fused, report = outcome(case, dtype, inputs)
    monkeypatch.setenv("TANDEM_FUSION", "0")
    apart, single = outcome(case, dtype, inputs)
    same_bits = fused.contiguous().view(torch.uint8).equal(apart.contiguous().view(torch.uint8))
    assert same_bits, f"{fused} {apart}"
    assert report.count("launch") <= single.count("launch")


def test_fusion_makes_fewer_kernels(monkeypatch):
    _, report = outcome("rows", "f32", tensors(torch.float32))
    monkeypatch.setenv("TANDEM_FUSION", "0")
    _, single = outcome("rows", "f32", tensors(torch.float32))
    assert report.count("launch") < single.count("launch")
