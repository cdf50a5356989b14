"""The GPT of examples/gpt.cc in PyTorch: eager, or compiled by Inductor."""

import gpt_data
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.project_in = nn.Linear(config.width, 3 * config.width)
        self.project_out = nn.Linear(config.width, config.width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.project_in(x).view(batch, length, 3, self.config.heads, -1)
        q, k, v = (qkv.select(2, i).transpose(1, 2) for i in range(3))
        mixed = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.config.dropout, is_causal=True
        )
        return self.project_out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Gpt(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens, targets):
        x = self.dropout(self.token(tokens) + self.position(torch.arange(tokens.shape[1])))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def training_step(config, arrays, compiled):
    """A function that trains one step and returns the loss."""
    torch.manual_seed(0)
    model = Gpt(config)
    model.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
    optimizer = torch.optim.AdamW(
        model.parameters(),
        gpt_data.RATE,
        gpt_data.BETAS,
        gpt_data.EPSILON,
        gpt_data.DECAY,
        fused=True,
    )
    tokens, targets = (torch.from_numpy(array) for array in gpt_data.batches(config))
    loss_of = torch.compile(model) if compiled else model

    def update():
        torch.nn.utils.clip_grad_norm_(model.parameters(), gpt_data.CLIP, foreach=True)
        optimizer.step()

    def step():
        optimizer.zero_grad()
        loss = loss_of(tokens, targets)
        loss.backward()
        update()
        return loss.item()

    return step
