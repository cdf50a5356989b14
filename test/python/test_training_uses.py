"""What training scripts do with a model: accumulate, checkpoint, hook, copy, save, share over
processes. Each use with the compiled model against the same use in eager."""

import copy
import io
import os
import subprocess
import sys

import pytest
import torch
import torch.utils.checkpoint as checkpointing

import tandem
from compiled import compile_with


def same(actual, expected, tolerance=1e-4):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    ).to(dtype)


def gradients(module):
    return [p.grad.clone() for p in module.parameters()]


def test_partial_gradients_and_retained_graphs():
    module = model()
    compiled = compile_with(module)
    x = torch.randn(3, 8, requires_grad=True)
    weight = module[0].weight

    def run(function):
        y = function(x)
        (first,) = torch.autograd.grad(y.sum(), weight, retain_graph=True)
        second = torch.autograd.grad(y.square().sum(), [x, weight], retain_graph=True)
        third = torch.autograd.grad(y[0], x, torch.ones(4))
        return [first, *second, *third]

    for actual, expected in zip(run(compiled), run(module), strict=True):
        same(actual, expected)


def test_gradients_go_where_saved_activations_were():
    layers, mib = 24, 1.0  # each activation and each gradient
    torch.manual_seed(0)
    stages = [m for _ in range(layers) for m in (torch.nn.Linear(512, 512, False), torch.nn.Tanh())]
    module = torch.nn.Sequential(*stages)
    compiled = compile_with(lambda x: module(x).sum())
    x = torch.randn(512, 512)
    peaks = {}
    for retain in (True, False):
        loss = compiled(x)
        assert loss.grad_fn.handle.bytes >= (layers - 2) * mib * 2**20
        module.zero_grad()
        before = tandem.memory_use()["live_bytes"]
        tandem.reset_peak_memory()
        loss.backward(retain_graph=retain)
        peaks[retain] = (tandem.memory_use()["peak_live_bytes"] - before) / 2**20
        del loss
    assert peaks[True] >= layers * mib
    assert peaks[False] <= 5 * mib
    actual = gradients(module)
    module.zero_grad()
    module(x).sum().backward()
    for one, other in zip(actual, gradients(module), strict=True):
        same(one, other)


def test_saved_activations_live_until_backward():
    module = model()
    compiled = compile_with(lambda x: module(x).sum())
    losses = [compiled(torch.randn(3, 8)) for _ in range(3)]
    handles = [loss.grad_fn.handle for loss in losses]
    assert all(handle.is_alive and handle.bytes > 0 for handle in handles)
    losses[0].backward(retain_graph=True)
    assert handles[0].is_alive
    losses[0].backward()
    assert not handles[0].is_alive and handles[0].bytes == 0 and handles[1].is_alive
    del losses  # without backward
    assert [handle.is_alive for handle in handles] == [False, True, True]


def test_unused_results_have_no_tangent():
    def function(x, w):
        return (x * w).sin(), (x + w).cos(), x.detach() * 2

    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    compiled = compile_with(function)
    for number in (0, 1):
        actual = torch.autograd.grad(compiled(x, w)[number].sum(), [x, w])
        expected = torch.autograd.grad(function(x, w)[number].sum(), [x, w])
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    assert not compiled(x, w)[2].requires_grad


def test_some_parameters_are_frozen_and_thawed():
    module = model()
    compiled = compile_with(module)
    x = torch.randn(3, 8)
    for frozen in (True, False):
        module[0].weight.requires_grad_(not frozen)
        module.zero_grad()
        compiled(x).sum().backward()
        actual = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        module(x).sum().backward()
        for a, p in zip(actual, module.parameters(), strict=True):
            assert (a is None) == (p.grad is None)
            if a is not None:
                same(a, p.grad)


def test_hooks_of_tensors_and_parameters():
    def run(function, module):
        seen = []

        def keep(grad):
            seen.append(grad.clone())

        module.zero_grad()
        handles = [
            module[0].weight.register_hook(lambda grad: keep(grad) or grad * 2),
            module[3].bias.register_post_accumulate_grad_hook(lambda p: keep(p.grad)),
        ]
        y = function(torch.ones(3, 8))
        y.register_hook(lambda grad: keep(grad) or grad + 1)
        y.sum().backward()
        for handle in handles:
            handle.remove()
        return seen, gradients(module)

    module = model()
    seen, grads = run(compile_with(module), module)
    expected_seen, expected = run(module, module)
    assert len(seen) == len(expected_seen) == 3
    for a, e in zip(sorted(seen, key=torch.numel), sorted(expected_seen, key=torch.numel)):
        same(a, e)
    for a, e in zip(grads, expected, strict=True):
        same(a, e)


def test_grad_modes_change_between_calls():
    module = model()
    compiled = compile_with(module)
    x = torch.randn(3, 8)
    expected = module(x).detach()
    for _ in range(2):
        with torch.no_grad():
            out = compiled(x)
            assert not out.requires_grad
            same(out, expected)
        with torch.inference_mode():
            out = compiled(x)
            assert out.is_inference()
            same(out, expected)
        out = compiled(x)
        assert out.requires_grad
        same(out, expected)
        out.sum().backward()
    with torch.inference_mode():
        made = torch.randn(3, 8)
    with torch.no_grad():
        same(compiled(made), module(made))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_around_a_compiled_module(reentrant):
    module = model()
    compiled = compile_with(module)
    x = torch.randn(3, 8, requires_grad=True)

    def run(function):
        module.zero_grad()
        y = checkpointing.checkpoint(function, x, use_reentrant=reentrant)
        (y * y).sum().backward()
        return [x.grad.clone(), *gradients(module)]

    actual = run(compiled)
    x.grad = None
    for a, e in zip(actual, run(module), strict=True):
        same(a, e)


@pytest.mark.parametrize("when", ["before", "after"])
def test_copies_of_a_model(when):
    module = model()
    compiled = compile_with(module)
    x = torch.randn(3, 8)
    if when == "after":
        compiled(x).sum().backward()
    twin = copy.deepcopy(compiled)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(2)
    same(twin(x), twin._orig_mod(x))
    same(compiled(x), module(x))
    assert (twin(x) - compiled(x)).abs().max() > 0.1


def test_saving_and_loading():
    module, other = model(), model()
    x = torch.randn(3, 8)
    compiled = compile_with(module)
    compiled(x).sum().backward()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.5)
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    module.load_state_dict(torch.load(file))
    same(compiled(x), other(x))
    whole = io.BytesIO()
    torch.save(module, whole)
    whole.seek(0)
    loaded = torch.load(whole, weights_only=False)
    same(compile_with(loaded)(x), other(x))
    names = {name.removeprefix("_orig_mod.") for name in compiled.state_dict()}
    assert names == set(other.state_dict())


def test_parameters_that_are_replaced_or_swapped():
    module = model()
    compiled = compile_with(module)
    x = torch.randn(3, 8)
    compiled(x)
    module[0].weight.data = torch.randn(16, 8)
    same(compiled(x), module(x))
    module[0].weight = torch.nn.Parameter(torch.randn(16, 8))
    same(compiled(x), module(x))
    values = {name: torch.randn_like(p) for name, p in module.named_parameters()}
    same(
        torch.func.functional_call(compiled, {"_orig_mod." + k: v for k, v in values.items()}, x),
        torch.func.functional_call(module, values, x),
    )
    same(compiled(x), module(x))


def test_function_transforms_over_a_compiled_function():
    """torch refuses, or runs the function in eager; nothing is silently wrong."""

    def function(x):
        return (x.sin() * x).sum()

    x = torch.randn(5, 3)
    for name, transform in [
        ("vmap", torch.func.vmap),
        ("grad", torch.func.grad),
        ("vmap of grad", lambda f: torch.func.vmap(torch.func.grad(f))),
        ("jacrev", torch.func.jacrev),
    ]:
        compiled = compile_with(function)
        compiled(x)
        try:
            actual = transform(compiled)(x)
        except RuntimeError as error:
            assert "compile" in str(error) or "tandem" in str(error), name
        else:
            same(actual, transform(function)(x))
        same(compiled(x), function(x))
        same(compile_with(transform(function))(x), transform(function)(x))


def test_training_in_bf16_without_scaler():
    def run(wrap):
        module = model()
        function = wrap(module)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        losses = []
        for step in range(5):
            torch.manual_seed(step)
            x = torch.randn(16, 8)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = function(x).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    same(run(compile_with), run(lambda module: module), 2e-2)


def test_gradients_accumulate_into_given_memory():
    module = model()
    compiled = compile_with(module)
    buffers = [torch.full_like(p, 0.5) for p in module.parameters()]
    for p, buffer in zip(module.parameters(), buffers, strict=True):
        p.grad = buffer
    x = torch.randn(3, 8)
    for _ in range(2):
        compiled(x).sum().backward()
    actual = gradients(module)
    assert all(p.grad is b for p, b in zip(module.parameters(), buffers, strict=True))
    for p in module.parameters():
        p.grad = torch.full_like(p, 0.5)
    for _ in range(2):
        module(x).sum().backward()
    for a, p in zip(actual, module.parameters(), strict=True):
        same(a, p.grad)


DDP = """
import sys
import torch
import torch.distributed as dist
import tandem

rank, store, form = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
OPTIONS = {"on_unsupported": "error"}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512) for _ in range(4))
        self.norm = torch.nn.BatchNorm1d(512)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.norm(x)


def five_steps(wrap):
    torch.manual_seed(0)
    model = Model()
    function = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(5):
        torch.manual_seed(10 * step + rank)
        optimizer.zero_grad()
        loss = function(torch.randn(8, 512)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in (*model.parameters(), *model.buffers())]


def parallel(module):
    # Buckets of one layer, so that a compiled DDP module is cut into several graphs.
    return torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1.1)


def compiled(module):
    return torch.compile(module, backend=tandem.backend, options=OPTIONS)


forms = {"around": lambda m: parallel(compiled(m)), "inside": lambda m: compiled(parallel(m))}
expected_losses, expected = five_steps(parallel)
losses, actual = five_steps(forms[form])
torch.testing.assert_close(losses, expected_losses, rtol=1e-4, atol=1e-5)
for a, e in zip(actual, expected, strict=True):
    torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
graphs = tandem.report()["graphs"]
assert graphs and all("eager" not in graph for graph in graphs), graphs
print("equal,", len(graphs), "graphs")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("form", ["around", "inside"])
def test_two_processes_train_one_model(form, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(DDP)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(tandem.__file__))}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store"), form],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]
        assert "equal," in output


def test_a_capture_that_fails_leaves_every_region():
    def in_regions(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.linalg.eig(x @ x)[0].real

    def in_transform(x):
        return torch.func.grad(lambda y: torch.linalg.eigvals(y).real.sum())(x)

    x = torch.eye(3) * 2
    for function in (in_regions, in_transform):
        with pytest.raises(Exception, match="tandem|Tandem"):
            compile_with(function)(x)
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            test_gradients_accumulate_into_given_memory()
        same(compile_with(function, on_unsupported="eager")(x), function(x))
