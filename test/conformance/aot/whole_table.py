"""Each operator of Tandem's own table, on its own samples in f64: gradients of gradients,
derivatives along tangents, and rows at once. Beside eager where eager has them; else beside
differences of our own first gradients (or values), so that none is left out.

`python whole_table.py second|third|forward|rows [name ...]` prints what is wrong, and what is
refused; `--part 2/3` takes a third of the operators. Third derivatives are those that eager has."""

import collections
import re
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
from samples import WITHOUT_EAGER
from tolerance import EAGER_REFUSES

_FREQUENCY = "with scale_grad_by_freq the gradient is not the derivative"
_MOMENTS = "mean and deviation count as those of the input, whatever is given"
_STRAIGHT = "a rounding whose gradient goes straight through"
# Where eager is wrong: ours is compared with differences.
EAGER_IS_WRONG = {
    **op_check.OTHER_GRADIENTS,
    "aten.as_strided_scatter": "its gradient is non-zero where self was overwritten",
    "aten.embedding_dense_backward": "its second gradient forgets scale_grad_by_freq",
    "aten._weight_norm": "its second gradient is not that of differences, nor ours",
}
# The same of third derivatives: its second gradients take moments for constants.
EAGERS_THIRD_IS_WRONG = {
    "aten.layer_norm",
    "aten.native_layer_norm",
    "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_functional",
}
# Where the derivative is not that of the values, on purpose: by the kind of walk.
BY_DESIGN = {
    "forward": {
        "tandem.with_history": "the values of one operand with the history of another",
        "tandem.scatter": "two elements that go to one place both have a gradient, as in eager",
        "aten._embedding_bag": _FREQUENCY,
        "aten.embedding_bag": _FREQUENCY,
        "aten.native_layer_norm_backward": _MOMENTS,
        "aten.native_batch_norm_backward": _MOMENTS,
        "aten.embedding": "eager's has rows at padding_idx, which have no gradient",
        "aten.cosine_similarity": "below eps, eager's gradient is not that of its values",
        "aten.fake_quantize_per_tensor_affine": _STRAIGHT,
        "aten.fake_quantize_per_tensor_affine_cachemask": _STRAIGHT,
        "aten.fake_quantize_per_tensor_affine.tensor_qparams": _STRAIGHT,
        "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _STRAIGHT,
        "aten.fake_quantize_per_channel_affine": _STRAIGHT,
        "aten.fake_quantize_per_channel_affine_cachemask": _STRAIGHT,
    },
}
RTOL, ATOL = 1e-7, 1e-9
KINKS = ("bool", "halves", "special")  # what floats are filled with: differences are none there
STEP, SLOPE_RTOL, SLOPE_ATOL = 1e-6, 1e-4, 1e-5


def as_it_lies(tensor, value):
    """A copy of `value`, with gaps where `tensor` has them."""
    if 0 in tensor.stride() or tensor.numel() == 0:
        return value.detach().clone()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(value)


class NotThere(Exception):
    """There is nothing to compare for this sample."""


class OneCall(op_check.Case):
    """Of one sample. `floats`: places of the tensors that have a gradient; `ends`: numbers of the
    results that have a history."""

    def __init__(self, op, text):
        text = re.sub(r"\bf32\b", "f64", text)
        super().__init__(op_check.Report(op.name), op, op.name, text, "f64")
        if op.random or any(each.dtype.startswith("f8") for each in self.specs):
            raise NotThere
        if not self.specs or not all(tensor.isfinite().all() for tensor in self.tensors):
            raise NotThere
        self.floats = [i for i, spec in enumerate(self.specs) if spec.dtype == "f64"]
        self.has_eager = not op.name.startswith(WITHOUT_EAGER)
        self.has_kinks = any(self.specs[i].fill in KINKS for i in self.floats)
        results = self.made() if self.has_eager else self.made_here()
        self.results = len(results)
        self.ends = [
            i for i, each in enumerate(results) if each is not None and each.dtype == torch.float64
        ]
        if self.has_eager:
            self.ends = [i for i in self.ends if results[i].requires_grad]

    def made(self):
        try:
            self.floats, results = self.differentiated(self.floats)
        except EAGER_REFUSES as error:
            raise NotThere from error
        return results

    def made_here(self):
        results = max(1, self.op.schema.rpartition("->")[2].count("Tensor"))
        program = tandem.compile_text(self.graph(results))
        return program(self.bind(program, {}))

    def inputs_text(self, gradients):
        texts = []
        for number, (name, spec) in enumerate(zip(self.names, self.specs, strict=True)):
            grad = " {input grad}" if gradients and number in self.floats else ""
            texts.append(f"%{name}: {spec.type_text()}{grad}")
        return ", ".join(texts)

    def ends_text(self):
        """Of a graph that gives copies of `ends`: a view of an input is no result of a program."""
        if not self.ends or not self.floats:
            raise NotThere
        lines = "".join(f"  %c{i} = aten.clone(%r{i})\n" for i in self.ends)
        returned = ", ".join(f"%c{i}" for i in self.ends)
        head = self.graph(self.results, gradients=True).rpartition("  return")[0]
        return f"{head}{lines}  return {returned}\n}}\n"

    def inputs(self, moved=None):
        """Leaves; `moved`: what is added to each float."""
        tensors = []
        for number, tensor in enumerate(self.tensors):
            is_float = number in self.floats
            moves = is_float and moved is not None
            value = tensor.detach() + moved[number] if moves else tensor
            tensors.append(as_it_lies(tensor, value).requires_grad_(is_float))
        return tensors

    def directions(self):
        generator = torch.Generator().manual_seed(7)
        return [random_like(each, generator) if i in self.floats else torch.zeros(())
                for i, each in enumerate(self.tensors)]  # fmt: skip

    def in_eager(self, *inputs):
        results = flatten(self.eager(list(inputs)))
        return [results[i] for i in self.ends]

    def compiled(self):
        """As a function that autograd records."""
        native = _tandem.compile_function(self.ends_text(), differentiate=True)
        if not native.has_backward or native.takes_seed:
            raise NotThere
        function = autograd_function(native)
        given = [self.names.index(name) for name in native.names]
        return lambda *inputs: list(function.apply(None, *[inputs[i] for i in given]))


def without_seed(program):
    """What is drawn has no one value."""
    if "seed" in program.inputs:
        raise NotThere
    return program


def slope_problem(call, function, exact):
    """`exact`: the slope along `call.directions()` of the number that `function(inputs)` gives."""
    if call.has_kinks:
        raise NotThere
    steps = [[by * each for each in call.directions()] for by in (STEP, -STEP)]
    ends = [function(call.inputs(step)) for step in steps]
    slope = (ends[0] - ends[1]) / (2 * STEP)
    if torch.allclose(exact, slope, SLOPE_RTOL, SLOPE_ATOL, equal_nan=True):
        return None
    return f"slope {exact.item():.6g}, and by differences {slope.item():.6g}"


def is_compared_with_eager(call):
    return call.has_eager and call.op.name not in EAGER_IS_WRONG


# --- gradients of gradients


NOTHING = torch.zeros((), dtype=torch.float64)


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
    return sum([(each * by).sum() for each, by in pairs if each is not None], NOTHING)


def weighted_second_gradients(function, inputs, create_graph=False):
    """The same of the second gradients."""
    generator = torch.Generator().manual_seed(9)
    leaves = [each for each in inputs if each.requires_grad]
    total = weighted_gradients(function, inputs, True)
    if not total.requires_grad:
        return NOTHING
    how = {"create_graph": create_graph, "allow_unused": True}
    found = torch.autograd.grad(total, leaves, **how)
    pairs = [(each, random_like(leaf, generator)) for each, leaf in zip(found, leaves, strict=True)]
    return sum([(each * by).sum() for each, by in pairs if each is not None], NOTHING)


def by_differences(call, function, weighted):
    """Gradients of the number `weighted`."""
    inputs = call.inputs()
    total = weighted(function, inputs, True)
    slope = NOTHING
    if total.requires_grad:
        leaves = [inputs[i] for i in call.floats]
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        along = [call.directions()[i] for i in call.floats]
        pairs = zip(found, along, strict=True)
        slope = sum([(g * way).sum() for g, way in pairs if g is not None], slope)
    return slope_problem(call, lambda values: weighted(function, values), slope)


def second_by_differences(call, function):
    return by_differences(call, function, weighted_gradients)


def second_problem(call):
    function = call.compiled()
    if not is_compared_with_eager(call):
        return second_by_differences(call, function)
    try:
        expected = second_gradients.second_gradients(call.in_eager, call.inputs())
        actual = second_gradients.second_gradients(function, call.inputs())
    # Eager or we have none, or raise: differences tell, and what we raise is raised again there.
    except (NoSecondGradient, RuntimeError, NotImplementedError):
        return second_by_differences(call, function)
    if len(actual) != len(expected):  # a result that is constant has no history here
        return second_by_differences(call, function)
    return gradients_problem(actual, expected)


def third_problem(call):
    if not is_compared_with_eager(call):
        raise NotThere
    try:
        expected = second_gradients.third_gradients(call.in_eager, call.inputs())
    except (NoSecondGradient, RuntimeError, NotImplementedError) as error:
        raise NotThere from error
    if all(each is None for each in expected):
        raise NotThere
    function = call.compiled()
    if call.op.name in EAGERS_THIRD_IS_WRONG:
        return by_differences(call, function, weighted_second_gradients)
    try:
        actual = second_gradients.third_gradients(function, call.inputs())
    except NoSecondGradient:  # zero, and nothing leads there
        actual = [None] * len(expected)
    if len(actual) != len(expected):  # as above
        return by_differences(call, function, weighted_second_gradients)
    return gradients_problem(actual, expected)


def gradients_problem(actual, expected):
    expected, actual = (
        second_gradients.zeros_for_none(expected, actual),
        second_gradients.zeros_for_none(actual, expected),
    )
    for number, (ours, eager) in enumerate(zip(actual, expected, strict=True)):
        if eager is not None and not second_gradients.same(ours, eager):
            return f"gradient {number} differs by {(ours - eager).abs().max().item():.3g}"
    return None


# --- derivatives along tangents


def eager_derivatives(call):
    """Of `ends`; None where eager has none, or says nothing of one: that may be 0 or not there."""
    if not is_compared_with_eager(call):
        return None
    try:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(each.detach(), way) if i in call.floats else each
                for i, (each, way) in enumerate(zip(call.inputs(), call.directions(), strict=True))
            ]
            made = [forward_ad.unpack_dual(each).tangent for each in call.in_eager(*duals)]
    except (RuntimeError, NotImplementedError):  # no rule in eager: ours go by differences
        return None
    return None if any(each is None for each in made) else made


def forward_problem(call):
    program = without_seed(tandem.compile_text(call.ends_text(), "forward"))
    pairs = zip(call.names, call.directions(), strict=True)
    ways = {f"tangent_{name}": way for name, way in pairs}
    results = program(call.bind(program, ways))
    values, ours = results[: len(call.ends)], results[len(call.ends) :]
    if len(ours) != len(call.ends) or any(each.isnan().any() for each in values):
        raise NotThere
    wanted = eager_derivatives(call)
    if wanted is None:
        return forward_by_differences(call, ours)
    for number, (one, other) in enumerate(zip(ours, wanted, strict=True)):
        one = torch.where(other.isnan(), other, one)
        if not torch.allclose(one, other, RTOL, ATOL, equal_nan=True):
            return f"derivative {number} differs by {(one - other).abs().max().item():.3g}"
    return None


def forward_by_differences(call, ours):
    program = tandem.compile_text(call.ends_text())
    generator = torch.Generator().manual_seed(3)
    weights = [random_like(each, generator) for each in ours]

    def total(tensors):
        named = dict(zip(call.names, [each.detach() for each in tensors], strict=True))
        made = program([named[name] for name in program.inputs])
        return sum([(each * by).sum() for each, by in zip(made, weights, strict=True)], NOTHING)

    exact = sum([(each * by).sum() for each, by in zip(ours, weights, strict=True)], NOTHING)
    return slope_problem(call, total, exact)


# --- rows at once


def rows_problem(call):
    """All operands have rows."""
    single = without_seed(tandem.compile_text(call.graph(call.results)))
    values = [rows_at_once.rows_of(each) for each in call.tensors]
    wanted = []
    for row in range(rows_at_once.ROWS):
        named = dict(zip(call.names, [each[row] for each in values], strict=True))
        wanted.append(single([named[name] for name in single.inputs]))
    columns = list(zip(*wanted, strict=True))
    if not columns or any(len({each.shape for each in column}) > 1 for column in columns):
        raise NotThere
    wanted = [torch.stack(column) for column in columns]
    got = tandem.compile_text(rows_text(call, values, wanted))(values)
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        least = torch.finfo(other.dtype).eps if other.is_floating_point() else 0
        room = max(rows_at_once.RTOL, 16 * least)
        if other.is_floating_point():
            one, other = one.double(), other.double()  # torch compares no 8-bit floats
        if not torch.allclose(one, other, room, room, equal_nan=True):
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


KINDS = {
    "second": second_problem,
    "third": third_problem,
    "forward": forward_problem,
    "rows": rows_problem,
}


def operators(kind):
    """By name: those that write to no operand, and have a gradient where one is asked for."""
    return {
        op.name: op
        for op in tandem.ops()
        if not op.mutates and (op.differentiable or kind == "rows")
    }


def verdict_of_sample(op, kind, text):
    """"right"; "refused: ..." (a clear error that names the operator); "none" (there is nothing to
    compare); "wrong: ...", which says what is."""
    try:
        problem = KINDS[kind](OneCall(op, text))
    except NotThere:
        return "none"
    except tandem.UserError as error:
        text_of_error = str(error).splitlines()[0][:150]
        if text_of_error.startswith("["):  # it names an operator
            return f"refused: {text_of_error}"
        problem = text_of_error
    except Exception as error:  # noqa: BLE001: the walk goes on
        problem = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return f"wrong: {problem}" if problem else "right"


def verdict(op, kind, most=None):
    """Of all samples: the first that is wrong, else one that is refused, else "right", "none" or
    "by design". `most`: samples that count."""
    if op.name in BY_DESIGN.get(kind, ()):
        return "by design"
    checked, refused = 0, ""
    for text in op.samples:
        said = verdict_of_sample(op, kind, text)
        if word_of(said) == "wrong":
            return f"({text}) {said.removeprefix('wrong: ')}"
        if word_of(said) == "refused":
            refused = said
        checked += said == "right"
        if checked == most:
            break
    return refused or ("right" if checked else "none")


def word_of(said):
    word = said.split(":")[0]
    return word if word in ("right", "refused", "none", "by design") else "wrong"


def walk(kind, names=(), most=None):
    table = operators(kind)
    return {name: verdict(table[name], kind, most) for name in names or table}


def part_of(names, part):
    number, count = (int(each) for each in part.split("/"))
    return [name for i, name in enumerate(names) if i % count == number - 1]


def main(kind, *names):
    table, of_samples, of_operators = operators(kind), collections.Counter(), collections.Counter()
    if names[:1] == ("--part",):
        names = part_of(table, names[1])
    for name in names or table:
        texts = table[name].samples
        is_other = name in BY_DESIGN.get(kind, ())
        said = ["by design" if is_other else verdict_of_sample(table[name], kind, text)
                for text in texts]  # fmt: skip
        for text, each in zip(texts, said, strict=True):
            of_samples[word_of(each)] += 1
            if word_of(each) in ("wrong", "refused"):
                print(f"{name} ({text}): {each}", flush=True)
        words = [word_of(each) for each in said]
        worst = next((each for each in ORDER if each in words), "none")
        of_operators[worst] += 1
    print(f"{sum(of_operators.values())} operators, by their worst sample: {dict(of_operators)}")
    print(f"{sum(of_samples.values())} samples: {dict(of_samples)}")


ORDER = ("wrong", "refused", "right", "by design", "none")


if __name__ == "__main__":
    main(*sys.argv[1:])
