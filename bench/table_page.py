"""A table of a page that a script writes, between two comments."""


def write_between(page, marks, lines):
    text = page.read_text()
    begin, end = (text.index(mark) for mark in marks)
    page.write_text(text[: begin + len(marks[0])] + "\n" + "\n".join(lines) + "\n" + text[end:])
