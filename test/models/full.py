"""The models of the benchmark at the sizes of the benchmark: f32, bf16, autocast and frozen.

Small models reach neither long sums and library products nor attention of real sizes, packed
weights or blocks over caches; nor does f32 reach the kernels of 16-bit floats. The truth is eager
in f64 with the weights and inputs as they are rounded to the case's dtype; see judge.
"""

import functools
import pathlib
import sys

import torch
from cases import compile_model, detached, facts_of_report, inference, runs_of, training, truth_of
from entry import fresh
from judge import judge_by_runs

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import model_cases  # noqa: E402

MOST_RUNS = 6  # of eager, whose gradients are all in memory


class Model:
    """As entry.Entry, made by the benchmark."""

    phases = (({}, ""),)
    has_dropout = False
    is_dynamic = True

    def __init__(self, name):
        self.name, self._title = name.split(",")[0], name

    def made(self, dtype):
        model, inputs = model_cases.make(self._title)
        return model.to(dtype), {
            name: value.to(dtype) if value.is_floating_point() else value
            for name, value in inputs.items()
        }


def under_autocast(function):
    def call(**arguments):
        with torch.autocast("cpu", torch.bfloat16):
            return function(**arguments)

    return call


def as_it_is(function):
    return function


def judged(run, entry, dtype=torch.float32, way=as_it_is, **options):
    base, arguments = entry.made(dtype)
    model = fresh(base)
    actual = detached(run(entry, model, arguments, way(compile_model(model, **options))))
    facts = facts_of_report()
    truth = truth_of(run, entry, base, arguments)
    eager = runs_of(run, entry, base, arguments, way)
    return judge_by_runs(actual, eager, truth, MOST_RUNS), facts


def case(run, **options):
    return functools.partial(judged, run, **options)


CASES = {
    "infer": case(inference),
    "frozen": case(inference, freeze=True),
    "train": case(training),
    "infer bf16": case(inference, dtype=torch.bfloat16),
    "frozen bf16": case(inference, dtype=torch.bfloat16, freeze=True),
    "train bf16": case(training, dtype=torch.bfloat16),
    "infer autocast": case(inference, way=under_autocast),
    "train autocast": case(training, way=under_autocast),
}
ENTRIES = [Model(name) for name in model_cases.CASES]
