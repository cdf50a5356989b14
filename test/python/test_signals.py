"""Signals while a function computes or is compiled: a key press, a timer, a child's end."""

import pytest

from machine import ISAS
from test_process import run_script


@pytest.mark.parametrize("isa", ISAS)
def test_signals_during_library_calls(isa):
    """A signal during oneDNN's f32 product with AVX2 damaged the heap."""
    run_script(
        """
        import signal, time
        import torch, tandem

        def function(x, image):
            return torch.sin(x @ weight), torch.relu(torch.conv2d(image, kernel, padding=1))

        torch.manual_seed(0)
        x, weight = torch.randn(1200, 1200), torch.randn(1200, 1200) / 35
        image, kernel = torch.randn(2, 32, 56, 56), torch.randn(64, 32, 3, 3) / 17
        compiled = torch.compile(function, backend=tandem.backend)
        seen = []
        with torch.no_grad():
            expected = compiled(x, image)
            signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            # Python sees one between two calls at most: on a busy machine a hundred take longer.
            end = time.time() + 3
            while time.time() < end or len(seen) <= 100:
                assert all(map(torch.equal, compiled(x, image), expected))
            signal.setitimer(signal.ITIMER_REAL, 0)
        """,
        TANDEM_ISA=isa,
    )


def test_a_key_press_ends_a_long_call():
    run_script(
        """
        import os, signal, threading, time
        import torch, tandem

        def function(x, written):
            for _ in range(40):
                x = torch.sin(x @ weight)
            written.add_(1)
            return x

        def seconds(call):
            start = time.time()
            call()
            return time.time() - start

        def interrupted(call, usual):
            def press():
                time.sleep(usual / 3)
                pressed.append(time.time())
                os.kill(os.getpid(), signal.SIGINT)

            pressed = []
            threading.Thread(target=press).start()
            try:
                call()
            except KeyboardInterrupt:
                assert time.time() - pressed[0] < 2
                return
            raise AssertionError("not interrupted")

        x, written = torch.randn(1200, 1200), torch.zeros(3)
        weight = torch.randn(1200, 1200) / 35
        compiled = torch.compile(function, backend=tandem.backend)
        with torch.no_grad():
            expected = compiled(x, written)
            usual = seconds(lambda: compiled(x, written))
            interrupted(lambda: compiled(x, written), usual)
            assert written.tolist() == [2, 2, 2] and written._version == 2
            assert torch.equal(compiled(x, written), expected) and written[0] == 3
        leaf = x.clone().requires_grad_()
        loss = compiled(leaf, written).sum()
        usual = seconds(lambda: loss.backward(retain_graph=True))
        leaf.grad = None
        interrupted(lambda: loss.backward(retain_graph=True), usual)
        assert leaf.grad is None
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert torch.equal(gradient, torch.autograd.grad(compiled(leaf, written).sum(), leaf)[0])
        """
    )


def test_a_key_press_ends_compilation():
    # Only while the backend is at work or the program waits: torch's check of guards takes the
    # interrupt of a key press for a guard that does not hold, and Dynamo then reports a bug.
    run_script(
        """
        import os, signal, threading, time
        import torch, tandem

        def function(x, weights):
            for w in weights:
                x = torch.softmax(torch.tanh(x @ w), -1) + x.cos()
            return x

        torch.manual_seed(0)
        x, weights = torch.randn(64, 64), [torch.randn(64, 64) for _ in range(12)]
        compiled, ours, held_back = None, False, False

        def on_press(*_):
            global held_back
            held_back = not ours
            if ours:
                raise KeyboardInterrupt

        def backend(graph, examples):
            global ours
            begun.set()
            ours = True
            try:
                return tandem.backend(graph, examples)
            finally:
                ours = False

        def wait():
            if not held_back:
                time.sleep(60)
            raise KeyboardInterrupt

        def compile_and_press(delay):
            global compiled, begun, ours, held_back
            torch._dynamo.reset()
            begun, pressed, held_back = threading.Event(), [], False
            compiled = torch.compile(function, backend=backend)

            def press():
                begun.wait()
                time.sleep(delay)
                pressed.append(time.time())
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=press)
            thread.start()
            inside = True
            try:
                compiled(x, weights)
                inside, ours = False, True
                wait()
            except KeyboardInterrupt:
                assert time.time() - pressed[0] < 5
            ours = False
            thread.join()
            return inside

        signal.signal(signal.SIGINT, on_press)
        ended = []
        for delay in (0.02, 0.1, 0.3, 0.6, 1.0, 1.5):
            ended.append(compile_and_press(delay))
            with torch.no_grad():
                torch.testing.assert_close(
                    compiled(x, weights), function(x, weights), rtol=1e-3, atol=1e-3
                )
        assert ended[0], ended
        """,
        TANDEM_CACHE_DIR="",
    )
