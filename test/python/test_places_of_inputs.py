"""Nobody guards at what place of its storage an input lies, nor which inputs share one: a call may
bring other slices than the first one did."""

import pytest
import torch

import tandem
from compiled import compile_with


def slices():
    base = torch.arange(12.0)
    return [base[0:4], base[4:8], base[5:9], torch.randn(4)]


FUNCTIONS = {
    "view": lambda x: (x[1:], x + 1),
    "twice": lambda x: (x[1:], x[2:], x.view(2, 2)),
    "view of a view": lambda x: x[1:][1:],
    "as_strided": lambda x: (x.as_strided((2,), (1,)), x * 2),
    "detached": lambda x: (x[1:].detach(), x + 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]])
def test_views_of_an_input(name, order):
    compiled = compile_with(FUNCTIONS[name])
    inputs = slices()
    for i in order:
        found, expected = compiled(inputs[i]), FUNCTIONS[name](inputs[i])
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            [each.storage_offset() for each in found], [each.storage_offset() for each in expected]
        )


def test_an_offset_in_the_storage():
    """An explicit offset of as_strided counts in the storage: other places run in torch."""

    def function(x):
        return x.as_strided((2,), (1,), 1) * 1

    compiled = compile_with(function)
    for x in slices():
        torch.testing.assert_close(compiled(x), function(x))
    assert tandem.report()["graphs"][-1]["calls in torch"] == 2  # of base[4:8] and base[5:9]


@pytest.mark.parametrize("first", ["shared", "apart"])
def test_inputs_that_share_memory_once(first):
    """The view is of the second input, whatever it shared memory with when it was compiled."""

    def function(x, y):
        return x + 1, y[1:]

    base = torch.randn(8)
    calls = [(base[:4], base[2:6]), (torch.randn(4), torch.randn(4))]
    compiled = compile_with(function)
    for x, y in calls if first == "shared" else reversed(calls):
        found = compiled(x, y)
        torch.testing.assert_close(found, function(x, y))
        assert found[1].untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def test_strides_of_one_element():
    """A dimension of one element has eager's stride, too."""

    def function(a, b):
        return torch.stack([a, b]).unfold(0, 2, 1) * 2

    a, b = torch.randn(5, 6), torch.randn(5, 6)
    assert compile_with(function)(a, b).stride() == function(a, b).stride()
