"""T103, T104, T113, T117, T120, T126, T128, T130: what becomes of saved values, and gradients where
backward computes again what it needs: eager's, with the same masks, whatever the budget."""

import collections
import re

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
import torch.utils.checkpoint as checkpointing
from torch.distributed import _functional_collectives as collectives
from torch.utils.flop_counter import FlopCounterMode

import cuts
import tandem

BUDGETS = ["as_read", "default", "min_cut", 1, 0.5, 0.1, 0.005, 0]


def cut_of_report():
    (graph,) = tandem.report()["graphs"]
    return cuts.Cut(graph["cut"])


def gradients_of(function, inputs):
    leaves = [each for each in inputs if each.requires_grad]
    out = function(*inputs)
    tangent = torch.linspace(0.5, 2, out.numel()).view(out.shape)
    return out.detach(), torch.autograd.grad(out, leaves, tangent)


def same(ours, eager, tolerance=None):
    named = {"rtol": tolerance, "atol": tolerance} if tolerance else {}
    for one, other in zip(ours, eager, strict=True):
        torch.testing.assert_close(one, other, **named)


LAYERS, WIDTH = 8, 128


def layers(x, ws):
    for w in ws:
        x = torch.tanh(x @ w)
    return x


def stack():
    torch.manual_seed(2)
    x = torch.randn(WIDTH, WIDTH)
    return x, [torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / 12) for _ in range(LAYERS)]


def peak_of_backward(compiled, retain):
    """Bytes beyond what is held when backward begins, and those that are held behind it."""
    x, ws = stack()
    loss = compiled(x, ws).sum()
    held = tandem.memory_use()["live_bytes"]
    tandem.reset_peak_memory()
    loss.backward(retain_graph=retain)
    use = tandem.memory_use()
    return use["peak_live_bytes"] - held, use["live_bytes"] - held


def test_T103_saved_values_are_freed_at_their_last_reader(aot):
    """Backward has no list of what it may overwrite: with each layer that is done, what it had
    saved makes room for the gradients of the next one."""
    compiled = aot.compile(layers, memory_budget="as_read")
    for retain in (True, False):
        peak_of_backward(compiled, retain)
    matrix = WIDTH * WIDTH * 4
    kept, kept_behind = peak_of_backward(compiled, True)
    freed, freed_behind = peak_of_backward(compiled, False)
    assert kept >= LAYERS * matrix, "gradients of all weights come on top of what stays"
    assert freed <= kept - (LAYERS - 2) * matrix
    assert kept_behind - freed_behind >= (LAYERS - 1) * matrix


def test_T104_what_the_user_holds_stays(aot):
    """A result that is saved as well: backward reads it, and frees nothing of it."""
    compiled = aot.compile(lambda x: torch.exp(x), memory_budget="as_read")
    x = torch.randn(64, 64, requires_grad=True)
    before = tandem.memory_use()["live_bytes"]
    y = compiled(x)
    copy = y.detach().clone()
    y.sum().backward()
    torch.testing.assert_close(y.detach(), copy, rtol=0, atol=0)
    torch.testing.assert_close(x.grad, copy)
    assert tandem.memory_use()["live_bytes"] - before >= 64 * 64 * 4
    del y
    x.grad = None
    assert tandem.memory_use()["live_bytes"] == before


def test_T104_inputs_stay(aot):
    compiled = aot.compile(lambda x, w: x @ w, memory_budget="as_read")
    x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    copies = [each.detach().clone() for each in (x, w)]
    for _ in range(2):
        compiled(x, w).sum().backward()
    same([x.detach(), w.detach()], copies)


def masked(a):
    b = a[0].clone()
    return b.masked_fill_(torch.ones_like(b, dtype=torch.bool), 0) + a.sum(0)


OF_TEXTS = {  # what test_partition.py cuts as texts
    "layer norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), [(4, 6), (6,), (6,)]),
    "rows": (lambda x: x.sum(1), [(4, 6)]),
    "parts": (lambda a, b, c: torch.cat([a, b, c]).sum(1), [(2, 3), (4, 3), (5, 3)]),
    "both": (lambda a, w, b: torch.sin(a @ w).sum() * b.sum(0), [(4, 3), (3, 3), (5, 6)]),
    "chain": (lambda x: x.cos().cos().cos(), [(3,)]),
    "sum of four": (lambda a, b, c, d: (a + b + c + d).cos().cos(), [(3,)] * 4),
    "cube": (lambda x: x * x * x, [(3,)]),
    "masked": (masked, [(4, 6)]),
}


@pytest.mark.parametrize("budget", ["as_read", "min_cut", 0])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OF_TEXTS)
def test_T113_programs_whose_cuts_are_counted(aot, name, dynamic, budget):
    f, shapes = OF_TEXTS[name]
    aot.check(f, lambda t: [t.leaf(*each) for each in shapes], dynamic=dynamic,
              options={"memory_budget": budget})


@pytest.mark.parametrize("budget", BUDGETS)
def test_T113_gradients_are_the_same(aot, budget):
    def f(a, b, w):
        return torch.sin(torch.sin(a)) + b + torch.sin(torch.tanh(a @ w) * b).sum(0)

    torch.manual_seed(1)
    inputs = [torch.randn(8, 8, requires_grad=True) for _ in range(3)]
    ours = gradients_of(aot.compile(f, memory_budget=budget, report=True), inputs)
    eager = gradients_of(f, inputs)
    same([ours[0], *ours[1]], [eager[0], *eager[1]])
    assert bool(cut_of_report().again) or budget == "as_read"


@pytest.fixture
def alone():
    """A group of one process: its collectives run, and nothing else has to."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


def gathered(group):
    def f(x, w):
        rows = collectives.all_gather_single_autograd(torch.tanh(x @ w), 0, group)
        return torch.sin(rows * rows)

    return f


def collectives_run(function, inputs):
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        found = gradients_of(function, inputs)
    counts = collections.Counter(event.name for event in profile.events())
    return found, counts["gloo:all_gather"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("budget", [1, 0])
def test_T117_the_cut_keeps_what_a_collective_gives(alone, budget):
    """It is an operator that runs in torch: never computed again by the partition."""
    tandem.reset_report()
    torch._dynamo.reset()
    options = {"on_unsupported": "eager", "memory_budget": budget, "report": True}
    f = gathered(alone)
    compiled = torch.compile(f, backend=tandem.backend, options=options)
    inputs = [torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)]
    ours, eager = gradients_of(compiled, inputs), gradients_of(f, inputs)
    same([ours[0], *ours[1]], [eager[0], *eager[1]])
    cut = cut_of_report()
    assert [each.op for each in cut.saved].count("tandem.host") == 2
    assert "tandem.host" not in [each.op for each in cut.again]


@pytest.mark.filterwarnings("ignore")
def test_T117_a_collective_runs_once(aot, alone):
    f = gathered(alone)
    compiled = aot.compile(f, memory_budget=0)
    inputs = [torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)]
    compiled(*inputs)
    assert collectives_run(f, inputs)[1] == 1
    assert collectives_run(compiled, inputs)[1] == 1


def dropped(x, w):
    """Its mask can be read off its result: eager's zeros of tanh are none."""
    return F.dropout(torch.tanh(x @ w) + 3, 0.4, True)


def gradient_under_mask(x, w, y, tangent):
    """What eager's gradient would be under the mask of this result."""
    twin = w.detach().clone().requires_grad_()
    plain = torch.tanh(x @ twin) + 3
    scale = (y != 0).float() / 0.6
    torch.testing.assert_close(y, (plain * scale).detach(), rtol=1e-4, atol=1e-4)
    return torch.autograd.grad(plain * scale, twin, tangent)[0]


def test_T120_a_mask_is_drawn_again_as_it_was(aot):
    """Two forwards of a checkpointed region, then their two backwards."""

    def f(x, w):
        return checkpointing.checkpoint(dropped, x, w, use_reentrant=False)

    compiled = aot.compile(f, report=True)
    x, w = torch.randn(16, 16), torch.randn(16, 16, requires_grad=True)
    results = [compiled(x, w) for _ in range(2)]
    assert not torch.equal(results[0] == 0, results[1] == 0), "each call has its own"
    assert "tandem.host" not in [each.op for each in cut_of_report().again]
    assert [each for each in cut_of_report().again if "random" in each.op or "rand" in each.op]
    for y in results:
        tangent = torch.randn(16, 16)
        (ours,) = torch.autograd.grad(y, w, tangent)
        torch.testing.assert_close(ours, gradient_under_mask(x, w, y.detach(), tangent))


def test_T120_sizes_stay_last_beside_a_seed():
    text = """graph @f(%x: f32[s0, 8] {input grad}, %b: f32[s1, 8] {input grad}) \
where s0 in [2, 99], s1 in [2, 99] {
  %0 = aten.dropout(%x, 0.4, true)
  %1 = aten.exp(%0)
  %2 = aten.sum.dim_IntList(%b, [0])
  return %1, %2
}
"""
    for budget in ("as_read", "min_cut", "0"):
        forward, backward = cuts.halves(text, budget)
        kinds = [each.split()[0] for each in forward.outputs]
        assert kinds[-1] == "saved_size" and kinds.count("saved_size") == 1
        assert re.match(r"%s1: i64", backward.inputs[0])


def flops_of(function, inputs):
    """Of products, forward and backward, in eager."""
    with FlopCounterMode(display=False) as counter:
        gradients_of(function, inputs)
    return counter.get_total_flops()


def test_T126_the_users_own_regions(aot):
    """Neither a budget that allows next to nothing nor one that allows all changes anything of two
    checkpointed regions: saved is what the second one starts from, and as much work is done again
    as in eager."""

    def region(x, w, v):
        return torch.cos(torch.sin(x @ w) @ v)

    def f(x, w, v):
        for _ in range(2):
            x = checkpointing.checkpoint(region, x, w, v, use_reentrant=False)
        return x

    def without_regions(x, w, v):
        return region(region(x, w, v), w, v)

    torch.manual_seed(3)
    inputs = [torch.randn(64, 64) / 8] + [torch.nn.Parameter(torch.randn(64, 64) / 8)
                                          for _ in range(2)]
    seen = set()
    for budget in ("default", 1, 0.5, 0.01, 0, "min_time", "1GiB"):
        compiled = aot.compile(f, memory_budget=budget, report=True)
        ours, eager = gradients_of(compiled, inputs), gradients_of(f, inputs)
        same([ours[0], *ours[1]], [eager[0], *eager[1]])
        cut = cut_of_report()
        seen.add((cut.made_bytes(), cut.flops))
    assert seen == {(64 * 64 * 4, flops_of(f, inputs) - flops_of(without_regions, inputs))}


@torch.library.custom_op("tandem_conformance::cubed", mutates_args=())
def cubed(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


@cubed.register_fake
def _(x):
    return torch.empty_like(x)


def keep_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def gradient_of_cube(ctx, gradient):
    (x,) = ctx.saved_tensors
    return 3 * x * x * gradient


cubed.register_autograd(gradient_of_cube, setup_context=keep_input)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("budget", [0, 0.1, 0.25, 0.5, 0.75, 1])
def test_T128_an_operator_of_the_users(aot, budget):
    def f(x, w):
        for _ in range(3):
            x = torch.sin(cubed(torch.tanh(x @ w)))
        return x

    torch.manual_seed(5)
    inputs = [torch.randn(16, 16), torch.randn(16, 16, requires_grad=True)]
    compiled = aot.compile(f, memory_budget=budget, report=True)
    ours, eager = gradients_of(compiled, inputs), gradients_of(f, inputs)
    same([ours[0], *ours[1]], [eager[0], *eager[1]], 1e-5)
    assert "tandem.host" not in [each.op for each in cut_of_report().again]


@pytest.mark.parametrize("budget", [0, 0.005, 0.5, 1])
def test_T130_dropout_under_a_budget(aot, budget):
    """The gradient is that under the mask of the result: drawn again it is the same mask."""
    compiled = aot.compile(dropped, memory_budget=budget, report=True)
    x, w = torch.randn(32, 32), torch.randn(32, 32, requires_grad=True)
    for _ in range(3):
        y, tangent = compiled(x, w), torch.randn(32, 32)
        (ours,) = torch.autograd.grad(y, w, tangent)
        torch.testing.assert_close(ours, gradient_under_mask(x, w, y.detach(), tangent))
        assert 0.25 < (y == 0).float().mean() < 0.55
