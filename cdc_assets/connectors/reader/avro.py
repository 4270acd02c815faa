"""Avro in Confluent's wire format: a zero byte, four bytes that number the schema in a registry, and the value.

What Connect's Avro converter writes is turned back into Connect's schemas and JSON payloads; the properties that it adds
(`connect.name`, `connect.version`, `connect.parameters`, `connect.default`, `connect.type`) carry what Avro lacks.
"""

import importlib
import io
import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from cdc_assets.connectors.engine.schemas import DECIMAL
from cdc_assets.connectors.reader.messages import BadRecordError, Part, Schema, normalised, one_line
from cdc_assets.errors import ConfigurationError
from cdc_assets.registry import HEAD_BYTES, SchemaRegistry

_KINDS: Final = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "fixed": "bytes",
    "enum": "string",
}
_CONNECT: Final = "org.apache.kafka.connect.data."
_LOGICAL: Final = {"date": "Date", "time-millis": "Time", "timestamp-millis": "Timestamp"}
_MAX_PARTS: Final = 100_000
"""Maximum number of parts of a schema with all its names written out: a few lines may name one another in so many ways as fill memory."""
_NO_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

Fetch = Callable[[int], Any]
"""Gives a schema of the registry by its number."""


class AvroParts:
    """Takes keys or values apart.

    Args:
        registry: address of the schema registry.
        credentials: `user:password`, or empty.
        fetch: instead of the registry.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or the address is no web address.
    """

    def __init__(self, registry: str, credentials: str, fetch: Fetch | None = None) -> None:
        self._avro = _library()
        self._fetch = fetch or fetch_from(SchemaRegistry(registry, credentials))
        self._schemas: dict[int, tuple[Any, Schema]] = {}

    def part(self, data: bytes) -> Part | None:
        """The key or value of a message.

        Raises:
            BadRecordError: it is not in this format, or its schema is not in the registry.
            ConnectionLostError: the registry does not answer.
        """
        if len(data) < HEAD_BYTES or data[0] != 0:
            raise BadRecordError("it does not begin as Confluent's wire format does")
        number = int.from_bytes(data[1:HEAD_BYTES], "big")
        if number not in self._schemas:
            self._schemas[number] = self._known(self._fetch(number))
        avro, schema = self._schemas[number]
        stream = io.BytesIO(data[HEAD_BYTES:])
        try:
            value = _plain(self._avro.schemaless_reader(stream, avro))
        except (EOFError, IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise BadRecordError(f"it is not of schema {number}: {type(error).__name__} {error}") from None
        if stream.read(1):
            raise BadRecordError(f"it is not of schema {number}: bytes follow its value")
        return None if value is None else Part(schema, one_line(value), value)

    def _known(self, written: Any) -> tuple[Any, Schema]:
        try:
            schema = normalised(connect_schema(written))
            return self._avro.parse_schema(_without_logical_types(written)), schema
        except (KeyError, TypeError, ValueError, RecursionError, self._avro.schema.SchemaParseException) as error:
            raise BadRecordError(f"its schema cannot be used: {type(error).__name__} {error}") from None


def fetch_from(registry: SchemaRegistry) -> Fetch:
    """Queries a registry for schemas of Avro."""

    def fetch(number: int) -> Any:
        found = registry.schema(number)
        if found is None:
            raise BadRecordError(f"the registry has no schema {number}")
        if (found.schema_type or "AVRO") != "AVRO" or found.references:
            raise BadRecordError(f"schema {number} is not only of Avro: {found.schema_type}, with its references")
        try:
            return json.loads(found.schema_str)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadRecordError(f"the registry's schema {number} cannot be read: {type(error).__name__}") from None

    return fetch


class _Named(dict[str, Any]):
    """Schemas by name, and how many parts were met."""

    parts = 0


def connect_schema(written: Any, named: _Named | None = None) -> dict[str, Any]:
    """Connect's schema of an Avro schema, as Connect's Avro converter understands it.

    Raises:
        BadRecordError, KeyError: it has a form that the converter does not write.
    """
    named = _Named() if named is None else named
    named.parts += 1
    if named.parts > _MAX_PARTS:
        raise BadRecordError(f"it has more than {_MAX_PARTS} parts")
    if isinstance(written, list):
        others = [kind for kind in written if kind != "null"]
        if len(others) != 1:
            raise BadRecordError("it has a union of several types")
        return connect_schema(others[0], named) | {"optional": len(others) < len(written)}
    if isinstance(written, str):
        written = named.get(written, {"type": written})
    if isinstance(written["type"], list | dict):
        return connect_schema(written["type"], named)
    kind = written["type"]
    found: dict[str, Any] = {"optional": False}
    if kind == "record":
        found |= _record(written, named)
    elif kind == "array":
        found |= {"type": "array", "items": connect_schema(written["items"], named)}
        if _takes_no_bytes(found["items"]):  # a message of a few bytes could claim billions of them
            raise BadRecordError("it has a list of what takes no bytes")
    elif kind == "map":
        found |= {"type": "map", "keys": {"type": "string"}, "values": connect_schema(written["values"], named)}
    else:
        if "name" in written:
            named[_full_name(written)] = written
        if written.get("size") == 0:
            raise BadRecordError("it has a type of no bytes")
        found |= {"type": written.get("connect.type", _KINDS[kind])} | _logical(written)
    for name in ("name", "version", "parameters", "default"):
        if f"connect.{name}" in written:
            found[name] = written[f"connect.{name}"]
    if isinstance(found.get("parameters"), dict):  # anything else is refused with the whole schema (`normalised`)
        found["parameters"] = {name: str(text) for name, text in found["parameters"].items()}
    return found


def _takes_no_bytes(schema: Mapping[str, Any]) -> bool:
    return schema["type"] == "struct" and not schema["optional"] and all(map(_takes_no_bytes, schema["fields"]))


def _record(written: Mapping[str, Any], named: _Named) -> dict[str, Any]:
    full = _full_name(written)
    if full in named and named[full] is None:
        raise BadRecordError(f"{full} holds itself")
    named[full] = None
    fields = []
    for field in written["fields"]:
        kind = field["type"]
        if isinstance(kind, str) and "." not in kind and "namespace" in written and kind not in _KINDS:
            kind = f"{written['namespace']}.{kind}"
        inner = connect_schema(kind, named)
        if field.get("default") is not None:
            inner.setdefault("default", field["default"])
        fields.append({**inner, "field": field["name"]})
    named[full] = written
    return {"type": "struct", "name": full, "fields": fields}


def _full_name(written: Mapping[str, Any]) -> str:
    name: str = written["name"]
    return name if "." in name or not written.get("namespace") else f"{written['namespace']}.{name}"


def _logical(written: Mapping[str, Any]) -> dict[str, Any]:
    name = written.get("logicalType", "")
    if name == "decimal":
        parameters = {
            "scale": str(written.get("scale", 0)),
            "connect.decimal.precision": str(written["precision"]),
        }
        return {"name": DECIMAL, "version": 1, "parameters": parameters}
    return {"name": _CONNECT + _LOGICAL[name], "version": 1} if name in _LOGICAL else {}


def _without_logical_types(written: Any) -> Any:
    """The same schema, read as its plain types."""
    if isinstance(written, list):
        return [_without_logical_types(inner) for inner in written]
    if not isinstance(written, dict):
        return written
    return {
        name: _without_logical_types(inner) if name in ("type", "fields", "items", "values") else inner
        for name, inner in written.items()
        if name != "logicalType"
    }


def _plain(value: Any) -> Any:
    """A value as Connect's JSON converter writes it."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return _NO_NUMBERS[str(value)]
    return value


def _library() -> Any:
    try:
        return importlib.import_module("fastavro")
    except ImportError as error:
        raise ConfigurationError(
            "value.converter",
            "AvroConverter",
            f"a format whose library is installed ({error})",
            "pip install 'cdc-assets[kafka]'",
        ) from None
