# Of seed 7001112, on the road "core":
#   differed: inputs that overlap, of a graph that leaves another grad mode
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    leaf0 = torch.randn(1, b, generator=torch.manual_seed(0), dtype=torch.float64)
    x0 = leaf0.requires_grad_().clone()
    x1 = torch.randint(-5, 6, [1, b + 2], generator=torch.manual_seed(1), dtype=torch.int32)
    x1 = x1[..., 1:-1]
    leaf2 = torch.randn(b, a + 2, generator=torch.manual_seed(2), dtype=torch.float64)
    x2 = leaf2.requires_grad_().clone()[..., 1:-1]
    x3 = x0[:1]
    return [x0, x1, x2, x3], [leaf0, leaf2]


def program(x0, x1, x2, x3):
    v4 = x3.add_(1)
    v5 = x1.unsqueeze(2)
    v6 = x2.expand(2, *x2.shape)
    v7 = x1.masked_fill_(v4 > 0, 2)
    v8 = v5 * 1
    v9 = torch.exp(x3.clamp(max=3))
    v10 = v9.relu_()
    v11 = v6.squeeze(1)
    v12 = -x2
    v13 = x3 > 0
    v14 = v10 * 1
    v15 = v9.fill_(0.0)
    v16 = v15.mean(0, keepdim=True)
    v17 = v15.transpose(1, 0)
    v18 = v11 + v11
    x1[0] = 0
    v19 = x1
    with torch.no_grad():
        v20 = x2.mul_(0.5)
    v21 = v20 * 1
    v22 = v21.unbind(0)[1]
    torch.set_grad_enabled(False)
    v23 = v4 * 1
    torch.set_grad_enabled(True)
    v24 = x1 * 1
    torch.set_grad_enabled(False)
    v25 = v10 * 1
    with torch.set_grad_enabled(False):
        v26 = v6[0]
    v27 = v4 - v7
    v28 = v20.unbind(0)[0]
    v29 = v10 * 1
    return [v6, v8]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
