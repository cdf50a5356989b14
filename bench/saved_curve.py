"""Training with saved activations in 8 bits: the demo's character GPT (examples/demo.cc), several
of them in one process, each with its own storage, all with the same start, batches and masks of
dropout.

They take turns, a step each, so that what slows one step slows all: compared are medians of step
times, the held-out loss on the way, and what forward saves. `--write` puts the table into
docs/partition.md. Runs for some ten minutes.
"""

import argparse
import dataclasses
import math
import pathlib
import random
import statistics
import sys
import time

import gpt_data
import gpt_torch
import measure
import torch
from table_page import write_between
from torch import nn

import tandem

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "partition.md"
MARKS = ("<!-- table: bench/saved_curve.py --write -->", "<!-- end of the curve -->")
TEXTS = pathlib.Path("/usr/share/common-licenses")
STORAGES = (None, "f8e4m3fn", "f8e5m2", "int8_row")
HOLD_OUT_EVERY, EVALUATE_EVERY, WARM_UP = 10, 100, 50


# --- text, as examples/corpus.cc cuts it


def paragraphs():
    """Each once: licences quote each other."""
    files = [path for path in sorted(TEXTS.iterdir()) if path.is_file() and not path.is_symlink()]
    seen = set()
    for text in dict.fromkeys(path.read_bytes().decode("latin-1") for path in files):
        lines = "\n".join(line if line.strip() else "" for line in text.split("\n"))
        for paragraph in filter(None, (each.strip("\n") for each in lines.split("\n\n"))):
            key = "".join(c for c in paragraph.lower() if c.isalnum())
            if key not in seen:
                seen.add(key)
                yield paragraph + "\n\n"


def corpus():
    """Tokens to train on, tokens held out, size of the vocabulary."""
    parts = list(paragraphs())
    held = "".join(parts[HOLD_OUT_EVERY - 1 :: HOLD_OUT_EVERY])
    kept = "".join(p for i, p in enumerate(parts) if i % HOLD_OUT_EVERY != HOLD_OUT_EVERY - 1)
    token = {c: i for i, c in enumerate(sorted(set(kept)))}
    tensors = (torch.tensor([token[c] for c in text if c in token]) for text in (kept, held))
    return *tensors, len(token)


def windows(tokens, starts, context):
    chosen = torch.stack([tokens[start : start + context + 1] for start in starts])
    return chosen[:, :-1].contiguous(), chosen[:, 1:].contiguous()


# --- contenders


def initialize(model, config):
    """The deviations of examples/gpt.cc."""
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue
        deviation = 1 / math.sqrt(parameter.shape[1])
        if "project_out" in name or "down" in name:
            deviation /= math.sqrt(2 * config.layers)
        deviation = {"token.weight": 0.5, "position.weight": 0.1}.get(name, deviation)
        nn.init.normal_(parameter, std=deviation)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)


class Contender:
    def __init__(self, config, storage, steps):
        torch.manual_seed(1)
        self.storage, self.steps = storage, steps
        self.model = gpt_torch.Gpt(config)
        initialize(self.model, config)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), gpt_data.RATE, gpt_data.BETAS, gpt_data.EPSILON,
            gpt_data.DECAY, fused=True,
        )
        options = {"on_unsupported": "error", "report": True, "save_activations": storage}
        self.loss_of = torch.compile(self.model, backend=tandem.backend, options=options)
        self.times, self.curve, self.smooth = [], [], None

    def rate(self, number):
        """Warm-up, then a cosine down to a tenth: that of the demo."""
        warm = min(1, (number + 1) / WARM_UP)
        turn = math.cos(math.pi * number / self.steps)
        return gpt_data.RATE * warm * (0.1 + 0.45 * (1 + turn))

    def step(self, number, batch):
        torch.manual_seed(1000 + number)  # of dropout
        self.optimizer.param_groups[0]["lr"] = self.rate(number)
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.loss_of(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), gpt_data.CLIP, foreach=True)
        self.optimizer.step()
        self.times.append((time.perf_counter() - start) * 1e3)
        self.smooth = loss.item() * 0.05 + 0.95 * (self.smooth or loss.item())

    def evaluate(self, batches):
        self.model.eval()
        with torch.no_grad():
            self.curve.append(statistics.mean(self.model(*batch).item() for batch in batches))
        self.model.train()


def evaluation(tokens, config):
    last = len(tokens) - config.context - 1
    starts = [last * i // (4 * config.batch - 1) for i in range(4 * config.batch)]
    chunks = (starts[i : i + config.batch] for i in range(0, len(starts), config.batch))
    return [windows(tokens, chunk, config.context) for chunk in chunks]


def saved_by_each(contenders):
    """Bytes, in the order of the graphs' compilation."""
    graphs = [graph for graph in tandem.report()["graphs"] if graph["training"]]
    assert len(graphs) == len(contenders)
    return [graph["memory"]["saved"] for graph in graphs]


def train(contenders, config, tokens, held_out, steps):
    draw = random.Random(1)
    batches = evaluation(held_out, config)
    for number in range(steps):
        starts = [draw.randrange(len(tokens) - config.context) for _ in range(config.batch)]
        batch = windows(tokens, starts, config.context)
        first = number % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            contender.step(number, batch)
        if (number + 1) % EVALUATE_EVERY == 0 or number + 1 == steps:
            for contender in contenders:
                contender.evaluate(batches)
            shown = "  ".join(
                f"{each.storage or 'whole'} {each.smooth:.4f}/{each.curve[-1]:.4f} "
                f"{statistics.median(each.times):.1f} ms"
                for each in contenders
            )
            measure.progress(f"  {number + 1}: {shown}")


def table(contenders, saved):
    yield (
        "| saved as | MiB saved | of whole | step, ms, median (quartiles) | of whole | held-out "
        "loss | farthest from whole on the way |"
    )
    yield "|---|---|---|---|---|---|---|"
    whole = contenders[0]
    for each, own in zip(contenders, saved, strict=True):
        low, middle, high = statistics.quantiles(each.times[10:], n=4)
        base = statistics.median(whole.times[10:])
        off = max(abs(a / b - 1) for a, b in zip(each.curve, whole.curve, strict=True))
        yield (
            f"| {each.storage or 'whole'} | {own / 2**20:.2f} | {own / saved[0]:.3f} "
            f"| {middle:.1f} ({low:.1f}–{high:.1f}) | {middle / base:.3f} "
            f"| {each.curve[-1]:.4f} | {100 * off:.2f} % |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1100)
    parser.add_argument("--write", action="store_true", help="the table goes into docs")
    parser.add_argument("--only", nargs="*", default=None, help="storages beside whole")
    chosen = parser.parse_args()
    torch.set_num_threads(measure.THREADS)
    tokens, held_out, vocabulary = corpus()
    config = dataclasses.replace(gpt_data.Config(), vocabulary=vocabulary, dropout=0.1)
    storages = STORAGES if chosen.only is None else (None, *chosen.only)
    measure.progress(f"{len(tokens)} characters, {len(held_out)} held out, {vocabulary} distinct")
    contenders = [Contender(config, storage, chosen.steps) for storage in storages]
    train(contenders, config, tokens, held_out, chosen.steps)
    lines = list(table(contenders, saved_by_each(contenders)))
    print("\n".join(lines))
    if chosen.write:
        write_between(PAGE, MARKS, lines)


if __name__ == "__main__":
    sys.exit(main())
