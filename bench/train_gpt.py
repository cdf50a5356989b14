"""The demo's training step in Tandem, PyTorch eager, Inductor and XLA: same model, parameters and
data.

Each is a process of its own and they take turns, a few steps each. Their first losses are
compared (dropout off). Caches are empty: what the first step takes more than the second is what
compiling takes.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import measure

BINARY = "build/bin/bench_train_gpt"
PEERS = ["eager", "inductor", "xla"]
TOLERANCE = 1e-4  # of losses, relative


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="few rounds; dropout on without Inductor and XLA"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--steps", type=int, default=4, help="steps a turn")
    parser.add_argument("--out", default="build/bench/train_gpt.json")
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.quick else 15)
    return options


class Contender:
    """A process that answers a number of steps with their times."""

    def __init__(self, name, command, directory):
        self.name = name
        env = measure.environment(
            TORCHINDUCTOR_CACHE_DIR=f"{directory}/inductor",
            TANDEM_CACHE_DIR=f"{directory}/tandem",
            TRITON_CACHE_DIR=f"{directory}/triton",
        )
        # Its noise is shown only when it fails.
        self.errors = open(f"{directory}/{name}.txt", "w+")
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.first = self.answer()
        self.times = []

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(
                f"{self.name} ended with {self.process.returncode}: {self.errors.read()[-2000:]}"
            )
        return json.loads(line)

    def turn(self, steps, counted=True):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer = self.answer()
        if counted:
            self.times += answer["steps_ms"]
        self.peak = answer["peak_MiB"]

    def result(self):
        return {
            "median_ms": statistics.median(self.times),
            "quartiles": statistics.quantiles(self.times, n=4, method="inclusive")[::2],
            "best_ms": min(self.times),
            "steps": len(self.times),
            "cold_s": self.first["cold_s"],
            "peak_MiB": round(self.peak),
            "losses": self.first["losses"],
        } | {
            key: self.first[key]
            for key in (
                "compile_s",
                "kernels",
                "instructions",
                "passes_ms",
                "schedule_ms",
                "codegen_ms",
                "base_MiB",
            )
            if key in self.first
        }

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def main():
    options = arguments()
    measure.pin()
    results = {}
    for dropout in (0.0, 0.1):
        peers = PEERS if dropout == 0 or not options.quick else PEERS[:1]
        results["dropout_on" if dropout else "dropout_off"] = compare(dropout, peers, options)
    measure.save(options.out, results)
    return 0


def missing(peer):
    module = "jax" if peer == "xla" else "torch"
    return None if importlib.util.find_spec(module) else f"{module} is not installed"


def compare(dropout, peers, options):
    measure.progress(f"training step of the GPT, dropout {dropout:g}")
    results = {}
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        contenders = []
        for name in ["tandem"] + peers:
            reason = None if name == "tandem" else missing(name)
            if reason is None:
                contender, reason = start(name, dropout, directory)
            if reason is not None:
                results[name] = {"error": reason}
                measure.progress(f"  {name:9} left out: {reason}")
                continue
            contenders.append(contender)
            stack.callback(contender.close)
        take_turns(contenders, options)
        results |= {contender.name: contender.result() for contender in contenders}
    if "tandem" in results and "error" not in results["tandem"]:
        cold_again(results["tandem"], dropout)
        check_losses(results, dropout)
    show(results)
    return results


def start(name, dropout, directory):
    """A contender and no reason, or none and the reason. Tandem, the first, writes parameters."""
    parameters = f"{directory}/parameters.safetensors"
    if name == "tandem":
        command = [BINARY, "--serve", "--dropout", str(dropout), "--save", parameters]
    else:
        worker = os.path.join(os.path.dirname(__file__), "gpt_worker.py")
        command = [sys.executable, worker, name, parameters, str(dropout)]
    started = time.monotonic()
    try:
        contender = Contender(name, command, directory)
    except (RuntimeError, OSError, ValueError) as error:
        return None, str(error)
    measure.progress(
        f"  {name:9} ready after {time.monotonic() - started:5.1f} s, "
        f"cold {contender.first['cold_s']:.2f} s"
    )
    return contender, None


def take_turns(contenders, options):
    for contender in contenders:
        contender.turn(3, counted=False)
    for number in range(options.rounds):
        first = number % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            contender.turn(1, counted=False)
            contender.turn(options.steps)


def cold_again(tandem, dropout):
    """The median of three cold starts: one alone is short and noisy."""
    colds = [tandem["cold_s"]]
    for _ in range(2):
        command = [BINARY, "--steps", "1", "--losses", "2", "--dropout", str(dropout)]
        with tempfile.TemporaryDirectory() as cache:
            output = subprocess.run(
                command,
                env=measure.environment(TANDEM_CACHE_DIR=cache),
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        colds.append(json.loads(output.splitlines()[0])["cold_s"])
    tandem["cold_s"] = statistics.median(colds)


def check_losses(results, dropout):
    """Marks peers that do not train the same model: their times would mean nothing."""
    ours = results["tandem"]["losses"]
    for name, result in results.items():
        if dropout or name == "tandem" or "error" in result:
            continue
        worst = max(abs(a - b) / abs(b) for a, b in zip(ours, result["losses"]))
        result["loss_difference"] = worst
        if not worst <= TOLERANCE:
            measure.warn(
                f"losses of tandem and {name} differ by {worst:.2g}: {ours} and {result['losses']}"
            )


def show(results):
    ours = results["tandem"].get("median_ms")
    for name, result in results.items():
        if "error" in result:
            continue
        ratio = f"{result['median_ms'] / ours:5.2f}x" if ours else ""
        result["x_tandem"] = result["median_ms"] / ours if ours else None
        measure.progress(
            f"  {name:9} {result['median_ms']:8.1f} ms a step (best {result['best_ms']:.1f}) "
            f"{ratio}  cold {result['cold_s']:6.2f} s  peak {result['peak_MiB']} MiB"
        )


if __name__ == "__main__":
    sys.exit(main())
