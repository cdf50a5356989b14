"""One token after the other of a decoder of Llama's shape, and a prompt of 512: Tandem beside
Inductor (torchao, freezing) and llama.cpp, with weights of f32, bf16, 8 and 4 bits, all random.
Each contender is a process, because its weights fill the memory. Prints tokens a second, those of
the program alone (what Dynamo, or llama.cpp's Python, does around it left out: two
milliseconds of Dynamo, whose memory the weights have pushed out of the caches), and the bytes of
weights that it reads a second as a share of the machine's read rate, which is measured before and
behind each. torch.compile's guards are left out, of Tandem and of Inductor. "aot" is Tandem by
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


def read_rate():
    """Bytes a second, the best of some turns over memory that no cache holds."""
    import roof
    import torch

    values = torch.ones(256 << 20, dtype=torch.uint8).view(torch.float32)
    stream = roof.Stream([values], [], False)
    return values.nbytes / min(measure.timed(stream, 1) for _ in range(8)) * 1e3


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
    clock.clear()
    decode = []
    for _ in range(TURNS):
        start = time.perf_counter()
        for position in range(PROMPT, PROMPT + tokens):
            step(position)
        decode.append((time.perf_counter() - start) / tokens)
    decode_s = statistics.median(decode)
    program_s = statistics.median(clock) if clock else None
    prompt_s = min(measure.timed(prompt, 1) / 1e3 for _ in range(2))
    return {"compile_s": compile_s, "decode_s": decode_s, "program_s": program_s,
            "prompt_s": prompt_s}


def worker(shape, name, tokens):
    compiler, weights = name.split()
    clock = clock_of(compiler)
    if compiler == "llama.cpp":
        found = measured(*llama_steps(shape, weights), tokens, clock)
    else:
        import torch

        with torch.no_grad():
            steps = torch_steps(shape, compiler, weights)
            found = measured(*steps, tokens, clock, without_guards)
    print(json.dumps(found))


def row(shape, name, found, rate):
    seconds = found["program_s"] or found["decode_s"]
    read = llama_shape.weight_bytes(shape, llama_shape.BITS[name.split()[1]]) / seconds
    alone = f"{1 / found['program_s']:.1f}" if found["program_s"] else ""
    return (
        f"| {name} | {1 / found['decode_s']:.1f} | {alone} | {read / 1e9:.1f} | "
        f"{read / rate:.2f} | {PROMPT / found['prompt_s']:.0f} |"
    )


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
    print("| contender | tokens/s | alone | GB/s of weights | of the read rate | prompt, tok/s |")
    print("|---|---|---|---|---|---|")
    for name in wanted:
        python = os.environ.get("BENCH_LLAMA") if name.startswith("llama.cpp") else sys.executable
        if python is None:
            measure.warn(f"{name} is left out: BENCH_LLAMA names no Python")
            continue
        command = [python, __file__, "--worker", name, "--layers", str(shape.layers),
                   "--vocabulary", str(shape.vocabulary), "--tokens", str(options.tokens)]
        rate = read_rate()
        done = subprocess.run(command, capture_output=True, text=True, env=measure.environment(),
                              check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no word"]
            measure.warn(f"{name} failed: {lines[-1]}")
            continue
        found = json.loads(done.stdout.strip().splitlines()[-1])
        print(row(shape, name, found, max(rate, read_rate())), flush=True)


if __name__ == "__main__":
    main()
