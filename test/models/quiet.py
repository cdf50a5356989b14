"""Whether a time that is measured now is of what is measured, and not of its neighbours."""

import os
import time

MOST_BUSY = 0.1  # of one processor
SECONDS = 1.0


def busy_processors(seconds=SECONDS, sleep=time.sleep):
    """How many processors worked, on average, while this process slept. Needs /proc/stat."""
    before, _ = _ticks()
    begin = time.monotonic()
    sleep(seconds)
    after, per_second = _ticks()
    return (after - before) / per_second / (time.monotonic() - begin)


def _ticks():
    """Ticks that all processors worked so far (not idle, not waiting for a disk), and ticks a
    second."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, os.sysconf("SC_CLK_TCK")
