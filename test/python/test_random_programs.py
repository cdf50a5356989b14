"""Random straight-line programs against eager (random_programs.py): short and long ones through the
compiled core, some through torch.compile, and some with any size, called with two. Nothing may run
in torch: a program that is refused would be equal by construction, so refusals are failures, but
for those of torch's own tracer, which are counted. A failure says the least program that has it.
Programs that failed once are in `found`, as the reducer prints them.

`make fuzz` runs more; by hand: `python test/python/test_random_programs.py KIND FIRST_SEED COUNT`,
KIND one of KINDS."""

import collections
import concurrent.futures
import dataclasses
import faulthandler
import functools
import math
import multiprocessing
import os
import pathlib
import re
import sys
import warnings
from collections.abc import Callable

import pytest
import torch

import program_reducer
import random_programs
from program_outcomes import LARGER, Difference, first_difference, is_of_torch, outcome
from random_recipe import Written

CHUNKS = 20
FOUND = sorted(pathlib.Path(__file__).parent.joinpath("found").glob("*.py"))


@dataclasses.dataclass
class Kind:
    make: Callable  # a recipe, of a seed
    road: str = "core"
    refused: float = 0  # by torch's tracers, where measured (docs/reliability.md, 2026-11-28)

    def most_by_tracer(self, count):
        """Of a number whose mean is m the variance is m, too: m + 3 sqrt(m)."""
        mean = self.refused * count
        return max(1, count // 1000, math.floor(mean + 3 * math.sqrt(mean)))


KINDS = {
    "short": Kind(random_programs.short),
    "long": Kind(random_programs.long, refused=9 / 4000),
    "torch.compile": Kind(random_programs.short, "torch.compile", 5 / 2000),
    "any_size": Kind(random_programs.any_size, "any_size", 10 / 2000),
}


class Tally:
    """What became of programs. `failures` are (recipe, road)."""

    def __init__(self):
        self.count = 0
        self.by_tracer = collections.Counter()  # refused by the tracer of torch, by reason
        self.failures = []
        self.strides_of_fakes = 0  # programs with results whose strides are not eager's

    def check(self, recipe, road="core"):
        self.count += 1
        found = first_difference(recipe.written, road)
        self.strides_of_fakes += found.has_strides_of_fakes
        if found.text is None:
            return
        if found.refusal and is_of_torch(found.refusal, recipe.written, road):
            self.by_tracer[re.split(r"[(\n]", str(found.refusal))[0].strip()[:100]] += 1
            return
        self.failures.append((recipe, road))

    def add(self, other):
        self.count += other.count
        self.by_tracer += other.by_tracer
        self.failures += other.failures
        self.strides_of_fakes += other.strides_of_fakes

    def summary(self):
        return (
            f"{self.count} programs, {len(self.failures)} differ or are refused, "
            f"{self.by_tracer.total()} by torch's tracer, "
            f"{self.strides_of_fakes} with strides of torch's fakes"
        )

    def show(self):
        print(self.summary())
        for reason, count in self.by_tracer.most_common():
            print(f"  {count} {reason}", flush=True)

    def verdict(self, most_by_tracer=0):
        self.show()
        assert not self.failures, self.summary() + "\n" + self.least()
        assert self.by_tracer.total() <= most_by_tracer, self.by_tracer
        # Of the first 63,000 long ones 3 had.
        assert self.strides_of_fakes <= max(1, self.count // 1000), self.strides_of_fakes

    def least(self, most=3):
        """Code of the first failures, reduced."""
        return "\n\n".join(least(recipe, road) for recipe, road in self.failures[:most])


def least(recipe, road):
    return program_reducer.printed(*program_reducer.reduced_difference(recipe, road), road)


def programs(start, count, kind=random_programs.short, more=()):
    """The next `count` programs from seed `start` on that eager runs; where there are `more` steps,
    those that have one of them."""
    found = 0
    seed = start
    while found < count:
        seed += 1
        recipe = kind(seed, more)
        if more and not any(step[0] in more for step in recipe.steps):
            continue
        if isinstance(outcome(recipe.written.program, recipe.written), Exception):
            continue
        found += 1
        yield recipe


def tally(kind, start, count, more=()):
    kind, counted = KINDS[kind], Tally()
    torch._dynamo.config.cache_size_limit = 4 * count
    for recipe in programs(start, count, kind.make, more):
        counted.check(recipe, kind.road)
    return counted


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_through_the_core(chunk):
    tally("short", 10_000 * chunk, 30).verdict(most_by_tracer=1)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_long_programs(chunk):
    tally("long", 1_000_000 + 10_000 * chunk, 15).verdict(most_by_tracer=1)


def test_sizes_that_only_data_tell():
    tally("short", 500_000, 60, ("chosen", "chosen_put", "nonzero", "item", "rows")).verdict()


def test_through_torch_compile():
    tally("torch.compile", 900_000, 60).verdict(most_by_tracer=1)


@pytest.mark.parametrize("chunk", range(2))
def test_any_size(chunk):
    tally("any_size", 910_000 + 10_000 * chunk, 25).verdict(most_by_tracer=1)


def test_found():
    """One after the other: what a program does to the grad mode is there for the next."""
    for path in FOUND:
        code = path.read_text()
        road = "any_size" if '"any_size"' in code else "core"
        found = first_difference(Written.of_code(code, str(path)), road)
        assert found.text is None, f"{path.name}: {found.text}"


def test_digits_that_eager_has_right_count():
    """Last digits of a sum whose terms cancel are noise; three times that is a difference."""
    path = FOUND[0].with_name("program_2026112840003554.py")
    written = Written.of_code(path.read_text(), str(path))
    expected = outcome(written.program, written, LARGER)
    precise = dict(Difference(expected, expected, written, LARGER).in_double)["gradient 0"]
    noise = (dict(expected)["gradient 0"].double() - precise).abs().max()
    for times, text in ((1, "equal"), (3, "gradient")):
        other = [
            (name, (precise + times * noise).float() if name == "gradient 0" else value)
            for name, value in expected
        ]
        found = Difference(other, expected, written, LARGER)
        assert (found.kind or "equal") == text


# --- many of them


def _many(kind, start, count, jobs, at_once=50):
    """Tallies of parts, in processes: one that dies is seen, and none grows without end. For that
    pools are replaced, not their processes: with `max_tasks_per_child` a pool of Python 3.11 hangs
    when all of them end at once."""
    parts = [(start + 10 * i, min(at_once, count - i)) for i in range(0, count, at_once)]
    context = multiprocessing.get_context("spawn")
    of_pool = 20 * jobs
    for first in range(0, len(parts), of_pool):
        with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
            yield from pool.map(functools.partial(_part, kind), parts[first : first + of_pool])


def _part(kind, part):
    """A program that ends the process shows where."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of torch, about writes to expanded tensors
    faulthandler.enable()
    return tally(kind, *part)


def main(kind, start, count, folder="build/fuzz"):
    """Failures are printed, reduced, and kept in `folder`."""
    whole = Tally()
    for counted in _many(kind, int(start), int(count), os.cpu_count()):
        for recipe, road in counted.failures:
            code = least(recipe, road)
            print(code, flush=True)
            os.makedirs(folder, exist_ok=True)
            path = f"{folder}/program_{recipe.seed}.py"
            pathlib.Path(path).write_text(code)
            print(f"{path}: {kind} {recipe.seed}", file=sys.stderr)
        whole.add(counted)
        if whole.count % 1000 == 0:
            print(f"{kind}: {whole.summary()}", file=sys.stderr, flush=True)
    print(f"{kind}: ", end="")
    whole.show()
    most = KINDS[kind].most_by_tracer(whole.count)
    return bool(whole.failures) or whole.by_tracer.total() > most


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
