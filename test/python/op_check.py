"""Checks one op against PyTorch eager: every sample, every dtype, gradients, in-place and out=
forms, both engines, and the same bits at any number of threads.
`python test/python/op_check.py aten.mm` checks by hand.
"""

import collections
import dataclasses
import functools
import re
import sys
import zlib

import torch

import derived
import samples as sample_language
import tandem
from samples import DTYPES, FLOATS, NAMES, Spec
from tolerance import EAGER_REFUSES, TOLERANCE, Rooms, difference, same_bits

THREADS = [2, 3, 8]
# Operands whose gradient eager takes otherwise, and why.
OTHER_GRADIENTS = {
    "aten.nll_loss_backward": "eager recomputes total_weight, we take the one that is given",
    "aten.nll_loss2d_backward": "eager recomputes total_weight, we take the one that is given",
    "aten.ldexp.Tensor": "eager takes powers of integers in integers: 0 for negative ones",
    **{
        f"aten._foreach_{name}.{form}": "eager's list form gives nothing at bounds and NaN to self"
        for name in ("maximum", "minimum")
        for form in ("Scalar", "ScalarList")
    },
    "aten._foreach_addcdiv.Scalar": "eager's own raises",
    "aten._foreach_addcdiv.ScalarList": "eager's own raises",
}
# The same of one sample.
OTHER_GRADIENTS_OF_SAMPLES = {
    "aten.embedding_dense_backward($[6, 4], i64[6]:index(3), 5, 1, true)": (
        "eager's second gradient forgets scale_grad_by_freq"
    ),
}
# Ops whose results are eager's to the bit: a step of a quantization is no small error.
EXACT = re.compile(r"(quantized_decomposed|torchao)\..*|aten\._?(fake_quantize|fused_moving)_.*")


def same_numbers(a, b):
    """With NaN where the other has it."""
    return torch.equal(a.double().nan_to_num(), b.double().nan_to_num())


def normal(shape, dtype, generator):
    """Floats of 8 bits are not drawn."""
    drawn = torch.float32 if dtype.itemsize == 1 else dtype
    return torch.randn(shape, dtype=drawn, generator=generator).to(dtype)


# Ops whose results have no specified contents.
UNSPECIFIED = re.compile(r"aten\.(new_)?empty(_like|_strided|_permuted)?(\.memory_format)?")
# Gradients that eager gives with fewer digits: factor of the tolerance, and why.
ROUGH_GRADIENTS = {
    "aten.binary_cross_entropy_backward": (1000, "eager adds 1e-12 to keep away from 0"),
    "aten.grid_sampler_2d": (64, "bicubic weights of one border pixel cancel to rounding noise"),
    "aten.grid_sampler": (64, "bicubic weights of one border pixel cancel to rounding noise"),
}


@dataclasses.dataclass
class Report:
    op: str
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list = dataclasses.field(default_factory=list)
    skips: list = dataclasses.field(default_factory=list)

    def fail(self, where, what):
        self.failures.append(f"{self.op}({where}): {what}")

    def skip(self, where, reason):
        self.counts["skipped"] += 1
        self.skips.append(f"{self.op}({where}): {reason}")


def flatten(result):
    """Tensors of an eager result; list results are as many results."""
    if isinstance(result, (list, tuple)):
        return [tensor for item in result for tensor in flatten(item)]
    return [result]


def is_wide(tensor):
    return tensor.dtype == torch.float64


def short(error):
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:300]}"


class Case:
    """One sample at one dtype."""

    def __init__(self, report, op, name, text, dtype, derive=None, variants=()):
        self.report = report
        self.variants = variants
        self.op = op
        self.name = name  # of the op or of a variant
        self.has_other_gradients = (
            op.name in OTHER_GRADIENTS or f"{op.name}({text})" in OTHER_GRADIENTS_OF_SAMPLES
        )
        self.where = f"{text}; {dtype}" + ("" if name == op.name else f"; {name}")
        self.sample = sample_language.parse_sample(text, dtype)
        if derive:
            self.where += f"; {derive.__name__}"
            self.sample = derived.with_specs(self.sample, derive)
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(zlib.crc32(f"{op.name} {text}".encode()))
        self.specs = self.sample.specs()
        self.tensors = [spec.make(self.generator) for spec in self.specs]
        self.names = [f"a{i}" for i in range(len(self.specs))]
        self.rooms = Rooms(self.eager, self.tensors, self.generator)
        overload = sample_language.eager_op(op.name)
        self.random = op.random or (
            overload is not None and torch.Tag.nondeterministic_seeded in overload.tags
        )

    # --- eager ----------------------------------------------------------------------------------

    def eager(self, tensors=None, overload=None):
        overload = overload or sample_language.eager_op(self.op.name)
        tensors = tensors if tensors is not None else [t.clone() for t in self.tensors]
        positional, named = sample_language.eager_arguments(self.sample, tensors)
        result = overload(*positional, **named)
        return [] if result is None else flatten(result)

    # --- graphs ---------------------------------------------------------------------------------

    def inputs_text(self, gradients):
        texts = []
        for name, spec in zip(self.names, self.specs):
            wants = gradients and spec.dtype in FLOATS
            texts.append(f"%{name}: {spec.type_text()}" + (" {input grad}" if wants else ""))
        return ", ".join(texts)

    def graph(self, results, gradients=False):
        names = [f"%r{i}" for i in range(results)]
        call = sample_language.call_text(self.name, self.sample, self.names)
        line = f"{', '.join(names)} = {call}" if names else call
        return (
            f"graph @one({self.inputs_text(gradients)}) {{\n  {line}\n"
            f"  return {', '.join(names)}\n}}"
        )

    def bind(self, executable, extra):
        known = dict(zip(self.names, self.tensors), seed=1234, **extra)
        return [known[name] for name in executable.inputs]

    # --- checks ---------------------------------------------------------------------------------

    def run(self):
        if self.name.startswith(sample_language.WITHOUT_EAGER):
            return self.check_ours()
        try:
            expected = self.eager()
        except EAGER_REFUSES as error:
            return self.check_refused(error)
        if self.check_forward(expected) and not self.random:
            self.check_gradients(expected)
            for variant in self.variants:
                self.check_variant(variant)

    def check_refused(self, error):
        try:
            tandem.compile_text(self.graph(1)).run(self.tensors)
        except tandem.UserError:
            self.report.counts["eager refuses, so do we"] += 1
            return
        # Doing more than eager is allowed, as long as it is said.
        self.report.counts["eager refuses"] += 1
        self.report.skips.append(f"{self.op.name}({self.where}): eager refuses: {short(error)}")

    def compile(self, text, gradients="", **options):
        return tandem.compile_text(text, gradients, always_parallel=True, **options)

    def check_forward(self, expected):
        self.report.counts["forwards"] += 1
        try:
            text = self.graph(len(expected))
            executable = self.compile(text)
            arguments = self.bind(executable, {})
            actual = executable.run(arguments)
        except tandem.UserError as error:
            self.report.fail(self.where, f"eager accepts, we raise {short(error)}")
            return False
        good = self.compare(actual, expected)
        return self.same_on_all(executable, text, arguments, actual) and good

    def compare(self, actual, expected):
        if len(actual) != len(expected):
            self.report.fail(self.where, f"{len(actual)} results instead of {len(expected)}")
            return False
        good = True
        for i, (a, e) in enumerate(zip(actual, expected)):
            if e is None:
                continue
            if self.has_other_values(i):
                e = a.new_zeros(a.shape) if a.shape == e.shape and a.dtype == e.dtype else e
                a = a if a.shape != e.shape or a.dtype != e.dtype else e
            room = self.rooms.of(i, e.dtype)
            problem = difference(a, e, room=room)
            if EXACT.fullmatch(self.op.name) and not same_numbers(a, e):
                self.report.fail(self.where, f"result {i}: other bits; {problem}")
                good = False
            if problem and e.dtype in (torch.bfloat16, torch.float16, torch.float32):
                wide = self.rooms.truth()
                if wide and difference(a, wide[i].to(e.dtype), room=room) is None:
                    self.report.counts["closer to f64 than eager"] += 1
                    problem = None
            if problem:
                self.report.fail(self.where, f"result {i}: {problem}")
                good = False
        return good

    def has_other_values(self, number):
        """Whether eager's values are not to be compared: they were drawn, or are left over."""
        if UNSPECIFIED.fullmatch(self.op.name):
            return True
        if not self.random:
            return False
        first = self.eager()[number]
        # Few elements may come out equal by chance.
        return any(not same_bits(first, self.eager()[number]) for _ in range(20))

    def same_on_all(self, executable, text, arguments, actual):
        """Thread counts give the same bits; the interpreter gives the same values."""
        good = True
        for threads in THREADS:
            tandem.set_threads(threads)
            again = executable.run(arguments)
            self.report.counts["thread counts"] += 1
            if not all(same_bits(a, b) for a, b in zip(actual, again)):
                self.report.fail(self.where, f"other bits with {threads} threads")
                good = False
                break
        tandem.set_threads(1)
        interpreted = self.compile(text, interpret=True).run(arguments)
        self.report.counts["interpreted"] += 1
        for i, (a, b) in enumerate(zip(actual, interpreted)):
            # Random numbers are drawn in f32, whatever they become.
            scale = (
                1e6
                if self.random and a.dtype == torch.float64
                else 0.1 if a.dtype == torch.float32 else 1
            )
            problem = None
            if isinstance(b, torch.Tensor):
                problem = difference(a, b, scale, self.rooms.of(i, b.dtype))
            if problem:
                self.report.fail(self.where, f"result {i} differs from the interpreter: {problem}")
                good = False
        return good

    def check_gradients(self, expected):
        floats = [i for i, spec in enumerate(self.specs) if spec.dtype in FLOATS]
        outputs = [i for i, e in enumerate(expected) if e is not None and e.is_floating_point()]
        if not (self.op.differentiable and floats and outputs):
            return
        if self.dtype == "u8":  # eager negates it on the way, which wraps around
            return
        tangents = {
            i: normal(expected[i].shape, expected[i].dtype, self.generator)
            for i in outputs
        }
        if self.has_other_gradients:
            return self.check_differences(floats, tangents, len(expected))
        floats, results = self.differentiated(floats)
        used = {i: tangents[i] for i in outputs if results[i].requires_grad}
        if not used:
            return self.check_differences(floats, tangents, len(expected))
        gradients = functools.partial(self.eager_gradients, floats, list(used))
        operands = [*self.tensors, *used.values()]
        try:
            wanted = gradients(operands)
        except (RuntimeError, NotImplementedError):
            return self.check_differences(floats, tangents, len(expected))
        text = self.graph(len(expected), True)
        found = Rooms(gradients, operands, self.generator)
        self.compare_gradients(floats, wanted, tangents, text, found)

    def eager_gradients(self, floats, used, operands, call=None):
        """Of the operands in `floats`; after the operands come the tangents of the results in
        `used`. Zeros where no result depends on an operand."""
        tensors, tangents = operands[: -len(used)], operands[-len(used) :]
        leaves = [t.detach().clone().requires_grad_(i in floats) for i, t in enumerate(tensors)]
        results = (call or self.eager)(leaves)
        wanted = torch.autograd.grad(
            [results[i] for i in used],
            [leaves[i] for i in floats],
            [tangent.to(results[i].dtype) for i, tangent in zip(used, tangents, strict=True)],
            allow_unused=True,
        )
        pairs = zip(wanted, floats, strict=True)
        return [torch.zeros_like(leaves[i]) if grad is None else grad for grad, i in pairs]

    def differentiated(self, floats):
        """Eager's call on leaves, but for operands it does not differentiate."""
        schema = sample_language.eager_op(self.op.name)._schema
        order = [argument.name for argument in schema.arguments if "Tensor" in str(argument.type)]
        while True:
            leaves = [t.clone().requires_grad_(i in floats) for i, t in enumerate(self.tensors)]
            try:
                return floats, self.eager(leaves)
            except RuntimeError as error:
                refused = re.search(
                    r"not differentiable with respect to argument '(\w+)'", str(error)
                )
                if not refused or not floats:
                    raise
                given = [
                    name
                    for name, value in zip(
                        [a.name for a in schema.arguments], self.sample.positional
                    )
                    if name in order and isinstance(value, Spec)
                ]
                at = given.index(refused[1]) if refused[1] in given else floats[-1]
                floats = [i for i in floats if i != at]

    def gradients(self, text, tangents):
        executable = self.compile(text, "tangents")
        extra = {f"tangent{i}": tangent for i, tangent in tangents.items()}
        return dict(zip(executable.outputs, executable.run(self.bind(executable, extra))))

    def check_differences(self, floats, tangents, results):
        """Eager has no gradient: differences of our own results along one direction, in f64."""
        if self.dtype != "f64" or not all(t.isfinite().all() for t in self.tensors):
            return
        self.report.counts["finite differences"] += 1
        step = 1e-6
        directions = {
            i: torch.randn(self.tensors[i].shape, dtype=torch.float64, generator=self.generator)
            for i in floats
            if self.specs[i].dtype == "f64"
        }
        forward = self.compile(self.graph(results))
        got = self.gradients(self.graph(results, True), tangents)
        original = self.tensors
        ends = []
        for sign in (1, -1):
            self.tensors = [
                t + sign * step * directions[i] if i in directions else t
                for i, t in enumerate(original)
            ]
            ends.append(forward.run(self.bind(forward, {})))
        self.tensors = original
        wanted = sum(
            ((ends[0][i] - ends[1][i]) * tangent).sum() / (2 * step)
            for i, tangent in tangents.items()
        )
        zero = torch.zeros((), dtype=torch.float64)
        slope = sum(((got.get(self.names[i], zero)) * d).sum() for i, d in directions.items())
        if not torch.allclose(slope, wanted, rtol=1e-5, atol=1e-6):
            self.report.fail(
                self.where,
                f"slope {slope.item()} along a direction, differences say {wanted.item()}",
            )

    def compare_gradients(self, floats, wanted, tangents, text, found):
        """`found`: Rooms of the gradients."""
        self.report.counts["gradients"] += 1
        try:
            got = self.gradients(text, tangents)
        except tandem.UserError as error:
            return self.report.fail(self.where, f"gradient raises {short(error)}")
        for place, (number, expected) in enumerate(zip(floats, wanted)):
            leaf = self.tensors[number]
            actual = got.get(self.names[number], torch.zeros_like(leaf))
            scale = ROUGH_GRADIENTS.get(self.op.name, (4, ""))[0] if is_wide(leaf) else 4
            if is_wide(leaf):  # of a result that has fewer digits
                coarsest = max(TOLERANCE[NAMES[t.dtype]] for t in tangents.values())
                scale = max(scale, coarsest / TOLERANCE["f64"] / 2)
            room = found.of(place, leaf.dtype)
            problem = difference(actual, expected, scale, room)
            if problem and not is_wide(leaf):
                wide = found.truth()
                if wide and difference(actual, wide[place].to(leaf.dtype), scale, room) is None:
                    self.report.counts["gradients closer to f64 than eager"] += 1
                    problem = None
            if problem:
                self.report.fail(self.where, f"gradient of operand {number}: {problem}")

    def check_variant(self, variant):
        """clone + in-place form, or out= into zeros: what eager's own variant gives."""
        overload = sample_language.eager_op(variant)
        is_out = overload._schema.arguments[-1].name == "out"
        try:
            expected = self.eager_out(overload) if is_out else self.eager_inplace(overload)
        except EAGER_REFUSES as error:
            return self.check_variant_refused(variant, is_out, error)
        self.report.counts["variants"] += 1
        try:
            executable = self.compile(self.variant_graph(variant, is_out, expected))
            actual = executable.run(self.bind(executable, {}))
        except tandem.UserError as error:
            return self.report.fail(
                self.where, f"{variant}: eager accepts, we raise {short(error)}"
            )
        lists = isinstance(expected, list)
        for a, wanted in zip(actual, expected if lists else [expected] * len(actual)):
            room = None if lists else self.rooms.of(0, wanted.dtype)
            problem = difference(a, wanted, room=room)
            if problem and not lists and NAMES[expected.dtype] in ("f16", "bf16", "f32"):
                wide = self.rooms.truth()
                problem = wide and difference(a, wide[0].to(expected.dtype), room=room)
            if problem:
                self.report.fail(self.where, f"{variant}: {problem}")
        if not is_out and not lists:
            self.check_inplace_gradients(variant, overload, expected)

    def check_inplace_gradients(self, variant, overload, expected):
        floats = [i for i, spec in enumerate(self.specs) if spec.dtype == "f64"]
        if not self.op.differentiable or self.dtype != "f64" or not floats:
            return
        if self.has_other_gradients:
            return
        tangent = normal(expected.shape, expected.dtype, self.generator)

        def written(leaves):
            return [self.eager([leaves[0].clone(), *leaves[1:]], overload)[0]]

        gradients = functools.partial(self.eager_gradients, floats, [0], call=written)
        operands = [*self.tensors, tangent]
        try:
            wanted = gradients(operands)
        except NotImplementedError:  # eager has the gradient of the functional form only
            return
        text = self.variant_graph(variant, False, expected, True)
        tangents = {0: tangent, 1: torch.zeros_like(tangent)}
        found = Rooms(gradients, operands, self.generator)
        self.compare_gradients(floats, wanted, tangents, text, found)

    def check_variant_refused(self, variant, is_out, error):
        expected = torch.zeros(()) if is_out else None
        try:
            self.compile(self.variant_graph(variant, is_out, expected))
        except tandem.UserError:
            self.report.counts["eager refuses, so do we"] += 1
            return
        self.report.counts["eager refuses"] += 1
        self.report.skips.append(f"{variant}({self.where}): eager refuses: {short(error)}")

    def eager_inplace(self, overload):
        if isinstance(self.sample.positional[0], list):
            tensors = [t.clone() for t in self.tensors]
            self.eager(tensors, overload)
            return tensors[: len(self.sample.positional[0])]
        return self.eager([t.clone() for t in self.tensors], overload)[0]

    def eager_out(self, overload):
        result = torch.zeros_like(self.eager()[0], memory_format=torch.contiguous_format)
        positional, named = sample_language.eager_arguments(self.sample, self.tensors)
        overload(*positional, **named, out=result)
        return result

    def variant_graph(self, variant, is_out, expected, gradients=False):
        names = list(self.names)
        if not is_out and isinstance(self.sample.positional[0], list):
            return self.list_variant_graph(variant, names)
        if is_out:
            sizes = list(expected.shape)
            first = f"%to = aten.zeros({sizes}, dtype={NAMES[expected.dtype]})"
            call = sample_language.call_text(variant, self.sample, names)[:-1] + ", out=%to)"
        else:
            first = f"%to = aten.clone(%{names[0]})"
            names[0] = "to"
            call = sample_language.call_text(variant, self.sample, names)
        return (
            f"graph @one({self.inputs_text(gradients)}) {{\n  {first}\n  %r0 = {call}\n"
            "  return %r0, %to\n}"
        )

    def list_variant_graph(self, variant, names):
        count = len(self.sample.positional[0])
        lines = [f"  %to{i} = aten.clone(%{names[i]})\n" for i in range(count)]
        names[:count] = [f"to{i}" for i in range(count)]
        call = sample_language.call_text(variant, self.sample, names)
        return (
            f"graph @one({self.inputs_text(False)}) {{\n{''.join(lines)}  {call}\n"
            f"  return {', '.join('%' + name for name in names[:count])}\n}}"
        )

    def check_ours(self):
        """No eager counterpart: both engines agree, at any number of threads, and again."""
        self.report.counts["forwards"] += 1
        text = self.graph(max(1, self.op.schema.rpartition("->")[2].count("Tensor")))
        executable = self.compile(text)
        arguments = self.bind(executable, {})
        actual = executable.run(arguments)
        self.same_on_all(executable, text, arguments, actual)
        if self.op.random:
            arguments = [
                5678 if name == "seed" else a for name, a in zip(executable.inputs, arguments)
            ]
            if actual[0].numel() > 1 and same_bits(actual[0], executable.run(arguments)[0]):
                self.report.fail(self.where, "another seed gives the same numbers")


def check_op(op):
    """Report of one op."""
    tandem.set_threads(1)
    torch.set_num_threads(1)
    report = Report(op.name)
    for number, text in enumerate(op.samples):
        report.counts["samples"] += 1
        dtypes = sample_language.SETS[op.sample_dtypes] if "$" in text else ["f32"]
        # Variants are the op and a copy: of the first sample in each dtype, of others in one.
        in_one = "f64" if "f64" in dtypes else dtypes[0]
        for dtype in dtypes:
            variants = op.variants if number == 0 or dtype == in_one else ()
            check_case(report, op, text, dtype, variants=variants)
    for text, dtype, derive in derived.of(op):
        report.counts["derived samples"] += 1
        check_case(report, op, text, dtype, derive)
    return report


def check_case(report, op, text, dtype, derive=None, variants=()):
    try:
        Case(report, op, op.name, text, dtype, derive, variants).run()
    except Exception as error:  # noqa: BLE001: one case must not hide the others
        kind = f"; {derive.__name__}" if derive else ""
        report.fail(f"{text}; {dtype}{kind}", f"{short(error)} (in the test itself?)")


def operators():
    """Ops with samples; effects such as copy_ are tested where they are used."""
    return {op.name: op for op in tandem.ops() if not op.mutates}


def main(arguments):
    table = operators()
    total = collections.Counter()
    for name in arguments or table:
        print(name, flush=True)
        report = check_op(table[name])
        total.update(report.counts)
        for line in report.failures + report.skips:
            print("  " + line)
    print(dict(total))


if __name__ == "__main__":
    main(sys.argv[1:])
