"""`make replay`: the text of all kernels and decisions of the models, before a change and after.

    python test/replay/replay.py GRAPHS BASE NOW [--bless] [--tandem build/bin/tandem]

GRAPHS: from capture.py. Schedules each with AVX2 and as the machine is, into files of the folder
NOW, compares them with BASE and writes NOW/changes.diff. --bless: what is now becomes BASE. Ends
with 1 where something differs.
"""

import argparse
import collections
import concurrent.futures
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ISAS = ("avx2", "")  # the machine's own last
SECONDS = 120


def arguments():
    parser = argparse.ArgumentParser()
    for folder in ("graphs", "base", "now"):
        parser.add_argument(folder, type=pathlib.Path)
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("--tandem", default="build/bin/tandem")
    return parser.parse_args()


def schedule(tandem, graph, isa, out):
    environment = dict(os.environ) | ({"TANDEM_ISA": isa} if isa else {})
    command = [tandem, "schedule", "--core", str(graph)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    text = done.stdout if done.returncode == 0 else f"ended with {done.returncode}\n{done.stderr}"
    (out / f"{graph.stem}.{isa or 'native'}.txt").write_text(text)


def schedule_all(tandem, graphs, out):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(schedule, tandem, graph, isa, out) for graph in graphs for isa in ISAS]
        for job in jobs:
            job.result()


def kernels_of(text):
    return re.findall(r"^kernel .*?^}", text, re.MULTILINE | re.DOTALL)


def compare(base, now):
    """Counts, and a diff of what differs."""
    counts, lines = collections.Counter(), []
    for file in sorted(now.glob("*.txt")):
        counts["schedules"] += 1
        text = file.read_text()
        counts["kernels"] += len(kernels_of(text))
        counts["that failed"] += text.startswith("ended with")
        before = base / file.name
        old = before.read_text() if before.exists() else ""
        if text == old:
            continue
        counts["schedules changed"] += 1
        counts["kernels changed"] += len(set(kernels_of(text)) - set(kernels_of(old)))
        lines += difflib.unified_diff(old.splitlines(), text.splitlines(), file.name, "now", n=3)
    return counts, lines


def main():
    asked = arguments()
    base, now = asked.base, asked.now
    schedule_all(asked.tandem, sorted(asked.graphs.glob("*.tir")), now)
    if asked.bless or not base.exists():
        shutil.rmtree(base, ignore_errors=True)
        shutil.copytree(now, base)
    counts, lines = compare(base, now)
    (now / "changes.diff").write_text("\n".join(lines))
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    if lines:
        print(f"{now}/changes.diff has {len(lines)} lines")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
