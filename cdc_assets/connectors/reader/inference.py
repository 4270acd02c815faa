"""Schemas of JSON payloads that come without one: what their values show, and no more.

A whole number is an int64, another number a double, and a date in text form stays text. A field that was only ever
null has no type yet, so the lake has no column for it until a value comes. `before` and `after` of an envelope describe
the same row, so each has what the other shows. What is known already, such as the topic table's columns, stays as long
as values fit it; a value that does not fit is never changed: its field gets another type, and its topic another
generation.

A number that neither an int64 nor a double holds exactly is refused: only a declared schema can say what it is.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from cdc_assets.connectors.reader.messages import BadRecordError, Schema
from cdc_assets.connectors.reader.values import engine_value

_INTEGERS: Final = ("int8", "int16", "int32", "int64")
_MIN, _END = -(1 << 63), 1 << 63


def inferred(known: Schema | None, value: Any, path: str = "") -> Schema | None:
    """A schema that this value fits, and all that the known one says of other fields.

    Args:
        known: what is known of the values' type; None if nothing is.
        value: parsed with Decimals instead of floats.
        path: of the value, for messages.

    Returns:
        The known schema itself if the value fits it; None if nothing is known yet.

    Raises:
        BadRecordError: a number cannot be held.
    """
    if value is None:
        return known
    if isinstance(value, dict):
        return _struct(known, value, path)
    if isinstance(value, list):
        items = known["items"] if known is not None and known["type"] == "array" else None
        found = items
        for item in value:
            found = inferred(found, item, f"{path}[]")
        if found is items:
            return known if items is not None else known and None
        return {"type": "array", "optional": True, "items": found}
    if known is not None and _fits(known, value):
        return known
    return {"type": _kind(value, path), "optional": True}


def _fits(known: Schema, value: Any) -> bool:
    if known["type"] in ("float", "double") and not isinstance(value, str) and not _is_exact(value):
        return False
    try:
        engine_value(known, value, "")
    except BadRecordError:
        return False
    return True


def _kind(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int) and _MIN <= value < _END:
        return "int64"
    if not _is_exact(value):
        raise BadRecordError(
            f"{path or 'it'} is {value}, which neither int64 nor double holds exactly; give its schema (schemas.file)"
        )
    return "double"


def _is_exact(value: Decimal | int) -> bool:
    """Whether a double prints the same number."""
    try:
        return Decimal(repr(float(value))) == value
    except OverflowError:
        return False


def _struct(known: Schema | None, value: Mapping[str, Any], path: str) -> Schema | None:
    if known is not None and known["type"] == "map":
        return known
    same = known is not None and known["type"] == "struct"
    old = {field["field"]: field for field in known["fields"]} if known is not None and same else {}
    fields = dict(old)
    for name, inner in value.items():
        _note(fields, name, inferred(fields.get(name), inner, f"{path}.{name}" if path else name))
    if not path and "op" in value and ("before" in value or "after" in value):
        _share_rows(fields, value)
    if not fields:
        return known
    if known is not None and same and all(fields[name] is old.get(name) for name in fields):
        return known
    base = dict(known) if known is not None and same else {"type": "struct", "optional": bool(path)}
    return {**base, "fields": list(fields.values())}


def _note(fields: dict[str, Schema], name: str, found: Schema | None) -> None:
    if found is not None and found is not fields.get(name):
        fields[name] = {**found, "field": name}


def _share_rows(fields: dict[str, Schema], value: Mapping[str, Any]) -> None:
    for name in ("before", "after"):
        for other in ("before", "after"):
            found = inferred(fields.get(name), value.get(other), name)
            if found is None and other in fields and name in value:
                found = fields[other]
            _note(fields, name, found)
