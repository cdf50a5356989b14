"""Functions compiled straight through the core, without Dynamo: what the sweeps over many small
programs use."""

import torch
from torch import fx

import tandem
from tandem.dynamo import compile_graph
from tandem.options import Options

ERROR = {"on_unsupported": "error"}


def through_core(function, options=None):
    """`function` of tensors, traced and compiled for the arguments of each call."""

    def program(*arguments):
        return function(*arguments)

    def call(*inputs):
        graph = fx.Graph()
        placeholders = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
        graph.output(graph.call_function(program, tuple(placeholders)))
        module = fx.GraphModule(torch.nn.Module(), graph)
        return compile_graph(module, list(inputs), Options.of(options or ERROR))(*inputs)

    return call


def compile_with(function, **options):
    """torch.compile with this backend; an operator that is missing is an error."""
    torch._dynamo.reset()
    tandem.reset_report()
    dynamic = options.pop("dynamic", None)
    fullgraph = options.pop("fullgraph", False)
    return torch.compile(
        function,
        backend=tandem.backend,
        dynamic=dynamic,
        fullgraph=fullgraph,
        options={**ERROR, **options},
    )


def reported(function):
    """`function` through torch.compile; what was made of it is in `reported_kernels`."""
    torch._dynamo.reset()
    return torch.compile(function, backend=tandem.backend, options=ERROR | {"report": True})


def reported_kernels():
    """Steps, notes and kernels of the last graph."""
    return tandem.report()["graphs"][-1]["kernels"]
