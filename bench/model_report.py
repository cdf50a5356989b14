"""The page's section on full-size models, from build/bench/models.json."""

import dataclasses
import math
import statistics

import verdicts

# Of issues 4 and 12. GEOMEAN: of Inductor, by what the processor has.
STEP_RATIO, SERVING, OWN_S, WHOLE_S, WARM_S = 1.0, 1.0, 0.5, 3.5, 0.05
GEOMEAN = {"AVX-512": 2.0, "AVX2": 1.35}
BF16_GEOMEAN = 1.3
FREEZING = [
    "inductor, freezing",
    "inductor, freezing, max_autotune",
    "inductor, freezing, cpp_wrapper",
]
SERVERS = ["onnx runtime", "openvino"]
AHEAD = "tandem, ahead"


@dataclasses.dataclass
class Table:
    """Contenders on equal terms, and what Tandem is compared with."""

    key: str
    title: str
    own: str
    contenders: list  # the peers that the table shows
    # A column's title -> (its peers, of which the fastest counts, the least ratio, Tandem's name in
    # that comparison; the table's where a row has none such).
    against: dict
    geomean: str  # the column whose mean is a target, of `least`
    least: float


def tables(isa):
    least = GEOMEAN[isa]
    torch = ["eager", "inductor"]
    unfrozen = {
        "x eager": (["eager"], STEP_RATIO, "tandem"),
        "x Inductor": (["inductor"], STEP_RATIO, "tandem"),
    }
    best = "x Inductor's best"
    constant = {best: (FREEZING, STEP_RATIO, "tandem, frozen")}
    served = constant | {"x best runtime": (SERVERS, SERVING, AHEAD)}
    return [
        Table("infer", "Inference", "tandem", torch, unfrozen, "x Inductor", least),
        Table("frozen", "Inference, weights frozen", "tandem, frozen",
              [*FREEZING, *SERVERS, AHEAD], served, best, least),
        Table("train", "Training step", "tandem", torch, unfrozen, "x Inductor", least),
        Table("infer bf16", "Inference, bf16", "tandem", torch, unfrozen, "x Inductor",
              BF16_GEOMEAN),
        Table("frozen bf16", "Inference, bf16, weights frozen", "tandem, frozen", FREEZING,
              constant, best, BF16_GEOMEAN),
        Table("train bf16", "Training step, bf16", "tandem", torch, unfrozen, "x Inductor",
              BF16_GEOMEAN),
        *(
            Table(f"{kind} dynamic{dtype}", f"{title}{comma}{dtype}, sizes unknown", "tandem",
                  torch, unfrozen, "x Inductor", STEP_RATIO)
            for dtype, comma in (("", ""), (" bf16", ","))
            for kind, title in (("infer", "Inference"), ("train", "Training step"))
        ),
    ]  # fmt: skip


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def roof_ms(roof):
    """Neither products nor the weights' way from memory can be faster than the machine's best."""
    return max(roof["operations"] / roof["gflops"], roof["bytes"] / roof["gb_per_s"]) / 1e6


def cell(found, name):
    if name not in found["ms"]:
        return "-"
    low, high = found["quartiles"][name]
    return f"{found['ms'][name]:.1f} ({low:.1f}–{high:.1f})"


def ratio(found, own, peers):
    times = [found["ms"][name] for name in peers if name in found["ms"]]
    return min(times) / found["ms"][own] if times and own in found["ms"] else None


def label(model, found, run):
    """A row of an older run says so."""
    return model if found.get("run") == run else f"{model} ({found.get('run', 'no date')})"


def row(page, table, model, found, run):
    """The ratios of the row, by column."""
    ratios = {
        title: ratio(found, own if own in found["ms"] else table.own, peers)
        for title, (peers, _, own) in table.against.items()
    }
    cells = []
    for title, (_, least, _) in table.against.items():
        value = ratios[title]
        what = f"{model}, {table.title}: >= {least:g} {title}"
        cells.append(page.target(what, f"{value:.2f}", value >= least) if value else "-")
    roof = roof_ms(found["roof"])
    of_roof = f"{roof / found['ms'][table.own]:.2f}" if table.own in found["ms"] else "-"
    times = [cell(found, name) for name in [*table.contenders, table.own]]
    page.row(label(model, found, run), f"{roof:.1f}", *times, *cells, of_roof)
    return ratios


def steps(page, results, table, run):
    measured = {m: r[table.key] for m, r in results.items() if table.key in r}
    if not measured:
        return
    page.lines += ["", f"### {table.title}", ""]
    page.table("ms", "roof", *table.contenders, table.own, *table.against, "of roof")
    ratios = []
    for model, found in measured.items():
        if "error" in found:
            columns = len(table.contenders) + len(table.against) + 3
            page.row(label(model, found, run), found["error"][:120], *[""] * (columns - 1))
            continue
        ratios.append(row(page, table, model, found, run))
    page.lines.append("")
    for title in table.against:
        values = [r[title] for r in ratios if r[title]]
        mean, text = geomean(values), f"{geomean(values):.2f}"
        if title == table.geomean:
            what = f"{table.title}: geomean of {title} >= {table.least:g}"
            text = page.target(what, text, mean >= table.least)
        page.lines.append(f"Geomean, {title}: {text}.")


def roofs(page, results):
    """What the shares are shares of."""
    page.lines += ["", "### The machine's roof", ""]
    page.lines.append(
        "Best measured product: of torch's (MKL or oneDNN) and of packed ones of oneDNN, three "
        "shapes, in turn with the contenders; best of torch's beside it. Stream: reads of 256 MiB. "
        "Least and most over the models. The roof of a step is the larger of its products' and "
        "convolutions' operations at the best product, and its weights' bytes at the stream; of a "
        "training step three times those."
    )
    page.table("", "best product, GFLOP/s", "torch's best product, GFLOP/s", "stream, GB/s")
    for title, is_bf16 in (("f32", False), ("bf16", True)):
        found = [
            part["roof"]
            for parts in results.values()
            for key, part in parts.items()
            if "roof" in part and key.endswith("bf16") == is_bf16
        ]
        if found:
            page.row(title, *(span(found, key) for key in ("gflops", "torch_gflops", "gb_per_s")))


def span(found, key):
    values = [roof[key] for roof in found]
    return f"{min(values):.0f}–{max(values):.0f}"


def is_measured(page, results, part):
    """A part that was not run is said so, and has no empty table."""
    found = any(key.startswith(part) for result in results.values() for key in result)
    if not found:
        page.lines += ["", f"Not measured: {part}."]
    return found


def cold(page, results):
    if not is_measured(page, results, "cold"):
        return
    page.lines += [
        "",
        "### Cold start of a training step",
        "",
        "Own: all stages after the capture by torch, and what the first run of the compiled step "
        "takes more than the second. Whole: with Dynamo, the capture by torch and guards. Warm: "
        "own, in later processes with Tandem's cache, median and all.",
    ]
    page.table("s", "own", "whole", "of it capture by torch", "own, warm", "")
    for model, result in results.items():
        first = result.get("cold", {})
        later = [value.get("own_s") for key, value in result.items() if key.startswith("warm")]
        if "own_s" not in first or not later or None in later:
            continue
        own, whole, warm = first["own_s"], first["whole_s"], statistics.median(later)
        page.row(
            model,
            page.target(f"{model}: own part <= {OWN_S} s", f"{own:.2f}", own <= OWN_S),
            page.target(f"{model}: cold start <= {WHOLE_S} s", f"{whole:.1f}", whole <= WHOLE_S),
            f"{first['stages_ms']['capture'] / 1e3:.2f}",
            page.target(f"{model}: warm own part <= {WARM_S} s", f"{warm:.3f}", warm <= WARM_S),
            ", ".join(f"{value:.3f}" for value in sorted(later)),
        )


def profiles(page, results):
    if not is_measured(page, results, "profile"):
        return
    page.lines += ["", "### Where frozen inference spends its time", ""]
    page.lines.append("Share, milliseconds a call, number and origin of the slowest instructions.")
    for model, result in results.items():
        lines = result.get("profile", {}).get("profile", [])
        if lines:
            page.lines += ["", f"{model}:", "", "```", *(line[:110] for line in lines), "```"]


def peaks(page, results):
    if not is_measured(page, results, "peak"):
        return
    page.lines += [
        "",
        "### Peak memory of a training step, MiB",
        "",
        "With gradients, above what the process holds between steps without them.",
    ]
    contenders = ("eager", "inductor", "tandem")
    page.table("", *contenders)
    for model, result in results.items():
        found = [result.get(f"peak {name}", {}).get("peak_MiB") for name in contenders]
        if None in found:
            continue
        eager, inductor, own = found
        text = page.target(f"{model}: peak <= eager's", f"{own:.0f}", own <= eager)
        page.row(model, f"{eager:.0f}", f"{inductor:.0f}", text)


HEAD = (
    "Random weights, dropout off, f32 where nothing else is said; milliseconds a step, median "
    "(quartiles) of turns in one process. Unfrozen stands beside unfrozen; frozen beside Inductor "
    "with `freezing`, of whose forms the fastest counts, and beside ONNX Runtime and OpenVINO, "
    "whose inputs and results are not copied. Those two are called directly, and so is Tandem "
    "where it is compiled ahead (`tandem.aot_compile`), which stands beside them; eager, Inductor "
    "and Tandem else through the module, guards of torch.compile included. Training: forward, "
    "mean square, backward. A ratio above 1 means that Tandem is faster; of roof: the roof over "
    "Tandem's time."
)


def models(page, results, run, isa):
    page.lines += ["", "## Full-size models", "", HEAD]
    verdicts.say(page, results)
    for table in tables(isa):
        steps(page, results, table, run)
    roofs(page, results)
    for part in (cold, peaks, profiles):
        part(page, results)


def held_models(page, results, run):
    """The same with all contenders held to AVX2."""
    page.lines += ["", "## Full-size models, held to AVX2", ""]
    page.lines.append(
        "BENCH_ISA=avx2: torch, Inductor, MKL, oneDNN and Tandem use no instruction beyond AVX2."
    )
    verdicts.say(page, results)
    for table in tables("AVX2"):
        steps(page, results, table, run)
    roofs(page, results)
