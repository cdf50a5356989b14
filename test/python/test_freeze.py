"""Frozen programs against PyTorch eager in evaluation mode."""

import pytest
import torch

import tandem
from graphs import graph_text
from machine import FEWEST_ROWS, IS_ZEN4, PACKS_F32


def type_of(tensor):
    name = {torch.float32: "f32", torch.int64: "i64", torch.bfloat16: "bf16"}[tensor.dtype]
    return f"{name}{list(tensor.shape)}"


class Frozen:
    """A module's state as parameters of a graph, compiled with and without freezing."""

    def __init__(self, module, data, lines, where=""):
        self.module = module.eval()
        self.names = {name.replace(".", "_"): name for name in module.state_dict()}
        weights = [
            f'%{short}: {type_of(module.state_dict()[name])} {{param "{name}"}}'
            for short, name in self.names.items()
        ]
        text = graph_text(", ".join([data, *weights]), lines, "%r", where)
        self.live = tandem.compile_text(text)
        self.frozen = tandem.compile_text(text, freeze=True)
        self.frozen.bind_constants(self.weights())

    def weights(self):
        state = self.module.state_dict()
        return {short: state[name] for short, name in self.names.items()}

    def compare(self, x, tolerance=1e-5):
        with torch.no_grad():
            expected = self.module(x)
        frozen = self.frozen.run([x])[0]
        live = self.live.run([x, *self.weights().values()])[0]
        for result in frozen, live:
            torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)

    def refresh(self, tolerance=1e-5, x=None):
        """Weights change in place; what setup made of them follows when it is told."""
        with torch.no_grad():
            for value in self.weights().values():
                if value.is_floating_point():
                    value.mul_(1.25)
            old, new = self.frozen.run([x])[0], self.module(x)
        assert not torch.allclose(old, new, rtol=1e-3, atol=1e-3)
        self.frozen.refresh()
        self.compare(x, tolerance)


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(1100, 64))
        self.down = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


@pytest.mark.parametrize("most", [7, 4096])
def test_mlp_with_weight_norm(most):
    """g v / |v| is computed once; the product reads it packed, the library's where rows are few."""
    torch.manual_seed(1)
    lines = [
        "%sq = aten.mul.Tensor(%up_parametrizations_weight_original1,"
        " %up_parametrizations_weight_original1)",
        "%sum = aten.sum.dim_IntList(%sq, [1], true)",
        "%norm = aten.sqrt(%sum)",
        "%unit = aten.div.Tensor(%up_parametrizations_weight_original1, %norm)",
        "%w = aten.mul.Tensor(%unit, %up_parametrizations_weight_original0)",
        "%h = aten.linear(%x, %w, %up_bias)",
        "%t = aten.tanh(%h)",
        "%r = aten.linear(%t, %down_weight, %down_bias)",
    ]
    net = Frozen(Mlp(), "%x: f32[s0, 1100]", lines, where=f"s0 in [2, {most}]")
    for rows in [2, 5, 7] if most == 7 else [2, 5, 64, 300, 2]:
        net.compare(torch.randn(rows, 1100))
    frozen, live = net.frozen.counts, net.live.counts
    assert frozen["instructions"] < live["instructions"]
    assert frozen["setup_instructions"] > 0 == live["setup_instructions"]
    by_library = most < FEWEST_ROWS or not IS_ZEN4  # whose loops take long sums, too
    assert frozen["setup_runs"] == 1
    assert (frozen["packed_bytes"] > 0) == (PACKS_F32 and by_library)
    net.refresh(x=torch.randn(7, 1100))
    assert net.frozen.counts["setup_runs"] == 2


def of_slices(op, x, weight, counts):
    """Results of the operator with the first so many rows of one frozen weight, in one graph."""
    lines = []
    for number, count in enumerate(counts):
        lines += [
            f"%w{number} = aten.slice.Tensor(%w, 0, 0, {count})",
            f"%r{number} = aten.{op}(%x, %w{number})",
        ]
    results = ", ".join(f"%r{number}" for number in range(len(counts)))
    inputs = f'%x: {type_of(x)}, %w: {type_of(weight)} {{param "w"}}'
    frozen = tandem.compile_text(graph_text(inputs, lines, results), freeze=True)
    frozen.bind_constants({"w": weight})
    return frozen.run([x])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slices_of_one_weight(dtype):
    """Products of two and of three packed blocks at one place of a constant: the shorter pack is
    none of the longer."""
    torch.manual_seed(4)
    weight = torch.randn(256, 1100).to(dtype)
    x = torch.randn(16, 1100).to(dtype)
    rows = [128, 192, 256, 64, 192]
    results = of_slices("linear", x, weight, rows)
    whole = x.double() @ weight.double().T
    for row, actual in zip(rows, results):
        expected = whole[:, :row].to(dtype)
        tolerance = 1e-4 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slices_of_one_kernel(dtype):
    """Convolutions with the first channels of a constant weight."""
    torch.manual_seed(5)
    weight = torch.randn(192, 16, 3, 3).to(dtype)
    x = torch.randn(1, 16, 6, 6).to(dtype)
    channels = [64, 128, 192, 128]
    results = of_slices("conv2d", x, weight, channels)
    whole = torch.nn.functional.conv2d(x.double(), weight.double())
    tolerance = 1e-4 if dtype == torch.float32 else 2**-7
    for count, actual in zip(channels, results):
        expected = whole[:, :count].to(dtype)
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


class Block(torch.nn.Module):
    """Rotary attention and a gelu MLP, with residuals."""

    def __init__(self, width=32, heads=4, length=12):
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.register_buffer("frequency", 1.0 / 10 ** torch.linspace(0, 2, self.head))
        self.register_buffer("position", torch.arange(float(length)))

    def turned(self, x):
        angle = self.position[:, None] * self.frequency
        return x * angle.cos() + x.flip(-1) * angle.sin()

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, self.head)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def turned(name):
    return [
        f"%{name}c = aten.mul.Tensor(%{name}, %cos)",
        f"%{name}f = aten.flip(%{name}, [3])",
        f"%{name}s = aten.mul.Tensor(%{name}f, %sin)",
        f"%{name}t = aten.add.Tensor(%{name}c, %{name}s)",
    ]


def test_transformer_block():
    torch.manual_seed(2)
    lines = [
        "%n = aten.layer_norm(%x, [32], %norm_weight, %norm_bias)",
        "%p = aten.linear(%n, %qkv_weight, %qkv_bias)",
        "%parts = aten.view(%p, [s0, 12, 3, 4, 8])",
        "%column = aten.unsqueeze(%position, 1)",
        "%angle = aten.mul.Tensor(%column, %frequency)",
        "%cos = aten.cos(%angle)",
        "%sin = aten.sin(%angle)",
    ]
    for number, name in enumerate("qkv"):
        lines += [
            f"%{name}0 = aten.select.int(%parts, 2, {number})",
            f"%{name} = aten.transpose.int(%{name}0, 1, 2)",
        ]
    lines += turned("q") + turned("k")
    lines += [
        "%m = aten.scaled_dot_product_attention(%qt, %kt, %v, none, 0.0, true)",
        "%mt = aten.transpose.int(%m, 1, 2)",
        "%mr = aten.reshape(%mt, [s0, 12, 32])",
        "%o = aten.linear(%mr, %out_weight, %out_bias)",
        "%y = aten.add.Tensor(%x, %o)",
        "%u = aten.linear(%y, %up_weight, %up_bias)",
        "%g = aten.gelu(%u)",
        "%d = aten.linear(%g, %down_weight, %down_bias)",
        "%r = aten.add.Tensor(%y, %d)",
    ]
    net = Frozen(Block(), "%x: f32[s0, 12, 32]", lines, where="s0 in [2, 64]")
    for batch in [2, 3, 16]:
        net.compare(torch.randn(batch, 12, 32), 2e-5)
    assert net.frozen.counts["setup_instructions"] > 0
    assert net.frozen.counts["instructions"] <= net.live.counts["instructions"]
    net.refresh(5e-5, torch.randn(4, 12, 32))


class ConvNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(16)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, stride=2, groups=2)
        self.norm2 = torch.nn.BatchNorm2d(32, eps=1e-3)
        self.conv3 = torch.nn.Conv2d(32, 8, 1)
        self.head = torch.nn.Linear(8 * 25, 10)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        return self.head(self.conv3(self.norm2(self.conv2(x))).flatten(1))


def trained(net):
    """A few batches in training mode, so that statistics are not 0 and 1."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(5):
        loss = net(torch.randn(8, 3, 12, 12) * 2 + 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def test_conv_net_with_batch_norm():
    torch.manual_seed(3)
    lines = [
        "%a = aten.conv2d(%x, %conv1_weight, none, [1, 1], [1, 1])",
        "%b = aten.batch_norm(%a, %norm1_weight, %norm1_bias, %norm1_running_mean,"
        " %norm1_running_var, false, 0.1, 1e-5, false)",
        "%c = aten.relu(%b)",
        "%d = aten.conv2d(%c, %conv2_weight, %conv2_bias, [2, 2], [0, 0], [1, 1], 2)",
        "%e = aten.batch_norm(%d, %norm2_weight, %norm2_bias, %norm2_running_mean,"
        " %norm2_running_var, false, 0.1, 1e-3, false)",
        "%f = aten.conv2d(%e, %conv3_weight, %conv3_bias)",
        "%g = aten.flatten.using_ints(%f, 1)",
        "%r = aten.linear(%g, %head_weight, %head_bias)",
    ]
    net = Frozen(trained(ConvNet()), "%x: f32[4, 3, 12, 12]", lines)
    net.compare(torch.randn(4, 3, 12, 12))
    # The second norm has no relu behind it: its kernel is gone, and its parameters are not read.
    assert net.frozen.counts["instructions"] < net.live.counts["instructions"]
    assert net.frozen.inputs == ["x"]
    net.refresh(x=torch.randn(4, 3, 12, 12))


def test_channels_last_weight_is_used_as_it_is():
    weight = torch.randn(8, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    text = graph_text(
        '%x: f32[2, 4, 6, 6], %w: f32[8, 4, 3, 3]{36, 1, 12, 4} {param "w"}',
        "%r = aten.conv2d(%x, %w)",
        "%r",
    )
    frozen = tandem.compile_text(text, freeze=True)
    frozen.bind_constants({"w": weight})
    assert frozen.counts["constant_bytes"] == 0
    x = torch.randn(2, 4, 6, 6)
    expected = torch.nn.functional.conv2d(x, weight)
    torch.testing.assert_close(frozen.run([x])[0], expected, rtol=1e-5, atol=1e-5)


def test_mistakes():
    text = graph_text('%x: f32[3], %w: f32[3] {param "w"}', "%r = aten.mul.Tensor(%x, %w)", "%r")
    frozen = tandem.compile_text(text, freeze=True)
    assert frozen.constants == ["w"]
    with pytest.raises(tandem.UserError, match="no value is given for the constants 'w'"):
        frozen.run([torch.ones(3)])
    with pytest.raises(tandem.UserError, match=r"constant 'w': expected f32\[3\], got f32\[4\]"):
        frozen.bind_constants({"w": torch.ones(4)})
    with pytest.raises(tandem.UserError, match="constant 'w' is no tensor on the CPU"):
        frozen.bind_constants({"w": "ones"})
    with pytest.raises(tandem.UserError, match="no gradients"):
        tandem.compile_text(text, "tangents", freeze=True)
