# Of seed 7500632, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randint(-5, 6, [1, b], generator=torch.manual_seed(0), dtype=torch.int32)
    x1 = torch.randint(-5, 6, [a, b], generator=torch.manual_seed(1), dtype=torch.int32)
    x1 = x1.transpose(-1, -2)
    x2 = torch.randn(1, b, generator=torch.manual_seed(2), dtype=torch.float64)
    x3 = torch.randn(1, b, generator=torch.manual_seed(3), dtype=torch.float64)
    x4 = x0.view_as(x0)
    return [x0, x1, x2, x3, x4], []


def program(x0, x1, x2, x3, x4):
    v5 = x2.expand(2, *x2.shape)
    with torch.set_grad_enabled(True):
        v6 = torch.sin(x1)
    v7 = x3 * x0
    v8 = x3.amax(1, keepdim=False)
    v9 = x4.add_(1)
    torch._foreach_add_([x2], [x2])
    v10 = x2
    x0[0] = 0
    v11 = x0
    v5.detach().zero_()
    v12 = v5
    torch._foreach_zero_([x4, v5])
    v13 = x4
    v14 = torch.maximum(v13, v12)
    v15 = v6.relu_()
    v16 = x3.relu_()
    return [x3, v10]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
