"""A random program as data, which a reducer takes apart, and as the code that it is: what runs is
what is printed."""

import dataclasses
import linecache
import sys
import types

import random_steps

_SIZES = {1: "1", 2: "a", 3: "b", 4: "c"}
_VIEWS = {
    "twice": "{x}",
    "same": "{x}.view_as({x})",
    "part": "{x}[:1]",
    "tail": "{x}[1:]",
    "turned": "{x}.transpose(0, -1)",
    "columns": "{x}[..., ::2]",
}


@dataclasses.dataclass(frozen=True)
class Input:
    shape: tuple
    layout: str = "plain"  # or "transposed", "slice": a part of a larger tensor
    dtype: str = "float32"
    grad: bool = False
    numbers: int = 0  # the seed of its elements

    def lines(self, name):
        """With a history where it requires grad, so that in-place ops are allowed."""
        shape = [_SIZES[size] for size in self.shape]
        if self._is_turned():
            shape[-2:] = shape[:-3:-1]
        if self.layout == "slice":
            shape[-1] += " + 2"
        made = self._elements(", ".join(shape))
        view = {"slice": "[..., 1:-1]"}.get(self.layout, "")
        view = ".transpose(-1, -2)" if self._is_turned() else view
        if self.grad:
            leaf = self.leaf(name)[0]
            return [f"{leaf} = {made}", f"{name} = {leaf}.requires_grad_().clone(){view}"]
        return [f"{name} = {made}", *([f"{name} = {name}{view}"] if view else [])]

    def leaf(self, name):
        return [f"leaf{name[1:]}"] if self.grad else []

    def _is_turned(self):
        return self.layout == "transposed" and len(self.shape) > 1

    def _elements(self, shape):
        generator = f"generator=torch.manual_seed({self.numbers})"
        if self.dtype == "bool":
            return f"(torch.rand([{shape}], {generator}) > 0.5)"
        kind = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        if "int" in self.dtype:
            return f"torch.randint(-5, 6, [{shape}], {generator}{kind})"
        return f"torch.randn({shape}, {generator}{kind})"


@dataclasses.dataclass(frozen=True)
class View:
    """An input that is the input `of` once more, or shares memory with it."""

    of: int
    kind: str

    def lines(self, name):
        return [f"{name} = {_VIEWS[self.kind].format(x=f'x{self.of}')}"]

    def leaf(self, name):
        return []


@dataclasses.dataclass(frozen=True)
class Recipe:
    """`steps` are (name, operands, parameters), results and operands numbers of values: first the
    inputs, then what the steps give. It starts with gradients if `starts_grad`."""

    seed: int
    inputs: tuple
    steps: tuple
    results: tuple
    starts_grad: bool = True

    def name(self, number):
        return f"{'x' if number < len(self.inputs) else 'v'}{number}"

    def code(self):
        """Functions `inputs` and `program`, and STARTS_GRAD."""
        names = [self.name(i) for i in range(len(self.inputs))]
        lines = ["import torch", "", f"STARTS_GRAD = {self.starts_grad}", "", ""]
        lines += ["def inputs(a=2, b=3, c=4):"]
        for name, each in zip(names, self.inputs, strict=True):
            lines += ["    " + line for line in each.lines(name)]
        leaves = [leaf for name, each in zip(names, self.inputs) for leaf in each.leaf(name)]
        lines += [f"    return [{', '.join(names)}], [{', '.join(leaves)}]", "", ""]
        lines += [f"def program({', '.join(names)}):"]
        for number, (name, operands, parameters) in enumerate(self.steps, len(names)):
            step = random_steps.STEPS_BY_NAME[name]
            operands = [self.name(i) for i in operands]
            lines += ["    " + line for line in step.lines(self.name(number), operands, parameters)]
        results = [self.name(i) for i in self.results]
        return "\n".join([*lines, f"    return [{', '.join(results)}]", ""])

    @property
    def written(self):
        return Written.of_code(self.code(), f"<program {self.seed}>")


class Written:
    """What a program's code has."""

    def __init__(self, space):
        self.program = space["program"]
        self.inputs = space["inputs"]
        self.starts_grad = space["STARTS_GRAD"]

    @staticmethod
    def of_code(code, path):
        """`path`: what Python's messages show its lines of."""
        module = types.ModuleType("random_program")
        sys.modules[module.__name__] = module  # Dynamo imports it
        exec(compile(code, path, "exec"), module.__dict__)
        linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
        return Written(module.__dict__)
