"""transformers' `generate` with a compiled forward, as users run it: each token is a call of the
program between operators of eager. Contenders are a process each, and take turns.

`generate.py [WORD ...]` prints a line for each case whose name has all words, as in
`generate.py gpt2 bf16 static`."""

import json
import subprocess
import sys
import tempfile
import time

import measure
import torch
import verdicts

PROMPT, TOKENS, TURNS = 17, 40, 7
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CONTENDERS = ("eager", "inductor", "inductor, frozen", "tandem", "tandem, frozen")


def cases():
    for model in ("gpt2", "llama, 8 layers"):
        for dtype in DTYPES:
            for cache in ("static", "dynamic"):
                yield f"{model}; {dtype}; {cache} cache"


# --- the process of a contender


def made(name):
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    if name == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config())
    config = transformers.LlamaConfig(
        hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, intermediate_size=2816
    )
    return transformers.LlamaForCausalLM(config)


def compiled(forward, contender):
    if contender == "eager":
        return forward
    if contender.startswith("inductor"):
        from torch._inductor import config

        config.freezing = contender.endswith("frozen")
        return torch.compile(forward)
    import tandem

    options = {"on_unsupported": "error", "freeze": contender.endswith("frozen")}
    return torch.compile(forward, backend=tandem.backend, options=options)


def work(name, contender, to):
    """Saves tokens and logits; then, for each line of stdin, the milliseconds of a generation."""
    kind, dtype, cache = name.split("; ")
    torch.set_num_threads(measure.THREADS)
    model = made(kind).eval().to(DTYPES[dtype])
    model.generation_config.eos_token_id = None  # all tokens are wanted
    model.generation_config.pad_token_id = 0
    settings = {"max_new_tokens": TOKENS, "do_sample": False, "disable_compile": True}
    if cache == "static cache":
        settings["cache_implementation"] = "static"
    prompt = torch.randint(5, 1000, (1, PROMPT))
    with torch.no_grad():
        model.forward = compiled(model.forward, contender)
        for _ in range(3):
            model.generate(prompt, **settings)
        told = model.generate(
            prompt, output_logits=True, return_dict_in_generate=True, **settings
        )
        torch.save((told.sequences[0, PROMPT:], torch.cat(told.logits).double()), to)
        print(flush=True)
        for _ in sys.stdin:
            start = measure.clock()
            model.generate(prompt, **settings)
            print(json.dumps((measure.clock() - start) * 1e3), flush=True)


# --- the turns


class Contender:
    def __init__(self, name, contender, folder):
        told = f"{folder}/{contender}"
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", name, contender, told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=measure.environment(),
        )
        if not self._process.stdout.readline():
            raise SystemExit(f"{name}: {contender} failed")
        self.tokens, self.logits = torch.load(told)

    def milliseconds(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def stop(self):
        self._process.stdin.close()
        self._process.wait()


def measured(name):
    with tempfile.TemporaryDirectory() as folder:
        contenders = {each: Contender(name, each, folder) for each in CONTENDERS}
    times = {each: [] for each in CONTENDERS}
    for _ in range(TURNS):
        for each, contender in contenders.items():
            time.sleep(measure.REST_S)
            times[each].append(contender.milliseconds() / TOKENS)
    for contender in contenders.values():
        contender.stop()
    errors = {each: error(contender, contenders["eager"]) for each, contender in contenders.items()}
    return {each: measure.Spread.of(taken) for each, taken in times.items()}, errors


def error(contender, eager):
    """Of the logits, beside their largest, over the tokens before the first that differs: in bf16
    two words of a random model may be equally likely, and any rounding decides."""
    differ = (contender.tokens != eager.tokens).nonzero()
    count = int(differ[0]) + 1 if len(differ) else TOKENS
    wanted = eager.logits[:count]
    return ((contender.logits[:count] - wanted).abs().max() / wanted.abs().max()).item()


def line(name, found, errors):
    words = [f"{name:36}"]
    for each, spread in found.items():
        words.append(f"{each} {spread.median:.1f} ({spread.low:.1f}–{spread.high:.1f})")
        if each != "eager":
            words[-1] += f" error {errors[each]:.1e}"
    for kind in ("", ", frozen"):
        words.append(f"x{found['inductor' + kind].median / found['tandem' + kind].median:.2f}")
    return "  ".join(words)


def main(words):
    """Ends with 1 where a contender gives other logits than eager."""
    print("ms a token, median (quartiles); error beside eager's logits; x Inductor, and frozen")
    results = {}
    for name in cases():
        if not all(word in name for word in words):
            continue
        found, errors = measured(name)
        print(line(name, found, errors), flush=True)
        dtype = name.split("; ")[1]
        part = "generate bf16" if dtype == "bf16" else "generate"
        results[name] = {part: {"differs": errors}}
    wrong = verdicts.wrong(results)
    for what, why in wrong:
        print(f"MISS: {what}: {why}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main(sys.argv[1:])
