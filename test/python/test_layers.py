"""Layers at sizes that are not known when compiling, and what op_check cannot ask: ops that write
operands, gradients of ops that may draw random numbers, targets that end with -1."""

import pytest
import torch
import torch.nn.functional as F

import tandem
from graphs import build

IMAGE = "%x: f32[s0, 4, s1, s2] {input grad}"
RANGES = "s0 in [1, 16], s1 in [2, 64], s2 in [2, 64]"

# Ops over an image of symbolic sizes, with what eager computes.
IMAGES = {
    "conv_transpose": (
        ", %w: f32[4, 3, 3, 3] {input grad}, %b: f32[3] {input grad}",
        "%r = aten.conv_transpose2d.input(%x, %w, %b, [2, 2], [1, 1], [1, 1])",
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
    ),
    "conv_transpose_long_padding": (
        ", %w: f32[4, 3, 3, 3] {input grad}, %b: f32[3] {input grad}",
        "%r = aten.conv_transpose2d.input(%x, %w, %b, [1, 1], [1, 1], [2, 1], 1, [3, 2])",
        lambda x, w, b: F.conv_transpose2d(x, w, b, 1, 1, (2, 1), 1, (3, 2)),
    ),
    "nearest": (
        "",
        "%r = aten.upsample_nearest2d.vec(%x, none, [2.0, 3.0])",
        lambda x: F.interpolate(x, scale_factor=(2, 3)),
    ),
    "bilinear": (
        "",
        "%r = aten.upsample_bilinear2d.vec(%x, none, false, [2.0, 1.5])",
        lambda x: F.interpolate(x, scale_factor=(2, 1.5), mode="bilinear"),
    ),
    "bilinear_aligned": (
        "",
        "%r = aten.upsample_bilinear2d.vec(%x, [17, 9], true, none)",
        lambda x: F.interpolate(x, (17, 9), mode="bilinear", align_corners=True),
    ),
    "bicubic": (
        "",
        "%r = aten.upsample_bicubic2d.vec(%x, none, false, [2.0, 2.0])",
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    ),
    "antialias": (
        "",
        "%r = aten._upsample_bilinear2d_aa(%x, [5, 7], false)",
        lambda x: F.interpolate(x, (5, 7), mode="bilinear", antialias=True),
    ),
    "reflect": (
        "",
        "%r = aten.pad(%x, [1, 1, 1, 0], \"reflect\")",
        lambda x: F.pad(x, (1, 1, 1, 0), "reflect"),
    ),
    "replicate": (
        "",
        "%r = aten.replication_pad2d(%x, [3, 1, 0, 4])",
        lambda x: F.pad(x, (3, 1, 0, 4), "replicate"),
    ),
    "circular": (
        "",
        "%r = aten.pad(%x, [1, 1, 1, 2], \"circular\")",
        lambda x: F.pad(x, (1, 1, 1, 2), "circular"),
    ),
    "adaptive_max": (
        "",
        "%r, %i = aten.adaptive_max_pool2d(%x, [3, 2])",
        lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    ),
    "max_pool1d": (
        "",
        "%f = aten.flatten.using_ints(%x, 2)\n%r = aten.max_pool1d(%f, [2], [2], [1])",
        lambda x: F.max_pool1d(x.flatten(2), 2, 2, 1),
    ),
    "unfold": (
        "",
        "%r = aten.im2col(%x, [2, 2], [1, 1], [1, 1], [2, 1])",
        lambda x: F.unfold(x, 2, 1, 1, (2, 1)),
    ),
    "pixel_shuffle": ("", "%r = aten.pixel_shuffle(%x, 2)", lambda x: F.pixel_shuffle(x, 2)),
    "channel_shuffle": ("", "%r = aten.channel_shuffle(%x, 2)", lambda x: F.channel_shuffle(x, 2)),
    "grid_sample": (
        ", %g: f32[s0, 3, 5, 2] {input grad}",
        "%r = aten.grid_sampler(%x, %g, 0, 1, false)",
        lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=False),
    ),
    "instance_norm": (
        ", %w: f32[4] {input grad}, %b: f32[4] {input grad}",
        "%r = aten.instance_norm(%x, %w, %b, none, none, true, 0.1, 1e-5, false)",
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    ),
    "group_norm": (
        ", %w: f32[4] {input grad}, %b: f32[4] {input grad}",
        "%r = aten.group_norm(%x, 2, %w, %b)",
        lambda x, w, b: F.group_norm(x, 2, w, b),
    ),
}


def close(actual, expected):
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5 * scale)


def check(executable, eager, inputs):
    """Results and gradients of all inputs that need one."""
    expected = eager(*inputs)
    tangent = torch.randn_like(expected)
    leaves = [x for x in inputs if x.requires_grad]
    result, *gradients = executable.run([x.detach() for x in inputs] + [tangent])
    close(result, expected.detach())
    wanted = torch.autograd.grad(expected, leaves, tangent)
    assert len(gradients) == len(wanted)
    for actual, gradient in zip(gradients, wanted):
        close(actual, gradient)


def operands(declared, batch):
    """Tensors for `, %w: f32[4, 3] {input grad}, …`."""
    found = []
    for text in declared.split("%")[1:]:
        sizes = text[text.index("[") + 1 : text.index("]")].replace("s0", str(batch))
        found.append(torch.randn([int(size) for size in sizes.split(",")], requires_grad=True))
    return found


@pytest.mark.parametrize("name", IMAGES)
def test_image_layers_at_any_size(name):
    declared, body, eager = IMAGES[name]
    executable = build(IMAGE + declared, body.split("\n"), where=RANGES, gradients="tangents")
    torch.manual_seed(0)
    for sizes in [(2, 4, 5, 6), (1, 4, 8, 4), (3, 4, 11, 16)]:
        x = torch.randn(sizes, requires_grad=True)
        check(executable, eager, [x, *operands(declared, sizes[0])])


def test_decoder():
    """Down by a pool, up by resamplings and a transposed convolution, a skip, reflected pads:
    what chooses layouts and fuses sees all of them together."""
    weights = ["8, 3, 3, 3", "8, 11, 3, 3", "8, 4, 4, 4"]
    declared = "".join(f", %w{i}: f32[{sizes}] {{input grad}}" for i, sizes in enumerate(weights))
    executable = build(
        "%x: f32[s0, 3, s1, s1] {input grad}" + declared,
        [
            "%a = aten.conv2d(%x, %w0, none, [1, 1], [1, 1])",
            "%b = aten.upsample_bilinear2d.vec(%a, none, false, [2.0, 2.0])",
            "%y = aten.upsample_nearest2d.vec(%x, none, [2.0, 2.0])",
            "%c = aten.cat([%b, %y], 1)",
            "%d = aten.max_pool2d(%c, [3, 3], [2, 2], [1, 1])",
            '%e = aten.pad(%d, [1, 1, 1, 1], "reflect")',
            "%f = aten.relu(%e)",
            "%g = aten.conv2d(%f, %w1)",
            "%h = aten.upsample_nearest2d.vec(%g, none, [2.0, 2.0])",
            "%r = aten.conv_transpose2d.input(%h, %w2, none, [2, 2], [1, 1])",
        ],
        where="s0 in [1, 8], s1 in [4, 64]",
        gradients="tangents",
    )

    def eager(x, w0, w1, w2):
        b = F.interpolate(F.conv2d(x, w0, padding=1), scale_factor=2, mode="bilinear")
        d = F.max_pool2d(torch.cat([b, F.interpolate(x, scale_factor=2)], 1), 3, 2, 1)
        g = F.conv2d(F.pad(d, (1, 1, 1, 1), "reflect").relu(), w1)
        return F.conv_transpose2d(F.interpolate(g, scale_factor=2), w2, stride=2, padding=1)

    for batch, size in [(2, 8), (1, 16)]:
        x = torch.randn(batch, 3, size, size, requires_grad=True)
        check(executable, eager, [x, *operands(declared, batch)])


def test_instance_norm_updates_running_statistics():
    executable = tandem.compile_text(
        """graph @g(%x: f32[2, 3, 4, 5], %m: f32[3], %v: f32[3]) {
          %r = aten.instance_norm(%x, none, none, %m, %v, true, 0.3, 1e-5, false)
          return %r
        }"""
    )
    x, mean, variance = torch.randn(2, 3, 4, 5), torch.randn(3), torch.rand(3)
    ours = [mean.clone(), variance.clone()]
    expected = F.instance_norm(x, mean, variance, momentum=0.3)
    close(executable.run([x, *ours])[0], expected)
    close(ours[0], mean)
    close(ours[1], variance)


def test_instance_norm_with_given_statistics():
    executable = build(
        "%x: f32[2, 3, 4], %m: f32[3], %v: f32[3]",
        "%r = aten.instance_norm(%x, none, none, %m, %v, false, 0.3, 1e-5, false)",
    )
    x, mean, variance = torch.randn(2, 3, 4), torch.randn(3), torch.rand(3)
    expected = F.instance_norm(x, mean, variance, use_input_stats=False)
    close(executable.run([x, mean, variance])[0], expected)


ATTENTION = {
    "plain": ("", {}),
    "causal": (", none, 0.0, true", {"is_causal": True}),
    "scale": (", scale=0.25", {"scale": 0.25}),
    "grouped": (", none, 0.0, true, enable_gqa=true", {"is_causal": True, "enable_gqa": True}),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_gradients(name):
    text, options = ATTENTION[name]
    heads = 2 if name == "grouped" else 4
    shape = f"f32[s0, {heads}, s1, 8] {{input grad}}"
    executable = build(
        f"%q: f32[s0, 4, s1, 8] {{input grad}}, %k: {shape}, %v: {shape}",
        f"%r = aten.scaled_dot_product_attention(%q, %k, %v{text})",
        where="s0 in [1, 8], s1 in [2, 64]",
        gradients="tangents",
    )
    for batch, length in [(2, 5), (1, 17)]:
        q = torch.randn(batch, 4, length, 8, requires_grad=True)
        k, v = (torch.randn(batch, heads, length, 8, requires_grad=True) for _ in range(2))

        def eager(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, **options)

        check(executable, eager, [q, k, v])


@pytest.mark.parametrize("dtype", ["bool", "f32"])
def test_attention_gradients_with_mask(dtype):
    """The third row sees nothing: its result and gradient are zero."""
    mask = torch.rand(5, 7) > 0.4
    mask[2] = False
    if dtype == "f32":
        mask = torch.zeros(5, 7).masked_fill(~mask, -torch.inf)
    executable = build(
        "%q: f32[2, 3, 5, 8] {input grad}, %k: f32[2, 3, 7, 8] {input grad},"
        f" %v: f32[2, 3, 7, 8] {{input grad}}, %m: {dtype}[5, 7]",
        "%r = aten.scaled_dot_product_attention(%q, %k, %v, %m)",
        gradients="tangents",
    )
    q = torch.randn(2, 3, 5, 8, requires_grad=True)
    k, v = (torch.randn(2, 3, 7, 8, requires_grad=True) for _ in range(2))
    check(executable, F.scaled_dot_product_attention, [q, k, v, mask])


def test_labels_up_to_the_first_minus_one():
    executable = build(
        "%x: f32[3, 4] {input grad}, %y: i64[3, 4]",
        "%r = aten.multilabel_margin_loss(%x, %y)",
        gradients="tangents",
    )
    x = torch.randn(3, 4, requires_grad=True)
    y = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [1, 1, 2, -1]])
    check(executable, F.multilabel_margin_loss, [x, y])


RECURRENT = {
    "lstm": (torch.nn.LSTM, {}),
    "projected": (torch.nn.LSTM, {"proj_size": 4}),
    "gru": (torch.nn.GRU, {"bias": False}),
    "rnn_tanh": (torch.nn.RNN, {}),
    "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}


@pytest.mark.parametrize("length", ["6", "s1"])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_at_any_batch(name, length):
    """And of any length, where that is not known: then each direction is a scan."""
    module, options = RECURRENT[name]
    layer = module(3, 5, num_layers=2, bidirectional=True, batch_first=True, **options)
    lstm = module is torch.nn.LSTM
    op = "lstm" if lstm else name
    width = options.get("proj_size", 5)
    biases = "true" if layer.bias else "false"
    names = [f"%p{i}" for i in range(len(layer._flat_weights))]
    params = [
        f"{name}: f32{list(weight.shape)} {{input grad}}"
        for name, weight in zip(names, layer._flat_weights)
    ]
    states = f"%h: f32[4, s0, {width}]" + (", %c: f32[4, s0, 5]" if lstm else "")
    results = "%r, %hn, %cn" if lstm else "%r, %hn"
    executable = build(
        f"%x: f32[s0, {length}, 3] {{input grad}}, {states}, {', '.join(params)}",
        f"{results} = aten.{op}.input(%x, {'[%h, %c]' if lstm else '%h'}, [{', '.join(names)}],"
        f" {biases}, 2, 0.0, false, true, true)",
        where="s0 in [1, 16]" + (", s1 in [1, 64]" if length == "s1" else ""),
        gradients="tangents",
    )
    for batch, steps in [(2, 6), (7, 6), (3, 17)][: 3 if length == "s1" else 2]:
        x = torch.randn(batch, steps, 3, requires_grad=True)
        hx = [torch.randn(4, batch, size) for size in [width, 5][: 1 + lstm]]

        def eager(x, *_):
            return layer(x, tuple(hx) if lstm else hx[0])[0]

        check(executable, eager, [x, *hx, *layer._flat_weights])


def test_no_length_is_refused():
    with pytest.raises(tandem.UserError, match="has no steps"):
        build(
            "%x: f32[0, 2, 3], %h: f32[1, 2, 5], %w: f32[5, 3], %u: f32[5, 5]",
            "%r, %n = aten.rnn_relu.input(%x, %h, [%w, %u], false, 1, 0.0, false, false, false)",
        )
