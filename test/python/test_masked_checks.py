"""Where a reader masks a place out, nothing is checked there: the elements beside a padded or
joined tensor, and those behind the end of a reduction that is cut into blocks. Where it reads, it
is."""

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import compile_with

LONG = 100_000  # reductions of this length are cut into blocks
A, B = torch.arange(1, 6), torch.arange(2, 7)
BIG = torch.arange(1, LONG + 1)
PLACES = torch.arange(5)


def quotients(a, b):
    return (a // b).sum()


def padded(a, b):
    return F.pad(a // b, (2, 3))


def joined(a, b):
    return torch.cat([a // b, a])


def gathered(a, b):
    return F.pad(b[torch.arange(len(a))], (1, 2))


def shifted(a, b):
    return b[torch.arange(len(a)) - 1].sum()


def entropy(a, b):
    return F.binary_cross_entropy(a * 0.1 + 0.2, b * 0.1)


def classes(a, b):
    scores = a[:, None] * b.float()
    return F.cross_entropy(scores, torch.arange(len(a)))


ALL = (quotients, padded, joined, gathered, shifted, entropy, classes)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_places_that_are_not_read_are_not_checked(function, dynamic):
    compiled = compile_with(function, dynamic=dynamic)
    torch.testing.assert_close(compiled(A, B), function(A, B))


@pytest.mark.parametrize("function", [quotients, shifted], ids=lambda f: f.__name__)
def test_long_reductions(function):
    compiled = compile_with(function, dynamic=False)
    assert torch.equal(compiled(BIG, BIG + 1), function(BIG, BIG + 1))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [quotients, padded, joined], ids=lambda f: f.__name__)
def test_places_that_are_read_are_checked(function, dynamic):
    compiled = compile_with(function, dynamic=dynamic)
    for place in range(5):
        with pytest.raises(tandem.UserError, match="divided by 0"):
            compiled(A, torch.where(PLACES == place, 0, B))


def test_the_last_place_of_a_long_reduction_is_checked():
    compiled = compile_with(quotients, dynamic=False)
    with pytest.raises(tandem.UserError, match="divided by 0"):
        compiled(BIG, BIG - LONG)
    with pytest.raises(tandem.UserError, match="divided by 0"):
        compiled(BIG, BIG - 1)
