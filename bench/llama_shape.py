"""The shape of a Llama of a billion weights, and how many bytes of them a token reads."""

import dataclasses

GROUP = 32
BITS = {"f32": 32, "bf16": 16, "int8": 8, "int4": 4 + 16 / GROUP, "da8w4": 4 + 16 / GROUP}


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int = 16
    width: int = 2048
    inner: int = 8192
    heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 32000
    positions: int = 1024

    @property
    def head(self):
        return self.width // self.heads


def weight_bytes(shape, bits):
    """Of the linear layers, which a token reads once; `bits` of a weight, its scales included."""
    own, shared = shape.heads * shape.head, shape.kv_heads * shape.head
    layer = shape.width * (2 * own + 2 * shared + 3 * shape.inner)
    return (shape.layers * layer + shape.vocabulary * shape.width) * bits / 8
