"""The autograd.Function around a compiled forward and backward.

A backward that somebody differentiates (create_graph=True) is another compiled function, of the
inputs and the tangents, with an autograd.Function of its own: so there is a gradient of every
order. It is compiled when it is asked for, and computes forward values again."""

import functools
import weakref

import torch

from tandem.recorded import records_for, using
from tandem.seeds import draw_seed
from tandem.sparse_rows import add_sparse


def autograd_function(native, hosts=(), sparse=(), watched=()):
    """A class; `apply(seed, *inputs)` gives the results, then the new values of inputs that are
    written with a history. `seed` None: one is drawn. `hosts`: nodes that run in torch and have a
    gradient. `sparse`: SparseRows. `watched`: names of inputs that, where backward writes them,
    nobody may have written since, another backward included."""
    has_tangent = native.has_tangent
    dirty = [number for number, tangent in native.mutations if tangent]
    clean = [number for number, tangent in native.mutations if not tangent]
    places = native.borrowed_places
    handed_on = native.handed_on
    has_gradient = native.has_gradient
    constant = [i for i, tangent in enumerate(has_tangent) if not tangent]
    again = _Again(native)
    lookups = [[native.names.index(name) for name in each.arguments()] for each in sparse]
    paddings = [each.padding for each in sparse]
    later = native.later
    is_watched = [native.names[number] in watched for number in later]

    class Graph(torch.autograd.Function):
        @staticmethod
        def forward(ctx, seed, *args):
            ctx.seed = ()
            if native.takes_seed:
                ctx.seed = (draw_seed() if seed is None else seed,)
            ctx.records = records_for(hosts)
            results, ctx.handle = _with(ctx.records, native.forward, *args, *ctx.seed)
            for number, source in handed_on:  # autograd makes a view of it, with this history
                results[number] = args[source]
            ctx.set_materialize_grads(False)
            kept = [(args if kind == "input" else results)[number] for kind, number in places]
            ctx.save_for_backward(
                *[_alone_if_empty(each) for each in kept],
                *[args[indices] for _, indices, _ in lookups],
            )
            ctx.tables = [args[weight].shape for weight, _, _ in lookups]
            ctx.inputs = again.hold(args)
            if constant:
                ctx.mark_non_differentiable(*[results[i] for i in constant])
            if clean:
                torch.autograd.graph.increment_version([args[i] for i in clean])
            if dirty:
                ctx.mark_dirty(*[args[i] for i in dirty])
                results += [args[i] for i in dirty]
            ctx.later = [args[i] for i in later]
            ctx.versions = [each._version for each in ctx.later]
            ctx.shapes = [(result.shape, result.dtype) for result in results]
            return tuple(results)

        @staticmethod
        def backward(ctx, *grads):
            if not ctx.handle.is_alive:
                raise RuntimeError(
                    "Trying to backward through the graph a second time (or directly access saved "
                    "tensors after they have already been freed). Specify retain_graph=True if you "
                    "need to backward through the graph a second time."
                )
            tangents = []
            for i, grad in enumerate(grads):
                if i >= len(has_tangent) or has_tangent[i]:
                    if grad is None:
                        shape, dtype = ctx.shapes[i]
                        grad = torch.zeros(shape, dtype=dtype)
                    tangents.append(grad)
            if torch.is_grad_enabled():
                gradients = _with(ctx.records, again.gradients, ctx.inputs, tangents, ctx.seed)
            else:
                keep = torch._C._autograd._get_current_graph_task_keep_graph()
                saved = ctx.saved_tensors[: len(places)]
                _check_versions(ctx.later, ctx.versions, is_watched)
                rest = ctx.handle, saved, tangents, keep, ctx.later
                gradients = _with(ctx.records, native.backward, *rest, keeps=keep)
                if later:
                    torch.autograd.graph.increment_version(ctx.later)
                if not keep:
                    ctx.inputs = ctx.records = ctx.later = None
            gradients = iter(gradients)
            gradients = [next(gradients) if has else None for has in has_gradient]
            read = ctx.saved_tensors[len(places) :] if lookups else ()
            for (weight, _, rows), *rest in zip(lookups, ctx.tables, read, paddings):
                gradients[weight] = add_sparse(gradients[weight], gradients[rows], *rest)
                gradients[rows] = None
            return (None, *gradients)

    return Graph


def _alone_if_empty(tensor):
    """A tensor without elements overlaps no other, but may share a version with one that the graph
    writes."""
    return tensor if tensor.numel() else tensor.new_empty(tensor.shape)


def _check_versions(tensors, versions, is_watched):
    """As torch says it of a saved tensor."""
    for tensor, version, watched in zip(tensors, versions, is_watched, strict=True):
        if watched and tensor._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{tensor.type()} {list(tensor.shape)}] is at version "
                f"{tensor._version}; expected version {version} instead. The backward of a custom "
                "function that saved it writes to it"
            )


def _with(records, call, *args, keeps=True):
    if records is None:
        return call(*args)
    with using(records, keeps):
        return call(*args)


class _Again:
    """The backward of `native` as a function that autograd records."""

    def __init__(self, native):
        self._native = native
        self._names = native.names
        dirty = {number for number, tangent in native.mutations if tangent}
        wanted = set(native.gradient_inputs)
        self._written = {self._names[number] for number, _ in native.mutations}
        self._numbers = [
            i for i, name in enumerate(self._names) if name in wanted and i not in dirty
        ]

    def hold(self, args):
        """What `gradients` needs of a call: inputs and their versions. Leaves live anyway. Where
        hooks watch what is saved (a checkpoint frees it), nothing is kept alive behind their
        back."""
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
        held = []
        for number in self._numbers:
            value = args[number]
            if not isinstance(value, torch.Tensor):
                held.append((value, None))
            else:
                version = None if value.is_inference() else value._version
                held.append((weakref.ref(value) if hooked else value, version))
        return held

    def gradients(self, held, tangents, seed):
        """Of the inputs that have one, recorded."""
        values = {}
        for number, (value, version) in zip(self._numbers, held, strict=True):
            value = value() if isinstance(value, weakref.ref) else value
            if value is None:
                raise RuntimeError(
                    "tandem: a gradient of a gradient (create_graph=True) needs an input that was "
                    "freed, as hooks of saved tensors were set when it was given"
                )
            name = self._names[number]
            watched = version is not None and name not in self._written
            if watched and value._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: {name}, an input of a compiled graph, is "
                    f"at version {value._version}; expected version {version} instead. A gradient "
                    "of a gradient (create_graph=True) computes forward values again"
                )
            values[name] = value
        values.update(
            (name, tangent.contiguous())
            for name, tangent in zip(self._native.tangents, tangents, strict=True)
        )
        native, function = self._compiled
        for name, reads in zip(native.names, native.reads, strict=True):
            if name not in values or (reads and name in self._written):
                raise RuntimeError(
                    f"tandem: a gradient of a gradient (create_graph=True) needs {name} as it was "
                    "before the graph wrote to it; give the graph a clone"
                )
        arguments = [values[name] for name in native.names]
        if function is not None:
            return function.apply(*(seed or (None,)), *arguments)
        return native.forward(*arguments, *(seed if native.takes_seed else ()))[0]

    @functools.cached_property
    def _compiled(self):
        native = self._native.differentiable_backward()
        return native, autograd_function(native) if native.has_backward else None
