"""Random programs over inputs that are views of one tensor, or of two, or the same one twice:
writes with and without history, reads, results that are inputs and views of them. Beside eager,
with nothing in torch. `python test_random_aliases.py FIRST LAST` runs more of them."""

import collections
import random
import sys

import pytest
import torch

from beside_eager import Program, Run, compare, same_values

COUNT = 60


def scaled(a, b, made, factor):
    a.mul_(1 + factor)


def added(a, b, made, factor):
    a.add_(b.sum() * 0.1)


def first_row(a, b, made, factor):
    a[0].mul_(2)


def copied(a, b, made, factor):
    a.copy_(a.sin())


def read(a, b, made, factor):
    made.append(a * b.sum())


def through_a_view(a, b, made, factor):
    a.view_as(a).mul_(0.5)


def detached(a, b, made, factor):
    made.append(a.detach() + 1)


def unrecorded(a, b, made, factor):
    with torch.no_grad():
        a.add_(1)


def of_what_was_made(a, b, made, factor):
    a.sub_(made[-1].mean() if made else 1)


STEPS = (scaled, added, first_row, copied, read, through_a_view, detached, unrecorded,
         of_what_was_made)  # fmt: skip
RESULTS = (
    lambda a: a,
    lambda a: a + 1,
    lambda a: a.t(),
    lambda a: a[0],
    lambda a: a.reshape(-1),
)
VIEWS = (
    lambda x: x,
    lambda x: x[:2],
    lambda x: x[1:],
    lambda x: x.t(),
    lambda x: x[:, ::2],
    lambda x: x.view(-1)[2:10].view(2, 4),
    lambda x: x[:, 1:3],
    lambda x: x.view(2, -1),
)


class Generated:
    """`program` and what makes its inputs, of one seed."""

    def __init__(self, seed):
        pick = random.Random(seed)
        self.count = pick.randint(2, 3)
        numbers = range(self.count)
        self.steps = [
            (pick.choice(STEPS), pick.choice(numbers), pick.choice(numbers), pick.random())
            for _ in range(pick.randint(1, 5))
        ]
        self.results = [
            (pick.choice(RESULTS), pick.choice(numbers)) for _ in range(pick.randint(1, 3))
        ]
        self.kind = pick.choice(("value", "value", "inner"))
        self.views = [(pick.choice(VIEWS), pick.random() < 0.75) for _ in numbers]

    def program(self, *inputs):
        made = []
        for step, i, j, factor in self.steps:
            step(inputs[i], inputs[j], made, factor)
        return [*made, *[take(inputs[i]) for take, i in self.results]]

    def make(self, tensors):
        tensors.bases = [getattr(tensors, self.kind)(4, 4) for _ in range(2)]
        return [view(tensors.bases[0 if is_first else 1]) for view, is_first in self.views]


def eager_run(generated):
    """None where eager refuses the program or its gradient."""
    try:
        run = Run(generated.program, generated.make)
        run.gradients()
        return Run(generated.program, generated.make)
    except RuntimeError:
        return None


def check(seed):
    """Whether eager takes the program."""
    generated = Generated(seed)
    eager = eager_run(generated)
    if eager is None:
        return False
    ours = Run(Program("works").compile(generated.program), generated.make)
    compare(ours, eager, compares_versions=False)
    for a, b in zip(ours.tensors.bases, eager.tensors.bases, strict=True):
        same_values(a.detach(), b.detach(), "the whole memory")
    return True


@pytest.mark.parametrize("part", range(4))
def test_programs(part):
    taken = [check(seed) for seed in range(part * COUNT // 4, (part + 1) * COUNT // 4)]
    assert sum(taken) > len(taken) // 2


def main(first, last):
    found = collections.Counter()
    for seed in range(first, last):
        try:
            found["right" if check(seed) else "refused by eager"] += 1
        except Exception as error:  # noqa: BLE001: the sweep goes on
            found["wrong"] += 1
            print(seed, type(error).__name__, str(error).split("\n")[0][:160], flush=True)
    print(dict(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
