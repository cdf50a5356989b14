"""Two builds of Tandem beside each other: the steps of the models of `make bench`, and what their
first training step takes of the compiler.

`old_and_new.py OLD NEW [--sweep] [--models ...] [--only ...]`: folders for PYTHONPATH, as
build/python of two worktrees. Each is a process for each step, and they take turns; a ratio is
OLD's time over NEW's of one turn, so above 1 NEW is faster. `--sweep`: the models of
sweep_models.py instead; BENCH_ISA=avx2 holds both builds to it, in a file of its own. `--write`
puts the table into docs/performance_amd.md.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import measure
import model_cases
import sweep_models
import table_page

PAGE = pathlib.Path(__file__).parents[1] / "docs/performance_amd.md"
MARKS = ("<!-- old and new -->", "<!-- end of old and new -->")
KINDS = ("infer", "frozen", "train", "cold")
TURN_MS = 150
COLD_TURNS = 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--models", nargs="*", default=[""], help="names, or parts of them")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--turns", type=int, default=25)
    suffix = f"_{measure.ISA}" if measure.ISA else ""
    parser.add_argument("--out", default=f"build/bench/old_and_new{suffix}.json")
    parser.add_argument("--write", action="store_true", help="nothing is measured: what --out has")
    return parser.parse_args()


# --- the process of a build


def work(name, kind):
    """What a step gives, then for each line of stdin the milliseconds of one of that many."""
    import model_worker
    import torch

    torch.set_num_threads(measure.THREADS)
    model, inputs = (sweep_models.made if name in sweep_models.CASES else model_cases.make)(name)
    steps = model_worker.KINDS[kind](model, inputs, torch.float32)
    step = steps["tandem, frozen" if kind == "frozen" else "tandem"]()
    print(json.dumps({"sum": step().double().abs().sum().item()}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"ms": measure.timed(step, int(line))}), flush=True)


class Build:
    def __init__(self, folder, directory, name, kind):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "work", name, kind],
            env=measure.environment(PYTHONPATH=folder, TANDEM_CACHE_DIR=directory),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.sum = json.loads(self.process.stdout.readline())["sum"]

    def turn(self, calls):
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# --- what is measured


def own_seconds(folder, name):
    """Of the compiler's stages in a first training step, with an empty cache."""
    done = subprocess.run(
        [sys.executable, "bench/model_worker.py", "cold", name],
        env=measure.environment(PYTHONPATH=folder, TANDEM_CACHE_DIR=""),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.strip().splitlines()[-1])["stages_ms"]
    return sum(ms for stage, ms in found.items() if stage not in ("capture", "first run")) / 1e3


def cold(folders, name):
    pairs = []
    for turn in range(COLD_TURNS):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        seconds = {which: own_seconds(folders[which], name) for which in order}
        pairs.append((1e3 * seconds[0], 1e3 * seconds[1]))
    return {"pairs": pairs}


def steps(folders, name, kind, turns):
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        builds = [Build(*both, name, kind) for both in zip(folders, (old, new), strict=True)]
        calls = max(1, int(TURN_MS / max(build.turn(1) for build in builds)))
        pairs = []
        for turn in range(turns):
            found = {}
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                time.sleep(measure.REST_S)
                found[which] = builds[which].turn(calls)
            pairs.append((found[0], found[1]))
        for build in builds:
            build.close()
    sums = [build.sum for build in builds]
    apart = abs(sums[0] - sums[1]) / (max(sums) or 1.0)  # an old build may be wrong
    return {"pairs": pairs, "sums_differ": apart}


def ratios(found):
    """Quartiles of turns: the clock of a shared host may change from one to the next."""
    return statistics.quantiles([old / new for old, new in found["pairs"]], n=4, method="inclusive")


def text(found):
    low, ratio, high = ratios(found)
    old, new = (statistics.median(times) for times in zip(*found["pairs"], strict=True))
    return f"{old:.1f} -> {new:.1f}: {ratio:.3f} ({low:.3f}–{high:.3f})"


# --- the page


def least(name, kind):
    """What the ratio must not be below; compiling may take 1.05 of before."""
    if kind == "cold":
        return 1 / 1.05
    return 1.08 if name.startswith("resnet50") and kind in ("frozen", "train") else 0.97


def row(name, parts):
    cells = []
    for kind in KINDS:
        if kind not in parts:
            cells.append("")
            continue
        is_missed = ratios(parts[kind])[1] < least(name, kind)
        cells.append(text(parts[kind]).replace("->", "→") + (" **(miss)**" if is_missed else ""))
    return f"| {name} | {' | '.join(cells)} |"


def table(results):
    heads = ("ms, old → new: ratio (quartiles)", "inference", "frozen", "training", "compiling")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [row(name, parts) for name, parts in results.items()]
    for kind in KINDS:
        every = [ratios(parts[kind])[1] for parts in results.values() if kind in parts]
        if every:
            lines += ["", f"Geomean, {kind}: {statistics.geometric_mean(every):.3f}."]
    return lines


def measured(options, results):
    measure.pin()
    folders = (options.old, options.new)
    cases = sweep_models.CASES if options.sweep else model_cases.CASES
    names = [n for n in cases if any(part in n for part in options.models)]
    for name in names:
        for kind in options.only:
            is_cold = kind == "cold"
            found = cold(folders, name) if is_cold else steps(folders, name, kind, options.turns)
            results.setdefault(name, {})[kind] = found
            measure.progress(f"{name}, {kind}: {text(found)} {found.get('sums_differ', '')}")
            measure.save(options.out, results)


def main():
    if sys.argv[1] == "work":
        return work(*sys.argv[2:4])
    options = arguments()
    results = measure.load(options.out)[0] if pathlib.Path(options.out).exists() else {}
    if options.write:
        return table_page.write_between(PAGE, MARKS, table(results))
    return measured(options, results)


if __name__ == "__main__":
    sys.exit(main())
