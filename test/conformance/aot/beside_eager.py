"""A small program beside eager: values, gradients, what was written, who shares memory with whom,
strides, requires_grad, version counters."""

import torch

import tandem


class Tensors:
    """Makes the inputs of one run; the same numbers in every run. `leaves` get gradients."""

    def __init__(self):
        self.leaves = []
        self._generator = torch.Generator().manual_seed(7)

    def value(self, *sizes, dtype=torch.float32):
        if not dtype.is_floating_point:
            return torch.randint(0, 5, sizes, generator=self._generator).to(dtype)
        return torch.randn(*sizes, generator=self._generator, dtype=torch.float64).to(dtype)

    def leaf(self, *sizes, dtype=torch.float32):
        made = self.value(*sizes, dtype=dtype).requires_grad_()
        self.leaves.append(made)
        return made

    def inner(self, *sizes):
        """With a history: eager lets a program write to it."""
        return self.leaf(*sizes).clone()


def flat(results):
    if isinstance(results, (list, tuple)):
        return [each for result in results for each in flat(result)]
    return [results]


def same_values(ours, eager, what):
    assert (ours is None) == (eager is None), f"{what}: {ours} beside {eager}"
    if not isinstance(eager, torch.Tensor):
        assert ours == eager, f"{what}: {ours} beside {eager}"
        return
    torch.testing.assert_close(ours, eager, equal_nan=True, msg=lambda text: f"{what}: {text}")


def same_tensor(ours, eager, what):
    same_values(ours, eager, what)
    if not isinstance(eager, torch.Tensor) or eager.layout is not torch.strided:
        return
    for name, of in TRAITS.items():
        assert of(ours) == of(eager), f"{what}: {name} is {of(ours)}, in eager {of(eager)}"


TRAITS = {
    "requires_grad": lambda each: each.requires_grad,
    "stride": lambda each: each.stride(),
    "whether it has a history": lambda each: each.grad_fn is not None,
}


def relations(tensors):
    """Who is whom, who shares memory with whom, whose base is who."""
    found = []
    for i, one in enumerate(tensors):
        for j, other in enumerate(tensors[:i]):
            shares = one.untyped_storage()._cdata == other.untyped_storage()._cdata
            pair = (i, j, one is other, shares)
            if shares and one is not other:
                pair += (one._base is other, other._base is one)
            found.append(pair)
    return found


class Run:
    """One program on inputs of its own, eager or compiled."""

    def __init__(self, function, make):
        self.tensors = Tensors()
        made = make(self.tensors)
        self.inputs = list(made) if isinstance(made, (list, tuple)) else [made]
        counted = [each for each in self._tensors(self.inputs) if not each.is_inference()]
        before = [each._version for each in counted]
        self.results = flat(function(*self.inputs))
        self.written = [each._version > old for each, old in zip(counted, before, strict=True)]

    @staticmethod
    def _tensors(values):
        kept = [each for each in flat(values) if isinstance(each, torch.Tensor)]
        return [each for each in kept if each.layout is torch.strided]

    def relations(self):
        return relations(self._tensors(self.inputs) + self._tensors(self.results))

    def gradients(self):
        """Of the leaves, for tangents that differ from place to place."""
        wanted = [each for each in self._tensors(self.results) if each.requires_grad]
        if not wanted or not self.tensors.leaves:
            return None
        total = sum(
            (each * torch.linspace(0.5, 2, each.numel(), dtype=each.dtype).view(each.shape)).sum()
            for each in wanted
        )
        return torch.autograd.grad(total, self.tensors.leaves, allow_unused=True)


def compare(ours, eager, has_gradients=True, compares_versions=True):
    assert len(ours.results) == len(eager.results)
    for i, pair in enumerate(zip(ours.results, eager.results, strict=True)):
        same_tensor(*pair, f"result {i}")
    for i, pair in enumerate(zip(flat(ours.inputs), flat(eager.inputs), strict=True)):
        same_tensor(*pair, f"input {i}")
    assert ours.relations() == eager.relations(), "who shares memory with whom"
    if compares_versions:
        assert ours.written == eager.written, "which inputs' versions went up"
    if not has_gradients:
        return
    gradients = ours.gradients(), eager.gradients()
    assert (gradients[0] is None) == (gradients[1] is None)
    for i, (a, b) in enumerate(zip(*gradients, strict=True) if gradients[1] is not None else ()):
        if b is None:  # nothing leads there; a node of the whole graph may say 0
            a = None if a is not None and not a.any() else a
        same_values(a, b, f"gradient {i}")


class Program:
    """What a test of one behaviour is given. `state`, of docs/aot.md: what runs in torch is
    compiled with on_unsupported="eager", what breaks the graph without fullgraph."""

    def __init__(self, state):
        self.mode = "strict" if state == "works" else "eager"
        self.breaks = state == "graph break"
        self._uses_torch = False

    def compile(self, function, dynamic=False, fullgraph=True, **options):
        self._uses_torch = self.uses_torch()
        torch._dynamo.reset()
        tandem.reset_report()
        fullgraph = fullgraph and not self.breaks
        options = {"on_unsupported": self.mode, **options}
        return torch.compile(
            function, backend=tandem.backend, dynamic=dynamic, fullgraph=fullgraph, options=options
        )

    def check(
        self, function, make, then=None, dynamic=False, fullgraph=True, options=None, **what
    ):
        """`then(inputs, results)`: what the caller does afterwards, before gradients."""
        eager = Run(function, make)
        compiled = self.compile(function, dynamic=dynamic, fullgraph=fullgraph, **(options or {}))
        ours = Run(compiled, make)
        if then is not None:
            compare(ours, eager, **{**what, "has_gradients": False})
            then(eager.inputs, eager.results)
            then(ours.inputs, ours.results)
        compare(ours, eager, **what)
        return ours

    def uses_torch(self):
        """Whether something of what was compiled here ran in torch."""
        report = tandem.report()
        graphs = report["graphs"]
        calls = self._uses_torch or bool(report["calls in torch"])
        return calls or any(each["fallbacks"] for each in graphs)

    @staticmethod
    def broke_a_graph():
        return bool(torch._dynamo.utils.counters["graph_break"])
