"""docs/quantization_behaviours.md, written from the table of behaviours.

`page.py` writes it; test_page.py fails where it is not what this writes.
"""

import pathlib

from behaviours import BEHAVIOURS, MISSING

PATH = pathlib.Path(__file__).parents[3] / "docs/quantization_behaviours.md"
HEAD = """# What quantized models are held to

Written by `test/conformance/quant/page.py`; test_page.py compares. Each row has tests of its
number in test/conformance/quant, most of them over models converted by torchao
(X86InductorQuantizer), compiled frozen with `int8="require"`. They say how many products are of
integers, into how many kernels the whole fuses, and that results are as near to the graph with
exact products as eager is. {holds} of {all} hold whole; what is missing is a test that must fail.

| number | behaviour | state |
|---|---|---|
"""


def state(number):
    missing = [
        f"{part}: missing, {reason}" if part else f"missing: {reason}"
        for (of, part), reason in MISSING.items()
        if of == number
    ]
    return "; ".join(missing) or "holds"


def text():
    states = {number: state(number) for number in BEHAVIOURS}
    holds = sum(each == "holds" for each in states.values())
    head = HEAD.format(holds=holds, all=len(states))
    rows = (f"| {number} | {BEHAVIOURS[number]} | {each} |\n" for number, each in states.items())
    return head + "".join(rows)


if __name__ == "__main__":
    PATH.write_text(text())
