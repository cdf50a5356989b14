"""Frozen weights through torch.compile: each call computes with the weights that its module has at
that moment, whoever else calls the same graph; what changed is noticed, what did not costs nothing.
"""

import gc
import threading
import weakref

import pytest
import torch

import tandem
from compiled import compile_with
from tandem import _tandem, function

X = torch.tensor([1.0, 2.0, 3.0])


class Scale(torch.nn.Module):
    """Its setup squares the weight; it draws, so that Python runs between compare and run."""

    def __init__(self, value):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), float(value)))

    def forward(self, x):
        drawn = torch.where(torch.rand_like(x) < 2, x, 0.0)
        return drawn * self.weight * (self.weight * 2).exp().log()


def frozen_modules(*values, freeze=True):
    modules = [Scale(value) for value in values]
    torch._dynamo.reset()
    tandem.reset_report()
    options = {"freeze": freeze, "on_unsupported": "error"}
    calls = [torch.compile(m, backend=tandem.backend, options=options) for m in modules]
    return modules, calls


def frozen_counts():
    (graph,) = tandem.report()["graphs"]
    return graph["frozen"]


def check(call, module):
    with torch.no_grad():
        torch.testing.assert_close(call(X), 2 * X * module.weight**2, rtol=1e-5, atol=1e-6)


def test_a_call_runs_with_the_weights_that_it_compared(monkeypatch):
    """Another module of the class binds between a call's compare and its run."""
    modules, calls = frozen_modules(2, 5)
    for call, module in zip(calls, modules, strict=True):
        check(call, module)
    draw, others = function.draw_seed, []

    def draw_while_another_calls():
        if not others:
            others.append(threading.Thread(target=check, args=(calls[1], modules[1])))
            others[0].start()
            others[0].join()
        return draw()

    monkeypatch.setattr(function, "draw_seed", draw_while_another_calls)
    check(calls[0], modules[0])
    assert others, "the other call came in between"
    check(calls[0], modules[0])


def test_modules_in_turn_run_setup_once_each():
    modules, calls = frozen_modules(2, 3, 4)
    for _ in range(5):
        for call, module in zip(calls, modules, strict=True):
            check(call, module)
    assert frozen_counts() == {"bindings": 3, "sets": 3, "bytes": 3 * 12}


def write_version(module):
    module.weight.add_(1)


def write_in_inference_mode(module):
    with torch.inference_mode():
        module.weight.add_(1)


def write_data(module):
    module.weight.data = module.weight * 2


def write_vector(module):
    torch.nn.utils.vector_to_parameters(torch.tensor([4.0, 5.0, 6.0]), module.parameters())


def replace(module):
    module.weight = torch.nn.Parameter(torch.tensor([7.0, 8.0, 9.0]))


def load(module):
    module.load_state_dict({"weight": torch.tensor([1.0, 2.0, 3.0])})


def assign(module):
    module.load_state_dict({"weight": torch.tensor([3.0, 2.0, 1.0])}, assign=True)


def step(module):
    module.weight.grad = torch.ones(3)
    torch.optim.SGD(module.parameters(), lr=0.5).step()
    module.weight.grad = None


WRITES = [write_version, write_in_inference_mode, write_data, write_vector, replace, load, assign]
WRITES += [step]


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_a_weight_that_changed_is_noticed_at_the_next_call(write):
    (module,), (call,) = frozen_modules(2)
    for _ in range(2):
        check(call, module)
        before = module.weight.detach().clone()
        with torch.no_grad():
            write(module)
        check(call, module)
        assert not torch.equal(before, module.weight) or write in (load, assign, write_vector)
        if write in (replace, assign):
            break  # another tensor


def test_data_of_other_strides_is_noticed():
    class Square(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(9.0).view(3, 3))

        def forward(self, x):
            return x @ (self.weight * 2)

    module = Square()
    call = compile_with(module, freeze=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(call(X), X @ (module.weight * 2))
            module.weight.data = module.weight.data.t()  # the same address


def test_weights_made_in_inference_mode_are_arguments():
    with torch.inference_mode():
        module = Scale(2)
    call = compile_with(module, freeze=True)
    for _ in range(2):
        check(call, module)
        with torch.inference_mode():
            module.weight.add_(1)
        check(call, module)
    graph = tandem.report()["graphs"][0]
    assert graph["weights of inference mode"] == 1 and graph["frozen"] == {}
    assert "not frozen: 1 weights made in inference mode" in str(tandem.report())


def test_weights_beside_an_operator_that_tells_a_size():
    linear = torch.nn.Linear(4, 4).eval()

    def function(x):
        return linear(torch.unique(x, dim=0)).relu()  # torch makes what has a size of its own

    torch._dynamo.reset()
    options = {"freeze": True, "on_unsupported": "eager"}
    captured = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    with captured, torch.no_grad():
        compiled = torch.compile(function, backend=tandem.backend, options=options)
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(x), function(x))
        linear.weight.add_(1)
        torch.testing.assert_close(compiled(x), function(x))
    graph = tandem.report()["graphs"][-1]
    assert graph["fallbacks"] == {"aten.unique_dim": 1} and graph["frozen"]["sets"] == 1


@pytest.mark.parametrize("write", ["data", "numpy"])
def test_checked_notices_writes_that_nothing_counts(write):
    (module,), (call,) = frozen_modules(2, freeze="checked")
    for _ in range(3):
        check(call, module)
    assert frozen_counts()["bindings"] == 1
    if write == "data":
        module.weight.data[2] = 3
    else:
        module.weight.detach().numpy()[1] = 7
    check(call, module)
    assert frozen_counts() == {"bindings": 2, "sets": 1, "bytes": 12}


def test_freeze_is_true_false_or_checked():
    with pytest.raises(Exception, match="option 'freeze' is one of .*'checked'.*not 1"):
        compile_with(Scale(1), freeze=1)(X)


def test_a_set_goes_with_its_module():
    modules, calls = frozen_modules(2, 3)
    for call, module in zip(calls, modules, strict=True):
        check(call, module)
    assert frozen_counts()["sets"] == 2
    memory = weakref.ref(modules[1].weight.untyped_storage())
    weight = weakref.ref(modules[1].weight)
    del modules[1:], calls[1:], call, module
    gc.collect()
    assert weight() is None and memory() is None
    assert frozen_counts()["sets"] == 1
    check(calls[0], modules[0])


def test_the_number_of_sets_is_bounded(monkeypatch):
    most = _tandem.FrozenSets.most
    make, made = function.Frozen, []
    monkeypatch.setattr(function, "Frozen", lambda *args: made.append(make(*args)) or made[-1])
    (module,), (call,) = frozen_modules(0)
    check(call, module)
    weights = [torch.full((3,), float(i)) for i in range(most + 10)]
    for weight in weights:
        made[0].find((weight,))
    assert frozen_counts()["sets"] == most
    check(call, module)
    assert frozen_counts() == {"bindings": most + 12, "sets": most, "bytes": most * 12}


def test_threads_over_one_graph_get_their_own_modules_results():
    modules, calls = frozen_modules(*range(1, 7))
    for call, module in zip(calls, modules, strict=True):
        check(call, module)
    failures = []

    def work(call, module):
        try:
            for _ in range(100):
                check(call, module)
        except BaseException as error:
            failures.append(error)

    pairs = zip(calls, modules, strict=True)
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert frozen_counts()["bindings"] == 6


@pytest.mark.parametrize("reads_other", [True, False])
def test_a_weight_that_nothing_needs(reads_other):
    """It is given at each call like the others, and is no argument of the program."""

    class Unused(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("one", torch.randn(3))
            self.register_buffer("two", torch.randn(3))

        def forward(self, x):
            self.one.select(0, 0)
            return x * self.two if reads_other else x + 1

    model, x = Unused(), torch.randn(3)
    with torch.no_grad():
        assert torch.equal(compile_with(model, freeze=True)(x), model(x))
