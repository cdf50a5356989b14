"""What users get wrong is told in their terms: op, operands, the line, what would fit."""

import pytest
import torch

import tandem
from graphs import build

CALLS = [
    (
        "%a: f32[3, 4], %b: f32[5, 6]",
        "aten.mm(%a, %b)",
        "[aten::mm] self f32[3, 4] and mat2 f32[5, 6]: inner sizes 4 and 5 differ (line 2)",
    ),
    (
        "%a: f32[3, 4], %b: f64[4, 6]",
        "aten.mm(%a, %b)",
        "[aten::mm] self f32[3, 4] and mat2 f64[4, 6] must have the same dtype",
    ),
    (
        "%a: f32[3, 4], %b: f32[4]",
        "aten.mm(%a, %b)",
        "self f32[3, 4] and mat2 f32[4] must have 2 dimensions",
    ),
    ("%a: bool[3, 4], %b: bool[4, 4]", "aten.mm(%a, %b)", "bool tensors is not defined"),
    ("%a: f32[2, 3, 4], %b: f32[3, 4, 5]", "aten.bmm(%a, %b)", "batch sizes differ"),
    (
        "%a: f32[7], %b: f32[3, 4], %c: f32[4, 5]",
        "aten.addmm(%a, %b, %c)",
        "[aten::addmm] sizes [7] and [3, 5]",
    ),
    (
        "%a: f32[3, 4], %b: f32[3]",
        "aten.add.Tensor(%a, %b)",
        "[aten::add.Tensor] sizes [3, 4] and [3] do not broadcast: 4 and 3 differ",
    ),
    ("%a: f32[3, 4]", "aten.sum.dim_IntList(%a, [2])", "dimension 2 is out of range [-2, 1]"),
    ("%a: f32[3, 4]", "aten.sum.dim_IntList(%a, [-3])", "dimension -3 is out of range [-2, 1]"),
    ("%a: f32[3, 4]", "aten.sum.dim_IntList(%a, [1, -1])", "appears twice"),
    (
        "%a: f32[3, 4]",
        "aten.select.int(%a, 0, 3)",
        "index 3 is out of range for dimension 0 of self f32[3, 4]",
    ),
    ("%a: f32[3, 4]", "aten.select.int(%a, 0, -4)", "index -4 is out of range"),
    ("%a: f32[]", "aten.select.int(%a, 0, 0)", "0-d tensor"),
    ("%a: f32[3, 4]", "aten.view(%a, [5, -1])", "self f32[3, 4] has 12 elements"),
    ("%a: f32[3, 4]", "aten.view(%a, [-1, -1])", "only one size may be -1"),
    ("%a: f32[0, 4]", "aten.view(%a, [0, -1])", "size -1 is not determined"),
    ("%a: f32[3, 4]", "aten.permute(%a, [0])", "2 dimensions are needed, 1 are given"),
    ("%a: f32[3, 4]", "aten.permute(%a, [0, 0])", "dimension 0 appears twice"),
    ("%a: f32[3, 4]", "aten.expand(%a, [4, 4])", "self f32[3, 4] does not expand to [4, 4]"),
    ("%a: f32[2, 3, 4]", "aten.t(%a)", "at most 2 dimensions"),
    (
        "%a: f32[3, 4]",
        'aten.clone(%a, memory_format="channels_last")',
        "[aten::clone] memory_format channels_last is for 4 dimensions, not for 2",
    ),
    (
        "%a: f32[3, 4]",
        'aten.clone(%a, memory_format="rows")',
        "[aten::clone] memory_format must be one of contiguous_format, preserve_format, "
        "channels_last, channels_last_3d, not",
    ),
    (
        "%a: f32[16777217]",
        "aten.quantile.scalar(%a, 0.5)",
        "[aten::quantile.scalar] rows of 16777217 elements: at most 16777216",
    ),
    ("%a: f32[3, 4]", "aten.quantile.scalar(%a, 1.5)", "q 1.5 is not in [0, 1]"),
    ("%a: f32[3, 4]", "aten.clone(%a, memory_format=4)", "memory_format must be one of"),
    ("%a: f32[3]", "aten.slice.Tensor(%a, 0, 0, 2, 0)", "step must be positive"),
    ("%a: i64[3, 4]", "aten.mean(%a)", "needs a float dtype, not self i64[3, 4]"),
    (
        "%a: f32[0]",
        "aten.amax(%a, [0])",
        "without an identity over an empty dimension: self f32[0]",
    ),
    ("%a: i64[3]", "aten.pow.Tensor_Scalar(%a, -1)", "negative integer powers"),
    ("%a: f32[3]", "aten.dropout(%a, 1.5, true)", "p must be in [0, 1], not 1.5"),
    (
        "%a: f32[3, 4], %b: f32[1, 4]",
        "aten.add_.Tensor(%b, %a)",
        "the result f32[3, 4] does not fit into self f32[1, 4]",
    ),
    ("%a: i64[3, 4]", "aten.div_.Scalar(%a, 2)", "a result of f32 does not go into i64[3, 4]"),
    ("%a: f32[3]", "aten.nope(%a)", "[aten.nope] is not an operator Tandem knows (line 2)"),
    ("%a: f32[3]", "aten.neg(%b)", "%b is not defined (line 2)"),
    ("%a: f32[3]", "aten.neg(%a, %a)", "[aten::neg] takes 1 arguments, 2 were given"),
    ("%a: f32[3]", "aten.neg()", "[aten::neg] argument 'self' is missing"),
    ("%a: f32[3]", "aten.neg(%a, foo=3)", "[aten::neg] has no argument 'foo'"),
    ("%a: f32[3]", 'aten.neg("x")', '[aten::neg] self must be a tensor, not "x"'),
    ("%a: f32[3]", "aten.sum.dim_IntList(%a, [0.5])", "dim must be a list of integers, not [0.5]"),
    ("%a: f32[3]", "aten.add.Scalar(%a, 99999999999999999999)", "number out of range"),
]

TEXTS = [
    ("", "the text holds no graph"),
    ("grph", "expected 'graph', found 'grph' (line 1)"),
    ("graph @g(", "expected an input"),
    ("graph @g() {", "graph without a return"),
    ("graph @g(%a: f99[3]) { return %a }", "unknown type 'f99'"),
    ("graph @g(%a: f32[3], %a: f32[3]) {\n return %a\n}", "%a is defined twice"),
    ("graph @g(%a: f32[-3]) {\n return %a\n}", "a size is negative: f32[-3]"),
    ("graph @g(%a: f32[s0 +]) {\n return %a\n}", "'s0 +' is no integer expression"),
    ("graph @g(%a: f32[3]{1, 2}) {\n return %a\n}", "as many strides as sizes"),
    ("graph @g(%a: f32[s0]) where s0 in [5, 2] {\n return %a\n}", "range [5, 2] of s0 is empty"),
    (
        "graph @g(%a: f32[s0]) where s0 in [2, 4], s0 in [6, 8] {\n return %a\n}",
        "range [6, 8] of s0 contradicts [2, 4]",
    ),
    (
        "graph @f(%a: f32[s0]) where s0 in [2, 4] {\n return %a\n}\n"
        "graph @g(%a: f32[s0]) where s0 in [5, 9] {\n return %a\n}",
        "range [5, 9] of s0 contradicts [2, 4] (line 4)",
    ),
    ("graph @g(%a: f32[s0]) where s0 in [2, 99999999999999999999] {\n", "does not fit into 64"),
    ("graph @g(%a: f32[s0]) where s0 in [2, 2.5] {\n return %a\n}", "'2.5' is no integer"),
    (
        "graph @g(%a: f32[s0]) where s0 in [2, 9] {\n"
        " %r = aten.select.int(%a, 0, 5)\n return %r\n}",
        "index 5 may be out of range for dimension 0 of self f32[s0]",
    ),
    ("graph @g(%a: f32[3]) {\n %r = aten.neg(%a)\n return %s\n}", "%s is not defined (line 3)"),
    (
        "graph @g(%a: f32[3]) {\n %r: f64[3] = aten.neg(%a)\n return %r\n}",
        "result is f32[3], not f64[3] (line 2)",
    ),
    (
        "graph @g(%a: f32[3]) {\n %r, %s = aten.neg(%a)\n return %r\n}",
        "aten.neg has 1 results, 2 are named",
    ),
    (
        "graph @g(%a: f32[3]) {\n %r = aten.neg(%a)\n return %r\n} trailing",
        "expected 'graph', found 'trailing'",
    ),
    (
        'graph @g(%a: f32[3]) {\n %r = aten.neg(%a) loc("open\n return %r\n}',
        "string without an end (line 2)",
    ),
    ("graph @g(%a: f32[3]) {\n %r = aten.neg(%a) {odd}\n return %r\n}", "unknown attribute 'odd'"),
    ("\x01", "unexpected byte 1"),
    ("graph @g(%a: f32[2 * s0]) {\n %r = aten.neg(%a)\n return %r\n}", "nothing gives s0 a value"),
    ("graph @g(%a: f32[9223372036854775807, 4]) {\n %r = aten.neg(%a)\n return %r\n}", "64-bit"),
]


@pytest.mark.parametrize("inputs, call, message", CALLS, ids=[call for _, call, _ in CALLS])
def test_calls_that_do_not_fit(inputs, call, message):
    with pytest.raises(tandem.UserError) as caught:
        build(inputs, f"%r = {call}")
    assert message in str(caught.value)
    assert "(line 2)" in str(caught.value)


@pytest.mark.parametrize("text, message", TEXTS, ids=range(len(TEXTS)))
def test_malformed_text(text, message):
    with pytest.raises(tandem.UserError) as caught:
        tandem.compile_text(text)
    assert message in str(caught.value)


def test_every_cut_of_a_graph_is_an_error_or_a_graph():
    text = (
        "graph @g(%a: f32[s0, 4]{4, 1} {input grad}, %b: f32[4]) where s0 in [2, 8] {\n"
        '  %0: f32[s0, 4] = aten.add.Tensor(%a, %b, alpha=2.5) {no_grad} loc("x.py:3")\n'
        "  return %0\n}\n"
    )
    tandem.compile_text(text)
    for end in range(len(text) - 2):
        with pytest.raises(tandem.UserError):
            tandem.compile_text(text[:end])


def test_all_problems_come_at_once():
    with pytest.raises(tandem.UserError) as caught:
        build(
            "%a: f32[3]", ["%r = aten.neg(%q)", "%s = aten.neg(%r)", "%t = aten.nope(%a)"], "%s, %z"
        )
    assert str(caught.value).split("\n") == [
        "%q is not defined (line 2)",
        "[aten.nope] is not an operator Tandem knows (line 4)",
        "%z is not defined (line 5)",
    ]


ARGUMENTS = [
    ([], "takes 1 inputs, got 0"),
    ([torch.zeros(3, 4)] * 2, "takes 1 inputs, got 2"),
    ([torch.zeros(3, 4, dtype=torch.float64)], "input 'a': expected f32[3, 4], got f64[3, 4]"),
    ([torch.zeros(3, 4, dtype=torch.int32)], "expected f32[3, 4], got i32[3, 4]"),
    ([torch.zeros(4)], "expected f32[3, 4], got f32[4]"),
    ([torch.zeros(4, 3)], "expected f32[3, 4], got f32[4, 3]: size 0 must be 3"),
    ([torch.zeros(3, 5)], "size 1 must be 4"),
    ([torch.zeros(0, 4)], "size 0 must be 3"),
    ([3], "expected f32[3, 4], got an i64 scalar"),
    ([0.5], "got an f64 scalar"),
    (["x"], "argument 0 is no tensor on the CPU"),
    ([None], "argument 0 is no tensor on the CPU"),
    ([torch.zeros(3, 4, device="meta")], "argument 0 is no tensor on the CPU"),
    ([torch.zeros(3, 4).to_sparse()], "argument 0 is no tensor on the CPU"),
    ([torch.zeros(3, 4, dtype=torch.complex64)], "expected f32[3, 4], got c64[3, 4]"),
    ([torch.zeros(3, 4, dtype=torch.complex32)], "an element type that is not supported"),
]


@pytest.mark.parametrize("arguments, message", ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_arguments_that_do_not_fit(arguments, message):
    executable = build("%a: f32[3, 4]", "%r = aten.neg(%a)")
    with pytest.raises(tandem.UserError) as caught:
        executable.run(arguments)
    assert message in str(caught.value)
    # The executable is as good as before.
    assert torch.equal(executable.run([torch.ones(3, 4)])[0], -torch.ones(3, 4))


def test_lowest_integer():
    lowest = -(2**63)
    lines = [f"%b = aten.full([2], {lowest})", "%r = aten.maximum(%a, %b)"]
    a = torch.tensor([lowest, 5])
    assert torch.equal(build("%a: i64[2]", lines).run([a])[0], a)
    with pytest.raises(tandem.UserError, match="number out of range"):
        build("%a: i64[2]", f"%r = aten.full([2], {2**63})")


# What is read at a checked place may be the same at every place; the check stays.
ALIKE = [
    "%b = aten.full([5], 0.5)\n  %r = aten.gather(%b, 0, %i)",
    "%b = aten.expand(%a, [5])\n  %r = aten.index_select(%b, 0, %i)",
    "%b = aten.full([5, 2], 0.5)\n  %r = aten.embedding(%b, %i)",
    "%b = aten.expand(%a, [5])\n  %r = aten.index.Tensor(%b, [%i])",
    "%b = aten.exp(%a)\n  %r = aten.gather(%b, 0, %i)",
]


@pytest.mark.parametrize("lines", ALIKE)
def test_index_of_what_is_alike_everywhere(lines):
    executable = build("%a: f32[1], %i: i64[3]", lines)
    a = torch.ones(1)
    executable.run([a, torch.zeros(3, dtype=torch.int64)])
    with pytest.raises(tandem.UserError, match="index out of range"):
        executable.run([a, torch.tensor([0, 99, 0])])


@pytest.mark.parametrize("place", [5, -1])
def test_a_class_that_one_hot_has_not(place):
    executable = build("%a: i64[2]", "%r = aten.one_hot(%a, 5)")
    assert executable.run([torch.tensor([4, 0])])[0].tolist() == [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]
    with pytest.raises(tandem.UserError, match=r"one_hot\] index out of range"):
        executable.run([torch.tensor([0, place])])
    with pytest.raises(tandem.UserError, match="num_classes.* must be positive"):
        build("%a: i64[2]", "%r = aten.one_hot(%a)")


def test_scalars():
    executable = build(
        "%a: f32[3], %k: i64, %x: f64",
        ["%b = aten.mul.Scalar(%a, %k)", "%r = aten.add.Scalar(%b, %x)"],
    )
    a = torch.randn(3)
    assert torch.equal(executable.run([a, 3, 0.5])[0], a * 3 + 0.5)
    assert torch.equal(executable.run([a, True, 2])[0], a + 2)
    for arguments, message in [
        ([a, 2.5, 0.5], "input 'k': expected an i64 scalar, got an f64 scalar"),
        ([a, 2, a], "input 'x': expected an f64 scalar, got f32[3]"),
        ([a, 2**70, 0.5], "argument 1 does not fit into 64 bits"),
    ]:
        with pytest.raises(tandem.UserError) as caught:
            executable.run(arguments)
        assert message in str(caught.value)


def test_gradients_that_cannot_be():
    for inputs, call, gradients, message in [
        (
            "%a: f32[3] {input grad}",
            "aten.neg(%a)",
            "ones",
            "must be a loss of one element, not f32[3]",
        ),
        (
            "%a: f32[3]",
            "aten.sum(%a)",
            "ones",
            "does not depend on anything that requires a gradient",
        ),
        ("%a: f32[3] {input grad}", "aten.sum(%a)", "odd", "'tangents' or 'ones', not from 'odd'"),
    ]:
        with pytest.raises(tandem.UserError) as caught:
            build(inputs, f"%r = {call}", gradients=gradients)
        assert message in str(caught.value)


def test_errors_are_value_errors():
    assert issubclass(tandem.UserError, ValueError)
    assert issubclass(tandem.Unsupported, tandem.UserError)


def test_nan_goes_through():
    lines = [
        "%b = aten.mul.Scalar(%a, 0)",
        "%c = aten.sum.dim_IntList(%b, [1])",
        "%d = aten.amax(%a, [1])",
        "%e = aten.maximum(%c, %d)",
        "%f = aten.mm(%a, %w)",
    ]
    executable = build("%a: f32[3, 4], %w: f32[4, 2]", lines, "%c, %d, %e, %f")
    a = torch.ones(3, 4)
    a[1, 2] = torch.nan
    for result in executable.run([a, torch.ones(4, 2)]):
        assert result.isnan().reshape(3, -1).any(1).tolist() == [False, True, False]


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0), (0, 0)], ids=str)
def test_empty_tensors(sizes):
    m, n = sizes
    lines = [
        "%b = aten.exp(%a)",
        "%c = aten.sum.dim_IntList(%b, [1])",
        "%d = aten.sum(%b)",
        "%e = aten.mm(%b, %w)",
        "%f = aten.mean.dim(%b, [0])",
    ]
    executable = build(
        f"%a: f32[{m}, {n}] {{input grad}}, %w: f32[{n}, 3] {{input grad}}",
        lines,
        "%b, %c, %d, %e, %f",
        gradients="tangents",
    )
    a, w = torch.randn(m, n, requires_grad=True), torch.randn(n, 3, requires_grad=True)
    b = a.exp()
    results = [b, b.sum(1), b.sum(), b @ w, b.mean(0)]
    tangents = [torch.ones_like(result) for result in results]
    got = executable.run([a, w, *tangents])
    for actual, expected in zip(got, results):
        torch.testing.assert_close(actual, expected.detach(), equal_nan=True)
    for actual, expected in zip(got[5:], torch.autograd.grad(results, [a, w], tangents)):
        torch.testing.assert_close(actual, expected, equal_nan=True)
