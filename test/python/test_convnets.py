"""Convolution networks, whose activations lie channels-last from end to end, against PyTorch eager:
results and every gradient, at all the ways a convolution can be called, and the same bits at any
number of threads. Inputs and outputs keep eager's strides."""

import itertools
import re

import pytest
import torch
from torch.nn import functional as F

import tandem
from graphs import build

TYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-12, torch.bfloat16: 2e-2}


class Net:
    """A graph, its parameters and the same in eager, layer by layer."""

    def __init__(self, x, dtype=torch.float32, batch=None):
        torch.manual_seed(0)
        self.dtype = dtype
        self.lines, self.layers, self.inputs, self.arrays = [], [], [], []
        self.batch = batch
        self.last = self.add_input(torch.randn(x), "x", batch)
        self.shape = list(x)

    def add_input(self, array, name, batch=None, grad=True):
        sizes = ", ".join(map(str, [batch or array.shape[0], *array.shape[1:]]))
        number = len(self.arrays)
        mark = " {input grad}" if grad else ""
        self.inputs.append(f"%{name}{number}: {TYPES[self.dtype]}[{sizes}]{mark}")
        self.arrays.append(array.to(self.dtype))
        return f"%{name}{number}"

    def call(self, op, arguments, layer):
        self.lines.append(f"%v{len(self.lines)} = aten.{op}({self.last}{arguments})")
        self.last = f"%v{len(self.lines) - 1}"
        self.layers.append(layer)
        return self

    def conv(self, out, kernel, stride=1, padding=0, dilation=1, groups=1, bias=False):
        """No bias before a norm in training: its gradient is zero but for rounding."""
        dims = len(self.shape) - 2
        weight = torch.randn(out, self.shape[1] // groups, *[kernel] * dims)
        at = len(self.arrays)
        w = self.add_input(weight / weight[0].numel() ** 0.5, "w")
        b = self.add_input(torch.randn(out), "b") if bias else "none"
        numbers = [str([number] * dims) for number in (stride, padding, dilation)]
        span = (kernel - 1) * dilation + 1
        space = [(size + 2 * padding - span) // stride + 1 for size in self.shape[2:]]
        self.shape = [self.shape[0], out, *space]
        function = [F.conv1d, F.conv2d, F.conv3d][dims - 1]
        return self.call(
            f"conv{dims}d",
            f", {w}, {b}, {', '.join(numbers)}, {groups}",
            lambda x, p: function(
                x, p[at], p[at + 1] if bias else None, stride, padding, dilation, groups
            ),
        )

    def norm(self, training=True):
        channels = self.shape[1]
        at = len(self.arrays)
        names = [
            self.add_input(torch.rand(channels) + 0.5, "g"),
            self.add_input(torch.randn(channels), "b"),
            self.add_input(torch.randn(channels), "mean", grad=False),
            self.add_input(torch.rand(channels) + 0.5, "var", grad=False),
        ]
        flag = str(training).lower()
        return self.call(
            "batch_norm",
            f", {', '.join(names)}, {flag}, 0.1, 1e-5, true",
            lambda x, p: F.batch_norm(
                x, p[at + 2].clone(), p[at + 3].clone(), p[at], p[at + 1], training, 0.1, 1e-5
            ),
        )

    def relu(self):
        return self.call("relu", "", lambda x, p: x.relu())

    def max_pool(self, size, stride, padding=0):
        self.shape[2:] = [(n + 2 * padding - size) // stride + 1 for n in self.shape[2:]]
        return self.call(
            "max_pool2d",
            f", [{size}, {size}], [{stride}, {stride}], [{padding}, {padding}]",
            lambda x, p: F.max_pool2d(x, size, stride, padding),
        )

    def avg_pool(self, size):
        self.shape[2:] = [n // size for n in self.shape[2:]]
        return self.call("avg_pool2d", f", [{size}, {size}]", lambda x, p: F.avg_pool2d(x, size))

    def linear(self, out):
        count = torch.Size(self.shape[1:]).numel()
        self.call("flatten.using_ints", ", 1", lambda x, p: x.flatten(1))
        at = len(self.arrays)
        w = self.add_input(torch.randn(out, count) / count**0.5, "w")
        self.shape = [self.shape[0], out]
        return self.call("linear", f", {w}", lambda x, p: F.linear(x, p[at]))

    def compile(self, **options):
        where = f"{self.batch} in [2, 64]" if self.batch else ""
        inputs = ", ".join(self.inputs)
        return build(inputs, self.lines, self.last, where=where, gradients="tangents", **options)

    def eager(self, dtype):
        """Result and gradients; the sum is weighted, so that no gradient is zero by symmetry."""
        arrays = [array.to(dtype) for array in self.arrays]
        for array, text in zip(arrays, self.inputs):
            array.requires_grad_("grad" in text)
        result = arrays[0]
        for layer in self.layers:
            result = layer(result, arrays)
        wanted = [array for array in arrays if array.requires_grad]
        self.tangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
        return [result.detach(), *torch.autograd.grad(result, wanted, self.tangent.to(dtype))]

    def run(self, executable):
        arrays = [array.clone() for array in self.arrays]
        return executable.run([*arrays, self.tangent.to(self.dtype)])


def distance(actual, expected):
    """Relative in the 2-norm."""
    expected = expected.double()
    return ((actual.double() - expected).norm() / (expected.norm() + 1e-30)).item()


def compare(net, **options):
    expected = net.eager(torch.float64)
    actual = net.run(net.compile(**options))
    assert len(actual) >= len(expected)
    for result, wanted in zip(actual, expected):
        assert result.shape == wanted.shape and result.is_contiguous()
        far = distance(result, wanted)
        assert far < TOLERANCE[net.dtype], f"{tuple(result.shape)}: {far:.1e}"


def resnet_like(dtype=torch.float32, batch=None, images=4):
    net = Net([images, 3, 20, 18], dtype, batch)
    net.conv(16, 3, stride=2, padding=1).norm().relu().max_pool(3, 2, 1)
    net.conv(32, 3, padding=1).norm().relu()
    return net.conv(32, 1, bias=True).norm(training=False).relu().avg_pool(2).linear(5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_block(dtype):
    compare(resnet_like(dtype))


def test_block_in_bf16():
    """Rounded at every op: near eager's own distance from the exact result."""
    net = Net([4, 8, 12, 12], torch.bfloat16)
    net.conv(16, 3, padding=1).norm().relu().max_pool(2, 2).conv(16, 3, padding=1).avg_pool(2)
    exact, eager = net.eager(torch.float64), net.eager(torch.bfloat16)
    for ours, theirs, wanted in zip(net.run(net.compile()), eager, exact):
        assert distance(ours, wanted) < 2 * distance(theirs, wanted) + 0.02


def test_block_in_the_interpreter():
    compare(resnet_like(images=2), interpret=True)


def test_symbolic_batch():
    executable = resnet_like(batch="s0").compile()
    for images in [2, 5, 16, 3]:
        net = resnet_like(batch="s0", images=images)
        for result, wanted in zip(net.eager(torch.float64), net.run(executable)):
            assert distance(wanted, result) < TOLERANCE[torch.float32]


CONVOLUTIONS = {
    "stride": dict(kernel=3, stride=2, padding=1),
    "stride without padding": dict(kernel=2, stride=3),
    "dilation": dict(kernel=3, padding=2, dilation=2),
    "groups": dict(kernel=3, padding=1, groups=4),
    "depthwise": dict(kernel=3, padding=1, groups=16),
    "pointwise": dict(kernel=1),
    "wide kernel": dict(kernel=7, padding=3),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_in_the_middle(name):
    net = Net([3, 6, 13, 11]).conv(16, 3).norm().relu()
    compare(net.conv(16, **CONVOLUTIONS[name]).norm().relu().conv(8, 1, bias=True))


@pytest.mark.parametrize("space", [[40], [6, 5, 7]], ids=["1d", "3d"])
def test_other_dimensions(space):
    compare(Net([2, 4, *space]).conv(16, 3, padding=1).norm().relu().conv(8, 3, bias=True))


@pytest.mark.parametrize("sizes", list(itertools.product([1, 17], [1, 5])), ids=str)
def test_sizes_at_the_edge(sizes):
    """One channel or one place: the layouts are one there."""
    channels, space = sizes
    net = Net([2, channels, space, space]).conv(channels, 1, bias=True).relu()
    compare(net.conv(channels, 3, padding=1).norm().relu().conv(3, 1, bias=True))


def test_normalised_over_rows_and_groups():
    """What reads rows, planes and groups of channels of a value that is channels-last."""
    x, w, v = torch.randn(2, 8, 6, 10), torch.randn(12, 8, 3, 3) / 8, torch.randn(4, 12, 1, 1)
    inputs = "%x: f32[2, 8, 6, 10], %w: f32[12, 8, 3, 3], %v: f32[4, 12, 1, 1]"
    lines = [
        "%a = aten.conv2d(%x, %w, none, [1, 1], [1, 1])",
        "%b = aten.softmax.int(%a, -1)",
        "%c = aten.softmax.int(%a, 1)",
        "%d = aten.group_norm(%a, 3)",
        "%e = aten.layer_norm(%a, [12, 6, 10])",
        "%f = aten.mean.dim(%a, [2, 3], true)",
        "%g = aten.permute(%a, [0, 2, 3, 1])",
        "%h = aten.layer_norm(%g, [12])",
        "%i = aten.permute(%h, [0, 3, 1, 2])",
        "%s0 = aten.add.Tensor(%b, %c)",
        "%s1 = aten.add.Tensor(%s0, %d)",
        "%s2 = aten.add.Tensor(%s1, %e)",
        "%s3 = aten.add.Tensor(%s2, %i)",
        "%t = aten.mul.Tensor(%s3, %f)",
        "%r = aten.conv2d(%t, %v)",
    ]
    a = F.conv2d(x, w, padding=1)
    h = F.layer_norm(a.permute(0, 2, 3, 1), [12]).permute(0, 3, 1, 2)
    t = a.softmax(-1) + a.softmax(1) + F.group_norm(a, 3) + F.layer_norm(a, [12, 6, 10]) + h
    expected = F.conv2d(t * a.mean([2, 3], keepdim=True), v)
    for options in [{}, {"interpret": True}]:
        result = build(inputs, lines, **options).run([x, w, v])[0]
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_an_activation_that_is_a_result():
    """It is contiguous, as in eager, and so is what only a view of it shows."""
    x, w = torch.randn(2, 4, 6, 6), torch.randn(8, 4, 3, 3)
    inputs = "%x: f32[2, 4, 6, 6], %w: f32[8, 4, 3, 3], %v: f32[8, 8, 1, 1]"
    lines = [
        "%a = aten.conv2d(%x, %w)",
        "%b = aten.relu(%a)",
        "%c = aten.conv2d(%b, %v)",
        "%d = aten.permute(%c, [0, 2, 3, 1])",
    ]
    v = torch.randn(8, 8, 1, 1)
    results = build(inputs, lines, "%a, %b, %c, %d").run([x, w, v])
    a = F.conv2d(x, w)
    c = F.conv2d(a.relu(), v)
    for result, wanted in zip(results, [a, a.relu(), c, c.permute(0, 2, 3, 1)]):
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)
    assert all(result.is_contiguous() for result in results[:3])


def test_indices_of_a_pool_are_logical():
    x, w = torch.randn(2, 4, 9, 8), torch.randn(16, 4, 3, 3)
    lines = [
        "%a = aten.conv2d(%x, %w)",
        "%b, %i = aten.max_pool2d_with_indices(%a, [2, 2])",
    ]
    executable = build("%x: f32[2, 4, 9, 8], %w: f32[16, 4, 3, 3]", lines, "%b, %i")
    pooled, indices = executable.run([x, w])
    expected, wanted = F.max_pool2d(F.conv2d(x, w), 2, return_indices=True)
    torch.testing.assert_close(pooled, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(indices, wanted)


def test_channels_last_input():
    """Strides of an input are part of its type; the library reads them as they are."""
    x = torch.randn(2, 8, 6, 5).contiguous(memory_format=torch.channels_last)
    w = torch.randn(16, 8, 3, 3)
    inputs = "%x: f32[2, 8, 6, 5]{240, 1, 40, 8}, %w: f32[16, 8, 3, 3]"
    lines = ["%a = aten.conv2d(%x, %w)", "%r = aten.relu(%a)"]
    executable = build(inputs, lines, report=True)
    assert "note %x" not in executable.report
    torch.testing.assert_close(
        executable.run([x, w])[0], F.conv2d(x, w).relu(), rtol=1e-4, atol=1e-5
    )


def test_same_bits_at_any_number_of_threads():
    """Large enough that reductions are split and every kernel has several tasks."""
    net = Net([8, 3, 40, 36])
    net.conv(24, 3, padding=1).norm().relu().max_pool(3, 2, 1).conv(40, 3, stride=2).norm()
    net.relu().conv(40, 3, padding=1, groups=40).norm().relu().avg_pool(2).linear(7)
    compare(net)
    executable = net.compile(always_parallel=True)
    before = tandem.threads()
    try:
        runs = []
        for threads in [1, 2, 3, 8, 8]:
            tandem.set_threads(threads)
            runs.append(net.run(executable))
    finally:
        tandem.set_threads(before)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0]))


def test_saved_activations_stay_channels_last():
    """Between the two programs of a partition only what the caller sees is reordered."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 4, 3),
    )
    tandem.reset_report()
    torch._dynamo.reset()
    options = {"report": True, "on_unsupported": "error"}
    compiled = torch.compile(net, backend=tandem.backend, options=options)
    x = torch.randn(4, 8, 20, 20)
    gradients = []
    for call in (net, compiled):
        net.zero_grad()
        call(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-3)
    report = tandem.report()["graphs"][0]["kernels"]
    reordered = set(re.findall(r"note %(\w+): contiguous, reordered", report))
    assert reordered == {"a2", "tangent0"}
