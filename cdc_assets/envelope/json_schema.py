"""Connect's JSON schema of an Arrow field, as Kafka's JSON converter prints it."""

import json
from typing import Any

import pyarrow as pa

from cdc_assets.typemap.connect import described, element_of


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
        found["default"] = json.loads(connect.default)
    if named:
        found["field"] = field.name
    return found


def schema_text(field: pa.Field) -> str:
    """The schema as compact JSON text. Not cached by field: Arrow compares fields without their metadata."""
    return json.dumps(schema_of(field), ensure_ascii=False, separators=(",", ":"))
