"""`make models`: real models, trained and inferred through torch.compile, against eager.

    python test/models/sweep.py [name ...]              prints, a line a case
    python test/models/sweep.py --json F --page F       all of them, and writes the table
    python test/models/sweep.py --full [name ...]       the benchmark's, at its sizes (full.py)
    python test/models/sweep.py --types [name ...]      all types of transformers, tiny (hub.py)

A model runs in a process of its own, which answers a case a line. When it dies or takes too long,
that is the result of the case it was at; another process runs the rest.
"""

import argparse
import concurrent.futures
import importlib
import json
import os
import pathlib
import selectors
import subprocess
import sys
import tempfile
import time

from judge import RUNS
from quiet import MOST_BUSY, busy_processors

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 240  # of a case; twice of one that runs Inductor too
MARK = "@row "
SMALL, FULL, TYPES = "small", "full", "types"  # models


def all_entries(kind=SMALL):
    if kind == SMALL:
        import own
        import text
        import vision

        return {entry.name: entry for entry in text.ENTRIES + vision.ENTRIES + own.ENTRIES}
    module = importlib.import_module({FULL: "full", TYPES: "hub"}[kind])
    return {entry.name: entry for entry in module.ENTRIES}


# --- the process of a model


def serve(name, cases, kind):
    """Prints a row for each case."""
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    entry = all_entries(kind)[name]
    from cases import run_case

    if kind == TYPES:
        from hub import run_case
    if kind == FULL:
        import functools

        import full

        torch.set_num_threads(2)
        run_case = functools.partial(run_case, cases=full.CASES)

    torch.compile(torch.neg, backend="eager")(torch.ones(3))  # Dynamo's own start is not measured
    for case in cases:
        if case.endswith("times"):
            from timing import run_times as run
        else:
            run = run_case
        print(MARK + json.dumps(run(entry, case)), flush=True)


# --- the sweep


class Process:
    """One that serves cases of a model."""

    def __init__(self, name, cases, threads, cache, kind):
        self._errors = tempfile.TemporaryFile("w+")
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TORCHINDUCTOR_CACHE_DIR=cache)
        environment["TOKENIZERS_PARALLELISM"] = "false"
        chosen = [] if kind == SMALL else [f"--{kind}"]
        command = [sys.executable, __file__, *chosen, "--serve", name, *cases]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment
        )

    def row(self, limit):
        """The next row; (None, why) where there is none."""
        stop = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while time.monotonic() < stop:
                if not selector.select(stop - time.monotonic()):
                    break
                line = self._process.stdout.readline()
                if line.startswith(MARK):
                    return json.loads(line[len(MARK) :]), ""
                if not line:
                    return None, self._last_words()
        return None, f"more than {limit} s"

    def _last_words(self):
        code = self._process.wait()
        self._errors.seek(0)
        return f"ended with {code}: {self._errors.read()[-400:].strip()}"

    def stop(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def rows_of(name, cases, threads, seen, kind=SMALL):
    """Of one model, whatever happens to its processes."""
    rows, left = [], list(cases)
    while left:
        with tempfile.TemporaryDirectory() as cache:
            process = Process(name, left, threads, cache, kind)
            while left:
                limit = SECONDS * (2 if left[0].endswith("times") else 8 if kind == FULL else 1)
                if kind == FULL:
                    print(f"{name}: {left[0]} ...", flush=True)
                row, why = process.row(limit)
                rows.append(row or crash(name, left[0], why))
                seen(rows[-1])
                left.pop(0)
                if row is None:
                    break
            process.stop()
    return rows


def crash(name, case, reason):
    return dict(model=name, case=case, status="crash", reason=" ".join(reason.split())[-500:])


def sweep(todo, jobs, threads, seen, kind=SMALL):
    """`todo`: pairs of a model and its cases. Rows in that order."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(rows_of, *each, threads, seen, kind) for each in todo]
        return [row for future in futures for row in future.result()]


def line_of(row):
    words = [f"{row['model']:15} {row['case']:14} {row['status']:12}"]
    if "ratio" in row:
        words.append(f"{row['ratio']:8.2g} of what is allowed, {row['graphs']} graphs")
    if row.get("eager_runs", 0) > RUNS:
        words.append(f"{row['eager_runs']} runs of eager")
    if "seconds" in row:
        words.append(f"{row['seconds']:.1f} s")
    words += [f"{key} {row[key]}" for key in row if key.endswith(("compile_s", "step_ms"))]
    return "  ".join([*words, row["reason"]])


def times_of(names, seen):
    """Beside Inductor, of the models during whose turn the machine does nothing else."""
    rows = []
    for name in names:
        busy = busy_processors()
        if busy > MOST_BUSY:
            print(f"{name}: no times, others use {busy:.1f} processors", flush=True)
            continue
        rows += sweep([(name, [case]) for case in ("infer times", "train times")], 1, 2, seen)
    return rows


# --- the command


def parsed(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="models; all of them")
    parser.add_argument("--case", action="append", help="these cases only")
    parser.add_argument("--full", action="store_true", help="full-size models, one at a time")
    parser.add_argument("--types", action="store_true", help="every type of transformers, tiny")
    parser.add_argument("--inductor", action="store_true", help="and times beside Inductor's")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="where the rows are written")
    parser.add_argument("--page", help="where the table is written")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def kind_of(chosen):
    return FULL if chosen.full else TYPES if chosen.types else SMALL


def chosen_cases(entry, chosen):
    if chosen.full:
        from full import CASES as all_cases
    elif chosen.types:
        from hub import CASES as all_cases
    else:
        from cases import cases_of

        all_cases = cases_of(entry)
    return [case for case in all_cases if not chosen.case or case in chosen.case]


def main(arguments):
    chosen = parsed(arguments)
    if chosen.serve:
        serve(chosen.serve[0], chosen.serve[1:], kind_of(chosen))
        return 0
    entries = all_entries(kind_of(chosen))
    names = chosen.names or list(entries)

    def seen(row):
        print(line_of(row), flush=True)

    todo = [(name, chosen_cases(entries[name], chosen)) for name in names]
    jobs, threads = (1, 2) if chosen.full else (chosen.jobs, 1)
    rows = sweep(todo, jobs, threads, seen, kind_of(chosen))
    if chosen.inductor:
        rows += times_of(names, seen)
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(rows, indent=0))
    if chosen.page:
        import table

        pathlib.Path(chosen.page).write_text(table.page(rows))
    bad = [row for row in rows if row["status"] not in ("equal", "measured", "left out")]
    print("\n".join(line_of(row) for row in bad))
    left_out = sum(row["status"] == "left out" for row in rows)
    print(
        f"{len(rows)} cases of {len(names)} models, {left_out} left out, "
        f"{len(bad)} not as they must be"
    )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
