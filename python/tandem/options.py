"""Options of the backend: `torch.compile(model, backend="tandem", options={...})`."""

import dataclasses

from tandem._tandem import UserError


@dataclasses.dataclass(frozen=True)
class Options:
    """on_unsupported: "eager" runs an operator that Tandem does not have in torch, with one warning
        that names it; "error" raises `tandem.Unsupported` at compile time, naming all of them.
    memory_budget: "default" saves what is cheap to keep for backward; "min_cut" saves as few bytes
        as possible and computes chains of pointwise operators again.
    freeze: in graphs without gradients, parameters and buffers that nothing writes are constants:
        what depends on them alone is computed once, batch norms are folded into convolutions, and
        library calls read weights packed. A weight that was replaced or written is noticed at the
        next call (by identity and version counter, so not through `.data` or NumPy), and costs that
        work again.
    report: keep every kernel and decision for `tandem.report()`."""

    on_unsupported: str = "eager"
    memory_budget: str = "default"
    freeze: bool = False
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
    elif not isinstance(value, bool):
        raise UserError(f"option '{name}' is True or False, not {value!r}")
