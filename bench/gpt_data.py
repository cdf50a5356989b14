"""What both sides of the GPT benchmark share: sizes, token numbers, and the initial parameters
from Tandem's file.
"""

import dataclasses
import json

import numpy as np


@dataclasses.dataclass(frozen=True)
class Config:
    vocabulary: int = 85
    context: int = 128
    width: int = 128
    heads: int = 4
    layers: int = 4
    batch: int = 16
    dropout: float = 0.0


# Of AdamW, with the gradient's norm clipped: as examples/demo.cc.
RATE, BETAS, EPSILON, DECAY, CLIP = 2e-3, (0.9, 0.99), 1e-8, 0.1, 1.0


def batches(config):
    """Tokens and targets: the generator of bench/train_gpt.cc."""
    state, values = 1, []
    for _ in range(2 * config.batch * config.context):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((state >> 33) % config.vocabulary)
    both = np.array(values, dtype=np.int64).reshape(2, config.batch, config.context)
    return both[0], both[1]


def parameters(path):
    """Arrays by name from a safetensors file: length of a JSON header, the header, the bytes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        body = file.read()
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            arrays[name] = np.frombuffer(body[first:last], dtype=np.float32).reshape(entry["shape"])
    return arrays
