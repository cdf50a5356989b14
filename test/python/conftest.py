"""Checks run in a process of their own: when one aborts it, that is one failure."""

import collections
import gc
import multiprocessing
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
# Waiting threads must sleep: eight of them on few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

TOTALS = collections.Counter()
SKIPS = []


def leave_modules_out():
    """The garbage collector walks over all that torch's modules made, each time: a tenth of a run.
    What is there now stays for good, and is looked at no more."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish():
    leave_modules_out()


def serve(connection, errors):
    """Answers names of ops with reports until None comes. What aborts prints to `errors`."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    import op_check

    table = op_check.operators()
    leave_modules_out()
    while (name := connection.recv()) is not None:
        connection.send(op_check.check_op(table[name]))


class Worker:
    """A process that is started again after it died."""

    def __init__(self, errors):
        self.errors = errors
        self.process = None

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, self.errors), daemon=True)
        self.process.start()
        other.close()

    def check(self, name):
        if self.process is None:
            self.start()
        self.connection.send(name)
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            self.process = None
            with open(self.errors) as file:
                said = file.read()[-4000:]
            pytest.fail(f"{name}: the process ended with {code}\n{said}", pytrace=False)

    def stop(self):
        if self.process is not None:
            self.connection.send(None)
            self.process.join()


@pytest.fixture(scope="session")
def worker(tmp_path_factory):
    process = Worker(str(tmp_path_factory.mktemp("worker") / "stderr"))
    yield process
    process.stop()


@pytest.fixture(autouse=True)
def own_team():
    """The next test begins with the team that this process began with: what a budget chooses, for
    one, depends on it."""
    torch = sys.modules.get("torch")
    number = torch and torch.get_num_threads()
    yield
    if "tandem" in sys.modules:
        sys.modules["tandem"].set_threads(None)
    if number:
        torch.set_num_threads(number)


@pytest.fixture
def totals():
    return TOTALS, SKIPS


def pytest_sessionfinish(session):
    """A worker of pytest-xdist sends what it counted to the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ops"] = (dict(TOTALS), SKIPS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    # A worker that died has sent nothing.
    counts, skips = getattr(node, "workeroutput", {}).get("ops", ({}, []))
    TOTALS.update(counts)
    SKIPS.extend(skips)


def pytest_terminal_summary(terminalreporter):
    if not TOTALS:
        return
    terminalreporter.section("ops against eager")
    terminalreporter.line(", ".join(f"{count} {name}" for name, count in TOTALS.items()))
    for line in SKIPS:
        terminalreporter.line("  " + line[:400])
