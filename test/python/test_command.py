"""What the tandem command says to arguments that it cannot use."""

import pathlib
import subprocess

import pytest

COMMAND = pathlib.Path(__file__).resolve().parents[2] / "build" / "bin" / "tandem"
GRAPH = "graph @g(%x: f32[4]) {\n  %0 = aten.exp(%x)\n  return %0\n}\n"


def run(tmp_path, *arguments):
    path = tmp_path / "graph.tir"
    path.write_text(GRAPH)
    return subprocess.run([COMMAND, "run", *arguments, path], capture_output=True, text=True)


@pytest.mark.parametrize("option", ["--repeat", "--profile"])
@pytest.mark.parametrize("count", ["x", "0", "-3", "4y", "99999999999", ""])
def test_counts_are_numbers(tmp_path, option, count):
    done = run(tmp_path, option, count)
    assert done.returncode not in (0, -6)
    assert f"{option} needs a number of at least 1, not '{count}'" in done.stderr


def test_profile_lists_instructions(tmp_path):
    done = run(tmp_path, "--profile", "2", "--repeat", "3")
    assert done.returncode == 0, done.stderr
    assert "aten.exp" in done.stdout
