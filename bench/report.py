"""Puts the results of build/bench together: build/bench.json, and a page with ratios, targets and
misses.

`report.py PAGE`: where the page goes. What was not measured is left out and said so.
"""

import datetime
import json
import os
import subprocess
import sys

import measure
import verdicts
from model_report import models

FOLDER = "build/bench"
# Of issue 3.
ROOF_SHARE, COLD_S, STEP_RATIO, STEP_FLOOR, CALL_NS = 0.85, 0.7, 1.5, 1.2, 1000
TITLES = {"dropout_off": "Training step, dropout off", "dropout_on": "Training step, dropout 0.1"}


def load(name):
    try:
        with open(f"{FOLDER}/{name}.json") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        measure.warn(f"no results of {name}: {error}")
        return None


def machine():
    lines = subprocess.run(
        ["lscpu"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    flags = facts.get("Flags", "").split()
    return {
        "model": facts.get("Model name", "unknown"),
        "processors": os.cpu_count(),
        "l2": facts.get("L2 cache"),
        "l3": facts.get("L3 cache"),
        "avx512": "avx512f" in flags,
        "load": os.getloadavg()[0],
    }


def versions():
    from importlib import metadata

    found = {}
    for package in ("torch", "jax", "transformers", "openvino", "onnxruntime"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


class Page:
    """Lines of Markdown, and the targets that were met or missed."""

    def __init__(self):
        self.lines = []
        self.targets = []

    def table(self, *header):
        self.lines += [
            "",
            "| " + " | ".join(header) + " |",
            "|---" + "|---:" * (len(header) - 1) + "|",
        ]

    def row(self, *cells):
        self.lines.append("| " + " | ".join(cells) + " |")

    def target(self, what, value, met):
        """`value` as text, marked when the target is missed."""
        self.targets.append({"what": what, "value": value, "met": bool(met)})
        return value if met else f"**{value}** (miss)"


def kernel_target(page, result):
    """The cell that carries the target: of the roof at 64 MiB, against Inductor below."""
    where = f"{result['kernel']}, {result['mib']} MiB"
    roof, ratio = f"{result['of_roof']:.2f}", (
        f"{result['x_inductor']:.2f}" if "x_inductor" in result else "-"
    )
    if result["mib"] >= 64:
        roof = page.target(
            f"{where}: of the copy roof >= {ROOF_SHARE}", roof, result["of_roof"] >= ROOF_SHARE
        )
    elif "x_inductor" in result:
        ratio = page.target(f"{where}: not slower than Inductor", ratio, result["x_inductor"] >= 1)
    return roof, ratio


def kernels(page, results):
    page.lines += [
        "",
        "## Kernels",
        "",
        "f32, milliseconds a call. Copy: the largest input copied to an existing tensor, scaled to "
        "the bytes that the kernel reads and writes at least; of roof: that over Tandem's time. "
        "Against Inductor: the faster of the compiled function and its generated code alone.",
    ]
    page.table(
        "kernel",
        "MiB",
        "copy",
        "eager",
        "Inductor",
        "Tandem",
        "of roof",
        "Inductor of roof",
        "x eager",
        "x Inductor",
    )
    for result in results:
        if "error" in result:
            page.target(
                f"{result['kernel']}, {result.get('mib', 'all')} MiB", result["error"][:200], False
            )
            page.row(
                result["kernel"],
                str(result.get("mib", "all")),
                *["-"] * 7,
                f"**{result['error'][:200]}** (miss)",
            )
            continue
        roof, ratio = kernel_target(page, result)
        peers = [result[name] for name in ("inductor", "inductor_kernel") if name in result]
        page.row(
            result["kernel"],
            str(result["mib"]),
            f"{result['roof']:.3f}",
            f"{result['eager']:.3f}",
            f"{min(peers):.3f}" if peers else "-",
            f"{result['tandem']:.3f}",
            roof,
            f"{result['inductor_of_roof']:.2f}" if peers else "-",
            f"{result['x_eager']:.2f}",
            ratio,
        )


def step_ratio(page, title, name, result):
    ratio = result.get("x_tandem")
    if not ratio:
        return "-"
    text = f"{ratio:.2f}x"
    if name not in ("eager", "inductor"):
        return text
    floor = "" if ratio >= STEP_FLOOR else f", below {STEP_FLOOR}"
    return page.target(f"{title}: >= {STEP_RATIO}x {name}{floor}", text, ratio >= STEP_RATIO)


def training(page, results):
    for key, contenders in results.items():
        title = TITLES[key]
        page.lines += [
            "",
            f"## {title}",
            "",
            "The demo's GPT (4 layers of 128, batch 16 x 128, AdamW, clipping). Cold: first "
            "step minus second, caches empty; of Tandem compiling included.",
        ]
        page.table("", "ms a step", "Tandem is faster by", "cold s", "peak MiB", "losses differ by")
        for name, result in contenders.items():
            if "error" in result:
                page.row(
                    name, f"left out: {result['error'].splitlines()[-1][:150]}", "", "", "", ""
                )
                continue
            cold = f"{result['cold_s']:.2f}"
            if name == "tandem":
                cold = page.target(
                    f"{title}: cold compile <= {COLD_S} s", cold, result["cold_s"] <= COLD_S
                )
            difference = f"{result['loss_difference']:.1g}" if "loss_difference" in result else ""
            page.row(
                name,
                f"{result['median_ms']:.1f}",
                "" if name == "tandem" else step_ratio(page, title, name, result),
                cold,
                str(result["peak_MiB"]),
                difference,
            )


def overhead(page, results):
    page.lines += ["", "## Call overhead", "", "Three ops on 16 elements, one kernel, from C++."]
    page.table("", "ns a call")
    for entry in results["benchmarks"]:
        if entry.get("aggregate_name") == "median":
            name = entry["run_name"].split("/")[0]
            nanoseconds = entry["real_time"]
            page.row(
                name,
                page.target(
                    f"{name}: <= {CALL_NS} ns", f"{nanoseconds:.0f}", nanoseconds <= CALL_NS
                ),
            )


def head(page, facts, packages):
    page.lines += [
        "# Performance",
        "",
        "Written by `make bench`. All contenders of a table took turns in one run; numbers are "
        "medians. Ratios above 1 mean that Tandem is faster; misses of a target are marked.",
        "",
        f"{datetime.date.today().isoformat()}, {facts['model']}, {facts['processors']} processors "
        f"({measure.THREADS} threads used), L2 {facts['l2']}, L3 {facts['l3']}, "
        f"{'AVX-512' if facts['avx512'] else 'AVX2'}; "
        + ", ".join(f"{name} {version or 'not installed'}" for name, version in packages.items())
        + f"; load average at the end {facts['load']:.1f}.",
    ]


def summary(page):
    missed = [target for target in page.targets if not target["met"]]
    page.lines += [
        "",
        "## Targets",
        "",
        f"{len(page.targets) - len(missed)} of {len(page.targets)} met.",
    ]
    page.lines += ["Missed:", ""] if missed else []
    page.lines += [f"- {target['what']}: {target['value']}" for target in missed]
    return missed


def main():
    path = sys.argv[1]
    results = {name: load(name) for name in ("kernels", "train_gpt", "overhead", "models")}
    page, facts, packages = Page(), machine(), versions()
    head(page, facts, packages)
    sections = {
        "models": models,
        "train_gpt": training,
        "kernels": kernels,
        "overhead": overhead,
    }
    for name, section in sections.items():
        if results[name] is None:
            page.lines += ["", f"Not measured: {name}."]
            continue
        section(page, results[name])
    missed = summary(page)
    with open("build/bench.json", "w") as file:
        json.dump(
            {
                "date": datetime.datetime.now().isoformat(timespec="seconds"),
                "machine": facts,
                "versions": packages,
                "targets": page.targets,
            }
            | results,
            file,
            indent=1,
        )
    with open(path, "w") as file:
        file.write("\n".join(page.lines) + "\n")
    measure.progress(
        f"{len(page.targets) - len(missed)} of {len(page.targets)} targets met; "
        f"build/bench.json, {path}"
    )
    for target in missed:
        measure.progress(f"  missed: {target['what']}: {target['value']}")
    return bool(verdicts.wrong(results["models"] or {}))


if __name__ == "__main__":
    sys.exit(main())
