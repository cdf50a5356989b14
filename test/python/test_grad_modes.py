"""Grad modes that a compiled function changes: outputs require gradients where eager's do, the
gradients are eager's, and the mode afterwards is."""

import gc

import pytest
import torch

import tandem
from compiled import compile_with


def left_off(x):
    y = x * 2
    torch.set_grad_enabled(False)
    z = y * 3
    return y, z


def turned_on_inside(x):
    y = x * 2
    with torch.enable_grad():
        z = x.sin()
    return y, z, y + z


def inference_inside(x):
    y = x * 2
    with torch.inference_mode():
        z = x * 3
    return y, z.shape[0], z.requires_grad


def inference_ended_inside(x):
    with torch.inference_mode():
        y = x * 3
        shape = y.shape[0]
    return x.sin() * shape


def nested(x):
    with torch.no_grad():
        a = x.sin()
        with torch.enable_grad():
            b = x.cos()
            with torch.no_grad():
                c = b * 2
    return a, b, c, a * b


def write_inside(x):
    y = x * 1
    with torch.no_grad():
        y.mul_(2)
    with torch.enable_grad():
        y.add_(x)
    return y, y * 2


def view_inside(x):
    before = x.view(2, 2)
    with torch.enable_grad():
        return before.shape[0], x.view(2, 2), x.sin()


FUNCTIONS = [
    view_inside,
    left_off,
    turned_on_inside,
    inference_inside,
    inference_ended_inside,
    nested,
    write_inside,
]


def facts(function, outer):
    x = torch.linspace(0.1, 1, 4, requires_grad=True)
    try:
        with torch.set_grad_enabled(outer):
            results = function(x)
            mode = torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    results = results if isinstance(results, tuple) else (results,)
    tensors = [each for each in results if isinstance(each, torch.Tensor)]
    others = [each for each in results if not isinstance(each, torch.Tensor)]
    flags = [each.requires_grad for each in tensors]
    differentiable = [each for each in tensors if each.requires_grad]
    if differentiable:
        torch.autograd.backward(differentiable, [torch.ones_like(y) for y in differentiable])
    return [each.detach() for each in tensors], flags, x.grad, mode, others


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("outer", [True, False], ids=["grad", "no_grad"])
def test_as_in_eager(function, outer):
    expected = facts(function, outer)
    found = facts(compile_with(function), outer)
    torch.testing.assert_close(found[0], expected[0])
    assert found[1] == expected[1]
    assert (found[2] is None) == (expected[2] is None)
    if expected[2] is not None:
        torch.testing.assert_close(found[2], expected[2])
    assert found[3:] == expected[3:]


def test_calls_of_both_modes():
    """One function, called with and without gradients around it."""
    compiled = compile_with(turned_on_inside)
    for outer in (True, False, True, False):
        assert facts(compiled, outer)[1] == facts(turned_on_inside, outer)[1]


COLLECTS = []


@torch.library.custom_op("tandem_test::asks", mutates_args=())
def asks(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@asks.register_fake
def _(x):
    COLLECTS.append(gc.isenabled())
    return torch.empty_like(x)


@pytest.mark.filterwarnings("ignore:tandem. operators that run in torch")
def test_nothing_is_collected_while_a_graph_is_traced():
    """A collection may end a generator that is inside of `no_grad`. That sets the mode, which the
    trace would record (PyTorch's op_db: one in sixty graphs was refused)."""
    compiled = compile_with(lambda x: asks(torch.sin(x)) * 2, on_unsupported="eager")
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), torch.sin(x) * 2)
    assert COLLECTS[-1] is False  # Dynamo asked before
    assert gc.isenabled()
