"""Timing that survives a noisy machine: contenders take turns in one process and medians are
compared, so that what slows one round slows all of them.
"""

import os
import statistics
import sys
import time

THREADS = 2
clock = time.perf_counter


def use_processor_time():
    """One thread and its processor time: rough, but the same however busy the machine is."""
    global THREADS, clock
    THREADS, clock = 1, time.process_time


def environment(**more):
    """Of every process that is measured: two threads, nothing of the user's settings of Tandem."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
    return kept | {"OMP_NUM_THREADS": str(THREADS), "TANDEM_THREADS": str(THREADS)} | more


def pin():
    """Keeps this process and its children on as many processors as it may use threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])


def timed(function, calls):
    """Milliseconds a call, after one that is not counted: it fetches what others evicted."""
    function()
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) * 1e3 / calls


def alternate(functions, rounds, slot_ms=4.0):
    """Milliseconds a call of each function, by name: medians, and best turns. Each has `rounds`
    turns of about `slot_ms`, in an order that rotates."""
    names = list(functions)
    calls = {}
    for name, function in functions.items():
        timed(function, 1)
        calls[name] = max(1, min(1000, int(slot_ms / max(timed(function, 2), 1e-3))))
    times = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(timed(functions[name], calls[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return medians, {name: min(values) for name, values in times.items()}


def progress(text):
    print(text, flush=True)


def warn(text):
    print(f"warning: {text}", file=sys.stderr, flush=True)
