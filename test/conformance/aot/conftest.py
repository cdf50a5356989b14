"""docs/aot.md says of each behaviour what is expected, and a test that shows otherwise fails: a fix
must change the page."""

import os
import sys

import pytest
import torch

sys.path.insert(0, os.path.dirname(__file__))

import page  # noqa: E402
import tandem  # noqa: E402
from beside_eager import Program  # noqa: E402


def behaviour_of(item):
    return item.name.split("_")[1] if item.name.startswith("test_T") else None


def pytest_collection_modifyitems(items):
    for item in items:
        number = behaviour_of(item)
        if number is None or "aot" not in getattr(item, "fixturenames", ()):
            continue
        if page.STATES[number].state == "not there":
            item.add_marker(pytest.mark.xfail(strict=True, reason=page.STATES[number].note))


@pytest.fixture
def aot(request):
    number = behaviour_of(request.node)
    torch._dynamo.utils.counters.clear()
    tandem.reset_report()
    return Program(page.STATES[number].state)


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """A refusal is what the page says it is; what runs in torch does."""
    outcome = yield
    number = behaviour_of(pyfuncitem)
    if number is None or "aot" not in pyfuncitem.funcargs:
        return
    row = page.STATES[number]
    program = pyfuncitem.funcargs["aot"]
    if outcome.excinfo is None:
        if row.state == "in torch" and not program.uses_torch():
            outcome.force_exception(AssertionError(f"{number} does not run in torch any more"))
        if row.state == "graph break" and not program.broke_a_graph():
            outcome.force_exception(AssertionError(f"{number} does not break the graph any more"))
    if row.state == "refused":
        said = str(outcome.excinfo[1]) if outcome.excinfo else "nothing"
        if row.error in said:
            outcome.force_result(True)
        else:
            problem = f"{number} is refused with {row.error!r}, the page says; it said: {said}"
            outcome.force_exception(AssertionError(problem))
