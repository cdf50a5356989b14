"""Inputs and results that are made of other tensors (`__tensor_flatten__`, as DTensor is): the
graph is traced once more on the plain tensors below, and that is compiled.

Gradients are those that autograd takes of the whole, which need not be those of the parts (a
quantized weight rounds). So its backward is traced above, too: a second graph of inputs and
tangents, compiled for tangents of the types that results have, and for others when they come. It
computes forward values again."""

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tandem._tandem import Unsupported
from tandem.fakes import storage_of, written_arguments
from tandem.layouts import flat_parts, layout_of, made_of, parts_of


class _Flat:
    """`function` of values like `examples`, compiled for their parts."""

    def __init__(self, function, examples, compile):
        self._inputs = [layout_of(each) for each in examples]
        module = self._traced(function, examples)
        self.nodes = module.graph.nodes
        with torch.no_grad():
            self._call = compile(module, flat_parts(examples))

    def _traced(self, function, examples):
        def on_parts(*parts):
            given = iter(parts)
            results = function(*[made_of(layout, given) for layout in self._inputs])
            self._results = [layout_of(each) for each in results]
            return flat_parts(results)

        mode = detect_fake_mode(flat_parts(examples))
        parts = [each.detach() if isinstance(each, torch.Tensor) else each
                 for each in flat_parts(examples)]  # fmt: skip
        try:
            with mode, torch.no_grad():
                return make_fx(on_parts, tracing_mode="real")(*parts)
        except Exception as error:  # of torch, or of the tensor's own operators
            raise Unsupported(f"tensors that hold others: {str(error).splitlines()[0]}") from error

    def __call__(self, *values):
        parts = iter(self._call(*flat_parts(values)))
        return [made_of(layout, parts) for layout in self._results]


class Desugared:
    """`module` for inputs some of which hold others. `compile(module, examples)`: a callable."""

    def __init__(self, module, examples, compile):
        self._module = module
        self._mode = detect_fake_mode(flat_parts(examples)) or FakeTensorMode(shape_env=ShapeEnv())
        self._examples = [_fake(self._mode, each) for each in examples]
        self._compile = compile
        self._forward = _Flat(self._run, self._examples, compile)
        self._differentiable = [isinstance(x, torch.Tensor) and x.requires_grad for x in examples]
        self._trains = torch.is_grad_enabled() and any(self._differentiable)
        self._backward = {}  # by the types of tangents
        if self._trains:
            self._check_forward()
            results = self._fake_results()
            self._has_tangent = [isinstance(x, torch.Tensor) and x.requires_grad for x in results]
            self._backward_for([x for x, has in zip(results, self._has_tangent) if has])

    def _run(self, *values):
        results = self._module(*values)
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def callable(self):
        return self._recorded() if self._trains else self._forward

    def _check_forward(self):
        """What the second run, for the gradient, would not repeat."""
        for node in self._forward.nodes:
            if not isinstance(node.target, torch._ops.OpOverload):
                continue
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                raise Unsupported(f"[{node.target}] is random, under tensors that hold others")
            if any(each.op == "placeholder" for each in written_arguments(node)):
                raise Unsupported(f"[{node.target}] writes to an input that holds others")

    def _fake_results(self):
        with self._mode, torch.enable_grad():
            results = self._run(*self._examples)
        seen = set()
        for part in flat_parts([*self._examples, *results]):
            storage = storage_of(part) if isinstance(part, torch.Tensor) else None
            if storage in seen and storage is not None:
                raise Unsupported("memory is shared with or among results that hold others")
            seen.add(storage)
        return results

    def _gradients(self, *values):
        """Of inputs, then tangents."""
        count = len(self._differentiable)
        with torch.enable_grad():
            inputs = [
                value.detach().requires_grad_() if differentiable else value
                for value, differentiable in zip(values, self._differentiable, strict=False)
            ]
            results = self._run(*inputs)
        ends = [each for each, has in zip(results, self._has_tangent, strict=True) if has]
        leaves = [each for each, wants in zip(inputs, self._differentiable, strict=True) if wants]
        return torch.autograd.grad(ends, leaves, values[count:], allow_unused=True)

    def _backward_for(self, tangents):
        key = tuple(layout and layout.key() for layout in map(layout_of, tangents))
        if key not in self._backward:
            examples = [*self._examples, *[_fake(self._mode, each) for each in tangents]]
            self._backward[key] = _Flat(self._gradients, examples, self._compile)
        return self._backward[key]

    def _recorded(self):
        forward, backward_for = self._forward, self._backward_for
        has_tangent, differentiable = self._has_tangent, self._differentiable

        class Graph(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *args):
                results = forward(*args)
                tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
                ctx.save_for_backward(*tensors)
                ctx.others = [None if isinstance(arg, torch.Tensor) else arg for arg in args]
                pairs = zip(results, has_tangent, strict=True)
                ctx.mark_non_differentiable(
                    *[x for x, has in pairs if isinstance(x, torch.Tensor) and not has]
                )
                return tuple(results)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, *grads):
                saved = iter(ctx.saved_tensors)
                args = [next(saved) if other is None else other for other in ctx.others]
                tangents = [grad for grad, has in zip(grads, has_tangent, strict=True) if has]
                made = iter(backward_for(tangents)(*args, *tangents))
                return tuple(next(made) if wants else None for wants in differentiable)

        def call(*args):
            return list(Graph.apply(*args)) if torch.is_grad_enabled() else forward(*args)

        return call


def _fake(mode, value):
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return value
    layout = layout_of(value)
    if layout is None:
        return mode.from_tensor(value, static_shapes=True)
    made = layout.made_of(iter([_fake(mode, part) for part in parts_of(value)]))
    return made.requires_grad_(value.requires_grad)
