"""Loops and branches in one graph: the work is compiled, and nothing counts as run in torch."""

from functools import partial

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401: its operators
import torch.nn.functional as F
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.utils import _pytree as pytree

import tandem
from compared import beside_eager
from compiled import compile_with


def inputs(requires_grad=True):
    torch.manual_seed(0)
    x, w = torch.randn(5, 4), torch.randn(4, 4)
    return x.requires_grad_(requires_grad), w.requires_grad_(requires_grad)


class Eager:
    """What the operators mean, as loops. (In eager torch compiles them, which takes seconds.)"""

    @staticmethod
    def cond(predicate, taken, other, operands):
        return (taken if predicate else other)(*operands)

    @staticmethod
    def while_loop(condition, body, carried):
        while condition(*carried):
            carried = body(*carried)
        return carried

    @staticmethod
    def map_rows(body, xs, *rest):
        return torch.stack([body(row, *rest) for row in xs])

    @staticmethod
    def scan(body, carry, xs, dim=0, reverse=False):
        leaves, spec = pytree.tree_flatten(xs)
        steps = list(zip(*[leaf.unbind(dim) for leaf in leaves], strict=True))
        rows = []
        for step in reversed(steps) if reverse else steps:
            carry, row = body(carry, pytree.tree_unflatten(list(step), spec))
            rows.append(row)
        rows = rows[::-1] if reverse else rows
        return carry, pytree.tree_map(lambda *column: torch.stack(column, dim), *rows)

    @staticmethod
    def associative_scan(body, xs, dim, combine_mode):
        assert combine_mode == "generic"
        rows = list(xs.unbind(dim))
        for i in range(1, len(rows)):
            rows[i] = body(rows[i - 1], rows[i])
        return torch.stack(rows, dim)


class Torch:
    cond = torch.cond
    while_loop = while_loop
    map_rows = map_rows
    associative_scan = associative_scan

    @staticmethod
    def scan(body, carry, xs, dim=0, reverse=False):
        return scan(body, carry, xs, dim=dim, reverse=reverse)


def branches(flow, x, w):
    def taken(x):
        return (x @ w).sin(), x[:2] * 3

    return flow.cond(x.sum() > 0, taken, lambda x: (x.cos() @ w, x[1:3].exp()), (x,))


def rows(flow, x, w):
    return flow.map_rows(lambda row, w: (row @ w).sin(), x * 2, w)


def steps(flow, x, w):
    def step(carry, row):
        carry = torch.tanh(carry + row @ w)
        return carry, carry * 2

    return flow.scan(step, torch.zeros(4), x)


def backwards(flow, x, w):
    def step(carry, row):
        return carry * w.sum().tanh() + row, carry * 2

    return flow.scan(step, x[:, 0] * 1, x, 1, True)


def several(flow, x, w):
    def step(carry, row):
        a, count = carry
        return (a + row[0], count + row[1].sum()), (a * row[1].sum(), count * 2)

    count = torch.tensor(3.0, dtype=torch.float64)
    return flow.scan(step, (torch.zeros(4), count), (x, (x @ w)))


def doubling(flow, x, w):
    def step(i, x):
        return i + 1, (x @ w).tanh()

    return flow.while_loop(lambda i, x: (i < 4) & (x.sum() < 100), step, (torch.tensor(0), x))


def prefixes(flow, x, w):
    return flow.associative_scan(lambda a, b: a * b, x @ w, 0, combine_mode="generic")


def nested(flow, x, w):
    def step(carry, row):
        carry = flow.cond(
            row.sum() > 0,
            lambda c, r: torch.tanh(c + r @ w),
            lambda c, r: c.sin() * r,
            (carry, row),
        )
        return carry, carry * 2

    def branch(x):
        return flow.map_rows(lambda row, w: (row @ w).cos(), x, w)

    last, columns = flow.scan(step, torch.zeros(4), x)
    return last, flow.cond(columns.sum() > 0, branch, lambda x: x @ w, (columns,))


ALL = [branches, rows, steps, backwards, several, doubling, prefixes, nested]


def both(function):
    return partial(function, Torch), partial(function, Eager)


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_as_in_eager(function, dynamic):
    x, w = inputs()
    ours, reference = both(function)
    options = {"dynamic": dynamic, "on_unsupported": "strict"}
    compiled = beside_eager(ours, x, w, reference=reference, **options)
    flipped = -x.detach().requires_grad_()
    beside_eager(ours, flipped, w, compiled=compiled, reference=reference)
    with torch.no_grad():
        beside_eager(ours, x, w, compiled=compiled, reference=reference)
    graphs = tandem.report()["graphs"]
    assert len(graphs) == 2 and all(graph["fallbacks"] == {} for graph in graphs)
    if function is not prefixes:
        assert sum(graphs[0]["control flow"].values()) >= 1
        assert "control flow: " in str(tandem.report())
    assert all(graph["control flow in Python"] == {} for graph in graphs)


def test_beside_torch_itself():
    x, w = inputs()
    beside_eager(partial(steps, Torch), x, w)


def test_one_program_for_every_length():
    _, w = inputs()
    ours, reference = both(steps)
    compiled = compile_with(ours, dynamic=True, fullgraph=True)
    for length in (2, 5, 9):
        x = torch.randn(length, 4, requires_grad=True)
        beside_eager(ours, x, w, compiled=compiled, reference=reference)
    assert len(tandem.report()["graphs"]) == 1


def test_what_needs_no_gradient_gets_none():
    x, w = inputs()
    ours, reference = both(steps)
    beside_eager(ours, x, w.detach(), reference=reference)
    graph = tandem.report()["graphs"][0]
    assert graph["training"] and graph["control flow in Python"] == {}
    assert "%a1: f32[4, 4], " in graph["text"] or "%a1: f32[4, 4])" in graph["text"]


def test_operands_of_the_branch_not_taken_get_zeros():
    def function(flow, x, y):
        return flow.cond(x.sum() > 0, lambda x, y: x * 2, lambda x, y: y * 3, (x, y))

    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    gradient = torch.autograd.grad(compile_with(partial(function, Torch))(x, y).sum(), (x, y))
    assert torch.equal(gradient[0], torch.full((3,), 2.0)) and not gradient[1].any()


def test_branch_on_a_size_is_decided_when_compiling():
    def function(flow, x):
        return flow.cond(x.shape[0] > 3, torch.sin, torch.cos, (x,))

    ours, reference = both(function)
    compiled = compile_with(ours, dynamic=True, fullgraph=True)
    for length in (2, 3, 5, 7):
        beside_eager(ours, torch.randn(length), compiled=compiled, reference=reference)
    assert len(tandem.report()["graphs"]) == 2


def test_the_program_runs_it():
    """A loop that data end and a branch in it: "strict" would raise for what Python runs."""

    def function(flow, x, w):
        def step(i, x):
            small = flow.cond(x.sum() > 10, lambda x: x * 0.5, lambda x: x + 1, (x,))
            return i + 1, (small @ w).abs()

        first = (torch.tensor(0), x)
        return flow.while_loop(lambda i, x: (i < 9) & (x.sum() < 50), step, first)

    ours, reference = both(function)
    compiled = compile_with(ours, fullgraph=True, on_unsupported="strict")
    for scale in (0.1, 1.0, 1000.0):
        x, w = inputs(False)
        beside_eager(ours, x * scale, w, compiled=compiled, reference=reference)
    graph = tandem.report()["graphs"][0]
    assert graph["control flow"] == {"while_loop": 1} and graph["control flow in Python"] == {}
    assert graph["bodies"] == [] and graph["text"].count("tandem.cond") == 1


@pytest.mark.parametrize("budget", ["min_cut", 0.5, "64MiB", "min_memory"])
@pytest.mark.parametrize("function", [steps, nested, doubling], ids=lambda f: f.__name__)
def test_memory_budgets(function, budget):
    """A budget in bytes schedules candidates with the bodies that they run."""
    ours, reference = both(function)
    options = {"memory_budget": budget, "on_unsupported": "strict"}
    beside_eager(ours, *inputs(), reference=reference, **options)


def test_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))
    ours, reference = both(nested)
    for is_from_cache in (False, True):
        beside_eager(ours, *inputs(), reference=reference)
        assert tandem.report()["graphs"][0]["from cache"] == is_from_cache


def test_no_iterations():
    def function(flow, x):
        return flow.while_loop(lambda x: x.sum() > 1e9, lambda x: (x * 2,), (x,))

    ours, reference = both(function)
    x, _ = inputs(False)
    beside_eager(ours, x, reference=reference)


def test_operands_that_are_not_row_major():
    def function(flow, x, w):
        def step(carry, row):
            carry = (carry + row) @ w.t()
            return carry.sin(), carry * row

        return flow.scan(step, torch.zeros(3, 3), x.permute(2, 0, 1).expand(2, 3, 3))

    ours, reference = both(function)
    x, w = torch.randn(3, 3, 1, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    beside_eager(ours, x, w, reference=reference)


def test_bool_carry():
    def function(flow, x):
        def step(go, i, x):
            return i.sum() < 6, i + 1, x.cos()

        first = (torch.tensor(True), torch.zeros(2, dtype=torch.int32), x)
        return flow.while_loop(lambda go, i, x: go & True, step, first)

    ours, reference = both(function)
    beside_eager(ours, inputs(False)[0], reference=reference)


def cast_inside(flow, x, w):
    def product(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x + 1) @ w

    return flow.cond(x.sum() > 0, product, lambda x: product(x * 2), (x,))


def cast_outside(flow, x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return flow.cond(x.sum() > 0, lambda x: (x + 1) @ w, lambda x: x @ w, (x,))


@pytest.mark.parametrize("function", [cast_inside, cast_outside])
def test_autocast(function):
    ours, reference = both(function)
    beside_eager(ours, *inputs(), reference=reference, tolerance=2e-2)


def test_no_grad_region():
    def function(flow, x, w):
        with torch.no_grad():
            y = rows(flow, x, w)
        return y * x

    ours, reference = both(function)
    beside_eager(ours, *inputs(), reference=reference)
    graph = tandem.report()["graphs"][0]
    assert '"g_1_0") {no_grad}' in graph["text"] and graph["control flow in Python"] == {}


def drop_rows(x):
    return map_rows(lambda row: F.dropout(row * 2, 0.5), x)


def drop_in_branch(x):
    return torch.cond(x.sum() > 0, drop_rows, lambda x: x * 1, (x,))


def drop_steps(x):
    return scan(lambda c, row: (c * 1, F.dropout(row * 2, 0.5)), torch.zeros(200), x)[1]


@pytest.mark.parametrize("function", [drop_rows, drop_in_branch, drop_steps])
def test_dropout(function):
    """Iterations draw their own masks, the gradient meets the same ones, manual_seed repeats."""
    compiled = compile_with(function, fullgraph=True)
    x = torch.ones(3, 200, requires_grad=True)
    torch.manual_seed(1)
    first = compiled(x)
    torch.manual_seed(1)
    again, other = compiled(x), compiled(x)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])
    assert 0.35 < (first == 0).float().mean() < 0.65
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())  # 4 where the mask is, from ones
    assert tandem.report()["graphs"][0]["control flow in Python"] == {}


def test_refused():
    def written(x):
        def step(x):
            x.add_(1)
            return x.sin()

        return torch.cond(x.sum() > 0, step, step, (x,))

    with pytest.raises(Exception, match="mutation"):
        compile_with(written)(torch.ones(3))


def test_operator_that_tandem_lacks_in_a_body():
    def function(flow, x):
        return flow.cond(x.sum() > 0, lambda x: torch.linalg.det(x) + x, torch.cos, (x,))

    ours, reference = both(function)
    x = torch.eye(3).requires_grad_()
    with pytest.raises(Exception, match="linalg_det"):
        compile_with(ours)(x)
    with pytest.warns(UserWarning, match="linalg_det"):
        beside_eager(ours, x, reference=reference, on_unsupported="eager")
    assert "linalg_det" in str(tandem.report()["graphs"][0]["fallbacks"])


def test_a_while_loop_has_a_second_gradient():
    """Both gradients of eager's loop, in f64; three steps, and none."""

    def eager(x, y):
        while x.sum() < 100:
            x = x * x * y
        return x

    def loop(x, y):
        return while_loop(
            lambda x, y: x.sum() < 100, lambda x, y: (x * x * y, y.clone()), (x, y)
        )[0]

    compiled = compile_with(loop, fullgraph=True, on_unsupported="strict")
    for start in (3.0, 200.0):
        found = []
        for function in (eager, compiled):
            x = torch.tensor([start], dtype=torch.float64, requires_grad=True)
            y = torch.tensor([0.9], dtype=torch.float64, requires_grad=True)
            total = (function(x, y) * 2 + x * x * y).sum()
            first = torch.autograd.grad(total, (x, y), create_graph=True)
            found.append([*first, *torch.autograd.grad(first[0].sum(), (x, y))])
        torch.testing.assert_close(found[1], found[0])


def test_quantized_products_in_a_branch_are_of_integers():
    q = torch.ops.quantized_decomposed

    def product(x, w):
        left = q.dequantize_per_tensor(x, 0.02, 3, 0, 255, torch.uint8)
        return F.linear(left, q.dequantize_per_tensor(w, 0.1, 0, -127, 127, torch.int8))

    def f(x, w, predicate):
        return torch.cond(predicate, product, lambda x, w: product(x, w) * 2, (x, w))

    x = torch.randint(0, 255, (4, 16), dtype=torch.uint8)
    w = torch.randint(-127, 127, (8, 16), dtype=torch.int8)
    with torch.no_grad():
        compiled = compile_with(f, int8="require", report=True, on_unsupported="strict")
        sums = (x.double() - 3) @ w.double().T
        for taken in (True, False):
            result = compiled(x, w, torch.tensor(taken))
            wanted = (sums * (0.02 * 0.1) * (1 if taken else 2)).float()
            torch.testing.assert_close(result, wanted, rtol=1e-6, atol=0)
    (graph,) = tandem.report()["graphs"]
    assert len(graph["quantized products"]) == 2 and "dot" in graph["kernels"]
