"""Options of the backend: `torch.compile(model, backend="tandem", options={...})`."""

import dataclasses
import re

from tandem._tandem import UserError


@dataclasses.dataclass(frozen=True)
class Options:
    """on_unsupported: "eager" runs an operator that Tandem does not have in torch, with one warning
        that names it; "error" raises `tandem.Unsupported` at compile time, naming all of them;
        "strict" does so for whatever would run in torch, also by design: operators whose
        sizes data tell, and calls whose inputs overlap.
    memory_budget: "default" saves what is cheapest if a microsecond of computing again is worth
        4096 bytes; "min_cut" saves as few bytes as possible and computes chains of pointwise
        operators again, inside of the kernels that read them; "as_read" saves what backward reads,
        but for what is cheaper made than kept. A number from 0 to 1 is a
        share of what "min_cut" saves beyond the fewest bytes possible: products, reductions and
        random numbers are computed again too, those that take the least time for their bytes.
        "min_memory" saves the fewest bytes possible, "min_time" what makes backward fastest. Bytes
        ("512MiB") are what a step of the graph holds at once, parameters and other arguments
        included; where no choice holds that, BudgetError says what is possible.
    memory_budget_solver: how a number's values are picked: "dp", "greedy" or "exact".
    memory_budget_cost: what a number, or bytes, makes least of in backward: "time", as the cost
        model says by rates of a usual machine, "measured", the same by those of this machine, which
        are measured once (0.2 s) and kept in TANDEM_CACHE_DIR, or "flops", operations of products
        alone.
    save_activations: what forward saves for backward is kept in fewer bits: "bf16", or "int8" by
        one scale for each tensor, "int8_row" for each row of the last dimension, "int8_block" for
        each 64 elements of a row (rows where 64 does not divide them), or 8-bit floats with a scale
        for each row, "f8e4m3fn" and "f8e5m2", or without one, "f8e4m3fn_unscaled" and
        "f8e5m2_unscaled" (what is beyond the largest number becomes it). Masks become bits with
        each of these. Gradients are those of the rounded values. None keeps all as it is.
    save_activations_from: values of fewer bytes stay as they are.
    save_activations_except: a list of what stays as it is, in the words of the report's "cut":
        operators ("aten.gelu", with all overloads), values ("%12"), places ("model.py:31"), element
        types ("f32"), and "symbolic", all whose sizes vary.
    freeze: in graphs without gradients, parameters and buffers that nothing writes are constants:
        what depends on them alone is computed once, batch norms are folded into convolutions, and
        library calls read weights packed. A weight that was replaced, written or given other memory
        (`p.data = x`) is noticed at the next call, by identity, version counter and address, and
        costs that work again. Writes through `p.data` or NumPy are not: "checked" reads all weights
        at each call and compares a checksum.
    report: keep every kernel and decision for `tandem.report()`.
    threads: size of the team; None takes what `tandem.set_threads` said, else
        `torch.get_num_threads()` at each call.
    tune: kernels of known sizes are mapped in the few ways that are likely to be fast and timed on
        this machine, at the first compile; the choice is kept in TANDEM_CACHE_DIR and used from
        then on. Another choice may take sums in another order, so results are equal to rounding.
    int8: "require" makes a product with a dequantized factor that would be computed in floats an
        error, which says why; None leaves it at a line of the report.
    joint_passes: functions that see each graph where forward and backward are one, before anything
        is decided about it, in order. They get a `tandem.Graph` and may look at it and edit it.
        One that has a method `uuid()` is known to the cache by what that gives; others keep graphs
        out of it.
    partition: a function that says what forward saves for backward, instead of memory_budget: it
        looks at a `tandem.Graph` of core operators and gives a list of values. The rest is computed
        again, but for what a second run could change. `uuid()` as of joint_passes.
    partition_knobs: what "min_cut", and with it fractions, may not compute again, by the names of
        `torch._functorch.config`: {"ban_recompute_reductions": False}. There are, True by default,
        ban_recompute_used_far_apart, ban_recompute_long_fusible_chains,
        ban_recompute_materialized_backward, ban_recompute_not_in_allowlist,
        ban_recompute_reductions, treat_parameters_as_free_to_save; and, False by default,
        aggressive_recomputation, recompute_views.
    verify: before its first call runs each compiled graph beside eager, forward and backward, and
        raises `tandem.VerificationError` where they differ."""

    on_unsupported: str = "eager"
    memory_budget: str | float = "default"
    memory_budget_solver: str = "dp"
    memory_budget_cost: str = "time"
    save_activations: str | None = None
    save_activations_from: int = 65536
    save_activations_except: list | tuple = ()
    freeze: bool | str = False
    report: bool = False
    threads: int | None = None
    tune: bool = False
    int8: str | None = None
    joint_passes: list | tuple = ()
    partition: object = None
    partition_knobs: dict = dataclasses.field(default_factory=dict)
    verify: bool = False

    @classmethod
    def of(cls, given):
        """From the dict of torch.compile. UserError names what is unknown and what there is."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in (given or {}).items():
            if name not in known:
                raise UserError(f"unknown option '{name}'; there are: {', '.join(known)}")
            _check(name, value)
        chosen = cls(**(given or {}))
        _check_together(given or {}, chosen)
        return chosen


_CHOICES = {
    "on_unsupported": ("eager", "error", "strict"),
    "memory_budget_solver": ("dp", "greedy", "exact"),
    "memory_budget_cost": ("time", "flops", "measured"),
    "save_activations": (
        None, "bf16", "int8", "int8_row", "int8_block", "f8e4m3fn", "f8e5m2", "f8e4m3fn_unscaled",
        "f8e5m2_unscaled",
    ),
    "freeze": (True, False, "checked"),
    "int8": (None, "require"),
}


def _check(name, value):
    if name in _CHOICES:
        choices = [choice for choice in _CHOICES[name] if type(choice) is type(value)]
        if value not in choices:
            raise UserError(f"option '{name}' is one of {_CHOICES[name]}, not {value!r}")
    elif name == "memory_budget":
        _check_budget(value)
    elif name == "save_activations_from":
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UserError(f"option '{name}' is a number of bytes, not {value!r}")
    elif name == "save_activations_except":
        if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
            raise UserError(f"option '{name}' is a list of names, not {value!r}")
    elif name == "joint_passes":
        if not isinstance(value, (list, tuple)) or not all(map(callable, value)):
            raise UserError(f"option '{name}' is a list of functions, not {value!r}")
    elif name == "partition_knobs":
        if not isinstance(value, dict) or not all(isinstance(on, bool) for on in value.values()):
            raise UserError(f"option '{name}' is a dict of True and False, not {value!r}")
    elif name == "partition":
        if value is not None and not callable(value):
            raise UserError(f"option '{name}' is a function or None, not {value!r}")
    elif name == "threads":
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value is not None and not whole:
            raise UserError(f"option 'threads' is a positive number or None, not {value!r}")
    elif not isinstance(value, bool):
        raise UserError(f"option '{name}' is True or False, not {value!r}")


def _check_together(given, chosen):
    """Options that would say the same thing twice, or that nothing would ask."""
    if chosen.partition is not None and "memory_budget" in given:
        raise UserError(
            "option 'partition' says what forward saves, and so does 'memory_budget': give one"
        )
    asks_knobs = chosen.memory_budget in ("min_cut", "min_memory", "min_time")
    asks_knobs = asks_knobs or not isinstance(chosen.memory_budget, str)
    if chosen.partition_knobs and (chosen.partition is not None or not asks_knobs):
        raise UserError(
            "option 'partition_knobs' is for 'memory_budget' \"min_cut\", a number, \"min_memory\" "
            "or \"min_time\": nothing else asks them"
        )


_BYTES = re.compile(r"\d+(\.\d+)?([KMG]i?)?B")
_BUDGETS = ("default", "min_cut", "as_read", "min_memory", "min_time")


def _check_budget(value):
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_share = is_number and 0 <= value <= 1
    is_bytes = isinstance(value, str) and _BYTES.fullmatch(value)
    if not is_share and not is_bytes and value not in _BUDGETS:
        raise UserError(
            f"option 'memory_budget' is one of {_BUDGETS}, a number from 0 to 1 or bytes "
            f"('512MiB'), not {value!r}"
        )


class BudgetError(ValueError):
    """No choice of what is saved holds a step in the budget; torch would not either."""
