"""What the encoder gives: the text of a graph, and what crosses its border."""

import dataclasses


@dataclasses.dataclass
class Result:
    """One result of the user's graph. `kind`: "fresh" (result `number` of the program), "input"
    (the very tensor), "input view", "fresh view" (of result `number`; `offset` counts elements from
    its first one), "size" (an int: `value` of the arguments), "constant"."""

    kind: str
    number: int = 0
    sizes: tuple = ()
    strides: tuple = ()
    offset: object = 0
    history: str = "base"  # its history: that of what it is a view of; "none": of detach; "no_grad"
    value: object = None


@dataclasses.dataclass
class Encoded:
    text: str
    results: list  # of Result
    inputs: int  # of the graph, without `lifted`
    arguments: list  # numbers of those, and of `lifted` behind them, that the program takes
    names: list  # of the arguments, as the program calls them
    ops: dict  # overload -> count
    lifted: list  # tensors that the graph holds itself
    symbols: dict  # sympy symbol -> function of the inputs that gives its value
    host: list  # HostOp, HostControl: nodes that Python runs
    readers: list  # functions of the inputs: floats that come after inputs and `lifted`
    offsets: dict  # number of an input -> the only offset in its storage that the text holds for
    requires_grad: list  # by argument
    has_asserts: bool  # behind the results, the program gives one for each
    controls: dict  # loops and branches that the program runs: kind -> count
