"""Numbers that only data tell, in Python's arithmetic: part of the program, with Python's values.
Everything here is strict: nothing runs in torch, and no graph is cut."""

import itertools
import math
import struct

import pytest
import torch
from torch._dynamo import config
from torch._higher_order_ops import while_loop

import tandem
from compared import beside_eager
from compiled import compile_with

STRICT = {"on_unsupported": "strict"}


@pytest.fixture(autouse=True)
def one_graph():
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def strict(function, **options):
    return compile_with(function, fullgraph=True, **STRICT, **options)


def exact(value):
    """NaN is itself, and -0.0 is not 0.0."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def whole_graph():
    graphs = tandem.report()["graphs"]
    assert all(graph["fallbacks"] == {} for graph in graphs)


INTEGERS = (3, -7, 0, 1 << 40, (1 << 53) + 1, -(1 << 59) - 12345)
FLOATS = (2.5, 1.0, 0.1, -0.1, 0.0, -0.0, 1e300, -3.0, math.inf, math.nan)

OF_FLOATS = {
    "sums": lambda a, b: (a + b, a - b, a * b, -a, abs(a), a * 2 + 1),
    "quotient": lambda a, b: a / b,
    "rest": lambda a, b: (a // b, a % b),
    "floor": lambda a, b: math.floor(a),
    "ceil": lambda a, b: math.ceil(a),
    "trunc": lambda a, b: int(a),
    "round": lambda a, b: round(a),
    "extremes": lambda a, b: (max(a, b), min(a, b), max(a, 2.0)),
    "root": lambda a, b: math.sqrt(a),
}
OF_INTEGERS = {
    "quotient": lambda n, m: n / m,
    "rest": lambda n, m: (n // m, n % m),
    "floats": lambda n, m: (n + 0.5, n * 2.5, m - 1.5, float(n), n / 3.0),
    "extremes": lambda n, m: (max(n, m), min(n, m)),
}


def results_of(function, *arguments):
    """Numbers, or the error."""
    try:
        values = function(*arguments)
    except (ArithmeticError, ValueError) as error:
        return next(kind for kind in (ZeroDivisionError, OverflowError, ValueError)
                    if isinstance(error, kind))
    return [exact(value) for value in (values if isinstance(values, tuple) else (values,))]


def check_all(function, dtype, values):
    def of_tensors(x, y):
        numbers = function((x * 1).item(), (y * 1).item())
        return (*(numbers if isinstance(numbers, tuple) else (numbers,)), x + 1)

    compiled = strict(of_tensors)
    for a, b in itertools.product(values, repeat=2):
        tensors = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
        wanted = results_of(function, a, b)
        if isinstance(wanted, type):
            with pytest.raises((ArithmeticError, ValueError)) as raised:
                compiled(*tensors)
            assert isinstance(raised.value, wanted), (a, b)
        elif all(not isinstance(each, int) or abs(each) < 1 << 63 for each in wanted):
            assert [exact(each) for each in compiled(*tensors)[:-1]] == wanted, (a, b)
        else:  # an integer of more than 64 bits
            with pytest.raises(OverflowError):
                compiled(*tensors)
    whole_graph()


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name):
    check_all(OF_FLOATS[name], torch.float64, FLOATS)


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers(name):
    check_all(OF_INTEGERS[name], torch.int64, INTEGERS)


def scaled(x, n, m):
    return x * (n.item() * 2.5 + m.item()) - x.sum() / (m.item() + 4)


def rooted(x, n, m):
    scale = math.sqrt(abs(m.item())) / n.item()
    return torch.clamp(x * scale, min=-scale, max=scale * 2).sin(), scale


def of_history(x, n, m):
    """Numbers have none."""
    s = (x.sum() * 2).item() + 1.5
    return x * s + x.exp() * (s - m.item())


def written(x, n, m):
    y = x * 2
    before = y.sum().item()
    y.add_(1)
    after = y.sum().item()
    return y * (after - before), after / 2


@pytest.mark.parametrize("function", [scaled, rooted, of_history, written])
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_with_tensors(function, dynamic, dtype):
    x = torch.linspace(-0.9, 1.7, 5, dtype=dtype).requires_grad_()
    numbers = torch.tensor(3), torch.tensor(0.75, dtype=torch.float64)
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    compiled = beside_eager(
        function, x, *numbers, dynamic=dynamic, tolerance=tolerance, **STRICT
    )
    whole_graph()
    others = torch.tensor(-2), torch.tensor(3.5, dtype=torch.float64)
    beside_eager(function, x, *others, compiled=compiled, tolerance=tolerance)
    with torch.no_grad():
        beside_eager(function, x, *others, compiled=compiled, tolerance=tolerance)


def test_bools():
    def function(x, flag, n):
        holds, large = flag.item(), n.item() > 3
        return x * holds, x + torch.sym_ite(holds, 2.5, -1.0), holds, large, torch.sym_not(holds)

    def eager(x, flag, n):
        holds, large = flag.item(), n.item() > 3
        return x * holds, x + (2.5 if holds else -1.0), holds, large, not holds

    x = torch.randn(4, requires_grad=True)
    compiled = None
    for flag, n in itertools.product((True, False), (1, 9)):
        compiled = beside_eager(
            function, x, torch.tensor(flag), torch.tensor(n), compiled=compiled, reference=eager,
            **({} if compiled else STRICT),
        )
    whole_graph()


def test_checks():
    def function(x, a, flag):
        torch._check(a.item() > 0.5, lambda: "too small")
        torch._check(flag.item())
        return x * a.item()

    compiled = strict(function)
    x, a = torch.randn(3), torch.tensor(0.75, dtype=torch.float64)
    torch.testing.assert_close(compiled(x, a, torch.tensor(True)), x * 0.75)
    for small, flag in ((0.25, True), (math.nan, True), (0.75, False)):
        with pytest.raises(RuntimeError):
            compiled(x, torch.tensor(small, dtype=torch.float64), torch.tensor(flag))


def test_sizes_of_floats():
    def function(x, a):
        n = int(a.item() * 2.5)
        torch._check(n >= 0)
        torch._check(n <= 6)
        return x[:n] * 2, torch.ones(n), n + 1

    x = torch.randn(6, 3, requires_grad=True)
    compiled = beside_eager(function, x, torch.tensor(1.3), **STRICT)
    for value in (0.0, 2.0, 0.4):
        beside_eager(function, x, torch.tensor(value), compiled=compiled)
    with pytest.raises(RuntimeError):
        compiled(x, torch.tensor(4.0))
    whole_graph()


def test_floats_of_the_caller():
    """They come with the call, and meet those that data tell."""

    def function(x, n, lr, decay):
        scale = n.item() / 3 - lr
        return x * (1 - lr * decay) - scale, x / (n.item() + decay), scale * 2

    x = torch.randn(4, requires_grad=True)
    compiled = strict(function, dynamic=True)
    for lr, decay in ((0.1, 2.0), (0.5, 3.0), (1e-3, -0.5)):
        beside_eager(function, x, torch.tensor(5), lr, decay, compiled=compiled)
    assert len(tandem.report()["graphs"]) <= 2


def taken_by_a_branch(x, n, a):
    count = (n + 0).item()  # of an input itself Dynamo guards what the predicate is
    return torch.cond(
        a.item() * 2 > count,
        lambda x, a: (x * (a.item() / 3)).sin() + count,
        lambda x, a: x / (a.item() + count),
        (x, a),
    )


def branch_in_eager(x, n, a):
    scale, count = a.item(), n.item()
    return (x * (scale / 3)).sin() + count if scale * 2 > count else x / (scale + count)


def carried_by_a_loop(x, n, a):
    def step(i, k, x):
        return i + 1, k * 2, x * (a.sum().item() / 2) + i / k

    i, k, y = while_loop(lambda i, k, x: i < 5, step, (n.item(), 3, x))
    return y * k, i, k, i / k


def loop_in_eager(x, n, a):
    i, k, scale = n.item(), 3, a.item() / 2
    while i < 5:
        i, k, x = i + 1, k * 2, x * scale + i / k
    return x * k, i, k, i / k


def read_in_a_loop(x, n, a):
    def step(i, x):
        return i + 1, x * (i.item() + a.sum().item() / 2)

    return while_loop(lambda i, x: i.item() < 4, step, (n.clone(), x))


def reads_in_eager(x, n, a):
    i = n.clone()
    while i.item() < 4:
        i, x = i + 1, x * (i.item() + a.sum().item() / 2)
    return i, x


def masks_in_a_loop(x, n, a):
    def step(i, x):
        return i + 1, x * x[x > 0].sum().tanh()

    return while_loop(lambda i, x: i < 3, step, (n.clone(), x))[1]


def masks_in_eager(x, n, a):
    for _ in range(n.item(), 3):
        x = x * x[x > 0].sum().tanh()
    return x


CONTROL = [
    (taken_by_a_branch, branch_in_eager),
    (carried_by_a_loop, loop_in_eager),
    (read_in_a_loop, reads_in_eager),
    (masks_in_a_loop, masks_in_eager),
]


@pytest.mark.parametrize("function,eager", CONTROL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("history", [False, True], ids=["values", "gradients"])
def test_control_flow(function, eager, dynamic, history):
    if history and function is carried_by_a_loop:
        pytest.skip("torch's own while_loop takes no integers beside a history")
    x = torch.linspace(-1, 1, 4, requires_grad=history)
    compiled = None
    for n, a in ((1, 0.75), (7, 0.5), (2, 3.0)):
        numbers = torch.tensor(n), torch.tensor(a, dtype=torch.float64)
        options = {} if compiled else {"dynamic": dynamic, **STRICT}
        compiled = beside_eager(
            function, x, *numbers, compiled=compiled, reference=eager, **options
        )
    whole_graph()
    for graph in tandem.report()["graphs"]:
        assert sum(graph["control flow"].values()) == 1 and graph["control flow in Python"] == {}


def test_second_gradients():
    def function(x, n):
        return (x**3 * (n.item() / 3)).sum()

    def second(f):
        x = torch.linspace(0.5, 1, 3, requires_grad=True)
        (first,) = torch.autograd.grad(f(x, torch.tensor(7)), x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), x)[0]

    torch.testing.assert_close(second(strict(function)), second(function))


def test_numbers_alone():
    def function(n, a):
        return n.item() + 1, a.item() * n.item()

    compiled = strict(function)
    assert compiled(torch.tensor(3), torch.tensor(0.5)) == (4, 1.5)


def test_long_sums():
    """No recursion on what a user writes."""

    def function(x, a):
        total = a.item()
        for i in range(300):
            total = total * 0.99 + i
        return x * total

    x, a = torch.randn(3), torch.tensor(0.5, dtype=torch.float64)
    beside_eager(function, x, a, **STRICT)
