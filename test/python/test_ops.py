"""Every op of the vocabulary against PyTorch eager. op_check.py says how."""

import pytest

import tandem

MAX_LINES = 12


@pytest.mark.parametrize("name", [op.name for op in tandem.ops() if not op.mutates])
def test_op(name, worker, totals):
    report = worker.check(name)
    counts, skips = totals
    counts["ops"] += 1
    counts.update(report.counts)
    skips.extend(report.skips)
    if report.failures:
        lines = report.failures[:MAX_LINES]
        more = len(report.failures) - len(lines)
        pytest.fail("\n".join(lines) + (f"\n… and {more} more" if more else ""), pytrace=False)
