"""Compiled autograd's graphs (`torch._dynamo.compiled_autograd`): backward of what torch or Tandem
ran forward, as one graph that takes lists of tensors."""

import pytest
import torch
from torch._dynamo import compiled_autograd, config

import tandem
from compiled import ERROR, compile_with


def enabled(**options):
    torch._dynamo.reset()
    tandem.reset_report()
    compiler = torch.compile(backend=tandem.backend, options={**ERROR, **options})
    return lambda: compiled_autograd._enable(compiler)


def networks():
    def make():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    return make(), make()


def train(module, x, function=lambda y: y):
    function(module(x)).square().sum().backward()


def same_gradients(actual, expected):
    for a, b in zip(actual.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def compiled_operators():
    graphs = tandem.report()["graphs"]
    assert graphs and not any(graph["fallbacks"] for graph in graphs)
    return sum(sum(graph["ops"].values()) for graph in graphs)


def test_backward_is_compiled_and_gradients_add_up():
    actual, expected = networks()
    enable = enabled()
    for rows in (5, 5, 6, 7):
        x = torch.randn(rows, 4)
        with enable():
            train(actual, x)
        train(expected, x)
        same_gradients(actual, expected)
    assert compiled_operators() >= 10


def test_gradients_of_inputs_of_any_size():
    torch._dynamo.reset()
    tandem.reset_report()
    compiler = torch.compile(backend=tandem.backend, dynamic=True, options=ERROR)
    for size in (3, 4, 9):
        x = torch.randn(size, requires_grad=True)
        with compiled_autograd._enable(compiler):
            (grad,) = torch.autograd.grad((x.sin() * x).sum() * 2.5, x)
        torch.testing.assert_close(grad, 2.5 * (x.cos() * x + x.sin()).detach())
    assert compiled_operators() > 0


def test_hooks_are_called():
    actual, expected = networks()
    seen = []

    def triple(weight):
        weight.grad.mul_(3)

    for module in (actual, expected):
        module[0].weight.register_hook(lambda grad: seen.append(1) or grad * 2)
        module[2].weight.register_post_accumulate_grad_hook(triple)
    x = torch.randn(5, 4)
    enable = enabled()
    with enable():
        train(actual, x)
    train(expected, x)
    same_gradients(actual, expected)
    assert len(seen) == 2


class TripleSine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * 3


def test_a_function_of_the_users():
    actual, expected = networks()
    x = torch.randn(5, 4)
    enable = enabled()
    with enable():
        train(actual, x, TripleSine.apply)
    train(expected, x, TripleSine.apply)
    same_gradients(actual, expected)
    assert compiled_operators() > 0


@pytest.mark.parametrize("backend", ["tandem", "aot_eager"])
def test_behind_a_compiled_forward(backend):
    actual, expected = networks()
    enable = enabled()
    options = {"options": ERROR} if backend == "tandem" else {}
    chosen = tandem.backend if backend == "tandem" else backend
    compiled = torch.compile(actual, backend=chosen, **options)
    for rows in (5, 5, 6):
        x = torch.randn(rows, 4)
        with enable():
            train(compiled, x)
        train(expected, x)
        same_gradients(actual, expected)


def test_frozen_options_do_not_freeze_what_backward_reads():
    actual, expected = networks()
    enable = enabled(freeze=True)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (actual, expected)]
    for _ in range(3):
        x = torch.randn(5, 4)
        with enable():
            train(actual, x)
        train(expected, x)
        same_gradients(actual, expected)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert all(graph["frozen"] == {} for graph in tandem.report()["graphs"])


def test_within_a_compiled_step():
    actual, expected = networks()
    optimize = compile_with(lambda x: train(actual, x))
    with config.patch(compiled_autograd=True):
        for rows in (5, 5, 6):
            x = torch.randn(rows, 4)
            optimize(x)
            train(expected, x)
            same_gradients(actual, expected)


def spectrum(y):
    return torch.fft.fft(y).real


def test_what_is_not_compiled_is_counted_and_named():
    actual, expected = networks()
    x = torch.randn(5, 4)
    enable = enabled(on_unsupported="eager")
    with pytest.warns(UserWarning, match="runs? in torch"), enable():
        train(actual, x, spectrum)
    train(expected, x, spectrum)
    same_gradients(actual, expected)
    assert any(graph["fallbacks"] for graph in tandem.report()["graphs"])
    enable = enabled()
    with pytest.raises(Exception, match="Unsupported"), enable():
        train(actual, x, spectrum)
