"""The page about a training step, in a real browser: what it shows, what the pointer finds, and
that names are never markup."""

import re
import subprocess

import pytest
import torch

import tandem
from browser import opened
from compiled import compile_with
from test_command import COMMAND
from test_memory_budget import transformer

HOSTILE = '</script><b id="found">&"\'<img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of two steps of a transformer at half a budget, whose measured numbers are those of the last
    one."""
    folder = tmp_path_factory.mktemp("step")
    module = transformer(dropout=0.1)
    function = compile_with(lambda x: module(x), memory_budget=0.3, report=True)
    x = torch.randn(8, 64, 32)
    for _ in range(2):
        module.zero_grad()
        y = function(x)
        y.square().mean().backward()
    report = tandem.report()
    report.save(folder / "step.html")
    with opened(folder / "step.html", folder / "profile") as page:
        page.report = report["graphs"][0]
        page.path = folder / "step.html"
        yield page


def number(text):
    """Bytes of "1.50 MiB"."""
    amount, unit = text.split()
    return float(amount) * 1024 ** ("B", "KiB", "MiB", "GiB").index(unit)


def test_it_fetches_nothing_and_no_script_fails(page):
    assert page.requests == [page.path.resolve().as_uri()]
    assert page.errors() == []
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page.path.read_text())


def test_tables_say_what_the_text_says(page):
    cut = page.report["cut"].splitlines()
    rows = page.value(
        "[...document.querySelectorAll('table.saved tr')].slice(1).map("
        "r => [...r.cells].map(c => c.textContent))"
    )
    assert sorted(row[0] for row in rows) == sorted(
        re.search(r"(%\S+?)(:| =)", line).group(1) for line in cut if line.startswith("  saved")
    )
    again = page.value(
        "[...document.querySelectorAll('table.again tr')].slice(1).map("
        "r => [...r.cells].map(c => c.textContent))"
    )
    told = {m.group(2): m.groups() for m in re.finditer(
        r"again +([\d.]+) us +(%\S+) = (.*), (\d+) bytes: (.*)", page.report["cut"])}
    assert len(again) == len(told) > 10
    for name, what, microseconds, _, size, why in again:
        time, _, node, in_bytes, reason = told[name]
        assert (what, microseconds, why) == (node, time, reason)
        assert number(size) == pytest.approx(int(in_bytes), rel=0.01)
    # What takes most comes first.
    times = [float(row[2]) for row in again]
    assert times == sorted(times, reverse=True) and times[0] > 0


def peak(page, name):
    return number(
        page.value(f"document.querySelector('.legend .{name}').textContent").split(": ")[1]
        .replace(" at most", "")
    )


def test_memory_as_planned_as_measured_and_without_the_partition(page):
    planned, measured, all_saved = (peak(page, name) for name in ("planned", "measured", "all"))
    assert planned == pytest.approx(page.report["memory"]["step"], rel=0.01)
    assert measured == pytest.approx(planned, rel=0.05)
    assert all_saved > 1.2 * planned
    for name in ("planned", "measured", "all"):
        points = page.value(f"document.querySelector('polyline.{name}').points.numberOfItems")
        assert points > 20


def test_hover_shows_what_is_live(page):
    tip = "document.querySelector('.tip')"
    assert page.value(f"{tip}.hidden")
    page.hover("svg.memory", 0.15)
    assert not page.value(f"{tip}.hidden")
    forward = page.value(f"{tip}.textContent").splitlines()
    page.hover("svg.memory", 0.6)
    backward = page.value(f"{tip}.textContent").splitlines()
    assert "(forward)" in forward[0] and "(backward)" in backward[0]
    for lines in (forward, backward):
        told = dict(reversed(line.strip().split("  ", 1)) for line in lines[1:])
        assert {"planned", "measured", "if all were saved", "arguments"} <= set(told)
        # Blocks that are live, those of the arena once, are what the curve says.
        blocks = [
            number(size) for label, size in told.items()
            if re.match("forward:|backward:|[0-9]+ more", label) and "in the arena" not in label
        ]
        assert sum(blocks) <= 1.02 * (number(told["planned"]) - number(told["arguments"]))
    # A saved value is live in backward under the name that the table gives it.
    saved = {line.split()[3].rstrip(":") for line in page.report["cut"].splitlines()
             if line.startswith("  saved") and " = " in line}
    named = {m.group(1) for line in backward for m in re.finditer(r"\((%\w+)\)", line)}
    assert named and named <= saved
    page.hover("h1")
    assert page.value(f"{tip}.hidden")


def test_the_picture_joins_what_it_draws(page):
    saved, again = (
        sum(line.startswith(f"  {word}") for line in page.report["cut"].splitlines())
        for word in ("saved", "again")
    )
    count = "document.querySelectorAll('svg.cut {}').length"
    assert page.value(count.format(".box.kept")) == saved
    assert page.value(count.format(".box.remade")) == again
    assert page.value(count.format(".box.reader")) > 5
    assert page.value(count.format(".edge.on")) == 0
    page.hover("svg.cut .box.kept")
    assert page.value(count.format(".edge.on")) >= 2  # from forward, and to a reader
    page.hover("h1")
    assert page.value(count.format(".edge.on")) == 0
    # No two boxes cover each other.
    boxes = page.value(
        "[...document.querySelectorAll('svg.cut rect')].map(r => ['x', 'y', 'width', 'height'].map("
        "name => +r.getAttribute(name)))"
    )
    for i, (x, y, width, height) in enumerate(boxes):
        for left, top, _, _ in boxes[:i]:
            assert left != x or abs(top - y) >= height


def test_search_leaves_what_has_the_name(page):
    shown = (
        "[...document.querySelectorAll('td.name')].filter(c => !c.parentNode.hidden).map("
        "c => c.parentNode.textContent)"
    )
    before = page.value(shown)
    page.value(
        "(() => { const f = document.querySelector('.find'); f.value = 'aten.gelu';"
        "f.dispatchEvent(new Event('input')); })()"
    )
    found = page.value(shown)
    assert 0 < len(found) < len(before) and all("aten.gelu" in row for row in found)
    page.value(
        "(() => { const f = document.querySelector('.find'); f.value = '';"
        "f.dispatchEvent(new Event('input')); })()"
    )
    assert page.value(shown) == before


def command(tmp_path, text, *arguments):
    source, page = tmp_path / "graph.tir", tmp_path / "step.html"
    source.write_text(text)
    done = subprocess.run(
        [COMMAND, "partition", "--html", page, *arguments, source], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return page


def test_the_command_writes_it_and_names_are_no_markup(tmp_path):
    place = HOSTILE.replace('"', "`")  # a place of the text form holds no quotes
    path = command(
        tmp_path,
        'graph @g(%x: f32[64, 32] {input grad}, %w: f32[32, 256] {param "w" grad}) {\n'
        f'  %0 = aten.mm(%x, %w) loc("{place}")\n'
        f'  %1 = aten.sin(%0) loc("{place}")\n'
        "  return %1\n}\n",
        "--budget", "min_memory",
    )
    assert "<img" not in path.read_text()
    with opened(path, tmp_path / "profile") as page:
        assert page.errors() == [] and page.requests == [path.resolve().as_uri()]
        assert page.value("document.getElementById('found')") is None
        assert place in page.value("document.querySelector('table.again').textContent")
        page.hover("svg.memory", 0.3)
        assert place in page.value("document.querySelector('.tip').textContent")


def test_many_values_are_drawn_as_those_that_take_most(tmp_path):
    lines = ["  %0 = aten.mm(%x, %w)"]
    for i in range(400):
        lines.append(f"  %{2 * i + 1} = aten.sin(%{2 * i})")
        lines.append(f"  %{2 * i + 2} = aten.mm(%{2 * i + 1}, %w)")
    text = (
        'graph @deep(%x: f32[8, 8] {input grad}, %w: f32[8, 8] {param "w" grad}) {\n'
        + "\n".join(lines) + "\n  return %800\n}\n"
    )
    path = command(tmp_path, text)
    with opened(path, tmp_path / "profile") as page:
        assert page.errors() == []
        drawn = page.value("document.querySelectorAll('svg.cut .box.kept').length")
        told = page.value("document.querySelectorAll('table.saved tr').length") - 1
        assert drawn == 250 < told
        assert "Not drawn:" in page.value("document.body.textContent")


def test_sizes_that_are_not_known(tmp_path):
    path = command(
        tmp_path,
        "graph @g(%x: f32[s0, 32] {input grad}) where s0 in [2, 64] {\n"
        "  %0 = aten.sin(%x)\n  return %0\n}\n",
    )
    with opened(path, tmp_path / "profile") as page:
        assert page.errors() == []
        assert "known where all sizes are" in page.value("document.body.textContent")


def test_nothing_to_tell(tmp_path):
    compile_with(torch.sin)(torch.randn(3))
    tandem.report().save(tmp_path / "step.html")
    assert "No graph with a backward" in (tmp_path / "step.html").read_text()


def test_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "graph.tir").write_text("graph @g(%x: f32[4] {input grad}) {\n  return %x\n}\n")
    done = subprocess.run(
        [COMMAND, "partition", "--html", tmp_path / "no" / "step.html", tmp_path / "graph.tir"],
        capture_output=True, text=True,
    )
    assert done.returncode == 1 and "cannot write" in done.stderr
