"""Collations as SQLite callbacks.

A collation orders by sort keys, so it is a total preorder by construction; keys are
cached because an index search compares one value many times. Trailing blanks never count.

The order is a simplification of Windows' own: blanks and punctuation, then digits, then
letters with their accents behind the bare letter; hyphens and apostrophes have full weight.
It was never compared with a real server beyond letters, digits, case and accents.
"""

import sqlite3
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import DEFAULT_COLLATION

_PUNCTUATION: Final = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"
_ORDER: Final = {ord(c): chr(i + 1) for i, c in enumerate((*map(chr, range(32)), *_PUNCTUATION))}
_LOWER: Final = {**_ORDER, **{ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}}
_EXPANSIONS: Final = str.maketrans({"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH"})

Key = Any


def _parts(text: str) -> tuple[str, str]:
    """Base letters, and the accents in their order."""
    decomposed = unicodedata.normalize("NFD", text.translate(_EXPANSIONS))
    base: list[str] = []
    accents: list[str] = []
    for char in decomposed:
        if unicodedata.combining(char):
            accents.append(f"{len(base):06}{char}")
        else:
            base.append(char)
    return "".join(base), "".join(accents)


def _case_insensitive(text: str) -> Key:
    text = text.rstrip(" ")
    if text.isascii():
        return text.translate(_LOWER), ""
    base, accents = _parts(text)
    return base.casefold().translate(_ORDER), accents


def _case_sensitive(text: str) -> Key:
    key = _case_insensitive(text)
    return (*key, text.rstrip(" ").swapcase())  # lower case sorts first


def _accent_insensitive(text: str) -> Key:
    return (_case_insensitive(text)[0],)


def _case_sensitive_accent_insensitive(text: str) -> Key:
    return _case_insensitive(text)[0], _parts(text.rstrip(" "))[0].swapcase()


def _code_points(text: str) -> Key:
    """BIN2: by UTF-16 code unit."""
    text = text.rstrip(" ")
    return text.encode("utf-16-be", "surrogatepass")


_KEYS: Final[dict[str, Callable[[str], Key]]] = {
    "ts_ci_as": lru_cache(maxsize=65536)(_case_insensitive),
    "ts_cs_as": lru_cache(maxsize=16384)(_case_sensitive),
    "ts_ci_ai": lru_cache(maxsize=16384)(_accent_insensitive),
    "ts_cs_ai": lru_cache(maxsize=16384)(_case_sensitive_accent_insensitive),
    "ts_bin": lru_cache(maxsize=16384)(_code_points),
}


@lru_cache(maxsize=256)
def sqlite_collation(collation_name: str) -> str:
    """The SQLite collation (used in DDL too) that does what a collation of that name does.

    Raises:
        SqlError: 448 for a name that is no collation.
    """
    name = (collation_name or DEFAULT_COLLATION).upper()
    if name == "DATABASE_DEFAULT" or name == "CATALOG_DEFAULT":
        name = DEFAULT_COLLATION.upper()
    words = name.split("_")
    if words[-1] in ("BIN", "BIN2") or "BIN2" in words:
        return "ts_bin"
    case = next((word for word in words if word in ("CI", "CS")), None)
    accent = next((word for word in words if word in ("AI", "AS")), None)
    if case is None or accent is None:
        raise SqlError(448, f"Invalid collation '{collation_name}'.")
    return f"ts_{case.lower()}_{accent.lower()}"


def sort_key(collation_name: str) -> Callable[[str], Key]:
    """The function whose results order and equal as the collation says."""
    return _KEYS[sqlite_collation(collation_name)]


def _comparison(key: Callable[[str], Key]) -> Callable[[str, str], int]:
    def compare(left: str, right: str) -> int:
        if left == right:
            return 0
        a, b = key(left), key(right)
        return -1 if a < b else int(a > b)

    return compare


_COMPARISONS: Final = {name: _comparison(key) for name, key in _KEYS.items()}


def register_collations(connection: sqlite3.Connection) -> None:
    """Make the collations known on a connection."""
    for name, compare in _COMPARISONS.items():
        connection.create_collation(name, compare)
