"""A call that fails leaves every input as it was, whatever it was to write and wherever it fails.

Programs are orders of statements, each a line of the graph and the same in eager."""

import itertools

import pytest
import torch

import tandem
from graphs import build

ROWS, COLUMNS = 96, 40  # rows enough for several tasks, so that some finish before one fails
INPUTS = "%a: f32[96, 40], %b: f32[96, 40], %c: f32[96, 40], %d: f32[40, 40], %i: i64[96]"


def exp_(v):
    v["a"].exp_()


def add_ones(v):
    v["b"].add_(1.0)


def add_across(v):
    v["c"].add_(v["a"])


def product(v):
    v["a"].copy_(torch.mm(v["b"], v["d"]))


def swap(v):
    old = v["a"].clone()
    v["a"].copy_(v["b"])
    v["b"].copy_(old)


def pick(v):
    v["r"] = torch.index_select(v["b"], 0, v["i"])


def add_picked(v):
    v["c"].add_(torch.index_select(v["b"], 0, v["i"]))


def add_gathered_sum(v):
    v["b"].mul_(torch.index_select(v["a"], 0, v["i"]).sum(1, keepdim=True))


def multiply_embedding(v):
    v["d"].copy_(torch.mm(torch.embedding(v["a"], v["i"]).t(), v["c"]))


def add_rows(v):
    v["a"].index_add_(0, v["i"], v["c"])


def fill_rows(v):
    v["b"].index_fill_(0, v["i"], 2.0)


def add_own_rows(v):
    v["c"].index_add_(0, v["i"], v["c"].flip(0))  # of what it writes: not in place


STATEMENTS = {
    exp_: ["%{n} = aten.exp_(%a)"],
    add_ones: ["%{n} = aten.add_.Scalar(%b, 1.0)"],
    add_across: ["%{n} = aten.add_.Tensor(%c, %a)"],
    product: ["%{n}p = aten.mm(%b, %d)", "%{n} = aten.copy_(%a, %{n}p)"],
    swap: [
        "%{n}o = aten.clone(%a)",
        "%{n}x = aten.copy_(%a, %b)",
        "%{n} = aten.copy_(%b, %{n}o)",
    ],
    pick: ["%r = aten.index_select(%b, 0, %i)"],
    add_picked: ["%{n}g = aten.index_select(%b, 0, %i)", "%{n} = aten.add_.Tensor(%c, %{n}g)"],
    add_gathered_sum: [
        "%{n}g = aten.index_select(%a, 0, %i)",
        "%{n}s = aten.sum.dim_IntList(%{n}g, [1], true)",
        "%{n} = aten.mul_.Tensor(%b, %{n}s)",
    ],
    add_rows: ["%{n} = aten.index_add_(%a, 0, %i, %c)"],
    fill_rows: ["%{n} = aten.index_fill_.int_Scalar(%b, 0, %i, 2.0)"],
    add_own_rows: ["%{n}f = aten.flip(%c, [0])", "%{n} = aten.index_add_(%c, 0, %i, %{n}f)"],
    multiply_embedding: [
        "%{n}g = aten.embedding(%a, %i)",
        "%{n}t = aten.t(%{n}g)",
        "%{n}p = aten.mm(%{n}t, %c)",
        "%{n} = aten.copy_(%d, %{n}p)",
    ],
}
SETS = [
    (pick, exp_, add_ones, add_across),
    (add_picked, exp_, add_ones),
    (add_picked, add_across, product),
    (add_gathered_sum, exp_, add_across),
    (multiply_embedding, add_ones, swap),
    (add_picked, swap, add_across),
    (add_rows, fill_rows, add_ones),
    (add_rows, pick, exp_),
    (fill_rows, add_picked, add_own_rows),
    (add_rows, product),
    (add_rows,),
    (add_own_rows,),
    (add_picked,),
    (add_gathered_sum,),
    (multiply_embedding, add_picked, exp_),
]
ORDERS = [order for statements in SETS for order in itertools.permutations(statements)]


def lines_of(order):
    return [
        line.replace("{n}", f"n{i}") for i, step in enumerate(order) for line in STATEMENTS[step]
    ]


def make_inputs(transposed):
    torch.manual_seed(3)
    values = {name: torch.randn(ROWS, COLUMNS) * 0.1 for name in "abc"}
    values["d"] = torch.randn(COLUMNS, COLUMNS) * 0.1
    values["i"] = torch.randint(0, ROWS, (ROWS,))
    if transposed:  # other strides than the program's: it works on copies
        for name in "ac":
            values[name] = values[name].t().contiguous().t()
    return values


def check_succeeds(executable, order, transposed):
    values, expected = make_inputs(transposed), make_inputs(transposed)
    results = executable.run([values[name] for name in executable.inputs])
    for step in order:
        step(expected)
    for name in "abcd":
        torch.testing.assert_close(values[name], expected[name], rtol=2e-5, atol=1e-5)
    for result in results:
        torch.testing.assert_close(result, expected["r"], rtol=2e-5, atol=1e-5)


def check_fails(executable, bad_row, transposed):
    values, before = make_inputs(transposed), make_inputs(transposed)
    values["i"][bad_row] = before["i"][bad_row] = ROWS
    with pytest.raises(tandem.UserError, match="index out of range"):
        executable.run([values[name] for name in executable.inputs])
    for name in values:
        assert torch.equal(values[name], before[name]), name


@pytest.mark.parametrize("order", ORDERS, ids=["-".join(s.__name__ for s in o) for o in ORDERS])
def test_inputs_of_a_failing_call(order):
    results = "%r" if pick in order else ""
    executable = build(INPUTS, lines_of(order), results, always_parallel=True)
    for threads in [1, 3]:
        tandem.set_threads(threads)
        for transposed in [False, True]:
            for bad_row in [0, ROWS // 2, ROWS - 1]:
                check_fails(executable, bad_row, transposed)
            check_succeeds(executable, order, transposed)
    tandem.set_threads(1)
