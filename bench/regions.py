"""Layers that are a region (torch.compiler.nested_compile_region) beside the same layers written
out: what compiling takes by number of layers, without a cache, and what a training step takes.

    PYTHONPATH=build/python .venv/bin/python bench/regions.py [--layers 4 48]
"""

import argparse
import os
import statistics
import time

os.environ["TANDEM_CACHE_DIR"] = ""

import torch
import torch.nn.functional as F
from torch.compiler import nested_compile_region

import tandem

WIDTH, HEADS, VOCABULARY = 128, 4, 256


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.second_norm = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.heads, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.heads(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        mixed = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second_norm(x))))


class Region(Block):
    forward = nested_compile_region(Block.forward)


class Gpt(torch.nn.Module):
    def __init__(self, kind, layers):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.Sequential(*[kind() for _ in range(layers)])
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def step(model, tokens):
    result = model(tokens)
    result.square().mean().backward()
    return result


def compiled(kind, layers, tokens):
    """The model, its compiled form, and milliseconds of Tandem's own by stage."""
    torch._dynamo.reset()
    tandem.reset_report()
    torch.manual_seed(0)
    model = Gpt(kind, layers)
    call = torch.compile(model, backend=tandem.backend, options={"on_unsupported": "strict"})
    torch.testing.assert_close(step(call, tokens), step(model, tokens), rtol=1e-4, atol=1e-4)
    times = dict(tandem.report()["graphs"][0]["milliseconds"])
    times.pop("capture")  # torch's
    return call, times


def milliseconds(calls, tokens, turns=15):
    """Quartiles of a step of each, which take turns."""
    taken = [[] for _ in calls]
    for _ in range(turns):
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            step(call, tokens)
            times.append(1e3 * (time.perf_counter() - start))
    return [statistics.quantiles(times, n=4) for times in taken]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 48])
    layers = parser.parse_args().layers
    short, long = torch.randint(VOCABULARY, (2, 64)), torch.randint(VOCABULARY, (8, 256))
    print("| layers | encode | passes | schedule | code | load | all |\n|---|" + "---:|" * 6)
    for kind, name in ((Region, "a region"), (Block, "written out")):
        for count in layers:
            _, times = compiled(kind, count, short)
            numbers = [*times.values(), sum(times.values())]
            print(f"| {name}, {count} | " + " | ".join(f"{each:.0f}" for each in numbers) + " |")
    calls = [compiled(kind, 12, long)[0] for kind in (Region, Block)]
    one, other = ("{1:.1f} ({0:.1f}–{2:.1f})".format(*each) for each in milliseconds(calls, long))
    print(f"step of 12 layers, 8 x 256 tokens: {one} ms as regions, {other} written out")


if __name__ == "__main__":
    main()
