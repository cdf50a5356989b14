"""What was compiled: `tandem.report()`."""

import collections
import dataclasses
import os
import threading
import weakref

from tandem._tandem import memory_use, step_page
from tandem.host import HostControl, HostOp
from tandem.outside import is_outside

_count = collections.Counter
# Why a call of a compiled graph runs in torch.
ODD_CALL = (
    "an input that is written overlaps another one of another element size, or with another "
    "history; or an input begins at another place of its memory than results that are views of it "
    "were compiled for"
)


class GraphReport:
    """One compiled graph. It keeps no tensor and no program alive: what grows with calls is read
    while the callable lives, and stays as it was read last."""

    def __init__(self, compiled, times, captured, freeze):
        encoded, native = compiled.encoded, compiled.native
        controls = [host.node.target for host in encoded.host if isinstance(host, HostControl)]
        self._bodies = [body.report for control in controls for body in control.bodies]
        hosts = dict.fromkeys(getattr(host, "of", host) for host in encoded.host)
        operators = [host for host in hosts if isinstance(host, HostOp)]
        self.fallbacks = _count(host.name for host in operators)
        # What Tandem does not have.
        self.missing = _count(host.name for host in operators if not is_outside(host.node))
        for body in self._bodies:
            self.fallbacks.update(body.fallbacks)
            self.missing.update(body.missing)
        self._compiled = weakref.ref(compiled)
        self._native = weakref.ref(native)
        self._steps = []
        self.inlined = ""  # why regions that could be compiled once are not
        self._facts = {
            "training": native.has_backward,
            "dialect": captured.dialect,
            "weights of inference mode": len(captured.unwatched) if freeze else 0,
            "ops": dict(sorted(encoded.ops.items())),
            "fallbacks": dict(self.fallbacks),
            "control flow": dict(
                _count(control.kind for control in controls) + _count(encoded.controls)
            ),
            "control flow in Python": dict(_count(control.kind for control in controls)),
            "milliseconds": {name: round(value, 3) for name, value in times.items()},
            "from cache": native.is_from_cache,
            "cache": native.cache_state,
            "quantized products": native.quantized_products,
            "text": encoded.text,
            "kernels": native.forward_report + native.backward_report,
            "cut": native.cut,
        }
        self._read()

    def _read(self):
        compiled, native = self._compiled(), self._native()
        if native is not None:
            self._facts["forward"] = native.forward_counts
            self._facts["backward"] = native.backward_counts
        if compiled is not None:
            self._facts["calls in torch"] = compiled.eager_calls
            self._facts["verified"] = compiled.verified
            self._facts["frozen"] = compiled.frozen
            self._facts["shared memory"] = dict(compiled.shared_memory)

    def as_dict(self):
        self._read()
        native = self._native()
        if native is not None and "memory" not in self._facts:  # lays the programs out
            self._facts["memory"] = native.memory
        bodies = [body.as_dict() for body in self._bodies]
        return self._facts | {"bodies": bodies, "regions inline": self.inlined}

    def steps(self):
        """What a page tells of a training step, as long as there is somebody to call it."""
        native = self._native()
        if native is not None and native.has_backward and native.cut:
            self._steps = [native.step_report()]
        return self._steps


_MEMORY = ("live_bytes", "cached_bytes", "peak_live_bytes")


@dataclasses.dataclass
class EagerReport:
    """A graph that torch runs as a whole."""

    reason: str

    def as_dict(self):
        return {"eager": self.reason, "fallbacks": {"whole graph": 1}}

    def steps(self):
        return []


class Report(dict):
    """A dict that prints as a page."""

    steps = ()

    def save(self, path):
        """An HTML file about the training steps of graphs compiled with the option `report`: what
        is saved, what is computed again and why, memory over time as planned and as measured in the
        last step, a picture of the cut. It needs no other file and no network."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(step_page(list(self.steps)))

    def __str__(self):
        older = self["older"]
        lines = [f"{older['graphs']} older graphs"] if older["graphs"] else []
        lines += [f"  runs in torch: {name}" for name in older["fallbacks"]]
        for number, graph in enumerate(self["graphs"], older["graphs"]):
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
            if graph["training"] and graph.get("memory"):
                step, saved, arguments = (
                    graph["memory"][name] / 2**20 for name in ("step", "saved", "arguments")
                )
                lines.append(
                    f"  a step holds {step:.1f} MiB at most: {arguments:.1f} of arguments; "
                    f"{saved:.1f} are saved"
                )
            if graph["regions inline"]:
                lines.append(f"  regions run inline: {graph['regions inline']}")
            if graph["verified"]:
                lines.append(f"  verified: {graph['verified']}")
            if graph["calls in torch"]:
                lines.append(
                    f"  {graph['calls in torch']} calls ran in torch: {ODD_CALL}"
                )
            if any(graph["shared memory"].values()):
                counts = graph["shared memory"]
                lines.append(
                    f"  inputs that share memory: {counts['compiled']} programs, of which "
                    f"{counts['dropped']} were dropped"
                )
            for name, count in graph["control flow"].items():
                lines.append(f"  control flow: {name} ({count} times)")
            for name, count in graph["fallbacks"].items():
                lines.append(f"  runs in torch: {name} ({count} times)")
            lines += _product_lines(graph.get("quantized products", []))
            if graph.get("frozen"):
                counts = graph["frozen"]
                lines.append(
                    f"  frozen: {counts['sets']} sets of weights, {counts['bytes'] / 2**20:.1f} "
                    f"MiB beside them, bound {counts['bindings']} times"
                )
            if graph.get("weights of inference mode"):
                lines.append(
                    f"  not frozen: {graph['weights of inference mode']} weights made in inference "
                    "mode, which do not count writes"
                )
            times = graph["milliseconds"].items()
            times = ", ".join(f"{name} {value:.1f}" for name, value in times)
            source = " (from the cache of an earlier process)" if graph.get("from cache") else ""
            lines.append(f"  milliseconds: {times}{source}")
            if ":" in graph.get("cache", ""):
                lines.append(f"  cache: {graph['cache']}")
        if not lines:
            return "nothing was compiled"
        live, cached, peak = (self["memory"][name] / 2**20 for name in _MEMORY)
        lines.append(f"memory: {live:.1f} MiB in use, {cached:.1f} kept, {peak:.1f} at most in use")
        return "\n".join(lines)



def _product_lines(products):
    """How products with dequantized factors are computed."""
    integers = sum(not reason for _, reason in products)
    lines = [f"  quantized: {integers} products of integers"] if integers else []
    return lines + [f"  in floats: {product}: {reason}" for product, reason in products if reason]


def _cache_states(graph):
    """Of a graph and the bodies that Python runs."""
    own = [graph["cache"]] if "cache" in graph else []
    return own + [state for body in graph.get("bodies", []) for state in _cache_states(body)]


class _Register:
    """The graphs compiled last. Of older ones only sums are kept: a process that compiles for ever
    does not grow."""

    def __init__(self):
        self._lock = lock = threading.Lock()
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
        self.clear()

    def clear(self):
        with self._lock:
            self._latest = collections.deque()
            self._older = 0
            self._fallbacks = _count()
            self._calls = 0
            self._cache = _count()

    def add(self, report):
        with self._lock:
            self._cache.update(each.split(":")[0] for each in _cache_states(report.as_dict()))
            self._latest.append(report)
            if len(self._latest) > GRAPHS:
                self._fallbacks.update(self._latest.popleft().as_dict()["fallbacks"])
                self._older += 1

    def count_call(self):
        with self._lock:
            self._calls += 1

    def report(self):
        """Every graph compiled in this process since the start or `tandem.reset_report()`, in
        order."""
        with self._lock:
            latest = list(self._latest)
            older = {"graphs": self._older, "fallbacks": dict(self._fallbacks)}
            calls = self._calls
            cache = {state: self._cache[state] for state in ("hit", "miss", "bypassed")}
        made = Report(
            graphs=[each.as_dict() for each in latest],
            older=older,
            memory=memory_use(),
            cache=cache,
            **{"calls in torch": calls},
        )
        made.steps = [step for each in latest for step in each.steps()]
        return made


GRAPHS = 512  # that the report has in full
_register = _Register()
add = _register.add
reset = _register.clear
report = _register.report
count_call_in_torch = _register.count_call
