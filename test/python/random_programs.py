"""Random straight-line programs of views, in-place ops, reductions and aliased inputs: functions of
tensors that torch runs in eager and Tandem compiles. What must agree: values, gradients, what
inputs hold afterwards, strides of results, and which results share memory with which inputs and
results.

Two sorts: `Program` is short, of f32; `LongProgram` has up to 30 steps, up to four inputs that are
often written, values of integers and bools, equal values in several places, and regions with and
without gradients. Its floats are f64, so that 30 steps do not blow a rounding up."""

import random

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


class Program:
    """A recipe: `steps` are (name, operand numbers, parameters); results are numbers of values.
    Values 0..n-1 are the inputs. It starts with gradients if `starts_grad`."""

    floats = torch.float32
    steps_at_most = 9

    def __init__(self, seed, more=()):
        """`more`: names of steps that are not among the usual ones."""
        self.possible = self._possible() | {name: _MORE[name] for name in more}
        self.seed = seed
        self.has_strides_of_fakes = False
        self.starts_grad = True
        rng = random.Random(seed)
        self._choose_inputs(rng)
        with torch.set_grad_enabled(self.starts_grad):
            self._choose_steps(rng)

    def _possible(self):
        return _STEPS

    def _choose_steps(self, rng):
        values = list(self.example())
        self.steps = []
        for _ in range(rng.randint(2, self.steps_at_most)):
            step = self._random_step(rng, values)
            if step is not None:
                self.steps.append(step)
                values.append(run_step(step, values))
        candidates = list(range(len(values)))
        self.results = [rng.choice(candidates) for _ in range(rng.randint(1, 3))]

    def _choose_inputs(self, rng):
        self.dtypes = [self.floats] * 2
        self.shapes = [rng.choice([(2, 3), (3, 2), (4,), (2, 3, 2), (1, 3)]) for _ in range(2)]
        self.layouts = [rng.choice(["plain", "plain", "transposed", "slice"]) for _ in range(2)]
        self.grads = [rng.random() < 0.5 for _ in range(2)]
        # A third input that is a view of the first one's memory.
        self.alias = rng.choice([None, None, None, "same", "part"])

    def example(self):
        """New input tensors, always the same numbers; non-leaf where they require grad, so that
        in-place ops are allowed. The leaves come with them as `.leaf`."""
        generator = torch.Generator().manual_seed(self.seed)
        inputs = []
        for facts in zip(self.shapes, self.layouts, self.grads, self.dtypes, strict=True):
            inputs.append(_input(*facts, generator))
        if self.alias == "same":
            inputs.append(inputs[0].view(inputs[0].shape))
        elif self.alias == "part":
            inputs.append(inputs[0][:1])
        return inputs

    def _random_step(self, rng, values):
        at = rng.randrange(len(values))
        x = values[at]
        names = [name for name, applies in self.possible.items() if applies(x)]
        if any(x is value for value in values[: self.count()]):
            names = [name for name in names if name not in _SHAPE_IN_PLACE]
        name = rng.choice(names)
        if name in _BINARY:
            fits = [i for i, y in enumerate(values) if _fits(name, x, y)]
            if not fits:
                return None
            return name, (at, rng.choice(fits)), ()
        return name, (at,), _parameters(rng, name, x)

    def count(self):
        """Of inputs."""
        return len(self.shapes) + (self.alias is not None)

    def __call__(self, *inputs):
        values = list(inputs)
        for step in self.steps:
            values.append(run_step(step, values))
        return tuple(values[i] for i in self.results)

    def __str__(self):
        lines = [
            f"inputs {self.shapes} {self.layouts} {self.dtypes} grads {self.grads} alias "
            f"{self.alias} {'' if self.starts_grad else 'in no_grad'}"
        ]
        for i, step in enumerate(self.steps):
            lines.append(f"  v{self.count() + i} = {step[0]}{step[1]} {step[2]}")
        return "\n".join([*lines, f"  return {self.results}"])


class LongProgram(Program):
    """See the head of the file."""

    floats = torch.float64
    steps_at_most = 30

    def _possible(self):
        return _STEPS | _LONG

    def _choose_inputs(self, rng):
        count = rng.randint(2, 4)
        shape = rng.choice([(2, 3), (4,), (2, 3, 2)])
        self.shapes = [rng.choice([shape, shape, (3, 2), (1, 3)]) for _ in range(count)]
        self.layouts = [rng.choice(["plain", "plain", "transposed", "slice"]) for _ in range(count)]
        kinds = [self.floats, self.floats, self.floats, torch.int64, torch.bool, torch.int32]
        self.dtypes = [rng.choice(kinds) for _ in range(count)]
        self.grads = [
            dtype.is_floating_point and rng.random() < 0.3 for dtype in self.dtypes
        ]
        self.alias = rng.choice([None] * 7 + ["same", "part"])
        self.starts_grad = rng.random() < 0.8

    def _choose_steps(self, rng):
        """Without those that autograd refuses."""
        values = list(self.example())
        self.steps = []
        for _ in range(rng.randint(5, self.steps_at_most)):
            step = self._random_step(rng, values)
            if step is None:
                continue
            try:
                values.append(run_step(step, values))
            except RuntimeError:
                continue
            self.steps.append(step)
        self.results = [rng.randrange(len(values)) for _ in range(rng.randint(1, 5))]

    def _random_step(self, rng, values):
        """Half of the writes go to an input; what eager refuses is no step."""
        step = super()._random_step(rng, values)
        if step is None:
            return None
        name, operands, parameters = step
        if name.endswith("_") and rng.random() < 0.5:
            operands = (rng.randrange(self.count()), *operands[1:])
            if not self._may_be(name, operands, values):
                return None
        step = (name, operands, parameters)
        try:
            run_step(step, [each.detach().clone() for each in values])
        except (RuntimeError, IndexError):
            return None
        return step

    def _may_be(self, name, operands, values):
        if name in _SHAPE_IN_PLACE or not self.possible[name](values[operands[0]]):
            return False
        return name not in _BINARY or _fits(name, *[values[i] for i in operands])


def _numbers(shape, dtype, generator):
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(-5, 6, shape, dtype=dtype, generator=generator)
    return torch.randn(shape, generator=generator, dtype=dtype)


def _input(shape, layout, grad, dtype, generator):
    if layout == "transposed" and len(shape) > 1:
        flipped = (*shape[:-2], shape[-1], shape[-2])
        leaf = _numbers(flipped, dtype, generator)
    elif layout == "slice":
        leaf = _numbers((*shape[:-1], shape[-1] + 2), dtype, generator)
    else:
        leaf = _numbers(shape, dtype, generator)
    leaf.requires_grad_(grad)
    x = leaf.clone() if grad else leaf
    if layout == "transposed" and len(shape) > 1:
        x = x.transpose(-1, -2)
    elif layout == "slice":
        x = x[..., 1:-1]
    x.leaf = leaf
    return x


_BINARY = {
    *("add", "mul", "sub", "maximum", "add_", "mul_", "copy_", "cat", "where"),
    *("swap_", "set_part_", "masked_fill_", "less", "foreach_zero_", "foreach_add_", "sub_"),
}
_STEPS = {
    "add": lambda x: True,
    "mul": lambda x: True,
    "sub": lambda x: True,
    "maximum": lambda x: True,
    "where": lambda x: True,
    "cat": lambda x: x.dim() > 0,
    "add_": lambda x: True,
    "mul_": lambda x: True,
    "copy_": lambda x: True,
    "relu_": lambda x: True,
    "fill_": lambda x: True,
    "zero_row_": lambda x: x.dim() > 0 and x.shape[0] > 0,
    "no_grad_mul_": lambda x: True,
    "sin": lambda x: True,
    "exp": lambda x: True,
    "clone": lambda x: True,
    "detach": lambda x: True,
    "neg": lambda x: True,
    "identity": lambda x: True,
    "sum": lambda x: True,
    "sum_dim": lambda x: x.dim() > 0,
    "mean_dim": lambda x: x.dim() > 0,
    "amax": lambda x: x.dim() > 0,
    "softmax": lambda x: x.dim() > 0,
    "cumsum": lambda x: x.dim() > 0,
    "transpose": lambda x: x.dim() > 1,
    "select": lambda x: x.dim() > 0 and x.shape[0] > 0,
    "slice": lambda x: x.dim() > 0 and x.shape[-1] > 1,
    "step": lambda x: x.dim() > 0 and x.shape[-1] > 2,
    "expand": lambda x: x.dim() < 3,
    "unsqueeze": lambda x: x.dim() < 3,
    "squeeze": lambda x: x.dim() > 0,
    "reshape": lambda x: True,
    "contiguous": lambda x: True,
    "flatten": lambda x: x.dim() > 1,
    "unbind": lambda x: x.dim() > 0 and x.shape[0] > 0,
    "split": lambda x: x.dim() > 0 and x.shape[-1] > 1,
    "masked_fill": lambda x: True,
    "transpose_": lambda x: x.dim() > 1,
    "squeeze_": lambda x: x.dim() > 0,
    "unsqueeze_": lambda x: x.dim() < 3,
}
# Of long programs. What ends in "_" writes to its first operand.
_LONG = {
    "zero_": lambda x: True,
    "one_": lambda x: True,
    "reset_": lambda x: True,
    "swap_": lambda x: True,
    "set_part_": lambda x: x.dim() > 0 and x.shape[-1] > 1,
    "masked_fill_": lambda x: True,
    "add_one_": lambda x: True,
    "clamp_": lambda x: x.dtype != torch.bool,
    "sub_": lambda x: x.dtype != torch.bool,
    "foreach_zero_": lambda x: True,
    "foreach_add_": lambda x: x.dtype != torch.bool,
    # Of a float eager forgets that it was written: the gradient goes through it as if it were not.
    "logical_not_": lambda x: not x.dtype.is_floating_point,
    "data_zero_": lambda x: True,
    "less": lambda x: True,
    "to_int": lambda x: True,
    "to_bool": lambda x: True,
    "to_float": lambda x: True,
    "no_grad_sin": lambda x: True,
    "no_grad_view": lambda x: x.dim() > 0 and x.shape[0] > 0,
    "enable_grad_sin": lambda x: True,
    "grad_off": lambda x: True,
    "grad_on": lambda x: True,
    "full": lambda x: True,
}
# Only of what the program made.
_SHAPE_IN_PLACE = {"transpose_", "squeeze_", "unsqueeze_"}
# Only data tell their sizes.
_MORE = {
    "chosen": lambda x: x.dim() > 0,
    "chosen_put": lambda x: x.dim() > 0,
    "nonzero": lambda x: x.dim() > 0,
    "item": lambda x: True,
    "rows": lambda x: x.dim() == 2,
}
_IN_PLACE = {"add_", "mul_", "copy_", "sub_", "set_part_", "foreach_add_", "masked_fill_"}
_ANY_SHAPE = {"foreach_zero_"}  # of the other operand


def _fits(name, x, y):
    """What a write reads is the very tensor or shares no memory: else eager's result depends on the
    order of its loop."""
    shares = x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    if shares and (name == "swap_" or name in _IN_PLACE and x is not y):
        return False
    if name == "swap_" and (x.shape != y.shape or x.dtype != y.dtype):
        return False
    return name in _ANY_SHAPE or _broadcasts(name, x, y)


def _broadcasts(name, x, y):
    if name == "cat":
        return x.dim() == y.dim() and x.shape[1:] == y.shape[1:]
    try:
        shape = torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        return False
    return name not in _IN_PLACE or shape == x.shape


def _parameters(rng, name, x):
    if name in ("sum_dim", "mean_dim", "amax", "softmax", "cumsum"):
        return (rng.randrange(x.dim()), rng.random() < 0.5)
    if name in ("select", "unbind"):
        return (rng.randrange(x.shape[0]),)
    if name in ("slice", "zero_row_", "split"):
        return (rng.randrange(max(1, x.shape[-1] if name == "slice" else x.shape[0])),)
    if name in ("transpose", "transpose_"):
        return tuple(rng.sample(range(x.dim()), 2))
    if name in ("unsqueeze", "squeeze", "unsqueeze_", "squeeze_"):
        return (rng.randrange(x.dim() + name.startswith("un")),)
    if name in ("fill_", "masked_fill"):
        return (rng.choice([0.0, 1.5]),)
    return ()


def run_step(step, values):
    name, operands, parameters = step
    return _RUN[name](*[values[i] for i in operands], *parameters)


def _swap(x, y):
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x


def _set_part(x, y):
    x[..., :1] = y[..., :1]
    return x


def _reset(x):
    """As a module resets a buffer: a value of its own, written to it."""
    return x.copy_(torch.zeros_like(x))


def _foreach_zero(x, y):
    torch._foreach_zero_([x, y])
    return x


def _foreach_add(x, y):
    torch._foreach_add_([x], [y])
    return x


def _data_zero(x):
    x.detach().zero_()
    return x


def _with_grad(enabled, function, x):
    with torch.set_grad_enabled(enabled):
        return function(x)


def _grad_from_here(enabled, x):
    torch.set_grad_enabled(enabled)
    return x * 1


def _no_grad_mul_(x):
    with torch.no_grad():
        return x.mul_(0.5)


_RUN = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - y,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "add_": lambda x, y: x.add_(y),
    "mul_": lambda x, y: x.mul_(y),
    "copy_": lambda x, y: x.copy_(y),
    "relu_": lambda x: x.relu_(),
    "fill_": lambda x, value: x.fill_(value),
    "zero_row_": lambda x, row: _zero_row(x, row),
    "no_grad_mul_": _no_grad_mul_,
    "sin": torch.sin,
    "exp": lambda x: torch.exp(x.clamp(max=3)),
    "clone": torch.clone,
    "detach": lambda x: x.detach(),
    "neg": lambda x: -x,
    "identity": lambda x: x * 1,
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x, dim, keep: x.sum(dim, keepdim=keep),
    "mean_dim": lambda x, dim, keep: x.mean(dim, keepdim=keep),
    "amax": lambda x, dim, keep: x.amax(dim, keepdim=keep),
    "softmax": lambda x, dim, _: x.softmax(dim),
    "cumsum": lambda x, dim, _: x.cumsum(dim),
    "transpose": lambda x, a, b: x.transpose(a, b),
    "select": lambda x, i: x[i],
    "slice": lambda x, i: x[..., i:],
    "step": lambda x: x[..., ::2],
    "expand": lambda x: x.expand(2, *x.shape),
    "unsqueeze": lambda x, dim: x.unsqueeze(dim),
    "squeeze": lambda x, dim: x.squeeze(min(dim, x.dim() - 1)),
    "reshape": lambda x: x.reshape(-1),
    "contiguous": lambda x: x.contiguous(),
    "flatten": lambda x: x.flatten(0, 1),
    "unbind": lambda x, i: x.unbind(0)[i],
    "split": lambda x, _: x.split(1, -1)[0],
    "masked_fill": lambda x, value: x.masked_fill(x > 0.5, value),
    "transpose_": lambda x, a, b: x.transpose_(a, b),
    "squeeze_": lambda x, dim: x.squeeze_(min(dim, x.dim() - 1)),
    "unsqueeze_": lambda x, dim: x.unsqueeze_(dim),
    "zero_": lambda x: x.zero_(),
    "one_": lambda x: x.fill_(1),
    "reset_": _reset,
    "swap_": _swap,
    "set_part_": _set_part,
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 2),
    "add_one_": lambda x: x.add_(1),
    "clamp_": lambda x: x.clamp_(-2, 2),
    "sub_": lambda x, y: x.sub_(y),
    "foreach_zero_": _foreach_zero,
    "foreach_add_": _foreach_add,
    "logical_not_": lambda x: x.logical_not_(),
    "data_zero_": _data_zero,
    "less": lambda x, y: x < y,
    "to_int": lambda x: x.clamp(-1000, 1000).nan_to_num().to(torch.int64),
    "to_bool": lambda x: x > 0,
    "to_float": lambda x: x.to(torch.float64) * 0.5,
    "no_grad_sin": lambda x: _with_grad(False, torch.sin, x),
    "no_grad_view": lambda x: _with_grad(False, lambda y: y[0], x),
    "enable_grad_sin": lambda x: _with_grad(True, torch.sin, x),
    "grad_off": lambda x: _grad_from_here(False, x),
    "grad_on": lambda x: _grad_from_here(True, x),
    "full": lambda x: torch.full_like(x, 2),
    "chosen": lambda x: x[x > 0].sum(),
    "chosen_put": lambda x: _chosen_put(x),
    "nonzero": lambda x: x.detach().nonzero().sum() * 1.0,
    "item": lambda x: x * x.detach().sum().item(),
    "rows": lambda x: x[x.detach().sum(-1) > 0].sum(0),
}


def _zero_row(x, row):
    x[row] = 0
    return x


def _chosen_put(x):
    mask = x > 0.1
    x[mask] = x[mask] * 2
    return x


# --- comparison


def outcome(function, program):
    """Everything that must agree, as (name, value) pairs; or the error's type name."""
    inputs = program.example()
    try:
        with torch.set_grad_enabled(program.starts_grad):
            results = function(*inputs)
    except RuntimeError as error:
        return error
    try:
        facts = _facts(results, inputs)
        return facts + _gradients(results, inputs)
    except RuntimeError as error:
        return error


def _facts(results, inputs):
    facts = []
    for i, result in enumerate(results):
        facts.append((f"result {i}", result.detach().clone()))
        facts.append((f"strides of result {i}", _meaningful_strides(result)))
        facts.append((f"result {i} has a history", _has_history(result)))
    for i, x in enumerate(inputs):
        facts.append((f"input {i} afterwards", x.detach().clone()))
        facts.append((f"input {i} has a history afterwards", _has_history(x)))
    facts.append(("sharing", _sharing(results, inputs)))
    return facts


def _gradients(results, inputs):
    loss = sum((r * _weights(r)).sum() for r in results if r.requires_grad)
    loss = loss + sum((x * _weights(x)).sum() for x in inputs if x.requires_grad)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        loss.backward()
    facts = []
    for i, x in enumerate(inputs):
        leaf = getattr(x, "leaf", None)
        # What came without a leaf is its own, and in eager may get a history that ends in a view
        # made under no_grad (`_has_history`): it is none any more, and has no gradient to compare.
        if leaf is not None and leaf.requires_grad and leaf.is_leaf:
            facts.append((f"gradient {i}", leaf.grad))
    return facts


def _has_history(result):
    """A gradient of it reaches a tensor of the caller's. To eager a view that was made under
    no_grad requires a gradient too, which ends in that view."""
    if not result.requires_grad or (result.grad_fn is None and result._is_view()):
        return False
    if result.grad_fn is None:
        return True
    pending, seen = [result.grad_fn], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable") and not node.variable._is_view():
            return True
        pending += [each for each, _ in node.next_functions if each is not None]
    return False


def _weights(x):
    return torch.arange(1.0, x.numel() + 1, dtype=x.dtype).reshape(x.shape)


def _meaningful_strides(x):
    return tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)


def _sharing(results, inputs):
    tensors = [*results, *inputs]
    bases = [x.untyped_storage().data_ptr() for x in tensors]
    offsets = [x.storage_offset() if bases.count(b) > 1 else 0 for x, b in zip(tensors, bases)]
    return [bases.index(b) for b in bases], offsets


def strides_of_fakes(program):
    """Of each result, as torch's fake tensors tell them: all that a backend of torch.compile sees.
    Where dimensions of one element are broadcast together they are not always eager's."""
    with FakeTensorMode() as mode, torch.set_grad_enabled(program.starts_grad):
        results = program(*[mode.from_tensor(x) for x in program.example()])
        strides = [_meaningful_strides(result) for result in results]
    torch.set_grad_enabled(True)
    return strides


def difference(actual, expected, program):
    """None, or what differs. Where only torch's fakes have a result's strides, the program says so
    afterwards: who calls counts them."""
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        if isinstance(expected, Exception) and isinstance(actual, Exception):
            return None
        return f"{_short(actual)} instead of {_short(expected)}"
    for (name, value), (_, wanted) in zip(actual, expected, strict=True):
        if isinstance(wanted, torch.Tensor) and isinstance(value, torch.Tensor):
            same = value.shape == wanted.shape and torch.allclose(
                value, wanted, rtol=1e-5, atol=1e-5, equal_nan=True
            )
        else:
            same = _same(value, wanted)
        if not same and name.startswith("strides of result"):
            same = value == strides_of_fakes(program)[int(name.split()[-1])]
            program.has_strides_of_fakes |= same
        if not same:
            return f"{name}: {value} instead of {wanted}"
    return None


def _same(value, wanted):
    if (value is None) != (wanted is None):
        zero = value if value is not None else wanted
        return isinstance(zero, torch.Tensor) and not zero.any()
    return value == wanted


def _short(value):
    is_error = isinstance(value, Exception)
    return f"{type(value).__name__} {str(value)[:600]}" if is_error else "a result"
