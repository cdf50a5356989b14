"""Tensor.register_hook on what a compiled graph computes: gradients are those of eager."""

import pytest
import torch

import tandem
from compiled import compile_with


def one(x, w):
    y = x.sin()
    y.register_hook(lambda g: g * 2)
    return y.exp() * w


def two(x, w):
    y = x.sin()
    y.register_hook(lambda g: g * 2)
    z = y.exp()
    y.register_hook(lambda g: g + 1)  # goes second, over the sum of what all uses give
    return z * w + y.cos()


def used_before(x, w):
    y = x * w
    z = y.exp()
    y.register_hook(lambda g: g * g)
    return z + y


def reads_another_tensor(x, w):
    y = x * 3
    y.register_hook(lambda g: g * w)
    return y.tanh()


def clips(x, w):
    y = (x * w).sin()
    y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return y.sum() * 5


def written_after(x, w):
    y = x * w
    y.register_hook(lambda g: g * 2)
    y.mul_(3)
    return y.sin()


def of_a_view(x, w):
    y = (x * w)[1:]
    y.register_hook(lambda g: g * 2)
    return y.sin()


def gives_nothing(x, w):
    y = x * w
    y.register_hook(lambda g: None)
    return y.sin()


def gradients(function):
    torch.manual_seed(0)
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    result = function(x, w)
    result.sum().backward()
    return result.detach(), x.grad, w.grad


CASES = [one, two, used_before, reads_another_tensor, clips, written_after, of_a_view]


@pytest.mark.parametrize("function", [*CASES, gives_nothing], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(function, dynamic):
    expected = gradients(function)
    torch.testing.assert_close(gradients(compile_with(function, dynamic=dynamic)), expected)


def test_a_hook_that_reads_what_comes_later():
    """The hook belongs to `y` from the start, and reads what is not there then: torch runs it."""

    def function(x, w):
        y = x * w
        z = y.exp()
        y.register_hook(lambda g: g * z.detach())
        return z

    compiled = compile_with(function, on_unsupported="eager")
    with pytest.warns(UserWarning, match="a hook reads what is computed after"):
        found = gradients(compiled)
    torch.testing.assert_close(found, gradients(function))
    with pytest.raises(Exception, match="a hook reads what is computed after"):
        gradients(compile_with(function))


def test_a_hook_on_a_view_that_is_written():
    """The write would have to reach `x` through the hook."""

    def function(x, w):
        z = x * w
        y = z[1:]
        y.register_hook(lambda g: g * 2)
        y.mul_(3)
        return z

    expected = gradients(function)
    compiled = compile_with(function, on_unsupported="eager")
    torch.testing.assert_close(gradients(compiled), expected)
    assert tandem.report()["graphs"][-1]["fallbacks"]
