"""The operator sweep: every entry of PyTorch's own op_db, forward and backward, against eager.

One call of the entry becomes a graph of one node, as Dynamo would hand it over, which
`compile_graph` compiles without any operator left to torch. A pair of an entry and a dtype is

    right        every sample that eager takes agrees: values, gradients, strides, inputs afterwards
    wrong        something differs
    unsupported  a tandem error said so when it was compiled
    crash        any other exception, the death of the process, or more than a minute

What is unsupported runs once more with on_unsupported="eager" and must be right then.
`python test/python/opdb.py [name ...]` prints; without names it writes build/opdb.json and
docs/opdb.md. Wider, and printed alone: `--samples 1000`, `--dtypes f16 u8 ...`, `--reference` (many
more samples, extreme and empty ones among them), and `--form` (opdb_forms.py).
"""

import argparse
import collections
import dataclasses
import json
import multiprocessing
import os
import sys
import types
import unittest
import warnings
import zlib
from itertools import islice
from unittest import mock

import torch
from torch import fx
from torch.utils import _pytree as pytree

import tandem
from op_check import short
from opdb_forms import FORMS, in_place_of, strided, symbolic, takes, with_out
from opdb_known import (
    CHOOSING,
    FOUND,
    OTHER_GRADIENTS,
    REFERENCE_GRADIENTS,
    REFUSED,
    STRIDES_OF_FAKES,
    UNSPECIFIED,
)
from tolerance import difference
from tandem import dynamo, reports
from tandem.options import Options

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64}
ALL_DTYPES = DTYPES | {
    "f64": torch.float64, "f16": torch.float16, "bool": torch.bool, "u8": torch.uint8,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "c64": torch.complex64,
}  # fmt: skip
SAMPLES = 5
SECONDS = 60
VERDICTS = ("right", "unsupported", "wrong", "crash")


def entries():
    """PyTorch's op_db by name. Its module asks for expecttest, of which nothing is used here."""
    if "expecttest" not in sys.modules:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return {entry_name(entry): entry for entry in op_db}


def entry_name(entry):
    return entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


def in_tenth(name):
    """Whether an entry is of the fixed tenth that the fast test takes."""
    return zlib.crc32(name.encode()) % 10 == 0


# --- one sample


@dataclasses.dataclass
class Sweep:
    """What is asked of each pair."""

    samples: int = SAMPLES
    form: str = ""
    reference: bool = False

    def samples_of(self, entry, dtype, requires_grad):
        given = entry.reference_inputs if self.reference else entry.sample_inputs
        found = islice(given("cpu", dtype, requires_grad=requires_grad), self.samples)
        calls = [Call(entry, sample, self.form, number) for number, sample in enumerate(found)]
        for call in calls:
            call.has_strides = entry_name(entry) not in self.without_strides()
            call.other_gradients = OTHER_GRADIENTS | (REFERENCE_GRADIENTS if self.reference else {})
        return calls

    def without_strides(self):
        return STRIDES_OF_FAKES if self.form == "strided" or self.reference else ()


class Call:
    """One sample: a function of its tensors, everything else bound."""

    def __init__(self, entry, sample, form="", number=0):
        values = (sample.input, sample.args, sample.kwargs)
        leaves, self._spec = pytree.tree_flatten(values)
        if form == "strided":
            leaves = [strided(leaf, number) for leaf in leaves]
        self._leaves = leaves
        makers = {"in_place": in_place_of, "out": with_out}
        self._op = makers[form](entry) if form in makers else entry.op
        self.is_dynamic = form == "dynamic"
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaves[i] for i in self.places]
        if entry.name in CHOOSING:
            self.tensors = [distinct(tensor) for tensor in self.tensors]
        self.entry = entry.name
        self.unspecified = entry.name in UNSPECIFIED
        self.has_strides = True
        self.other_gradients = OTHER_GRADIENTS
        self.__name__ = "call"  # fx asks functions for it

    def __call__(self, *tensors):
        leaves = list(self._leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return tuple(pytree.tree_leaves(self._op(first, *args, **kwargs)))

    def inputs(self, gradients):
        return [copied(tensor, gradients) for tensor in self.tensors]


def copied(tensor, gradients):
    """A leaf over memory of its own, laid out alike."""
    if tensor.layout is not torch.strided:
        return tensor.detach().clone()
    memory = tensor.detach().untyped_storage().clone()
    copy = torch.empty(0, dtype=tensor.dtype)
    copy.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
    return copy.requires_grad_(gradients and tensor.requires_grad)


def distinct(tensor):
    """Numbers in a random order, laid out like `tensor`."""
    order = torch.randperm(tensor.numel()).reshape(tensor.shape)
    if tensor.dtype == torch.bfloat16:  # has 8000 numbers only by their bits
        order = (order.to(torch.int16) + 0x3000).view(torch.bfloat16)
    copy = copied(tensor, True)
    with torch.no_grad():
        copy.copy_(order)
    return copy


def compiled(call, inputs, mode):
    graph = fx.Graph()
    holders = tuple(graph.placeholder(f"x{i}") for i in range(len(inputs)))
    graph.output(graph.call_function(call, holders))
    module = fx.GraphModule(torch.nn.Module(), graph)
    if call.is_dynamic:
        inputs = symbolic(inputs)
    if mode == "eager":
        return dynamo.backend(module, inputs, options={"on_unsupported": mode})
    return dynamo.compile_graph(module, inputs, Options(on_unsupported=mode))


class Outcome:
    """What a function gave for a call: results, gradients, inputs afterwards."""

    def __init__(self, function, inputs, gradients, seed=0):
        torch.manual_seed(seed)
        self.results = list(function(*inputs))
        self.inputs = inputs
        self.gradients = self._gradients() if gradients else []

    def _gradients(self):
        leaves = [x for x in self.inputs if x.requires_grad]
        ends, cotangents = [], []
        for number, result in enumerate(self.results):
            if isinstance(result, torch.Tensor) and result.requires_grad:
                generator = torch.Generator().manual_seed(number)
                ends.append(result)
                cotangents.append(torch.randn(result.shape, generator=generator).to(result.dtype))
        if not ends:
            return [None] * len(leaves)
        return torch.autograd.grad(ends, leaves, cotangents, allow_unused=True)


def expectation(call):
    """Eager's outcome, with gradients where it has them; None where it refuses the sample."""
    if any(tensor.requires_grad for tensor in call.tensors):
        try:
            return Outcome(call, call.inputs(True), True), True
        except Exception:  # noqa: BLE001: whatever eager says, this sample has no gradient
            pass
    try:
        return Outcome(call, call.inputs(False), False), False
    except Exception:  # noqa: BLE001
        return None, False


def is_random(call, expected):
    """Whether eager draws: some entries set the seed themselves, so that has no effect here."""
    with mock.patch.object(torch, "manual_seed", lambda seed: torch.random.manual_seed(seed + 7)):
        again = Outcome(call, call.inputs(False), False, seed=1)
    pairs = zip(again.results, expected.results, strict=True)
    tensors = [(dense(a), dense(e)) for a, e in pairs if isinstance(e, torch.Tensor)]
    return any(not torch.equal(a.nan_to_num(), e.nan_to_num()) for a, e in tensors)


def dense(value):
    """As a plain tensor that can be compared."""
    value = value.detach()
    if value.layout is not torch.strided:
        value = value.to_dense()
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value.resolve_neg()


def disagreement(call, actual, expected):
    """None or (kind, what differs)."""
    if len(actual.results) != len(expected.results):
        return "value", f"{len(actual.results)} results instead of {len(expected.results)}"
    drawn = call.unspecified or is_random(call, expected)
    wide = Widened(call, bool(expected.gradients))
    for kind in ("results", "inputs", "gradients"):
        pairs = zip(getattr(actual, kind), getattr(expected, kind), strict=True)
        for number, (a, e) in enumerate(pairs):
            reference = (lambda k=kind, n=number: wide.value(k, n))
            problem = different(a, e, drawn, reference)
            is_other = kind == "gradients" and (call.entry, number) in call.other_gradients
            if problem and not is_other:
                return "value", f"{kind[:-1]} {number}: {problem}"
    for number, (a, e) in enumerate(zip(actual.results, expected.results, strict=True)):
        if not call.has_strides or not isinstance(e, torch.Tensor):
            continue
        if strides_of(a) != strides_of(e):
            return "strides", f"result {number}: strides {a.stride()} instead of {e.stride()}"
    if shared(actual) != shared(expected) and not call.unspecified:
        return "memory", f"results share memory {shared(actual)} instead of {shared(expected)}"
    return None


def shared(outcome):
    """Pairs of a result, and an input or an earlier result, in one memory. What has no elements has
    none."""
    owners = {}
    for number, value in enumerate(outcome.inputs):
        owners.setdefault(storage_of(value), f"input {number}")
    found = []
    for number, value in enumerate(outcome.results):
        storage = storage_of(value) if isinstance(value, torch.Tensor) else None
        if storage is not None and storage in owners:
            found.append(f"{number} with {owners[storage]}")
        owners.setdefault(storage, f"result {number}")
    return found


def storage_of(tensor):
    if tensor.layout is not torch.strided or not tensor.numel():
        return None
    return tensor.untyped_storage().data_ptr()


class Widened:
    """The same call in f64, made when asked for: eager may round on the way."""

    def __init__(self, call, gradients):
        self._call = call
        self._gradients = gradients
        self._outcome = None

    def value(self, kind, number):
        try:
            if self._outcome is None:
                self._outcome = Outcome(self._call, self._inputs(), self._gradients)
            return getattr(self._outcome, kind)[number]
        except Exception:  # noqa: BLE001: the op has no f64 form
            return None

    def _inputs(self):
        inputs = self._call.inputs(False)
        wide = [widened(x) for x in inputs]
        for x, tensor in zip(wide, self._call.tensors, strict=True):
            x.requires_grad_(self._gradients and tensor.requires_grad)
        return wide


def widened(x):
    return x.double() if x.is_floating_point() else x.cdouble() if x.is_complex() else x


def different(actual, expected, drawn, reference):
    if expected is None or actual is None:
        other = actual if expected is None else expected
        nothing = other is None or not dense(other).any()
        return None if nothing else "a gradient instead of none, or none"
    if not isinstance(expected, torch.Tensor):
        same = actual == expected or (actual != actual and expected != expected)
        return None if same or drawn else f"{actual} instead of {expected}"
    if drawn:
        ours, eager = [f"{x.dtype} {list(x.shape)}" for x in (actual, expected)]
        return None if ours == eager else f"{ours} instead of {eager}"
    if actual.layout != expected.layout:
        return f"{actual.layout} instead of {expected.layout}"
    if actual.dtype != expected.dtype:
        return f"{actual.dtype} instead of {expected.dtype}"
    problem = difference(dense(actual), dense(expected))
    has_rounding = expected.is_floating_point() or expected.is_complex()
    if problem and has_rounding and actual.shape == expected.shape:
        if is_as_good(actual, expected, reference()):
            return None
    return problem


def is_as_good(actual, expected, wide):
    """Whether `actual` is nowhere much farther from the f64 result than eager's is at its worst."""
    if wide is None or wide.shape != expected.shape or wide.is_complex() != expected.is_complex():
        return False
    if not wide.is_complex() and not wide.is_floating_point():
        return False
    actual, expected, wide = dense(actual), dense(expected), dense(wide)
    if difference(actual, wide.to(expected.dtype)) is None:
        return True
    ours, eager = (actual.double() - wide).abs(), (expected.double() - wide).abs()
    return bool(ours.isfinite().all() and ours.max() <= 2 * eager.max())


def strides_of(x):
    if x.layout is not torch.strided or x.numel() == 0:
        return None
    return tuple(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


# --- one entry


def check(entry, dtype, mode, asked):
    """(verdict, kind, reason, samples): of the worst sample."""
    torch.manual_seed(0)
    worst = ("right", "", "")
    seen = 0
    if asked.form == "errors":
        return check_errors(entry, dtype, mode)
    requires_grad = entry.supports_autograd and (
        dtype in entry.backward_dtypes if dtype.is_floating_point else False
    )
    for call in asked.samples_of(entry, dtype, requires_grad):
        expected, gradients = expectation(call)
        if expected is None:
            continue
        seen += 1
        found = check_sample(call, expected, gradients, mode)
        if VERDICTS.index(found[0]) > VERDICTS.index(worst[0]):
            worst = found
    return (*worst, seen)


def check_errors(entry, dtype, mode):
    """An error of any kind is right, where eager has one."""
    seen = 0
    for error in entry.error_inputs("cpu") if entry.error_inputs_func else ():
        call = Call(entry, error.sample_input)
        floats = [x.dtype for x in call.tensors if x.is_floating_point()] or [torch.float32]
        if floats[0] != dtype or expectation(call)[0] is not None:
            continue
        seen += 1
        try:
            inputs = call.inputs(False)
            compiled(call, inputs, mode)(*inputs)
        except Exception:  # noqa: BLE001: eager's or one of ours
            continue
        return "wrong", "value", f"no error: {short(Exception(error.error_regex))}", seen
    return "right", "", "", seen


def check_sample(call, expected, gradients, mode):
    try:
        inputs = call.inputs(gradients)
        actual = Outcome(compiled(call, inputs, mode), inputs, gradients)
    except tandem.UserError as error:
        kind = "" if isinstance(error, tandem.Unsupported) else "refused"
        return "unsupported", kind, str(error).strip().split("\n")[0][:300]
    except Exception as error:  # noqa: BLE001: this is what is looked for
        return "crash", type(error).__name__, short(error)
    problem = disagreement(call, actual, expected)
    return ("wrong", *problem) if problem else ("right", "", "")


def check_pair(entry, name, asked):
    """The row of the table for an entry and a dtype; None where eager takes no sample."""
    dtype = ALL_DTYPES[name]
    verdict, kind, reason, samples = check(entry, dtype, "error", asked)
    if samples == 0:
        return None
    row = dict(op=entry_name(entry), dtype=name, verdict=verdict, kind=kind, reason=reason)
    row["samples"] = samples
    if verdict == "unsupported":
        reports.reset()
        again = check(entry, dtype, "eager", asked)
        row["in torch"] = any(graph["fallbacks"] for graph in tandem.report()["graphs"])
        row["with eager"] = "right" if again[0] == "right" else f"{again[0]}: {again[2]}"
    reports.reset()
    return row


# --- processes


def serve(connection, errors, sweep):
    """Answers (entry, dtype) with rows until None comes. What aborts prints to `errors`."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    tandem.set_threads(1)
    table = entries()
    connection.send("ready")
    while (asked := connection.recv()) is not None:
        name, dtype = asked
        try:
            connection.send(check_pair(table[name], dtype, sweep))
        except Exception as error:  # noqa: BLE001: of eager or of this file
            connection.send(crash(name, dtype, f"in the sweep itself: {short(error)}"))


def crash(name, dtype, reason):
    return dict(op=name, dtype=dtype, verdict="crash", kind="", reason=reason, samples=0)


class Worker:
    """A process that is started again after it died or hung."""

    def __init__(self, errors, asked):
        self._errors = errors
        self._asked = asked
        self.process = None

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        work = other, self._errors, self._asked
        self.process = context.Process(target=serve, args=work, daemon=True)
        self.process.start()
        other.close()
        self.connection.recv()

    def check(self, name, dtype):
        if self.process is None:
            self.start()
        self.connection.send((name, dtype))
        try:
            if self.connection.poll(SECONDS):
                return self.connection.recv()
            reason = f"more than {SECONDS} s"
        except EOFError:
            self.process.join()
            with open(self._errors) as file:
                reason = f"ended with {self.process.exitcode}: {file.read()[-300:].strip()}"
        self.process.kill()
        self.process.join()
        self.process = None
        return crash(name, dtype, reason)

    def stop(self):
        if self.process is not None:
            self.connection.send(None)
            self.process.join()


def pairs(table, names=(), dtypes=tuple(DTYPES)):
    """Pairs of an entry and a dtype that eager supports."""
    for name, entry in table.items():
        if names and name not in names and entry.name not in names:
            continue
        for dtype in dtypes:
            if entry.supports_dtype(ALL_DTYPES[dtype], "cpu"):
                yield name, dtype


def sweep(todo, errors, seen=lambda row: None, asked=None):
    """Rows of all pairs, in order."""
    worker = Worker(errors, asked or Sweep())
    rows = []
    for name, dtype in todo:
        row = worker.check(name, dtype)
        if row is not None:
            rows.append(row)
            seen(row)
    worker.stop()
    return rows


def failures(rows):
    """Rows that must not be: as lines."""
    lines = []
    for row in rows:
        if row["verdict"] in ("wrong", "crash"):
            lines.append(line_of(row))
        elif row.get("with eager", "right") != "right":
            lines.append(f"{row['op']} {row['dtype']}: on_unsupported=eager: {row['with eager']}")
        elif row["op"] in FOUND and row["verdict"] != "right":
            lines.append(f"{line_of(row)}: was right")
        elif row["op"] in REFUSED and row["verdict"] != "right" and not row["in torch"]:
            lines.append(f"{line_of(row)}: nothing ran in torch")
    return lines


def line_of(row):
    return f"{row['op']} {row['dtype']}: {row['verdict']} {row['kind']} {row['reason']}"


# --- the command


def counts_of(rows):
    counts = collections.Counter(row["verdict"] for row in rows)
    total = max(1, len(rows))
    parts = [f"{counts[v]} {v} ({100 * counts[v] / total:.1f} %)" for v in VERDICTS]
    in_torch = sum(row.get("in torch", False) for row in rows)
    unequal = sum(row.get("with eager", "right") != "right" for row in rows)
    return [
        f"{len(rows)} pairs of an entry and a dtype: {', '.join(parts)}",
        f'with on_unsupported="eager": {len(rows) - unequal - counts["wrong"] - counts["crash"]} '
        f"right, {in_torch} ({100 * in_torch / total:.1f} %) ran in torch at least in part",
    ]


def table_text(rows):
    lines = [
        "# The operator sweep",
        "",
        "Generated by `make opdb` (test/python/opdb.py): PyTorch's op_db on the CPU, the first "
        f"{SAMPLES} samples of each",
        "entry in f32, bf16 and i64, forward and backward, against eager.",
        "",
        *[line + "  " for line in counts_of(rows)],
        "",
        "What is not right:",
        "",
        "| entry | dtypes | verdict | reason |",
        "|---|---|---|---|",
    ]
    groups = collections.defaultdict(list)
    for row in rows:
        if row["verdict"] != "right":
            groups[row["op"], row["verdict"], row["reason"]].append(row["dtype"])
    for (op, verdict, reason), dtypes in sorted(groups.items()):
        reason = " ".join(reason.split())[:160].replace("|", "\\|")
        lines.append(f"| {op} | {', '.join(dtypes)} | {verdict} | {reason} |")
    return "\n".join(lines) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th pair from the i-th")
    parser.add_argument("--json", default="build/opdb.json")
    parser.add_argument("--merge", nargs="*", default=None, help="rows of these files, no sweep")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--dtypes", nargs="+", choices=ALL_DTYPES, default=list(DTYPES))
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--form", choices=FORMS, default="")
    chosen = parser.parse_args(arguments)
    if chosen.merge is not None:
        rows = []
        for path in chosen.merge:
            with open(path) as file:
                rows += json.load(file)
        rows.sort(key=lambda row: (row["op"], list(DTYPES).index(row["dtype"])))
        with open("docs/opdb.md", "w") as file:
            file.write(table_text(rows))
    else:
        part, count = map(int, chosen.part.split("/"))
        asked = Sweep(chosen.samples, chosen.form, chosen.reference)
        table = entries()
        table = {name: entry for name, entry in table.items() if takes(entry, chosen.form)}
        todo = list(pairs(table, chosen.names, chosen.dtypes))[part::count]
        errors = f"{chosen.json}.stderr"
        rows = sweep(todo, errors, lambda row: print(line_of(row), flush=True), asked)
    if not chosen.names:
        with open(chosen.json, "w") as file:
            json.dump(rows, file, indent=0)
    print("\n".join(failures(rows) + counts_of(rows)))
    return bool(failures(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
