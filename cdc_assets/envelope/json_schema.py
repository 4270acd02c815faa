"""Connect's JSON schema of an Arrow field, as Kafka's JSON converter prints it."""

import json
import re
from typing import Any

import pyarrow as pa

from cdc_assets.envelope.json_numbers import NUMBER
from cdc_assets.typemap.connect import described, element_of

_MARK = "\0number:"
"""Begins the text of a number that has more digits than a float of Python; no default of a column begins so."""
_MARKED = re.compile(r'"\\u0000number:([^"]*)"')


def schema_of(field: pa.Field, *, named: bool = False) -> dict[str, Any]:
    """The schema object of a field, keys in the converter's order.

    Args:
        field: made by `ConnectType.to_field`.
        named: whether it is inside a struct and so includes its field name.
    """
    connect = described(field)
    found: dict[str, Any] = {"type": connect.kind}
    if connect.kind == "struct":
        found["fields"] = [schema_of(child, named=True) for child in connect.fields]
    if connect.kind == "array":
        found["items"] = schema_of(element_of(field))
    if connect.kind == "map":
        found |= {part: {"type": "string", "optional": False} for part in ("keys", "values")}
    found["optional"] = connect.optional
    if connect.name:
        found["name"] = connect.name
    if connect.version:
        found["version"] = connect.version
    if connect.parameters:
        found["parameters"] = dict(connect.parameters)
    if connect.default is not None:
        found["default"] = _MARK + connect.default if connect.form == NUMBER else json.loads(connect.default)
    if named:
        found["field"] = field.name
    return found


def schema_text(field: pa.Field) -> str:
    """The schema as compact JSON text. Not cached by field: Arrow compares fields without their metadata."""
    return _MARKED.sub(r"\1", json.dumps(schema_of(field), ensure_ascii=False, separators=(",", ":")))
