"""A compiled graph as what Dynamo calls: a plain callable, or an autograd.Function around forward
and backward."""

import operator
import warnings

import torch

from tandem import _tandem
from tandem._tandem import Unsupported
from tandem.backward import autograd_function
from tandem.overlapping import Overlapping
from tandem.replay import Replay
from tandem.reports import ODD_CALL, count_call_in_torch
from tandem.seeds import draw_seed


def _taker(numbers):
    """Those elements of a tuple, as a tuple."""
    if len(numbers) == 1:
        return lambda values: (values[numbers[0]],)
    return operator.itemgetter(*numbers) if numbers else lambda values: ()


def _taker_of_parts(numbers, are_complex):
    """The same; to a program complex numbers are their parts."""
    pairs = list(zip(numbers, are_complex, strict=True))
    as_real = torch.view_as_real
    return lambda values: tuple(as_real(values[i]) if is_it else values[i] for i, is_it in pairs)


class Frozen:
    """The constants of a program among the inputs of its graph. `take(inputs)`: the weights. A call
    asks `find(weights)` for the set of constants that belongs to them as they are now, and runs
    with that one."""

    def __init__(self, native, encoded, is_checked):
        constants = set(native.constants)
        named = list(zip(encoded.names, encoded.arguments, strict=True))
        names = [name for name, _ in named if name in constants]
        self.take = _taker([number for name, number in named if name in constants])
        self._sets = _tandem.FrozenSets(native, names, torch.Tensor._version, is_checked)
        self.find = self._sets.find

    @property
    def counts(self):
        return self._sets.counts


class Compiled:
    """`native` with its border. `fallback(*args)` runs the graph in torch: for calls whose tensors
    overlap in a way that the program does not expect. `turns_grad_on`: the graph records history
    even where its caller does not."""

    def __init__(
        self, native, encoded, fallback, options, turns_grad_on=False, is_over_bases=False
    ):
        self.native = native
        self.encoded = encoded
        places = dict(zip(encoded.names, encoded.arguments, strict=True))
        names = list(native.names)
        numbers = [places[name] for name in names]  # constants are none of them
        self._fallback = fallback
        self._turns_grad_on = turns_grad_on
        self._written = [number for number, _ in native.mutations]
        self._dirty = [number for number, tangent in native.mutations if tangent]
        self._lifted = tuple(encoded.lifted)
        self._readers = encoded.readers
        self._offsets = list(encoded.offsets.items())
        self._replay = Replay(native, encoded)
        hosts = [host for host in encoded.host if any(host.histories)]
        self._function = None
        if native.has_backward:
            rest = hosts, encoded.sparse, encoded.watched
            self._function = autograd_function(native, *rest)
        self._unneeded = self._without_gradient() if self._function else []
        is_checked = options.freeze == "checked"
        self._frozen = Frozen(native, encoded, is_checked) if native.constants else None
        own = not encoded.lifted and not encoded.readers and not encoded.offsets
        own = own and not encoded.complex_names
        self._takes_all = own and numbers == list(range(encoded.inputs))
        self.take = _taker(numbers)
        if not encoded.complex_names.isdisjoint(names):
            self.take = _taker_of_parts(numbers, [name in encoded.complex_names for name in names])
        self._later = frozenset(native.later)  # backward writes these
        self._alone = sorted({*self._written, *self._later})  # share no memory with others
        self.overlap = _tandem.Overlap(self._alone)
        self._take_written = _taker(self._written)
        self.takes_seed = native.takes_seed
        self.written_arguments = frozenset(self._written)
        self.written = [numbers[number] for number in self._written]  # of the graph's inputs
        self.writes_inputs = bool(self._written)
        self._options = options
        self._is_strict = options.on_unsupported == "strict"
        can_overlap = self._written and not options.freeze and not is_over_bases
        self._overlapping = Overlapping() if can_overlap else None
        self.eager_calls = 0
        self.verified = ""  # "yes", or why not

    @property
    def frozen(self):
        """Counts of the sets of frozen weights; empty where nothing is frozen."""
        return self._frozen.counts if self._frozen else {}

    @property
    def shared_memory(self):
        """Counts of the programs for inputs that share memory; empty where nothing is written."""
        return self._overlapping.counts if self._overlapping else {}

    def callable(self):
        """What is called with Dynamo's arguments."""
        native = self.native
        plain = self._replay.is_plain and self._function is None and self._takes_all
        plain = plain and not self._written and not native.handed_on
        if plain and not native.takes_seed:
            return native.__call__
        return self._call

    def _without_gradient(self):
        """Arguments with a history that backward does not lead to: autograd must not walk it. Where
        it leads to none, they are why results have a history (overwritten ones: eager's do)."""
        flags = dict(zip(self.encoded.names, self.encoded.requires_grad, strict=True))
        flags = [flags[name] for name in self.native.names]
        sparse = {each.weight for each in self.encoded.sparse}
        named = zip(self.native.names, self.native.has_gradient, strict=True)
        has = [name in sparse or has for name, has in named]
        pairs = list(zip(flags, has, strict=True))
        wanted = [number for number, (requires, has) in enumerate(pairs) if requires and not has]
        leads = any(requires and has for requires, has in pairs)
        return [number for number in wanted if leads and number not in self._dirty]

    def _recorded(self, values):
        """Results, with a history. None where the call must not run as compiled. What is a view,
        and written with a history, is written by torch, which knows the history of its base."""
        if self._alone and self.overlap.found(values):
            return None
        views = [number for number in self._dirty if values[number]._is_view()]
        if not self._later.isdisjoint(views):
            return None
        if not views and not self._unneeded:
            return self._function.apply(None, *values)
        given = list(values)
        for number in self._unneeded:
            given[number] = given[number].detach()
        for number in views:
            given[number] = given[number].clone()
        results = self._function.apply(None, *given)
        for number in views:
            # Without elements it shows nothing of its base, which may be saved for backward.
            if values[number].numel() or not values[number].requires_grad:
                values[number].copy_(given[number])
        return results

    def _call(self, *args):
        everything = args + self._lifted
        if self._readers:
            everything += tuple([read(args) for read in self._readers])
        if any(everything[i].storage_offset() != offset for i, offset in self._offsets):
            return self._in_torch(args)
        values = args if self._takes_all else self.take(everything)
        fresh = self.run(values, everything)
        if fresh is not None:
            return self.give(everything, fresh)
        made = self._overlapping.run(self, everything) if self._overlapping else None
        return self._in_torch(args) if made is None else made

    def recorded_writes(self):
        """Numbers of the arguments that a call in this mode gives a history."""
        is_recorded = self._turns_grad_on or torch.is_grad_enabled()
        return frozenset(self._dirty) if is_recorded else frozenset()

    def over_bases(self, native, encoded):
        """The same for inputs that lie in one memory."""
        rest = self._fallback, self._options, self._turns_grad_on
        return Compiled(native, encoded, *rest, is_over_bases=True)

    def give(self, everything, fresh):
        """What the caller gets, of what the program gave."""
        if not self._turns_grad_on:
            return self._replay.give(everything, fresh)
        with torch.enable_grad():
            return self._replay.give(everything, fresh)

    def run(self, values, everything):
        """Results of the program. None, and nothing has run, where it must not."""
        if self._frozen:
            weights = self._frozen.take(everything)
            if self._written and self.overlap.found(values + weights):
                return None
            try:
                constants = self._frozen.find(weights)
            except Unsupported:  # zero points that were 0 when this was compiled, and are no more
                return None
            return self._run_native(values, constants)
        if self._function is not None and self._turns_grad_on:
            with torch.enable_grad():
                return self._recorded(values)
        if self._function is not None and torch.is_grad_enabled():  # bodies run without it, too
            return self._recorded(values)
        return self._run_native(values, None)

    def _run_native(self, values, constants):
        seed = (draw_seed(),) if self.native.takes_seed else ()
        fresh = self.native.run(values + seed, self.overlap, constants)
        if fresh is None:
            return None
        if self._written:
            torch.autograd.graph.increment_version(self._take_written(values))
        for number, source in self.native.handed_on:
            fresh[number] = values[source].view_as(values[source])
        return fresh

    def _in_torch(self, args):
        if self._is_strict:
            raise Unsupported(f"a call cannot run as compiled: {ODD_CALL}")
        if self.eager_calls == 0:
            warnings.warn(f"tandem: a call runs in torch: {ODD_CALL}", UserWarning, stacklevel=3)
        self.eager_calls += 1
        count_call_in_torch()
        return self._fallback(*args)
