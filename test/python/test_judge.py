"""The rule of `make models` itself: what is wrong must be found, rounding must not."""

import itertools
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))

import cases  # noqa: E402
from judge import MOST_RUNS, RUNS, judge, judge_by_runs  # noqa: E402
from own import ENTRIES  # noqa: E402

MIXER = next(entry for entry in ENTRIES if entry.name == "mixer")


def results():
    torch.manual_seed(0)
    truth = {
        "loss 0": torch.tensor(2.0, dtype=torch.float64),
        "grad weight": torch.randn(50, dtype=torch.float64),
        "grad bias": 1e-20 * torch.randn(5, dtype=torch.float64),  # zero but for rounding
        "grad small": 1e-7 * torch.randn(5, dtype=torch.float64),
        "output 0": torch.tensor([1, 2]),
    }
    eager = {
        name: value.float() if value.is_floating_point() else value
        for name, value in truth.items()
    }
    return eager, truth


def verdict(name, change):
    eager, truth = results()
    return judge(eager | {name: change(eager[name])}, [eager], truth)


def test_rounding_is_equal():
    assert verdict("grad weight", lambda x: x * (1 + 1e-7)).is_equal
    assert verdict("grad bias", lambda x: x + 1e-8).is_equal


def test_what_differs_is_named():
    changes = {
        "loss 0": lambda x: x + 1e-4,
        "grad weight": lambda x: torch.where(torch.arange(50) == 7, x + 1e-4, x),
        "grad bias": lambda x: x + 1e-4,
        "grad small": lambda x: x * 1.001,  # of its own scale, whatever other gradients are
        "output 0": lambda x: x + 1,
    }
    for name, change in changes.items():
        found = verdict(name, change)
        assert not found.is_equal and found.where == name


def test_nan_shapes_and_missing_gradients_differ():
    for change in (lambda x: x / 0, lambda x: x[:-1], lambda x: None, lambda x: x.double()):
        assert not verdict("grad weight", change).is_equal


def by_runs(change, rare):
    """Of a gradient that is changed, as every run of eager after that many is."""
    eager, truth = results()

    def kinked(run):
        return run | {"grad weight": change(run["grad weight"])}

    runs = (kinked(eager) if number >= rare else eager for number in itertools.count())
    return judge_by_runs(kinked(eager), runs, truth)


def test_what_eager_does_when_moved_by_a_rounding_is_no_error():
    found = by_runs(lambda x: x + 1e-3, rare=11)
    assert found.is_equal and found.runs == 12
    assert by_runs(lambda x: x, rare=11).runs == RUNS


def test_what_no_run_of_eager_shows_is_an_error():
    found = by_runs(lambda x: x + 1e-3, rare=MOST_RUNS)
    assert not found.is_equal and found.where == "grad weight" and found.runs == MOST_RUNS


def test_masks_of_another_seed_are_found(monkeypatch):
    """A backward that sees other masks than the forward."""
    gradients = cases.Masked.gradients
    monkeypatch.setattr(cases.Masked, "gradients", lambda self, seed: gradients(self, seed + 1))
    assert cases.run_case(MIXER, "dropout")["status"] == "unequal"
