"""What a step of a model of bench/peaks.py takes at some memory budgets, the first of which the
others are compared with: `budget_times.py GPT-2 default 2700MiB`.

All are in one process and take turns; beside the time by the clock stands the processor time of
both threads, which a busy machine disturbs least. Medians, and the least.
"""

import argparse
import statistics
import time
import warnings

import measure
import model_cases
import peaks
import torch

import tandem


def step_of(model, inputs, budget):
    def loss(**given):
        return model_cases.first_tensor(model(**given)).float().square().mean()

    options = {"on_unsupported": "error", "report": True, "memory_budget": budget}
    function = torch.compile(
        measure.with_own_code(loss), backend=tandem.backend, options=options
    )

    def step():
        model.zero_grad(set_to_none=True)
        begin, begin_of_processor = time.perf_counter(), time.process_time()
        function(**inputs).backward()
        return time.perf_counter() - begin, time.process_time() - begin_of_processor

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a part of its name")
    parser.add_argument("budgets", nargs="+")
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(measure.THREADS)
    model, inputs = peaks.made(next(name for name in peaks.MODELS if chosen.model in name))
    steps = {}
    for budget in chosen.budgets:
        tandem.reset_report()
        steps[budget] = step_of(model, inputs, budget)
        steps[budget]()
        (graph,) = tandem.report()["graphs"]
        measure.progress(f"{budget}: a step holds {graph['memory']['step'] / 2**20:.0f} MiB")
    times = {budget: [] for budget in steps}
    for number in range(chosen.rounds):
        for budget in list(steps)[:: 1 if number % 2 == 0 else -1]:
            times[budget].append(steps[budget]())
            measure.progress(f"  {number} {budget}: {times[budget][-1]}")
    medians = {}
    for budget, each in times.items():
        clock, processor = zip(*each, strict=True)
        medians[budget] = statistics.median(processor)
        share = medians[budget] / medians[chosen.budgets[0]]
        print(
            f"{budget}: {statistics.median(clock):.3f} s ({min(clock):.3f}) by the clock, "
            f"{medians[budget]:.3f} s ({min(processor):.3f}) of processor time, {share:.3f}"
        )


if __name__ == "__main__":
    main()
