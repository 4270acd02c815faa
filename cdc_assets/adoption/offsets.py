"""The offsets of Debezium's SQL Server connector, in the forms in which people have them.

| form | where it is from |
|---|---|
| Java map | `offset.storage.file.filename` of standalone Kafka Connect or of the engine |
| `{"offsets": [{"partition": …, "offset": …}]}` | Kafka Connect's `GET /connectors/<name>/offsets` |
| lines of key and value | the topic `offset.storage.topic`, printed with its keys; the last line of a key counts |
| `{"server": …, "database": …}` and `{"commit_lsn": …}` | written by hand |

All text forms are one rule: JSON values in their order, where each partition is followed by its offset.

*What an offset says* (spec debezium-sqlserver §3.10): the place of the last event that was delivered, as commit LSN,
change LSN and the number of change rows that share both. Without a change LSN, or after a snapshot, everything up to
the commit LSN was delivered. With transaction metadata, BEGIN and the END before it have the place of the event that
follows them and was not delivered (measured); then no event of their transaction is counted. A connector that is started
again at such an offset leaves that event out; this does not.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_assets.adoption.java_map import MAGIC, parse_java_map
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import CdcError, ConfigurationError, InvalidValueError, describe_error
from cdc_assets.shared.instances import before

_NULL = "NULL"
_COUNT = "transaction_data_collection_order_"
_INCREMENTAL = "incremental_snapshot_collections"
_REST = re.compile(r"[^\[{n]*")
"""What may be between two JSON values: white space, tabs, arrows, commas."""

Pair = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]
"""Name of the connector or "", partition, offset; None for one that was deleted."""


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """Where a connector stopped in one database.

    Args:
        commit: commit LSN of the last event.
        change: its change LSN; None if everything up to `commit` was delivered.
        serial: number of change rows up to it that share its commit and change LSN.
        transaction: whether the BEGIN of the transaction was delivered, and perhaps not its END.
        counts: number of delivered events of that transaction, by `database.schema.table`.
        unread: tables of an incremental snapshot that is not finished.
    """

    commit: Lsn
    change: Lsn | None = None
    serial: int = 0
    transaction: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def read_offsets(path: Path, server: str, name: str = "") -> dict[str, ConnectorOffset]:
    """The offsets in a file by database; "" for a connector of an old release, which had one database and did not name it.

    Args:
        path: one of the forms of the module's head.
        server: topic prefix of the connector.
        name: its name, if two connectors with this prefix are in the file.

    Raises:
        ConfigurationError: the file cannot be read, or holds no offset of this server.
        InvalidValueError: it is of another form, or the snapshot of the connector is not finished.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError("offset file", str(path), "a file that can be read", str(error)) from error
    with of_its_form("offset file", path):
        return _of_server(list(_pairs_of(content, path)), server, name, path)


@contextmanager
def of_its_form(what: str, path: Path) -> Iterator[None]:
    """A block that reads what a connector has written.

    Args:
        what: the file, for messages.

    Raises:
        InvalidValueError: the file holds something else.
    """
    try:
        yield
    except CdcError:
        raise
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise InvalidValueError(
            what,
            str(path),
            f"what the connector writes ({describe_error(error)})",
            "copy the whole file; see docs/migration.md",
        ) from error


def _of_server(pairs: Sequence[Pair], server: str, name: str, path: Path) -> dict[str, ConnectorOffset]:
    own = [pair for pair in pairs if pair[1].get("server") == server]
    if not own:
        others = ", ".join(sorted({str(partition.get("server")) for _, partition, _ in pairs})) or "nothing"
        raise ConfigurationError(
            "offset file",
            str(path),
            f"offsets of topic.prefix {server!r}; it holds those of {others}",
            "give the connector's own file, and its topic.prefix",
        )
    connectors = {connector for connector, _, _ in own if connector}
    if len(connectors) > 1:
        if name not in connectors:
            raise ConfigurationError(
                "name", name or None, "one of " + ", ".join(sorted(connectors)), "set it to that of the connector"
            )
        own = [pair for pair in own if pair[0] == name]
    latest = {str(partition.get("database", "")): offset for _, partition, offset in own}
    return {database: _offset(database, offset) for database, offset in latest.items() if offset is not None}


def _pairs_of(content: bytes, path: Path) -> Iterator[Pair]:
    if content.startswith(MAGIC):
        texts = [part for pair in parse_java_map(content) for part in pair]
        values = [None if part is None else json.loads(part) for part in texts]
    else:
        try:
            values = list(_values(content.decode()))
        except UnicodeDecodeError as error:
            raise InvalidValueError("offset file", str(path), "text, or a Java map", "copy the whole file") from error
    wanted: tuple[str, Mapping[str, Any]] | None = None
    for value in _flat(values):
        if wanted is not None:
            yield *wanted, value if isinstance(value, Mapping) else None
            wanted = None
        else:
            wanted = _partition(value)


def _values(text: str) -> Iterator[Any]:
    """The JSON objects, arrays and nulls of a text, in order."""
    decoder, place = json.JSONDecoder(), 0
    while (place := _REST.match(text, place).end()) < len(text):  # type: ignore[union-attr]  # it matches nothing too
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise InvalidValueError(
                "offset file", text[place : place + 80], "JSON of partitions and offsets", "see docs/migration.md"
            ) from error
        yield value


def _flat(values: list[Any]) -> Iterator[Any]:
    """Partitions and offsets of Connect's answer, or of an array of pairs, one after the other."""
    for value in values:
        if isinstance(value, Mapping) and "offsets" in value:
            yield from _flat(value["offsets"])
        elif isinstance(value, Mapping) and "partition" in value:
            yield value["partition"]
            yield value.get("offset")
        elif isinstance(value, list) and _partition(value) is None:
            yield from _flat(value)
        else:
            yield value


def _partition(value: Any) -> tuple[str, Mapping[str, Any]] | None:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and (found := _partition(value[1])):
        return value[0], found[1]
    if isinstance(value, Mapping) and "server" in value:
        return "", value
    return None


def _offset(database: str, offset: Mapping[str, Any]) -> ConnectorOffset:
    kind = str(offset.get("snapshot") or "").upper()
    completed = str(offset.get("snapshot_completed", "")).lower() == "true"
    if kind in ("TRUE", "INITIAL", "BLOCKING") and not completed:
        raise InvalidValueError(
            "offset",
            json.dumps(dict(offset)),
            f"one after a finished snapshot of database {database or 'of the connector'}",
            "let the connector finish its snapshot and stop it then; or do not adopt it, and capture with "
            "snapshot.mode=initial, which reads the tables",
        )
    if "commit_lsn" not in offset:
        raise InvalidValueError("offset", json.dumps(dict(offset)), "a commit_lsn", "copy the connector's whole offset")
    change, commit = offset.get("change_lsn") or _NULL, Lsn.parse(offset["commit_lsn"])
    partly = kind in ("", "INCREMENTAL") and change != _NULL
    transaction = offset.get("transaction_id")
    if partly and transaction and (transaction != str(commit) or not any(key.startswith(_COUNT) for key in offset)):
        return ConnectorOffset(before(commit), unread=_unread(offset.get(_INCREMENTAL)))
    return ConnectorOffset(
        commit,
        Lsn.parse(change) if partly else None,
        int(offset.get("event_serial_no") or 0),
        bool(transaction),
        {key.removeprefix(_COUNT): int(count) for key, count in offset.items() if key.startswith(_COUNT)},
        _unread(offset.get(_INCREMENTAL)),
    )


def _unread(text: Any) -> tuple[str, ...]:
    if not text:
        return ()
    found = json.loads(text) if isinstance(text, str) else text
    return tuple(str(entry.get(f"{_INCREMENTAL}_id", entry)) for entry in found)
