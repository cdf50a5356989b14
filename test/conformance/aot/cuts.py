"""Where a partition cuts: what the tandem command says of a program in text form."""

import collections
import pathlib
import re
import subprocess

COMMAND = pathlib.Path(__file__).resolve().parents[3] / "build" / "bin" / "tandem"
MIB = 2**20
TARGET = "znver4"
TO_JOINT = ["functionalize", "decompose_composite", "rng", "cse", "dce", "joint"]
TO_HALVES = ["decompose_core", "constant_fold", "cse", "dce", "choose", "remat", "split"]

Node = collections.namedtuple("Node", "results op operands line")
Graph = collections.namedtuple("Graph", "inputs nodes outputs text")
Saved = collections.namedtuple("Saved", "bytes name op why")
Again = collections.namedtuple("Again", "microseconds name op bytes why")


def attempt(text, *arguments):
    return subprocess.run([COMMAND, *arguments, "-"], input=text, capture_output=True, text=True)


def command(text, *arguments):
    done = attempt(text, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def passed(text, passes, *arguments):
    return command(text, "opt", *arguments, *(word for each in passes for word in ("--pass", each)))


def halves_of_joint(text, budget):
    """Forward and backward, each as a text."""
    forward, backward = passed(text, TO_HALVES, "--budget", budget).strip().split("\n\n")
    return forward + "\n", backward + "\n"


def halves(text, budget="min_cut"):
    """Of a program whose inputs say which gradients are wanted."""
    return [read(half) for half in halves_of_joint(passed(text, TO_JOINT), str(budget))]


def split_at_commas(text):
    return re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)


def read(text):
    """One graph; inputs and outputs as words, "saved %x"."""
    head, *lines = text.strip().splitlines()
    inputs = split_at_commas(re.match(r"graph @\w+\((.*)\)", head)[1])
    outputs = re.match(r" *return ?(.*)", lines[-2])[1]
    nodes = [node_of(line) for line in lines[:-2]]
    return Graph([each.strip() for each in inputs], nodes,
                 [each.strip() for each in split_at_commas(outputs)], text)


def node_of(line):
    left, right = line.strip().split(" = ", 1)
    op, rest = right.split("(", 1)
    return Node(re.findall(r"%\w+", left), op, re.findall(r"%\w+", rest), line.strip())


def ops(graph):
    return collections.Counter(node.op.removeprefix("aten.") for node in graph.nodes)


def saved(forward):
    """Tensors, then sizes, as forward gives them."""
    tensors = [each.removeprefix("saved ") for each in forward.outputs if each.startswith("saved ")]
    sizes = [re.search('"(.*)"', each)[1] for each in forward.outputs if "saved_size" in each]
    return tensors, sizes


class Cut:
    """What `tandem partition`, or the report of a compiled graph, lists."""

    def __init__(self, text):
        head = re.search(r"(\d+) values saved, (\d+) bytes; .* (\d+) flops of products", text)
        self.bytes, self.flops = int(head[2]), int(head[3])
        self.saved = [
            Saved(int(each[0]), each[1], each[2], each[3])
            for each in re.findall(
                r"  saved +(\d+) bytes  %(\w+)(?: = ([\w.:]+)\(.*\).*?)?: (.+)", text)
        ]
        self.again = [
            Again(float(each[0]), each[1], each[2], int(each[3]), each[4])
            for each in re.findall(
                r"  again +([\d.]+) us +%(\w+) = ([\w.:]+)\(.*, (\d+) bytes: (.+)", text)
        ]

    def made_bytes(self):
        """Of what is saved beside inputs and what lives anyway."""
        return sum(each.bytes for each in self.saved if each.op)

    def products_again(self):
        return [each for each in self.again if each.op in ("aten.mm", "aten.addmm", "aten.bmm")]


def partition(text, budget, *arguments):
    """By the rates of one processor, on whatever machine this runs."""
    return command(text, "partition", "--target", TARGET, "--budget", str(budget), *arguments)


def cut(text, budget, solver="dp"):
    return Cut(partition(text, budget, "--solver", solver))


def choices(text):
    """All that a budget chooses among: (bytes, microseconds)."""
    listed = partition(text, "min_cut").split("us computed again\n")[-1]
    return [(int(a), float(b)) for a, b in re.findall(r"^ *(\d+)  #* +([\d.]+)", listed, re.M)]
