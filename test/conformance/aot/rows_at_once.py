"""`tandem::vmap` beside eager's calls of one row after the other: PyTorch's own samples, in f64.
`python rows_at_once.py [name ...]` prints what differs."""

import re
import sys

import torch

import second_gradients
import tandem
from forward_derivatives import sweep, traced
from second_gradients import opdb
from tandem.fakes import dtype_name

ROWS = 3
RTOL, ATOL = 1e-9, 1e-11


class NoRows(Exception):
    """Not for this sample: eager or the capture refuses it, or results have sizes of their own."""


def entries():
    left_out = second_gradients.LEFT_OUT
    return {
        name: entry
        for name, entry in opdb.entries().items()
        if torch.float64 in entry.supported_dtypes("cpu") and entry.name not in left_out
    }


def samples(entry):
    torch.manual_seed(0)
    found = []
    for sample in list(entry.sample_inputs("cpu", torch.float64)):
        call = opdb.Call(entry, sample)
        if call.tensors:
            found.append(call)
        if len(found) == second_gradients.SAMPLES:
            break
    return found


def rows_of(value):
    """Near each other, as an operator may be defined on a part of the numbers only."""
    scale = [1 - 0.03 * row for row in range(ROWS)]
    return torch.stack([value * by if value.is_floating_point() else value for by in scale])


def with_rows(inputs, shares):
    """Which inputs have rows: all, or the first alone."""
    return [not shares or number == 0 for number in range(len(inputs))]


def eager(call, values, flags):
    rows = []
    for row in range(ROWS):
        inputs = [v[row].clone() if flag else v for v, flag in zip(values, flags, strict=True)]
        try:
            rows.append([each for each in call(*inputs) if isinstance(each, torch.Tensor)])
        except Exception as error:  # noqa: BLE001: any refusal
            raise NoRows from error
    if any(len({each.shape for each in results}) > 1 for results in zip(*rows, strict=True)):
        raise NoRows
    return [torch.stack(results) for results in zip(*rows, strict=True)]


def type_text(value):
    return f"{dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"


def text_of(encoded, values, flags, results):
    """The captured graph as the body of a vmap; all that it lifted is the same for all rows."""
    body = re.sub(r"graph @\w+\(", "graph @body(", encoded.text, count=1)
    names = ", ".join(f"%{name}" for name in encoded.names)
    inputs = ", ".join(
        f"%{name}: {type_text(values[at])}"
        for name, at in zip(encoded.names, encoded.arguments, strict=True)
    )
    dims = [0 if at < len(flags) and flags[at] else -1 for at in encoded.arguments]
    given = ", ".join(f"%r{i}: {type_text(each)}" for i, each in enumerate(results))
    return (
        f"graph @main({inputs}) {{\n  {given} = tandem.vmap([{names}], {dims}, \"body\")\n"
        f"  return {', '.join(f'%r{i}' for i in range(len(results)))}\n}}\n\n{body}"
    )


def compiled(call, values, flags, results):
    inputs = [v[0] if flag else v for v, flag in zip(values, flags, strict=True)]
    try:
        encoded = traced(call, inputs)
    except tandem.Unsupported as error:
        raise NoRows from error
    if not any(at < len(flags) and flags[at] for at in encoded.arguments):
        raise NoRows  # nothing reads what has rows
    numbers = [result.number for result in encoded.results if result.kind == "tensor"]
    ordered = [results[numbers.index(number)] for number in sorted(set(numbers))]
    all_values = [*values, *encoded.lifted]
    text = text_of(encoded, all_values, flags, ordered)
    program = tandem.compile_text(text, "")
    named = {n: all_values[at] for n, at in zip(encoded.names, encoded.arguments, strict=True)}
    got = program([named[name] for name in program.inputs])
    return [got[sorted(set(numbers)).index(number)] for number in numbers]


def problem_of(call, shares):
    inputs = call.inputs(False)
    flags = with_rows(inputs, shares)
    values = [rows_of(v) if flag else v for v, flag in zip(inputs, flags, strict=True)]
    wanted = eager(call, values, flags)
    if any(each.is_complex() for each in [*inputs, *wanted]) or not wanted:
        raise NoRows
    for number, (got, expected) in enumerate(
        zip(compiled(call, values, flags, wanted), wanted, strict=True)
    ):
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return f"result {number} is {got.dtype}{list(got.shape)}"
        if not torch.allclose(got, expected, RTOL, ATOL, equal_nan=True):
            return f"result {number} differs by {(got - expected).abs().max().item():.3g}"
    return None


def verdict(entry):
    """"right", "none" (there is no such sample) or what is wrong."""
    checked = 0
    for call in samples(entry):
        for shares in (False, True):
            try:
                problem = problem_of(call, shares)
            except NoRows:
                continue
            except Exception as error:  # noqa: BLE001: the sweep goes on
                problem = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            if problem is not None:
                return problem
            checked += 1
    return "right" if checked else "none"


if __name__ == "__main__":
    sweep(entries(), verdict, sys.argv[1:])
