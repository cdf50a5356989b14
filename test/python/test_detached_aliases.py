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


def leaves(x, w):
    """Memory of an input, history of its own."""
    alias = x.detach()
    torch._foreach_add_([alias], [w])
    return alias


def leaves_in_part(x, w):
    y = x * 2
    alias = y[1:].detach()
    alias.mul_(w[1:])
    return (alias[:2], y)


def leaves_beside_what_is_above(x, w):
    alias = x.detach()
    alias.mul_(w)
    below = alias.detach()
    x.mul_(w)
    return (below, alias, x)


def leaves_without_a_history(x, w):
    alias = x.detach()
    alias.mul_(2)
    return (alias, x * w)


def written_twice_and_leaves(x, w):
    first = x.detach()
    first.mul_(w)
    second = first.detach()
    second.add_(w)
    return (second, first)


def outcome(function, requires_grad):
    leaf = torch.linspace(0.1, 1, 4, dtype=torch.float64, requires_grad=requires_grad)
    w = torch.linspace(1, 2, 4, dtype=torch.float64, requires_grad=True)
    x = leaf * 1
    results = function(x, w)
    results = results if isinstance(results, tuple) else (results,)
    flags = [result.requires_grad for result in (*results, x)]
    memory = [result.untyped_storage().data_ptr() for result in (*results, x)]
    shared = [memory.index(place) for place in memory]
    total = sum((k + 2) * result.sum() for k, result in enumerate(results)) + (x * x).sum()
    if total.requires_grad:
        total.backward()
    values = [result.detach() for result in results]
    return [*values, x.detach(), leaf.grad, w.grad], [flags, shared]


FUNCTIONS = [
    zeroed_after_an_update,
    written_with_a_history,
    written_above_afterwards,
    twice,
    part_of_an_alias,
    foreach,
    leaves,
    leaves_in_part,
    leaves_beside_what_is_above,
    leaves_without_a_history,
    written_twice_and_leaves,
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


def test_an_alias_that_leaves_may_be_written():
    """By whoever gets it: it is no view of the input, so its history may change."""
    w = torch.linspace(1, 2, 4, requires_grad=True)
    gradients = []
    for function in (leaves, compile_with(leaves)):
        x = torch.ones(4)
        alias = function(x, w)
        version = x._version
        alias.mul_(3)
        assert x._version == version + 1
        torch.testing.assert_close(x, alias.detach())
        gradients += torch.autograd.grad(alias.sum(), w)
    torch.testing.assert_close(*gradients)
