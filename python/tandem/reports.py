"""What was compiled: `tandem.report()`."""

import collections
import dataclasses
import weakref

_reports = []


class GraphReport:
    """One compiled graph. It keeps no tensor and no program alive: what grows with calls is read
    while the callable lives, and stays as it was read last."""

    def __init__(self, compiled, times, dialect):
        encoded, native = compiled.encoded, compiled.native
        self._compiled = weakref.ref(compiled)
        self._native = weakref.ref(native)
        self._facts = {
            "training": native.has_backward,
            "dialect": dialect,
            "ops": dict(sorted(encoded.ops.items())),
            "fallbacks": dict(collections.Counter(host.name for host in encoded.host)),
            "milliseconds": {name: round(value, 3) for name, value in times.items()},
            "text": encoded.text,
            "kernels": native.forward_report + native.backward_report,
        }
        self._read()

    def _read(self):
        compiled, native = self._compiled(), self._native()
        if native is not None:
            self._facts["forward"] = native.forward_counts
            self._facts["backward"] = native.backward_counts
        if compiled is not None:
            self._facts["calls in torch"] = compiled.eager_calls

    def as_dict(self):
        self._read()
        return dict(self._facts)


@dataclasses.dataclass
class EagerReport:
    """A graph that torch runs as a whole."""

    reason: str

    def as_dict(self):
        return {"eager": self.reason, "fallbacks": {"whole graph": 1}}


class Report(dict):
    """A dict that prints as a page."""

    def __str__(self):
        lines = []
        for number, graph in enumerate(self["graphs"]):
            if "eager" in graph:
                lines.append(f"graph {number}: runs in torch: {graph['eager']}")
                continue
            kind = "forward and backward" if graph["training"] else "inference"
            lines.append(f"graph {number}: {kind}, {sum(graph['ops'].values())} ops")
            for half in ("forward", "backward"):
                counts = graph[half]
                if counts:
                    lines.append(
                        f"  {half}: {counts['launches']} launches of {counts['kernels']} kernels "
                        f"run {counts['kernel_calls']} times, "
                        f"{counts['library_calls']} library calls, "
                        f"{counts['arena_bytes'] / 2**20:.1f} MiB of temporaries"
                    )
            if graph["calls in torch"]:
                lines.append(
                    f"  {graph['calls in torch']} calls ran in torch: an input that is written "
                    "overlaps another one, or is a view with a history"
                )
            for name, count in graph["fallbacks"].items():
                lines.append(f"  runs in torch: {name} ({count} times)")
            times = graph["milliseconds"].items()
            times = ", ".join(f"{name} {value:.1f}" for name, value in times)
            lines.append(f"  milliseconds: {times}")
        return "\n".join(lines) or "nothing was compiled"


def add(report):
    _reports.append(report)


def reset():
    _reports.clear()


def report():
    """Every graph compiled in this process since the start or `tandem.reset_report()`, in order."""
    return Report(graphs=[each.as_dict() for each in _reports])
