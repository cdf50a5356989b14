"""The kernels that are measured: how PyTorch says them, how a graph says them, and the bytes that
each must move.
"""

import dataclasses
import typing

import torch
import torch.nn.functional as F

WIDTH = 1024
EPSILON = 1e-5
NAMES = {torch.float32: "f32", torch.int64: "i64"}


@dataclasses.dataclass
class Case:
    name: str
    inputs: typing.Callable  # number of f32 elements -> tensors; the largest has as many elements
    eager: typing.Callable  # of the inputs; the fastest way that PyTorch offers without compiling
    lines: typing.Callable  # of the inputs' sizes: the body of a graph on %a0, %a1, ...
    results: str
    formula: typing.Callable = None  # what Inductor compiles, where it is not `eager`
    mutates: int = 0  # so many first inputs are updated in place, and compared

    def text(self, inputs):
        declared = ", ".join(
            f"%a{i}: {NAMES[t.dtype]}{list(t.shape)}" for i, t in enumerate(inputs)
        )
        body = "".join(f"  {line}\n" for line in self.lines(inputs))
        return f"graph @{self.name}({declared}) {{\n{body}  return {self.results}\n}}"

    def traffic(self, inputs, outputs):
        """Bytes read plus bytes written when each element moves once."""
        moved = list(inputs) + (list(inputs[: self.mutates]) if self.mutates else outputs)
        return sum(t.numel() * t.element_size() for t in moved)


def rows(elements):
    return torch.randn(elements // WIDTH, WIDTH)


def square(elements):
    side = int(elements**0.5)
    return torch.randn(side, side)


def vector():
    return torch.randn(WIDTH)


def logits(elements):
    values = rows(elements)
    return [values, torch.randint(0, WIDTH, (values.shape[0],))]


def images(elements):
    return [torch.randn(16, elements // (16 * 64 * 64), 64, 64)]


def backward_inputs(elements):
    x, weight, bias = rows(elements), vector(), vector()
    _, mean, rstd = torch.native_layer_norm(x, [WIDTH], weight, bias, EPSILON)
    return [torch.randn_like(x), x, mean, rstd, weight, bias]


def layer_norm_backward(grad, x, mean, rstd, weight, bias):
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, [WIDTH], mean, rstd, weight, bias, [True, True, True]
    )


# AdamW at step 10 with torch's defaults.
RATE, BETA1, BETA2, SMALL, DECAY, STEP = 1e-3, 0.9, 0.999, 1e-8, 0.01, 10
STEP_SIZE = RATE / (1 - BETA1**STEP)
ROOT = (1 - BETA2**STEP) ** 0.5


def adamw_inputs(elements):
    parameter, gradient = torch.randn(elements), torch.randn(elements)
    return [parameter, torch.randn(elements) * 0.1, torch.rand(elements), gradient]


def adamw_fused(parameter, mean, square, gradient):
    torch._fused_adamw_(
        [parameter],
        [gradient],
        [mean],
        [square],
        [],
        [torch.tensor(float(STEP - 1)) + 1],
        lr=RATE,
        beta1=BETA1,
        beta2=BETA2,
        weight_decay=DECAY,
        eps=SMALL,
        amsgrad=False,
        maximize=False,
    )


def adamw_formula(parameter, mean, square, gradient):
    parameter.mul_(1 - RATE * DECAY)
    mean.lerp_(gradient, 1 - BETA1)
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    parameter.addcdiv_(mean, square.sqrt().div_(ROOT).add_(SMALL), value=-STEP_SIZE)


def adamw_lines(_):
    return [
        f"%0 = aten.mul.Scalar(%a0, {1 - RATE * DECAY!r})",
        "%1 = aten.sub.Tensor(%a3, %a1)",
        f"%2 = aten.add.Tensor(%a1, %1, alpha={1 - BETA1!r})",
        f"%3 = aten.mul.Scalar(%a2, {BETA2!r})",
        "%4 = aten.mul.Tensor(%a3, %a3)",
        f"%5 = aten.add.Tensor(%3, %4, alpha={1 - BETA2!r})",
        "%6 = aten.sqrt(%5)",
        f"%7 = aten.div.Scalar(%6, {ROOT!r})",
        f"%8 = aten.add.Scalar(%7, {SMALL!r})",
        "%9 = aten.div.Tensor(%2, %8)",
        f"%10 = aten.add.Tensor(%0, %9, alpha={-STEP_SIZE!r})",
        "%11 = aten.copy_(%a0, %10) {no_grad}",
        "%12 = aten.copy_(%a1, %2) {no_grad}",
        "%13 = aten.copy_(%a2, %5) {no_grad}",
    ]


CASES = [
    Case(
        "bias_gelu",
        lambda n: [rows(n), vector()],
        lambda x, b: F.gelu(x + b, approximate="tanh"),
        lambda _: ["%0 = aten.add.Tensor(%a0, %a1)", '%1 = aten.gelu(%0, approximate="tanh")'],
        "%1",
    ),
    Case(
        "softmax",
        lambda n: [rows(n)],
        lambda x: torch.softmax(x, -1),
        lambda _: ["%0 = aten.softmax.int(%a0, -1)"],
        "%0",
    ),
    Case(
        "layer_norm",
        lambda n: [rows(n), vector(), vector()],
        lambda x, w, b: F.layer_norm(x, [WIDTH], w, b, EPSILON),
        lambda _: [f"%0 = aten.layer_norm(%a0, [{WIDTH}], %a1, %a2, {EPSILON})"],
        "%0",
    ),
    Case(
        "layer_norm_backward",
        backward_inputs,
        layer_norm_backward,
        lambda _: [
            "%0, %1, %2 = aten.native_layer_norm_backward(%a0, %a1, "
            f"[{WIDTH}], %a2, %a3, %a4, %a5, [true, true, true])"
        ],
        "%0, %1, %2",
    ),
    Case(
        "cross_entropy",
        logits,
        F.cross_entropy,
        lambda _: ["%0 = aten.cross_entropy_loss(%a0, %a1)"],
        "%0",
    ),
    Case(
        "column_sum",
        lambda n: [rows(n)],
        lambda x: x.sum(0),
        lambda _: ["%0 = aten.sum.dim_IntList(%a0, [0])"],
        "%0",
    ),
    Case(
        "transpose_add",
        lambda n: [square(n), square(n)],
        lambda x, y: x + y.t(),
        lambda _: ["%0 = aten.t(%a1)", "%1 = aten.add.Tensor(%a0, %0)"],
        "%1",
    ),
    Case("adamw", adamw_inputs, adamw_fused, adamw_lines, "", adamw_formula, mutates=3),
    Case(
        "max_pool2d",
        images,
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda _: ["%0 = aten.max_pool2d(%a0, [3, 3], [2, 2], [1, 1])"],
        "%0",
    ),
]
