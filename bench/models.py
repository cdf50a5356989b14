"""Full-size models in Tandem, PyTorch eager, Inductor, OpenVINO and ONNX Runtime: inference,
training step, cold start, peak memory. Each model is a process in which the contenders take
turns. BENCH_ISA=avx2 holds them to AVX2, in a file of its own."""

import argparse
import json
import subprocess
import sys
import tempfile

import measure
import model_cases
import verdicts

WARM_RUNS = 5  # one differs from the next by as much as it takes: a step's noise is in it
WORKER = "bench/model_worker.py"
LIMIT_S = 900
PARTS = (
    "cold", "infer", "frozen", "profile", "train",
    "infer bf16", "frozen bf16", "train bf16", "peak",
)  # fmt: skip
# By name: sizes that change from call to call. More would not fit into the time of `make bench`.
DYNAMIC = ("infer dynamic", "train dynamic", "infer dynamic bf16", "train dynamic bf16")
QUICK = ("infer", "frozen", "profile", "train")
HELD = ("infer", "train")  # to another ISA
SUFFIX = f"_{measure.ISA}" if measure.ISA else ""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two models, f32 steps only")
    parser.add_argument("--models", nargs="*", help="names, or parts of them")
    parser.add_argument("--only", nargs="+", choices=PARTS + DYNAMIC,
                        help="cold: and warm; what is not named stays as --out has it")
    parser.add_argument("--out", default=f"build/bench/models{SUFFIX}.json")
    return parser.parse_args()


def run(directory, *words):
    """The worker's answer, or {"error": ...}."""
    env = measure.environment(
        TORCHINDUCTOR_CACHE_DIR=f"{directory}/inductor", TANDEM_CACHE_DIR=f"{directory}/tandem"
    )
    try:
        done = subprocess.run(
            [sys.executable, WORKER, *words],
            env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {LIMIT_S} s"}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def say(what, result):
    if "error" in result:
        return measure.progress(f"{what}: {result['error']}")
    if "ms" in result:
        text = ", ".join(f"{name} {value:.1f}" for name, value in result["ms"].items())
        return measure.progress(f"{what}: {text} ms")
    numbers = {k: round(v, 2) for k, v in result.items() if isinstance(v, float)}
    return measure.progress(f"{what}: {numbers}")


def cases_of(part):
    """Of a part: the key of a result and the worker's words, which follow the model's name."""
    if part == "cold":  # and warm: the same again, with what the first process left
        return [("cold", ["cold"]), *((f"warm {i}", ["cold"]) for i in range(WARM_RUNS))]
    if part == "peak":
        return [(f"peak {who}", ["peak", who]) for who in ("eager", "inductor", "tandem")]
    if part == "profile":
        return [(part, ["profile"])]
    kind, *options = part.split()
    dtype = "bfloat16" if "bf16" in options else "float32"
    return [(part, ["steps", kind, dtype, *(["dynamic"] if "dynamic" in options else [])])]


def measured(name, is_quick, only, found):
    parts = only or (HELD if measure.ISA else QUICK if is_quick else PARTS)
    with tempfile.TemporaryDirectory() as directory:
        for part in PARTS + DYNAMIC:
            if part in DYNAMIC and not model_cases.has_dynamic_size(name):
                continue
            for key, words in cases_of(part) if part in parts else ():
                found[key] = {"run": measure.run()} | run(directory, words[0], name, *words[1:])
                say(f"{name}, {key}", found[key])


def kept(path):
    try:
        return measure.load(path)[0]
    except FileNotFoundError:
        return {}


def main():
    options = arguments()
    measure.pin()
    names = list(model_cases.CASES)
    if options.models:
        every = [*names, *model_cases.MORE_CASES]
        names = [name for name in every if any(part in name for part in options.models)]
    elif options.quick:
        names = [name for name in names if name.startswith(("bert", "mobilenet"))]
    results = kept(options.out) if options.only else {}
    for name in names:
        measured(name, options.quick, options.only, results.setdefault(name, {}))
        measure.save(options.out, results)
    found = verdicts.wrong({name: results[name] for name in names})
    for what, why in found:
        measure.progress(f"WRONG: {what}: {why}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
