"""Options of the backend, as given to `torch.compile(model, backend="tandem", options={...})`."""

import dataclasses

from tandem._tandem import UserError


@dataclasses.dataclass(frozen=True)
class Options:
    """freeze: weights and buffers of an inference graph are constants: what depends on them alone
        is computed once and products read them packed. `torch.compile(m, backend="tandem",
        options={"freeze": True})`; after changing a weight call `torch._dynamo.reset()`.
    on_unsupported: "eager" runs an operator that Tandem does not have in torch, with one warning
        that names it; "error" raises `tandem.Unsupported` at compile time, naming all of them.
    verify: runs every compiled graph once beside eager and raises where results differ.
    memory_budget: "default" saves what is cheap to keep for backward; "min_cut" saves as few bytes
        as possible and computes chains of pointwise operators again.
    threads: size of the team; None takes torch.get_num_threads().
    report: keep every kernel and decision for `tandem.report()`."""

    freeze: bool = False
    on_unsupported: str = "eager"
    verify: bool = False
    memory_budget: str = "default"
    threads: int | None = None
    report: bool = False

    @classmethod
    def of(cls, given):
        """From the dict of torch.compile. UserError names what is unknown and what there is."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in (given or {}).items():
            if name not in known:
                raise UserError(f"unknown option '{name}'; there are: {', '.join(known)}")
            _check(name, value)
        return cls(**(given or {}))


_CHOICES = {"on_unsupported": ("eager", "error"), "memory_budget": ("default", "min_cut")}


def _check(name, value):
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise UserError(f"option '{name}' is one of {_CHOICES[name]}, not {value!r}")
    elif name == "threads":
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value is not None and not whole:
            raise UserError(f"option 'threads' is a positive number or None, not {value!r}")
    elif not isinstance(value, bool):
        raise UserError(f"option '{name}' is True or False, not {value!r}")
