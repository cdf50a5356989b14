"""What autograd recorded of the operators that one call of a compiled graph ran in torch. The
call's backward goes through that, as eager's does: none of them runs a second time.

It lives as long as the history of the call does: of each such operator, copies of what it read and
what it gave, and whatever it saved. Where hooks of saved tensors are set (a checkpoint), nothing is
kept behind their back, and the operator runs again for its gradient."""

import contextlib
import threading

import torch

_calls = threading.local()


class Records:
    """Of one call. `hosts`: the nodes whose gradients may be asked for."""

    def __init__(self, hosts):
        self._hosts = frozenset(hosts)
        self._known = {}  # node -> Recorded

    def of(self, host, record):
        """Made by `record()` at the first time; None for other nodes."""
        if host not in self._known and host in self._hosts:
            self._known[host] = record()
        return self.find(host)

    def find(self, host):
        return self._known.get(host)


class Recorded:
    """`leaves`: stand for the floats that it read; `values`: what it gave."""

    def __init__(self, leaves, values):
        self.leaves = leaves
        self.values = values

    def outputs(self):
        return [each for each in self.values if each is not None and each.is_floating_point()]


def records_for(hosts):
    """For a call that begins: its own, or those of the call whose gradient it is part of."""
    if not hosts:
        return current()
    is_watched = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    return None if is_watched else Records(hosts)


def current():
    return getattr(_calls, "records", None)


def keeps():
    """Whether another backward may follow that goes through the current ones."""
    return _calls.keeps


@contextlib.contextmanager
def using(records, keeps=True):
    """Nodes that run here find these."""
    before = current(), getattr(_calls, "keeps", True)
    _calls.records, _calls.keeps = records, keeps
    try:
        yield
    finally:
        _calls.records, _calls.keeps = before
