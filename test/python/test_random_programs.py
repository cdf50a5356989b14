"""Random straight-line programs against eager (random_programs.py): 2,000 through the compiled
core, 200 through torch.compile."""

import pytest
import torch

from compiled import compile_with, through_core
from random_programs import Program, difference, outcome

CORE = 2000
THROUGH_DYNAMO = 200
CHUNKS = 20


def programs(start, count, more=()):
    """The next `count` programs from seed `start` on that eager runs, with what eager gives; where
    there are `more` steps, those that have one of them."""
    found = 0
    seed = start
    while found < count:
        seed += 1
        try:
            program = Program(seed, more)
        except RuntimeError:  # a step that eager refuses
            continue
        if more and not any(step[0] in more for step in program.steps):
            continue
        expected = outcome(program, program)
        if isinstance(expected, Exception):
            continue
        found += 1
        yield program, expected


def as_function(program):
    return lambda *inputs: program(*inputs)


def check(program, expected, function):
    try:
        actual = outcome(function, program)
    except Exception as error:  # noqa: BLE001: any failure of ours is a difference
        actual = error
    found = difference(actual, expected)
    return None if found is None else f"program {program.seed}: {program}\n  {found}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_through_the_core(chunk):
    count = CORE // CHUNKS
    failures = [
        check(program, expected, through_core(program, {"on_unsupported": "eager"}))
        for program, expected in programs(10_000 * chunk, count)
    ]
    failures = [failure for failure in failures if failure is not None]
    assert not failures, f"{len(failures)} of {count} differ:\n" + "\n".join(failures[:3])


def test_sizes_that_only_data_tell():
    more = ("chosen", "chosen_put", "nonzero", "item", "rows")
    failures = [
        check(program, expected, through_core(program))
        for program, expected in programs(500_000, 150, more)
    ]
    failures = [failure for failure in failures if failure is not None]
    assert not failures, f"{len(failures)} of 150 differ:\n" + "\n".join(failures[:3])


def test_through_torch_compile():
    torch._dynamo.config.cache_size_limit = 4 * THROUGH_DYNAMO
    failures = []
    for program, expected in programs(900_000, THROUGH_DYNAMO):
        compiled = compile_with(as_function(program), on_unsupported="eager")
        failures.append(check(program, expected, compiled))
    failures = [failure for failure in failures if failure is not None]
    assert not failures, f"{len(failures)} differ:\n" + "\n".join(failures[:3])
