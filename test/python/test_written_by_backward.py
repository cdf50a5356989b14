"""The backward of a custom autograd.Function that writes to what its forward kept: the caller's
tensor as it is when backward runs, as in eager."""

import warnings

import pytest
import torch

import tandem
from compiled import compile_with


class Counts(torch.autograd.Function):
    """Forward and backward count in one buffer, and backward reads it."""

    @staticmethod
    def forward(ctx, x, buffer):
        buffer.add_(1)
        ctx.buffer = buffer
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.buffer.add_(10 * grad.sum())
        return grad * ctx.buffer, None


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, buffer):
        ctx.buffer = buffer
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.buffer, None


class Doubles(torch.autograd.Function):
    """Saved by save_for_backward: eager refuses a backward after somebody wrote to it."""

    @staticmethod
    def forward(ctx, x, buffer):
        ctx.save_for_backward(buffer)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        (buffer,) = ctx.saved_tensors
        buffer.mul_(2)
        return grad * buffer, None


FUNCTIONS = {
    "counts": lambda x, buffer: Counts.apply(x, buffer),
    "beside other readers": lambda x, buffer: Counts.apply(x, buffer) * buffer.sum() + buffer,
    "twice": lambda x, buffer: Counts.apply(Counts.apply(x, buffer).sin(), buffer),
    "read by others": lambda x, buffer: Reads.apply(
        Counts.apply(Reads.apply(x, buffer), buffer), buffer
    ),
    "saved": lambda x, buffer: Doubles.apply(x, buffer) * 3,
}
BUFFERS = {
    "plain": lambda: torch.arange(6.0).view(2, 3),
    "transposed": lambda: torch.arange(6.0).view(3, 2).t(),
    "with gaps": lambda: torch.arange(12.0).view(2, 6)[:, ::2],
}


def leaf():
    return torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()


def compiled_of(function, mode="strict", **options):
    return compile_with(function, fullgraph=True, on_unsupported=mode, **options)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_in_eager(name, buffer, dynamic):
    """Two forwards, then their backwards, the last one first: each sees what was written before."""
    found = []
    for call in (FUNCTIONS[name], compiled_of(FUNCTIONS[name], dynamic=dynamic)):
        counter, leaves = BUFFERS[buffer](), [leaf(), leaf()]
        steps = [counter.clone()]
        results = []
        for x in leaves:
            if name == "saved" and results:
                break
            results.append(call(x, counter))
            steps += [results[-1].detach().clone(), counter.clone()]
        for result, x in reversed(list(zip(results, leaves, strict=False))):
            before = counter._version
            result.sum().backward()
            steps += [x.grad, counter.clone()]
            assert counter._version > before
        found.append(steps)
    torch.testing.assert_close(found[1], found[0])


def test_a_retained_graph_counts_again():
    found = []
    for call in (FUNCTIONS["counts"], compiled_of(FUNCTIONS["counts"])):
        x, counter = leaf(), torch.zeros(2, 3)
        result = call(x, counter)
        for _ in range(2):
            result.sum().backward(retain_graph=True)
        found.append([x.grad, counter])
    torch.testing.assert_close(found[1], found[0])


def test_what_was_saved_must_be_as_it_was():
    for call in (FUNCTIONS["saved"], compiled_of(FUNCTIONS["saved"])):
        x, buffer = leaf(), torch.ones(2, 3)
        result = call(x, buffer)
        result.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
        assert buffer.eq(2).all()


def test_what_the_caller_writes_is_counted_on():
    found = []
    for call in (FUNCTIONS["counts"], compiled_of(FUNCTIONS["counts"])):
        x, counter = leaf(), torch.zeros(2, 3)
        result = call(x, counter)
        counter.mul_(100)
        result.sum().backward()
        found.append([x.grad, counter])
    torch.testing.assert_close(found[1], found[0])


def test_a_gradient_of_a_gradient_is_refused():
    x, counter = leaf(), torch.zeros(2, 3)
    result = compiled_of(FUNCTIONS["counts"])(x, counter)
    with pytest.raises(tandem.Unsupported, match="writes to input %a1"):
        torch.autograd.grad(result.sum(), x, create_graph=True)


def test_a_buffer_in_shared_memory_runs_in_torch():
    found = []
    for call in (FUNCTIONS["counts"], compiled_of(FUNCTIONS["counts"], "eager")):
        memory = torch.linspace(0, 1, 12)
        x = memory[:6].view(2, 3).requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call(x, memory[3:9].view(2, 3))
            result.sum().backward()
        found.append([result.detach(), memory.detach()])
    torch.testing.assert_close(found[1], found[0])


def test_without_gradients_nothing_is_written_later():
    x, counter = leaf(), torch.zeros(2, 3)
    with torch.no_grad():
        compiled_of(FUNCTIONS["counts"])(x, counter)
    assert counter.eq(1).all()


def text_of_loss(function):
    compiled_of(lambda x, buffer: function(x, buffer).sum())(leaf(), torch.zeros(2, 3))
    return tandem.report()["graphs"][-1]["text"]


def by_name(text, program, x, counter):
    """Arguments of a program: of its inputs one has a gradient."""
    learned = [name for name in program.inputs if f"%{name}: f32[2, 3] {{input grad}}" in text]
    return [x if name in learned else counter for name in program.inputs]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_one_program_with_its_forward(name):
    """As a training step has it: two steps, each of which counts on."""
    text = text_of_loss(FUNCTIONS[name])
    step = tandem.compile_text(text, "ones")
    ours, eager = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    for _ in range(2):
        x = leaf()
        loss = FUNCTIONS[name](x, eager).sum()
        loss.backward()
        got = step(by_name(text, step, x.detach(), ours))
        torch.testing.assert_close(got[0], loss.detach())
        torch.testing.assert_close([each for each in got[1:] if each is not None], [x.grad])
        torch.testing.assert_close(ours, eager)


def test_exported_with_a_loss():
    """What backward writes is the input's new value, a result."""
    text, _ = tandem.export_text(text_of_loss(FUNCTIONS["counts"]), loss=0)
    exported = tandem.compile_text(text)
    x, counter = leaf(), torch.arange(6.0).view(2, 3)
    given = {each: counter for each in exported.inputs}
    given[exported.inputs[0]] = x.detach()  # what is read first
    new, loss, gradient = exported([given[each] for each in exported.inputs])
    result = FUNCTIONS["counts"](x, counter).sum()
    result.backward()
    torch.testing.assert_close([new, loss, gradient], [counter, result.detach(), x.grad])
