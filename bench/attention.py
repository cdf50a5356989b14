"""Attention beside eager's kernel, forward and backward apart, contenders in turn, of lengths that
are known and of lengths that nobody knows.

`attention.py [WORD ...]` prints a line for each case whose name has all words, as in
`attention.py bf16 "2048 rows" causal`."""

import sys
import time

import measure
import tandem
import torch

HEADS_AND_ROWS = ((12, 512), (12, 1024), (12, 2048), (4, 4096), (4, 8192))
WIDTH = 64
TURNS = 9


def attention(is_causal):
    def call(query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal
        )

    return measure.with_own_code(call)


def timed(call, tensors, tangent):
    """Milliseconds of forward and of backward."""
    time.sleep(measure.REST_S)
    start = measure.clock()
    result = call(*tensors)
    middle = measure.clock()
    result.backward(tangent)
    end = measure.clock()
    for tensor in tensors:
        tensor.grad = None
    return (middle - start) * 1e3, (end - middle) * 1e3


def turns(contenders, tensors, tangent):
    """The spreads of forward and of backward, by contender."""
    times = {name: [] for name in contenders}
    for number in range(TURNS + 2):
        for name, call in contenders.items():
            taken = timed(call, tensors, tangent)
            if number >= 2:  # the first ones compile, and fetch memory
                times[name].append(taken)
    return {
        name: [measure.Spread.of(part) for part in zip(*taken, strict=True)]
        for name, taken in times.items()
    }


def columns(found):
    for part, title in enumerate(("forward", "backward")):
        eager, tandems = found["eager"][part], found["tandem"][part]
        yield (
            f"{title} {eager.median:7.1f} {tandems.median:7.1f} ({tandems.low:.1f}–"
            f"{tandems.high:.1f}) {eager.median / tandems.median:5.2f}"
        )


def cases():
    for dtype in (torch.float32, torch.bfloat16):
        for sizes in ("known", "unknown"):
            for heads, rows in HEADS_AND_ROWS:
                for mask in ("causal", "whole"):
                    kind = "f32" if dtype == torch.float32 else "bf16"
                    yield f"{kind}, {heads} heads, {rows} rows, {mask}, {sizes}"


def measured(name):
    kind, heads, rows, mask, sizes = name.split(", ")
    shape = (1, int(heads.split()[0]), int(rows.split()[0]), WIDTH)
    dtype = torch.float32 if kind == "f32" else torch.bfloat16
    torch._dynamo.reset()
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=dtype).requires_grad_() for _ in range(3)]
    if sizes == "unknown":
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 2)
    call = attention(mask == "causal")
    options = {"on_unsupported": "error"}
    compiled = torch.compile(call, backend=tandem.backend, options=options)
    contenders = {"eager": call, "tandem": compiled}
    return turns(contenders, tensors, torch.randn(shape, dtype=dtype))


def main():
    measure.pin()
    torch.set_num_threads(measure.THREADS)
    print("milliseconds: eager, tandem (quartiles), times as fast")
    for name in cases():
        if all(word in name for word in sys.argv[1:]):
            print(f"{name:42s}", *columns(measured(name)), sep="  ", flush=True)


if __name__ == "__main__":
    main()
