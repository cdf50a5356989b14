"""A benchmark says it when a contender is wrong: on the page, and by its exit code."""

import json
import os
import sys

import pytest

BENCH = os.path.join(os.path.dirname(__file__), "..", "..", "bench")
sys.path.insert(0, BENCH)

import models  # noqa: E402
import report  # noqa: E402
import verdicts  # noqa: E402

RIGHT = {
    "ms": {"eager": 2.0, "inductor": 1.5, "tandem": 1.0},
    "differs": {"eager": 0.0, "inductor": 1e-6, "tandem": 1e-6},
    "failures": {"openvino": "ModuleNotFoundError: No module named 'openvino'"},
}
WRONG = [
    RIGHT | {"differs": RIGHT["differs"] | {"tandem": 0.3}},
    RIGHT | {"differs": RIGHT["differs"] | {"inductor": float("nan")}},
    RIGHT | {"failures": {"tandem": "Unsupported: no"}},
    {"error": "more than 900 s"},
]


def test_right_results_are_no_miss():
    assert verdicts.wrong({"gpt2": {"infer": RIGHT}}) == []


@pytest.mark.parametrize("found", WRONG)
def test_wrong_results_are_on_the_page(found):
    page = report.Page()
    report.models(page, {"gpt2": {"infer": RIGHT, "train": found}})
    missed = [t["what"] for t in page.targets if not t["met"] and "as in eager" in t["what"]]
    assert len(missed) == 1 and missed[0].startswith("gpt2, train")
    assert any("**Wrong results, or none:**" in line for line in page.lines)


@pytest.mark.parametrize("found, code", [(RIGHT, False), *((wrong, True) for wrong in WRONG)])
def test_exit_code(monkeypatch, tmp_path, found, code):
    def measured(name, is_quick, only, results):
        results["infer"] = found

    out = tmp_path / "models.json"
    monkeypatch.setattr(models, "measured", measured)
    monkeypatch.setattr(models.measure, "pin", lambda: None)
    monkeypatch.setattr(sys, "argv", ["models.py", "--models", "gpt2", "--out", str(out)])
    assert models.main() is code
    assert json.loads(out.read_text())
