"""The tandem command: what it says to arguments that it cannot use, and the code that it writes."""

import pathlib
import re
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


def test_a_dump_makes_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "new" / "folder"
    monkeypatch.setenv("TANDEM_DUMP", f"all:{folder}")
    assert run(tmp_path).returncode == 0
    assert any("aten.exp" in path.read_text() for path in folder.glob("*_functionalize.tir"))


def test_profile_lists_instructions(tmp_path):
    done = run(tmp_path, "--profile", "2", "--repeat", "3")
    assert done.returncode == 0, done.stderr
    assert "aten.exp" in done.stdout


PREFETCHT1 = b"\x0f\x18"
POOL = """graph @g(%x: f32[2, 4, 32, 64]) {
  %0 = aten.max_pool2d(%x, [3, 3], [2, 2], [1, 1])
  return %0
}
"""


@pytest.mark.parametrize("graph, asks", [(POOL, True), (GRAPH, False)])
def test_masked_loads_ask_ahead(tmp_path, graph, asks):
    """Padding masks the loads of a pool; those of a plain kernel the processor foresees."""
    path = tmp_path / "graph.tir"
    path.write_text(graph)
    subprocess.run([COMMAND, "objects", path, tmp_path], check=True, capture_output=True)
    (code,) = [file.read_bytes() for file in tmp_path.glob("*.o")]
    assert (PREFETCHT1 in code) == asks


def test_tune_says_what_it_chose(tmp_path):
    path = tmp_path / "graph.tir"
    path.write_text(GRAPH)
    environment = {"TANDEM_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([COMMAND, "tune", path], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("are mapped otherwise than the model would")


MLP = """graph @mlp(%x: f32[64, 32] {input grad}, %w: f32[32, 256] {param "w" grad}) {
  %0 = aten.mm(%x, %w)
  %1 = aten.tanh(%0)
  %2 = aten.dropout(%1, 0.5, true)
  %3 = aten.sin(%2)
  return %3
}
"""


def partition(tmp_path, *arguments):
    path = tmp_path / "graph.tir"
    path.write_text(MLP)
    return subprocess.run(
        [COMMAND, "partition", *arguments, path], capture_output=True, text=True
    )


def test_partition_says_what_is_saved_and_why(tmp_path):
    plain = partition(tmp_path, "--budget", "min_cut").stdout
    assert "values saved" in plain and "it takes a kernel of its own" in plain
    least = partition(tmp_path, "--budget", "min_memory").stdout
    assert re.search(r"again +\d+\.\d+ us +%\d+ = aten.mm\(.*: the budget", least)
    assert f"{2 * 64 * 32 * 256} flops of products" in least  # the product, once more
    # The choices: more bytes, less time.
    lines = [line for line in least.splitlines() if re.match(r" *\d+ ", line)]
    saved = [int(line.split()[0]) for line in lines]
    times = [float(re.findall(r"\d+\.\d", line)[-1]) for line in lines]
    assert len(saved) > 2 and saved == sorted(saved) and times == sorted(times, reverse=True)
    assert f"saved, {saved[0]} bytes" in least


def test_partition_of_bytes(tmp_path):
    small = partition(tmp_path, "--budget", "1KiB")
    assert small.returncode == 1
    takes = re.search(r"holds a step in 1024 bytes: it takes (\d+)", small.stderr).group(1)
    assert "values saved" in partition(tmp_path, "--budget", f"{takes}B").stdout
    assert "is solved by" in partition(tmp_path, "--solver", "cbc").stderr
    assert "'time', 'flops' or 'measured'" in partition(tmp_path, "--cost", "bytes").stderr
    assert "a memory budget is" in partition(tmp_path, "--budget", "half").stderr


def test_partition_says_what_is_kept_small(tmp_path):
    kind = ["--budget", "as_read", "--store", "int8_row", "--store-from", "1"]
    small = partition(tmp_path, *kind).stdout
    assert "kept as int8_row" in small
    line = next(line for line in small.splitlines() if "aten.tanh(" in line)
    assert f" {64 * 256 + 4 * 64} bytes" in line  # elements, and a scale for each row
    assert re.search(rf" {64 * 256 // 8} bytes .* = aten.ge.Scalar\(.*; kept as bits", small)
    excluded = partition(tmp_path, *kind, "--store-except", "aten.mm,aten.tanh").stdout
    assert "kept as int8_row" not in "".join(
        line for line in excluded.splitlines() if "aten.mm(" in line or "aten.tanh(" in line
    )
    assert "kept as one of" in partition(tmp_path, "--store", "int4").stderr
    assert "needs a number" in partition(tmp_path, "--store-from", "few").stderr
    assert "a place" in partition(tmp_path, "--store-except", "mm").stderr


@pytest.mark.parametrize("option", [["--core"], ["--step", "map_axes"]])
def test_schedule_says_what_the_passes_have_not_done(tmp_path, option):
    path = tmp_path / "graph.tir"
    path.write_text(
        "graph @g(%x: f32[4, 4], %i: i64[1], %y: f32[1, 4]) {\n"
        "  %0 = aten.index_copy_(%x, 0, %i, %y)\n  %1 = aten.softmax.int(%x, 1)\n  return %1\n}\n"
    )
    done = subprocess.run([COMMAND, "schedule", *option, path], capture_output=True, text=True)
    assert done.returncode not in (0, -6)
    for problem in ("[aten::index_copy_] mutates", "[aten::softmax.int] has no lowering"):
        assert problem in done.stderr
    assert "check failed" not in done.stderr
