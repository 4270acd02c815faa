"""Puts measured figures into a document, between two marks that name the benchmark."""

from collections.abc import Iterable
from pathlib import Path

FIGURES = Path(__file__).with_name("README.md")
"""Where figures of benchmarks stand."""


def write_table(path: Path, name: str, lines: Iterable[str]) -> None:
    """Replace what stands between the marks of a benchmark.

    Args:
        path: of the document.
        name: of the benchmark in its marks.
        lines: Markdown.

    Raises:
        ValueError: the document has not both marks once, in order.
    """
    text = path.read_text()
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(
            f"{path} has not {begin!r} and {end!r} once each, in order. Next: put them where the table belongs"
        )
    before, rest = text.split(begin)
    path.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1])
