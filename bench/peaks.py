"""Peak memory of a training step, beside eager and Inductor: full-size models with batch 8.

Each contender is a process: forward, mean square of the result and backward, all that it compiles;
then the high-water mark of resident memory in one more step, beyond what the process holds between
steps without gradients, caches emptied. Tandem's plan, without arguments, stands beside what its
allocator handed out in that step. The last contender is Tandem held to 15 sixteenths of the bytes
that its default's step holds, arguments among them, or to the smallest budget that it says it can
keep. Memory does not depend on how busy the machine is. `--write` puts
the table into docs/partition.md; results so far are in build/peaks.json, and `--contenders`
measures some again. Needs transformers.
"""

import argparse
import ctypes
import gc
import json
import pathlib
import re
import subprocess
import sys
import warnings

import measure
import model_cases
import torch
from table_page import write_between

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "partition.md"
MARKS = ("<!-- table: bench/peaks.py --write -->", "<!-- end of the peaks -->")
KEPT = ROOT / "build" / "peaks.json"
CONTENDERS = ("eager", "inductor", "tandem", "budgeted")
PLANNED = ("tandem", "budgeted")
SMALLEST = re.compile(r"it takes (\d+), arguments included")
LIMIT_S = 1800

# Name: the case of model_cases, and what becomes of its inputs.
MODELS = {
    "GPT-2, 8 x 512": ("gpt2, 1x128", {"input_ids": (8, 512)}),
    "BERT, 8 x 128": ("bert-base, 1x128", {"input_ids": (8, 128)}),
    "ViT, 8": ("vit-base, 1", {"pixel_values": (8, 3, 224, 224)}),
    "ResNet-50, 8": ("resnet50, 2", {"pixel_values": (8, 3, 224, 224)}),
    "Llama, 8 layers, 8 x 128": ("llama, 8 layers, 1x128", {"input_ids": (8, 128)}),
    "MobileNet V2, 8": ("mobilenet_v2, 4", {"pixel_values": (8, 3, 224, 224)}),
}


def made(name):
    case, sizes = MODELS[name]
    model, inputs = model_cases.make(case)
    for key, size in sizes.items():
        is_float = inputs[key].is_floating_point()
        inputs[key] = torch.randn(size) if is_float else torch.randint(0, 1000, size)
    return model.train(), inputs


def step_of(model, inputs, contender, budget):
    def loss_of(**given):
        return model_cases.first_tensor(model(**given)).float().square().mean()

    if contender == "inductor":
        loss_of = torch.compile(loss_of)
    if contender in PLANNED:
        import tandem

        options = {"on_unsupported": "error", "report": True, "memory_budget": budget}
        loss_of = torch.compile(loss_of, backend=tandem.backend, options=options)

    def step():
        loss_of(**inputs).backward()

    return step


def settle(model):
    model.zero_grad(set_to_none=True)
    gc.collect()
    if "tandem" in sys.modules:
        sys.modules["tandem"].empty_cache()
    ctypes.CDLL(None).malloc_trim(0)


def live_bytes():
    """Of Tandem's allocator, whose peak counts from here."""
    if "tandem" not in sys.modules:
        return 0
    sys.modules["tandem"].reset_peak_memory()
    return sys.modules["tandem"].memory_use()["live_bytes"]


def status(word):
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(word))
    return int(line.split()[1]) * 1024


def planned(before):
    """Of the one graph: bytes that a step holds beside its arguments, what is saved, and what the
    allocator had handed out at most."""
    tandem = sys.modules["tandem"]
    (graph,) = tandem.report()["graphs"]
    memory = graph["memory"]
    return {
        "planned": memory["step"] - memory["arguments"],
        "arguments": memory["arguments"],
        "saved": memory["saved"],
        "handed out": tandem.memory_use()["peak_live_bytes"] - before,
    }


def work(name, contender, budget):
    warnings.simplefilter("ignore")
    torch.set_num_threads(measure.THREADS)
    model, inputs = made(name)
    step = step_of(model, inputs, contender, budget)
    step()
    settle(model)
    before, live = status("VmRSS"), live_bytes()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts here
    step()
    found = {"peak": status("VmHWM") - before}
    return found | (planned(live) if contender in PLANNED else {})


def run(name, contender, budget):
    words = [sys.executable, __file__, "--worker", name, contender, budget]
    return subprocess.run(
        words, env=measure.environment(), capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )


def measured(name, contender, budget):
    done = run(name, contender, budget)
    smallest = SMALLEST.search(done.stderr)
    if done.returncode != 0 and smallest:  # which the error names is to be kept, then
        budget = f"{smallest.group(1)}B"
        done = run(name, contender, budget)
    if done.returncode != 0:
        raise SystemExit(f"{name}, {contender}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1]) | {"budget": budget}


def budget_of(contender, chosen, found):
    if contender != "budgeted":
        return chosen
    step = found["tandem"]["planned"] + found["tandem"]["arguments"]
    return f"{step * 15 // 16 // 2**20}MiB"


def mib(count):
    return f"{count / 2**20:.0f}"


def own_cells(own, found):
    """Resident, as parts of the others', handed out and what the plan says of it, saved."""
    yield mib(own["peak"])
    for other in ("eager", "inductor"):
        yield f"{own['peak'] / found[other]['peak']:.3f}"
    off = own["planned"] / own["handed out"] - 1
    yield from (mib(own["handed out"]), f"{mib(own['planned'])} ({100 * off:+.1f} %)")
    yield mib(own["saved"])


def budget_text(own):
    words = own["budget"]
    return words if words.endswith("MiB") else f"{int(words[:-1]) / 2**20:.1f} MiB, the fewest"


def rows_of(name, found):
    cells = [name, *(mib(found[who]["peak"]) for who in ("eager", "inductor"))]
    yield [*cells, "default", *own_cells(found["tandem"], found)]
    own = found["budgeted"]
    yield ["", "", "", f"{budget_text(own)}, {mib(own['arguments'])} of them arguments",
           *own_cells(own, found)]


def table(results):
    yield (
        "| model | eager | Inductor | Tandem's budget | Tandem | of eager's | of Inductor's "
        "| handed out | planned | saved |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name in MODELS:
        if all(who in results.get(name, {}) for who in CONTENDERS):
            for cells in rows_of(name, results[name]):
                yield "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="the table goes into docs")
    parser.add_argument("--only", default="", help="models whose name holds this")
    parser.add_argument("--contenders", nargs="*", default=CONTENDERS)
    parser.add_argument("--missing", action="store_true", help="what build/peaks.json has not")
    parser.add_argument("--budget", default="default", help="Tandem's memory_budget")
    chosen = parser.parse_args()
    if chosen.worker:
        print(json.dumps(work(*chosen.worker)))
        return
    results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in MODELS:
        for who in chosen.contenders if chosen.only.lower() in name.lower() else ():
            known = results.setdefault(name, {})
            if chosen.missing and who in known:
                continue
            known[who] = measured(name, who, budget_of(who, chosen.budget, known))
            measure.progress(f"{name}, {who}: {known[who]}")
            KEPT.write_text(json.dumps(results, indent=1))
    lines = list(table(results))
    print("\n".join(lines))
    if chosen.write:
        write_between(PAGE, MARKS, lines)


if __name__ == "__main__":
    main()
