"""Operators with `out=`, asserts on data, and the bits of a tensor seen as another type: what is
handed on, what is written, what raises."""

import pytest
import torch

import tandem
from compiled import compile_with


def both(function, *inputs, mode="strict"):
    """Results and inputs afterwards, of ours and of eager."""
    ours = [each.clone() for each in inputs]
    eager = [each.clone() for each in inputs]
    compiled = compile_with(function, fullgraph=True, on_unsupported=mode)
    results = compiled(*ours), function(*eager)
    for a, b in zip(flat(results[0]), flat(results[1]), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b)
    return flat(results[0]), ours


def flat(results):
    return list(results) if isinstance(results, (list, tuple)) else [results]


def test_the_result_is_out():
    (first, _), (_, y) = both(
        lambda x, y: (torch.sin(x, out=y), y + 1), torch.randn(4), torch.zeros(4)
    )
    assert first is y


def test_out_of_operators_with_lists_and_numbers():
    x = torch.randn(4)
    (first,), (_, y) = both(lambda x, y: torch.cat([x, x], out=y), x, torch.zeros(8))
    assert first is y
    both(lambda x: torch.add(x, 2.5, out=x) * 2, x)
    both(lambda x: torch.mul(x, 3, out=torch.empty(4)), x)


def test_out_that_torch_runs():
    x = torch.randn(3, 3)
    with pytest.warns(UserWarning, match="linalg_inv"):
        both(lambda x, y: (torch.linalg.inv(x, out=y), y + 1), x, torch.zeros(3, 3), mode="eager")

    def two(x, values, places):
        torch.sort(x, out=(values, places))
        return values + 1, places + 1

    with pytest.warns(UserWarning, match="sort.values"):
        both(two, x, torch.zeros(3, 3), torch.zeros(3, 3, dtype=torch.int64), mode="eager")


def asserting(x, limit):
    torch._assert_async((x < limit).all(), "x is too large")
    return x.sin()


def test_an_assert_that_holds():
    both(asserting, torch.randn(4), torch.tensor(100.0))


def test_an_assert_that_fails_names_its_text():
    compiled = compile_with(asserting, fullgraph=True, on_unsupported="strict")
    for x in (torch.ones(4), torch.ones(4, requires_grad=True)):
        with pytest.raises(RuntimeError, match="_assert_async.*x is too large"):
            compiled(x, torch.tensor(0.5))
        torch.testing.assert_close(compiled(x, torch.tensor(2.0)), x.sin())


def test_an_assert_beside_a_write():
    """Nothing is written where the assert fails."""

    def function(x, y):
        torch._assert_async(x[0] > 0)
        y.add_(1)

    y = torch.zeros(3)
    compiled = compile_with(function, fullgraph=True, on_unsupported="strict")
    with pytest.raises(tandem.DataError, match="expected a value other than 0"):
        compiled(-torch.ones(2), y)
    assert torch.equal(y, torch.zeros(3))
    compiled(torch.ones(2), y)
    assert torch.equal(y, torch.ones(3))


@pytest.mark.parametrize(
    "one, other",
    [(torch.float32, torch.int32), (torch.float64, torch.int64), (torch.bfloat16, torch.int16)],
)
def test_bits_as_numbers(one, other):
    x = torch.randn(3, 5, dtype=torch.float64).to(one)
    both(lambda x: x.view(other) + 1, x)
    both(lambda x: x.t().view(other) ^ 5, x)
    most = torch.iinfo(other).max
    both(lambda x: (x.view(other) & most).view(one) * 2, x)


def test_writes_on_either_side():
    def through(x):
        bits = x.view(torch.int32)
        bits &= 0x7FFFFFFF
        return x + 1

    def under(x):
        y = x * 2
        bits = y.view(torch.int32)
        y.mul_(-1)
        return bits + 1

    for function in (through, under):
        both(function, torch.randn(6))


def test_bits_of_another_size_are_refused():
    compiled = compile_with(lambda x: x.view(torch.int8) + 1, fullgraph=True)
    with pytest.raises(Exception, match="elements of another size"):
        compiled(torch.ones(4))


def test_zeros_without_memory():
    both(lambda x: x + torch._efficientzerotensor((4,)), torch.randn(4))
