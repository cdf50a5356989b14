"""T121 to T125, T127, T129: what is saved and what is computed again at fractions of a budget. The
best there is comes from all subsets, looked at here one by one, of what a program may keep."""

import functools
import itertools

import pytest
import torch

import cuts

FLOPS = 2 * 512**3  # of a product of 512 x 512 matrices, which take a MiB each
SOLVERS = ("dp", "greedy", "exact")
ROOMS = 24  # a knapsack is packed in these parts of all that it could take
SLIVER = 1e-9


def columns(number):
    return f"f32[512, {512 * number}] {{input grad}}"


def program(inputs, lines, result):
    body = "".join(f"  {line}\n" for line in lines)
    named = ", ".join(f"%{name}: {type}" for name, type in inputs)
    return f"graph @f({named}) {{\n{body}  return %{result}\n}}\n"


def sum_of_sums(lines, count):
    """Adds up the sums of %c0, %c1, … under one name."""
    lines += [f"%s{i} = aten.sum(%c{i})" for i in range(count)]
    total = "s0"
    for i in range(1, count):
        lines.append(f"%t{i} = aten.add.Tensor(%{total}, %s{i})")
        total = f"t{i}"
    return total


def even_chain(length):
    inputs = [("x", columns(1))] + [(f"w{i}", columns(1)) for i in range(length)]
    lines, at = [], "x"
    for i in range(length):
        lines += [f"%m{i} = aten.mm(%{at}, %w{i})", f"%c{i} = aten.cos(%m{i})"]
        at = f"c{i}"
    return program(inputs, [*lines, f"%s = aten.sum(%{at})"], "s")


def side_by_side(widths):
    """Products of so many MiB each, and of so many units of work."""
    inputs = [("x", columns(1))] + [(f"w{i}", columns(w)) for i, w in enumerate(widths)]
    lines = []
    for i in range(len(widths)):
        lines += [f"%m{i} = aten.mm(%x, %w{i})", f"%c{i} = aten.cos(%m{i})"]
    return program(inputs, lines, sum_of_sums(lines, len(widths)))


def products(shapes):
    """Of (inner, outer): a result of `outer` MiB, `inner` times as dear for each of them."""
    inputs, lines = [], []
    for i, (inner, outer) in enumerate(shapes):
        inputs += [(f"x{i}", columns(inner)),
                   (f"w{i}", f"f32[{512 * inner}, {512 * outer}] {{input grad}}")]
        lines += [f"%m{i} = aten.mm(%x{i}, %w{i})", f"%c{i} = aten.cos(%m{i})"]
    return program(inputs, lines, sum_of_sums(lines, len(shapes)))


@functools.cache
def spent(text, budget, solver="dp"):
    """MiB saved beside the inputs, products computed again in units of work."""
    cut = cuts.cut(text, min(budget, 1), solver)
    return cut.made_bytes() / cuts.MIB, cut.flops / FLOPS


def best(items, room):
    """The most work that fits: items are (bytes, work), every subset is tried."""
    subsets = itertools.product((0, 1), repeat=len(items))
    taken = [[item for item, takes in zip(items, subset, strict=True) if takes]
             for subset in subsets]
    return max(sum(work for _, work in each) for each in taken
               if sum(size for size, _ in each) <= room)


CHEAP = program([("x", columns(1)), ("w", columns(1))],
                ["%0 = aten.cos(%x)", "%1 = aten.mm(%0, %w)", "%2 = aten.sum(%1)"], "2")


@pytest.mark.parametrize("solver", SOLVERS)
def test_T121_cheap_operators_go_first(solver):
    assert spent(CHEAP, 1, solver) == (1, 0)
    assert spent(CHEAP, 0.5, solver) == (0, 0), "the cosine again, and no product"


@pytest.mark.parametrize("solver", SOLVERS)
def test_T122_an_even_chain(solver):
    """MiB by MiB a product less, until cosines alone are left, which come as a whole. All is nine
    MiB: the last cosine is read by nothing but the sum."""
    text = even_chain(5)
    assert spent(text, 1, solver) == (9, 0)
    for mib in range(9):
        kept = min(mib, 5)
        assert spent(text, mib / 9 + SLIVER, solver) == (kept, 5 - kept)


def check_widths(widths, solver):
    """Whatever the budget, no subset that fits is better, and none of a 24th less room."""
    items = [(width, width) for width in widths]
    total = sum(widths)
    for room in range(total + 1):
        saved, again = spent(side_by_side(widths), room / total + SLIVER, solver)
        assert saved <= room and saved + again == total
        assert again >= total - best(items, room)
        if solver != "greedy":
            assert again <= total - best(items, max(room - total / ROOMS, 0))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("widths", [(11, 3, 4, 2), (3, 5, 11, 17, 14)])
def test_T123_an_uneven_chain(widths, solver):
    check_widths(widths, solver)


REACHED = {
    (11, 3, 4, 2): (18, 17, 16, 15, 14, 13, 11, 7, 6, 5),
    (3, 5, 11, 17, 14): (42, 19, 8, 3),
}


@pytest.mark.parametrize("solver", ["dp", "exact"])
@pytest.mark.parametrize("widths", REACHED)
def test_T123_sums_of_some_that_are_met_exactly(widths, solver):
    for room in REACHED[widths]:
        budget = room / sum(widths) + SLIVER
        assert spent(side_by_side(widths), budget, solver) == (room, sum(widths) - room)


@pytest.mark.parametrize("widths", [(2, 7, 5, 9), (1, 6, 10, 13), (8, 3, 3, 12, 4)])
def test_T123_other_widths(widths):
    check_widths(widths, "exact")


@pytest.mark.parametrize("solver", SOLVERS)
def test_T124_the_cheaper_product_is_computed_again(solver):
    """Of two results of four MiB that which took half the work."""
    text = products([(1, 4), (2, 4)])
    assert spent(text, 1, solver) == (8, 0)
    assert spent(text, 0.5 + SLIVER, solver) == (4, 4)


SHAPES = [(4, 4), (6, 2), (2, 6)]
ITEMS = [(outer, inner * outer) for inner, outer in SHAPES]


@pytest.mark.parametrize("solver", ["dp", "exact"])
@pytest.mark.parametrize("room", range(13))
def test_T124_the_most_work_for_the_bytes(room, solver):
    """16, 12 and 12 units in 4, 2 and 6 MiB. Greedily, by work for a byte, four MiB keep two."""
    text = products(SHAPES)
    saved, again = spent(text, room / 12 + SLIVER, solver)
    assert saved <= room and again == 40 - best(ITEMS, room)
    if room == 4:
        assert spent(text, room / 12 + SLIVER, "greedy") == (2, 28)


KINDS = ((1, 1, "mm"), (1, 3, "attention"), (2, 2, "mm"), (2, 1, "mm"), (2, 5, "attention"),
         (4, 7, "mm"), (4, 9, "attention"))


def branches(kinds):
    """Linear layers and attention of (length, width) beside each other."""
    inputs, lines = [], []
    for i, (length, width, kind) in enumerate(kinds):
        sizes = f"{128 * length}, {64 * width}"
        if kind == "mm":
            inputs += [(f"x{i}", f"f32[{sizes}] {{input grad}}"),
                       (f"w{i}", f"f32[{64 * width}, {64 * width}] {{input grad}}")]
            lines.append(f"%y{i} = aten.mm(%x{i}, %w{i})")
        else:
            inputs += [(f"{name}{i}", f"f32[1, 1, {sizes}] {{input grad}}") for name in "qkv"]
            lines.append(f"%y{i} = aten.scaled_dot_product_attention(%q{i}, %k{i}, %v{i})")
        lines.append(f"%c{i} = aten.cos(%y{i})")
    return program(inputs, lines, sum_of_sums(lines, len(kinds)))


@functools.cache
def combined():
    """Choices of the whole from those of each branch alone: (bytes, microseconds), falling."""
    front = [(0, 0.0)]
    for kind in KINDS:
        choices = cuts.choices(branches([kind]))
        pairs = sorted((a + c, b + d) for a, b in front for c, d in choices)
        front = []
        for size, time in pairs:
            if not front or time < front[-1][1]:
                front.append((size, time))
    return front


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("tenths", range(1, 10))
def test_T125_attention_and_linear_layers(tenths, solver):
    """Branches do not touch each other, so the best of the whole is made of choices of each: what
    is chosen is as good as the best of a 24th less room (greedily: of a 12th)."""
    front = combined()
    least, most = front[0][0], front[-1][0]
    room = least + (most - least) * tenths / 10
    cut = cuts.cut(branches(KINDS), tenths / 10, solver)
    time = sum(each.microseconds for each in cut.again)
    less = room - (most - least) / (12 if solver == "greedy" else ROOMS)
    assert cut.bytes <= room
    assert time <= min(b for a, b in front if a <= less) + 0.005 * len(cut.again)  # rounded


def test_T125_which_of_them():
    """At six tenths linear layers go, whose bytes are many for their work; the longest attention
    stays whole."""
    cut = cuts.cut(branches(KINDS), 0.6)
    again = {each.name for each in cut.products_again()}
    assert {"y0", "y2", "y3", "y5"} <= again
    longest = [each for each in cut.again if each.op == "aten.bmm" and each.bytes > 4 * 512 * 512]
    assert longest == []


@pytest.mark.parametrize("solver", SOLVERS)
def test_T127_times_are_those_of_the_machine_that_is_compiled_for(solver):
    """Nothing is timed: a product's operations at the rates of the processor. Two of nine MiB."""
    text = even_chain(5)
    assert spent(text, 0.2 + 0.1, solver) == (2, 3)
    rates = {}
    for target in ("haswell", "znver4"):
        listed = cuts.Cut(cuts.command(text, "partition", "--budget", "0", "--target", target))
        rates[target] = [each.microseconds for each in listed.products_again()]
    assert len(rates["haswell"]) == len(rates["znver4"]) == 5
    assert rates["haswell"][0] > 1.5 * rates["znver4"][0], "half the lanes"


@pytest.mark.parametrize("solver", SOLVERS)
def test_T127_times_may_be_measured(solver):
    """By rates of this machine the same is saved of an even chain, and the same made again."""
    how = ("--solver", solver, "--cost", "measured")
    cut = cuts.Cut(cuts.command(even_chain(5), "partition", "--budget", "0.3", *how))
    assert (cut.made_bytes() / cuts.MIB, cut.flops / FLOPS) == (2, 3)
    times = {each.microseconds for each in cut.products_again()}
    assert len(times) == 1 and min(times) > 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--budget", "1.5"], "1.5"),
        (["--budget", "-0.1"], "-0.1"),
        (["--budget", "0.5", "--solver", "ilp"], "solved by 'dp', 'greedy' or 'exact'"),
    ],
)
def test_T129_bad_values(arguments, said):
    done = cuts.attempt(CHEAP, "partition", *arguments)
    assert done.returncode == 1 and said in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    "options, said",
    [
        ({"memory_budget": 1.5}, "'memory_budget' is one of.*or bytes"),
        ({"memory_budget": 0.5, "memory_budget_solver": "ilp"}, "solver' is one of.*'exact'"),
        ({"memory_budget": 0.5, "runtime_estimator": "profile"}, "runtime_estimator"),
    ],
)
def test_T129_bad_options(aot, options, said):
    with pytest.raises(Exception, match=said):
        aot.compile(torch.sin, **options)(torch.randn(3))
