"""Tandem in a process that does real things: exceptions, threads, forks, memory. What
may die or hang runs in a process of its own, with a time limit."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import compile_with

HERE = os.path.dirname(__file__)
PACKAGE = os.path.dirname(os.path.dirname(tandem.__file__))


def same(actual, expected, tolerance=1e-4):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def run_script(text, seconds=300, **environment):
    """stdout and stderr of a Python process, which must end well and in time."""
    # A parent in the background ignores SIGINT, and hands that on.
    header = (
        f"import signal, sys; sys.path.insert(0, {HERE!r})\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", header + textwrap.dedent(text)],
        env={**os.environ, "PYTHONPATH": PACKAGE, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout, done.stderr


# --- exceptions of the program


INDEXED = {
    "embedding": lambda x, i: F.embedding(i, x),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index.Tensor": lambda x, i: x[i],
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
    "take": lambda x, i: x.take(i),
    "scatter.value": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "floor_divide": lambda x, i: i // (i - 77),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("training", [False, True])
def test_values_that_an_operator_does_not_take(name, training):
    operator = INDEXED[name]

    def function(x, i, first, second, statistics):
        first.add_(1)
        statistics.mul_(0.9).add_(x.detach().mean(), alpha=0.1)
        out = operator(x, i)
        second.add_(out.sum().to(second.dtype).detach() * 0 + 1)
        return out * 1, second * 2

    def arguments(*indices):
        torch.manual_seed(0)
        x = torch.randn(3, 3, requires_grad=training)
        return [x, torch.tensor(indices), torch.zeros(4), torch.zeros(3000), torch.ones(())]

    compiled = compile_with(function)
    compiled(*arguments(0, 2))
    bad = arguments(1, 77)
    before = [tensor.detach().clone() for tensor in bad]
    with pytest.raises((IndexError, RuntimeError)) as eager:
        operator(bad[0], bad[1])
    with pytest.raises(eager.type, match=rf"\[aten::{name}\]"):
        compiled(*bad)
    for tensor, old in zip(bad, before, strict=True):
        assert torch.equal(tensor, old) and tensor._version == 0
    good, expected = arguments(2, 1), arguments(2, 1)
    for actual, wanted in zip(compiled(*good), function(*expected), strict=True):
        same(actual, wanted)
    for actual, wanted in zip(good, expected, strict=True):
        same(actual, wanted)


def test_no_input_is_written_before_a_kernel_that_fails():
    def function(w, i, written, other, rows):
        doubled = other * 2  # a launch that others join
        picked = F.embedding(i, w)
        rows.mul_(3)
        written.add_(1)
        return doubled, picked, torch.softmax(rows, 1)

    arguments = [torch.randn(50, 30), torch.tensor([1, 2]), torch.zeros(2000), torch.ones(3000)]
    arguments.append(torch.ones(40, 50))
    compiled = compile_with(function)
    compiled(*arguments)
    arguments[1] = torch.tensor([1, 99])
    with pytest.raises(IndexError):
        compiled(*arguments)
    assert (arguments[2] == 1).all() and (arguments[4] == 3).all()


def test_a_host_operator_that_raises():
    def function(a, b):
        b.add_(1)
        a.mul_(2)
        return torch.linalg.cholesky(a) + b

    compiled = compile_with(function, on_unsupported="eager")
    for _ in range(2):
        a, b = -torch.eye(3), torch.zeros(3)
        with pytest.raises(torch.linalg.LinAlgError, match="positive-definite") as caught:
            compiled(a, b)
        if sys.version_info >= (3, 11):
            assert "aten.linalg_cholesky, which runs in torch" in caught.value.__notes__[0]
        assert torch.equal(a, -torch.eye(3)) and torch.equal(b, torch.zeros(3))
        assert a._version == b._version == 0
    a, b = torch.eye(3), torch.zeros(3)
    same(compiled(a, b), torch.linalg.cholesky(2 * torch.eye(3)) + 1)
    same(a, 2 * torch.eye(3))


FAILS_IN = {"where": ""}


@torch.library.custom_op("tandem_test::fragile", mutates_args=())
def fragile(x: torch.Tensor) -> torch.Tensor:
    if FAILS_IN["where"] == "forward":
        raise KeyError("forward fails")
    return x * 2


@fragile.register_fake
def _(x):
    return torch.empty_like(x)


def fragile_backward(ctx, grad):
    if FAILS_IN["where"] == "backward":
        raise LookupError("backward fails")
    return grad * 2


fragile.register_autograd(fragile_backward)


def test_a_custom_operator_that_raises_in_forward_or_backward():
    norm = torch.nn.BatchNorm1d(4)

    def function(x, total):
        y = norm(x)
        total.add_(1)
        return (fragile(y) * y).sum()

    compiled = compile_with(function, on_unsupported="eager")
    x, total = torch.randn(5, 4, requires_grad=True), torch.zeros(3)
    FAILS_IN["where"] = "forward"
    before = [buffer.clone() for buffer in norm.buffers()]
    with pytest.raises(KeyError, match="forward fails"):
        compiled(x, total)
    assert torch.equal(total, torch.zeros(3))
    assert all(torch.equal(a, b) for a, b in zip(norm.buffers(), before, strict=True))
    FAILS_IN["where"] = "backward"
    loss = compiled(x, total)
    with pytest.raises(LookupError, match="backward fails"):
        loss.backward(retain_graph=True)
    assert x.grad is None and norm.weight.grad is None
    FAILS_IN["where"] = ""
    loss.backward()
    actual = [x.grad, norm.weight.grad]
    x.grad = norm.weight.grad = None
    norm.train()
    function(x, total).backward()
    for a, e in zip(actual, [x.grad, norm.weight.grad], strict=True):
        same(a, e)


# --- threads


def network():
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.LayerNorm(64)
    )
    parameters = list(module.parameters())
    inputs = [torch.randn(40, 64) for _ in range(4)]

    def function(x):
        return (module(x) * 2).tanh().sum(1)

    def loss_gradients(call, x):
        return torch.autograd.grad(call(x).sum(), parameters)

    results = [function(x).detach() for x in inputs]
    gradients = [loss_gradients(function, x) for x in inputs]

    def infer(compiled, number, times):
        with torch.no_grad():
            for _ in range(times):
                same(compiled(inputs[number]), results[number])

    def train(compiled, number, times):
        for _ in range(times):
            found = loss_gradients(compiled, inputs[number])
            for a, e in zip(found, gradients[number], strict=True):
                same(a, e, 1e-3)

    return function, infer, train, inputs, gradients, parameters


def at_once(*jobs):
    """Runs the jobs on threads of their own; none may fail or hang."""
    failures = []

    def guarded(job):
        try:
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_threads_share_a_compiled_model():
    function, infer, train, *_ = network()
    compiled = compile_with(function)
    at_once(*[lambda n=n: infer(compiled, n, 50) for n in range(4)])  # the first calls compile
    at_once(*[lambda n=n: train(compiled, n, 25) for n in range(4)], lambda: infer(compiled, 0, 50))


def test_a_thread_compiles_while_others_run():
    function, infer, train, inputs, *_ = network()
    compiled = compile_with(function)
    infer(compiled, 0, 1)

    def compile_more():
        for number in range(3):
            other = torch.compile(
                lambda x, k=number: (x * (k + 3)).tanh().sum(1), backend=tandem.backend
            )
            with torch.no_grad():
                same(other(inputs[0]), (inputs[0] * (number + 3)).tanh().sum(1))

    at_once(compile_more, lambda: infer(compiled, 0, 300), lambda: train(compiled, 1, 100))


def test_backward_in_another_thread_than_forward():
    function, _, _, inputs, gradients, parameters = network()
    compiled = compile_with(function)
    losses = [compiled(x).sum() for x in inputs]

    def backward(number, retain):
        found = torch.autograd.grad(losses[number], parameters, retain_graph=retain)
        for a, e in zip(found, gradients[number], strict=True):
            same(a, e, 1e-3)

    at_once(*[lambda n=n: backward(n, True) for n in range(4) for _ in range(2)])
    at_once(*[lambda n=n: backward(n, False) for n in range(4)])


def resident_mebibytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_many_calls_and_short_lived_threads_keep_no_memory():
    function, infer, train, *_ = network()
    compiled = compile_with(function)

    def some():
        infer(compiled, 0, 500)
        train(compiled, 1, 100)
        for _ in range(100):
            at_once(lambda: infer(compiled, 0, 1), lambda: train(compiled, 1, 1))

    some()
    before = resident_mebibytes()
    some()
    assert resident_mebibytes() - before < 4


def test_a_dropped_function_frees_its_code(monkeypatch):
    made = []
    compile_function = tandem._tandem.compile_function

    def remember(*args, **keywords):
        native = compile_function(*args, **keywords)
        made.append(weakref.ref(native))
        return native

    monkeypatch.setattr(tandem._tandem, "compile_function", remember)
    for _ in range(3):
        module = torch.nn.Linear(4, 4)
        compiled = compile_with(module)
        compiled(torch.ones(2, 4)).sum().backward()
        with torch.no_grad():
            compiled(torch.ones(2, 4))
    assert len(made) == 6
    del module, compiled
    torch._dynamo.reset()
    gc.collect()
    assert [native() for native in made] == [None] * 6


def test_compiling_again_and_again_keeps_no_memory():
    out, _ = run_script(
        """
        import gc, os, torch, tandem

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

        def cycle():
            torch._dynamo.reset()
            module = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.LayerNorm(256))
            compiled = torch.compile(module, backend=tandem.backend)
            compiled(torch.randn(16, 256)).sum().backward()
            with torch.no_grad():
                compiled(torch.randn(16, 256))

        for _ in range(15):
            cycle()
        gc.collect()
        before = resident()
        for _ in range(50):
            cycle()
        gc.collect()
        print((resident() - before) / 50)
        """
    )
    assert float(out) < 1.0  # MiB a cycle; Dynamo's own caches take about 0.3


# --- forks

FORK = """
import os, signal, sys, threading, time
import torch, tandem
from compiled import compile_with

torch.set_num_threads(4)
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
x = torch.randn(512, 256)
function = lambda x: (torch.softmax(module(x), 1) * 2).exp().sum(1)
expected = function(x).detach()

def check(compiled):
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected, rtol=1e-3, atol=1e-3)

def train(compiled):
    compiled(x).sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.0).step()

def in_child(job):
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        code = 1
        try:
            job()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0

compiled = compile_with(function)
check(compiled)
train(compiled)
"""
WARNING = "here compiled programs run on one thread"


def test_a_forked_child_computes():
    _, err = run_script(
        FORK
        + """
for _ in range(2):
    in_child(lambda: [check(compiled), train(compiled), check(compiled)])
check(compiled)
"""
    )
    assert err.count(WARNING) == 2  # one each


def test_a_forked_child_compiles():
    _, err = run_script(
        FORK
        + """
def compile_and_run():
    other = compile_with(lambda x: torch.linalg.matrix_exp(function(x)[:9].view(3, 3) / 1e3) + 1,
                         on_unsupported="eager")
    with torch.no_grad():
        torch.testing.assert_close(
            other(x), torch.linalg.matrix_exp(expected[:9].view(3, 3) / 1e3) + 1)
    assert torch.get_num_threads() == 1

in_child(compile_and_run)
assert torch.get_num_threads() == 4
"""
    )
    assert err.count(WARNING) == 1


def test_forks_while_other_threads_run_and_compile():
    _, err = run_script(
        FORK
        + """
# Not by Dynamo: a thread in its guards holds a lock that a child, of any backend, waits for.
executable = tandem.compile_text(
    "graph @run(%x: f32[512, 256], %y: f32[256, 512]) {\\n"
    " %0 = aten.mm(%x, %y)\\n %1 = aten.softmax.int(%0, -1)\\n return %1\\n}")
inputs = [x, module[0].weight.detach().t().contiguous()]
product, stop = torch.softmax(inputs[0] @ inputs[1], 1), []

def check_executable():
    torch.testing.assert_close(executable.run(inputs)[0], product, rtol=1e-3, atol=1e-3)

def run():
    while not stop:
        check_executable()

def compile_texts():
    size = 1
    while not stop:
        size += 1
        tandem.compile_text(f"graph @f(%x: f32[{size}]) {{\\n %0 = aten.exp(%x)\\n return %0\\n}}")

threads = [threading.Thread(target=job) for job in (run, run, compile_texts)]
for thread in threads:
    thread.start()
try:
    for _ in range(12):
        in_child(lambda: [check(compiled), check_executable(), tandem.compile_text(
            "graph @f(%x: f32[3]) {\\n %0 = aten.exp(%x)\\n return %0\\n}")])
finally:
    stop.append(True)
    for thread in threads:
        thread.join()
""",
        TANDEM_CACHE_DIR="",
    )
    assert err.count(WARNING) == 12


def test_workers_of_a_data_loader_and_of_multiprocessing():
    run_script(
        FORK
        + """
import multiprocessing

def collate(items):
    with torch.no_grad():
        return compiled(torch.stack(items)[:, None].expand(-1, 256)).sum(), torch.get_num_threads()

data = torch.arange(32.0)
loader = torch.utils.data.DataLoader(
    data, batch_size=4, num_workers=2, collate_fn=collate, multiprocessing_context="fork",
    timeout=60)
for batch, (total, threads) in enumerate(loader):
    rows = data[4 * batch : 4 * batch + 4, None].expand(-1, 256)
    torch.testing.assert_close(total, function(rows).sum().detach(), rtol=1e-3, atol=1e-3)
    assert threads == 1
def work(queue):
    check(compiled)
    queue.put("right")

context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=work, args=(queue,))
process.start()
assert queue.get(timeout=60) == "right"
process.join(60)
assert process.exitcode == 0
"""
    )
