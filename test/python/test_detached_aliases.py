"""A tensor and its detached alias share memory, and each has its own history: values, gradients and
which results have a history are eager's, in whatever order the two are written."""

import pytest
import torch

from compiled import compile_with


def zeroed_after_an_update(x, w):
    """The alias of the alias is written: what is above both keeps the history of `add_`."""
    alias = x.detach()
    x.add_(w)
    alias.detach().zero_()
    return x * w


def written_with_a_history(x, w):
    """`x` gets the values, not the history of `alias`."""
    alias = x.detach()
    x.fill_(1)
    alias.sub_(w)
    return x * 2


def written_above_afterwards(x, w):
    """The alias keeps the history that it got, whatever is written above it later."""
    y = x * 2
    alias = y.detach()
    alias.mul_(w)
    y.add_(1)
    return alias * y


def twice(x, w):
    y = x * 2
    alias = y.detach()
    alias.mul_(w)
    y.mul_(w)
    alias.add_(w)
    return alias.sin() + y


def part_of_an_alias(x, w):
    y = x * 2
    alias = y.detach()
    alias[1:].mul_(w[1:])
    y.add_(1)
    return alias.exp() + y


def foreach(x, w):
    alias = x.detach()
    torch._foreach_add_([alias], [w])
    return alias * x


def outcome(function, requires_grad):
    leaf = torch.linspace(0.1, 1, 4, dtype=torch.float64, requires_grad=requires_grad)
    w = torch.linspace(1, 2, 4, dtype=torch.float64, requires_grad=True)
    x = leaf * 1
    result = function(x, w)
    total = result.sum() + (x * x).sum()
    if total.requires_grad:
        total.backward()
    return [result.detach(), x.detach(), leaf.grad, w.grad], [result.requires_grad, x.requires_grad]


FUNCTIONS = [
    zeroed_after_an_update,
    written_with_a_history,
    written_above_afterwards,
    twice,
    part_of_an_alias,
    foreach,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("requires_grad", [False, True], ids=["x_plain", "x_requires_grad"])
def test_as_in_eager(function, requires_grad):
    expected, flags = outcome(function, requires_grad)
    found, found_flags = outcome(compile_with(function), requires_grad)
    assert found_flags == flags
    assert [each is None for each in found] == [each is None for each in expected]
    torch.testing.assert_close(
        [each for each in found if each is not None],
        [each for each in expected if each is not None],
    )


def test_an_alias_that_leaves_is_refused():
    """Its history would be its own, its memory an input's."""

    def leaves(x, w):
        alias = x.detach()
        torch._foreach_add_([alias], [w])
        return alias

    with pytest.raises(Exception, match="detached alias with a history of its own"):
        compile_with(leaves)(torch.zeros(4), torch.zeros(4, requires_grad=True))
    compiled = compile_with(leaves, on_unsupported="eager")
    with pytest.warns(UserWarning, match="detached alias"):
        assert compiled(torch.zeros(4), torch.zeros(4, requires_grad=True)).requires_grad
