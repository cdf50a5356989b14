"""Options of the backend that change no result: `threads`, `tune` and `verify`."""

import contextlib
import os
import threading
import time
import warnings

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import compile_with, through_core
from tandem import dynamo


def exponents(x):
    return torch.exp(x).sum(1)


BIG = torch.randn(2048, 1024)  # some milliseconds on one thread


def worker_threads(compiled, wanted):
    """How many threads of this process did work while the calling thread called. Nobody waits for
    one that has not begun, so calls go on until `wanted` ones have worked, or for ten seconds."""

    def nanoseconds():
        found = {}
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError):  # it has ended
                with open(f"/proc/self/task/{task}/schedstat") as file:
                    found[task] = int(file.read().split()[0])
        return found

    before = nanoseconds()
    end = time.monotonic() + 10
    count = 0
    with torch.no_grad():
        while count < wanted and time.monotonic() < end:
            for _ in range(40):
                compiled(BIG)
            after = nanoseconds()
            count = sum(after[task] - before.get(task, 0) > 2_000_000 for task in after)
    return count


@pytest.fixture
def four_threads():
    number = torch.get_num_threads()
    tandem.set_threads(None)
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(number)
    tandem.set_threads(None)


def test_calls_follow_the_number_of_torch(four_threads):
    compiled = compile_with(exponents)
    expected = exponents(BIG)
    torch.testing.assert_close(compiled(BIG), expected)
    assert worker_threads(compiled, 4) == 4
    torch.set_num_threads(1)
    assert tandem.threads() == 1 and worker_threads(compiled, 1) == 1
    torch.set_num_threads(2)
    assert tandem.threads() == 2 and worker_threads(compiled, 2) == 2
    assert torch.equal(compiled(BIG), compiled(BIG))


def test_threads_of_python_follow_too(four_threads):
    compiled = compile_with(exponents)
    compiled(BIG)
    torch.set_num_threads(1)
    counts = []
    thread = threading.Thread(target=lambda: counts.append(worker_threads(compiled, 1)))
    thread.start()
    thread.join()
    assert counts == [1]


def test_the_option_and_set_threads_win(four_threads):
    one = compile_with(exponents, threads=1)
    assert torch.equal(one(BIG), compile_with(exponents)(BIG))
    assert worker_threads(one, 1) == 1
    torch.set_num_threads(1)
    three = compile_with(exponents, threads=3)
    three(BIG)
    assert worker_threads(three, 3) == 3
    compiled = compile_with(exponents)
    compiled(BIG)
    tandem.set_threads(2)
    assert tandem.threads() == 2 and worker_threads(compiled, 2) == 2
    tandem.set_threads(None)
    assert tandem.threads() == 1 and worker_threads(compiled, 1) == 1


def test_a_team_may_change_while_a_call_runs(four_threads):
    """What a call holds per thread has the size of the team it began with."""
    softmax = compile_with(lambda x: torch.softmax(x, 1) @ x.t()[:, :8])
    with torch.no_grad():
        expected = softmax(BIG)
        stop = []

        def change():
            while not stop:
                for number in (8, 1, 3):
                    tandem.set_threads(number)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(30):
                assert torch.equal(softmax(BIG), expected)
        finally:
            stop.append(True)
            thread.join()


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_numbers_of_threads_that_are_none(value):
    with pytest.raises(Exception, match="option 'threads' is a positive number or None"):
        compile_with(exponents, threads=value)(BIG)


# --- verify


def program(x, w, total):
    total.add_(x.sum(0))
    y = torch.sin(x @ w)
    return torch.softmax(y, 1).view(-1), torch.relu(y).sum(), x.t()


def arguments():
    torch.manual_seed(0)
    return torch.randn(4, 5), torch.randn(5, 6, requires_grad=True), torch.zeros(5)


def test_a_right_graph_is_verified_once_and_leaves_nothing_behind():
    compiled = compile_with(program, verify=True)
    x, w, total = arguments()
    for call in range(2):
        out = compiled(x, w, total)
        torch.testing.assert_close(total, (call + 1) * x.sum(0))
        assert total._version == call + 1 and w.grad is None
    out[1].backward()
    assert w.grad is not None
    (graph,) = tandem.report()["graphs"]
    assert graph["verified"] == "yes" and "verified: yes" in str(tandem.report())


def breaking(monkeypatch, old, new):
    """From here on graphs are compiled with one operator replaced."""
    encode = dynamo.encode

    def broken(*args, **keywords):
        encoded = encode(*args, **keywords)
        assert old in encoded.text
        encoded.text = encoded.text.replace(old, new)
        return encoded

    monkeypatch.setattr(dynamo, "encode", broken)


@pytest.mark.parametrize(
    "old, new, messages",
    [
        (
            "aten.sin(",
            "aten.cos(",
            [
                "result 0, of aten.view (test_options.py:",
                "24 of 24 elements differ by more than",
                "instead of",
                "gradient of input L_w_: 30 of 30",
                "the first operator that differs is aten.sin (test_options.py:",
            ],
        ),
        (
            "aten.relu(",
            "aten.neg(",
            ["result 1, of aten.sum", "the first operator that differs is aten.relu"],
        ),
        (
            "aten.add_.Tensor(",
            "aten.sub_.Tensor(",
            ["written input L_total_: 5 of 5", "the first operator that differs is aten.add_"],
        ),
    ],
)
def test_a_broken_graph_is_found(monkeypatch, old, new, messages):
    compiled = compile_with(program, verify=True)
    breaking(monkeypatch, old, new)
    x, w, total = arguments()
    for _ in range(2):  # it is as wrong the second time
        with pytest.raises(tandem.VerificationError) as caught:
            compiled(x, w, total)
        for message in messages:
            assert message in str(caught.value)
        assert torch.equal(total, torch.zeros(5)) and total._version == 0


def test_a_broken_gradient_is_found(monkeypatch):
    compiled = compile_with(lambda x: (x.sin() * x).sum(), verify=True)
    monkeypatch.setattr(dynamo, "Compiled", _WrongGradient)
    with pytest.raises(tandem.VerificationError, match="gradient of input L_x_: 3 of 3 elements"):
        compiled(torch.ones(3, requires_grad=True))


class _WrongGradient(dynamo.Compiled):
    def callable(self):
        call = super().callable()

        def wrong(*args):
            (out,) = call(*args)
            out.register_hook(lambda grad: grad * 2)
            return [out]

        return wrong


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_modules_of_every_float_are_verified(dtype):
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.GELU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 6 * 6, 4), torch.nn.LogSoftmax(1),
    ).to(dtype)  # fmt: skip
    compiled = compile_with(module, verify=True)
    compiled(torch.randn(2, 3, 8, 8, dtype=dtype)).sum().backward()
    assert module[1].num_batches_tracked == 1
    module.eval()
    with torch.no_grad():
        compiled(torch.randn(2, 3, 8, 8, dtype=dtype))
    assert [graph["verified"] for graph in tandem.report()["graphs"]] == ["yes", "yes"]


def test_an_optimizer_step_is_verified_and_done_once():
    def parameters():
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 4)
        layer(torch.ones(2, 4)).square().sum().backward()
        return list(layer.parameters())

    ours, eager = parameters(), parameters()
    mine = torch.optim.Adam(ours, lr=0.1)
    other = torch.optim.Adam(eager, lr=0.1)
    step = compile_with(mine.step, verify=True)
    for _ in range(3):
        step()
        other.step()
    for a, e in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, e)
    graphs = tandem.report()["graphs"]
    assert graphs and all(graph["verified"] == "yes" for graph in graphs)


def test_a_random_graph_is_not_verified_and_says_why():
    compiled = compile_with(lambda x: F.dropout(x, 0.5, True), verify=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(torch.ones(100))
        compiled(torch.ones(100))
    texts = [str(each.message) for each in caught if "tandem" in str(each.message)]
    assert len(texts) == 1 and "not verified: it draws random numbers" in texts[0]
    assert tandem.report()["graphs"][0]["verified"].startswith("no: it draws random numbers")


def test_verification_costs_nothing_after_the_first_call(monkeypatch):
    from tandem import verify

    runs = []
    run = verify._run
    monkeypatch.setattr(verify, "_run", lambda *args: runs.append(1) or run(*args))
    compiled = compile_with(program, verify=True)
    x, w, total = arguments()
    for _ in range(5):
        compiled(x, w, total)
    assert len(runs) == 2  # eager and compiled, once each
    compiled(torch.randn(9, 5), w, total)  # a new graph
    assert len(runs) == 4


def test_graphs_whose_sizes_data_tell_are_verified():
    flags = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    torch._dynamo.reset()
    tandem.reset_report()
    options = {"verify": True, "on_unsupported": "eager"}
    compiled = torch.compile(
        lambda x: torch.unique(x, dim=0) * 2, backend=tandem.backend, options=options
    )
    x = torch.tensor([[1.0], [-1.0], [1.0]])
    with torch._dynamo.config.patch(flags):
        torch.testing.assert_close(compiled(x), torch.tensor([[-2.0], [2.0]]))
    (graph,) = tandem.report()["graphs"]
    assert graph["verified"] == "yes" and graph["fallbacks"] == {"aten.unique_dim": 1}


def test_graphs_that_draw_from_a_generator_are_not_verified_and_say_so():
    ours, theirs = (torch.Generator().manual_seed(3) for _ in range(2))
    x = torch.zeros(4)
    with pytest.warns(UserWarning, match="not verified: it draws from a torch.Generator"):
        (drawn,) = through_core(
            lambda x: [x + torch.rand(4, generator=ours)],
            {"verify": True, "on_unsupported": "eager"},
        )(x)
    assert torch.equal(drawn, torch.rand(4, generator=theirs))
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_the_report_says_how_much_memory_is_held():
    def function(x):
        return (x.sin() @ x.cos()).relu()

    x = torch.randn(512, 512, requires_grad=True)
    run = compile_with(function, memory_budget="as_read")
    run(x).sum().backward()
    tandem.empty_cache()
    before = tandem.memory_use()
    assert before["cached_bytes"] == 0
    kept = run(x)
    held = tandem.memory_use()["live_bytes"] - before["live_bytes"]
    assert held >= 2 * x.numel() * 4  # the result, and what backward needs
    assert tandem.report()["memory"]["peak_live_bytes"] >= before["live_bytes"] + held
    assert "MiB in use" in str(tandem.report())
    del kept
    after = tandem.memory_use()
    assert after["live_bytes"] == before["live_bytes"]
    assert after["cached_bytes"] >= held
    tandem.empty_cache()
    assert tandem.memory_use()["cached_bytes"] == 0


def test_tuned_kernels_compute_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(96, 200), torch.nn.GELU(), torch.nn.LayerNorm(200), torch.nn.Linear(200, 10)
    )
    x = torch.randn(64, 96)
    expected = model(x)
    expected.square().mean().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    actual = compile_with(model, tune=True)(x)
    actual.square().mean().backward()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close([p.grad for p in model.parameters()], gradients)
    assert list(tmp_path.rglob("*.tune"))  # something was timed, and is kept


def test_tune_is_true_or_false():
    with pytest.raises(Exception, match="option 'tune' is True or False"):
        compile_with(exponents, tune="much")(BIG)
