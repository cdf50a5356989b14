"""A fixed tenth of the operator sweep: nothing is wrong, nothing crashes. opdb.py says how."""

import pytest

import opdb


def test_tenth_of_the_sweep(tmp_path):
    table = opdb.entries()
    todo = [(name, dtype) for name, dtype in opdb.pairs(table) if opdb.in_tenth(name)]
    rows = opdb.sweep(todo, str(tmp_path / "stderr"))
    assert len(rows) > 100
    lines = opdb.failures(rows)
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
