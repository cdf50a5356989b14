# Of seed 7500205, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    leaf0 = torch.randn(a, b, generator=torch.manual_seed(0), dtype=torch.float64)
    x0 = leaf0.requires_grad_().clone().transpose(-1, -2)
    x1 = torch.randn(a, b, a, generator=torch.manual_seed(1), dtype=torch.float64)
    x2 = x0.view_as(x0)
    return [x0, x1, x2], [leaf0]


def program(x0, x1, x2):
    v3 = x2 * 1
    v4 = v3.expand(2, *v3.shape)
    v5 = v4.reshape(-1)
    with torch.set_grad_enabled(True):
        v6 = torch.sin(v4)
    torch.set_grad_enabled(False)
    v7 = x0 * 1
    v8 = x0.contiguous()
    v9 = x1 + v3
    v10 = x2.sum()
    v11 = x1.mean(1, keepdim=True)
    v12 = x2.clamp_(-2, 2)
    v13 = v10.fill_(1)
    with torch.set_grad_enabled(False):
        v14 = v3[0]
    with torch.set_grad_enabled(False):
        v15 = torch.sin(v6)
    v16 = v7 + x2
    v17 = v12.unsqueeze(2)
    v18 = v17.zero_()
    v19 = torch.cat([v7, x2])
    v20 = v3.unsqueeze_(2)
    torch._foreach_add_([x2], [v10])
    v21 = x2
    v17[0] = 0
    v22 = v17
    v23 = v22.sum()
    v24 = v13.unsqueeze_(0)
    v25 = torch.cat([v10, v10])
    v26 = x0.copy_(torch.zeros_like(x0))
    v27 = x0.split(1, -1)[0]
    v28 = x1.contiguous()
    v29 = v16 < v16
    v30 = v19.unsqueeze(0)
    v31 = v13 < v11
    return [v12]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
