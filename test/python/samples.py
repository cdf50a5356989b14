"""The sample language of ops/opdef.h: `$[3, 4]{1, 3}:fill, [2, 6], alpha=2, dtype=bf16`.

A sample becomes arguments; arguments become the text of a one-op graph, and eager values."""

import dataclasses
import importlib
import math
import re

import torch
import torch._inductor.inductor_prims  # noqa: F401  (registers prims::fma)
import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers quantized_decomposed)

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}
# Eager has no such operators, or only beside another package.
WITHOUT_EAGER = ("tandem.", "transformers.")
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ["f32", "f64", "bf16", "f16"]
INTEGERS = ["i8", "u8", "i16", "i32", "i64"]
SETS = {
    "floats": FLOATS,
    "integers": INTEGERS,
    "numbers": FLOATS + INTEGERS,
    "all": FLOATS + INTEGERS + ["bool"],
    "f32_only": ["f32"],
    "booleans": ["bool"],
}


@dataclasses.dataclass
class Spec:
    """A tensor of a sample."""

    dtype: str
    sizes: list
    strides: list | None
    fill: str

    def type_text(self):
        strides = "" if self.strides is None else "{" + ", ".join(map(str, self.strides)) + "}"
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]{strides}"

    def make(self, generator):
        """Fresh values in memory of just the span that the strides need."""
        strides = self.strides if self.strides is not None else contiguous_strides(self.sizes)
        elements = 0
        if 0 not in self.sizes:
            elements = 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, strides))
        values = fill_values(self.fill, self.dtype, elements, generator)
        return values.as_strided(self.sizes, strides)


@dataclasses.dataclass
class Dtype:
    name: str


@dataclasses.dataclass
class Sample:
    positional: list
    named: dict

    def specs(self):
        """Tensors in order of appearance, lists included."""
        found = []
        for value in [*self.positional, *self.named.values()]:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Spec):
                    found.append(item)
        return found


def contiguous_strides(sizes):
    strides = [1] * len(sizes)
    for i in range(len(sizes) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(sizes[i + 1], 1)
    return strides


def fill_values(fill, dtype, count, generator):
    torch_dtype = DTYPES[dtype]
    index = re.fullmatch(r"index\((\d+)\)", fill)
    if index:
        return torch.randint(0, int(index[1]), (count,), generator=generator).to(torch_dtype)
    constant = re.fullmatch(r"constant\((.*)\)", fill)
    if constant:
        return torch.full((count,), float(constant[1])).to(torch_dtype)
    if fill == "halves":  # what rounding decides: halves, in order from about -count / 4
        return (torch.arange(count) - count // 2).div(2).to(torch_dtype)
    if fill == "bytes":
        low = 0 if dtype == "u8" else -128
        return torch.randint(low, low + 256, (count,), generator=generator).to(torch_dtype)
    if dtype == "bool" or fill == "bool":
        return torch.randint(0, 2, (count,), generator=generator).to(torch_dtype)
    if dtype in INTEGERS:
        low, high = (1, 7) if fill == "positive" else (0, 10) if dtype == "u8" else (-6, 7)
        return torch.randint(low, high, (count,), generator=generator).to(torch_dtype)
    if fill == "positive":
        return (torch.rand(count, generator=generator, dtype=torch.float64) * 3 + 0.1).to(
            torch_dtype
        )
    if fill == "unit":
        return (torch.rand(count, generator=generator, dtype=torch.float64) * 0.96 + 0.02).to(
            torch_dtype
        )
    values = torch.randn(count, generator=generator, dtype=torch.float64)
    if fill == "special":
        special = [
            math.nan,
            math.inf,
            -math.inf,
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1e-30,
            100.0,
            -100.0,
        ]
        where = torch.randint(0, 2 * len(special), (count,), generator=generator)
        for i, value in enumerate(special):
            values[where == i] = value
    elif fill != "normal":
        raise ValueError(f"unknown fill '{fill}'")
    return values.to(torch_dtype)


class _Reader:
    TOKEN = re.compile(
        r"\s*(\$|-?inf\b|-?\d+\.?\d*(?:[eE][-+]?\d+)?|[A-Za-z_]\w*|\"[^\"]*\"|[\[\]{}(),:=])"
    )

    def __init__(self, text, dtype):
        self.text = text
        self.dtype = dtype
        self.tokens = []
        at = 0
        while text[at:].strip():
            match = self.TOKEN.match(text, at)
            if not match:
                raise ValueError(f"sample '{text}' at '{text[at:]}'")
            self.tokens.append(match[1])
            at = match.end()

    def peek(self, ahead=0):
        return self.tokens[ahead] if len(self.tokens) > ahead else None

    def take(self, expected=None):
        token = self.tokens.pop(0)
        if expected is not None and token != expected:
            raise ValueError(f"sample '{self.text}': '{token}' instead of '{expected}'")
        return token

    def arguments(self):
        sample = Sample([], {})
        while self.tokens:
            if self.peek(1) == "=":
                name = self.take()
                self.take("=")
                sample.named[name] = self.value()
            else:
                sample.positional.append(self.value())
            if self.tokens:
                self.take(",")
        return sample

    def value(self):
        token = self.peek()
        if token == "[":
            return self.items("[", "]")
        self.take()
        is_type = token == "$" or token in DTYPES
        if is_type and self.peek() == "[":
            return self.tensor(self.dtype if token == "$" else token)
        if is_type:
            return Dtype(self.dtype if token == "$" else token)
        if token in ("true", "false"):
            return token == "true"
        if token == "none":
            return None
        if token.startswith('"'):
            return token[1:-1]
        if token.lstrip("-") in ("inf", "nan"):
            return float(token)
        return float(token) if any(c in token for c in ".eE") else int(token)

    def items(self, opening, closing):
        self.take(opening)
        items = []
        while self.peek() != closing:
            items.append(self.value())
            if self.peek() != closing:
                self.take(",")
        self.take(closing)
        return items

    def tensor(self, dtype):
        sizes = self.items("[", "]")
        strides = self.items("{", "}") if self.peek() == "{" else None
        fill = "normal"
        if self.peek() == ":":
            self.take()
            fill = self.take()
            if self.peek() == "(":
                self.take("(")
                fill += f"({self.take()})"
                self.take(")")
        return Spec(dtype, sizes, strides, fill)


def parse_sample(text, dtype):
    return _Reader(text, dtype).arguments()


def text_of(value, names):
    """An argument as the graph's text; tensors take the next of `names`."""
    if isinstance(value, Spec):
        return "%" + next(names)
    if isinstance(value, list):
        return "[" + ", ".join(text_of(item, names) for item in value) + "]"
    if isinstance(value, Dtype):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float) and math.isfinite(value):
        text = repr(value)
        return text if "." in text or "e" in text else text + ".0"
    return str(value)


def call_text(name, sample, names):
    names = iter(names)
    arguments = [text_of(value, names) for value in sample.positional]
    arguments += [f"{key}={text_of(value, names)}" for key, value in sample.named.items()]
    return f"{name}({', '.join(arguments)})"


def eager_value(value, tensors):
    if isinstance(value, Spec):
        return next(tensors)
    if isinstance(value, list):
        return [eager_value(item, tensors) for item in value]
    return DTYPES[value.name] if isinstance(value, Dtype) else value


def eager_arguments(sample, tensors):
    tensors = iter(tensors)
    positional = [eager_value(value, tensors) for value in sample.positional]
    return positional, {key: eager_value(value, tensors) for key, value in sample.named.items()}


def eager_op(name):
    """torch's overload for "aten.add.Tensor"; None for those WITHOUT_EAGER."""
    if name.startswith(WITHOUT_EAGER):
        return None
    parts = name.split(".")
    if parts[0] == "torchao":  # takes seconds to import
        importlib.import_module("torchao.quantization.quant_primitives")
    packet = getattr(getattr(torch.ops, parts[0]), parts[1])
    return getattr(packet, parts[2] if len(parts) > 2 else "default")
