"""Tandem from Python: compile tensor programs and run them on torch tensors."""

from tandem._tandem import (
    DataError,
    Graph,
    InternalError,
    Op,
    Unsupported,
    UserError,
    empty_cache,
    export_text,
    memory_use,
    ops,
    reset_peak_memory,
    threads,
)
from tandem._tandem import set_threads as _set_threads
from tandem._tandem import Executable as _Executable
from tandem._tandem import compile_text as _compile_text

__all__ = [
    "BudgetError",
    "DataError",
    "Executable",
    "Graph",
    "InternalError",
    "Op",
    "Unsupported",
    "UserError",
    "VerificationError",
    "aot_compile",
    "backend",
    "compile_text",
    "empty_cache",
    "export_text",
    "memory_use",
    "ops",
    "report",
    "reset_peak_memory",
    "reset_report",
    "set_threads",
    "threads",
]


def __getattr__(name):
    """What needs torch is imported when it is asked for; `tandem.backend` imports Dynamo."""
    if name == "backend":
        from tandem import dynamo

        return dynamo.backend
    if name == "BudgetError":
        from tandem import options

        return options.BudgetError
    if name == "VerificationError":
        from tandem import verify

        return verify.VerificationError
    raise AttributeError(f"module 'tandem' has no attribute '{name}'")


def aot_compile(model, args=(), kwargs=None, *, options=None):
    """Compiles `model(*args, **kwargs)`, a module or function, ahead of calls like this one: the
    callable that it gives takes arguments of the same tree, sizes, dtypes and strides, equal where
    they are no tensors (UserError for others), and asks nothing of what the module holds: that must
    be as it was. The modes that it is compiled in (gradients, autocast) are those of its calls.
    `options` as of torch.compile; with `freeze` the parameters and buffers that the module has now
    are kept, writes to them are noticed, other tensors in their place are not."""
    from tandem import aot

    return aot.aot_compile(model, args, kwargs, options=options)


def report():
    """What torch.compile compiled with this backend: a dict that prints as a page."""
    from tandem import reports

    return reports.report()


def reset_report():
    """Forgets what was compiled so far."""
    from tandem import reports

    reports.reset()


def set_threads(count):
    """Threads of calls that begin later; None: as many as torch.get_num_threads() says at the
    call."""
    _set_threads(0 if count is None else max(count, 1))


class Executable:
    """A compiled graph. Tensors go in and come out without a copy."""

    def __init__(self, native: _Executable):
        self._native = native

    def run(self, arguments):
        """Results of the graph for tensors, ints and floats, one for each of `inputs`."""
        return self._native.run([_plain(argument) for argument in arguments])

    __call__ = run

    def bind_constants(self, values):
        """Gives constants their values, by name, and computes what depends on them alone; before
        the first run. Names that are not given keep their value, unknown ones are left alone. A
        tensor is kept, not copied: after writing to it, call refresh."""
        self._native.bind_constants({name: _plain(value) for name, value in values.items()})

    def refresh(self):
        """Takes new values of the constants' tensors."""
        self._native.bind_constants({})

    @property
    def constants(self):
        """Names that bind_constants must give; of `freeze`, parameters and buffers."""
        return self._native.constants

    @property
    def counts(self):
        """Instructions of a call and of setup, runs of setup, bytes kept between calls."""
        return self._native.counts

    @property
    def inputs(self):
        """Names, in the order that run takes; tangents come last."""
        return self._native.inputs

    @property
    def outputs(self):
        """Names: "output", or of a gradient the name of its input."""
        return self._native.outputs

    @property
    def times(self):
        """Milliseconds by stage of the compilation."""
        return self._native.times

    @property
    def report(self):
        """What was decided and why, and every kernel; empty unless compiled with report=True."""
        return self._native.report


def _plain(argument):
    if getattr(argument, "requires_grad", False):
        argument = argument.detach()
    return argument


def compile_text(
    text,
    gradients="",
    *,
    interpret=False,
    always_parallel=False,
    report=False,
    level=-1,
    freeze=False,
):
    """Compiles the first graph of a text.

    `gradients`: "", "tangents" (one input for each output's tangent), "ones" (the first output
    is a scalar loss) or "forward" (an input `tangent_x` for each input `x` that requires a
    gradient; behind the results, the derivative along these of each that depends on one).
    `interpret` runs the slow reference engine instead of machine code; `always_parallel` uses the
    thread team for work of any size. `freeze`: inputs marked `param` or `buffer` are constants,
    which `bind_constants` gives."""
    return Executable(
        _compile_text(text, gradients, interpret, always_parallel, report, level, freeze)
    )
