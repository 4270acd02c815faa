"""Rules that mask, hash or truncate columns. Their property names contain an algorithm and a salt, or a length."""

from typing import Any, cast

from cdc_assets.config import kinds
from cdc_assets.config.found import Found
from cdc_assets.config.property import Property
from cdc_assets.config.settings import ColumnRule
from cdc_assets.config.table.events import COLUMN_RULES
from cdc_assets.errors import ConfigurationError

_HASH_ALGORITHMS = ("MD2", "MD5", "SHA-1", "SHA-224", "SHA-256", "SHA-384", "SHA-512", "SHA3-256", "SHA3-512")
_LONGEST_MASK = 10_000_000
"""Maximum length of a mask or of truncated text; values of one row must fit into memory."""


def column_rules(found: Found) -> tuple[ColumnRule, ...]:
    """Rules in the order of the file; the first that matches a column wins.

    Args:
        found: all properties of the file.

    Raises:
        ConfigurationError: an algorithm or a length is not allowed.
    """
    patterns = {row.name for row in COLUMN_RULES}
    return tuple(_column_rule(name, row, text) for name, row, text in found if row.name in patterns)


def _column_rule(name: str, row: Property, text: str) -> ColumnRule:
    holes = row.holes(name) or {}
    columns = cast(tuple[str, ...], row.parse(text))
    if "algorithm" in holes:
        if holes["algorithm"].upper() not in _HASH_ALGORITHMS:
            raise ConfigurationError(
                f"algorithm of {row.name}", holes["algorithm"], "one of " + ", ".join(_HASH_ALGORITHMS), "correct it"
            )
        kind = "hash_v2" if ".v2." in row.name else "hash"
        return ColumnRule(cast(Any, kind), columns, algorithm=holes["algorithm"], salt=holes["salt"])
    kind = "mask" if ".mask." in row.name else "truncate"
    return ColumnRule(cast(Any, kind), columns, length=_length(row, holes["length"]))


def _length(row: Property, text: str) -> int:
    wanted = kinds.integer(0, _LONGEST_MASK)
    try:
        return cast(int, wanted.parse(text if text.isascii() and text.isdigit() else ""))
    except ValueError:
        raise ConfigurationError(row.name, text, wanted.allowed, "correct the property's name") from None
