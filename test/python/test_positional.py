"""Arithmetic over positions, as masks and position ids are written: values that follow from their
position alone are not computed, and every element is eager's; by random programs too."""

import random
import re

import pytest
import torch

from compiled import reported, reported_kernels, through_core
from test_long_attention import check_beside


def packed_mask(length, batch=1):
    """As transformers writes the mask of a decoder without padding: position ids tell where packed
    sequences begin, and rows and columns are read through aranges."""
    ids = torch.arange(length).unsqueeze(0)
    begins = torch.diff(ids, prepend=ids[:, :1] - 1, dim=-1) != 1
    sequence = begins.cumsum(-1).expand(batch, -1)
    ids = ids.expand(batch, -1)
    rows = torch.arange(length)[:, None]
    columns = torch.arange(length)
    of = torch.arange(batch)[:, None, None]
    same = sequence[of, rows] == sequence[of, columns]
    return same & (ids[of, columns] <= ids[of, rows])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_masks_of_transformers_are_no_tensors(batch, dynamic):
    def attend(q, k, v):
        mask = packed_mask(q.shape[-2], q.shape[0])[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

    torch.manual_seed(0)
    compiled = reported(attend)
    for length in (40, 75) if dynamic else (40,):
        q, k, v = (torch.randn(batch, 2, length, 32) for _ in range(3))
        for t in (q, k, v) if dynamic else ():
            torch._dynamo.mark_dynamic(t, 2)
        actual, eager = compiled(q, k, v), attend(q, k, v)
        torch.testing.assert_close(actual, eager, rtol=2e-5, atol=2e-5)
        check_beside(actual, eager, attend(*(t.double() for t in (q, k, v))))
        steps = reported_kernels().split("kernel ")[0]
        assert "aten.bmm" in steps
        assert not re.search(r"aten\.(arange|cumsum|index|eq|le|bitwise_and)\b", steps)


# --- random programs

EDGES = [0, 1, -1, 2, 3, -7, 2**31, 2**62, -(2**62), 2**63 - 1]


def numbers(r, shape):
    start, step = r.choice(EDGES[:6]), r.choice([1, 1, 2, -1, -3])
    size = shape[-1] if shape else 1
    line = torch.arange(start, start + step * size, step)
    return line.reshape(size) if r.random() < 0.7 else line.reshape(size, 1)


def arithmetic(r, x, y):
    number = r.choice(EDGES)
    ways = [
        lambda: x + number,
        lambda: number - x,
        lambda: x * number,
        lambda: x + y,
        lambda: x - y,
        lambda: x * y,
        lambda: -x,
        lambda: x // r.choice([2, 3, -5]),
        lambda: x % r.choice([2, 3, 5]),
        lambda: torch.minimum(x, y),
        lambda: torch.where(x < y, x, y),
        lambda: torch.where(x >= number, x, number),
        lambda: x.clamp(-3, 4),
        lambda: (x == y).long(),
        lambda: (x != number).long(),
        lambda: x.to(r.choice([torch.int32, torch.int8, torch.uint8])).long(),
    ]
    return r.choice(ways)()


def moved(r, x):
    dim = r.randrange(x.dim())
    size = x.shape[dim]
    places = torch.arange(-size, 0) if r.random() < 0.5 else torch.arange(size)
    ways = [
        lambda: x.cumsum(dim),
        lambda: x.sum(dim, keepdim=True).expand(x.shape),
        lambda: torch.diff(x, dim=dim, prepend=x.narrow(dim, 0, 1) - 1),
        lambda: x.flip(dim),
        lambda: x.roll(1, dim),
        lambda: torch.cat([x.narrow(dim, 1, size - 1), x.narrow(dim, 0, 1)], dim),
        lambda: x.index_select(dim, places % size),
        lambda: x[places] if dim == 0 else x[:, places],
        lambda: x.gather(dim, (places % size).view([-1 if d == dim else 1 for d in range(x.dim())])
                         .expand(x.shape)),
        lambda: x.triu() if x.dim() == 2 else x,
        lambda: x.t().contiguous().t() if x.dim() == 2 else x,
        lambda: torch.nn.functional.pad(x, (1, 0), value=-4).narrow(-1, 0, x.shape[-1]),
    ]
    return r.choice(ways)()


def program(seed):
    """Of a tensor whose sizes it takes; integers and their comparisons."""

    def run(t):
        r = random.Random(seed)
        pool = [numbers(r, t.shape) for _ in range(2)]
        for _ in range(r.randrange(2, 7)):
            x, y = r.choice(pool), r.choice(pool)
            pool.append(arithmetic(r, x, y) if r.random() < 0.5 else moved(r, x))
        last = pool[-1]
        return last, last < pool[-2], t + (last.sum() % 7)

    return run


@pytest.mark.parametrize("seed", range(150))
def test_random_programs(seed):
    run = program(seed)
    for size in (4, 5) if seed % 5 == 0 else (4,):
        t = torch.randn(size, size)
        for mine, eagers in zip(through_core(run)(t), run(t), strict=True):
            torch.testing.assert_close(mine, eagers, rtol=0, atol=0)


def test_an_index_out_of_range_keeps_its_error():
    t = torch.randn(4)

    def read(t):
        return torch.arange(4)[torch.arange(5)] + t.sum().long()

    with pytest.raises(Exception, match="out of range"):
        through_core(read)(t)
