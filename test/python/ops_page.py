"""docs/ops.md, written from the table of operators: route, dtypes, gradient, derived forms.

`ops_page.py` writes it; test_ops_page.py fails where it is not what this writes.
"""

import pathlib

import tandem

PATH = pathlib.Path(__file__).parents[2] / "docs/ops.md"
HEAD = """# Operators

Written by `test/python/ops_page.py` from the table of operators; test_ops_page.py compares.
{count} operators, and {derived} in-place and `out=` forms made from them.

* **Route**: *loops* are fused with their neighbours; *loops or library*: which one depends on shape
  and dtype; *other ops*: the operator is written with others; *view*: no work of its own;
  *passes*: a pass replaces it.
* **Tested dtypes**: those in which it is compared with eager (`floats`: f32, f64, bf16, f16;
  `numbers`: integers besides; `all`: bool besides; `-`: in no table, but by tests of its own, as
  complex numbers are).
* **Gradient**: *yes*, or why there is none. In-place forms have that of the operator.

| operator | route | tested dtypes | gradient | forms |
|---|---|---|---|---|
"""


def forms(op):
    base = op.name.split(".")[1]
    short = []
    for name in op.variants:
        parts = name.split(".")[1:]
        short.append("`" + (".".join(parts) if parts[0] != base else "." + parts[1]) + "`")
    return ", ".join(short)


def row(op):
    gradient = "yes" if op.differentiable else op.no_grad or "-"
    if op.random:
        gradient += "; draws random numbers"
    dtypes = op.sample_dtypes if op.samples else "-"
    cells = (f"`{op.name}`", op.route, dtypes, gradient, forms(op))
    return "| " + " | ".join(cells) + " |"


def text():
    ops = sorted(tandem.ops(), key=lambda op: op.name)
    derived = sum(len(op.variants) for op in ops)
    lines = [row(op) for op in ops]
    return HEAD.format(count=len(ops), derived=derived) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
