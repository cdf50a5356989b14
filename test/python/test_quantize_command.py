"""`tandem calibrate`, `quantize` and `run` on files, with real data: the digits network in 8 bits
is as good as in floats, the file of ranges is obeyed and belongs to its weights, and files appear
whole or not at all."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMAND = ROOT / "build" / "bin" / "tandem"
GRAPH = ROOT / "examples" / "digits.tir"
DIGITS = np.load(ROOT / "build" / "data" / "digits.npz")


def images(numbers):
    return DIGITS["images"].reshape(-1, 1, 8, 8)[numbers]


def start(*arguments):
    return subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, OMP_WAIT_POLICY="passive"),
        # What a shell starts in the background ignores it, and hands that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(*arguments):
    """Standard output and standard error."""
    process = start(*arguments)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output, errors


def refusal(*arguments):
    process = start(*arguments)
    _, errors = process.communicate()
    assert process.returncode == 1, errors
    return errors


def read_tensors(path):
    """Of a safetensors file: type, and values."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    types = {"F32": np.float32, "I8": np.int8, "I64": np.int64, "I32": np.int32}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + place for place in entry["data_offsets"])
        values = np.frombuffer(data[begin:end], types[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


class Files:
    def __init__(self, folder):
        self.folder = folder
        self.weights = folder / "digits.safetensors"
        self.calibration = folder / "calibration.npz"
        self.held_out = folder / "test.npz"
        self.ranges = folder / "ranges.toml"
        subprocess.run(
            [ROOT / "build" / "bin" / "digits", "--epochs", "15", "--save", self.weights],
            check=True,
            capture_output=True,
            cwd=ROOT,
        )
        np.savez(self.calibration, images=images(DIGITS["train"][:500]))
        np.savez(self.held_out, images=images(DIGITS["test"]))

    def model(self, *options):
        return ["--weights", self.weights, *options, GRAPH]

    def calibrate(self, *options):
        data = ["--data", self.calibration, "--batch", 50, "--statistics", self.ranges]
        return run("calibrate", *data, *self.model(*options))

    def quantize(self, output, *options):
        paths = ["--statistics", self.ranges, "--output", output]
        return run("quantize", *paths, *self.model(*options))[0]

    def accuracy(self, graph, weights):
        """In percent, of the test images."""
        scores = self.folder / "scores.safetensors"
        files = ["--weights", weights, "--data", self.held_out, "--batch", 64, "--save", scores]
        run("run", "--freeze", *files, graph)
        best = read_tensors(scores)["result.0"].argmax(axis=1)
        return 100 * np.mean(best == DIGITS["labels"][DIGITS["test"]])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    made = Files(tmp_path_factory.mktemp("digits"))
    made.calibrate()
    return made


CALIBRATED = ("x86_default", "x86_reduced_range")


@pytest.mark.parametrize("recipe", [*CALIBRATED, "x86_dynamic", "weight_only_int8"])
def test_a_quantized_file_keeps_its_accuracy(files, tmp_path, recipe):
    ranges = tmp_path / "ranges.toml"
    recipes = ["--recipe", recipe, "--statistics", ranges]
    data = ["--data", files.calibration] if recipe in CALIBRATED else []
    run("calibrate", *data, *recipes, *files.model())
    output = tmp_path / "small.tir"
    told, _ = run("quantize", *recipes, "--output", output, *files.model())
    wanted = files.accuracy(GRAPH, files.weights)
    got = files.accuracy(output, output.with_suffix(".safetensors"))
    assert wanted > 97
    assert got >= wanted - 0.3
    if recipe in CALIBRATED:
        assert "4 of 4 products with a quantized factor are of integers" in told


def test_weights_are_stored_as_integers(files, tmp_path):
    output = tmp_path / "small.tir"
    files.quantize(output)
    stored = read_tensors(output.with_suffix(".safetensors"))
    wide = [name for name, values in stored.items() if values.ndim > 1 and values.dtype != np.int8]
    assert wide == []
    assert stored["conv2.weight.q"].shape == (32, 32, 3, 3)
    assert "conv2.weight" not in stored  # the floats are not needed any more
    bytes_before = files.weights.stat().st_size
    assert output.with_suffix(".safetensors").stat().st_size < bytes_before / 3


def test_equal_files_give_equal_files(files, tmp_path):
    text = files.ranges.read_text()
    files.calibrate()
    assert files.ranges.read_text() == text
    for name in "ab":
        files.quantize(tmp_path / f"{name}.tir")
    for suffix in (".tir", ".safetensors"):
        first, second = ((tmp_path / name).with_suffix(suffix) for name in ("a.x", "b.x"))
        assert first.read_bytes() == second.read_bytes()


def test_progress_goes_to_standard_error(files):
    output, errors = files.calibrate()
    assert "calibrating 10/10 100%" in errors
    assert re.search(r"ranges.toml: \d+ groups of values", output)


def test_edited_ranges_are_obeyed(files, tmp_path):
    text = files.ranges.read_text()
    cut = re.sub(r'(\[groups."conv1.input"\][^[]*high = )[\d.e-]+', r"\g<1>0.01", text)
    assert cut != text
    edited = tmp_path / "edited.toml"
    edited.write_text(cut)
    output = tmp_path / "edited.tir"
    run("quantize", "--statistics", edited, "--output", output, *files.model())
    got = files.accuracy(output, output.with_suffix(".safetensors"))
    assert got < files.accuracy(GRAPH, files.weights) - 5


def test_a_changed_model_is_refused(files, tmp_path):
    paths = ["--statistics", files.ranges, "--output", tmp_path / "x.tir"]
    data = bytearray(files.weights.read_bytes())
    data[-3] ^= 1
    other = tmp_path / "other.safetensors"
    other.write_bytes(data)
    errors = refusal("quantize", *paths, "--weights", other, GRAPH)
    assert "the statistics are of another model" in errors
    graph = tmp_path / "other.tir"
    graph.write_text(GRAPH.read_text().replace("aten.relu(%8)", "aten.relu6(%8)"))
    errors = refusal("quantize", *paths, "--weights", files.weights, graph)
    assert "the statistics are of another model" in errors
    errors = refusal("quantize", *paths, "--recipe", "x86_dynamic", *files.model())
    assert "another recipe" in errors
    assert not (tmp_path / "x.tir").exists()


def test_an_unobserved_group_is_an_error(files, tmp_path):
    lacking = tmp_path / "lacking.toml"
    text = re.sub(r'\[groups."conv2.input"\][^[]*', "", files.ranges.read_text())
    lacking.write_text(text)
    errors = refusal(
        "quantize", "--statistics", lacking, "--output", tmp_path / "x.tir", *files.model()
    )
    assert "statistics have no group 'conv2.input': its values were not observed" in errors
    # And without batches nothing is observed.
    errors = refusal("calibrate", "--statistics", tmp_path / "none.toml", *files.model())
    assert "group 'conv1.input' saw no value" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lacking.toml"]


def decibels(output):
    return [line.split() for line in output.splitlines() if " dB " in line]


def test_layers_are_ranked_and_left(files, tmp_path):
    few = ["--data", files.calibration, "--batch", 50]
    output = tmp_path / "ranked.tir"
    told, errors = run(
        "quantize", "--sensitivity", *few, "--statistics", files.ranges, "--output", output,
        *files.model(),
    )
    rows = decibels(told)
    assert sorted(row[2] for row in rows[:-1]) == ["conv1", "conv2", "conv3", "fc"]
    values = [float(row[0]) for row in rows[:-1]]
    assert values == sorted(values)
    assert "comparing 5/5 100%" in errors
    bound = float(rows[-1][0]) + 1
    told = files.quantize(output, "--sqnr-at-least", bound, *few)
    rows = decibels(told)
    assert "(left in f32)" in told
    assert float(rows[-1][0]) >= bound
    worst = rows[0][2]
    stored = read_tensors(output.with_suffix(".safetensors"))
    assert f"{worst}.weight.q" not in stored and f"{worst}.weight" in stored
    told = files.quantize(output, "--leave", worst)
    assert f"{worst}.weight" in read_tensors(output.with_suffix(".safetensors"))


def test_a_recipe_may_be_a_file(files, tmp_path):
    recipe = tmp_path / "one.toml"
    recipe.write_text(
        """name = "one"
[specs.activation]
dtype = "u8"
[specs.weight]
dtype = "i8"
symmetric = true
per = "channel"
constant = true
[[rules]]
name = "linear"
chain = ["aten.linear"]
inputs = { input = "activation", weight = "weight" }
"""
    )
    ranges = tmp_path / "ranges.toml"
    options = ["--recipe", recipe, "--statistics", ranges]
    run("calibrate", "--data", files.calibration, *options, *files.model())
    assert ranges.read_text().count("[groups.") == 2
    output = tmp_path / "one.tir"
    told, _ = run("quantize", *options, "--output", output, *files.model())
    assert "1 of 1 products" in told


def test_data_inputs_may_stand_anywhere(files, tmp_path):
    text = GRAPH.read_text()
    first = "%images: f32[s0, 1, 8, 8],"
    last = '%bias: f32[10] {param "fc.bias"}'
    moved = tmp_path / "moved.tir"
    moved.write_text(text.replace(first, "").replace(last, f"{last}, {first[:-1]}"))
    ranges, output = tmp_path / "ranges.toml", tmp_path / "small.tir"
    paths = ["--statistics", ranges, "--weights", files.weights]
    run("calibrate", "--data", files.calibration, *paths, moved)
    run("quantize", "--output", output, *paths, moved)
    assert files.accuracy(output, output.with_suffix(".safetensors")) > 97


def test_files_that_do_not_fit_are_named(files, tmp_path):
    ranges = ["--statistics", tmp_path / "ranges.toml"]
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, images=DIGITS["images"].reshape(-1, 64))
    errors = refusal("calibrate", "--data", wrong, *ranges, *files.model())
    assert "'images' is f32[" in errors and "the model takes f32[any, 1, 8, 8]" in errors
    np.savez(wrong, pictures=images(DIGITS["test"]))
    assert 'no tensor "images"' in refusal("calibrate", "--data", wrong, *ranges, *files.model())
    assert "--weights FILE is needed" in refusal("calibrate", *ranges, GRAPH)
    small = tmp_path / "small.npz"
    np.savez(small, **{"conv1.weight": np.zeros((2, 2), np.float32)})
    errors = refusal("calibrate", "--weights", small, *ranges, GRAPH)
    assert "'fc.bias' is missing" in errors and "'conv1.weight' is f32[2, 2]" in errors
    unknown = tmp_path / "unknown.bin"
    unknown.write_bytes(b"")
    assert ".safetensors, .npz and .npy" in refusal(
        "calibrate", "--weights", unknown, *ranges, GRAPH
    )
    assert "no option '--wieghts'" in refusal("calibrate", "--wieghts", small, *ranges, GRAPH)
    assert "--statistics FILE is needed" in refusal("quantize", GRAPH)
    nowhere = tmp_path / "no" / "ranges.toml"
    errors = refusal("calibrate", "--statistics", nowhere, *files.model())
    assert "there is no folder" in errors and "calibrating" not in errors  # before it begins
    assert "a .tir file" in refusal("quantize", *ranges, "--output", "x.txt", *files.model())
    assert "a number of dB" in refusal(
        "quantize", *ranges, "--output", "x.tir", "--sqnr-at-least", "4O", *files.model()
    )


def test_interrupted_work_leaves_nothing(files, tmp_path):
    many = tmp_path / "many.npy"
    np.save(many, np.resize(images(DIGITS["train"]), (200_000, 1, 8, 8)))
    data = tmp_path / "images.npy"
    many.rename(data)
    process = start(
        "calibrate", "--data", data, "--batch", 1, "--statistics", tmp_path / "ranges.toml",
        *files.model(),
    )
    time.sleep(3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "interrupted: nothing was written" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["images.npy"]


def peak(*arguments):
    """MiB."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([COMMAND, *map(str, arguments)], **quiet)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_maxrss / 1024


def test_memory_does_not_grow_with_images(files, tmp_path):
    ranges = ["--statistics", tmp_path / "ranges.toml"]
    few, many = tmp_path / "few.npz", tmp_path / "many.npz"
    np.savez(few, images=images(DIGITS["train"][:100]))
    np.savez(many, images=images(DIGITS["train"][:1400]))
    batch = ["--batch", 50, *ranges, *files.model()]
    assert peak("calibrate", "--data", many, *batch) < peak("calibrate", "--data", few, *batch) + 16


def test_rows_at_the_end_are_a_smaller_batch(files, tmp_path):
    data = tmp_path / "test.npz"
    np.savez(data, images=images(DIGITS["test"][:70]))
    scores = tmp_path / "scores.safetensors"
    given = ["--weights", files.weights, "--data", data, "--save", scores]
    results = []
    for rows in (32, 70):
        run("run", "--freeze", "--batch", rows, *given, GRAPH)
        results.append(read_tensors(scores)["result.0"])
    assert results[0].shape == (70, 10)
    assert np.abs(results[0] - results[1]).max() < 1e-4


def write_tensors(path, **tensors):
    """A safetensors file, which is mapped: of f32."""
    header, data = {}, b""
    for name, values in tensors.items():
        more = np.ascontiguousarray(values, np.float32).tobytes()
        places = [len(data), len(data) + len(more)]
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": places}
        data += more
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_what_a_graph_writes_is_not_the_file(tmp_path):
    graph, tensors = tmp_path / "writes.tir", tmp_path / "tensors.safetensors"
    graph.write_text(
        'graph @g(%x: f32[4, 3], %w: f32[3] {buffer "w"}) {\n'
        "  %0 = aten.add_.Tensor(%w, 1.0)\n  %1 = aten.add_.Tensor(%x, %0)\n  return %1\n}"
    )
    write_tensors(tensors, x=np.zeros((8, 3)), w=np.ones(3))
    before, saved = tensors.read_bytes(), tmp_path / "saved.safetensors"
    run("run", "--weights", tensors, "--data", tensors, "--save", saved, graph)
    assert (read_tensors(saved)["result.0"] == 2).all()
    assert tensors.read_bytes() == before


def test_calibration_of_a_graph_that_writes_its_input(tmp_path):
    graph, tensors = tmp_path / "writes.tir", tmp_path / "tensors.safetensors"
    graph.write_text(
        'graph @g(%x: f32[4, 3], %w: f32[5, 3] {param "w"}) {\n'
        "  %0 = aten.relu_(%x)\n  %1 = aten.linear(%0, %w)\n  return %1\n}"
    )
    write_tensors(tensors, x=np.full((8, 3), -1.0), w=np.ones((5, 3)))
    files = ["--weights", tensors, "--data", tensors]
    run("calibrate", *files, "--statistics", tmp_path / "ranges.toml", graph)


def test_data_that_fills_no_batch_is_refused(files, tmp_path):
    data = tmp_path / "none.npz"
    np.savez(data, images=images(DIGITS["test"][:0]))
    given = ["--weights", files.weights, "--data", data]
    assert "none.npz: no batch" in refusal("run", *given, GRAPH)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--frozen", GRAPH], "no option '--frozen'"),
        ([GRAPH, GRAPH], "2 names are given"),
        ([ROOT], "cannot read"),
    ],
)
def test_words_that_run_does_not_take(words, said):
    assert said in refusal("run", *words)


def test_help_lists_the_commands():
    told, _ = run("help")
    assert "tandem calibrate" in told and "tandem quantize" in told
