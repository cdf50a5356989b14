"""What was compiled: `tandem.report()`."""

import collections
import dataclasses

_reports = []


@dataclasses.dataclass
class GraphReport:
    encoded: object
    native: object
    times: dict
    dialect: str
    training: bool

    def as_dict(self):
        forward, backward = self.native.forward_counts, self.native.backward_counts
        return {
            "training": self.training,
            "dialect": self.dialect,
            "ops": dict(sorted(self.encoded.ops.items())),
            "forward": forward,
            "backward": backward,
            "fallbacks": dict(collections.Counter(host.name for host in self.encoded.host)),
            "milliseconds": {name: round(value, 3) for name, value in self.times.items()},
            "text": self.encoded.text,
        }


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
