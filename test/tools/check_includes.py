"""Every #include against the table of rooms, the one of the design: who may know whom."""

import sys

import source_tree

# room: rooms that it may include, beside itself.
MAY_INCLUDE = {
    "base": "",
    "sym": "base",
    "abi": "base",
    "ir": "base sym abi",
    "loop": "base sym",
    "ops": "base sym ir loop",
    "frontend": "base sym abi ir ops",
    "nn": "base sym ir ops frontend",
    "passes": "base sym abi ir ops",
    "quant": "base sym abi ir ops passes",
    "schedule": "base sym abi ir ops loop",
    "codegen": "base sym abi loop",
    "runtime": "base abi",
    "driver": " ".join(source_tree.ROOMS),
    "python": "driver",
}
# These stand outside the road of the data and may use any room.
ANY_ROOM = {"test", "bench", "examples", "include"}

# Headers of others: first part of the name, and where it may appear. What is not named is the
# standard library's, the system's or a mistake that the compiler finds.
THIRD_PARTY = {
    "llvm": {"codegen"},
    "llvm-c": {"codegen"},
    "lld": {"codegen"},
    "dnnl": {"runtime", "bench"},
    "omp": {"runtime", "bench"},
    "simdjson": {"frontend"},
    "toml++": {"quant"},
    "boost": {"base"},
    "nanobind": {"python"},
    "Python": {"python"},
    "gtest": {"test"},
    "gmock": {"test"},
    "benchmark": {"bench"},
    "fmt": set(source_tree.ROOMS) | {"test", "bench", "examples"},
}


def room_of(path):
    return path.split("/")[0]


def places_of(path):
    """A test stands also in the room that it tests: test/codegen may include LLVM."""
    parts = path.split("/")
    return {parts[0], parts[1]} if parts[0] == "test" and len(parts) > 2 else {parts[0]}


def may_use(room, target):
    return room in ANY_ROOM or room == target or target in MAY_INCLUDE[room].split()


def third_party(name):
    return name.split("/")[0].removesuffix(".hpp").removesuffix(".h").split("_")[0]


def third_party_problem(path, name):
    key = third_party(name)
    if key not in THIRD_PARTY or places_of(path) & THIRD_PARTY[key]:
        return None
    return f"<{name}> may be included in {', '.join(sorted(THIRD_PARTY[key]))} only"


def public_problem(path, public):
    """A room may use a public header whose own includes it may have written itself."""
    room = room_of(path)
    for file in source_tree.closure(public):
        target = room_of(file)
        if target != "include" and not may_use(room, target):
            return f"{public} reaches {file}, and {room}/ may not use {target}/"
    return None


def problem_of(path, quote, name):
    if ".." in name.split("/"):
        return f'"{name}": paths start at the repository root'
    if name.startswith("tandem/"):
        target = source_tree.resolve(name)
        return public_problem(path, target) if target else f"{name} does not exist"
    if quote == "<" or (third_party(name) in THIRD_PARTY and not source_tree.resolve(name)):
        return third_party_problem(path, name)
    if not source_tree.resolve(name):
        return f'"{name}" is not a file of the repository (paths start at its root)'
    room, target = room_of(path), room_of(name)
    if not may_use(room, target):
        allowed = MAY_INCLUDE[room] or "no other room"
        return f'{room}/ may not include "{name}" (it may include {allowed})'
    return None


def main():
    paths = source_tree.files([".h", ".cc"])
    paths = [path for path in paths if room_of(path) in MAY_INCLUDE or room_of(path) in ANY_ROOM]
    problems = []
    for path in paths:
        for number, quote, name in source_tree.includes(path):
            problem = problem_of(path, quote, name)
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    return source_tree.report(problems, f"the includes of {len(paths)} files")


if __name__ == "__main__":
    sys.exit(main())
