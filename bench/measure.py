"""Timing that survives a noisy machine: contenders take turns in one process and medians are
compared, so that what slows one round slows all of them.
"""

import dataclasses
import datetime
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import types

_NUMBERS = itertools.count()
THREADS = 2
# Before each turn: threads of libgomp (eager, Inductor) spin for some 5 ms after their last region,
# on a core that whoever is next does not share with them in a program of its own.
REST_S = 0.02
clock = time.perf_counter


def use_processor_time():
    """One thread and its processor time: rough, but the same however busy the machine is."""
    global THREADS, clock
    THREADS, clock = 1, time.process_time


# BENCH_ISA=avx2 holds all contenders to it that can be held: torch, Inductor, MKL, oneDNN (also
# OpenVINO's), Tandem. ONNX Runtime's own kernels know no such switch.
ISA = os.environ.get("BENCH_ISA", "")
HELD = {
    "TANDEM_ISA": ISA,
    "ATEN_CPU_CAPABILITY": ISA,
    "ONEDNN_MAX_CPU_ISA": ISA.upper(),
    "DNNL_MAX_CPU_ISA": ISA.upper(),
    "MKL_ENABLE_INSTRUCTIONS": ISA.upper(),
}


def multiplies_bytes():
    """Whether one instruction sums products of bytes: VNNI. Without it activations want seven bits:
    peers sum two products in 16, and saturate."""
    with open("/proc/cpuinfo") as file:
        flags = next(line for line in file if line.startswith("flags")).split()
    return not ISA and bool({"avx512_vnni", "avx_vnni"} & set(flags))


def environment(**more):
    """Of every process that is measured: two threads, nothing of the user's settings of Tandem."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
    threads = {"OMP_NUM_THREADS": str(THREADS), "TANDEM_THREADS": str(THREADS)}
    return kept | threads | (HELD if ISA else {}) | more


def pin():
    """Keeps this process and its children on as many processors as it may use threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])


def with_own_code(function):
    """The function, kept apart from its copies: torch.compile's cache goes by a function's code."""
    code = function.__code__.replace(co_name=f"{function.__name__}{next(_NUMBERS)}")
    return types.FunctionType(code, function.__globals__, closure=function.__closure__)


def timed(function, calls):
    """Milliseconds a call, after one that is not counted: it fetches what others evicted."""
    function()
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) * 1e3 / calls


@dataclasses.dataclass(frozen=True)
class Spread:
    """Milliseconds a call, over the turns of a contender."""

    best: float
    low: float  # the first quartile
    median: float
    high: float  # the third

    @classmethod
    def of(cls, times):
        low, median, high = statistics.quantiles(times, n=4, method="inclusive")
        return cls(min(times), low, median, high)


def alternate(functions, rounds, slot_ms=4.0):
    """The spread of each function, by name. Each has `rounds` turns of about `slot_ms`, in an order
    that rotates."""
    names = list(functions)
    calls = {}
    for name, function in functions.items():
        timed(function, 1)
        calls[name] = max(1, min(1000, int(slot_ms / max(timed(function, 2), 1e-3))))
    times = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(REST_S)
            times[name].append(timed(functions[name], calls[name]))
    return {name: Spread.of(values) for name, values in times.items()}


def as_json(spreads):
    """What the pages are made of."""
    return {
        "ms": {name: spread.median for name, spread in spreads.items()},
        "quartiles": {name: [spread.low, spread.high] for name, spread in spreads.items()},
        "best_ms": {name: spread.best for name, spread in spreads.items()},
    }


@functools.cache
def run():
    """The day and the commit of what is measured now."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return f"{datetime.date.today().isoformat()} {commit or 'without commit'}"


def save(path, results):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        json.dump({"run": run(), "results": results}, file, indent=1)


def load(path):
    """(results, the run that they are of)."""
    with open(path) as file:
        kept = json.load(file)
    if "context" in kept:  # Google Benchmark's
        return kept, kept["context"]["run"]
    return kept["results"], kept["run"]


def progress(text):
    print(text, flush=True)


def warn(text):
    print(f"warning: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(run())
