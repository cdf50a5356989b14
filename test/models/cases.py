"""What is asked of a model: results, gradients, training steps, dynamic sizes, dropout.

Every case compiles fresh copies with the same weights and gives a Row.
"""

import itertools
import time

import torch
from entry import fresh, loss_of, shaken, shaken_arguments, tensors_of, widened
from judge import Verdict, Wide, judge_by_runs

import tandem

STEPS = 5
LEARNING_RATE = 1e-3


class Unlike(Exception):
    """The model ran, and something is not as it must be."""


def compile_model(model, dynamic=None, **options):
    torch._dynamo.reset()
    tandem.reset_report()
    options = {"on_unsupported": "error", **options}
    return torch.compile(model, backend=tandem.backend, dynamic=dynamic, options=options)


def graph_count():
    return len(tandem.report()["graphs"])


# --- what is compared: tensors by name


def inference(entry, model, arguments, function):
    del entry
    model.eval()
    with torch.no_grad():
        results = tensors_of(function(**arguments))
    return {f"output {i}": tensor for i, tensor in enumerate(results)}


def training(entry, model, arguments, function):
    """Losses and gradients of every phase, then the buffers, which a training step may write."""
    model.train()
    found = {}
    for number, (further, prefix) in enumerate(entry.phases):
        model.zero_grad()
        loss = loss_of(function(**arguments, **further))
        loss.backward()
        found[f"loss {number}"] = loss.detach()
        for name, parameter in model.named_parameters():
            if name.startswith(prefix):
                found[f"grad {name}"] = parameter.grad
    return found | {f"buffer {name}": value for name, value in model.named_buffers()}


def optimizing(entry, model, arguments, function):
    """Losses of some steps of AdamW, and how far every parameter has moved."""
    model.train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizers = [
        torch.optim.AdamW(
            [p for name, p in model.named_parameters() if name.startswith(prefix)],
            lr=LEARNING_RATE,
            eps=1e-4,  # of gradients that are rounding noise, it makes no steps of full length
        )
        for _, prefix in entry.phases
    ]
    found = {}
    for step in range(STEPS):
        for (further, _), optimizer in zip(entry.phases, optimizers, strict=True):
            model.zero_grad()
            loss = loss_of(function(**arguments, **further))
            loss.backward()
            optimizer.step()
            found[f"loss {len(found)} of step {step}"] = loss.detach()
    moved = {f"moved {name}": p.detach() - before[name] for name, p in model.named_parameters()}
    return found | moved


# --- equality


def truth_of(run, entry, base, arguments):
    model = fresh(base, wide=True)
    with Wide():
        return detached(run(entry, model, widened(arguments), model))


def runs_of(run, entry, base, arguments, way=lambda function: function):
    """Of eager: as it is, then with weights and inputs moved by up to one rounding."""
    model = fresh(base)
    yield detached(run(entry, model, arguments, way(model)))
    for seed in itertools.count(1):
        model = shaken(base, seed)
        yield detached(run(entry, model, shaken_arguments(arguments, seed), way(model)))


def verdict_of(entry, run, base, number, actual):
    """Of what Tandem gave for arguments of that number."""
    arguments = entry.arguments(number)
    truth = truth_of(run, entry, base, arguments)
    return judge_by_runs(actual, runs_of(run, entry, base, arguments), truth)


def worst_of(verdicts):
    return max(verdicts, key=lambda verdict: (not verdict.is_equal, verdict.ratio))


def static(entry, run):
    base, arguments = entry.model(), entry.arguments()
    model = fresh(base)
    compiled = compile_model(model)
    started = time.perf_counter()
    actual = run(entry, model, arguments, compiled)
    first = time.perf_counter() - started
    actual = detached(actual)
    count = graph_count()
    started = time.perf_counter()
    run(entry, model, arguments, compiled)
    second = time.perf_counter() - started
    if graph_count() > count:
        raise Unlike(f"compiled again for the same sizes: {graph_count()} graphs, not {count}")
    report = facts_of_report()
    verdict = verdict_of(entry, run, base, 0, actual)
    return verdict, report | {"compile_s": round(first - second, 3)}


def dynamic(entry, run):
    """All sizes through one compile."""
    base = entry.model()
    model = fresh(base)
    compiled = compile_model(model, dynamic=True)
    results, counts = [], []
    for number in range(len(entry.sizes)):
        model.load_state_dict(base.state_dict())
        results.append(detached(run(entry, model, entry.arguments(number), compiled)))
        counts.append(graph_count())
    if counts[-1] > counts[0]:
        raise Unlike(f"compiled again for other sizes: {counts} graphs after each")
    report = facts_of_report()
    pairs = enumerate(results)
    return worst_of([verdict_of(entry, run, base, n, actual) for n, actual in pairs]), report


def detached(results):
    return {name: None if x is None else x.detach().clone() for name, x in results.items()}


def steps(entry):
    base, arguments = entry.model(), entry.arguments()
    model = fresh(base)
    actual = optimizing(entry, model, arguments, compile_model(model))
    report = facts_of_report()
    return verdict_of(entry, optimizing, base, 0, actual), report


# --- dropout

PROBABILITY = 0.3
# By how much of itself the loss moves in a difference, and what may differ relatively: in f64, and
# of models that compute parts in f32 whatever their weights are.
SMOOTH, ROUGH = (1e-7, 1e-4), (1e-5, 1e-2)


class Masked:
    """The loss of a model in f64 under masks that a seed repeats."""

    def __init__(self, entry, budget):
        self._entry = entry
        self.model = fresh(entry.model(PROBABILITY), wide=True).train()
        self._arguments = widened(entry.arguments())
        self._compiled = compile_model(self.model, memory_budget=budget)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]

    def loss(self, seed):
        torch.manual_seed(seed)
        return loss_of(self._compiled(**self._arguments))

    def gradients(self, seed):
        grads = torch.autograd.grad(self.loss(seed), self.parameters, allow_unused=True)
        pairs = zip(grads, self.parameters, strict=True)
        return [torch.zeros_like(p) if grad is None else grad for grad, p in pairs]

    def slope(self, seed, direction, length):
        """Of the loss along a direction, by differences of that length."""
        losses = []
        for move in (length, -2 * length, length):
            torch._foreach_add_([p.data for p in self.parameters], direction, alpha=move)
            losses.append(self.loss(seed).item())
        return (losses[0] - losses[1]) / (2 * length)


def dot(left, right):
    return sum((a * b).sum().item() for a, b in zip(left, right, strict=True))


def unit(direction):
    size = dot(direction, direction) ** 0.5
    return [d / size for d in direction]


MASK_BUDGETS = ("default", "as_read", "min_cut")


def dropout(entry):
    """Forward, backward and what is computed again see the same masks: the gradient is that of the
    loss that was computed, by differences along two directions, whatever forward saves."""
    gradients, ratios = [], []
    for budget in MASK_BUDGETS:
        masked = Masked(entry, budget)
        gradients.append(masked.gradients(5))
        is_rough = any("f32" in graph["text"] for graph in tandem.report()["graphs"])
        move, tolerance = ROUGH if is_rough else SMOOTH
        ratios += [ratio / tolerance for ratio in slopes(masked, gradients[-1], move, tolerance)]
    for other in gradients[1:]:
        difference = [a - b for a, b in zip(gradients[0], other, strict=True)]
        apart = (dot(difference, difference) / dot(gradients[0], gradients[0])) ** 0.5
        ratios.append(apart / (1e-5 if is_rough else 1e-10))
    names = [f"slope {i} {b}" for b in MASK_BUDGETS for i in (0, 1)]
    names += [f"{b} beside default" for b in MASK_BUDGETS[1:]]
    verdict = Verdict()
    for name, ratio in zip(names, ratios, strict=True):
        verdict.add(name, ratio, f"{ratio:.1e} times the tolerance apart")
    return verdict, {}


def slopes(masked, gradient, move, tolerance):
    """Relative errors along the gradient and along a random direction. Masks of other seeds must
    give other slopes, else this shows nothing."""
    steepest = unit(gradient)
    size = dot(gradient, steepest)
    length = move * abs(masked.loss(5).item()) / size
    others = (masked.slope(seed, steepest, length) for seed in range(6, 16))
    if all(abs(other - size) < 2 * tolerance * size for other in others):
        raise Unlike("dropout has no effect on the gradient")
    torch.manual_seed(7)
    sideways = unit([torch.randn_like(g) for g in gradient])
    for direction in (steepest, sideways):
        slope = masked.slope(5, direction, length)
        yield abs(slope - dot(gradient, direction)) / size


CASES = {
    "infer static": lambda entry: static(entry, inference),
    "infer dynamic": lambda entry: dynamic(entry, inference),
    "train static": lambda entry: static(entry, training),
    "train dynamic": lambda entry: dynamic(entry, training),
    "steps": steps,
    "dropout": dropout,
}


def cases_of(entry):
    left_out = [] if entry.has_dropout else ["dropout"]
    left_out += [] if entry.is_dynamic else ["infer dynamic", "train dynamic"]
    return [name for name in CASES if name not in left_out]


# --- rows


def refusal_of(error):
    """What Tandem said, where it refused the model."""
    inner = getattr(error, "inner_exception", error)
    return str(inner) if isinstance(inner, tandem.UserError) else None


def run_case(entry, name, cases=CASES):
    """A row of the table."""
    started = time.perf_counter()
    facts, verdict = {}, Verdict()
    try:
        verdict, facts = cases[name](entry)
        status, reason = ("equal", "") if verdict.is_equal else ("unequal", verdict.reason)
        facts["eager_runs"] = verdict.runs
    except Unlike as error:
        status, reason = "unequal", str(error)
    except Exception as error:  # noqa: BLE001: this is what is looked for
        refusal = refusal_of(error)
        status = "crash" if refusal is None else "unsupported"
        reason = refusal or f"{type(error).__name__}: {error}"
    row = dict(model=entry.name, case=name, status=status, reason=" ".join(reason.split())[:500])
    row |= facts_of_report() | facts
    if status == "equal" and (row["fallbacks"] or not row["graphs"]):
        reason = f"ran in torch: {row['fallbacks']} nodes or calls" if row["graphs"] else "no graph"
        row |= dict(status="unsupported", reason=reason)
    row |= dict(ratio=verdict.ratio, worst=verdict.where)
    row["seconds"] = round(time.perf_counter() - started, 2)
    return row


def facts_of_report():
    graphs = tandem.report()["graphs"]
    stages = {}
    for graph in graphs:
        for stage, value in graph.get("milliseconds", {}).items():
            stages[stage] = round(stages.get(stage, 0) + value, 3)
    fallbacks = sum(sum(g["fallbacks"].values()) + g.get("calls in torch", 0) for g in graphs)
    return dict(graphs=len(graphs), fallbacks=fallbacks, stages_ms=stages)
