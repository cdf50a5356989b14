"""The operator sweep in other forms and dtypes, by a fixed tenth. opdb.py says how; scripts/opdb.sh
runs the plain one, whole."""

import pytest

import opdb


@pytest.fixture(scope="module")
def table():
    return opdb.entries()


def check(todo, folder, asked=None):
    rows = opdb.sweep(todo, str(folder / "stderr"), asked=asked)
    lines = opdb.failures(rows)
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
    return rows


@pytest.mark.parametrize("form", opdb.FORMS)
def test_other_forms(table, form, tmp_path):
    """Of the tenth in f32; of errors and in-place variants all."""
    table = {name: entry for name, entry in table.items() if opdb.takes(entry, form)}
    takes_all = form in ("in_place", "errors")
    pairs = opdb.pairs(table, dtypes=["f32"])
    todo = [(name, dtype) for name, dtype in pairs if takes_all or opdb.in_tenth(name)]
    assert len(check(todo, tmp_path, opdb.Sweep(form=form))) > 30


def test_narrow_integers(table, tmp_path):
    todo = [(name, "u8") for name, _ in opdb.pairs(table, dtypes=["u8"]) if opdb.in_tenth(name)]
    assert len(check(todo, tmp_path)) > 20


def row(op, verdict, **more):
    return {"op": op, "dtype": "f32", "verdict": verdict, "kind": "", "reason": "", **more}


def test_what_was_mended_must_stay():
    """A sweep fails for what is wrong, and for what was mended and is refused now."""
    refused = {"in torch": True, "with eager": "right"}
    assert opdb.failures([row("gather", "right"), row("equal", "unsupported", **refused)]) == []
    for bad in (
        row("gather", "wrong"),
        row("sin", "crash"),
        row("gather", "unsupported", **refused),
        row("equal", "unsupported", **refused | {"in torch": False}),
        row("equal", "unsupported", **refused | {"with eager": "wrong: 1"}),
    ):
        assert len(opdb.failures([bad])) == 1, bad
