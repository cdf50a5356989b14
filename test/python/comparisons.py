"""What op_check compares, counted from the samples: the sentence of README.md.

`comparisons.py` prints it; test_comparisons.py fails where README.md says something else. A derived
sample counts where eager accepts it.
"""

import collections
import pathlib
import re

import torch

import derived
import op_check
import samples as sample_language
import tandem

PATH = pathlib.Path(__file__).parents[2] / "README.md"


def accepts(op, text, dtype, derive):
    """Whether eager does."""
    try:
        case = op_check.Case(op_check.Report(op.name), op, op.name, text, dtype, derive)
        case.eager()
    except op_check.EAGER_REFUSES:
        return False
    return True


def dtypes_of(op):
    found = set()
    for text in op.samples:
        if "$" in text:
            found.update(sample_language.SETS[op.sample_dtypes])
        found.update(s.dtype for s in sample_language.parse_sample(text, "f32").specs())
    return found


def kinds_of(op):
    made = [each for each in derived.of(op) if accepts(op, *each)]
    return derived.kinds_of(op) | {kind for _, _, kind in made}


def counts():
    """Of the ops of PyTorch that are compared: in which dtypes, with which kinds of operands."""
    total = collections.Counter()
    torch.set_num_threads(1)
    for op in op_check.operators().values():
        if not op.name.startswith("aten.") or not op.samples:
            continue
        total["ops"] += 1
        total.update(kind.__name__ for kind in kinds_of(op))
        dtypes = dtypes_of(op)
        total["f32"] += bool({"f32", "f64"} & dtypes)
        total["halves"] += {"bf16", "f16"} <= dtypes
        total["integers"] += "i64" in dtypes
        total["bool"] += "bool" in dtypes
        total["gradients"] += op.differentiable
    return total


def sentence():
    c = counts()
    return (
        f"{c['ops']} ATen overloads ([docs/ops.md](docs/ops.md)), compared with PyTorch eager by "
        f"`make test`: {c['f32']} in f32 or f64, {c['halves']} in bf16 and f16, {c['integers']} "
        f"with integers, {c['bool']} with bool; {c['strided']} on strided operands, {c['empty']} "
        f"on empty ones, {c['scalar']} on 0-d ones, {c['special']} on NaN and infinities; "
        f"gradients of {c['gradients']}"
    )


def words(text):
    return re.sub(r"\s+", " ", text)


if __name__ == "__main__":
    print(sentence())
