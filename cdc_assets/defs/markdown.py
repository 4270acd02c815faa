"""Markdown on Dagster's pages: what tables, columns and rows are named or hold is text there, whatever characters it has."""

from collections.abc import Sequence

_ESCAPED = str.maketrans({char: f"\\{char}" for char in "\\|`*_[]<>"})


def escaped(text: str) -> str:
    """The text in one line, in which nothing is a link, a tag or another form of Markdown."""
    return " ".join(text.translate(_ESCAPED).split())


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in lines)
