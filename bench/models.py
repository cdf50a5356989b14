"""Full-size models in Tandem, PyTorch eager, Inductor, OpenVINO and ONNX Runtime: inference,
training step, cold start, peak memory. Each model is a process in which the contenders take
turns."""

import argparse
import json
import subprocess
import sys
import tempfile

import measure
import model_cases

WORKER = "bench/model_worker.py"
LIMIT_S = 900


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two models, f32 steps only")
    parser.add_argument("--models", nargs="*", help="names, or parts of them")
    parser.add_argument("--only", nargs="*", help="of: cold (and warm), infer, profile, train, "
                        "peak; the rest stays as --out has it")
    parser.add_argument("--out", default="build/bench/models.json")
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


def measured(name, is_quick, only, found):
    def note(key, directory, *words):
        if only and not any(key.replace("warm", "cold").startswith(part) for part in only):
            return
        found[key] = run(directory, *words)
        say(f"{name}, {key}", found[key])

    with tempfile.TemporaryDirectory() as directory:
        if not is_quick:
            note("cold", directory, "cold", name)
            note("warm", directory, "cold", name)
        note("infer", directory, "steps", name, "infer")
        note("profile", directory, "profile", name)
        note("train", directory, "steps", name, "train")
        if not is_quick:
            note("infer bf16", directory, "steps", name, "infer", "bfloat16")
            for contender in ("eager", "inductor", "tandem"):
                note(f"peak {contender}", directory, "peak", name, contender)


def kept(path):
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def main():
    options = arguments()
    measure.pin()
    names = list(model_cases.CASES)
    if options.models:
        names = [name for name in names if any(part in name for part in options.models)]
    elif options.quick:
        names = [name for name in names if name.startswith(("bert", "mobilenet"))]
    results = kept(options.out) if options.only else {}
    for name in names:
        measured(name, options.quick, options.only, results.setdefault(name, {}))
        with open(options.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
