"""The page's section on full-size models, from build/bench/models.json."""

import math
import statistics

import verdicts

# Of issue 4.
STEP_RATIO, GEOMEAN, SERVING, OWN_S, WHOLE_S, WARM_S = 1.0, 1.3, 1 / 1.1, 0.5, 3.5, 0.05
CONTENDERS = ["eager", "inductor", "tandem", "tandem, frozen", "onnx runtime", "openvino"]


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def ratio_of(times, peers):
    """How much faster the best of Tandem is than the best of the peers."""
    own = min(value for name, value in times.items() if name.startswith("tandem"))
    others = [times[name] for name in peers if name in times]
    return min(others) / own if others else None


def cell(times, name):
    return f"{times[name]:.1f}" if name in times else "-"


def steps(page, results, kind, title, serving):
    ran = set().union(*(result.get(kind, {}).get("ms", {}) for result in results.values()))
    contenders = [name for name in CONTENDERS if name in ran]
    page.lines += ["", f"### {title}", ""]
    page.table("ms", *contenders, "x best of eager, Inductor", *(["x best of serving"] * serving))
    against_inductor = []
    for model, result in results.items():
        found = result.get(kind, {"error": "not measured"})
        if "error" in found:
            page.row(model, found["error"][:120], *[""] * len(contenders))
            continue
        times = found["ms"]
        if "inductor" in times:
            against_inductor.append(ratio_of(times, ["inductor"]))
        ratio = ratio_of(times, ["eager", "inductor"])
        what = f"{model}, {title}: at least as fast as eager and Inductor"
        last = [page.target(what, f"{ratio:.2f}", ratio >= STEP_RATIO)]
        if serving:
            other = ratio_of(times, CONTENDERS[4:])
            what = f"{model}, {title}: within 1.1x of ONNX Runtime and OpenVINO"
            last += [page.target(what, f"{other:.2f}", other >= SERVING) if other else "-"]
        page.row(model, *(cell(times, name) for name in contenders), *last)
    mean = geomean(against_inductor)
    text = page.target(f"{title}: geomean >= {GEOMEAN}x Inductor", f"{mean:.2f}", mean >= GEOMEAN)
    page.lines += ["", f"Geomean against Inductor: {text}."]


def cold(page, results):
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
    page.lines += ["", "### Where frozen inference spends its time", ""]
    page.lines.append("Share, milliseconds a call, number and origin of the slowest instructions.")
    for model, result in results.items():
        lines = result.get("profile", {}).get("profile", [])
        if lines:
            page.lines += ["", f"{model}:", "", "```", *(line[:110] for line in lines), "```"]


def peaks(page, results):
    page.lines += ["", "### Peak memory of a training step, MiB", "",
        "With gradients, above what the process holds between steps without them."]
    page.table("", "eager", "inductor", "tandem")
    for model, result in results.items():
        found = [result.get(f"peak {name}", {}).get("peak_MiB") for name in CONTENDERS[:3]]
        if None in found:
            continue
        eager, inductor, own = found
        text = page.target(f"{model}: peak <= eager's", f"{own:.0f}", own <= eager)
        page.row(model, f"{eager:.0f}", f"{inductor:.0f}", text)


def models(page, results):
    page.lines += [
        "",
        "## Full-size models",
        "",
        "Random weights, dropout off, f32 where nothing else is said; milliseconds a step, medians "
        "of contenders that take turns in one process. Training: forward, mean square, backward. "
        "Frozen: option freeze; the serving runtimes have constant weights too.",
    ]
    verdicts.say(page, results)
    steps(page, results, "infer", "Inference", True)
    steps(page, results, "train", "Training step", False)
    if any("infer bf16" in result for result in results.values()):
        steps(page, results, "infer bf16", "Inference, bf16", False)
    cold(page, results)
    peaks(page, results)
    profiles(page, results)
