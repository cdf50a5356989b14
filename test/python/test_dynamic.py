"""One compile for many sizes; inputs of any strides and alignment; inputs that are written."""

import pytest
import torch

import tandem
from graphs import build

MLP = [
    "%h = aten.addmm(%b1, %x, %w1)",
    "%z = aten.mul.Tensor(%h, %h)",
    "%p = aten.exp(%z)",
    "%n = aten.sum.dim_IntList(%p, [1], true)",
    "%r = aten.div.Tensor(%p, %n)",
]


def mlp(x, w1, b1):
    p = (torch.addmm(b1, x, w1) ** 2).exp()
    return p / p.sum(1, keepdim=True)


def batch(size):
    return torch.randn(size, 7) * 0.3


def test_one_compile_serves_every_batch():
    executable = build("%x: f32[s0, 7], %w1: f32[7, 5], %b1: f32[5]", MLP, where="s0 in [2, 64]")
    w1, b1 = torch.randn(7, 5), torch.randn(5)
    for size in [2, 3, 8, 33, 64, 5, 2]:
        x = batch(size)
        torch.testing.assert_close(
            executable.run([x, w1, b1])[0], mlp(x, w1, b1), rtol=2e-5, atol=2e-5
        )


def test_gradients_at_every_batch():
    executable = build(
        "%x: f32[s0, 7], %w1: f32[7, 5] {input grad}, %b1: f32[5] {input grad}",
        MLP,
        where="s0 in [2, 64]",
        gradients="tangents",
    )
    assert executable.outputs == ["output", "w1", "b1"]
    w1, b1 = torch.randn(7, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    for size in [2, 17, 64, 3]:
        x, tangent = batch(size), torch.randn(size, 5)
        expected = mlp(x, w1, b1)
        result, *gradients = executable.run([x, w1, b1, tangent])
        torch.testing.assert_close(result, expected.detach(), rtol=2e-5, atol=2e-5)
        for actual, wanted in zip(gradients, torch.autograd.grad(expected, [w1, b1], tangent)):
            torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4)


def test_guards_speak():
    executable = build(
        "%x: f32[s0, 4], %y: f32[s0, 4]", "%r = aten.add.Tensor(%x, %y)", where="s0 in [2, 64]"
    )
    for sizes, message in [
        ((1, 1), "guard s0 >= 2 fails"),
        ((65, 65), "guard s0 <= 64 fails"),
        ((5, 6), "input 'y': expected f32[s0, 4], got f32[6, 4]: size 0 must be s0 = 5"),
        ((0, 0), "guard s0 >= 2 fails"),
    ]:
        with pytest.raises(tandem.UserError) as caught:
            executable.run([torch.zeros(size, 4) for size in sizes])
        assert message in str(caught.value)
    assert executable.run([torch.ones(64, 4)] * 2)[0].eq(2).all()


def test_sizes_that_are_computed():
    lines = [
        "%v = aten.view(%x, [-1])",
        "%c = aten.slice.Tensor(%x, 0, 1, 9223372036854775807)",
        "%p = aten.permute(%x, [2, 0, 1])",
        "%f = aten.flatten.using_ints(%p, 0, 1)",
        "%s = aten.sum(%f)",
    ]
    executable = build(
        "%x: f32[s0, s1, 3]", lines, "%v, %c, %p, %f, %s", where="s0 in [2, 64], s1 in [2, 512]"
    )
    for m, n in [(2, 2), (5, 300), (64, 7)]:
        x = torch.randn(m, n, 3)
        p = x.permute(2, 0, 1)
        for actual, expected in zip(
            executable.run([x]), [x.view(-1), x[1:], p, p.flatten(0, 1), x.sum()]
        ):
            torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-4)


def test_two_symbols_that_may_be_equal():
    executable = build(
        "%x: f32[s0, s1], %y: f32[s1, s2]",
        "%r = aten.mm(%x, %y)",
        where="s0 in [2, 99], s1 in [2, 99], s2 in [2, 99]",
    )
    for m, k, n in [(2, 3, 4), (5, 5, 5), (64, 99, 17)]:
        x, y = torch.randn(m, k), torch.randn(k, n)
        torch.testing.assert_close(executable.run([x, y])[0], x @ y, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize("size", [0, 1, 2, 31, 32, 33, 1000, 100003])
def test_any_size_from_zero(size):
    executable = build(
        "%x: f32[s0]",
        ["%a = aten.exp(%x)", "%b = aten.sum(%a)"],
        "%a, %b",
        where="s0 in [0, 1000000]",
    )
    x = torch.randn(size)
    a, b = executable.run([x])
    torch.testing.assert_close(a, x.exp(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(b, x.exp().sum(), rtol=2e-5, atol=2e-5)


def test_same_bits_at_any_number_of_threads():
    lines = [
        "%a = aten.exp(%x)",
        "%b = aten.sum(%a)",
        "%c = aten.sum.dim_IntList(%a, [0])",
        "%d = aten.mm(%x, %y)",
    ]
    executable = build(
        "%x: f32[s0, 257], %y: f32[257, 129]", lines, "%a, %b, %c, %d", where="s0 in [2, 100000]"
    )
    for size in [3, 700, 3001]:
        x, y = torch.randn(size, 257), torch.randn(257, 129)
        tandem.set_threads(1)
        expected = executable.run([x, y])
        for threads in [2, 3, 8]:
            tandem.set_threads(threads)
            assert all(torch.equal(a, b) for a, b in zip(executable.run([x, y]), expected))
        torch.testing.assert_close(expected[1], x.exp().sum(), rtol=1e-5, atol=0)
    tandem.set_threads(2)


# --- strides and alignment --------------------------------------------------------------------


def layouts():
    base = torch.randn(40, 50)
    odd = torch.randn(13 * 7 + 1)
    return {
        "contiguous": torch.randn(13, 7),
        "transposed": torch.randn(7, 13).t(),
        "sliced": base[3:16, 11:18],
        "stepped": base[:26:2, :21:3],
        "expanded rows": torch.randn(7).expand(13, 7),
        "expanded": torch.randn(()).expand(13, 7),
        "one float off": odd[1:].view(13, 7),
        "flipped": torch.randn(13, 7).flip(0),
        "a column": base[:13, 4:5].expand(13, 7),
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8], ids=str
)
def test_any_layout_where_the_graph_assumes_a_contiguous_one(layout, dtype):
    name = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.uint8: "u8"}[
        dtype
    ]
    executable = build(
        f"%x: {name}[13, 7]", ["%a = aten.add.Scalar(%x, 1)", "%b = aten.t(%x)"], "%a, %b"
    )
    x = (layouts()[layout].abs() * 10).to(dtype)
    strided = torch.empty_strided(x.shape, layouts()[layout].stride(), dtype=dtype)
    if 0 not in strided.stride():
        x = strided.copy_(x)
    a, b = executable.run([x])
    assert torch.equal(a, x + 1)
    assert torch.equal(b, x.t())


def test_strides_in_the_signature():
    executable = build(
        "%x: f32[5, 6]{1, 5}, %y: f32[5, 6]{12, 2}, %z: f32[5, 6]{0, 1}",
        ["%a = aten.add.Tensor(%x, %y)", "%r = aten.add.Tensor(%a, %z)"],
    )
    x, y, z = torch.randn(6, 5).t(), torch.randn(5, 12)[:, ::2], torch.randn(6).expand(5, 6)
    assert torch.equal(executable.run([x, y, z])[0], x + y + z)
    # Others are brought into that form, but what is one row by the graph cannot be five.
    assert torch.equal(executable.run([x.contiguous(), y.contiguous(), z])[0], x + y + z)
    with pytest.raises(tandem.UserError, match="elements are shared"):
        executable.run([x, y, torch.randn(5, 6)])


def test_symbolic_strides():
    executable = build(
        "%x: f32[s0, s1]{1, s0}",
        "%r = aten.mul.Scalar(%x, 2)",
        where="s0 in [2, 64], s1 in [2, 64]",
    )
    for m, n in [(3, 5), (64, 2)]:
        x = torch.randn(n, m).t()
        assert torch.equal(executable.run([x])[0], x * 2)
        assert torch.equal(executable.run([x.contiguous()])[0], x * 2)


def test_parameters_that_require_a_gradient_are_taken():
    x = torch.nn.Parameter(torch.randn(4))
    assert torch.equal(build("%x: f32[4]", "%r = aten.neg(%x)").run([x])[0], -x)


def test_results_outlive_everything():
    executable = build("%x: f32[1000]", "%r = aten.add.Scalar(%x, 1)")
    results = [executable.run([torch.full((1000,), float(i))])[0] for i in range(20)]
    del executable
    assert [r[999].item() for r in results] == [i + 1 for i in range(20)]
    results[3][:] = 7  # they are ours to write
    assert results[4].eq(5).all()


# --- mutation ---------------------------------------------------------------------------------


def check_writes(inputs, lines, results, arguments, eager, where=""):
    """The graph and `eager` do the same to copies of the arguments; returns the results."""
    executable = build(inputs, lines, results, where)
    mine, theirs = [clone_layout(a) for a in arguments], [clone_layout(a) for a in arguments]
    got, expected = executable.run(mine), eager(*theirs)
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    for actual, wanted in zip([*got, *mine], [*expected, *theirs], strict=True):
        torch.testing.assert_close(actual, wanted, rtol=2e-5, atol=2e-5)
    return mine, got


def clone_layout(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def test_an_input_written_in_place():
    check_writes(
        "%x: f32[5, 3], %y: f32[3]",
        ["%a = aten.mul_.Tensor(%x, %y)", "%r = aten.add.Scalar(%x, 1)"],
        "%r",
        [torch.randn(5, 3), torch.randn(3)],
        lambda x, y: x.mul_(y) + 1,
    )


def test_reads_before_a_write_see_the_old_value():
    def eager(x):
        before = x * 2
        x.add_(1)
        return before, x * 2

    check_writes(
        "%x: f32[6]",
        [
            "%b = aten.mul.Scalar(%x, 2)",
            "%w = aten.add_.Scalar(%x, 1)",
            "%c = aten.mul.Scalar(%x, 2)",
        ],
        "%b, %c",
        [torch.randn(6)],
        eager,
    )


def test_copy_into_an_input():
    check_writes(
        "%x: f32[5, 3], %y: bf16[3]",
        "%r = aten.copy_(%x, %y)",
        "%y",
        [torch.randn(5, 3), torch.randn(3).bfloat16()],
        lambda x, y: (x.copy_(y), y)[1],
    )


def test_a_swap_reads_before_it_writes():
    def eager(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return old

    check_writes(
        "%x: f32[4], %y: f32[4]",
        ["%o = aten.clone(%x)", "%a = aten.copy_(%x, %y)", "%b = aten.copy_(%y, %o)"],
        "%o",
        [torch.randn(4), torch.randn(4)],
        eager,
    )


VIEWS = [
    ("aten.select.int(%x, 0, 1)", lambda x: x[1]),
    ("aten.select.int(%x, 1, -1)", lambda x: x[:, -1]),
    ("aten.slice.Tensor(%x, 0, 1, 4)", lambda x: x[1:4]),
    ("aten.slice.Tensor(%x, 1, 0, 9, 2)", lambda x: x[:, ::2]),
    ("aten.slice.Tensor(%x, 0, -2)", lambda x: x[-2:]),
    ("aten.t(%x)", lambda x: x.t()),
    ("aten.permute(%x, [1, 0])", lambda x: x.permute(1, 0)),
    ("aten.view(%x, [2, 10])", lambda x: x.view(2, 10)),
    ("aten.flatten.using_ints(%x)", lambda x: x.flatten()),
    ("aten.unsqueeze(%x, 1)", lambda x: x.unsqueeze(1)),
    ("aten.squeeze(%x)", lambda x: x.squeeze()),
    ("aten.alias(%x)", torch.ops.aten.alias),
    ("aten.detach(%x)", lambda x: x.detach()),
]


@pytest.mark.parametrize("text, view", VIEWS, ids=[text for text, _ in VIEWS])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "stepped"])
def test_a_view_written_in_place(text, view, layout):
    base = {
        "contiguous": torch.randn(5, 4),
        "transposed": torch.randn(4, 5).t(),
        "stepped": torch.randn(10, 12)[::2, ::3],
    }[layout]
    if layout != "contiguous" and "view" in text:
        base = base.contiguous()

    def eager(x):
        v = view(x)
        v.mul_(3)
        return x + 1, v * 2

    def through_contiguous(x):
        c = x.contiguous() if "flatten" in text and not x.is_contiguous() else x
        results = eager(c)
        return results if c is x else (x.copy_(c) + 1, results[1])

    check_writes(
        "%x: f32[5, 4]",
        [
            f"%v = {text}",
            "%w = aten.mul_.Scalar(%v, 3)",
            "%a = aten.add.Scalar(%x, 1)",
            "%b = aten.mul.Scalar(%v, 2)",
        ],
        "%a, %b",
        [base],
        through_contiguous,
    )


def test_views_of_views_and_writes_between():
    def eager(x):
        t = x.t()
        row = t[1]
        row.add_(10)
        x[2].mul_(0)
        s = t[:, 1:3]
        s.mul_(2)
        return row * 1, t * 1, s * 1

    check_writes(
        "%x: f32[4, 3]",
        [
            "%t = aten.t(%x)",
            "%row = aten.select.int(%t, 0, 1)",
            "%w0 = aten.add_.Scalar(%row, 10)",
            "%x2 = aten.select.int(%x, 0, 2)",
            "%w1 = aten.mul_.Scalar(%x2, 0)",
            "%s = aten.slice.Tensor(%t, 1, 1, 3)",
            "%w2 = aten.mul_.Scalar(%s, 2)",
            "%a = aten.mul.Scalar(%row, 1)",
            "%b = aten.mul.Scalar(%t, 1)",
            "%c = aten.mul.Scalar(%s, 1)",
        ],
        "%a, %b, %c",
        [torch.randn(4, 3)],
        eager,
    )


def test_writing_what_reads_itself_through_a_view():
    # Every element is read before any is written, as eager's temporaries guarantee.
    def eager(x):
        x.copy_(x.t() * 2)
        return x + 0

    check_writes(
        "%x: f32[9, 9]",
        [
            "%t = aten.t(%x)",
            "%m = aten.mul.Scalar(%t, 2)",
            "%w = aten.copy_(%x, %m)",
            "%r = aten.add.Scalar(%x, 0)",
        ],
        "%r",
        [torch.randn(9, 9)],
        eager,
    )


def test_a_running_sum_over_neighbours():
    def eager(x):
        x[1:].add_(x[:-1].clone())
        return x * 1

    check_writes(
        "%x: f32[100]",
        [
            "%hi = aten.slice.Tensor(%x, 0, 1)",
            "%lo = aten.slice.Tensor(%x, 0, 0, -1)",
            "%c = aten.clone(%lo)",
            "%w = aten.add_.Tensor(%hi, %c)",
            "%r = aten.mul.Scalar(%x, 1)",
        ],
        "%r",
        [torch.randn(100)],
        eager,
    )


def test_writes_at_symbolic_sizes():
    for size in [2, 9, 64]:
        check_writes(
            "%x: f32[s0, 4]",
            [
                "%v = aten.slice.Tensor(%x, 0, 1)",
                "%w = aten.mul_.Scalar(%v, 2)",
                "%r = aten.sum(%x)",
            ],
            "%r",
            [torch.randn(size, 4)],
            lambda x: (x[1:].mul_(2), x.sum())[1],
            where="s0 in [2, 64]",
        )


def test_an_output_that_is_an_input_aliases_it():
    executable = build("%x: f32[3, 4]", "%w = aten.add_.Scalar(%x, 1)", "%x")
    x = torch.zeros(3, 4)
    result = executable.run([x])[0]
    assert x.eq(1).all() and result.eq(1).all()


def test_an_unchanged_input_returned():
    x = torch.randn(3, 4)
    result = build("%x: f32[3, 4]", [], "%x").run([x])[0]
    assert torch.equal(result, x)
    assert result.data_ptr() == x.data_ptr()
    del x
    assert result.isfinite().all()


def test_inplace_gradient():
    executable = build(
        "%x: f32[5] {input grad}",
        [
            "%a = aten.mul.Scalar(%x, 3)",
            "%b = aten.exp_(%a)",
            "%v = aten.select.int(%a, 0, 2)",
            "%c = aten.mul_.Scalar(%v, 5)",
            "%r = aten.sum(%a)",
        ],
        gradients="ones",
    )
    x = torch.randn(5, requires_grad=True)
    a = (x * 3).exp()
    scale = torch.ones(5).index_fill(0, torch.tensor([2]), 5.0)
    loss = (a * scale).sum()
    got = executable.run([x])
    torch.testing.assert_close(got[0], loss.detach(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(got[1], torch.autograd.grad(loss, x)[0], rtol=2e-5, atol=2e-5)


def test_no_grad_writes_keep_history():
    executable = build(
        "%x: f32[4] {input grad}",
        [
            "%y = aten.mul.Scalar(%x, 3)",
            "%w = aten.mul_.Scalar(%y, 2) {no_grad}",
            "%r = aten.sum(%y)",
        ],
        gradients="ones",
    )
    x = torch.randn(4, requires_grad=True)
    y = x * 3
    with torch.no_grad():
        y.mul_(2)
    loss = y.sum()
    got = executable.run([x])
    torch.testing.assert_close(got[0], loss.detach())
    torch.testing.assert_close(got[1], torch.autograd.grad(loss, x)[0])


def test_arguments_that_share_memory():
    x = torch.randn(6)
    executable = build("%x: f32[6], %y: f32[6]", "%r = aten.add.Tensor(%x, %y)")
    assert torch.equal(executable.run([x, x])[0], x + x)
    assert torch.equal(executable.run([x, x.flip(0)])[0], x + x.flip(0))


def test_a_failed_call_changes_nothing():
    executable = build(
        "%x: f32[s0], %y: f32[s0]",
        ["%w = aten.add_.Tensor(%x, %y)", "%r = aten.neg(%x)"],
        where="s0 in [2, 8]",
    )
    x, y = torch.ones(9), torch.ones(9)
    with pytest.raises(tandem.UserError):
        executable.run([x, y])
    assert x.eq(1).all()


def test_executables_of_a_graph_are_independent():
    first = build("%x: f32[3]", "%w = aten.add_.Scalar(%x, 1)", "%x")
    second = build("%x: f32[3]", "%w = aten.add_.Scalar(%x, 1)", "%x")
    x = torch.zeros(3)
    first.run([x])
    second.run([x])
    assert x.eq(2).all()


def test_threads_may_call_one_executable():
    import concurrent.futures

    executable = build(
        "%x: f32[s0, 64]",
        ["%a = aten.exp(%x)", "%r = aten.sum.dim_IntList(%a, [1])"],
        where="s0 in [2, 512]",
    )
    inputs = [torch.randn(2 + i, 64) for i in range(40)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: executable.run([x])[0], inputs))
    for x, result in zip(inputs, results):
        torch.testing.assert_close(result, x.exp().sum(1), rtol=2e-5, atol=2e-5)


ELEMENTWISE = [
    "%g = aten.glu(%x, 0)",
    "%d = aten.div.Tensor_mode(%g, %w, rounding_mode=\"floor\")",
    "%l = aten.lerp.Tensor(%g, %d, %v)",
    "%c = aten.addcmul(%l, %g, %w, value=0.5)",
    "%p = aten.prelu(%c, %v)",
    "%m = aten.mish(%p)",
    "%r = aten.atan2(%m, %w)",
]


def elementwise(x, w, v):
    g = torch.nn.functional.glu(x, 0)
    blend = torch.lerp(g, torch.div(g, w, rounding_mode="floor"), v)
    p = torch.prelu(torch.addcmul(blend, g, w, value=0.5), v)
    return torch.atan2(torch.nn.functional.mish(p), w)


def test_elementwise_ops_of_symbolic_sizes():
    executable = build(
        "%x: f32[2*s0, 7] {input grad}, %w: f32[s0, 7], %v: f32[7]",
        ELEMENTWISE,
        where="s0 in [2, 64]",
        gradients="tangents",
    )
    w_all, v = torch.rand(64, 7) + 0.5, torch.rand(7)
    for size in [2, 9, 64, 3]:
        x, w = torch.randn(2 * size, 7, requires_grad=True), w_all[:size]
        expected = elementwise(x, w, v)
        tangent = torch.randn(size, 7)
        (gradient,) = torch.autograd.grad(expected, x, tangent)
        known = {"x": x.detach(), "w": w, "v": v, "tangent0": tangent}
        results = executable.run([known[name] for name in executable.inputs])
        got = dict(zip(executable.outputs, results))
        torch.testing.assert_close(results[0], expected.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got["x"], gradient, rtol=1e-4, atol=1e-5)
