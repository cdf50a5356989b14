"""Random quantized graphs: each byte is its step's number, rounded; the same bits however kernels
are cut, compiled and interpreted. TANDEM_QUANTIZED_GRAPHS says how many there are; `python
test_random_quantized.py FIRST COUNT` runs others."""

import concurrent.futures
import functools
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tandem
import torch
from machine import ISAS
from random_quantized import RandomQuantized

COUNT = int(os.environ.get("TANDEM_QUANTIZED_GRAPHS", "150"))  # 25 s of two cores
CHUNKS = 16
TANDEM = Path(tandem.__file__).parents[2] / "bin/tandem"


def failures(seeds):
    """What went wrong, by seed. Each process has one thread."""
    torch.set_num_threads(1)
    found = []
    for seed in seeds:
        try:
            RandomQuantized(seed).check()
        except Exception as error:
            found.append(f"seed {seed}: {type(error).__name__}: {error}")
    return found


def in_two_processes(first, count):
    each = -(-count // CHUNKS)
    chunks = [range(at, min(at + each, first + count)) for at in range(first, first + count, each)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        return [problem for problems in pool.map(failures, chunks) for problem in problems]


def test_bytes_are_what_their_steps_give():
    problems = in_two_processes(0, COUNT)
    assert not problems, f"{len(problems)} of {COUNT}\n" + "\n".join(problems[:3])


@pytest.mark.parametrize("isa", ISAS)
def test_with_and_without_instructions_for_bytes(isa, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", isa)
    problems = failures(range(1_000_000, 1_000_020))
    assert not problems, problems[0]


def is_product(line):
    return any(f"aten.{name}(" in line for name in ("convolution", "linear", "matmul"))


def test_products_are_of_integers(tmp_path):
    """Else the graphs would test floats."""
    products = 0
    for seed in range(30):
        graph = RandomQuantized(seed)
        path = tmp_path / f"{seed}.tir"
        path.write_text(graph.text([*graph.results, graph.last]))
        report = subprocess.run(
            [TANDEM, "schedule", path], check=True, capture_output=True, text=True
        ).stdout
        assert "stays in floats" not in report
        products += sum(map(is_product, graph.lines))
    assert products > 20


def test_a_wrong_step_is_found():
    """Half a step of an offset, and a scale that is off by one in a hundred."""
    for change in (lambda v: v + 0.6, lambda v: 1.02 * v):
        found = 0
        for seed in range(8):
            graph = RandomQuantized(seed)
            name, exact, bounds = graph.checks[-2]
            graph.checks[-2] = (name, functools.partial(changed, change, exact), bounds)
            try:
                graph.check()
            except AssertionError:
                found += 1
        assert found >= 6


def changed(change, exact, got):
    return change(exact(got))


if __name__ == "__main__":
    wrong = in_two_processes(int(sys.argv[1]), int(sys.argv[2]))
    print("\n".join(wrong) or "no differences")
    sys.exit(bool(wrong))
