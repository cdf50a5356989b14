"""Convolution networks after the tables of their papers, padded as most code pads: an argument of
the convolution. Full-size for bench/, cut short for the tests."""

import torch
import torch.nn.functional as F
from entry import Entry
from torch import nn


class Pool(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def classifier(channels, classes):
    return nn.Sequential(Pool(), nn.Linear(channels, classes))


def unit(before, after, kernel=1, stride=1, groups=1, act=nn.ReLU, pads_apart=False):
    """Convolution, batch norm, activation. `pads_apart`: the padding is a layer of its own."""
    pad = kernel // 2
    layers = [nn.ZeroPad2d(pad)] if pads_apart and pad else []
    pad = 0 if pads_apart else pad
    layers.append(nn.Conv2d(before, after, kernel, stride, pad, groups=groups, bias=False))
    layers.append(nn.BatchNorm2d(after))
    return nn.Sequential(*layers, *([act()] if act else []))


class Squeeze(nn.Module):
    """Channels weighed by what the whole image says."""

    def __init__(self, channels, hidden, act, gate):
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, hidden, 1),
            act(),
            nn.Conv2d(hidden, channels, 1),
            gate(),
        )

    def forward(self, x):
        return x * self.layers(x)


class Residual(nn.Module):
    """The sum of a branch and what it was given, by way of `skip`; then `act`."""

    def __init__(self, branch, skip=None, act=None):
        super().__init__()
        self.branch = branch
        self.skip = skip or nn.Identity()
        self.act = act or nn.Identity()

    def forward(self, x):
        return self.act(self.skip(x) + self.branch(x))


# --- inverted residuals: MobileNetV2 and V3, EfficientNet


def inverted(before, wide, after, kernel, stride, act, squeeze=None, pads_apart=False):
    """Widened, each channel by itself, narrowed."""
    layers = [unit(before, wide, act=act)] if wide != before else []
    layers.append(unit(wide, wide, kernel, stride, wide, act, pads_apart))
    layers += [squeeze] if squeeze else []
    layers.append(unit(wide, after, act=None))
    branch = nn.Sequential(*layers)
    return Residual(branch) if stride == 1 and before == after else branch


MOBILENET_V2 = (  # factor, channels, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(rows=MOBILENET_V2, stem=32, head=1280, classes=1000, pads_apart=False):
    layers = [unit(3, stem, 3, 2, act=nn.ReLU6, pads_apart=pads_apart)]
    channels = stem
    for factor, after, blocks, stride in rows:
        for block in range(blocks):
            step = stride if block == 0 else 1
            layers.append(
                inverted(channels, channels * factor, after, 3, step, nn.ReLU6,
                         pads_apart=pads_apart)
            )  # fmt: skip
            channels = after
    layers += [unit(channels, head, act=nn.ReLU6), classifier(head, classes)]
    return nn.Sequential(*layers)


EFFICIENTNET_B0 = (  # factor, channels, blocks, stride of the first, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet(rows=EFFICIENTNET_B0, stem=32, head=1280, classes=1000):
    layers = [unit(3, stem, 3, 2, act=nn.SiLU)]
    channels = stem
    for factor, after, blocks, stride, kernel in rows:
        for block in range(blocks):
            wide = channels * factor
            squeeze = Squeeze(wide, max(1, channels // 4), nn.SiLU, nn.Sigmoid)
            step = stride if block == 0 else 1
            layers.append(inverted(channels, wide, after, kernel, step, nn.SiLU, squeeze))
            channels = after
    layers += [unit(channels, head, act=nn.SiLU), classifier(head, classes)]
    return nn.Sequential(*layers)


MOBILENET_V3_LARGE = (  # kernel, widened to, channels, squeezes, hard swish, stride
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def mobilenet_v3(rows=MOBILENET_V3_LARGE, stem=16, last=960, head=1280, classes=1000):
    layers = [unit(3, stem, 3, 2, act=nn.Hardswish)]
    channels = stem
    for kernel, wide, after, squeezes, is_hard, stride in rows:
        hidden = (wide // 4 + 4) // 8 * 8
        squeeze = Squeeze(wide, hidden, nn.ReLU, nn.Hardsigmoid) if squeezes else None
        act = nn.Hardswish if is_hard else nn.ReLU
        layers.append(inverted(channels, wide, after, kernel, stride, act, squeeze))
        channels = after
    layers.append(unit(channels, last, act=nn.Hardswish))
    layers += [Pool(), nn.Linear(last, head), nn.Hardswish(), nn.Linear(head, classes)]
    return nn.Sequential(*layers)


# --- RegNetY


def regnet_block(before, after, stride, group):
    branch = nn.Sequential(
        unit(before, after),
        unit(after, after, 3, stride, after // group),
        Squeeze(after, max(1, before // 4), nn.ReLU, nn.Sigmoid),
        unit(after, after, act=None),
    )
    is_same = before == after and stride == 1
    skip = None if is_same else unit(before, after, 1, stride, act=None)
    return Residual(branch, skip, nn.ReLU())


REGNET_Y_400MF = ((48, 1), (104, 3), (208, 6), (440, 6))  # channels, blocks


def regnet_y(stages=REGNET_Y_400MF, stem=32, group=8, classes=1000):
    layers = [unit(3, stem, 3, 2)]
    channels = stem
    for after, blocks in stages:
        for block in range(blocks):
            layers.append(regnet_block(channels, after, 2 if block == 0 else 1, group))
            channels = after
    return nn.Sequential(*layers, classifier(channels, classes))


# --- DenseNet


def norm_first(before, after, kernel=1):
    convolution = nn.Conv2d(before, after, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(), convolution)


class Dense(nn.Module):
    """What a layer makes stands behind all that it was given."""

    def __init__(self, before, growth):
        super().__init__()
        narrow = norm_first(before, 4 * growth)
        self.layers = nn.Sequential(narrow, norm_first(4 * growth, growth, 3))

    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1)


def densenet(blocks=(6, 12, 24, 16), growth=32, stem=64, classes=1000):
    first = nn.Conv2d(3, stem, 7, 2, 3, bias=False)
    layers = [first, nn.BatchNorm2d(stem), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = stem
    for number, count in enumerate(blocks):
        if number > 0:
            layers += [norm_first(channels, channels // 2), nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(count):
            layers.append(Dense(channels, growth))
            channels += growth
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), classifier(channels, classes)]
    return nn.Sequential(*layers)


# --- ShuffleNetV2


class Shuffle(nn.Module):
    """Two halves of the channels, one convolved, then dealt out in turn. At stride 2 each branch
    sees all channels."""

    def __init__(self, before, after, stride):
        super().__init__()
        half = after // 2
        self.splits = stride == 1
        enters = half if self.splits else before
        self.convolved = nn.Sequential(
            unit(enters, half), unit(half, half, 3, stride, half, None), unit(half, half)
        )
        self.other = nn.Identity()
        if not self.splits:
            shrunk = unit(before, before, 3, stride, before, None)
            self.other = nn.Sequential(shrunk, unit(before, half))

    def forward(self, x):
        a, b = x.chunk(2, 1) if self.splits else (x, x)
        return F.channel_shuffle(torch.cat([self.other(a), self.convolved(b)], 1), 2)


SHUFFLENET_V2 = ((116, 4), (232, 8), (464, 4))  # channels, blocks


def shufflenet_v2(stages=SHUFFLENET_V2, stem=24, head=1024, classes=1000):
    layers = [unit(3, stem, 3, 2), nn.MaxPool2d(3, 2, 1)]
    channels = stem
    for after, blocks in stages:
        for block in range(blocks):
            layers.append(Shuffle(channels, after, 2 if block == 0 else 1))
            channels = after
    return nn.Sequential(*layers, unit(channels, head), classifier(head, classes))


# --- cut short


class Classified(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, pixel_values):
        return self.network(pixel_values)


def images(batch, side):
    return dict(pixel_values=torch.randn(batch, 3, side, side))


SIDES = ((4, 32), (3, 48), (5, 40))

TINY = {
    "mobilenet_v2": lambda: mobilenet_v2(((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 1, 1)), 8, 40, 5),
    "mobilenet_v2, pads apart": lambda: mobilenet_v2(
        ((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 1, 1)), 8, 40, 5, pads_apart=True
    ),
    "efficientnet": lambda: efficientnet(((1, 8, 1, 1, 3), (6, 12, 2, 2, 5)), 8, 40, 5),
    "mobilenet_v3": lambda: mobilenet_v3(
        ((3, 8, 8, False, False, 1), (5, 24, 12, True, False, 2), (3, 40, 12, True, True, 1)),
        8, 40, 24, 5,
    ),  # fmt: skip
    "regnet_y": lambda: regnet_y(((16, 1), (24, 2)), 8, 8, 5),
    "densenet": lambda: densenet((2, 3), 8, 16, 5),
    "shufflenet_v2": lambda: shufflenet_v2(((16, 2), (24, 2)), 8, 32, 5),
}

ENTRIES = [
    Entry(f"own {name}", lambda p, build=build: Classified(build()), images, SIDES)
    for name, build in TINY.items()
]
