"""Saved bytes and products computed again, beside PyTorch's partitioner on the same models.

Nothing is timed. Each model is traced once for training; PyTorch's joint graph (with Inductor's
decompositions) is cut by its min-cut partitioner at some budgets, and Tandem's own joint graph of
the same model by its partitions. Arguments count for neither side, nor do values that a forward
returns anyway. `--write` puts the table into docs/partition.md. Needs transformers.
"""

import argparse
import bisect
import functools
import pathlib
import re
import subprocess
import sys

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
import torch._inductor.lowering  # noqa: F401  a decomposition of pools asks it
from torch._inductor.decomposition import select_decomp_table
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.flop_counter import flop_registry

import tandem
from table_page import write_between

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "models"))

import convnets  # noqa: E402
import own  # noqa: E402

PAGE = ROOT / "docs" / "partition.md"
MARKS = ("<!-- table: bench/partitions.py --write -->", "<!-- end of the table -->")
OTHER_MARKS = (
    "<!-- table: bench/partitions.py --others --write -->", "<!-- end of the other table -->"
)
FRACTIONS = (1.0, 0.7, 0.5, 0.3, 0.1)
OWN = ("as_read", "default", "min_cut")


def _transformers():
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def _gpt2(layers, width, batch, length):
    library = _transformers()
    config = library.GPT2Config(
        n_layer=layers, n_embd=width, n_head=4, vocab_size=4096, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, use_cache=False,
    )
    tokens = torch.randint(0, 4096, (batch, length))
    return library.GPT2LMHeadModel(config), {"input_ids": tokens}


def _bert(layers, width, batch, length):
    library = _transformers()
    config = library.BertConfig(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=4,
        intermediate_size=4 * width, vocab_size=4096, attention_probs_dropout_prob=0,
        hidden_dropout_prob=0,
    )
    return library.BertModel(config), {"input_ids": torch.randint(0, 4096, (batch, length))}


def _images(batch, side):
    return {"pixel_values": torch.randn(batch, 3, side, side)}


def _vit(layers, width, batch, side):
    library = _transformers()
    config = library.ViTConfig(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=4,
        intermediate_size=4 * width, image_size=side, patch_size=8,
        attention_probs_dropout_prob=0, hidden_dropout_prob=0,
    )
    return library.ViTModel(config), _images(batch, side)


def _resnet(batch, side, depths=(3, 4, 6, 3), kind="bottleneck"):
    library = _transformers()
    config = library.ResNetConfig(depths=list(depths), layer_type=kind)
    return library.ResNetForImageClassification(config), _images(batch, side)


def _mobilenet_v2(batch, side):
    return convnets.Classified(convnets.mobilenet_v2()), _images(batch, side)


def _efficientnet(batch, side):
    return convnets.Classified(convnets.efficientnet()), _images(batch, side)


def _unet(width, batch, side):
    return own.UNet(dropout=0.0, width=width), own.segmentation(batch, side)


MODELS = {
    "GPT-2, 4 layers of 256, 2 x 512": lambda: _gpt2(4, 256, 2, 512),
    "BERT, 4 layers of 256, 2 x 512": lambda: _bert(4, 256, 2, 512),
    "ViT, 4 layers of 256, 4 x 64": lambda: _vit(4, 256, 4, 64),
    "ResNet-50, 2 x 64 x 64": lambda: _resnet(2, 64),
    "MobileNet V2, 2 x 64 x 64": lambda: _mobilenet_v2(2, 64),
    "U-Net, 2 x 64 x 64": lambda: _unet(32, 2, 64),
}
# By which nothing was chosen.
OTHERS = {
    "GPT-2, 6 layers of 192, 3 x 128": lambda: _gpt2(6, 192, 3, 128),
    "BERT, 3 layers of 320, 4 x 96": lambda: _bert(3, 320, 4, 96),
    "ViT, 6 layers of 128, 3 x 96": lambda: _vit(6, 128, 3, 96),
    "ResNet-34, 3 x 96 x 96": lambda: _resnet(3, 96, kind="basic"),
    "ResNet-101, 1 x 96 x 96": lambda: _resnet(1, 96, depths=(3, 4, 23, 3)),
    "MobileNet V2, 3 x 96 x 96": lambda: _mobilenet_v2(3, 96),
    "EfficientNet B0, 2 x 64 x 64": lambda: _efficientnet(2, 64),
    "U-Net of width 24, 3 x 48 x 48": lambda: _unet(24, 3, 48),
}


def first_of(outputs):
    """One result, so that what is saved for it is all that is saved."""
    for name in ("logits", "last_hidden_state"):
        if hasattr(outputs, name):
            return getattr(outputs, name)
    return outputs[0] if isinstance(outputs, tuple) else outputs


# --- PyTorch


def _storage(node):
    return StorageWeakRef(node.meta["val"].untyped_storage())


def saved_bytes_of(forward, results):
    """Of storages, each once: a view keeps all of what it shows a part of."""
    outputs = next(node for node in forward.graph.nodes if node.op == "output").args[0]
    given = {_storage(n) for n in forward.graph.nodes if n.op == "placeholder"
             and isinstance(n.meta["val"], torch.Tensor)}
    given |= {_storage(n) for n in outputs[:results] if isinstance(n, torch.fx.Node)}
    sizes = {}
    for node in outputs[results:]:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and _storage(node) not in given:
            sizes[_storage(node)] = value.untyped_storage().nbytes()
    return sum(sizes.values())


def attention_flops(node):
    """Of scores and of what they weigh: PyTorch's counter has no entry for its kernel of a CPU."""
    query, key = (node.args[i].meta["val"].shape for i in (0, 1))
    return 4 * query.numel() * key[-2]


def is_attention(node):
    return "scaled_dot_product" in str(node.target)


def is_backward(node):
    return "backward" in str(node.target)


def product_flops(node):
    if is_attention(node) and not is_backward(node):
        return attention_flops(node)
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return 0
    values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args]
    return count(*values, **node.kwargs, out_val=node.meta["val"])


def scores_flops(node):
    """PyTorch's attention saves no scores: the kernel of its gradient makes them again inside."""
    if not is_attention(node) or not is_backward(node):
        return 0
    query, key = (node.args[i].meta["val"].shape for i in (1, 2))
    return 2 * query.numel() * key[-2]


def by_pytorch(model, inputs, budget):
    found = {}

    def partition(joint, arguments, *, num_fwd_outputs, **options):
        forward, backward = min_cut_rematerialization_partition(
            joint, arguments, num_fwd_outputs=num_fwd_outputs, **options
        )
        forward_names = {n.name for n in forward.graph.nodes if n.op == "call_function"}
        found["saved"] = saved_bytes_of(forward, num_fwd_outputs)
        found["flops"] = sum(
            product_flops(node)
            for node in backward.graph.nodes
            if node.op == "call_function" and node.name in forward_names
        )
        found["flops"] += sum(
            scores_flops(node) for node in backward.graph.nodes if node.op == "call_function"
        )
        return forward, backward

    def as_it_is(graph, examples):
        del examples
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=as_it_is, bw_compiler=as_it_is, partition_fn=partition,
        decompositions=select_decomp_table(),
    )
    with functorch_config.patch(activation_memory_budget=budget, enable_autograd_cache=False):
        torch.compile(lambda **given: first_of(model(**given)), backend=backend)(**inputs)
    return found["saved"], found["flops"]


# --- Tandem

CUT = re.compile(r"cut of @.* values saved, (\d+) bytes.* us, (\d+) flops of products")
MADE = re.compile(r"^  saved +(\d+) bytes  %\w+ = ", re.MULTILINE)  # beside arguments
CHOICE = re.compile(r"^ +(\d+)  #* ", re.MULTILINE)
COMMAND = ROOT / "build" / "bin" / "tandem"


def by_tandem(model, inputs, budget):
    torch._dynamo.reset()
    tandem.reset_report()
    options = {
        "memory_budget": budget, "memory_budget_cost": "flops", "report": True,
        "on_unsupported": "error",
    }
    torch.compile(
        lambda **given: first_of(model(**given)), backend=tandem.backend, options=options
    )(**inputs)
    (graph,) = tandem.report()["graphs"]
    return graph["memory"]["saved"], int(CUT.match(graph["cut"]).group(2)), graph["text"]


class Choices:
    """Those of a graph's fractions, by the command, which compiles nothing. In bytes beside
    arguments, fewest first."""

    def __init__(self, model, inputs, text):
        self.model, self.inputs, self.text = model, inputs, text
        self.most = min(self.cut(budget)[0] for budget in ("min_cut", "as_read"))
        self.listed = [bytes_ for bytes_ in self.cut(0)[1] if bytes_ <= self.most]

    def cut(self, budget):
        """Bytes that are saved, and those of all choices."""
        words = [COMMAND, "partition", "--budget", str(budget), "--cost", "flops"]
        shown = subprocess.run(
            words, input=self.text, capture_output=True, text=True, check=True
        ).stdout
        made = sum(int(each) for each in MADE.findall(shown))
        return made, [int(each) for each in CHOICE.findall(shown)]

    @functools.cache  # noqa: B019  a choice is compiled once
    def found(self, at):
        """What a compiled step saves and computes again."""
        least, room = self.listed[0], max(1, self.most - self.listed[0])
        fraction = min(1.0, (self.listed[at] - least) / room + 1e-9)
        return by_tandem(self.model, self.inputs, fraction)[:2]

    def within(self, saved):
        """The largest choice that saves no more than so many bytes, and the first that was tried.
        Blocks are rounded up, and what is a result as well is saved for nothing: what is listed
        says about how many."""
        first = max(0, bisect.bisect(self.listed, saved) - 1)
        beyond = self.listed[first] - self.found(first)[0]
        at = max(0, bisect.bisect(self.listed, saved + beyond) - 1)
        while at > 0 and self.found(at)[0] > saved:
            at -= 1
        while at + 1 < len(self.listed) and self.found(at + 1)[0] <= saved:
            at += 1
        return [self.found(at), self.found(first)]


# --- the table


def cell(saved, flops):
    text = f"{saved / 2**20:.2f}"
    return f"{text} ({flops / 1e6:.0f})" if flops else text


def nearest(choices, saved, flops):
    """Of those that save no more, the one that computes least again; fewest bytes of equal ones."""
    fitting = [choice for choice in choices if choice[0] <= saved]
    return min(fitting or choices, key=lambda c: (c[1] > flops, c[1] if fitting else c[0], c[0]))


def rows_of(name, make):
    torch.manual_seed(0)
    model, inputs = make()
    model.train()
    theirs = [by_pytorch(model, inputs, fraction) for fraction in FRACTIONS]
    cuts = [by_tandem(model, inputs, budget) for budget in OWN]
    named, choices = [cut[:2] for cut in cuts], Choices(model, inputs, cuts[0][2])
    found = [choice for saved, _ in theirs for choice in choices.within(saved)]
    ours = [nearest(named + found, *each) for each in theirs]
    yield f"| {name} | PyTorch | | | | {' | '.join(cell(*each) for each in theirs)} |"
    cells = [cell(*each) for each in named]
    for own, other in zip(ours, theirs, strict=True):
        mark = "" if own[0] <= other[0] and own[1] <= other[1] else " ✗"
        cells.append(cell(*own) + mark)
    yield f"| | Tandem | {' | '.join(cells)} |"


def table(models):
    own = " | ".join(f"`{budget}`" for budget in OWN)
    heads = " | ".join(f"{fraction:g}" for fraction in FRACTIONS)
    yield f"| model | | {own} | {heads} |"
    yield "|---|---|" + "---|" * (len(OWN) + len(FRACTIONS))
    for name, make in models.items():
        for row in rows_of(name, make):
            print(row, flush=True)
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="the table goes into docs")
    parser.add_argument("--only", default="", help="models whose name holds this")
    parser.add_argument("--others", action="store_true", help="other models, a table of their own")
    chosen = parser.parse_args()
    models = OTHERS if chosen.others else MODELS
    lines = list(table({n: m for n, m in models.items() if chosen.only.lower() in n.lower()}))
    if chosen.write:
        write_between(PAGE, OTHER_MARKS if chosen.others else MARKS, lines)


if __name__ == "__main__":
    main()
