"""What the caller of a compiled graph gets: of its inputs and the program's results, by the views
of the program's signature (`tandem signature` prints one), replayed by torch, so that autograd
knows them as views. It is straight-line code, written once a graph."""

import re

import torch

from tandem._tandem import Unsupported
from tandem.fakes import DTYPES

_NAME = re.compile(r"[A-Za-z_]\w*(?![\w=])")
_WORDS = {"None", "True", "False", "min", "max"}


class Replay:
    """`give(inputs, results)`: all that is returned."""

    def __init__(self, native, encoded):
        steps, self._returned = native.replay
        self._encoded = encoded
        self._places = dict(zip(encoded.names, encoded.arguments, strict=True))
        self._symbols = {name: read for name, read in encoded.symbols.items()}
        self._known = {name: dtype for dtype, name in DTYPES.items()}
        self._known |= {"no_grad": torch.no_grad, "as_strided": _as_strided, "torch": torch}
        self._known["with_history"] = _WithHistory.apply
        self._steps = [self._step(number, *step) for number, step in enumerate(steps)]
        self._roots = {}
        for names, _, operand, _ in self._steps:
            self._roots |= dict.fromkeys(names, self._roots.get(operand, operand))
        texts = [self._text(result) for result in encoded.results]
        self.is_plain = texts == [f"r[{i}]" for i in range(len(native.has_tangent))]
        self.give = self._function(texts)

    def _step(self, number, op, arguments, results, no_grad):
        """(names that it makes, text, name of what it views, whether under no_grad)."""
        if op == "tandem.with_history":
            line = f"{results[0]} = with_history({', '.join(arguments)})"
            return results, line, arguments[1], False
        space, name, *overload = op.split(".")
        packet = getattr(getattr(torch.ops, space), name)
        target = getattr(packet, overload[0] if overload else "default")
        self._known[f"op{number}"] = target
        parameters = target._schema.arguments
        arguments = [_argument(*pair) for pair in zip(arguments, parameters, strict=False)]
        call = f"op{number}({', '.join(arguments)})"
        if target is torch.ops.aten.as_strided.default:
            call = f"as_strided({{root}}, {', '.join(arguments)})"
        is_list = str(target._schema.returns[0].type).startswith("List")
        left = f"[{', '.join(results)}]" if is_list else results[0]
        return results, f"{left} = {call}", arguments[0], no_grad

    def _text(self, result):
        if result.kind == "tensor":
            return self._value(self._returned[result.number])
        if result.kind == "number":
            return f"{self._value(self._returned[result.number])}.item()"
        if result.kind == "constant":
            name = f"constant{len(self._known)}"
            self._known[name] = result.value
            return name
        return result.value

    def _value(self, name):
        if name.startswith("result") and name not in self._places:
            return f"r[{name.removeprefix('result')}]"
        return f"i[{self._places[name]}]" if name in self._places else name

    def _function(self, texts):
        """Code that gives `texts`, with the steps that they need."""
        needed, lines = set(_names(texts)), []
        for names, line, operand, no_grad in reversed(self._steps):
            if needed.isdisjoint(names):
                continue
            line = line.format(root=self._value(self._roots.get(operand, operand)))
            needed.update(_names([line]))
            lines.append(f"    with no_grad(): {line}" if no_grad else f"    {line}")
        lines += [f"    {name} = {text}" for name, text in self._starts(needed)]
        body = "\n".join([*reversed(lines), f"    return [{', '.join(texts)}]"])
        return self._compiled(f"def give(i, r):\n{body}\n")

    def _starts(self, needed):
        """Names that stand for inputs, results and sizes."""
        for name in sorted(needed):
            if self._value(name) != name:
                yield name, self._value(name)
            elif name in self._symbols:
                self._known[f"read_{name}"] = self._symbols[name]
                yield name, f"read_{name}(i)"
            elif name in self._encoded.made:
                yield name, self._made_size(name)

    def _made_size(self, name):
        """Read off a result that has it, or is it."""
        for number, dim in self._encoded.made[name]:
            value = self._value(self._returned[number])
            if dim is None:
                return f"{value}.item()"
            if value.startswith("r["):
                return f"{value}.shape[{dim}]"
        raise Unsupported(f"the size {name}, which only data tell, of a view of a result")

    def _compiled(self, code):
        space = dict(self._known)
        exec(code, space)  # noqa: S102
        return space["give"]


class _WithHistory(torch.autograd.Function):
    """The elements of `alias`, with the history of `value`: a detached alias that was written."""

    @staticmethod
    def forward(ctx, value, alias):
        return alias.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def _argument(text, parameter):
    """A memory format is a word in a program, none where it is the default, and an object in
    torch."""
    if parameter.name != "memory_format":
        return text
    left, equals, value = text.rpartition("=")
    if value != "None":
        value = "torch." + value.strip("\"'")
    elif parameter.default_value is not None:
        value = "torch.contiguous_format"
    return left + equals + value


def _names(texts):
    return {name for text in texts for name in _NAME.findall(text)} - _WORDS


def _as_strided(root, self, size, stride, offset=None):
    """A program counts from where its input begins, torch from where the storage does."""
    begin = root.storage_offset()
    offset = begin + offset if offset is not None else self.storage_offset()
    return self.as_strided(size, stride, offset)
