"""T01 to T31: what a program writes to its inputs, data and shape."""

import pytest
import torch


def test_T01_input_mutation_simple(aot):
    def f(a):
        a.mul_(2)
        return a * 3

    aot.check(f, lambda t: t.inner(3, 3))
    aot.check(f, lambda t: t.value(3, 3))


def test_T02_input_mutation_is_output(aot):
    def f(a):
        a.mul_(2)
        return a

    aot.check(f, lambda t: t.inner(3, 3))
    aot.check(f, lambda t: t.value(3, 3))


def test_T03_input_mutation_multiple(aot):
    def f(a, b, c):
        a.mul_(2)
        c.mul_(2)
        return a + b + c

    aot.check(f, lambda t: [t.inner(3, 3) for _ in range(3)])
    aot.check(f, lambda t: [t.value(3, 3) for _ in range(3)])


def test_T04_input_mutation_metadata(aot):
    def f(a, b):
        a.transpose_(1, 0)
        return a + b

    aot.check(f, lambda t: [t.inner(3, 3), t.inner(3, 3)])
    aot.check(f, lambda t: [t.value(3, 3), t.value(3, 3)])


def test_T05_input_mutation_metadata2(aot):
    def f(a):
        a.transpose_(1, 0)
        a.mul_(2)
        return a + 1

    aot.check(f, lambda t: t.inner(3, 4))
    aot.check(f, lambda t: t.value(3, 4))


def test_T06_input_mutation_requires_grad_detach(aot):
    def f(a):
        a.detach().mul_(2)
        return a + 3

    aot.check(f, lambda t: t.leaf(4))
    aot.check(f, lambda t: t.inner(4))


def test_T07_input_mutation_requires_grad_no_grad(aot):
    def f(a):
        with torch.no_grad():
            a.mul_(2)
        return a + 3

    aot.check(f, lambda t: t.leaf(4))
    aot.check(f, lambda t: t.inner(4))


def test_T08_input_mutation_no_grad_inference_graph(aot):
    def f(a):
        with torch.no_grad():
            a.mul_(2)
            return a + 3

    aot.check(f, lambda t: t.leaf(4))


def test_T09_input_mutation_no_grad_detach_mixed(aot):
    def f(a):
        a.detach().mul_(2)
        a.mul_(3)
        with torch.no_grad():
            a.mul_(4)
        return a + 5

    aot.check(f, lambda t: t.inner(4))


def test_T10_input_mutation_noncontiguous(aot):
    def f(a):
        a.mul_(2)
        return a + 1

    aot.check(f, lambda t: t.value(3, 3)[:, 0])
    aot.check(f, lambda t: t.inner(3, 3).t().contiguous().t())


def test_T11_mutates_input_noncontiguous(aot):
    def f(a):
        a.add_(1)
        return ()

    held = []

    def make(t):
        held.append(t.value(6))
        return held[-1][0::2]

    aot.check(f, make)
    assert torch.equal(*held)


def test_T12_input_mutation_modifies_autograd_meta_of_aliases(aot):
    def f(a):
        a.mul_(2)
        return (a + 1).detach()

    views = []

    def make(t):
        a = t.inner(3, 3)
        views.append(a.view(-1))
        return a

    aot.check(f, make)
    eager, ours = views
    assert torch.equal(eager, ours) and eager._version == ours._version
    assert type(eager.grad_fn) is type(ours.grad_fn)


def batch_norm(training):
    def f(x, weight, bias, mean, variance):
        return torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training)

    return f


def norm_inputs(t):
    return [t.leaf(4, 3), t.leaf(3), t.leaf(3), t.value(3), t.value(3).abs() + 1]


def test_T13_input_mutation_batchnorm(aot):
    # Eager writes the statistics and does not count it; who saved them would not notice.
    aot.check(batch_norm(True), norm_inputs, compares_versions=False)


def test_T14_batchnorm_inference(aot):
    aot.check(batch_norm(False), norm_inputs)


def test_T15_buffer_copied_in_graph(aot):
    def f(w1, w2, buffer, x):
        buffer.add_(1)
        return (w1 * x * w2).sum() + buffer.sum()

    aot.check(f, lambda t: [t.leaf(1), t.leaf(1), t.value(1), t.value(5)])


def test_T16_buffer_copied_in_graph_with_different_shapes(aot):
    def f(w, buffer, x):
        buffer.add_(1)
        return (w @ x).sum() + buffer.sum()

    aot.check(f, lambda t: [t.leaf(2, 4), t.value(4, 4), t.value(4, 3)])


def test_T17_buffer_batch_norm(aot):
    modules = []

    def make(t):
        torch.manual_seed(0)
        modules.append(torch.nn.BatchNorm1d(5))
        return t.leaf(4, 5)

    eager = make_module_run(lambda m: m, modules, make)
    ours = make_module_run(aot.compile, modules, make)
    for a, b in zip(eager, ours, strict=True):
        torch.testing.assert_close(a, b)


def make_module_run(wrap, modules, make):
    from beside_eager import Tensors

    x = make(Tensors())
    module = modules[-1]
    out = wrap(module)(x)
    out.square().sum().backward()
    return [out, x.grad, module.weight.grad, module.bias.grad, *module.buffers()]


def test_T18_new_inp_requires_grad_now(aot):
    def f(x, y):
        return x.add_(y)

    aot.check(f, lambda t: [t.value(3), t.leaf(3)])


def test_T19_view_detach(aot):
    def f(a):
        detached = a.detach()
        a.mul_(2)
        return a, detached

    aot.check(f, lambda t: t.inner(3))
    aot.check(f, lambda t: t.value(3))


def test_T20_input_inplace_requires_grad_true(aot):
    def f(a, b):
        a.requires_grad_(True)
        return a.mul(3), b.mul(4)

    aot.check(f, lambda t: [t.value(3), t.leaf(3)])


def test_T21_input_data_and_metadata_mutation(aot):
    def f(a):
        a.t_()
        a[0].mul_(2)
        return a.view(a.shape)

    aot.check(f, lambda t: t.inner(3, 3))
    aot.check(f, lambda t: t.value(3, 3))


def test_T22_view_and_inplace_view(aot):
    def f(a, b):
        a.t_()
        return b.view(b.shape), a.view(a.shape)

    aot.check(f, lambda t: [t.inner(3, 4), t.inner(3, 3)])
    aot.check(f, lambda t: [t.value(3, 4), t.value(3, 3)])


def test_T23_set__input_mutation(aot):
    def f(a, b):
        with torch.no_grad():
            a.set_(b)
        return a * b

    aot.check(f, lambda t: [t.value(3, 3), t.value(3, 3)], compares_versions=False)


def test_T24_set__nop(aot):
    def f(a):
        kept = a.detach()
        b = torch.ones(3, 3)
        with torch.no_grad():
            a.set_(b)
            a.set_(kept)
        return a + b.reshape(3, 3)

    aot.check(f, lambda t: t.value(3, 3), compares_versions=False)


def test_T25_set__and_data_mutation_good(aot):
    def f(a, b):
        with torch.no_grad():
            a.set_(b)
            b.mul_(2)
        return a + b

    aot.check(f, lambda t: [t.value(3, 3), t.value(3, 3)], compares_versions=False)


def test_T26_set__and_data_mutation_bad(aot):
    def f(a):
        view = a.view(-1)
        with torch.no_grad():
            a.set_(torch.ones(3, 3))
            view.mul_(2)
        return a + 1

    aot.check(f, lambda t: t.value(3, 3), compares_versions=False)


def test_T27_set__steals_view_chain(aot):
    def f(a, b):
        a_, b_ = a * 2, b * 2
        with torch.no_grad():
            a_.set_(b_.view(3, 3)[1:])
        a_.view(-1).mul_(2)
        return a_ * 1, b_ * 1

    aot.check(f, lambda t: [t.value(3, 3), t.value(9)])


@pytest.mark.parametrize("dynamic", [False, True])
def test_T28_squeeze_mutation(aot, dynamic):
    def f(a):
        b = a.clone().squeeze(-1)
        b.add_(1)
        return a + b

    aot.check(f, lambda t: t.inner(3, 1), dynamic=dynamic)


def test_T29_input_mutation_simple_with_none_and_nontensor(aot):
    def f(a, nothing, number):
        return a * number, nothing, number

    aot.check(f, lambda t: [t.inner(3), None, 3])


def test_T30_hidden_from_autograd_aliasing(aot):
    def f(a):
        view = a.view(-1)
        with torch.no_grad():
            view.mul_(2)
        return a + 1

    aot.check(f, lambda t: t.leaf(3, 3))
    aot.check(f, lambda t: t.inner(3, 3))


def test_T31_in_graph_mutation_value_saved(aot):
    def f(x, buffer):
        y = x * buffer
        with torch.no_grad():
            buffer.mul_(2)
        return y

    aot.check(f, lambda t: [t.leaf(3), t.value(3)], has_gradients=False)
    # Eager refuses the gradient where the buffer itself was saved; a copy of it is what it was.
    aot.check(lambda x, buffer: f(x, buffer) * 1, lambda t: [t.leaf(3), t.value(3)],
              has_gradients=False)

    def g(x, buffer):
        y = x * (buffer * 1)
        with torch.no_grad():
            buffer.mul_(2)
        return y

    aot.check(g, lambda t: [t.leaf(3), t.value(3)])
