"""Values of Connect's JSON converter, one by one, in the form in which Arrow reads an engine's lines.

This is the slow way: for records that do not go through Arrow as they are, and to find which record is wrong and why.
The form is that of `engine.schemas.read_lines`: a Decimal as plain text, or base64 of its unscaled bytes if it has
no type in the lake; other numbers with a fraction as text; maps as lists of entries.
"""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from cdc_assets.connectors.engine.schemas import DECIMAL, decimal_parameter, is_narrow
from cdc_assets.connectors.reader.messages import BadRecordError, Schema

_BITS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
_NO_NUMBERS: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_EXACT: Final = Context(prec=1000, traps=[InvalidOperation])


def engine_value(schema: Schema, value: Any, path: str) -> Any:
    """A value in the engine's form.

    Args:
        schema: its Connect schema.
        value: parsed with Decimals instead of floats.
        path: of it in its record; empty for a whole key or value, which may always be null.

    Raises:
        BadRecordError: it does not fit, or is null where its schema allows no null and has no default.
    """
    if value is None and path and not schema["optional"]:
        value = schema.get("default")
        if value is None:
            raise BadRecordError(f"{path} is null or missing, and is required by its schema")
    if value is None:
        return None
    if schema.get("name") == DECIMAL:
        return _decimal(schema, value, path)
    return _FORMS[schema["type"]](schema, value, path)


def _wrong(schema: Schema, value: Any, path: str) -> BadRecordError:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return BadRecordError(f"{path or 'it'} is {shown[:100]}; expected {schema.get('name') or schema['type']}")


def _integer(schema: Schema, value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(schema, value, path)
    bound, unit = (
        1 << _BITS[schema["type"]],
        1000 if schema.get("name") == _TIMESTAMP else 1,
    )  # the lake has microseconds
    if not -bound <= value * unit < bound:
        raise _wrong(schema, value, path)
    return value


def _floating(schema: Schema, value: Any, path: str) -> str:
    if isinstance(value, str) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _wrong(schema, value, path)
    return str(value)


def _boolean(schema: Schema, value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(schema, value, path)
    return value


def _string(schema: Schema, value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(schema, value, path)
    return value


def _bytes(schema: Schema, value: Any, path: str) -> str:
    _unpacked(schema, value, path)
    text: str = value
    return text


def _unpacked(schema: Schema, value: Any, path: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise _wrong(schema, value, path) from None


def _decimal(schema: Schema, value: Any, path: str) -> str:
    """Of base64, as the converter writes it, or of a number (`decimal.format=NUMERIC`)."""
    scale = decimal_parameter(schema, "scale") or 0
    if isinstance(value, str):
        unscaled = int.from_bytes(_unpacked(schema, value, path), "big", signed=True)
    elif isinstance(value, int | Decimal) and not isinstance(value, bool):
        unscaled = _unscaled(schema, value, scale, path)
    else:
        raise _wrong(schema, value, path)
    if not is_narrow(schema):
        length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        return b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()
    if abs(unscaled) >= 10 ** int(schema["parameters"]["connect.decimal.precision"]):
        raise _wrong(schema, value, path)
    return format(_EXACT.scaleb(Decimal(unscaled), -scale), "f")


def _unscaled(schema: Schema, value: int | Decimal, scale: int, path: str) -> int:
    try:
        shifted = _EXACT.scaleb(Decimal(value), scale)
        whole = shifted.to_integral_value(context=_EXACT)
    except InvalidOperation:  # more digits, or another scale, than any number has
        raise _wrong(schema, value, path) from None
    if shifted != whole:
        raise _wrong(schema, value, path)
    return int(whole)


def _struct(schema: Schema, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(schema, value, path)
    names = {field["field"] for field in schema["fields"]}
    for name, inner in value.items():
        if name not in names and not _is_empty(inner):
            raise BadRecordError(f"{path}.{name} is not a field of its schema".lstrip("."))
    return {
        field["field"]: engine_value(field, value.get(field["field"]), f"{path}.{field['field']}".lstrip("."))
        for field in schema["fields"]
    }


def _is_empty(value: Any) -> bool:
    """Whether a value shows nothing of its type, so that nothing is lost without it."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return not value if isinstance(value, list) else value is None


def _array(schema: Schema, value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(schema, value, path)
    return [engine_value(schema["items"], item, f"{path}[{place}]") for place, item in enumerate(value)]


def _map(schema: Schema, value: Any, path: str) -> list[dict[str, Any]]:
    if not isinstance(value, Mapping) or not all(inner is None or isinstance(inner, str) for inner in value.values()):
        raise _wrong(schema, value, path)
    if None in value.values() and not schema["values"]["optional"]:
        raise BadRecordError(
            f"{path} has a null for {next(name for name in value if value[name] is None)}, and may have none"
        )
    return [{"key": name, "value": inner} for name, inner in value.items()]


_FORMS: Final[Mapping[str, Callable[[Schema, Any, str], Any]]] = {
    **dict.fromkeys(_BITS, _integer),
    "float": _floating,
    "double": _floating,
    "boolean": _boolean,
    "string": _string,
    "bytes": _bytes,
    "struct": _struct,
    "array": _array,
    "map": _map,
}
