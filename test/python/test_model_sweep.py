"""The page of `make models` has times only of what was measured alone on the machine."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))

import quiet  # noqa: E402
import sweep  # noqa: E402
import table  # noqa: E402

EQUAL = dict(model="mlp", case="infer static", status="equal", reason="", graphs=1, fallbacks=0,
             compile_s=9.0, stages_ms={"capture": 9.0})  # fmt: skip
TIMES = dict.fromkeys(table.TIMES, 1.25)
MEASURED = dict(model="mlp", case="infer times", status="measured", reason="") | TIMES


def test_a_busy_neighbour_is_seen():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            assert quiet.busy_processors() > quiet.MOST_BUSY
        finally:
            busy.kill()


def test_no_times_beside_a_busy_neighbour(monkeypatch, capsys):
    monkeypatch.setattr(sweep, "busy_processors", lambda: 1.4)
    assert sweep.times_of(["mlp"], print) == []
    assert "mlp: no times, others use 1.4 processors" in capsys.readouterr().out


def test_page_of_a_sweep_without_times_has_none():
    assert "9" not in "".join(table.verdicts([EQUAL]))
    assert "Beside Inductor" not in table.page([EQUAL])
    assert "| mlp | infer | 1.25 | 1.25 | 1.25 | 1.25 | 1.25 |" in table.page([EQUAL, MEASURED])
