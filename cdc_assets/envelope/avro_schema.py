"""Avro's schema of an Arrow field, as Connect's Avro converter registers it: the same names, the same text.

What Avro lacks is in further properties (`connect.name`, `connect.version`, `connect.parameters`, `connect.default`,
`connect.type`). A record is described where it occurs first and named where it occurs again; a name without its
namespace is in that of the record around it.
"""

import json
import re
from base64 import b64decode

import pyarrow as pa

from cdc_assets.envelope.json_schema import schema_of
from cdc_assets.errors import InvalidValueError
from cdc_assets.typemap.connect import ConnectType, described, element_of

_TYPES = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_CONNECT = "org.apache.kafka.connect.data."
_LOGICAL = {"Decimal": "decimal", "Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}
_NAMESPACE, _NAME = "io.confluent.connect.avro", "ConnectDefault"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE = re.compile(r"\\u00[0-9a-f]{2}")


def avro_schema(field: pa.Field) -> str:
    """The schema as the converter prints it.

    Raises:
        InvalidValueError: a name is none that Avro allows.
    """
    return _Writer().schema(field, "")


class _Writer:
    """Writes one schema; knows the records that it has described."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def schema(self, field: pa.Field, around: str) -> str:
        """A field's schema; a union with null if it is optional.

        Args:
            around: namespace of the record around it.
        """
        connect = described(field)
        plain = self._plain(field, connect, around)
        if not connect.optional:
            return plain
        return f'["null",{plain}]' if connect.default is None else f'[{plain},"null"]'

    def _plain(self, field: pa.Field, connect: ConnectType, around: str) -> str:
        if connect.kind == "struct":
            return self._record(connect, around)
        if connect.kind == "array":
            return _object(f'"type":"array","items":{self.schema(element_of(field), around)}', connect)
        if connect.kind == "map":
            return _object('"type":"map","values":"string"', connect)
        own = _object(f'"type":"{_TYPES[connect.kind]}"{_decimal(connect)}', connect)
        return f'"{_TYPES[connect.kind]}"' if own == f'{{"type":"{_TYPES[connect.kind]}"}}' else own

    def _record(self, connect: ConnectType, around: str) -> str:
        full = connect.name or f"{_NAMESPACE}.{_NAME}"
        namespace, _, name = full.rpartition(".")
        for part in (*namespace.split("."), name) if namespace else (name,):
            if not _WORD.fullmatch(part):
                raise _bad_name(full)
        shown = f'"type":"record","name":"{name}"' + (f',"namespace":"{namespace}"' if namespace != around else "")
        fields = ",".join(self._field(child, namespace) for child in connect.fields)
        described_here = _object(f'{shown},"fields":[{fields}]', connect)
        same = json.dumps([schema_of(child, named=True) for child in connect.fields])
        if full not in self._known:
            self._known[full] = same
            return described_here
        if self._known[full] != same:
            raise InvalidValueError("Avro record", full, "one structure for each name", "use JSON")
        return f'"{name}"' if namespace == around else f'"{full}"'

    def _field(self, field: pa.Field, namespace: str) -> str:
        if not _WORD.fullmatch(field.name):
            raise _bad_name(field.name)
        connect = described(field)
        default = f',"default":{_default(connect)}' if connect.default is not None else ""
        if not default and connect.optional:
            default = ',"default":null'
        return f'{{"name":"{field.name}","type":{self.schema(field, namespace)}{default}}}'


def _object(head: str, connect: ConnectType) -> str:
    """A schema with the properties that keep Connect's."""
    parts = [head]
    if connect.version:
        parts.append(f'"connect.version":{connect.version}')
    if connect.parameters:
        texts = ",".join(f"{_quoted(name)}:{_quoted(text)}" for name, text in connect.parameters)
        parts.append(f'"connect.parameters":{{{texts}}}')
    if connect.default is not None:
        parts.append(f'"connect.default":{_default(connect)}')
    if connect.name:
        parts.append(f'"connect.name":{_quoted(connect.name)}')
    if connect.kind in ("int8", "int16"):
        parts.append(f'"connect.type":"{connect.kind}"')
    logical = _LOGICAL.get(connect.name.removeprefix(_CONNECT)) if connect.name.startswith(_CONNECT) else None
    if logical:
        parts.append(f'"logicalType":"{logical}"')
    return "{" + ",".join(parts) + "}"


def _decimal(connect: ConnectType) -> str:
    if connect.name != f"{_CONNECT}Decimal":
        return ""
    about = dict(connect.parameters)
    return f',"scale":{about["scale"]},"precision":{about.get("connect.decimal.precision", "64")}'


def _default(connect: ConnectType) -> str:
    """A default; bytes as characters of their numbers."""
    if connect.kind == "bytes":
        return _quoted(b64decode(json.loads(connect.default or '""')).decode("latin-1"))
    if connect.kind == "string":
        return _quoted(json.loads(connect.default or '""'))
    return connect.default or "null"


def _quoted(text: str) -> str:
    """As Jackson prints a string: hexadecimal digits of escapes are upper case."""
    return _ESCAPE.sub(lambda found: "\\u" + found[0][2:].upper(), json.dumps(text, ensure_ascii=False))


def _bad_name(name: str) -> InvalidValueError:
    return InvalidValueError(
        "Avro name",
        name,
        "letters, digits and _",
        "set schema.name.adjustment.mode=avro and field.name.adjustment.mode=avro before the first capture, or use JSON",
    )
