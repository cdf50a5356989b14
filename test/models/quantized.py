"""Models in 8 bits: converted by torchao (static, dynamic, trained with fake quantization),
compiled frozen, beside their graphs in eager and with exact products.

    PYTHONPATH=build/python .venv/bin/python test/models/quantized.py [NAME...]

prints a row for each: how many convolutions and linear layers there are, how many of them are
products of integers, and how far ours and eager are from the exact graph. Language and vision
models are transformers', small; the others are defined here.
"""

import argparse
import dataclasses
import os
import sys

import torch
from torch import nn

HERE = os.path.dirname(__file__)
sys.path[:0] = [
    HERE,
    os.path.join(HERE, "..", "python"),
    os.path.join(HERE, "..", "conformance", "quant"),
]

import convnets  # noqa: E402
import own  # noqa: E402
from converted import (  # noqa: E402
    Exact,
    compiled_once,
    distance,
    quantize,
    quantize_in_training,
)
from entry import spread, tensors_of  # noqa: E402

WAYS = ("static", "dynamic", "trained")


# --- models


def basic(before, after, stride):
    branch = nn.Sequential(
        *convnets.unit(before, after, 3, stride), *convnets.unit(after, after, 3, act=None)
    )
    return convnets.Residual(branch, shortcut(before, after, stride), nn.ReLU())


def bottleneck(before, after, stride):
    narrow = after // 4
    branch = nn.Sequential(
        *convnets.unit(before, narrow),
        *convnets.unit(narrow, narrow, 3, stride),
        *convnets.unit(narrow, after, act=None),
    )
    return convnets.Residual(branch, shortcut(before, after, stride), nn.ReLU())


def shortcut(before, after, stride):
    is_same = before == after and stride == 1
    return None if is_same else convnets.unit(before, after, 1, stride, act=None)


def resnet(block, stages, stem, classes):
    """`stages`: pairs (blocks, channels)."""
    layers = [*convnets.unit(3, stem, 7, 2), nn.MaxPool2d(3, 2, 1)]
    before = stem
    for number, (count, after) in enumerate(stages):
        for i in range(count):
            layers.append(block(before, after, 2 if i == 0 and number > 0 else 1))
            before = after
    return nn.Sequential(*layers, convnets.classifier(before, classes))


class Segments(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = own.UNet(0.0)
        self.register_buffer("labels", torch.zeros(2, 16, 16, dtype=torch.long))

    def forward(self, images):
        return self.net(images, self.labels)[1]


class Attention(nn.Module):
    """With a causal mask or none."""

    def __init__(self, width, heads, is_causal):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.heads, self.is_causal = heads, is_causal

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """Norms behind the sums, as BERT has them."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads, False)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        x = self.first(x + self.attention(x))
        return self.second(x + self.narrow(nn.functional.gelu(self.wide(x))))


class GatedBlock(nn.Module):
    """Norms in front, and a gate, as Llama has them."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads, True)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        y = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Transformer(nn.Module):
    def __init__(self, block, width=32, vocabulary=50):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(block(width, 4), block(width, 4))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens)))


class First(nn.Module):
    """Of a model of transformers: the first result for arguments in order."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return tensors_of(self.model(**dict(zip(self.names, inputs, strict=True))))[0]


def image():
    return (torch.randn(2, 3, 32, 32),)


def small_image():
    return (torch.randn(2, 3, 16, 16),)


def tokens():
    return (torch.randint(0, 50, (2, 12)),)


OWN = {
    "resnet, basic": (lambda: resnet(basic, ((2, 16), (2, 32)), 16, 5), image),
    "resnet, bottleneck": (lambda: resnet(bottleneck, ((2, 32), (2, 64)), 16, 5), image),
    "mobilenet_v2": (convnets.TINY["mobilenet_v2"], image),
    "mobilenet_v3": (convnets.TINY["mobilenet_v3"], image),
    "unet": (Segments, small_image),
    "encoder": (lambda: Transformer(Block), tokens),
    "decoder": (lambda: Transformer(GatedBlock), tokens),
}
TRANSFORMERS = ("bert", "distilbert", "vit", "swin", "llama", "resnet")


def of_transformers(name):
    import text
    import vision

    entries = {entry.name: entry for entry in text.ENTRIES + vision.IMAGE_ENTRIES}
    entry = entries[name]
    arguments = {key: x for key, x in entry.arguments().items() if key != "labels"}
    return (lambda: First(entry.build(0.0), list(arguments))), (lambda: tuple(arguments.values()))


def make(name):
    build, inputs = OWN[name] if name in OWN else of_transformers(name.removesuffix(", hf"))
    torch.manual_seed(1)
    model = build().eval()
    spread(model)
    torch.manual_seed(2)
    return model, inputs()


# --- the judgement


@dataclasses.dataclass
class Row:
    name: str
    way: str
    layers: int  # convolutions and linear layers
    quantized: int  # of them, by torchao
    integers: int  # products of integers
    floats: list  # other products with a dequantized factor
    ours: float  # from the exact graph
    eager: float

    def text(self):
        cells = [self.name, self.way, self.layers, self.quantized, self.integers]
        cells += [f"{self.ours:.1e}", f"{self.eager:.1e}", "; ".join(self.floats)]
        return "| " + " | ".join(map(str, cells)) + " |"


HEAD = """| model | way | layers | quantized | of integers | ours | eager | in floats |
|---|---|---|---|---|---|---|---|"""


def is_dequantized(node):
    """By way of casts and views."""
    while isinstance(node, torch.fx.Node) and node.op == "call_function":
        if "dequantize" in str(node.target):
            return True
        if not any(word in str(node.target) for word in ("_to_copy", "view", "reshape", "permute")):
            return False
        node = node.args[0]
    return False


def layers_of(converted):
    kinds = ("aten.conv", "aten.linear")
    nodes = [n for n in converted.graph.nodes if any(kind in str(n.target) for kind in kinds)]
    return nodes, [node for node in nodes if is_dequantized(node.args[0])]


def convert(model, inputs, way):
    if way == "trained":
        return quantize_in_training(model, *inputs)
    return quantize(model, *inputs, is_dynamic=way == "dynamic")


def judge(name, way):
    model, inputs = make(name)
    converted = convert(model, inputs, way)
    layers, quantized = layers_of(converted)
    with torch.no_grad():
        exact, eager = Exact(converted).run(*inputs), converted(*inputs)
    ours, graph = compiled_once(converted, *inputs, int8=None)
    products = graph["quantized products"]
    return Row(
        name,
        way,
        len(layers),
        len(quantized),
        sum(not reason for _, reason in products),
        [f"{product}: {reason}" for product, reason in products if reason],
        distance(ours, exact),
        distance(eager, exact),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    print(HEAD)
    for name in options.names or [*OWN, *(f"{each}, hf" for each in TRANSFORMERS)]:
        for way in options.ways.split(","):
            print(judge(name, way).text(), flush=True)


if __name__ == "__main__":
    main()
