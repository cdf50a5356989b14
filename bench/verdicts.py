"""What must not happen in a benchmark, whatever its times are: a contender that gives other results
than eager, or none."""

# Of the largest element of eager's result, through a whole model: f32 sums in another order, and
# bf16 roundings at other places.
MOST = {"bf16": 0.05, "": 1e-3}
# Of how far eager's own result moves with weights that move in the last place, where measured.
FACTOR = 4
ABSENT = ("ModuleNotFoundError", "ImportError")  # a peer that is not installed, and said to be so


def wrong(results):
    """(what, why) of every contender of every model and part that is wrong or did not run."""
    return [
        (f"{model}, {part}, {who}", why)
        for model, parts in results.items()
        for part, found in parts.items()
        for who, why in of_part(part, found)
    ]


def of_part(part, found):
    if "error" in found:
        yield "the whole part", found["error"]
    most = MOST["bf16" if part.endswith("bf16") else ""]
    most = max(most, FACTOR * found.get("moved", 0))
    for who, apart in found.get("differs", {}).items():
        if not apart <= most:  # NaN is not
            yield who, f"differs from eager by {apart:.1e} of the largest element, not {most:.0e}"
    for who, why in found.get("failures", {}).items():
        if not why.startswith(ABSENT):
            yield who, f"failed: {why}"


def say(page, results):
    """On the page, each as a missed target."""
    found = wrong(results)
    if found:
        page.lines += ["", "**Wrong results, or none:**", ""]
    for what, why in found:
        said = page.target(f"{what}: results as in eager", f"{what}: {why}", False)
        page.lines.append(f"- {said}")
