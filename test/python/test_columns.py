"""Sums of columns that join the kernel of their rows, as in layer norm backward: values, bits."""

import pytest
import torch

import tandem
from graphs import build

INPUTS = (
    "%x: f32[4096, {n}] {{input grad}}, %w: f32[{n}] {{input grad}}, %b: f32[{n}] {{input grad}}"
)
LINES = ["%r, %m, %s = aten.native_layer_norm(%x, [{n}], %w, %b, 1e-5)"]


def layer_norm(width, **options):
    inputs = INPUTS.format(n=width)
    lines = [line.format(n=width) for line in LINES]
    return build(inputs, lines, gradients="tangents", **options)


def data(width):
    torch.manual_seed(width)
    return [torch.randn(4096, width), torch.randn(width), torch.randn(width)]


@pytest.mark.parametrize("width", [8, 32, 33, 256])
def test_gradients(width):
    """Blocks of rows divide 4096 at 8, 32 and 256 columns; at 33 the sums stay apart."""
    tensors, tangent = data(width), torch.randn(4096, width)
    wanted = [t.double().requires_grad_() for t in tensors]
    expected = torch.nn.functional.layer_norm(wanted[0], [width], wanted[1], wanted[2], 1e-5)
    gradients = torch.autograd.grad(expected, wanted, tangent.double())
    executable = layer_norm(width)
    results = executable.run([*tensors, tangent])
    for actual, reference in zip(results[1:], gradients):
        torch.testing.assert_close(actual.double(), reference, rtol=1e-4, atol=2e-4)
    for threads in (1, 3, 8):
        tandem.set_threads(threads)
        again = executable.run([*tensors, tangent])
        assert all(torch.equal(a, b) for a, b in zip(results, again)), threads


def test_sums_share_the_kernel_of_the_rows(monkeypatch):
    fused = layer_norm(256, report=True)
    backward = [line for line in fused.report.splitlines() if line.strip().startswith("launch")]
    assert any(line.count("aten.sum.dim_IntList") >= 2 and "mean" in line for line in backward)
    monkeypatch.setenv("TANDEM_FUSION", "0")
    apart = layer_norm(256)
    tensors, tangent = data(256), torch.randn(4096, 256)
    for a, b in zip(fused.run([*tensors, tangent]), apart.run([*tensors, tangent])):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_interpreter():
    tensors, tangent = data(8), torch.randn(4096, 8)
    compiled = layer_norm(8).run([*tensors, tangent])
    interpreted = layer_norm(8, interpret=True).run([*tensors, tangent])
    assert all(torch.equal(a, b) for a, b in zip(compiled, interpreted))
