"""Each operator of Tandem's own table, on its own samples in f64: gradients of gradients,
derivatives along tangents, and rows at once. Beside eager where eager has them; else beside
differences of our own first gradients (or values), so that none is left out.

`python whole_table.py second|forward|rows [name ...]` prints what is wrong, and what is refused."""

import collections
import sys

import torch
from torch.autograd import forward_ad

import rows_at_once
import second_gradients
import tandem
from second_gradients import NoSecondGradient, random_like
from tandem import _tandem
from tandem.backward import autograd_function

import op_check
from op_check import flatten
from samples import FLOATS, WITHOUT_EAGER
from tolerance import EAGER_REFUSES

RTOL, ATOL = 1e-7, 1e-9
STEP, SLOPE_RTOL, SLOPE_ATOL = 1e-6, 1e-4, 1e-5


class NotThere(Exception):
    """There is nothing to compare for this sample."""


class OneCall(op_check.Case):
    """Of one sample. `floats`: places of the tensors that have a gradient."""

    def __init__(self, op, text):
        super().__init__(op_check.Report(op.name), op, op.name, text, "f64")
        if self.random or op.random or any(each.dtype in FLOATS[2:] for each in self.specs):
            raise NotThere
        self.floats = [i for i, spec in enumerate(self.specs) if spec.dtype == "f64"]
        self.has_eager = not op.name.startswith(WITHOUT_EAGER)
        if not all(tensor.isfinite().all() for tensor in self.tensors):
            raise NotThere
        if self.has_eager:
            try:
                self.floats, _ = self.differentiated(self.floats)
                self.results = len(self.eager())
            except EAGER_REFUSES as error:
                raise NotThere from error
        else:
            self.results = max(1, op.schema.rpartition("->")[2].count("Tensor"))

    def inputs_text(self, gradients):
        texts = []
        for number, (name, spec) in enumerate(zip(self.names, self.specs, strict=True)):
            grad = " {input grad}" if gradients and number in self.floats else ""
            texts.append(f"%{name}: {spec.type_text()}{grad}")
        return ", ".join(texts)

    def inputs(self, moved=None):
        """Leaves; `moved`: what is added to each."""
        tensors = []
        for number, tensor in enumerate(self.tensors):
            tensor = tensor.detach().clone() if moved is None else tensor + moved[number]
            tensors.append(tensor.requires_grad_(number in self.floats))
        return tensors

    def directions(self):
        generator = torch.Generator().manual_seed(7)
        return [random_like(each, generator) if i in self.floats else 0
                for i, each in enumerate(self.tensors)]  # fmt: skip

    def in_eager(self, *inputs):
        return flatten(self.eager(list(inputs)))

    def compiled(self):
        """As a function that autograd records."""
        text = self.graph(self.results, gradients=True)
        native = _tandem.compile_function(text, differentiate=True)
        if not native.has_backward:
            raise NotThere
        function = autograd_function(native)
        given = [self.names.index(name) for name in native.names]
        return lambda *inputs: list(function.apply(None, *[inputs[i] for i in given]))


def slopes_agree(function, exact, call):
    """`exact`: the slope along `call.directions()` of the number that `function(inputs)` gives."""
    steps = [STEP * each for each in call.directions()], [-STEP * each for each in call.directions()]
    ends = [function(call.inputs(step)) for step in steps]
    slope = (ends[0] - ends[1]) / (2 * STEP)
    return torch.allclose(exact, slope, SLOPE_RTOL, SLOPE_ATOL), (exact - slope).abs().item()


# --- gradients of gradients


def weighted_gradients(function, inputs, create_graph=False):
    """A sum of the first gradients for random tangents; a number."""
    generator = torch.Generator().manual_seed(5)
    results = [each for each in function(*inputs) if isinstance(each, torch.Tensor)]
    ends = [each for each in results if each.requires_grad]
    leaves = [each for each in inputs if each.requires_grad]
    if not ends or not leaves:
        raise NotThere
    tangents = [random_like(each, generator) for each in ends]
    how = {"create_graph": create_graph, "allow_unused": True}
    first = torch.autograd.grad(ends, leaves, tangents, **how)
    pairs = [(each, random_like(leaf, generator)) for each, leaf in zip(first, leaves, strict=True)]
    return sum([(each * by).sum() for each, by in pairs if each is not None], torch.zeros(()))


def second_by_differences(call, function):
    inputs = call.inputs()
    total = weighted_gradients(function, inputs, True)
    slope = torch.zeros((), dtype=torch.float64)
    if total.requires_grad:
        leaves = [inputs[i] for i in call.floats]
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        along = [call.directions()[i] for i in call.floats]
        slope = sum([(g * d).sum() for g, d in zip(found, along) if g is not None], slope)
    good, by = slopes_agree(lambda values: weighted_gradients(function, values), slope, call)
    return None if good else f"slope of the gradient differs by {by:.3g}"


def second_problem(call):
    function = call.compiled()
    name = call.op.name
    if call.has_eager and name not in op_check.OTHER_GRADIENTS:
        try:
            expected = second_gradients.second_gradients(call.in_eager, call.inputs())
        except (NoSecondGradient, RuntimeError, NotImplementedError):
            return second_by_differences(call, function)
        try:
            actual = second_gradients.second_gradients(function, call.inputs())
        except NoSecondGradient:
            return second_by_differences(call, function)
        expected = second_gradients.zeros_for_none(expected, actual)
        actual = second_gradients.zeros_for_none(actual, expected)
        for number, (ours, eager) in enumerate(zip(actual, expected, strict=True)):
            if eager is not None and not second_gradients.same(ours, eager):
                return f"gradient {number} differs by {(ours - eager).abs().max().item():.3g}"
        return None
    return second_by_differences(call, function)


# --- derivatives along tangents


def eager_derivatives(call):
    """Of the results that have one; None where eager has none."""
    try:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(each.detach(), way) if i in call.floats else each
                for i, (each, way) in enumerate(zip(call.inputs(), call.directions(), strict=True))
            ]
            return [forward_ad.unpack_dual(each).tangent for each in call.in_eager(*duals)]
    except (RuntimeError, NotImplementedError):
        return None


def forward_problem(call):
    text = call.graph(call.results, gradients=True)
    program = tandem.compile_text(text, "forward")
    named = dict(zip(call.names, call.tensors, strict=True))
    named |= {f"tangent_{name}": way for name, way in zip(call.names, call.directions(), strict=True)}
    results = program([named[name] for name in program.inputs])
    values, ours = results[: call.results], results[call.results :]
    if not ours:
        raise NotThere
    return problem_of_derivatives(call, values, ours)


def problem_of_derivatives(call, values, ours):
    wanted = eager_derivatives(call) if call.has_eager else None
    wanted = wanted and [each for each in wanted if each is not None]
    if wanted and len(wanted) == len(ours):
        for number, (one, other) in enumerate(zip(ours, wanted, strict=True)):
            one = torch.where(other.isnan(), other, one)
            if not torch.allclose(one, other, RTOL, ATOL, equal_nan=True):
                return f"derivative {number} differs by {(one - other).abs().max().item():.3g}"
        return None
    program = tandem.compile_text(call.graph(call.results))
    floats = [i for i, each in enumerate(values) if each.is_floating_point()]
    if len(floats) != len(ours):
        raise NotThere
    generator = torch.Generator().manual_seed(3)
    weights = [random_like(each, generator) for each in ours]

    def total(tensors):
        named = dict(zip(call.names, [each.detach() for each in tensors], strict=True))
        made = program([named[name] for name in program.inputs])
        return sum((made[i] * by).sum() for i, by in zip(floats, weights, strict=True))

    exact = sum((each * by).sum() for each, by in zip(ours, weights, strict=True))
    good, by = slopes_agree(total, exact, call)
    return None if good else f"slope differs by {by:.3g}"


# --- rows at once


def rows_problem(call):
    """All operands have rows."""
    single = tandem.compile_text(call.graph(call.results))
    values = [rows_at_once.rows_of(each) for each in call.tensors]
    wanted = []
    for row in range(rows_at_once.ROWS):
        named = dict(zip(call.names, [each[row] for each in values], strict=True))
        wanted.append(single([named[name] for name in single.inputs]))
    if any(len({each.shape for each in column}) > 1 for column in zip(*wanted, strict=True)):
        raise NotThere
    wanted = [torch.stack(column) for column in zip(*wanted, strict=True)]
    got = tandem.compile_text(rows_text(call, values, wanted))(values)
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if not torch.allclose(one, other, rows_at_once.RTOL, rows_at_once.ATOL, equal_nan=True):
            return f"result {number} differs by {(one - other).abs().max().item():.3g}"
    return None


def rows_text(call, values, results):
    types = [rows_at_once.type_text(each) for each in values]
    inputs = ", ".join(f"%{name}: {kind}" for name, kind in zip(call.names, types, strict=True))
    names = ", ".join(f"%{name}" for name in call.names)
    given = ", ".join(f"%r{i}: {rows_at_once.type_text(each)}" for i, each in enumerate(results))
    body = call.graph(call.results).replace("@one(", "@body(", 1)
    dims = [0] * len(values)
    return (
        f'graph @main({inputs}) {{\n  {given} = tandem.vmap([{names}], {dims}, "body")\n'
        f"  return {', '.join(f'%r{i}' for i in range(len(results)))}\n}}\n\n{body}"
    )


# --- the walk


KINDS = {"second": second_problem, "forward": forward_problem, "rows": rows_problem}


def operators(kind):
    """By name: those that write to no operand, and have a gradient where one is asked for."""
    return {
        op.name: op for op in tandem.ops() if not op.mutates and (op.differentiable or kind == "rows")
    }


def verdict(op, kind, most=None):
    """"right"; "refused: ..." (a clear error); "none" (no sample has anything to compare), or what
    is wrong. `most`: samples that count."""
    checked, refused = 0, ""
    for text in op.samples:
        try:
            problem = KINDS[kind](OneCall(op, text))
        except NotThere:
            continue
        except tandem.Unsupported as error:
            refused = f"refused: {str(error).splitlines()[0][:150]}"
            continue
        except Exception as error:  # noqa: BLE001: the walk goes on
            problem = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
        if problem:
            return f"({text}) {problem}"
        checked += 1
        if checked == most:
            break
    return refused or ("right" if checked else "none")


def walk(kind, names=(), most=None):
    table = operators(kind)
    return {name: verdict(table[name], kind, most) for name in names or table}


def main(kind, *names):
    table, counts = operators(kind), collections.Counter()
    for name in names or table:
        said = verdict(table[name], kind)
        counts[said.split(":")[0] if said.startswith("refused") else said[:5]] += 1
        if said != "right":
            print(f"{name}: {said}", flush=True)
    print(f"{sum(counts.values())} operators: {dict(counts)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
