"""What the encoder gives: the text of a graph, and what crosses its border."""

import dataclasses


@dataclasses.dataclass
class Result:
    """One result of the user's graph. `kind`: "tensor" (`number` of those that the text returns),
    "size" (`value`: text of an expression of sizes), "number" (the value of such a tensor),
    "constant" (`value`)."""

    kind: str
    number: int = 0
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
    symbols: dict  # name -> function of the inputs that gives its value
    made: dict  # name of a symbol that the program makes -> (number, dim) of results that have it;
    # dim None: it is that result
    host: list  # HostOp, HostControl: nodes that Python runs
    readers: list  # functions of the inputs: floats that come after inputs and `lifted`
    offsets: dict  # number of an input -> the only offset in its storage that the text holds for
    requires_grad: list  # by argument
    controls: dict  # loops and branches that the program runs: kind -> count
    sparse: list  # of SparseRows: lookups whose gradient is sparse
    watched: set  # names of inputs that custom functions saved by save_for_backward
    complex_names: set  # of arguments that hold complex numbers
    hints: object  # Hints
