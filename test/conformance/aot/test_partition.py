"""T106 to T112, T114 to T116, T118, T119: what a cut saves, in which order, what it computes again
and where. Programs are text, so that what is counted is what the partition was given."""

import re

import pytest

import cuts

NORM = """graph @f(%x: f32[16, 64] {input grad}, %w: f32[64] {input grad}, \
%b: f32[64] {input grad}) {
  %0, %1, %2 = aten.native_layer_norm(%x, [64], %w, %b, 1e-5)
  return %0
}
"""


def sizes_of(graph):
    """Of each named value, from the lines that make it and from the inputs: sizes as words."""
    text = "\n".join(graph.inputs + [node.line for node in graph.nodes])
    return dict(re.findall(r"(%\w+): \w+\[(.*?)\]", text))


@pytest.mark.parametrize("budget", ["as_read", "min_cut"])
def test_T106_what_a_layer_norm_saves(budget):
    """The normalized input, a number for each row, the weight: not the input, not the bias, and of
    a node with three results no more than backward reads."""
    forward, backward = cuts.halves(NORM, budget)
    tensors, sizes = cuts.saved(forward)
    shapes = sizes_of(forward)
    assert [shapes[each] for each in tensors] == ["64", "16, 1", "16, 64"] and sizes == []
    assert tensors[0] == "%w"
    assert len(forward.outputs) == 1 + 3 and len(backward.inputs) == 3 + 1
    assert [each.split()[0] for each in backward.outputs] == ["grad"] * 3


SYMBOLIC = " where s0 in [2, 99], s1 in [2, 99], s2 in [2, 99]"
ROWS = """graph @f(%x: f32[s0, s1] {input grad}) where s0 in [2, 99], s1 in [2, 99] {
  %0 = aten.sum.dim_IntList(%x, [1])
  return %0
}
"""
JOINED = (
    "graph @f(%a: f32[s0, 4] {input grad}, %b: f32[s1, 4] {input grad}, "
    "%c: f32[s2, 4] {input grad})" + SYMBOLIC + """ {
  %0 = aten.cat([%a, %b, %c])
  %1 = aten.sum.dim_IntList(%0, [1])
  return %1
}
""")


def test_T107_sizes_are_saved_where_backward_reads_no_numbers():
    """Of the two sizes the tangent shows one."""
    forward, backward = cuts.halves(ROWS)
    assert cuts.saved(forward) == ([], ["s1"])
    assert backward.inputs == ["%s1: i64 {saved}", "%tangent0: f32[s0] {tangent of output 0}"]


def test_T107_sizes_of_what_is_joined():
    """Of their sum, which the tangent shows, no one can read the parts."""
    forward, backward = cuts.halves(JOINED)
    assert cuts.saved(forward) == ([], ["s0", "s1", "s2"])
    assert len(backward.inputs) == 3 + 1 and len(backward.outputs) == 3


BOTH = (
    "graph @f(%a: f32[s0, 8] {input grad}, %w: f32[8, 8] {input grad}, "
    "%b: f32[s1, s2] {input grad})" + SYMBOLIC + """ {
  %0 = aten.mm(%a, %w)
  %1 = aten.sum.dim_IntList(%b, [0])
  %2 = aten.sin(%0)
  %3 = aten.sum(%1)
  return %2, %3
}
""")


@pytest.mark.parametrize("budget", ["as_read", "min_cut", "default"])
def test_T108_tensors_go_out_before_sizes_and_come_in_behind_them(budget):
    forward, backward = cuts.halves(BOTH, budget)
    kinds = [each.split()[0] for each in forward.outputs]
    assert [kind for kind in kinds if kind.startswith("saved")] == kinds[2:]
    assert kinds[2:] == ["saved"] * 3 + ["saved_size"] * 2
    sizes = cuts.saved(forward)[1]
    assert sorted(sizes) == ["s1", "s2"]
    assert backward.inputs[:2] == [f"%{size}: i64 {{saved}}" for size in sizes], "in one order"
    types = [re.match(r"%\w+: (\w+)", each)[1] for each in backward.inputs]
    assert types == ["i64"] * 2 + ["f32"] * 5, "sizes, what is saved, tangents"
    assert all("tangent" in each for each in backward.inputs[-2:])


def chain(inputs, lines, result):
    body = "".join(f"  {line}\n" for line in lines)
    named = ", ".join(f"%{each}: f32[3] {{input grad}}" for each in inputs)
    return f"graph @f({named}) {{\n{body}  return {result}\n}}\n"


def test_T109_minimum_cut_of_a_chain():
    lines = ["%0 = aten.cos(%x)", "%1 = aten.cos(%0)", "%2 = aten.cos(%1)"]
    forward, backward = cuts.halves(chain("x", lines, "%2"))
    assert cuts.saved(forward) == (["%x"], [])
    assert cuts.ops(backward)["cos"] == 2, "computed again, inside of the kernel that reads it"


def test_T109_minimum_cut_of_a_sum_of_four():
    """One sum is fewer bytes than four inputs."""
    lines = ["%0 = aten.add.Tensor(%a, %b)", "%1 = aten.add.Tensor(%0, %c)"]
    lines += ["%2 = aten.add.Tensor(%1, %d)", "%3 = aten.cos(%2)", "%4 = aten.cos(%3)"]
    forward, backward = cuts.halves(chain("abcd", lines, "%4"))
    assert cuts.saved(forward) == (["%2"], [])
    assert cuts.ops(backward)["add.Tensor"] == 0 and len(backward.outputs) == 4


CUBE = chain("x", ["%0 = aten.mul.Tensor(%x, %x)", "%1 = aten.mul.Tensor(%0, %x)"], "%1")


@pytest.mark.parametrize("budget, saved", [("min_cut", ["%x"]), ("as_read", ["%x", "%0"])])
def test_T110_minimum_cut_of_a_cube(budget, saved):
    forward, backward = cuts.halves(CUBE, budget)
    assert cuts.saved(forward) == (saved, [])
    squares = [node for node in backward.nodes if node.operands == ["%x", "%x"]]
    assert len(squares) == (1 if budget == "min_cut" else 0), "the square is made again"


MASKED = """graph @f(%a: f32[s0, s1] {input grad}) where s0 in [2, 99], s1 in [2, 99] {
  %0 = aten.select.int(%a, 0, 0)
  %1 = aten.ones([s1], bool)
  %2 = aten.masked_fill.Scalar(%0, %1, 0)
  return %2
}
"""


@pytest.mark.parametrize("budget", ["as_read", "min_cut", "0"])
def test_T111_a_size_is_saved_not_its_tensor(budget):
    forward, backward = cuts.halves(MASKED, budget)
    assert cuts.saved(forward) == ([], ["s0"])
    assert len(backward.inputs) == 2


def test_T112_an_output_that_depends_on_a_size():
    """A view of every size's own length has no gradient but the tangent: nothing is saved."""
    text = ROWS.replace("aten.sum.dim_IntList(%x, [1])", "aten.expand(%x, [s0, s1])")
    forward, backward = cuts.halves(text)
    assert cuts.saved(forward) == ([], [])
    assert backward.nodes == [] and len(backward.inputs) == 1


def test_T112_compiles_and_equals_eager(aot):
    for sizes in ((3, 5), (4, 2)):
        aot.check(lambda x: x.expand(x.shape).sin(), lambda t: t.leaf(*sizes), dynamic=True)


ALL_FOUR = ["%e = aten.add.Tensor(%a, %b)", "%g = aten.add.Tensor(%e, %c)",
            "%r = aten.add.Tensor(%g, %d)"]
DIM = "aten.sum.dim_IntList(%x, [0]"
MERGED = {
    "cos twice": (["%a = aten.cos(%x)", "%b = aten.cos(%x)", "%c = aten.add.Tensor(%a, %a)",
                   "%d = aten.add.Tensor(%b, %b)", "%r = aten.add.Tensor(%c, %d)"], 2),
    "cos and sin twice": (["%e = aten.cos(%x)", "%a = aten.sin(%e)", "%g = aten.cos(%x)",
                           "%b = aten.sin(%g)", "%c = aten.add.Tensor(%a, %a)",
                           "%d = aten.add.Tensor(%b, %b)", "%r = aten.add.Tensor(%c, %d)"], 3),
    "four sums": (["%a = aten.sum(%x)", "%b = aten.sum(%x)", "%c = aten.sum(%x)",
                   "%d = aten.sum(%x)", *ALL_FOUR], 3),
    "arguments that are defaults": ([f"%a = {DIM})", f"%b = {DIM}, false)",
                                     f"%c = {DIM}, keepdim=false)", f"%d = {DIM}, dtype=none)",
                                     *ALL_FOUR], 3),
    "dimensions that are kept": ([f"%a = {DIM}, true)", f"%b = {DIM}, true)", f"%c = {DIM})",
                                  f"%d = {DIM})", "%e = aten.add.Tensor(%a, %b)",
                                  "%g = aten.add.Tensor(%c, %d)",
                                  "%r = aten.add.Tensor(%e, %g)"], 2),
    "fills": (["%a = aten.ones_like(%x)", "%b = aten.ones_like(%x)",
               "%r = aten.add.Tensor(%a, %b)"], 1),
    "lists": (["%a = aten.cat([%x, %x])", "%b = aten.cat([%x, %x])",
               "%r = aten.add.Tensor(%a, %b)"], 1),
    "random numbers": (["%a = aten.rand_like(%x)", "%b = aten.rand_like(%x)",
                        "%r = aten.add.Tensor(%a, %b)"], 0),
    "normal numbers": (["%a = aten.randn([3])", "%b = aten.randn([3])",
                        "%r = aten.add.Tensor(%a, %b)"], 0),
}


@pytest.mark.parametrize("name", MERGED)
def test_T114_what_cse_merges(name):
    lines, removed = MERGED[name]
    text = chain("x", lines, "%r")
    passes = ["functionalize", "decompose_composite", "rng"]
    counts = [len(cuts.read(cuts.passed(text, passes + ["cse"] * times + ["dce"])).nodes)
              for times in (0, 1, 2)]
    assert counts[0] - counts[1] == removed
    assert counts[2] == counts[1], "once is enough"


def test_T114_a_number_and_the_same_one_of_another_kind():
    """1 and 1.0 are two arguments: of integers the second one makes floats."""
    lines = ["%a = aten.add.Scalar(%x, 1)", "%b = aten.add.Scalar(%x, 1.0)",
             "%r = aten.mul.Tensor(%a, %b)"]
    whole = lines[:1] + ["%b = aten.add.Scalar(%a, 1.0)"]
    graph = cuts.read(cuts.passed(chain("x", lines, "%r"), ["cse", "dce"]))
    assert cuts.ops(graph)["add.Scalar"] == 2
    integers = chain("x", whole, "%b").replace("f32[3] {input grad}", "i64[3]")
    assert "%b: f32[3]" in cuts.passed(integers, ["cse"])


WEIGHT = """graph @f(%x: f32[8, 64] {input grad}, %w: f32[64, 64] {ROLE}) {
  %0 = aten._to_copy(%w, dtype=f8e4m3fn)
  %1 = aten._to_copy(%0, dtype=f32)
  %2 = aten.mm(%x, %1)
  return %2
}
"""


@pytest.mark.parametrize("budget", ["as_read", "default", "min_cut", "1", "0.5"])
def test_T115_a_parameter_costs_nothing_to_save(budget):
    """It lives anyway, so its copy of fewer bits is made again. An activation's copy is kept."""
    parameter, _ = cuts.halves(WEIGHT.replace("ROLE", 'param "w" grad'), budget)
    assert cuts.saved(parameter) == (["%x", "%w"], [])
    activation, _ = cuts.halves(WEIGHT.replace("ROLE", "input grad"), budget)
    assert cuts.saved(activation) == (["%x", "%0"], [])


REGIONS = """graph @f(%x: f32[64, 64] {input grad}, %w: f32[64, 64] {param "w" grad}, \
%v: f32[64, 64] {param "v" grad}) {
  %0 = aten.mm(%x, %w) {region 1, must_recompute}
  %1 = aten.tanh(%0) {region 1, must_recompute}
  %2 = aten.mm(%1, %v) {region 1, must_recompute}
  %3 = aten.sin(%2) {region 1, must_recompute}
  %4 = aten.mm(%3, %w) {region 2, must_recompute}
  %5 = aten.tanh(%4) {region 2, must_recompute}
  %6 = aten.mm(%5, %v) {region 2, POLICY}
  %7 = aten.sin(%6) {region 2, must_recompute}
  return %7
}
"""
BUDGETS = ["as_read", "default", "min_cut", "1", "0.5", "0", "min_memory", "min_time"]


def again_of(backward, region):
    """Nodes of forward that backward runs for this region, in order."""
    mark = f"region {region}, must_recompute"
    return [number for number, node in enumerate(backward.nodes) if mark in node.line]


@pytest.mark.parametrize("budget", BUDGETS)
def test_T116_a_region_that_must_be_recomputed(budget):
    """Each node once more, but for the last ones, whose results only forward reads; what the second
    region starts from is saved."""
    forward, backward = cuts.halves(REGIONS.replace("POLICY", "must_recompute"), budget)
    assert cuts.saved(forward) == (["%x", "%w", "%v", "%3"], [])
    for region in (1, 2):
        again = [backward.nodes[number].op for number in again_of(backward, region)]
        assert again == ["aten.mm", "aten.tanh", "aten.mm"]


@pytest.mark.parametrize("budget", BUDGETS)
def test_T116_a_product_that_must_be_saved(budget):
    forward, backward = cuts.halves(REGIONS.replace("POLICY", "must_save"), budget)
    assert cuts.saved(forward) == (["%x", "%w", "%v", "%3", "%6"], [])
    again = [backward.nodes[number].op for number in again_of(backward, 2)]
    assert again == ["aten.mm", "aten.tanh"]


UNREPEATABLE = """graph @f(%x: f32[8] {input grad}, %i: i64[2]) {
  %0 = aten.index.Tensor(%x, [%i]) {region 1, must_recompute}
  %1 = aten.exp(%0) {region 1, must_recompute}
  %2 = aten.sin(%1) {region 1, must_recompute}
  return %2
}
"""


@pytest.mark.parametrize("budget", BUDGETS)
def test_T118_what_cannot_be_computed_again_is_saved(budget):
    """A check on data runs once, whatever the policy: its result crosses, the rest is made again.
    So no program asks for a value that can be neither saved nor computed again."""
    forward, backward = cuts.halves(UNREPEATABLE, budget)
    tensors, _ = cuts.saved(forward)
    assert "%0" in tensors or "%1" in tensors
    assert "aten.index.Tensor" not in [node.op for node in backward.nodes]


def bytes_of(words):
    count = 4
    for size in words.split(", "):
        count *= int(size)
    return count


def peak(graph, order):
    """Most bytes of what the nodes make that live at once, each until its last reader."""
    sizes = sizes_of(graph)
    last = {}
    for place, node in enumerate(order):
        last.update({operand: place for operand in node.operands})
    given = {re.search(r"%\w+", each)[0] for each in graph.outputs if "%" in each}
    live = most = 0
    for place, node in enumerate(order):
        live += sum(bytes_of(sizes[each]) for each in node.results)
        most = max(most, live)
        made = {each for other in order[: place + 1] for each in other.results}
        ended = {each for each in made if last.get(each, -1) == place and each not in given}
        live -= sum(bytes_of(sizes[each]) for each in ended)
    return most


def test_T119_recomputation_stands_right_before_its_reader():
    """The first region is made again when the gradient has come down to it; simulated here, that
    takes less memory than both at the start."""
    _, backward = cuts.halves(REGIONS.replace("POLICY", "must_recompute"))
    first, second = again_of(backward, 1), again_of(backward, 2)
    assert second == list(range(len(second))) and min(first) > max(second)
    own = [n for n, node in enumerate(backward.nodes) if node.line.endswith("{backward, region 2}")]
    assert max(own) < min(first), "all of the second region's gradient is done by then"
    for chain_of in (first, second):
        reader = backward.nodes[chain_of[-1] + 1]
        assert backward.nodes[chain_of[-1]].results[0] in reader.operands
        assert chain_of == list(range(chain_of[0], chain_of[0] + len(chain_of)))
    nodes = backward.nodes
    hoisted = [nodes[n] for n in second + first]
    hoisted += [node for node in nodes if node not in hoisted]
    assert peak(backward, nodes) < peak(backward, hoisted)
