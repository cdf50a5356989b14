"""What a model of the sweep is: how it is built, and inputs for it at several sizes."""

import copy
import dataclasses
from collections.abc import Callable

import torch
from torch.utils import _pytree as pytree


@dataclasses.dataclass(frozen=True)
class Entry:
    """`build(p)` makes the model, in f32, with dropout p. `inputs(batch, size)` makes its keyword
    arguments; `sizes` are pairs (batch, size): the first for static shapes, all for dynamic ones,
    where `size` is the length, or the side of an image, if the model takes several.
    `is_dynamic`: Dynamo, whatever the backend, does not compile it again for other sizes.
    `phases`: what one training step runs, in order: further arguments, and the prefix of the names
    of the parameters that learn from it."""

    name: str
    build: Callable
    inputs: Callable
    sizes: tuple
    has_dropout: bool = False
    is_dynamic: bool = True
    phases: tuple = (({}, ""),)

    def model(self, dropout=0.0):
        torch.manual_seed(1)
        model = self.build(dropout)
        spread(model)
        with torch.no_grad():  # some install hooks at their first call: Dynamo breaks there
            model.eval()(**self.arguments())
        return model

    def arguments(self, number=0):
        """For the size of that number."""
        torch.manual_seed(2 + number)
        return self.inputs(*self.sizes[number])


def spread(model):
    """Weights under which signals neither vanish nor explode, so that an error anywhere is seen in
    the results: initial values are often zeros, ones, or so small that a layer does nothing."""
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                noise = torch.randn_like(parameter)
                if name == "bias":
                    parameter.copy_(0.1 * noise)
                elif parameter.dim() == 1:  # scales
                    parameter.copy_(1 + 0.1 * noise)
                elif name == "weight":
                    parameter.copy_(noise / parameter[0].numel() ** 0.5)
                elif parameter.dim() > 1:
                    parameter += 0.05 * noise


def fresh(model, wide=False):
    """A copy with the same weights; `wide`: in f64."""
    model = copy.deepcopy(model)
    return model.double() if wide else model


def shaken(model, seed):
    """A copy whose weights differ by up to one rounding."""
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(moved(parameter, generator))
    return model


def shaken_arguments(arguments, seed):
    generator = torch.Generator().manual_seed(seed)

    def shake(x):
        is_float = isinstance(x, torch.Tensor) and x.is_floating_point()
        return moved(x, generator) if is_float else x

    return {name: shake(value) for name, value in arguments.items()}


def moved(tensor, generator):
    """By up to one rounding each element."""
    moves = torch.randint(-1, 2, tensor.shape, generator=generator)
    return tensor * (1 + moves * torch.finfo(tensor.dtype).eps).to(tensor.dtype)


def widened(arguments):
    def wide(x):
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return {name: wide(value) for name, value in arguments.items()}


def tensors_of(output):
    """All tensors of what a model returned, in order."""
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def loss_of(output):
    """The model's own loss; else the mean square of all that it computed."""
    tensors = [t for t in tensors_of(output) if t.is_floating_point()]
    if tensors[0].dim() == 0:
        return tensors[0]
    return sum(t.square().mean() for t in tensors)
