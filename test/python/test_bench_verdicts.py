"""A benchmark says it when a contender is wrong: on the page, and by its exit code."""

import json
import os
import sys

import pytest

BENCH = os.path.join(os.path.dirname(__file__), "..", "..", "bench")
sys.path.insert(0, BENCH)

import measure  # noqa: E402
import models  # noqa: E402
import report  # noqa: E402
import verdicts  # noqa: E402

RUN = "2026-11-22, abc"
TIMES = {"eager": 2.0, "inductor": 1.5, "tandem": 1.0}
ROOF = {"operations": 4e6, "bytes": 1e6, "gflops": 8.0, "torch_gflops": 4.0, "gb_per_s": 10.0}
RIGHT = {
    "run": RUN,
    "ms": TIMES,
    "quartiles": {who: [0.9 * ms, 1.1 * ms] for who, ms in TIMES.items()},
    "roof": ROOF,
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
    report.models(page, {"gpt2": {"infer": RIGHT, "train": found}}, RUN, "AVX2")
    missed = [t["what"] for t in page.targets if not t["met"] and "as in eager" in t["what"]]
    assert len(missed) == 1 and missed[0].startswith("gpt2, train")
    assert any("**Wrong results, or none:**" in line for line in page.lines)


def rows(results, run=RUN):
    page = report.Page()
    report.models(page, {"gpt2": results}, run, "AVX2")
    return page, [line for line in page.lines if line.startswith("| gpt2")]


def test_rows_have_the_spread_the_ratios_and_the_roof():
    page, lines = rows({"infer": RIGHT})
    assert lines == [
        "| gpt2 | 0.5 | 2.0 (1.8–2.2) | 1.5 (1.4–1.7) | 1.0 (0.9–1.1) | 2.00 | 1.50 | 0.50 |"
    ]
    assert any("Geomean, x Inductor: 1.50." in line for line in page.lines)


def test_a_row_of_an_older_run_says_so():
    assert rows({"infer": RIGHT}, "2026-11-23, def")[1][0].startswith(f"| gpt2 ({RUN}) |")


def test_frozen_stands_beside_the_fastest_that_freezes():
    times = {
        "eager": 1.0,
        "inductor, freezing": 3.0,
        "inductor, freezing, max_autotune": 2.5,
        "inductor, freezing, cpp_wrapper": 4.0,
        "tandem, frozen": 2.0,
        "onnx runtime": 1.8,
        "openvino": 2.2,
    }
    spread = {who: [ms, ms] for who, ms in times.items()}
    page, lines = rows({"frozen": RIGHT | {"ms": times, "quartiles": spread}})
    assert lines[0].endswith("| 1.25 | **0.90** (miss) | 0.25 |")


def test_spread():
    spread = measure.Spread.of([4.0, 1.0, 2.0, 3.0, 5.0])
    assert spread == measure.Spread(best=1.0, low=2.0, median=3.0, high=4.0)


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
