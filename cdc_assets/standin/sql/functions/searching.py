"""CHARINDEX, PATINDEX and REPLACE: texts found as their collation compares. Positions count UTF-16 code units."""

from functools import lru_cache
from typing import Any

from cdc_assets.standin.sql import textforms
from cdc_assets.standin.sql.collation import sqlite_collation
from cdc_assets.standin.sql.functions.strings import TEXT, as_text, fitting, length_type, widest
from cdc_assets.standin.sql.patterns import bare, matcher
from cdc_assets.standin.sql.registry import Call, define
from cdc_assets.standin.sqltypes import INT


@lru_cache(maxsize=4096)
def _bare_char(char: str, ignore_case: bool, ignore_accent: bool) -> str:
    folded = bare(char) if ignore_accent else char
    folded = folded.lower() if ignore_case else folded
    return folded if len(folded) == 1 else char


def _folded(text: str, collation: str) -> str:
    """One character for each code unit, equal where the collation takes them for equal."""
    ignore_case, ignore_accent = collation.startswith("ts_ci"), collation.endswith("_ai")
    if text.isascii():
        return text.lower() if ignore_case else text
    return "".join(_bare_char(char, ignore_case, ignore_accent) for char in textforms.unit_text(text))


def _charindex(call: Call, wanted: Any, subject: Any, start: int = 1) -> int:
    collation = sqlite_collation(call.types[1].collation or call.types[0].collation)
    needle = _folded(as_text(wanted, call.types[0]), collation)
    if not needle:
        return 0
    return _folded(as_text(subject, call.types[1]), collation).find(needle, max(start - 1, 0)) + 1


def _patindex(call: Call, pattern: Any, subject: Any) -> int:
    match = matcher(sqlite_collation(call.types[1].collation), "")
    text, wanted = textforms.unit_text(as_text(subject, call.types[1])), str(pattern)
    rest = wanted.lstrip("%")
    if rest == wanted or not rest:
        return int(match(text, wanted) is not None)
    return next((at + 1 for at in range(len(text) + 1) if match(text[at:], rest)), 0)


def _replace(call: Call, subject: Any, wanted: Any, replacement: Any) -> str:
    text, old, new = (
        as_text(value, kind) for value, kind in zip((subject, wanted, replacement), call.types, strict=True)
    )
    if not old:
        return text
    collation = sqlite_collation(call.types[0].collation)
    units, folded, needle = textforms.unit_text(text), _folded(text, collation), _folded(old, collation)
    pieces, at = [], 0
    while (found := folded.find(needle, at)) >= 0:
        pieces += [units[at:found], new]
        at = found + len(needle)
    return fitting(textforms.from_units("".join((*pieces, units[at:]))), call.returns)


define("CHARINDEX", lambda types: length_type(types[1:]), 2, 3, _charindex, arguments=(None, None, INT))
define("PATINDEX", lambda types: length_type(types[1:]), 2, 2, _patindex, arguments=(TEXT, None))
define("REPLACE", widest, 3, 3, _replace)
