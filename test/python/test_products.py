"""Emitted products: random sizes, layouts, prologues and epilogues, against PyTorch in f64; the
same bits at any number of threads, by the loop interpreter, and as the library's way round."""

import random

import pytest
import torch

import tandem
from compiled import compile_with
from graphs import build
from machine import ISAS

EPILOGUES = {
    "none": ([], lambda y, c: y),
    "bias": (["%r = aten.add.Tensor(%y, %c)"], lambda y, c: y + c),
    "gelu": (
        ["%s = aten.add.Tensor(%y, %c)", "%r = aten.gelu(%s)"],
        lambda y, c: torch.nn.functional.gelu(y + c),
    ),
    "mask": (
        ["%m = aten.gt.Scalar(%y, 0.5)", "%r = aten.masked_fill.Scalar(%y, %m, -2.0)"],
        lambda y, c: y.masked_fill(y > 0.5, -2.0),
    ),
}
LARGEST = 90


def sizes_of(draw, batched):
    return [draw.randint(1, 5)] * batched + [draw.randint(1, LARGEST) for _ in range(3)]


def factor(draw, batch, rows, columns, dtype):
    """A tensor, its declaration's sizes, and whether the graph transposes it."""
    turned = draw.random() < 0.5
    sizes = batch + ([columns, rows] if turned else [rows, columns])
    return torch.randn(sizes).to(dtype), turned


def lines_of(name, tensor, turned, prologue, dtype):
    lines, at = [], f"%{name}"
    if prologue:
        lines.append(f"%{name}1 = aten.mul.Scalar({at}, 0.75)")
        at = f"%{name}1"
    if turned:
        lines.append(f"%{name}2 = aten.transpose.int({at}, -2, -1)")
        at = f"%{name}2"
    return lines, at


def case(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    batched = draw.random() < 0.4
    *batch, m, k, n = sizes_of(draw, batched)
    dtype = draw.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
    a, a_turned = factor(draw, batch, m, k, dtype)
    b, b_turned = factor(draw, batch, k, n, dtype)
    prologue = [draw.random() < 0.3, draw.random() < 0.3]
    epilogue, formula = EPILOGUES[draw.choice(list(EPILOGUES))]
    c = torch.randn(n).to(dtype)
    first, left = lines_of("a", a, a_turned, prologue[0], dtype)
    second, right = lines_of("b", b, b_turned, prologue[1], dtype)
    op = "bmm" if batched else "mm"
    result = "%r" if epilogue else "%y"
    lines = first + second + [f"%y = aten.{op}({left}, {right})"] + epilogue
    name = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}[dtype]
    inputs = ", ".join(
        f"%{v}: {name}{list(t.shape)}" for v, t in (("a", a), ("b", b), ("c", c))
    )

    def oracle():
        x, y = [(t * 0.75 if used else t) for t, used in ((a, prologue[0]), (b, prologue[1]))]
        x = x.double().transpose(-2, -1) if a_turned else x.double()
        y = y.double().transpose(-2, -1) if b_turned else y.double()
        return formula((x @ y).to(dtype), c)

    return inputs, lines, result, [a, b, c], oracle


TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_products(first, monkeypatch):
    monkeypatch.setenv("TANDEM_LIBRARY", "0")
    for seed in range(first, first + 10):
        inputs, lines, result, tensors, oracle = case(seed)
        executable = build(inputs, lines, result)
        actual = executable.run(tensors)[0]
        bound = TOLERANCE[actual.dtype]
        torch.testing.assert_close(
            actual, oracle(), rtol=bound, atol=bound * 10, msg=lambda m: f"seed {seed}: {m}"
        )
        for threads in (1, 3, 8):
            tandem.set_threads(threads)
            assert torch.equal(executable.run(tensors)[0], actual), (seed, threads)
        interpreted = build(inputs, lines, result, interpret=True)
        # erf of the C library and of emitted code may differ in the last place.
        slack = bound if "%s" in str(lines) else 0
        torch.testing.assert_close(
            interpreted.run(tensors)[0], actual, rtol=slack, atol=slack, msg=f"seed {seed}"
        )


def test_fusion_changes_no_bit(monkeypatch):
    monkeypatch.setenv("TANDEM_LIBRARY", "0")
    for seed in range(20):
        inputs, lines, result, tensors, _ = case(seed)
        fused = build(inputs, lines, result).run(tensors)[0]
        with monkeypatch.context() as alone:
            alone.setenv("TANDEM_FUSION", "0")
            single = build(inputs, lines, result).run(tensors)[0]
        assert torch.equal(fused, single), seed


@pytest.mark.parametrize("form", ["leaves", "read too", "written back", "twice", "turned"])
def test_product_that_leaves_reshaped(form):
    """The library writes it where the caller sees it, if nothing else wants it as it is."""
    x = torch.randn(30, 20, 64, dtype=torch.bfloat16)
    weight = torch.randn(64, 48, dtype=torch.bfloat16)

    def function(x, weight, kept):
        product = x.reshape(600, 64) @ weight
        result = product.reshape(30, 20, 48)
        if form == "written back":
            kept.copy_(result)
        if form == "turned":
            return result.transpose(0, 1).contiguous(), result.float().sum()
        more = {"read too": result.relu(), "twice": product}.get(form)
        return result, more

    torch._dynamo.reset()
    compiled = torch.compile(
        function, backend=tandem.backend, options={"on_unsupported": "error"}
    )
    for _ in range(2):
        wrote, expected_wrote = torch.zeros(2, 30, 20, 48, dtype=torch.bfloat16)
        expected = function(x, weight, expected_wrote)
        result = compiled(x, weight, wrote)
        torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(wrote, expected_wrote, rtol=2e-2, atol=2e-2)
        assert result[0].stride() == expected[0].stride()
        if form == "twice":  # eager's results are one memory, and so are ours
            assert result[0].data_ptr() == result[1].data_ptr()


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addmv", "addr", "addbmm"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_beta_of_zero_ignores_what_is_added(name, dynamic):
    """Also where only a call tells that it is 0."""
    shapes = {
        "addmm": [(3, 4), (3, 5), (5, 4)],
        "baddbmm": [(2, 3, 4), (2, 3, 5), (2, 5, 4)],
        "addmv": [(3,), (3, 5), (5,)],
        "addr": [(3, 4), (3,), (4,)],
        "addbmm": [(3, 4), (2, 3, 5), (2, 5, 4)],
    }[name]
    added, left, right = [torch.randn(shape) for shape in shapes]

    def function(added, left, right, beta):
        return getattr(torch, name)(added, left, right, beta=beta)

    compiled = compile_with(function, dynamic=dynamic)
    ways = ((1.5, 1.0), (0.5, 2.0), (0.0, float("nan")), (0.25, 3.0), (0, float("inf")))
    for beta, value in ways:
        given = torch.full_like(added, value)
        torch.testing.assert_close(
            compiled(given, left, right, beta), function(given, left, right, beta)
        )


@pytest.mark.parametrize("isa", ISAS)
def test_transposed_left_factors(isa, monkeypatch):
    """Memory runs down the rows, and terms are far apart: copied in panels as high as a tile."""
    monkeypatch.setenv("TANDEM_LIBRARY", "0")
    monkeypatch.setenv("TANDEM_ISA", isa)
    draw = random.Random(7)
    for dtype, name in ((torch.float32, "f32"), (torch.float64, "f64")):
        drawn = [(draw.randint(256, 500), draw.randint(1, 150), draw.randint(33, 70)) for _ in "12"]
        for m, k, n in [(256, 16, 33), (263, 256, 50), (519, 257, 34), (260, 700, 36), *drawn]:
            g, x = torch.randn(k, m, dtype=dtype), torch.randn(k, n, dtype=dtype)
            lines = ["%t = aten.t(%g)", "%y = aten.mm(%t, %x)", "%r = aten.relu(%y)"]
            inputs = f"%g: {name}[{k}, {m}], %x: {name}[{k}, {n}]"
            executable = build(inputs, lines, "%r")
            actual = executable.run([g, x])[0]
            # Of k terms, each product and sum rounds once.
            bound = torch.finfo(dtype).eps * k * (g.abs().t().double() @ x.abs().double())
            error = (actual.double() - (g.t().double() @ x.double()).relu()).abs()
            assert (error <= bound).all(), (m, k, n, name)
            for threads in (1, 3):
                tandem.set_threads(threads)
                assert torch.equal(executable.run([g, x])[0], actual), (m, k, n, threads)
            interpreted = build(inputs, lines, "%r", interpret=True)
            assert torch.equal(interpreted.run([g, x])[0], actual), (m, k, n, name)


@pytest.mark.parametrize("dynamic", [None, True])
def test_rows_are_added_to_a_products_gradient(dynamic):
    """A table that is looked up in and a factor: the scatter goes into what the product gave."""
    table = torch.randn(3000, 48, requires_grad=True)

    def function(table, rows):
        looked = torch.nn.functional.embedding(rows, table)
        return (looked.tanh() @ table.t()).square().mean()

    compiled = compile_with(function, dynamic=dynamic)
    for count in (64, 50, 64):
        rows = torch.randint(0, 3000, (count,))
        rows[: count // 2] = rows[0]
        expected = torch.autograd.grad(function(table, rows), table)[0]
        found = torch.autograd.grad(compiled(table, rows), table)[0]
        wide = table.detach().double().requires_grad_()
        exact = torch.autograd.grad(function(wide, rows), wide)[0]
        slack = 4 * (expected - exact).abs().max()  # of eager's own error, whose sums are as long
        assert (found - exact).abs().max() <= slack, count
