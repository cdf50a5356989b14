"""The short form of memory_growth.py, in a process of its own. docs/reliability.md has the figures
of 10,000 steps and 1,000 compilations."""

import json
import os
import subprocess
import sys

import pytest

import tandem

SCRIPT = os.path.join(os.path.dirname(__file__), "memory_growth.py")
PACKAGE = os.path.dirname(os.path.dirname(tandem.__file__))


@pytest.fixture(scope="module")
def held():
    """What is held after the first tenth of 1,000 steps and of 60 compilations, and at the end."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "1000", "60"],
        env={**os.environ, "PYTHONPATH": PACKAGE, "TANDEM_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_training_does_not_grow(held):
    first, last = held["training"]
    assert last["live"] == first["live"]
    assert last["objects"] - first["objects"] < 100
    assert last["resident"] - first["resident"] < 4 * 2**20


def test_compiling_again_does_not_grow(held):
    """Dynamo keeps some 100 objects of each graph, whatever the backend."""
    first, last = held["compiling"]
    assert last["live"] == first["live"]
    assert last["objects"] - first["objects"] < 54 * 150
    assert last["resident"] - first["resident"] < 16 * 2**20
