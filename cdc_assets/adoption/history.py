"""The schema history of a connector: which tables it knew at its offset, with which columns.

A file of `FileSchemaHistory`, one JSON record in each line, or the values of its topic, one JSON record over many lines each
(spec debezium-sqlserver §6.1; `KafkaSchemaHistory` indents them). A record counts if its position is not after the offset. Structures themselves are not taken over: the change tables know the
types in which their rows arrive, for rows of any age (`history.structure`).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cdc_assets.adoption.offsets import ConnectorOffset, of_its_form
from cdc_assets.core.identifiers import TableId, parts_of
from cdc_assets.errors import ConfigurationError, InvalidValueError

Columns = tuple[str, ...]
_NULL = "NULL"


def read_history(path: Path, offsets: Mapping[str, ConnectorOffset]) -> dict[TableId, Columns]:
    """Tables of a connector's schema history with their columns, as of its offsets.

    Args:
        path: a file of records, in a line or over many; keys before a record are passed over.
        offsets: by database.

    Raises:
        ConfigurationError: the file cannot be read.
        InvalidValueError: it holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError("schema history", str(path), "a text file of JSON records", str(error)) from error
    with of_its_form("schema history", path):
        return _known_tables(text, offsets)


def _known_tables(text: str, offsets: Mapping[str, ConnectorOffset]) -> dict[TableId, Columns]:
    known: dict[TableId, Columns] = {}
    for record in _records(text):
        database = str(record["source"].get("database") or record.get("databaseName") or "")
        offset = offsets.get(database) or offsets.get("")
        if offset is None or _is_behind(record.get("position") or {}, offset):
            continue
        for table, columns in _changes(record):
            if columns is None:
                known.pop(table, None)
            else:
                known[table] = columns
    return known


def _records(text: str) -> Iterator[Mapping[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while (start := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise _other(text[start:]) from error
        if "source" in value:
            yield value
    if not at and text.strip():
        raise _other(text.strip())


def _other(text: str) -> InvalidValueError:
    return InvalidValueError("schema history", text[:80], "JSON records of Debezium's schema history", "give its file")


def _is_behind(position: Mapping[str, Any], offset: ConnectorOffset) -> bool:
    """Whether a record was made after the offset; LSNs are compared as they are printed, in one width."""
    commit, change = str(position.get("commit_lsn") or _NULL), str(position.get("change_lsn") or _NULL)
    if commit == _NULL or change == _NULL:  # of a snapshot
        return commit != _NULL and commit > str(offset.commit)
    return commit > str(offset.commit) or (
        commit == str(offset.commit) and offset.change is not None and change > str(offset.change)
    )


def _changes(record: Mapping[str, Any]) -> Iterator[tuple[TableId, Columns | None]]:
    for change in record.get("tableChanges") or ():
        parts = parts_of(str(change["id"]))
        if len(parts) == 3:
            table = change.get("table")
            columns = None if table is None else tuple(str(column["name"]) for column in table["columns"])
            yield TableId(*parts), None if change.get("type") == "DROP" else columns
