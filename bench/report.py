"""Puts the results of build/bench together: build/bench.json, and a page with ratios, targets and
misses.

`report.py PAGE`: where the page goes. What was not measured is left out and said so.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys

import measure
import verdicts
from model_report import held_models, models

FOLDER = "build/bench"
# Of issue 3.
ROOF_SHARE, COLD_S, STEP_RATIO, STEP_FLOOR, CALL_NS = 0.85, 0.7, 1.5, 1.2, 1000
TITLES = {"dropout_off": "Training step, dropout off", "dropout_on": "Training step, dropout 0.1"}


def load(name):
    """(results, their run), or none and why not."""
    try:
        return measure.load(f"{FOLDER}/{name}.json")
    except (OSError, ValueError, KeyError) as error:
        measure.warn(f"no results of {name}: {error}")
        return None, None


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
            f"{where}: of the roof >= {ROOF_SHARE}", roof, result["of_roof"] >= ROOF_SHARE
        )
    elif "x_inductor" in result:
        ratio = page.target(f"{where}: not slower than Inductor", ratio, result["x_inductor"] >= 1)
    return roof, ratio


def kernels(page, results):
    page.lines += [
        "",
        "## Kernels",
        "",
        "f32, milliseconds a call, medians; of Tandem with quartiles. Roof: the best measured "
        "stream that reads and writes what the kernel has to; of roof: that over Tandem's time. "
        "Against Inductor: the faster of the compiled function and its generated code alone.",
    ]
    page.table(
        "kernel",
        "MiB",
        "roof",
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
        low, high = result["quartiles"]["tandem"]
        peers = [result[name] for name in ("inductor", "inductor_kernel") if name in result]
        page.row(
            result["kernel"],
            str(result["mib"]),
            f"{result['roof']:.3f}",
            f"{result['eager']:.3f}",
            f"{min(peers):.3f}" if peers else "-",
            f"{result['tandem']:.3f} ({low:.3f}–{high:.3f})",
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
                "{:.1f} ({:.1f}–{:.1f})".format(result["median_ms"], *result["quartiles"]),
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


AMD = (
    "torch's f32 products are MKL's, which takes its AVX2 path on processors of AMD, with AVX-512 "
    "too; Tandem's are oneDNN's. How much of a ratio is due to that, the roofs show: the best "
    "product stands beside torch's best."
)


def isa(facts):
    return "AVX-512" if facts["avx512"] else "AVX2"


def head(page, facts, packages, run):
    page.lines += [
        "# Performance",
        "",
        "Written by `make bench`. All contenders of a table took turns in one run; numbers are "
        "medians. Ratios above 1 mean that Tandem is faster; misses of a target are marked.",
        "",
        f"{run}; {facts['model']}, {facts['processors']} processors "
        f"({measure.THREADS} threads used), L2 {facts['l2']}, L3 {facts['l3']}, {isa(facts)}; "
        + ", ".join(f"{name} {version or 'not installed'}" for name, version in packages.items())
        + f"; load average at the end {facts['load']:.1f}.",
    ]
    if "AMD" in facts["model"]:
        page.lines += ["", AMD]


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


def page_of(loaded):
    """A page is one run, the models'; a section of another one says so."""
    return next((run for _, run in loaded.values() if run), "nothing measured")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page")
    path = parser.parse_args().page
    page, facts, packages = Page(), machine(), versions()
    sections = {
        "models": lambda found, run: models(page, found, run, isa(facts)),
        "models_avx2": lambda found, run: held_models(page, found, run),
        "train_gpt": lambda found, _: training(page, found),
        "kernels": lambda found, _: kernels(page, found),
        "overhead": lambda found, _: overhead(page, found),
    }
    loaded = {name: load(name) for name in sections}
    head(page, facts, packages, page_of(loaded))
    for name, (results, run) in loaded.items():
        if results is None:
            page.lines += ["", f"Not measured: {name}."]
            continue
        sections[name](results, run)
        if run != page_of(loaded):
            page.lines += ["", f"This section is of {run}."]
    results = {name: found for name, (found, _) in loaded.items()}
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
    return any(verdicts.wrong(results[name] or {}) for name in ("models", "models_avx2"))


if __name__ == "__main__":
    sys.exit(main())
