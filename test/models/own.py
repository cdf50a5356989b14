"""Models written in plain torch.nn: what transformers does not have, or has as no small model."""

import math

import torch
import torch.nn.functional as F
from entry import Entry
from torch import nn

VOCABULARY = 50


# --- U-Net


def double_convolution(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Segmentation: two levels down, two up, by transposed convolutions."""

    def __init__(self, dropout, width=8, classes=3):
        super().__init__()
        self.enter = double_convolution(3, width)
        self.down = nn.ModuleList(
            double_convolution(width << i, width << (i + 1)) for i in range(2)
        )
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(width << (i + 1), width << i, 2, stride=2) for i in (1, 0)
        )
        self.up = nn.ModuleList(
            double_convolution(width << (i + 1), width << i) for i in (1, 0)
        )
        self.dropout = nn.Dropout2d(dropout)
        self.leave = nn.Conv2d(width, classes, 1)

    def forward(self, images, labels):
        x = self.enter(images)
        kept = []
        for down in self.down:
            kept.append(x)
            x = down(F.max_pool2d(x, 2))
        x = self.dropout(x)
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat([kept.pop(), grow(x)], dim=1))
        logits = self.leave(x)
        return F.cross_entropy(logits, labels), logits


def segmentation(batch, size):
    images = torch.randn(batch, 3, size, size)
    return dict(images=images, labels=torch.randint(0, 3, (batch, size, size)))


# --- DCGAN


class Gan(nn.Module):
    """Generator and discriminator of DCGAN, for 16 x 16 images."""

    def __init__(self, noise=12, width=8):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(noise, 2 * width, 4, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * width, 1, 4, bias=False),
        )

    def forward(self, noise, images, part="generator"):
        made = self.generator(noise)
        if part == "generator":
            judged = self.discriminator(made).flatten()
            return F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged)), made
        true = self.discriminator(images).flatten()
        false = self.discriminator(made.detach()).flatten()
        loss = F.binary_cross_entropy_with_logits(true, torch.ones_like(true))
        return loss + F.binary_cross_entropy_with_logits(false, torch.zeros_like(false)), made


def noise_and_images(batch, size):
    del size
    return dict(noise=torch.randn(batch, 12, 1, 1), images=torch.rand(batch, 3, 16, 16) * 2 - 1)


ALTERNATING = (
    (dict(part="discriminator"), "discriminator."),
    (dict(part="generator"), "generator."),
)


# --- DLRM


def perceptron(*widths):
    layers = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """Recommendation: bags of embeddings, dense features, dot products of all pairs."""

    def __init__(self, tables=(40, 30, 20), width=8, dense=13):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for rows in tables)
        self.bottom = perceptron(dense, 16, width)
        vectors = len(tables) + 1
        self.top = perceptron(width + vectors * (vectors - 1) // 2, 16, 1)
        rows, columns = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense, bags, labels):
        x = F.relu(self.bottom(dense))
        bagged = [table(bags[i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([x, *bagged], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, self.rows, self.columns]
        logits = self.top(torch.cat([x, pairs], dim=1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits, labels), logits


def clicks(batch, size):
    bags = torch.stack([torch.randint(0, rows, (batch, size)) for rows in (40, 30, 20)])
    labels = torch.randint(0, 2, (batch,)).float()
    return dict(dense=torch.rand(batch, 13), bags=bags, labels=labels)


# --- recurrent language models


class Recurrent(nn.Module):
    """A language model over nn.LSTM or nn.GRU."""

    def __init__(self, kind, dropout, width=16, **options):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = kind(width, width, 2, batch_first=True, dropout=dropout, **options)
        directions = 2 if options.get("bidirectional") else 1
        self.head = nn.Linear(directions * width, VOCABULARY)

    def forward(self, tokens, labels):
        x, state = self.layers(self.embedding(tokens))
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits, state


def sentences(batch, size):
    tokens = torch.randint(0, VOCABULARY, (batch, size + 1))
    return dict(tokens=tokens[:, :-1].contiguous(), labels=tokens[:, 1:].contiguous())


# --- MLP-Mixer


class MixerBlock(nn.Module):
    def __init__(self, patches, width, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.tokens = self._mixer(patches, 2 * patches, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.channels = self._mixer(width, 2 * width, dropout)

    @staticmethod
    def _mixer(width, hidden, dropout):
        return nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, width)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, dropout, size=16, patch=4, width=24, layers=2, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        count = (size // patch) ** 2
        self.blocks = nn.Sequential(*[MixerBlock(count, width, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images, labels):
        x = self.patches(images).flatten(2).transpose(1, 2)
        logits = self.head(self.norm(self.blocks(x)).mean(1))
        return F.cross_entropy(logits, labels), logits


def classified(batch, size):
    return dict(images=torch.randn(batch, 3, size, size), labels=torch.randint(0, 5, (batch,)))


# --- a diffusion U-Net


def time_embedding(times, width):
    half = width // 2
    frequencies = torch.exp(torch.arange(half, device=times.device) * (-math.log(1e4) / half))
    angles = times[:, None] * frequencies.to(times.dtype)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class ResidualBlock(nn.Module):
    def __init__(self, before, after, times, dropout):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, before)
        self.convolution1 = nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(times, after)
        self.norm2 = nn.GroupNorm(4, after)
        self.dropout = nn.Dropout(dropout)
        self.convolution2 = nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time):
        y = self.convolution1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.convolution2(self.dropout(F.silu(self.norm2(y))))


class SpatialAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, width)
        self.project_in = nn.Conv2d(width, 3 * width, 1)
        self.project_out = nn.Conv2d(width, width, 1)

    def forward(self, x):
        batch, width, high, wide = x.shape
        qkv = self.project_in(self.norm(x)).view(batch, 3, self.heads, -1, high * wide)
        q, k, v = qkv.transpose(3, 4).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.project_out(mixed.transpose(2, 3).reshape(batch, width, high, wide))


class DiffusionUNet(nn.Module):
    """Predicts the noise of an image at a time."""

    def __init__(self, dropout, width=8, times=16):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down1 = ResidualBlock(width, width, times, dropout)
        self.shrink = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.down2 = ResidualBlock(2 * width, 2 * width, times, dropout)
        self.attention = SpatialAttention(2 * width, 2)
        self.middle = ResidualBlock(2 * width, 2 * width, times, dropout)
        self.grow = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up = ResidualBlock(2 * width, width, times, dropout)
        self.leave = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 1))

    def forward(self, images, times, noise):
        time = self.time(time_embedding(times, self.width))
        first = self.down1(self.enter(images), time)
        x = self.attention(self.down2(self.shrink(first), time))
        x = F.interpolate(self.middle(x, time), scale_factor=2.0, mode="nearest")
        x = self.leave(self.up(torch.cat([self.grow(x), first], dim=1), time))
        return F.mse_loss(x, noise), x


def noisy(batch, size):
    images = torch.randn(batch, 3, size, size)
    return dict(images=images, times=torch.rand(batch) * 100, noise=torch.randn_like(images))


IMAGES = ((2, 16), (3, 24), (5, 20))
BATCHES = ((2, 16), (3, 16), (5, 16))
LENGTHS = ((2, 7), (3, 12), (5, 9))
# The steps of a recurrent network are unrolled: one compile serves one length.
ONE_LENGTH = ((2, 7), (3, 7), (5, 7))

ENTRIES = [
    Entry("unet", UNet, segmentation, IMAGES, has_dropout=True),
    Entry("dcgan", lambda p: Gan(), noise_and_images, BATCHES, phases=ALTERNATING),
    Entry("dlrm", lambda p: Dlrm(), clicks, LENGTHS),
    Entry("lstm", lambda p: Recurrent(nn.LSTM, p), sentences, ONE_LENGTH, has_dropout=True),
    Entry(
        "gru",
        lambda p: Recurrent(nn.GRU, p, bidirectional=True),
        sentences,
        ONE_LENGTH,
        has_dropout=True,
    ),
    Entry("mixer", Mixer, classified, BATCHES, has_dropout=True),
    Entry("diffusion_unet", DiffusionUNet, noisy, IMAGES, has_dropout=True),
]
