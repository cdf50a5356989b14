"""What a graph writes to its inputs: every input has its own value afterwards, also where several
get equal ones."""

import pytest
import torch

from compiled import compile_with


def zeros(a, b, c):
    a.zero_()
    b.zero_()


def zeros_after(a, b, c):
    a.exp_()
    b.zero_()
    a.zero_()


def three(a, b, c):
    c.copy_(a * 2)
    b.copy_(a * 2)
    a.mul_(2)


def filled(a, b, c):
    a.fill_(3.0)
    b.fill_(3.0)
    c.copy_(b)


def swapped(a, b, c):
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def rotated(a, b, c):
    kept = a.clone()
    a.copy_(b)
    b.copy_(c)
    c.copy_(kept)


def old_value_kept(a, b, c):
    b.copy_(a)
    a.zero_()
    c.zero_()


def returned_too(a, b, c):
    a.zero_()
    b.zero_()
    return torch.zeros_like(a), a + 1


def foreach(a, b, c):
    torch._foreach_zero_([a, b, c])


def inputs(dtype, layout):
    torch.manual_seed(1)
    values = [torch.randint(0, 5, (3, 4)).to(dtype) for _ in range(3)]
    if layout == "strided":
        values[1] = values[1].repeat_interleave(2, 1)[:, ::2]
    return values


FUNCTIONS = [zeros, zeros_after, three, filled, swapped, rotated, old_value_kept, returned_too]


OF_FLOATS = (zeros_after, three, returned_too)


@pytest.mark.parametrize("function", [*FUNCTIONS, foreach], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("layout", ["plain", "strided"])
def test_each_has_its_own(function, dtype, layout):
    if dtype != torch.float32 and function in OF_FLOATS:
        dtype = torch.float64  # of functions that compute floats

    expected, found = inputs(dtype, layout), inputs(dtype, layout)
    wanted = function(*expected)
    given = compile_with(function)(*found)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(given, wanted)


class Counters(torch.nn.Module):
    """Two buffers that a step resets."""

    def __init__(self):
        super().__init__()
        self.register_buffer("first", torch.ones(3))
        self.register_buffer("second", torch.ones(3))

    def forward(self, x):
        self.first.zero_()
        self.second.zero_()
        return x + self.first


def test_buffers_of_a_module():
    module = Counters()
    compile_with(module)(torch.ones(3))
    assert not module.first.any() and not module.second.any()


def test_zero_grad_in_a_step():
    """A compiled step that clears the gradients of two parameters."""
    parameters = [torch.ones(3, requires_grad=True) for _ in range(2)]
    for each in parameters:
        each.grad = torch.ones(3)

    def step(x):
        for each in parameters:
            each.grad.zero_()
        return x + 1

    compile_with(step)(torch.ones(3))
    assert not any(each.grad.any() for each in parameters)


def expanded(x):
    return x.add_(1)


def test_an_expanded_input():
    """Eager refuses it, in its own words; Tandem hands it to torch, or says why not."""
    with pytest.raises(Exception, match="writing to the expanded input"):
        compile_with(expanded)(torch.zeros(1, 3).expand(2, 3))
    compiled = compile_with(expanded, on_unsupported="eager")
    with pytest.warns(UserWarning, match="expanded"):
        with pytest.raises(RuntimeError, match="single memory"):
            compiled(torch.zeros(1, 3).expand(2, 3))


def read_behind_a_sum(a):
    """The sum's kernel reads a[0] once more after all of a: a must not lie in place there."""
    old = -a
    a.mul_(old)
    total = a.sum()
    a[:1] = old[:1]
    kept = old.clone()
    old.copy_(a)
    a.copy_(kept)
    return total, old


@pytest.mark.parametrize("size", [1, 4, 100, 100_000])
def test_what_a_sum_reads_afterwards(size):
    wanted, found = (torch.linspace(1, 2, size, dtype=torch.float64) for _ in range(2))
    expected = read_behind_a_sum(wanted)
    torch.testing.assert_close(compile_with(read_behind_a_sum)(found), expected)
    torch.testing.assert_close(found, wanted)


def test_an_overwritten_result_keeps_its_history():
    """Its gradient is 0, but it requires one, as eager's does."""

    def overwritten(a, b):
        result = a.mean(0, True)
        result.add_(result).copy_(b.sum())
        return result, result

    a, b = torch.randn(3, 2, requires_grad=True), torch.randn(3, 2)
    results = compile_with(overwritten)(a, b)
    assert [each.requires_grad for each in results] == [True, True]
    results[0].sum().backward()
    assert a.grad is None or not a.grad.any()


# --- rows written at places that data tell, as a cache of keys and values has them


def one_token(keys, values, place, k, v):
    keys.index_copy_(1, place, k)
    values.index_copy_(1, place, v)
    return (keys * values).sum(1)


def added(keys, values, place, k, v):
    keys.index_add_(1, place, k)
    values.index_add_(1, place, v, alpha=2)


def of_its_own_rows(keys, values, place, k, v):
    keys.index_copy_(1, place, keys[:, : place.shape[0]] + 1)
    values.index_copy_(1, place, keys[:, 2 : 2 + place.shape[0]])


def twice(keys, values, place, k, v):
    keys.index_copy_(1, place, k)
    keys.index_copy_(1, place.flip(0), v)
    return keys + 1


def turned(keys, values, place, k, v):
    keys.index_copy_(1, place, k)
    values.copy_(keys.flip(1))


def read_before(keys, values, place, k, v):
    old = keys.sum(1)
    keys.index_copy_(1, place, k)
    return old - keys.sum(1)


ROWS_AT_PLACES = [one_token, added, of_its_own_rows, twice, turned, read_before]


def caches(dtype, places, layout):
    torch.manual_seed(2)
    made = [torch.randint(-4, 4, (3, 40, 20)).to(dtype) for _ in range(2)]
    if layout == "strided":
        made[0] = made[0].transpose(0, 2).contiguous().transpose(0, 2)
    rows = [torch.randint(-4, 4, (3, places, 20)).to(dtype) for _ in range(2)]
    return [*made, torch.randperm(40)[:places], *rows]


@pytest.mark.parametrize("function", ROWS_AT_PLACES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("places", [1, 7])
@pytest.mark.parametrize("layout", ["plain", "strided"])
def test_rows_at_places(function, dtype, places, layout):
    compiled = compile_with(function)
    for _ in range(2):
        given, expected = caches(dtype, places, layout), caches(dtype, places, layout)
        result, wanted = compiled(*given), function(*expected)
        assert (result is None) == (wanted is None)
        if wanted is not None:
            torch.testing.assert_close(result, wanted)
        for a, b in zip(given, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_no_row_is_written_where_a_place_is_none():
    compiled = compile_with(one_token)
    given = caches(torch.float32, 3, "plain")
    compiled(*given)
    before = [x.clone() for x in given]
    given[2][1] = 40
    with pytest.raises(Exception, match="index out of range"):
        compiled(*given)
    for a, b in zip(given[:2], before[:2], strict=True):
        assert torch.equal(a, b)
