"""Products of groups of rows with a matrix for each group, beside a loop over the groups in f64:
every form, groups without rows, rows behind the last group, gradients, the definition and the
library, other offsets through one program, and a mixture of experts through torch.compile."""

import pytest
import torch
from compiled import compile_with
from graphs import build

import tandem

# Roundings of the largest element, half an epsilon each: one of each of up to 24 terms; in 16 bits
# sums are wide, and the result, or what a mixture hands on, is rounded.
ROUNDINGS = {"f32": 32, "f64": 32, "bf16": 4, "f16": 2}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "f16": torch.float16}
ENDS = {
    "even": [8, 16, 24],
    "empty groups": [0, 24, 24],
    "one row": [1, 1, 2],
    "rows behind": [3, 5, 11],
    "no rows": [0, 0, 0],
}
ROWS, WIDTH, COLUMNS = 24, 16, 8


def groups_of(ends):
    return list(zip([0, *ends[:-1]], ends, strict=True))


def expected_rows(a, b, ends):
    products = [a[begin:end] @ b[i] for i, (begin, end) in enumerate(groups_of(ends))]
    return torch.cat([*products, a.new_zeros(len(a) - ends[-1], b.shape[2])])


def expected_sums(a, b, ends):
    return torch.stack([a[:, begin:end] @ b[begin:end] for begin, end in groups_of(ends)])


def expected_columns(a, b, ends):
    return expected_rows(b.T, a.transpose(1, 2), ends).T


FORMS = {
    "rows": ((ROWS, WIDTH), (3, WIDTH, COLUMNS), expected_rows),
    "sums": ((COLUMNS, ROWS), (ROWS, WIDTH), expected_sums),
    "columns": ((3, COLUMNS, WIDTH), (WIDTH, ROWS), expected_columns),
}


def operands(form, dtype):
    torch.manual_seed(0)
    left, right, expected = FORMS[form]
    return torch.randn(left).to(DTYPES[dtype]), torch.randn(right).to(DTYPES[dtype]), expected


def compiled(form, dtype, grad="", **options):
    left, right, _ = FORMS[form]
    inputs = f"%a: {dtype}{list(left)}{grad}, %b: {dtype}{list(right)}{grad}, %ends: i32[3]"
    return build(inputs, "%r = aten._grouped_mm(%a, %b, %ends)", **options)


def is_close(actual, expected, dtype):
    assert actual.shape == expected.shape
    unit = torch.finfo(actual.dtype).eps / 2
    tolerance = ROUNDINGS[dtype] * unit * expected.abs().max().item()
    assert (actual.double() - expected).abs().max().item() <= tolerance


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_every_offset_through_one_program(form, dtype):
    a, b, expected = operands(form, dtype)
    program = compiled(form, dtype)
    for ends in ENDS.values():
        (result,) = program.run([a, b, torch.tensor(ends, dtype=torch.int32)])
        is_close(result, expected(a.double(), b.double(), ends), dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_the_definition_agrees_with_the_library(form, dtype, monkeypatch):
    a, b, expected = operands(form, dtype)
    monkeypatch.setenv("TANDEM_DISABLE", "library")
    program = compiled(form, dtype)
    (result,) = program.run([a, b, torch.tensor(ENDS["rows behind"], dtype=torch.int32)])
    is_close(result, expected(a.double(), b.double(), ENDS["rows behind"]), dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_gradients(form, ends):
    a, b, expected = operands(form, "f32")
    program = compiled(form, "f32", " {input grad}", gradients="tangents")
    wide = [tensor.double().requires_grad_() for tensor in (a, b)]
    out = expected(*wide, ends)
    tangent = torch.randn(out.shape)
    given = dict(a=a, b=b, ends=torch.tensor(ends, dtype=torch.int32), tangent0=tangent)
    _, *gradients = program.run([given[name] for name in program.inputs])
    wanted = torch.autograd.grad(out, wide, tangent.double())
    for found, each in zip(gradients, wanted, strict=True):
        is_close(found, each, "f32")


def test_numbers_outside_of_the_matrices_are_no_groups():
    line = "%r = tandem.grouped_rows(%a, %b, %groups)"
    program = build("%a: f32[4, 2], %b: f32[1, 2, 3], %groups: i64[4]", line)
    a, b = torch.ones(4, 2), torch.ones(1, 2, 3)
    (result,) = program.run([a, b, torch.tensor([-1, 0, 1, 1 << 40])])
    assert result[:, 0].tolist() == [0, 2, 0, 0]


def test_groups_of_a_sum_that_do_not_ascend_are_an_error():
    line = "%r = tandem.grouped_sums(%a, %b, %groups, 2)"
    program = build("%a: f32[2, 4], %b: f32[4, 3], %groups: i64[4]", line)
    with pytest.raises(tandem.UserError, match="must ascend"):
        program.run([torch.ones(2, 4), torch.ones(4, 3), torch.tensor([1, 1, 0, 0])])


A, B = "%a: f32[4, 8]", "%b: f32[2, 8, 4]"
REFUSED = {
    "without offs": (f"{A}, {B}", "%a, %b", "needs offs"),
    "offs of i64": (f"{A}, {B}, %o: i64[2]", "%a, %b, %o", "dtype i32"),
    "too few ends": (f"{A}, {B}, %o: i32[1]", "%a, %b, %o", "an end for each"),
    "inner sizes": (f"{A}, %b: f32[2, 4, 4], %o: i32[2]", "%a, %b, %o", "inner sizes"),
    "offs beside matrices": (f"%a: f32[2, 4, 8], {B}, %o: i32[2]", "%a, %b, %o", "absent"),
}


@pytest.mark.parametrize("inputs, arguments, text", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_named(inputs, arguments, text):
    with pytest.raises(tandem.UserError, match=text):
        build(inputs, f"%r = aten._grouped_mm({arguments})")


def transformers_operator():
    """As transformers registers it; it is not there where only the fast tests' packages are."""
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        made = torch.library.custom_op(
            "transformers::grouped_mm_fallback",
            lambda a, b, ends: expected_rows(a, b, ends.tolist()),
            mutates_args=(),
            schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor",
        )
        made.register_fake(lambda a, b, ends: a.new_empty(len(a), b.shape[2]))
    return torch.ops.transformers.grouped_mm_fallback


@pytest.mark.parametrize("ends_dtype", [torch.int32, torch.int64], ids=str)
def test_transformers_operator(ends_dtype):
    a, b, expected = operands("rows", "f32")
    operator = transformers_operator()
    program = compile_with(lambda a, b, ends: operator(a, b, ends) * 2, fullgraph=True)
    leaves = [a.requires_grad_(), b.requires_grad_()]
    for ends in ENDS.values():
        wide = [each.detach().double().requires_grad_() for each in leaves]
        wanted = expected(*wide, ends) * 2
        result = program(*leaves, torch.tensor(ends, dtype=ends_dtype))
        is_close(result, wanted.detach(), "f32")
        gradients = torch.autograd.grad(wanted.sum(), wide)
        for found, each in zip(torch.autograd.grad(result.sum(), leaves), gradients, strict=True):
            is_close(found, each, "f32")
    assert not tandem.report()["graphs"][-1]["fallbacks"]


def test_a_mixture_of_experts_through_torch_compile():
    """As transformers has it: sorted by expert, counted by histc, bf16."""

    def experts(x, choice, up, down):
        order = torch.argsort(choice)
        counts = torch.histc(choice[order].float(), bins=4, min=0, max=3)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        hidden = torch.nn.functional.silu(torch._grouped_mm(x[order], up, offs=ends))
        return torch._grouped_mm(hidden, down, offs=ends)[torch.argsort(order)]

    torch.manual_seed(0)
    x = torch.randn(40, 16, dtype=torch.bfloat16)
    weights = [torch.randn(4, 16, 32), torch.randn(4, 32, 16)]
    weights = [(each / 4).to(torch.bfloat16).requires_grad_() for each in weights]
    program = compile_with(experts, fullgraph=True)
    for choice in (torch.randint(0, 4, (40,)), torch.full((40,), 2)):
        wide = [each.detach().double().requires_grad_() for each in weights]
        expected = torch.stack(
            [
                torch.nn.functional.silu(row.double() @ wide[0][i]) @ wide[1][i]
                for row, i in zip(x, choice.tolist(), strict=True)
            ]
        )
        result = program(x, choice, *weights)
        is_close(result, expected.detach(), "bf16")
        wanted = torch.autograd.grad(expected.sum(), wide)
        for found, each in zip(torch.autograd.grad(result.sum(), weights), wanted, strict=True):
            is_close(found, each, "bf16")
    assert len(tandem.report()["graphs"]) == 1
