"""The least program that fails as a random one does (random_recipe.py): steps, results and inputs
are left out, and inputs made plainer, as long as the failure is of the same kind.

By hand: `python test/python/program_reducer.py MAKER ROAD SEED`, a maker of random_programs.py
(short, long, any_size) and a road of program_outcomes.py."""

import dataclasses
import os
import sys

import torch

import random_programs
from program_outcomes import Difference, first_difference
from random_recipe import View


def reduced(recipe, fails):
    """`fails(recipe)`: whether the failure is there. It is of `recipe` itself."""
    while True:
        for smaller in _smaller(recipe):
            if fails(smaller):
                recipe = smaller
                break
        else:
            return recipe


def _smaller(recipe):
    """Those that leave most out come first."""
    yield from _one_result(recipe)
    yield from _without_last_steps(recipe)
    numbers = range(len(recipe.inputs), len(recipe.inputs) + len(recipe.steps))
    for number in reversed(numbers):
        yield from _without_step(recipe, number)
    for number in range(len(recipe.inputs)):
        yield from _without_input(recipe, number)
    yield from _with_earlier_results(recipe)
    yield from _with_plainer_inputs(recipe)


def _one_result(recipe):
    for i in range(len(recipe.results)):
        if len(recipe.results) > 2:
            yield dataclasses.replace(recipe, results=recipe.results[i : i + 1])
    for i in range(len(recipe.results)):
        if len(recipe.results) > 1:
            others = recipe.results[:i] + recipe.results[i + 1 :]
            yield dataclasses.replace(recipe, results=others)


def _without_last_steps(recipe):
    for count in (len(recipe.steps) // 2, len(recipe.steps) // 4, 2):
        if 0 < count < len(recipe.steps):
            first = len(recipe.inputs) + len(recipe.steps) - count
            gone = dict.fromkeys(range(first, first + count), first - 1)
            yield _without(recipe, gone)


def _without_step(recipe, number):
    """Another value stands for what it gave: its operand, or an input."""
    operands = recipe.steps[number - len(recipe.inputs)][1]
    for other in dict.fromkeys((*operands, *range(len(recipe.inputs)))):
        yield _without(recipe, {number: other})


def _without_input(recipe, number):
    if len(recipe.inputs) == 1:
        return
    for other in range(len(recipe.inputs)):
        if other != number:
            yield _without(recipe, {number: other})


def _without(recipe, gone):
    """`gone`: values, and what stands for each."""
    count = len(recipe.inputs)
    kept = [i for i in range(count + len(recipe.steps)) if i not in gone]
    new = {old: i for i, old in enumerate(kept)}

    def renumbered(number):
        return new[gone.get(number, number)]

    inputs = [_renumbered_input(recipe.inputs[i], renumbered) for i in kept if i < count]
    steps = [
        (name, tuple(map(renumbered, operands)), parameters)
        for name, operands, parameters in (recipe.steps[i - count] for i in kept if i >= count)
    ]
    results = tuple(map(renumbered, recipe.results))
    return dataclasses.replace(recipe, inputs=tuple(inputs), steps=tuple(steps), results=results)


def _renumbered_input(each, renumbered):
    return View(renumbered(each.of), each.kind) if isinstance(each, View) else each


def _with_earlier_results(recipe):
    """A result that an input could be needs no step."""
    for i, result in enumerate(recipe.results):
        for earlier in range(min(result, len(recipe.inputs))):
            results = (*recipe.results[:i], earlier, *recipe.results[i + 1 :])
            yield dataclasses.replace(recipe, results=results)


def _with_plainer_inputs(recipe):
    if not recipe.starts_grad:
        yield dataclasses.replace(recipe, starts_grad=True)
    for i, each in enumerate(recipe.inputs):
        for plainer in _plainer(each):
            inputs = (*recipe.inputs[:i], plainer, *recipe.inputs[i + 1 :])
            yield dataclasses.replace(recipe, inputs=inputs)


def _plainer(each):
    if isinstance(each, View):
        return
    if each.grad:
        yield dataclasses.replace(each, grad=False)
    if each.layout != "plain":
        yield dataclasses.replace(each, layout="plain")
    if len(each.shape) > 1:
        yield dataclasses.replace(each, shape=each.shape[1:])


# --- with what failed


def reduced_difference(recipe, road="core", differs=first_difference):
    """The least recipe with a difference of the same kind, and that Difference."""
    kind = differs(recipe.written, road).kind

    def fails(smaller):
        try:
            return differs(smaller.written, road).kind == kind
        except Exception:  # noqa: BLE001: inputs that cannot be made, a program that is none
            return False

    least = reduced(recipe, fails) if kind is not None else recipe
    return least, differs(least.written, road)


def ends_the_process(recipe, road="core"):
    """Whether a child that runs it ends by a signal."""
    child = os.fork()
    if child == 0:
        try:
            first_difference(recipe.written, road)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def reduced_crash(recipe, road="core"):
    """The least recipe that ends the process, and a Difference that says so."""
    least = reduced(recipe, lambda smaller: ends_the_process(smaller, road))
    found = Difference([], [], least.written)
    found.text = found.kind = "ends the process by a signal"
    return least, found


def printed(recipe, found, road="core"):
    """Code to paste into a file and to run."""
    said = "\n".join(f"#   {line}" for line in (found.text or "equal").split("\n"))
    return f'''# Of seed {recipe.seed}, on the road "{road}":
{said}
# Run it with PYTHONPATH=build/python:test/python.
{recipe.code()}

if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "{road}").text or "equal")
'''


def main(maker, road, seed):
    recipe = getattr(random_programs, maker)(int(seed))
    torch.set_num_threads(1)  # a child has no other
    is_crash = ends_the_process(recipe, road)
    least = reduced_crash(recipe, road) if is_crash else reduced_difference(recipe, road)
    print(printed(*least, road))


if __name__ == "__main__":
    main(*sys.argv[1:])
