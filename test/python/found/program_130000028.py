# Of seed 130000028, on the road "any_size":
#   input 0 afterwards: tensor([[ 3.9314e-31,  3.7494e-37],
#           [        nan,  1.9531e-03],
#           [-2.1273e+38,         nan]]) instead of tensor([[ 2.5410,  1.5684],
#           [ 0.7066, -0.0845],
#           [-1.1788, -0.3986]])
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(a, b, generator=torch.manual_seed(0))
    x0 = x0.transpose(-1, -2)
    return [x0], []


def program(x0):
    x0.transpose(0, -1).add_(1)
    v1 = x0
    v2 = x0.sum(1, keepdim=True)
    return [v2]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "any_size").text or "equal")
