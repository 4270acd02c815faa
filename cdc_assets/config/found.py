"""Properties that were found in a configuration, with their rows in the property table."""

from collections.abc import Iterator, Sequence

from cdc_assets.config.property import Property

Found = Sequence[tuple[str, Property, str]]
"""Names as written, their rows in the property table, and their texts."""


def of_pattern(found: Found, pattern: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Those of a row whose name has holes: name, what stands in the holes, text."""
    for name, row, text in found:
        if row.name == pattern:
            yield name, row.holes(name) or {}, text
