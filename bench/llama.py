"""A decoder of Llama's shape with a static cache, in plain torch, and its weights in fewer bits."""

import dataclasses

import torch
from llama_shape import GROUP, Shape
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        own, shared = shape.heads * shape.head, shape.kv_heads * shape.head
        self.q = nn.Linear(shape.width, own, bias=False)
        self.k = nn.Linear(shape.width, shared, bias=False)
        self.v = nn.Linear(shape.width, shared, bias=False)
        self.o = nn.Linear(own, shape.width, bias=False)
        for name in ("keys", "values"):
            cache = torch.zeros(1, shape.kv_heads, shape.positions, shape.head)
            self.register_buffer(name, cache)

    def forward(self, x, places, turns, mask):
        shape, count = self.shape, x.shape[1]
        q = self.q(x).view(1, count, shape.heads, shape.head).transpose(1, 2)
        k = self.k(x).view(1, count, shape.kv_heads, shape.head).transpose(1, 2)
        v = self.v(x).view(1, count, shape.kv_heads, shape.head).transpose(1, 2)
        self.keys.index_copy_(2, places, turned(k, turns))
        self.values.index_copy_(2, places, v)
        y = functional.scaled_dot_product_attention(
            turned(q, turns), self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        return self.o(y.transpose(1, 2).reshape(1, count, -1))


def turned(x, turns):
    """Rotary embedding: `turns` are cosines and sines of [places, head]."""
    left, right = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat([-right, left], dim=-1) * turns[1]


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.before, self.behind = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x, *rest):
        x = x + self.attention(self.before(x), *rest)
        y = self.behind(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Logits of the last of the tokens, which are at `places` [count]."""

    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        at = torch.arange(shape.positions)
        rates = 5e5 ** (-torch.arange(0, shape.head, 2) / shape.head)
        angles = (at[:, None] * rates).repeat(1, 2)
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()]))
        self.register_buffer("seen", at)

    def forward(self, tokens, places):
        turns = self.turns[:, places]
        mask = self.seen <= places[:, None]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, places, turns, mask)
        return self.head(self.norm(x[:, -1:]))


def model_of(shape, weights, opaque=False):
    """Random weights, by torchao in fewer bits where `weights` says so. `opaque`: int4 as PyTorch
    packs it for this processor."""
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Llama(shape)
    model = model.to(torch.float32 if weights == "f32" else torch.bfloat16)
    model = model.to_empty(device="cpu").eval().requires_grad_(False)
    source = Llama(dataclasses.replace(shape, layers=0, vocabulary=1))
    for name, buffer in model.named_buffers():
        buffer.copy_(source.get_buffer(name)) if name in ("turns", "seen") else buffer.zero_()
    for parameter in model.parameters():
        nn.init.ones_(parameter) if parameter.ndim == 1 else nn.init.normal_(parameter, std=0.02)
    if weights not in ("f32", "bf16"):
        quantize(model, weights, opaque)
    return model


def quantize(model, weights, opaque):
    import torchao.quantization as ao
    from torchao.quantization.granularity import PerGroup

    if weights == "int8":
        config = ao.Int8WeightOnlyConfig()
    elif weights == "da8w4":
        config = ao.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(GROUP)
        )
    elif opaque:
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

        config = PrototypeInt4WeightOnlyConfig(group_size=GROUP)
    else:
        config = ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP))
    ao.quantize_(model, config)
