"""The examples' models against the same models in PyTorch: same initial values, same batches, no
dropout. Losses of every step, and afterwards parameters, running statistics and optimizer state.
And the same bits at any number of threads."""

import copy
import json
import os
import pathlib
import subprocess

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "build" / "bin" / "train_curve"
DTYPES = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64}
STEPS = 50
TOLERANCE = 1e-4


def read_safetensors(path):
    """Tensors by name. The format is plain: length, JSON, bytes."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            array = numpy.frombuffer(data[begin + first : begin + last], DTYPES[entry["dtype"]])
            tensors[name] = torch.from_numpy(array.reshape(entry["shape"]).copy())
    return tensors


def tool(*arguments):
    """Losses that the tool prints."""
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    command = [TOOL, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return torch.tensor([float(line) for line in done.stdout.split()], dtype=torch.float64)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.project_in(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.project_out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """examples/gpt.h, with the same names."""

    def __init__(self, vocabulary, context=128, width=128, heads=4, layers=4):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class DigitsNet(nn.Module):
    """examples/digits_net.h, with the same names."""

    def __init__(self, channels=32):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(2 * channels)
        self.fc = nn.Linear(8 * channels, 10)

    def forward(self, images, labels):
        x = self.norm1(self.conv1(images)).relu()
        x = functional.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
        x = functional.max_pool2d(self.norm3(self.conv3(x)).relu(), 2)
        return functional.cross_entropy(self.fc(x.flatten(1)), labels)


def text_batches(path, batch=4, context=128):
    """Windows of a licence; (data for the model, size of the vocabulary)."""
    licence = pathlib.Path("/usr/share/common-licenses/GPL-3").read_bytes()
    text = numpy.frombuffer(licence, numpy.uint8)
    letters, codes = numpy.unique(text, return_inverse=True)
    starts = numpy.random.default_rng(0).integers(0, len(codes) - context, (STEPS, batch, 1))
    windows = codes[starts + numpy.arange(context + 1)].astype(numpy.int64)
    data = {"tokens": windows[..., :-1].copy(), "targets": windows[..., 1:].copy()}
    numpy.savez(path, **data)
    return data, len(letters)


def digit_batches(seed, batch=16):
    from sklearn.datasets import load_digits

    digits = load_digits()
    picks = numpy.random.default_rng(seed).integers(0, len(digits.target), (STEPS, batch))
    images = (digits.images[picks][:, :, None] / 16).astype(numpy.float32)
    return {"images": images, "labels": digits.target[picks].astype(numpy.int64)}


def eager_step(model, optimizer, batch, clip=0):
    loss = model(*batch)
    optimizer.zero_grad()
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


def train_eager(model, optimizer, data, clip=0):
    """Losses of all steps."""
    batches = zip(*(map(torch.from_numpy, values) for values in data.values()))
    losses = [eager_step(model, optimizer, batch, clip) for batch in batches]
    return torch.tensor(losses, dtype=torch.float64)


def eager_agrees_with_itself(model, make, data):
    """Whether f64 and f32 by each of torch's convolutions give one curve. relu and max have kinks:
    where an activation comes within rounding of one, two right answers part ways for good, by 1e-3
    and more in 50 steps."""
    exact, *rounded = copy.deepcopy(model).double(), copy.deepcopy(model), copy.deepcopy(model)
    optimizers = [make(each.parameters()) for each in (exact, *rounded)]
    for images, labels in zip(*map(torch.from_numpy, data.values())):
        expected = eager_step(exact, optimizers[0], (images.double(), labels))
        for each, optimizer, library in zip(rounded, optimizers[1:], (False, True), strict=True):
            with torch.backends.mkldnn.flags(enabled=library):
                actual = eager_step(each, optimizer, (images, labels))
            if abs(actual / expected - 1) > 0.2 * TOLERANCE:
                return False
    return True


def load(model, tensors):
    """Every parameter and buffer but the counters of batch norm, which Tandem has none of."""
    missing, unknown = model.load_state_dict(tensors, strict=False)
    assert not unknown and all(name.endswith("num_batches_tracked") for name in missing)


def distance(actual, expected):
    """Relative in the 2-norm."""
    expected = expected.detach().double()
    return ((actual.double() - expected).norm() / (expected.norm() + 1e-30)).item()


STATE = {"momentum": "momentum_buffer", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}


def compare_state(after, model, optimizer, limit):
    """`limit` holds for all but biases of attention's keys: their gradient is zero but for rounding
    (softmax does not see a shift), and Adam blows that up."""
    expected = {
        name: tensor for name, tensor in model.state_dict().items() if not name.endswith("_tracked")
    }
    for name, parameter in model.named_parameters():
        for ours, theirs in STATE.items():
            if theirs in optimizer.state[parameter]:
                expected[f"{name}:{ours}"] = optimizer.state[parameter][theirs]
    assert after["optimizer:step"].item() == STEPS
    for name in [name for name in expected if "project_in.bias" in name]:
        for tensors in (after, expected):
            query, _, value = tensors.pop(name).detach().chunk(3)
            tensors[name + " without key"] = torch.cat([query, value])
    far = {name: distance(after[name], tensor) for name, tensor in expected.items()}
    assert set(after) == set(far) | {"optimizer:step"}
    worst = max(far, key=far.get)
    print(f"largest distance afterwards: {far[worst]:.2e} of {worst}")
    far = {name: value for name, value in far.items() if not value < limit}
    assert not far


def compare(tmp_path, model, optimizer, data, arguments, limit, clip=0):
    """The tool's run from the model's initial values against eager's from the same."""
    after = tmp_path / "after.safetensors"
    losses = tool(
        *arguments,
        "--data",
        tmp_path / "data.npz",
        "--clip",
        clip,
        "--init",
        tmp_path / "init.safetensors",
        "--save",
        after,
    )
    expected = train_eager(model, optimizer, data, clip)
    assert len(losses) == STEPS and expected[-1] < 0.8 * expected[0]
    worst = ((losses - expected) / expected).abs().max().item()
    print(f"largest relative difference of a loss: {worst:.2e}")
    assert worst < TOLERANCE
    compare_state(read_safetensors(after), model, optimizer, limit)


def test_gpt(tmp_path):
    data, vocabulary = text_batches(tmp_path / "data.npz")
    arguments = ["gpt", "--vocabulary", vocabulary]
    tool(*arguments, "--steps", 0, "--save", tmp_path / "init.safetensors")
    model = Gpt(vocabulary)
    load(model, read_safetensors(tmp_path / "init.safetensors"))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
    arguments += ["--optimizer", "adamw", "--rate", 1e-3, "--decay", 0.1]
    compare(tmp_path, model, optimizer, data, arguments, limit=5e-3, clip=1)


OPTIMIZERS = {
    "sgd": (
        lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=1e-3),
        ["--optimizer", "sgd", "--rate", 0.01, "--momentum", 0.9, "--decay", 1e-3],
    ),
    "adamw": (
        lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.05),
        ["--optimizer", "adamw", "--rate", 1e-3, "--decay", 0.05],
    ),
}


@pytest.mark.filterwarnings("ignore:TF32")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_digits(tmp_path, name):
    make, options = OPTIMIZERS[name]
    tool("digits", "--steps", 0, "--save", tmp_path / "init.safetensors")
    model = DigitsNet()
    load(model, read_safetensors(tmp_path / "init.safetensors"))
    seed = next(
        seed for seed in range(100) if eager_agrees_with_itself(model, make, digit_batches(seed))
    )
    print("batches of seed", seed)
    data = digit_batches(seed)
    numpy.savez(tmp_path / "data.npz", **data)
    compare(tmp_path, model, make(model.parameters()), data, ["digits", *options], limit=1e-3)


STEPS_OF = {
    "gpt": ["gpt", "--optimizer", "adamw", "--rate", 1e-3, "--decay", 0.1, "--clip", 1],
    "gpt with dropout": [
        "gpt",
        "--optimizer",
        "adamw",
        "--rate",
        1e-3,
        "--clip",
        1,
        "--dropout",
        0.1,
    ],
    "digits": ["digits", "--optimizer", "sgd", "--rate", 0.05, "--momentum", 0.9],
    "digits with adamw": ["digits", "--optimizer", "adamw", "--rate", 1e-3, "--clip", 1],
}


@pytest.mark.parametrize("name", STEPS_OF)
def test_same_bits_at_any_number_of_threads(tmp_path, name):
    """Parameters, statistics and optimizer state after five steps; each process compiles anew."""
    if name.startswith("gpt"):
        text_batches(tmp_path / "data.npz")
    else:
        numpy.savez(tmp_path / "data.npz", **digit_batches(0, batch=64))

    def run(threads):
        after = tmp_path / "after.safetensors"
        losses = tool(
            *STEPS_OF[name],
            "--data",
            tmp_path / "data.npz",
            "--steps",
            5,
            "--threads",
            threads,
            "--save",
            after,
        )
        return losses.tolist(), after.read_bytes()

    losses, state = run(1)
    assert len(losses) == 5 and all(numpy.isfinite(losses)) and len(set(losses)) == 5
    for threads in [1, 2, 3, 8, 8]:
        again, after = run(threads)
        assert again == losses and after == state, f"{threads} threads"


def test_dropout_changes_the_loss(tmp_path):
    text_batches(tmp_path / "data.npz")
    losses = [
        tool("gpt", "--data", tmp_path / "data.npz", "--steps", 2, "--dropout", p)
        for p in (0, 0.1, 0.1)
    ]
    assert losses[0][0] != losses[1][0] and torch.equal(losses[1], losses[2])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "train_curve gpt|digits"),
        (["mlp"], "'mlp' is neither gpt nor digits"),
        (["digits", "--data"], "--data needs a value"),
        (["digits", "--date", "x"], "unknown option --date"),
        (["digits", "--data", "/no/such.npz"], "/no/such.npz"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments, message):
    done = subprocess.run([TOOL, *arguments], capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr
