"""A peer of bench_train_gpt: the same lines of JSON. `gpt_worker.py eager|inductor|xla PARAMETERS
DROPOUT`: first what the first steps took and their losses, then as many steps as each line of
stdin says.
"""

import json
import resource
import sys
import time

import gpt_data
import measure


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(step):
    start = time.perf_counter()
    loss = step()
    return loss, (time.perf_counter() - start) * 1e3


def make_step(peer, config, arrays):
    if peer == "xla":
        import gpt_jax as framework
    else:
        import gpt_torch as framework
        import torch

        torch.set_num_threads(measure.THREADS)
    return framework.training_step(config, arrays, peer == "inductor")


def main():
    peer, path, dropout = sys.argv[1:4]
    config = gpt_data.Config(dropout=float(dropout))
    step = make_step(peer, config, gpt_data.parameters(path))
    base = peak_mib()
    losses, times = zip(*(timed(step) for _ in range(5)))
    print(
        json.dumps(
            {
                "cold_s": (times[0] - times[1]) / 1e3,
                "first_ms": times[0],
                "second_ms": times[1],
                "losses": losses,
                "base_MiB": base,
            }
        ),
        flush=True,
    )
    for line in sys.stdin:
        times = [timed(step)[1] for _ in range(int(line))]
        print(json.dumps({"steps_ms": times, "peak_MiB": peak_mib()}), flush=True)


if __name__ == "__main__":
    main()
