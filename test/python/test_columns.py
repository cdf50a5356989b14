"""Sums of columns that join the kernel of their rows, as in layer norm backward: values, bits."""

import pytest
import torch

import tandem
from graphs import build
from machine import ISAS

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


def eager_gradients(tensors, tangent, dtype):
    inputs = [t.to(dtype).requires_grad_() for t in tensors]
    result = torch.nn.functional.layer_norm(inputs[0], [len(tensors[1])], *inputs[1:], 1e-5)
    return torch.autograd.grad(result, inputs, tangent.to(dtype))


@pytest.mark.parametrize("width", [8, 32, 33, 256])
def test_gradients(width):
    """Blocks of rows divide 4096 at 8, 32 and 256 columns; at 33 the sums stay apart."""
    tensors, tangent = data(width), torch.randn(4096, width)
    gradients = eager_gradients(tensors, tangent, torch.float64)
    executable = layer_norm(width)
    results = executable.run([*tensors, tangent])
    for actual, reference in zip(results[1:], gradients):
        torch.testing.assert_close(actual.double(), reference, rtol=1e-4, atol=2e-4)
    for threads in (1, 3, 8):
        tandem.set_threads(threads)
        again = executable.run([*tensors, tangent])
        assert all(torch.equal(a, b) for a, b in zip(results, again)), threads


def test_sums_share_the_kernel_of_the_rows(monkeypatch):
    """What is of a row has the same sums either way. Sums of columns by themselves take rows in
    other blocks, so the two differ by both of their errors, and each is held to what it may be: no
    further from f64 than eager's largest."""
    fused = layer_norm(256, report=True)
    backward = [line for line in fused.report.splitlines() if line.strip().startswith("launch")]
    assert any(line.count("aten.sum.dim_IntList") >= 2 and "mean" in line for line in backward)
    monkeypatch.setenv("TANDEM_FUSION", "0")
    apart = layer_norm(256)
    tensors, tangent = data(256), torch.randn(4096, 256)
    results = [executable.run([*tensors, tangent]) for executable in (fused, apart)]
    for a, b in zip(*(each[:2] for each in results), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    exact, eager = (eager_gradients(tensors, tangent, t) for t in (torch.float64, torch.float32))
    for sums in (each[2:] for each in results):
        for actual, theirs, wanted in zip(sums, eager[1:], exact[1:], strict=True):
            assert (actual - wanted).abs().max() <= (theirs - wanted).abs().max()


def test_interpreter():
    tensors, tangent = data(8), torch.randn(4096, 8)
    compiled = layer_norm(8).run([*tensors, tangent])
    interpreted = layer_norm(8, interpret=True).run([*tensors, tangent])
    assert all(torch.equal(a, b) for a, b in zip(compiled, interpreted))


ROWS = [*range(1, 36), 48, 100, 131, 1001, 1500]
EPSILON = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float64: 2.0**-53}
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float64: "f64", torch.int64: "i64"}


def check_sums(actual, values):
    """As many roundings as there are rows, in any order, and that of the result."""
    if not values.is_floating_point():
        assert torch.equal(actual, values.sum(0))
        return
    epsilon = min(EPSILON[values.dtype], 2.0**-24)
    expected = values.double().sum(0)
    bound = len(values) * epsilon * values.double().abs().sum(0)
    bound += EPSILON[values.dtype] * expected.abs()
    assert ((actual.double() - expected).abs() <= bound).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", NAMES, ids=str)
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_rows_in_blocks(known, dtype, isa, monkeypatch):
    """Sums of columns take rows in blocks, and what is left over row by row: the same bits by the
    interpreter and by any number of threads."""
    monkeypatch.setenv("TANDEM_ISA", isa)
    monkeypatch.setenv("TANDEM_VERIFY", "1")
    torch.manual_seed(0)
    lines = ["%y = aten.sum.dim_IntList(%x, [0])"]
    shapes = [(rows, 320) for rows in ROWS] + [(1056, 2304), (2048, 64)]
    for rows, columns in shapes:
        values = (torch.randn(rows, columns) * 100).to(dtype)
        sizes = f"[{rows}, {columns}]" if known else "[s0, s1]"
        where = "" if known else "s0 in [1, 4096], s1 in [1, 4096]"
        inputs = f"%x: {NAMES[dtype]}{sizes}"
        compiled, interpreted = (
            build(inputs, lines, "%y", where, interpret=i) for i in (False, True)
        )
        actual = compiled.run([values])[0]
        check_sums(actual, values)
        assert torch.equal(actual, interpreted.run([values])[0])
        for threads in (1, 3):
            tandem.set_threads(threads)
            assert torch.equal(compiled.run([values])[0], actual)
