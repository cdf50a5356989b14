"""Times of a model, static shapes: the compile of Tandem and the cold one of Inductor, then steps
of eager, Tandem and Inductor in turn. Runs in a process of its own whose TORCHINDUCTOR_CACHE_DIR is
an empty folder."""

import statistics
import time

import torch
import torch._inductor.compile_fx  # imported before anything is timed
from cases import inference, training
from entry import fresh

import tandem

ROUNDS = 15
THREADS = 2


def times(entry, run):
    torch.set_num_threads(THREADS)
    tandem.set_threads(THREADS)
    torch._dynamo.reset()
    base, arguments = entry.model(), entry.arguments()
    options = {"on_unsupported": "error"}
    functions = {
        "eager": lambda model: model,
        "tandem": lambda m: torch.compile(m, backend=tandem.backend, options=options),
        "inductor": torch.compile,
    }
    found, calls = {}, {}
    for name, function in functions.items():
        model = fresh(base)
        calls[name] = caller(run, entry, model, arguments, function(model))
        first, second = seconds(calls[name]), seconds(calls[name])
        if name != "eager":
            found[f"{name}_compile_s"] = round(first - second, 3)
    for name, step in in_turn(calls).items():
        found[f"{name}_step_ms"] = round(1e3 * step, 4)
    return found


def caller(run, entry, model, arguments, function):
    return lambda: run(entry, model, arguments, function)


def seconds(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def in_turn(calls):
    """Medians over rounds that run each once."""
    measured = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            measured[name].append(seconds(call))
    return {name: statistics.median(values) for name, values in measured.items()}


TIMES = {
    "infer times": lambda entry: times(entry, inference),
    "train times": lambda entry: times(entry, training),
}


def run_times(entry, name):
    row = dict(model=entry.name, case=name, status="measured", reason="")
    try:
        row |= TIMES[name](entry)
    except Exception as error:  # noqa: BLE001: of a compiler; the sweep goes on
        row |= dict(status="not measured", reason=f"{type(error).__name__}: {error}"[:500])
    return row
