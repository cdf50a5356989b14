"""One token after the other of a decoder of Llama's shape, and a prompt of 512: Tandem beside
Inductor (torchao, freezing) and llama.cpp, with weights of f32, bf16, 8 and 4 bits, all random.
Each contender is a process; those of the same weights take turns, 16 bits and more apart, because
their weights fill the memory. Prints tokens a second, those of the program alone (what Dynamo, or
llama.cpp's Python, does around it left out: two milliseconds of Dynamo, whose memory the weights
have pushed out of the caches), and the bytes of weights that it reads a second as a share of the
machine's read rate: both change from one second to the next, so the rate is measured before and
behind each turn of tokens, and the share is the median of the turns' and its quartiles.
torch.compile's guards are left out, of Tandem and of Inductor. "aot" is Tandem by
`tandem.aot_compile`, one callable for a token and one for a prompt, with its checks of arguments.

`decode.py [--layers N] [--vocabulary N] [--tokens N] [NAME ...]`  contenders, or parts of names
`decode.py --worker NAME`  one of them; a JSON line

llama.cpp is what BENCH_LLAMA says: a Python that has llama_cpp and gguf; left out without it."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import llama_shape
import measure

PROMPT = 512
TURNS = 7
CONTENDERS = [
    f"{compiler} {weights}"
    for weights in ("f32", "bf16", "int8", "int4", "da8w4")
    for compiler in ("tandem", "aot", "inductor")
] + ["llama.cpp int8", "llama.cpp int4"]


def reader():
    """A function that measures bytes a second, the best of some turns over memory that no cache
    holds."""
    import roof
    import torch

    values = torch.ones(256 << 20, dtype=torch.uint8).view(torch.float32)
    stream = roof.Stream([values], [], False)
    return lambda: values.nbytes / min(measure.timed(stream, 1) for _ in range(4)) * 1e3


def compiled(model, compiler):
    import torch

    if compiler == "aot":
        return ahead_of_time(model)
    if compiler == "tandem":
        import tandem

        return torch.compile(model, backend=tandem.backend, options={"freeze": True}, dynamic=False)
    import torch._inductor.config as config

    config.freezing = True
    return torch.compile(model, dynamic=False)


def ahead_of_time(model):
    """One callable for each number of tokens."""
    import tandem

    calls = {}

    def run(tokens, places):
        if len(places) not in calls:
            made = tandem.aot_compile(model, (tokens, places), options={"freeze": True})
            calls[len(places)] = made
        return calls[len(places)](tokens, places)

    return run


def torch_steps(shape, compiler, weights):
    """(a function of one token at a position, one of a prompt)."""
    import llama
    import torch

    torch.set_num_threads(measure.THREADS)
    is_opaque = compiler == "inductor" and weights == "int4"
    model = llama.model_of(shape, weights, is_opaque)
    run = compiled(model, compiler)
    prompt = torch.arange(PROMPT)[None] % shape.vocabulary

    def step(position):
        return run(prompt[:, :1], torch.tensor([position]))

    return step, lambda: run(prompt, torch.arange(PROMPT))


def without_guards():
    """What a serving runtime asks nothing of: all that the module holds, at each call."""
    import torch

    torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)


def clocked(owner, name):
    """Seconds in `name` of `owner`: a list that grows by one each call."""
    inner, seconds = getattr(owner, name), []

    def timed(*args):
        start = time.perf_counter()
        result = inner(*args)
        seconds.append(time.perf_counter() - start)
        return result

    setattr(owner, name, timed)
    return seconds


def clock_of(compiler):
    """Of the program that a token runs; Inductor's is a function of no name."""
    if compiler in ("tandem", "aot"):
        from tandem import function

        return clocked(function.Compiled, "_call")
    if compiler == "llama.cpp":
        import llama_cpp

        return clocked(llama_cpp.llama_cpp, "llama_decode")
    return []


def llama_steps(shape, weights):
    import llama_file

    model = llama_file.model_of(shape, weights, measure.THREADS)
    prompt = [i % shape.vocabulary for i in range(PROMPT)]

    def step(position):
        model.n_tokens = position
        model.eval(prompt[:1])

    def all_of_it():
        model.reset()
        model.eval(prompt)

    return step, all_of_it


def measured(step, prompt, tokens, clock, is_compiled=lambda: None):
    start = time.perf_counter()
    prompt()  # llama.cpp wants what is before a token
    step(PROMPT)
    compile_s = time.perf_counter() - start
    is_compiled()
    for _ in range(TURNS):
        wait()
        step(PROMPT)  # another had the processor
        clock.clear()
        start = time.perf_counter()
        for position in range(PROMPT, PROMPT + tokens):
            step(position)
        decode_s = (time.perf_counter() - start) / tokens
        say({"decode_s": decode_s, "program_s": statistics.median(clock) if clock else None})
    wait()
    prompt_s = min(measure.timed(prompt, 1) / 1e3 for _ in range(2))
    say({"compile_s": compile_s, "prompt_s": prompt_s})


def say(found):
    print(json.dumps(found), flush=True)


def wait():
    """For a word of the process that measures the read rate meanwhile."""
    say({"ready": True})
    sys.stdin.readline()


def worker(shape, name, tokens):
    compiler, weights = name.split()
    clock = clock_of(compiler)
    if compiler == "llama.cpp":
        measured(*llama_steps(shape, weights), tokens, clock)
    else:
        import torch

        with torch.no_grad():
            steps = torch_steps(shape, compiler, weights)
            measured(*steps, tokens, clock, without_guards)


def told(process):
    """What the worker says next; nothing at its end."""
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    return None


class Contender:
    """A process that waits for a word before each turn, once its model is compiled."""

    def __init__(self, name, command):
        self.name, self.turns, self.rates = name, [], []
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=measure.environment(),
        )
        self.is_ready = bool(told(self.process))

    def turn(self, read_rate):
        """Measured between two read rates; the model may have failed."""
        if not self.is_ready:
            return
        before = read_rate()
        self.go_on()
        if found := told(self.process):
            self.turns.append(found)
            self.rates.append((before + read_rate()) / 2)
        self.is_ready = bool(found) and bool(told(self.process))

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """What it says at last; nothing where it failed."""
        if self.is_ready:
            self.go_on()
        found = told(self.process)
        self.process.communicate()
        if self.process.returncode != 0 or not found:
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines() or ["no word"]
            measure.warn(f"{self.name} failed: {lines[-1]}")
            return None
        return found


def row(shape, contender, prompt_s):
    name, turns = contender.name, contender.turns
    size = llama_shape.weight_bytes(shape, llama_shape.BITS[name.split()[1]])
    seconds = [turn["program_s"] or turn["decode_s"] for turn in turns]
    shares = [size / s / rate for s, rate in zip(seconds, contender.rates, strict=True)]
    low, share, high = statistics.quantiles(shares, n=4)
    decode_s = statistics.median(turn["decode_s"] for turn in turns)
    program_s = statistics.median(seconds)
    alone = f"{1 / program_s:.1f}" if turns[0]["program_s"] else ""
    return (
        f"| {name} | {1 / decode_s:.1f} | {alone} | {size / program_s / 1e9:.1f} | "
        f"{share:.2f} ({low:.2f}–{high:.2f}) | {PROMPT / prompt_s:.0f} |"
    )


def side_by_side(names):
    """Those of the same weights take turns, where memory has room for them."""
    small = [w for w in llama_shape.BITS if llama_shape.BITS[w] < 16]
    groups = {n: n.split()[1] if n.split()[1] in small else n for n in names}
    return [[n for n in names if groups[n] == group] for group in dict.fromkeys(groups.values())]


def started(name, shape, tokens):
    """Compiled, and waiting."""
    python = os.environ.get("BENCH_LLAMA") if name.startswith("llama.cpp") else sys.executable
    if python is None:
        return measure.warn(f"{name} is left out: BENCH_LLAMA names no Python")
    command = [python, __file__, "--worker", name, "--layers", str(shape.layers),
               "--vocabulary", str(shape.vocabulary), "--tokens", str(tokens)]
    return Contender(name, command)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--worker")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--tokens", type=int, default=16)
    options = parser.parse_args()
    shape = llama_shape.Shape(layers=options.layers, vocabulary=options.vocabulary)
    if options.worker:
        return worker(shape, options.worker, options.tokens)
    wanted = [n for n in CONTENDERS if not options.names or any(p in n for p in options.names)]
    read_rate = reader()
    print("| contender | tokens/s | alone | GB/s of weights | of the read rate | prompt, tok/s |")
    print("|---|---|---|---|---|---|")
    for names in side_by_side(wanted):
        contenders = [c for name in names if (c := started(name, shape, options.tokens))]
        for _ in range(TURNS):
            for contender in contenders:
                contender.turn(read_rate)
        for contender in contenders:
            if found := contender.end():
                print(row(shape, contender, found["prompt_s"]), flush=True)


if __name__ == "__main__":
    main()
