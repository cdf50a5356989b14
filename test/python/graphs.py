"""Text graphs of a few lines, compiled."""

import tandem


def graph_text(inputs, lines, results, where=""):
    body = "".join(f"  {line}\n" for line in ([lines] if isinstance(lines, str) else lines))
    ranges = " where " + where if where else ""
    return f"graph @test({inputs}){ranges} {{\n{body}  return {results}\n}}"


def build(inputs, lines, results="%r", where="", **options):
    return tandem.compile_text(graph_text(inputs, lines, results, where), **options)
