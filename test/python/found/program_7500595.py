# Of seed 7500595, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(b, a, generator=torch.manual_seed(0), dtype=torch.float64)
    leaf1 = torch.randn(a, b, generator=torch.manual_seed(1), dtype=torch.float64)
    x1 = leaf1.requires_grad_().clone().transpose(-1, -2)
    return [x0, x1], [leaf1]


def program(x0, x1):
    v2 = torch.sin(x0)
    v3 = x1.detach()
    v4 = x1.contiguous()
    v5 = v3 + x1
    v6 = v3.add_(1)
    v7 = v6.reshape(-1)
    with torch.set_grad_enabled(True):
        v8 = torch.sin(x0)
    torch._foreach_zero_([v3, v5])
    v9 = v3
    v10 = x0.clone()
    v11 = v4 - v9
    v12 = x0.mul_(v2)
    v13 = x0.copy_(torch.zeros_like(x0))
    torch._foreach_zero_([v2, v8])
    v14 = v2
    v15 = v4.amax(0, keepdim=True)
    torch._foreach_add_([x0], [v11])
    v16 = x0
    v17 = torch.full_like(v11, 2)
    v18 = v11.reshape(-1)
    v19 = v3.contiguous()
    v20 = v13.split(1, -1)[0]
    v21 = v13.zero_()
    torch._foreach_zero_([v14, v16])
    v22 = v14
    v23 = v8.to(torch.float64) * 0.5
    v24 = v15.split(1, -1)[0]
    return [v10, x1, v3, v9, x0]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
