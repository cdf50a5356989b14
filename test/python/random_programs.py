"""Random straight-line programs: views, in-place ops, shapes changed in place, reductions,
products; over inputs that share memory, or are given twice. Functions of tensors that torch runs in
eager and Tandem compiles.

Two sorts: a short one is of f32; a long one has up to 30 steps, up to four inputs that are often
written, values of integers and bools, equal values in several places, and regions with and without
gradients. Its floats are f64, so that 30 steps do not blow a rounding up."""

import random

import torch

import random_steps
from random_recipe import Input, Recipe, View

_LAYOUTS = ("plain", "plain", "transposed", "slice")
_REFUSALS = (RuntimeError, IndexError)


def short(seed, more=()):
    """A Recipe. `more`: names of steps that are not among the usual ones."""
    return _Short(seed, more).recipe()


def any_size(seed, more=()):
    """To be called with several."""
    return _AnySize(seed, more).recipe()


def long(seed, more=()):
    return _Long(seed, more).recipe()


class _Short:
    counts = 2, 9  # of steps
    results = 3

    def __init__(self, seed, more):
        self.possible = self.steps_by_name() | {name: random_steps.MORE[name] for name in more}
        self.seed = seed
        self.rng = random.Random(seed)
        self.starts_grad = True

    def steps_by_name(self):
        return random_steps.SHORT

    def recipe(self):
        self.inputs = tuple(self.choose_inputs())
        steps, values = self._choose_steps()
        results = [self.rng.randrange(values) for _ in range(self.rng.randint(1, self.results))]
        return Recipe(self.seed, self.inputs, steps, tuple(results), self.starts_grad)

    def choose_inputs(self):
        rng = self.rng
        shapes = [(2, 3), (3, 2), (4,), (2, 3, 2), (1, 3)]
        inputs = [
            Input(rng.choice(shapes), rng.choice(_LAYOUTS), "float32", rng.random() < 0.5, i)
            for i in range(2)
        ]
        return inputs + self.choose_views(inputs, rng.choice([0, 0, 0, 1, 1, 2]))

    def choose_views(self, inputs, count):
        kinds = ("same", "part", "twice", "tail", "turned", "columns")
        numbers = range(len(inputs))
        return [View(self.rng.choice(numbers), self.rng.choice(kinds)) for _ in range(count)]

    def _choose_steps(self):
        """And how many values there are. What eager refuses is no step."""
        code = Recipe(self.seed, self.inputs, (), ()).written
        values = code.inputs()[0]
        steps = []
        with torch.set_grad_enabled(self.starts_grad):
            for _ in range(self.rng.randint(*self.counts)):
                try:
                    step = self.random_step(values)
                    if step is None:
                        continue
                    values.append(_run(step, values))
                except _REFUSALS:
                    continue
                steps.append(step)
        return tuple(steps), len(values)

    def random_step(self, values):
        """None where nothing fits what was drawn."""
        at = self.rng.randrange(len(values))
        names = [name for name in self.possible if self._may_be(name, values, at)]
        name = self.rng.choice(names)
        return self._with_operands(name, values, at)

    def _may_be(self, name, values, at):
        if not self.possible[name].applies(values[at]):
            return False
        if random_steps.writes(name) and random_steps.shows_places_twice(values[at]):
            return False  # eager's result depends on the order of its loop
        is_input = any(values[at] is value for value in values[: len(self.inputs)])
        return not is_input or name not in random_steps.SHAPE_IN_PLACE

    def _with_operands(self, name, values, at):
        step, x = self.possible[name], values[at]
        if _is_refused(name, x, values):
            return None
        operands = (at,)
        if step.fits is not None:
            fits = [i for i, y in enumerate(values) if step.fits(x, y)]
            if not fits:
                return None
            operands = (at, self.rng.choice(fits))
        drawn = name, operands, step.draws(self.rng, x)
        return drawn if not name.endswith("_") or _runs(drawn, values) else None


class _AnySize(_Short):
    def steps_by_name(self):
        """Without strides, which are those of one size."""
        return {
            name: step for name, step in super().steps_by_name().items() if "strided" not in name
        }


class _Long(_Short):
    counts = 5, 30
    results = 5

    def steps_by_name(self):
        return random_steps.SHORT | random_steps.LONG

    def choose_inputs(self):
        rng = self.rng
        self.starts_grad = rng.random() < 0.8
        shape = rng.choice([(2, 3), (4,), (2, 3, 2)])
        inputs = [self._input(i, shape) for i in range(rng.randint(2, 4))]
        return inputs + self.choose_views(inputs, rng.choice([0] * 7 + [1, 2]))

    def _input(self, number, shape):
        rng = self.rng
        shape = rng.choice([shape, shape, (3, 2), (1, 3)])
        dtype = rng.choice(["float64"] * 3 + ["int64", "bool", "int32"])
        grad = "float" in dtype and rng.random() < 0.3
        return Input(shape, rng.choice(_LAYOUTS), dtype, grad, number)

    def random_step(self, values):
        """Half of the writes go to an input."""
        at = self.rng.randrange(len(values))
        names = [name for name in self.possible if self._may_be(name, values, at)]
        name = self.rng.choice(names)
        if name.endswith("_") and self.rng.random() < 0.5:
            at = self.rng.randrange(len(self.inputs))
            if not self._may_be(name, values, at):
                return None
        return self._with_operands(name, values, at)


def _is_refused(name, x, values):
    """By name: a write to a part of overlapping windows. Or eager is wrong: the gradient of views
    of a tensor that as_strided_ makes smaller is 0 where it shows nothing any more."""
    shown = [each for each in values if random_steps.shares_memory(x, each)]
    if name == "as_strided_" and x.requires_grad:
        return len(shown) > 1
    return random_steps.writes(name) and any(map(random_steps.shows_places_twice, shown))


def _run(step, values):
    name, operands, parameters = step
    return random_steps.run(name, [values[i] for i in operands], parameters)


def _runs(step, values):
    """Whether eager takes this write, which may fail when a part of it is done."""
    try:
        _run(step, [each.detach().clone() for each in values])
    except _REFUSALS:
        return False
    return True
