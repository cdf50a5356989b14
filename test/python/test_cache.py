"""What an earlier process compiled is taken from TANDEM_CACHE_DIR, and is the same program."""

import json
import os
import resource
import subprocess
import sys

import pytest
import tandem
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(12, 24)
        self.second = torch.nn.Linear(24, 5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        hidden = torch.nn.functional.gelu(self.first(x))
        return self.second(torch.nn.functional.dropout(hidden, 0.25, self.training))


def compiled(model, **options):
    torch._dynamo.reset()
    options = {"on_unsupported": "error"} | options
    return torch.compile(model, backend=tandem.backend, options=options)


def step(model, function, rows=6):
    """What a training step leaves behind."""
    torch.manual_seed(3)
    model.zero_grad()
    loss = function(torch.linspace(-1, 1, rows * 12).reshape(rows, 12)).square().mean()
    loss.backward()
    return [loss.item(), model.calls.item(), *(p.grad.clone() for p in model.parameters())]


def is_from_cache():
    return tandem.report()["graphs"][-1]["from cache"]


def equal(left, right):
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(left, right)
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


def test_the_second_compile_is_the_first_one(folder, model):
    first = step(model, compiled(model))
    assert not is_from_cache()
    model.calls.zero_()
    second = step(model, compiled(model))
    assert is_from_cache()
    assert "from the cache" in str(tandem.report())
    assert equal(first, second)


def test_another_process_reads_it(folder):
    words = [sys.executable, __file__]
    answers = [
        json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
        for _ in range(2)
    ]
    assert [answer["cached"] for answer in answers] == [False, True]
    assert answers[0]["step"] == answers[1]["step"]
    milliseconds = answers[1]["milliseconds"]
    assert milliseconds["schedule"] == milliseconds["codegen"] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda patch, model: patch.setenv("TANDEM_FUSION", "0"),
        lambda patch, model: patch.setenv("TANDEM_OPT", "1"),
        lambda patch, model: patch.setenv("TANDEM_TIME", "1"),  # wants to see the passes
        lambda patch, model: model.eval(),
        lambda patch, model: model.first.weight.requires_grad_(False),
    ],
)
def test_what_changes_the_program_is_no_hit(folder, model, monkeypatch, change, capfd):
    compiled(model)(torch.ones(2, 12))
    change(monkeypatch, model)
    compiled(model)(torch.ones(2, 12))
    assert not is_from_cache()


def test_options_that_change_the_program_are_no_hit(folder, model):
    seen = []
    for options in ({}, {"memory_budget": "min_cut"}, {"freeze": True}, {}):
        with torch.set_grad_enabled("freeze" not in options):
            compiled(model.train("freeze" not in options), **options)(torch.ones(2, 12))
        seen.append(is_from_cache())
    assert seen == [False, False, False, True]


def test_hits_and_misses_are_counted_and_a_miss_says_why(folder, model):
    tandem.reset_report()
    for options in ({}, {"memory_budget": "min_cut"}, {}):
        compiled(model, report=True, **options)(torch.ones(2, 12))
    report = tandem.report()
    assert report["cache"] == {"hit": 1, "miss": 2, "bypassed": 0}
    first, second, third = (graph["cache"] for graph in report["graphs"])
    assert (first, third) == ("miss", "hit")
    assert second.startswith("miss: the nearest entry differs in memory_budget: 'min_cut 1")
    assert "'default 1" in second and second in str(report)


@pytest.mark.parametrize(
    "variable, value, why",
    [("TANDEM_CACHE_DIR", "", "names no folder"), ("TANDEM_VERIFY", "1", "flags want to see")],
)
def test_a_compilation_beside_the_cache_says_why(folder, model, monkeypatch, variable, value, why):
    monkeypatch.setenv(variable, value)
    tandem.reset_report()
    compiled(model)(torch.ones(2, 12))
    report = tandem.report()
    assert report["cache"] == {"hit": 0, "miss": 0, "bypassed": 1}
    assert report["graphs"][0]["cache"].startswith("bypassed: ")
    assert why in report["graphs"][0]["cache"]


def command(*words):
    run = [sys.executable, "-m", "tandem.cache", *map(str, words)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_folder_is_listed_explained_verified_carried_and_cleared(folder, model, tmp_path):
    compiled(model)(torch.ones(2, 12))
    compiled(model, memory_budget="min_cut")(torch.ones(2, 12))
    entries = folder / "tandem-cache"
    one, other = sorted(path.name for path in entries.glob("*.function"))
    status, text = command("list")
    assert status == 0 and one in text and other in text and "graph @g(" in text
    status, text = command("explain", one, other)
    assert status == 0 and text.startswith("memory_budget: ") and text.count("\n") == 1
    assert command("explain", one, one) == (0, "the keys are equal\n")
    count = len(list(entries.glob("*.*")))
    assert command("verify") == (0, f"{count} entries, none damaged\n")

    carried = tmp_path / "carried"
    assert command("export", carried) == (0, f"{count} entries exported\n")
    whole = {path.name: path.read_bytes() for path in entries.glob("*.*")}
    assert command("clear") == (0, f"{count} entries removed\n")
    assert not list(entries.glob("*.*"))
    assert command("import", carried) == (0, f"{count} entries imported\n")
    assert {path.name: path.read_bytes() for path in entries.glob("*.*")} == whole
    compiled(model)(torch.ones(2, 12))
    assert is_from_cache()


def test_damage_is_found_and_nothing_damaged_is_imported(folder, model, tmp_path):
    compiled(model)(torch.ones(2, 12))
    carried = tmp_path / "carried"
    command("export", carried)
    (entry,) = (folder / "tandem-cache").glob("*.function")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    status, text = command("verify")
    assert status == 1 and entry.name in text and "damaged" in text
    entry.rename(entry.with_name("0" * 16 + ".function"))  # whole, and not what the name says
    entry.with_name("0" * 16 + ".function").write_bytes(whole)
    assert command("verify")[0] == 1
    bytes_of_export = carried.read_bytes()
    for damaged in (b"", bytes_of_export[:-3], bytes_of_export[:-9] + b"x" + bytes_of_export[-8:]):
        carried.write_bytes(damaged)
        status, text = command("import", carried)
        assert status == 1 and "damaged" in text
    assert command("import", tmp_path / "none")[0] == 1
    assert command("explain", "no", "such")[0] == 1
    assert command("nothing")[0] == 1


def test_an_import_that_a_disk_does_not_take_says_so(folder, model, tmp_path):
    compiled(model)(torch.ones(2, 12))
    carried = tmp_path / "carried"
    command("export", carried)
    command("clear")

    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    run = [sys.executable, "-m", "tandem.cache", "import", str(carried)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, preexec_fn=no_room)
    assert done.returncode == 1 and "cannot be stored" in done.stderr


def test_damaged_entries_are_compiled_again(folder, model):
    expected = step(model, compiled(model))
    files = list((folder / "tandem-cache").glob("*.function"))
    assert len(files) == 1
    whole = files[0].read_bytes()
    for damaged in (whole[:-9], whole[: len(whole) // 2], whole[:-5] + b"12345", b""):
        files[0].write_bytes(damaged)
        model.calls.zero_()
        assert equal(step(model, compiled(model)), expected)
        assert not is_from_cache()
    assert files[0].read_bytes() == whole  # same input, same bytes out


def test_host_nodes_and_dynamic_sizes_come_from_the_cache(folder):
    def function(x):
        return torch.linalg.qr(x).R.cos() + x.sum(0)

    results = []
    for _ in range(2):
        run = compiled(function, on_unsupported="eager")
        torch._dynamo.mark_dynamic(x := torch.eye(6) + 0.25, 0)
        results.append((run(x), run(torch.ones(9, 6) + torch.eye(9, 6))))
        for result, given in zip(results[-1], (x, torch.ones(9, 6) + torch.eye(9, 6))):
            torch.testing.assert_close(result, function(given))
    assert is_from_cache()
    assert tandem.report()["graphs"][-1]["fallbacks"]
    assert equal(*results)


def test_frozen_weights_are_no_part_of_an_entry(folder, model):
    model.eval()
    x = torch.ones(2, 12)
    for _ in range(2):
        with torch.no_grad():
            model.first.weight.add_(1)
            model.calls.zero_()
            result = compiled(model, freeze=True)(x)
            torch.testing.assert_close(result, model(x))
    assert is_from_cache()


def main():
    torch.manual_seed(0)
    model = Model()
    loss, calls, *gradients = step(model, compiled(model))
    print(
        json.dumps(
            {
                "cached": is_from_cache(),
                "step": [loss, calls, *(gradient.tolist() for gradient in gradients)],
                "milliseconds": tandem.report()["graphs"][-1]["milliseconds"],
            }
        )
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()
