"""T32 to T55: results that are inputs, views of inputs, views of what the program made."""

import pytest
import torch

from beside_eager import Tensors


def test_T32_input_output_view_simple(aot):
    def f(a):
        return a.view(-1)

    aot.check(f, lambda t: t.inner(3, 3))
    aot.check(f, lambda t: t.leaf(3, 3))
    aot.check(f, lambda t: t.value(3, 3))


def test_T33_input_output_view_mutate_multiple(aot):
    def f(a, b, c):
        a.mul_(2)
        c.mul_(3)
        return b.view(2, 2), c.view(2, 2)

    aot.check(f, lambda t: [t.inner(4) for _ in range(3)])
    aot.check(f, lambda t: [t.value(4) for _ in range(3)])


def test_T34_input_output_view_metadata_mutate_multiple(aot):
    def f(a, b, c):
        b.mul_(3)
        c.t_()
        return a.view(2, 2), b.view(2, 2), c.view(2, 2)

    aot.check(f, lambda t: [t.inner(2, 2) for _ in range(3)])
    aot.check(f, lambda t: [t.value(2, 2) for _ in range(3)])


def test_T35_input_mutation_and_output_view(aot):
    def f(a):
        a.add_(1)
        return a.view(-1)

    aot.check(f, lambda t: t.inner(3, 3))
    aot.check(f, lambda t: t.value(3, 3))


def test_T36_input_mutation_output_view_multiple(aot):
    def f(a, b, c, d):
        b.transpose_(1, 0)
        c.add_(1)
        return d + 1, b.diagonal(), a + c

    aot.check(f, lambda t: [t.inner(3, 3) for _ in range(4)])
    aot.check(f, lambda t: [t.value(3, 3) for _ in range(4)])


def test_T37_output_aliases_intermediate_single(aot):
    def f(a):
        return (a * 3).view(-1)

    aot.check(f, lambda t: t.inner(3, 3), then=lambda inputs, results: results[0].mul_(2))


def test_T38_output_aliases_input_multi_output_view(aot):
    aot.check(lambda a: list(a.unbind(0)), lambda t: t.leaf(3, 3))
    aot.check(lambda a: [*a.unbind(0), a.view(-1)], lambda t: t.leaf(3, 3))
    aot.check(lambda a: list(a.chunk(2)), lambda t: t.inner(4, 3))


@pytest.mark.parametrize("what", ["result", "input", "detached"])
def test_T39_output_aliases_input_multi_output_view_should_raise_autograd_error(aot, what):
    def f(a):
        return list(a.unbind(0))

    inputs = [Tensors().inner(3, 3) for _ in range(2)]
    for call, a in zip((f, aot.compile(f)), inputs, strict=True):
        results = call(a)
        with pytest.raises(RuntimeError, match="[Mm]ulti.*view|output of a function that returns"):
            if what == "result":
                results[0].mul_(2)
            else:
                with torch.no_grad() if what == "detached" else torch.enable_grad():
                    (a.detach() if what == "detached" else a).mul_(2)
                results[0].grad_fn  # noqa: B018
                results[0].mul_(2)


def test_T40_output_aliases_intermediate_multi_output_view(aot):
    def f1(a):
        return list((a * 2).unbind(0))

    def f2(a):
        out = a * 2
        return [*out.unbind(0), out]

    def f3(a):
        out = a * 2
        return [*out.unbind(0), out.view(-1)]

    def f4(a):
        out = a * 2
        return [*out.unbind(0), out, out.view(-1)]

    aot.check(f1, lambda t: t.leaf(3, 3))
    for f in (f2, f3, f4):
        aot.check(f, lambda t: t.leaf(3, 3))


def test_T40_last_result_is_written(aot):
    def f(a):
        out = a * 2
        return [*out.unbind(0), out]

    def write(inputs, results):
        results[-1].mul_(2)
        results[:] = results[-1:]

    aot.check(f, lambda t: t.leaf(3, 3), then=write)


def test_T41_output_aliases_intermediate_mutation_linear(aot):
    def f(x):
        return (x + 1).view(-1)

    aot.check(f, lambda t: t.leaf(3, 3), then=lambda inputs, results: results[0].mul_(2))


def test_T42_output_aliases_intermediate_no_grad(aot):
    def f(a, b):
        out = a * 3
        return out.view(-1), b + 1

    aot.check(f, lambda t: [t.value(3, 3), t.leaf(3, 3)])


def test_T43_output_aliases_intermediate_returned_multiple_times(aot):
    def f(a):
        out = a * 3
        return out, out.view(-1), out

    aot.check(f, lambda t: t.leaf(3, 3))
    aot.check(f, lambda t: t.leaf(3, 3), then=lambda inputs, results: results[0].mul_(2))


def test_T44_output_aliases_intermediate_multiple(aot):
    def f(a):
        out = a * 3
        return out.view(-1), out.view(-1)

    aot.check(f, lambda t: t.leaf(3, 3))
    aot.check(f, lambda t: t.leaf(3, 3), then=lambda inputs, results: results[0].mul_(2))


def test_T45_output_aliases_intermediate_and_returned(aot):
    def f(a):
        out = a * 3
        return out.view(-1), out

    def flipped(a):
        out = a * 3
        return out, out.view(-1)

    for function in (f, flipped):
        aot.check(function, lambda t: t.leaf(3, 3))
        aot.check(function, lambda t: t.leaf(3, 3), then=lambda i, results: results[1].mul_(2))


def test_T46_output_aliases_intermediate_and_returned_different_grad(aot):
    def f(a):
        out = a * 3
        return out.view(-1), out, out[0].detach()

    aot.check(f, lambda t: t.leaf(3, 3))


def test_T47_output_aliases_intermediate_inplace_view_with_detach(aot):
    def f(a):
        out = a * 3
        out.t_()
        out.detach_()
        return out, a + 1

    aot.check(f, lambda t: t.leaf(3, 4))


def test_T48_output_aliases_intermediate_multiple_mixed(aot):
    def f(a):
        out1, out2 = a * 3, a * 4
        return out1.view(-1), out2.transpose(1, 0), out1.transpose(1, 0)

    aot.check(f, lambda t: t.leaf(3, 3))


def test_T49_output_all_alias_types(aot):
    def f(a):
        a.transpose_(1, 0)
        made = a * 2
        return made.squeeze(), made.transpose(1, 0), a.unsqueeze(0)

    aot.check(f, lambda t: t.inner(2, 3))
    aot.check(f, lambda t: t.value(2, 3))


def test_T50_outputs_are_aliased(aot):
    def f(a):
        b = a * 2
        return b, b.view(-1)

    aot.check(f, lambda t: t.value(3), then=lambda inputs, results: results[0].mul_(2))


def test_T51_output_aliases_multiple_inputs_get_correct_one(aot):
    def f(a, b):
        return a.view(a.shape), b.view(b.shape)

    def make(t):
        x = t.inner(3, 3)
        return [x.view(-1), x[0]]

    aot.check(f, make)


def test_T52_input_output_alias_custom_autograd_function(aot):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 0.5

    aot.check(lambda x: Half.apply(x), lambda t: t.inner(3, 3))


def test_T53_some_outputs_dont_require_grad(aot):
    aot.check(lambda a, b: (a.detach(), b), lambda t: [t.inner(3), t.inner(3)])
    aot.check(lambda a, b: (a.add(1).detach(), b), lambda t: [t.inner(3), t.inner(3)])


def test_T54_some_output_requires_grad_input_doesnt(aot):
    def f(a):
        view = a.view(-1)
        view.requires_grad_(True)
        return view

    aot.check(f, lambda t: t.value(3, 3))


def test_T55_issue_100348(aot):
    def f(a):
        y = a * 2
        return y, y.detach()

    aot.check(f, lambda t: t.leaf(3))
    aot.check(f, lambda t: t.leaf(3), then=lambda i, r: r[1].mul_(2), has_gradients=False)
