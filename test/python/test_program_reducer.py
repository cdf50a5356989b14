"""The reducer of random programs, with judges that are wrong on purpose."""

import dataclasses
import os
import signal
import subprocess
import sys

import torch

import program_reducer
from program_outcomes import Difference, outcome
from random_programs import long, short
from random_recipe import Input, Recipe, Written

STEPS = (
    ("transpose", (0,), (0, 1)),
    ("add", (1, 1), ()),
    ("sin", (4,), ()),
    ("mul_", (3, 1), ()),
    ("exp", (5,), ()),
)


def recipe():
    inputs = (Input((2, 3), "slice", grad=True), Input((3, 2), "transposed"), Input((4,)))
    return Recipe(0, inputs, STEPS, (7, 6, 1, 5), starts_grad=False)


def has_sine(recipe):
    return "torch.sin" in recipe.code()


def test_what_does_not_matter_goes():
    least = program_reducer.reduced(recipe(), has_sine)
    assert least == Recipe(0, (Input((4,)),), (("sin", (0,), ()),), (0,))


def test_what_matters_stays():
    def fails(each):
        return has_sine(each) and any(i.grad for i in each.inputs) and not each.starts_grad

    least = program_reducer.reduced(recipe(), fails)
    assert [step[0] for step in least.steps] == ["sin"]
    assert [each.grad for each in least.inputs] == [True] and not least.starts_grad


def of_a_wrong_sine(written, road="core"):
    """As `first_difference` where sines of matrices are compiled wrongly."""

    def wrong(*inputs):
        with WrongSine():
            return written.program(*inputs)

    return Difference(outcome(wrong, written), outcome(written.program, written), written)


class WrongSine(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        is_wrong = function is torch.sin and result.dim() > 1
        return result + 1 if is_wrong else result


def programs_with_a_matrix_sine():
    for make in (short, long):
        for seed in range(400):
            if any(step[0] == "sin" for step in make(seed).steps):
                if of_a_wrong_sine(make(seed).written).text:
                    yield make(seed)


def test_of_a_judge_that_is_wrong():
    """Each ends as one sine, of an input or of what makes an input a matrix."""
    seen = 0
    for each in programs_with_a_matrix_sine():
        least, found = program_reducer.reduced_difference(each, differs=of_a_wrong_sine)
        assert found.text and found.kind == of_a_wrong_sine(each.written).kind
        assert least.code().count("torch.sin") == 1, least.code()
        assert len(least.steps) <= 3 and len(least.inputs) <= 2, least.code()
        seen += 1
        if seen == 10:
            return
    raise AssertionError(f"only {seen} programs")


def test_of_what_ends_the_process(monkeypatch):
    def killed(written, road="core"):
        if of_a_wrong_sine(written).text:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(program_reducer, "first_difference", killed)
    each = next(programs_with_a_matrix_sine())
    assert program_reducer.ends_the_process(each)
    least, found = program_reducer.reduced_crash(each)
    assert found.text and len(least.steps) <= 3 and "torch.sin" in least.code()


def test_what_is_printed_runs(tmp_path):
    each = dataclasses.replace(recipe(), starts_grad=True)
    found = Difference([("result 0", 1)], [("result 0", 2)], each.written)
    path = tmp_path / "program.py"
    path.write_text(program_reducer.printed(each, found))
    assert "#   result 0: 1 instead of 2" in path.read_text()
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True,
                          env=with_path())  # fmt: skip
    assert done.stdout.strip().endswith("equal")
    written = Written.of_code(path.read_text(), str(path))
    assert written.starts_grad and len(written.inputs()[0]) == 3


def with_path():
    here = os.path.dirname(__file__)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], here])}
