"""The operator sweep in small: a fixed tenth of it, and entries that it once found wrong. opdb.py
says how."""

import pytest

import opdb

# Wrong or crashed before: lists of views, integer powers and divisions of lanes, pads that cut
# everything, positions at the edge, indices counted from the end, empty indices.
FOUND = (
    "broadcast_tensors",
    "meshgrid.list_of_tensors",
    "nn.functional.mse_loss",
    "__rpow__",
    "nn.functional.avg_pool1d",
    "nn.functional.pad.replicate_negative",
    "grid_sampler_2d",
    "take_along_dim",
    "gather",
    # Views that no schema tells of, draws in place, bad weights.
    "normal.in_place",
    "cartesian_prod",
    "atleast_2d",
    "multinomial",
    "nn.functional.dropout",
)
# Refused now, and run by torch where that is wanted: before, the attempt failed.
REFUSED = ("histogramdd", "sparse.mm.reduce", "resize_", "linalg.pinv", "equal", "linalg.lu")


@pytest.fixture(scope="module")
def table():
    return opdb.entries()


def check(todo, folder, asked=None):
    rows = opdb.sweep(todo, str(folder / "stderr"), asked=asked)
    lines = opdb.failures(rows)
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
    return rows


def test_tenth_of_the_sweep(table, tmp_path):
    todo = [(name, dtype) for name, dtype in opdb.pairs(table) if opdb.in_tenth(name)]
    assert len(check(todo, tmp_path)) > 100


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


def test_what_the_sweep_found(table, tmp_path):
    rows = check(list(opdb.pairs(table, FOUND)), tmp_path)
    assert all(row["verdict"] == "right" for row in rows)


def test_what_torch_runs(table, tmp_path):
    rows = check(list(opdb.pairs(table, REFUSED)), tmp_path)
    assert all(row["verdict"] == "unsupported" for row in rows)
    assert all(row["in torch"] for row in rows)
