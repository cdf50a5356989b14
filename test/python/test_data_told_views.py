"""Views at places, and of sizes, that only data tell, in what the caller gets: the program gives
the numbers, and torch makes the views, of the caller's tensor where eager does."""

import pytest
import torch
from torch._dynamo import config

from compiled import compile_with


def written(x, k):
    y = x * 2
    y[k:].zero_()
    return y, y[k:]


def written_through(x, k):
    view = (x * 2)[:k]
    return view.add_(1)


def of_one_base(x, k):
    y = x * 2
    return y[k:], y[:k], y


def chained(x, k):
    y = x * 2
    return y[k:][1:], y[k:].view(-1), y.view(-1)[k:]


VIEWS = {
    "x[k:]": lambda x, k: x[k:],
    "x[:k]": lambda x, k: x[:k],
    "x[k]": lambda x, k: x[k],
    "(2x)[k:]": lambda x, k: (x * 2)[k:],
    "(2x)[:k]": lambda x, k: (x * 2)[:k],
    "(2x)[k]": lambda x, k: (x * 2)[k],
    "(2x)[:, k:].t()": lambda x, k: (x * 2)[:, k:].t(),
    "narrow": lambda x, k: (x * 2).narrow(0, k, 2),
    "split": lambda x, k: (x * 2).split([k, 6 - k]),
    "as_strided": lambda x, k: (x * 2).as_strided((2, 2), (5, 1), k),
    "expand": lambda x, k: (x * 2)[0].expand(k, 5),
    "unfold": lambda x, k: (x * 2).unfold(0, 2, 1)[k],
    "of one base": of_one_base,
    "chained": chained,
    "written": written,
    "written through": written_through,
}
NUMBERS = {"given": lambda i: i.sum().item(), "counted": lambda i: (i > 0).sum().item()}


def at_number(view, number):
    def function(x, i):
        k = NUMBERS[number](i)
        torch._check(k >= 0)
        torch._check(k < 4)
        return view(x, k)

    return function


def flags(count):
    return (torch.arange(4) < count).long()


def results_of(function, x, i):
    results = function(x, i)
    results = results if isinstance(results, (tuple, list)) else (results,)
    (gradient,) = torch.autograd.grad(sum(each.sin().sum() for each in results), x)
    return [*results, gradient]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_views(name, number, dynamic):
    function = at_number(VIEWS[name], number)
    with config.patch(capture_scalar_outputs=True):
        compiled = compile_with(function, fullgraph=True, dynamic=dynamic)
        for count in (1, 3, 2):
            x = torch.randn(6, 5, requires_grad=True)
            found = [results_of(call, x, flags(count)) for call in (function, compiled)]
            for eager, ours in zip(*found, strict=True):
                torch.testing.assert_close(ours, eager)
                assert ours.stride() == eager.stride()
                assert ours.storage_offset() == eager.storage_offset()
                assert (ours._base is None) == (eager._base is None)
                assert (ours._base is x) == (eager._base is x)


@pytest.mark.parametrize("number", NUMBERS)
def test_memory_of_the_caller(number):
    """What is written at such a place is the caller's, and so is what is written to the result."""
    function = at_number(lambda x, k: x[k:].mul_(3)[1:], number)
    with config.patch(capture_scalar_outputs=True):
        compiled = compile_with(function, fullgraph=True)
        for count in (1, 3, 2):
            x = torch.randn(6, 5)
            theirs, ours = x.clone(), x.clone()
            function(theirs, flags(count)).add_(1)
            compiled(ours, flags(count)).add_(1)
            torch.testing.assert_close(ours, theirs)
