"""Many Python threads at once over several compiled models, while one model's weights change."""

import threading
import time

import torch

import tandem
from compiled import ERROR, compile_with

SECONDS = 2.0
LEAST = 3  # rounds of each thread, however busy the machine is


class Frozen(torch.nn.Module):
    """Reads its weight twice, once through setup."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)

    def forward(self, x):
        return x @ self.weight + (x * 2) @ (self.weight * self.weight).t()


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))


def is_close(actual, expected):
    return torch.allclose(actual, expected, rtol=1e-4, atol=1e-4)


class Crew:
    """Threads that repeat their work until the time is over and each had its turns, or one of them
    failed."""

    def __init__(self):
        self.failures = []
        self.rounds = {}
        self._end = None
        self._threads = []

    def add(self, name, work):
        self.rounds[name] = 0
        self._threads.append(threading.Thread(target=self._repeat, args=(name, work)))

    def _repeat(self, name, work):
        try:
            while not self._is_over() and not self.failures:
                work()
                self.rounds[name] += 1
        except BaseException as error:
            self.failures.append(f"{name}: {error!r}")

    def _is_over(self):
        left = self._end - time.monotonic()
        return left < 0 and (min(self.rounds.values()) >= LEAST or left < -120)

    def run(self):
        self._end = time.monotonic() + SECONDS
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        assert not self.failures, self.failures[0]
        assert min(self.rounds.values()) >= LEAST, f"a thread starves: {self.rounds}"


def test_ten_threads_over_three_models_while_one_of_them_changes():
    """Four threads call a frozen model, three another one, two train a third, and the tenth gives
    the frozen one other weights: each result is eager's for one of the versions, never a mix."""
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    versions = [torch.randn(16, 16) for _ in range(3)]
    frozen, plain, trained = Frozen(versions[0]), network(), network()
    with torch.no_grad():
        of_versions = [Frozen(version)(x) for version in versions]
        of_plain = plain(x)
    torch._dynamo.reset()
    parameters = list(trained.parameters())
    gradients = torch.autograd.grad(trained(x).square().sum(), parameters)
    calls = [
        torch.compile(module, backend=tandem.backend, options=ERROR | {"freeze": module is frozen})
        for module in (frozen, plain, trained)
    ]

    def call_frozen():
        with torch.no_grad():
            actual = calls[0](x)
        assert any(is_close(actual, each) for each in of_versions), "a mix of versions"

    def call_plain():
        with torch.no_grad():
            assert is_close(calls[1](x), of_plain)

    def train():
        actual = torch.autograd.grad(calls[2](x).square().sum(), parameters)
        assert all(is_close(a, b) for a, b in zip(actual, gradients, strict=True))

    def write():
        for version in versions:
            frozen.weight.data = version
            time.sleep(0.001)

    for work in (call_frozen, call_plain, train):
        work()  # compiles
    crew = Crew()
    for number in range(4):
        crew.add(f"frozen {number}", call_frozen)
    for number in range(3):
        crew.add(f"plain {number}", call_plain)
    for number in range(2):
        crew.add(f"training {number}", train)
    crew.add("writer", write)
    crew.run()
    for version, expected in zip(versions, of_versions, strict=True):
        frozen.weight.data = version
        with torch.no_grad():
            assert is_close(calls[0](x), expected), "nothing stale is left"


def test_weights_written_in_place_between_calls():
    """As any program must, it keeps writes and calls of this one model apart."""
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    versions = [torch.randn(16, 16) for _ in range(3)]
    frozen = Frozen(versions[0])
    with torch.no_grad():
        expected = [Frozen(version)(x) for version in versions]
    call = compile_with(frozen, freeze=True)
    lock, current = threading.Lock(), [0]

    def check():
        with lock, torch.no_grad():
            assert is_close(call(x), expected[current[0]])

    def write():
        with lock, torch.no_grad():
            current[0] = (current[0] + 1) % 3
            frozen.weight.copy_(versions[current[0]])

    check()
    crew = Crew()
    for number in range(4):
        crew.add(f"call {number}", check)
    crew.add("writer", write)
    crew.run()
