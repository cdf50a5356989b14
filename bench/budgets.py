"""What memory budgets do, on the small models of bench/partitions.py: at each tenth what a step
holds, as planned and as handed out, whether its gradients are eager's (in f64 as well, where a
network of rectifiers and batch norms does not turn rounding into other signs), what is computed
again and what a step takes, beside Inductor with the same `activation_memory_budget`; then budgets
in bytes, whether they are kept, and whether the smallest that an error names is.

All contenders of a model are in one process and take turns, on a machine that does nothing else:
times are medians, and the ratios beside them medians of the turns' own. `--write` puts both tables
into docs/partition.md; `--only` measures some models again. Results so far are in
build/budgets.json. Needs transformers.
"""

import argparse
import copy
import json
import pathlib
import random
import re
import statistics
import sys
import time
import warnings

import measure
import partitions
import peaks
import torch
from table_page import write_between
from torch._functorch import config as functorch_config

import tandem

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "partition.md"
MARKS = ("<!-- table: bench/budgets.py --write -->", "<!-- end of the fractions -->")
BYTE_MARKS = ("<!-- budgets in bytes: bench/budgets.py --write -->", "<!-- end of the bytes -->")
KEPT = ROOT / "build" / "budgets.json"
TENTHS = [tenth / 10 for tenth in range(10, 0, -1)]
BESIDE = (1.0, 0.7, 0.5, 0.3, 0.1)  # of Inductor
ROUNDS = 9
BYTE_BUDGETS = 6
FLOPS = re.compile(r"us, (\d+) flops of products")


def loss_of(model):
    """Not of squares: their sum behind a layer norm is constant, so all gradients are rounding."""

    def loss(**given):
        return partitions.first_of(model(**given)).sin().mean()

    return measure.with_own_code(loss)


def by_tandem(model, budget):
    options = {"on_unsupported": "error", "report": True, "memory_budget": budget}
    return torch.compile(loss_of(model), backend=tandem.backend, options=options)


def stepped(model, inputs, function):
    """Milliseconds of a step; its gradients are the model's then."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    start = time.perf_counter()
    function(**inputs).backward()
    return (time.perf_counter() - start) * 1e3


def gradients(model):
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


def farthest(found, wanted):
    """The largest difference, beside the largest of its gradient. Left out are those that are zero
    but for rounding, as that of a key's bias is."""
    assert len(found) == len(wanted)
    least = 1e-6 * max(b.abs().max().item() for b in wanted)
    return max(
        ((a - b).abs().max() / b.abs().max()).item()
        for a, b in zip(found, wanted, strict=True)
        if b.abs().max().item() > least
    )


def compiled(model, inputs, budget, wanted):
    """A step within the budget, and what is known of it: of the second, when all is made."""
    tandem.reset_report()
    function = by_tandem(model, budget)
    stepped(model, inputs, function)
    peaks.settle(model)
    live = peaks.live_bytes()
    stepped(model, inputs, function)
    (graph,) = tandem.report()["graphs"]
    memory = graph["memory"]
    handed_out = tandem.memory_use()["peak_live_bytes"] - live
    return function, {
        "planned": memory["step"],
        "handed out": handed_out + memory["arguments"],
        "saved": memory["saved"],
        "again": int(FLOPS.search(graph["cut"]).group(1)),
        "off": farthest(gradients(model), wanted),
    }


def eager_gradients(model, inputs):
    stepped(model, inputs, loss_of(model))
    return gradients(model)


def doubled(model, inputs):
    wide = {
        name: each.double() if each.is_floating_point() else each for name, each in inputs.items()
    }
    return copy.deepcopy(model).double(), wide


def off_in_f64(model, inputs):
    """By fraction: the farthest from eager's of the same model in f64."""
    model, inputs = doubled(model, inputs)
    wanted = eager_gradients(model, inputs)
    found = {}
    for fraction in TENTHS:
        stepped(model, inputs, by_tandem(model, fraction))
        found[f"{fraction}"] = {"off in f64": farthest(gradients(model), wanted)}
    return found


def in_turns(model, inputs, functions):
    """In another order each time: behind a step of Inductor, whose threads still spin, the next one
    takes up to a third longer, and that must not be the same one in every round."""
    times = {name: [] for name in functions}
    for number in range(ROUNDS):
        order = list(functions)
        random.Random(number).shuffle(order)
        for name in order:
            times[name].append(stepped(model, inputs, functions[name]))
    return {(who, part): timed(each, times[who, 1.0]) for (who, part), each in times.items()}


def timed(times, whole):
    """In milliseconds and of the whole budget's step in the same turn."""
    ratios = [own / other for own, other in zip(times, whole, strict=True)]
    return {"ms": statistics.median(times), "of whole": statistics.median(ratios)}


def fractions(model, inputs, wanted):
    functions, found, theirs = {}, {}, {}
    for fraction in BESIDE:  # first: this resets dynamo
        saved, again = partitions.by_pytorch(model, inputs, fraction)
        theirs[f"{fraction}"] = {"saved": saved, "again": again}
    for fraction in TENTHS:
        functions["tandem", fraction], found[f"{fraction}"] = compiled(
            model, inputs, fraction, wanted
        )
    for fraction in BESIDE:
        with functorch_config.patch(activation_memory_budget=fraction):
            functions["inductor", fraction] = torch.compile(loss_of(model))
            stepped(model, inputs, functions["inductor", fraction])
    for (who, fraction), times in in_turns(model, inputs, functions).items():
        (found if who == "tandem" else theirs)[f"{fraction}"] |= times
    return {"tandem": found, "inductor": theirs}


def smallest(model, inputs):
    try:
        by_tandem(model, "1KiB")(**inputs)
    except Exception as error:  # torch has a class of its own for it
        return int(peaks.SMALLEST.search(str(error)).group(1))
    raise AssertionError("a step in a KiB")


def byte_budgets(model, inputs, most, wanted):
    """Evenly from what a step holds that computes nothing dear again down to the smallest."""
    least = smallest(model, inputs)
    rows = []
    for part in range(BYTE_BUDGETS + 1):
        asked = least + (most - least) * (BYTE_BUDGETS - part) // BYTE_BUDGETS
        rows.append({"asked": asked} | compiled(model, inputs, f"{asked}B", wanted)[1])
    return rows


def measured(name):
    torch.manual_seed(0)
    model, inputs = partitions.MODELS[name]()
    model.train()
    in_f64 = off_in_f64(model, inputs)
    wanted = eager_gradients(model, inputs)
    found = fractions(model, inputs, wanted)
    for fraction, off in in_f64.items():
        found["tandem"][fraction] |= off
    most = found["tandem"]["1.0"]["planned"]
    return found | {"bytes": byte_budgets(model, inputs, most, wanted)}


# --- the tables


def mib(count):
    return f"{count / 2**20:.2f}"


def rows_of(name, found):
    ours, theirs = found["tandem"], found["inductor"]
    for fraction in TENTHS:
        own, other = ours[f"{fraction}"], theirs.get(f"{fraction}")
        cells = [name if fraction == 1 else "", f"{fraction:g}", mib(own["saved"])]
        cells += [mib(own["planned"]), mib(own["handed out"]), f"{own['off']:.0e}"]
        cells.append(f"{own['off in f64']:.0e}")
        cells += [f"{own['again'] / 1e6:.0f}", f"{own['ms']:.1f}"]
        cells.append(f"{own['of whole']:.2f}")
        cells += (
            [mib(other["saved"]), f"{other['again'] / 1e6:.0f}", f"{other['ms']:.1f}",
             f"{other['of whole']:.2f}"]
            if other
            else [""] * 4
        )
        yield cells


def fraction_table(results):
    yield (
        "| model | fraction | saved | planned | handed out | gradients off | in f64 | again | ms "
        "| of 1 | Inductor saves | again | ms | of 1 |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for name in partitions.MODELS:
        if name in results:
            for cells in rows_of(name, results[name]):
                yield "| " + " | ".join(cells) + " |"


def byte_table(results):
    yield "| model | " + " | ".join(["asked"] * BYTE_BUDGETS) + " | the smallest |"
    yield "|---|" + "---|" * (BYTE_BUDGETS + 1)
    for name in partitions.MODELS:
        if name not in results:
            continue
        cells = []
        for each in results[name]["bytes"]:
            held = max(each["planned"], each["handed out"])
            mark = "" if held <= each["asked"] else " ✗"
            cells.append(f"{mib(each['asked'])}: {mib(held)}{mark}")
        yield f"| {name} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="the tables go into docs")
    parser.add_argument("--only", nargs="*", help="models whose names hold one of these")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(measure.THREADS)
    results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in partitions.MODELS:
        if chosen.only and not any(word.lower() in name.lower() for word in chosen.only):
            continue
        results[name] = measured(name)
        measure.progress(f"{name}: {results[name]}")
        KEPT.write_text(json.dumps(results, indent=1))
    tables = [list(fraction_table(results)), list(byte_table(results))]
    for marks, lines in zip((MARKS, BYTE_MARKS), tables, strict=True):
        print("\n".join(lines))
        if chosen.write:
            write_between(PAGE, marks, lines)


if __name__ == "__main__":
    sys.exit(main())
