"""Signals that come while a compiled function computes: a key press, a timer, a child's end."""

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
            end = time.time() + 3
            while time.time() < end:
                assert all(map(torch.equal, compiled(x, image), expected))
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(seen) > 100
        """,
        TANDEM_ISA=isa,
    )
