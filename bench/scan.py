"""An LSTM as one scan over its steps beside the same steps written out: what a training step takes,
and what compiling takes by length, without a cache.

    PYTHONPATH=build/python .venv/bin/python bench/scan.py [--lengths 32 128] [--written-out 128]
"""

import argparse
import os
import statistics
import time

os.environ["TANDEM_CACHE_DIR"] = ""

import torch
from torch._higher_order_ops import scan

import tandem

BATCH, WIDTH = 32, 128


def cell(weight, state, row):
    hidden, memory = state
    gates = torch.cat([row, hidden], 1) @ weight
    let_in, keep, let_out, new = gates.chunk(4, 1)
    memory = memory * keep.sigmoid() + let_in.sigmoid() * new.tanh()
    return let_out.sigmoid() * memory.tanh(), memory


def start():
    return torch.zeros(BATCH, WIDTH), torch.zeros(BATCH, WIDTH)


def as_scan(weight, rows):
    def step(state, row):
        hidden, memory = cell(weight, state, row)
        return (hidden, memory), hidden * 1

    return scan(step, start(), rows)[1]


def written_out(weight, rows):
    state, results = start(), []
    for row in rows.unbind(0):
        state = cell(weight, state, row)
        results.append(state[0])
    return torch.stack(results)


class Case:
    """A compiled function, at one length, with what compiling it took (milliseconds by stage)."""

    def __init__(self, function, length):
        torch._dynamo.reset()
        tandem.reset_report()
        torch.manual_seed(0)
        self.weight = (torch.randn(2 * WIDTH, 4 * WIDTH) / 16).requires_grad_()
        self.rows = torch.randn(length, BATCH, WIDTH, requires_grad=True)
        strict = {"on_unsupported": "strict"}
        self.call = torch.compile(function, backend=tandem.backend, fullgraph=True, options=strict)
        self.result = self.step()
        self.gradients = self.weight.grad, self.rows.grad
        self.compiling = dict(tandem.report()["graphs"][0]["milliseconds"])
        self.compiling.pop("capture")  # torch's

    def forward(self):
        with torch.no_grad():
            return self.call(self.weight, self.rows)

    def step(self):
        self.weight.grad = self.rows.grad = None
        result = self.call(self.weight, self.rows)
        result.square().mean().backward()
        return result


def quartiles(calls, turns=15):
    """Of milliseconds, of calls that take turns."""
    taken = [[] for _ in calls]
    for _ in range(turns):
        for call, times in zip(calls, taken, strict=True):
            begun = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begun))
    return [statistics.quantiles(times, n=4) for times in taken]


def text_of(times):
    return "{1:.1f} ({0:.1f}–{2:.1f})".format(*times)


def print_length(length, is_beside):
    cases = [Case(as_scan, length)] + ([Case(written_out, length)] if is_beside else [])
    if is_beside:
        torch.testing.assert_close(cases[0].result, cases[1].result)
        torch.testing.assert_close(cases[0].gradients, cases[1].gradients)
    steps = quartiles([case.step for case in cases])
    forwards = quartiles([case.forward for case in cases])
    for case, name, step, forward in zip(cases, ("scan", "written out"), steps, forwards):
        compiling = sum(case.compiling.values())
        columns = f"{text_of(step)} | {text_of(forward)} | {compiling:.0f}"
        print(f"| {length}, {name} | {columns} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--written-out", type=int, nargs="*", default=[128])
    given = parser.parse_args()
    print("| length | step | forward | compiling |\n|---|---:|---:|---:|")
    for length in given.lengths:
        print_length(length, length in given.written_out)


if __name__ == "__main__":
    main()
