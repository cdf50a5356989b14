"""T56 to T74: inputs that share memory, and the same tensor given twice."""

import pytest
import torch

from beside_eager import Run, compare


def test_T56_input_mutation_aliases_other_input(aot):
    def f(a, b):
        a.add_(1)
        return a + b

    def make(t, kind):
        x = getattr(t, kind)(4, 4)
        return [x[0], x[0]]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T57_input_mutation_aliases_other_input2(aot):
    def f(a, b):
        a.add_(1)
        return a + b

    def make(t, kind):
        x = getattr(t, kind)(2, 2)
        return [x[0], x]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T58_input_mutation_aliases_and_output_alias(aot):
    def f(a, b):
        a.add_(1)
        return b.view(b.shape)

    def make(t, kind):
        x = getattr(t, kind)(2, 2)
        return [x.view(-1), x.view(-1)]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T59_input_aliased_with_mutation_output_alias(aot):
    def f(a, b, c):
        c.mul_(2)
        return b + 1, c.view(-1)

    def make(t, kind):
        x = getattr(t, kind)(2, 2)
        return [x.view(-1), getattr(t, kind)(2, 2), x.view(-1)]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T60_input_metadata_mutation_aliases(aot):
    def f(a, b):
        a.t_()
        return a + b

    def make(t, kind):
        x = getattr(t, kind)(2, 2)
        return [x.view(2, 2), x.view(2, 2)]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T61_input_mutation_aliases_and_none_require_gradients(aot):
    def f(a, b, c):
        a.mul_(2)
        return b + 1, c + 1

    def make(t):
        x = t.value(2, 2)
        return [x.view(-1), x.view(-1), t.value(2)]

    aot.check(f, make)


def test_T62_input_mutation_aliases_bases_out_of_order(aot):
    def f(a, b, c, d):
        b.add_(1)
        d.unsqueeze_(0)
        return a + c + d, b.view(-1)

    def make(t, kind):
        one, two = getattr(t, kind)(4), getattr(t, kind)(4)
        return [two.view(-1), one.view(-1), two.view(-1), one.view(-1)]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T63_synthetic_base_base_attribute_none(aot):
    def f(a, b):
        a.add_(1)
        return a + b

    def make(t):
        x = t.inner(2, 2)
        return [x[0].detach(), x[1].detach()]

    aot.check(f, make)


DISJOINT = {
    "halves": [((4, 8), (8, 1), 0), ((4, 8), (8, 1), 32)],
    "rows of eight": [((2, 4), (8, 1), 0), ((2, 4), (8, 1), 28)],
    "interleaved columns": [((8, 4), (8, 1), 0), ((8, 4), (8, 1), 4)],
    "nine, from 22": [((4, 4), (9, 1), 0), ((4, 4), (9, 1), 22)],
    "nine, from 23": [((4, 4), (9, 1), 0), ((4, 4), (9, 1), 23)],
    "three dimensions": [((2, 3, 3), (100, 40, 5), 5), ((20,), (1,), 196)],
}
OVERLAPPING = {  # these share a place
    "nine, from 24": [((4, 4), (9, 1), 0), ((4, 4), (9, 1), 24)],
    "nine, from 25": [((4, 4), (9, 1), 0), ((4, 4), (9, 1), 25)],
}


@pytest.mark.parametrize("case", [*DISJOINT, *OVERLAPPING])
def test_T64_input_mutation_false_aliasing(aot, case):
    def f(a, b):
        a.mul_(3)
        b.mul_(2)
        return a.clone(), b.clone()

    places = {**DISJOINT, **OVERLAPPING}[case]
    aot.check(f, lambda t: shared(t, places))


def shared(t, places):
    memory = t.value(256)
    return [memory.as_strided(*place) for place in places]


def test_T65_input_data_and_metadata_mutation_aliases_other_input(aot):
    def f(a, b):
        a.mul_(2)
        b.t_()
        return a.mul(b)

    def make(t, kind):
        x = getattr(t, kind)(2, 2)
        return [x.view(2, 2), x.view(2, 2)]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T66_input_mutation_alias_everything(aot):
    def f(a, b, c):
        c.mul_(2)
        b.t_()
        made = a + c
        out1 = made.view(-1)
        out2 = b.t()
        return out1, out2, out1.unsqueeze(0)

    def make(t, kind):
        x = getattr(t, kind)(2, 2)
        return [x.view(2, 2), getattr(t, kind)(2, 2), x.view(2, 2)]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T67_issue_198095(aot):
    def f(whole, tail):
        whole.add_(100)
        return tail[0], tail.view(-1)

    def make(t):
        x = t.value(10, 2)
        return [x, x[1:]]

    ours = aot.check(f, make)
    assert ours.results[1].numel() == 18


def test_T68_mixed_dtype_alias_mutated(aot):
    def f(a, b):
        a.add_(1)
        return b + 1

    def make(t):
        x = t.value(4)
        return [x, x.view(torch.int32)]

    aot.check(f, make)


def test_T69_overlap_guards(aot):
    def f(a, b):
        a.add_(1)
        return a * b

    compiled = aot.compile(f)

    def overlapping(t):
        x = t.value(8)
        return [x[0:4], x[2:6]]

    def disjoint(t):
        x = t.value(8)
        return [x[0:4], x[4:8]]

    for make in (overlapping, disjoint, overlapping):
        compare(Run(compiled, make), Run(f, make))


def test_T70_dupe_arg(aot):
    def f(x, y):
        return x + y

    def make(t):
        x = t.leaf(3)
        return [x, x]

    aot.check(f, make)


def test_T71_dupe_arg_torture(aot):
    def f(x, y):
        x.t_()
        y.unsqueeze_(0)
        return x + y

    def make(t, kind):
        x = getattr(t, kind)(3, 2)
        return [x, x]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T72_dupe_arg_returned_as_output(aot):
    def f(a, b, a_):
        a[0].add_(1)
        return a_

    def make(t, kind):
        x = getattr(t, kind)(2, 2)
        return [x, getattr(t, kind)(2, 2), x]

    for kind in ("inner", "value"):
        aot.check(f, lambda t, kind=kind: make(t, kind))


def test_T73_invalid_dupe(aot):
    def f(x, y):
        x.unsqueeze_(0)
        return x + y

    compiled = aot.compile(f, fullgraph=False)

    def same(t):
        x = t.value(3)
        return [x, x]

    def other(t):
        return [t.value(3), t.value(3)]

    for make in (same, other, same, other):
        compare(Run(compiled, make), Run(f, make))


def test_T74_invalid_requires_grad(aot):
    def f(x, y, z):
        return x + y + z

    compiled = aot.compile(f)

    def without(t):
        return [t.leaf(3), t.leaf(3), t.value(3)]

    def having(t):
        return [t.leaf(3), t.leaf(3), t.leaf(3)]

    for make in (without, having):
        compare(Run(compiled, make), Run(f, make))
