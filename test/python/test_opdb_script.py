"""scripts/opdb.sh: a part that dies is a failure, and no older result stands in for it."""

import pathlib
import shutil
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
# Writes its rows, and ends as the sweep does that finds something; part 1 does what a test says.
PYTHON = """#!/usr/bin/env bash
while [ $# -gt 0 ]; do
  case "$1" in --part) part="$2" ;; --json) json="$2" ;; --merge) exit 0 ;; esac
  shift
done
if [ "$part" = 1/2 ]; then {does}; fi
echo "[]" >"$json"
exit 1
"""


def run(folder, does):
    (folder / "scripts").mkdir()
    (folder / "build").mkdir()
    for name in ("common.sh", "opdb.sh"):
        shutil.copy(SCRIPTS / name, folder / "scripts" / name)
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(does=does))
    python.chmod(0o755)
    (folder / "build" / "opdb.1.json").write_text("[]")  # of an earlier run
    environment = dict(JOBS="2", TANDEM_VENV=str(folder / "venv"), PATH="/usr/bin:/bin")
    command = ["bash", str(folder / "scripts" / "opdb.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_parts_that_find_something_are_merged(tmp_path):
    assert run(tmp_path, ":").returncode == 0


@pytest.mark.parametrize("does", ["echo gone >&2; exit 3", "kill -9 $$"])
def test_part_that_dies(tmp_path, does):
    done = run(tmp_path, does)
    assert done.returncode != 0
    assert "part 1 of 2 died" in done.stderr
