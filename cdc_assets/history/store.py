"""Schema history in the lake: `<prefix>.__schema_history`, and the public topic `<prefix>`.

*Exactly once, and before the data.* Entries of a window or snapshot are committed under its number, like any topic
table, before its first data file is committed. A repetition finds the number there and takes the structures from the
entries instead of querying the server again, whose structure may have changed since; so data and history always agree.

*A number is used once.* Entries are committed only under a number that the history has not passed; a repetition under a
number that is there must bring the same entries. Anything else would be lost without a word, so it is an error; if a writer that was believed
dead has recorded others just before the commit, the next attempt takes these.
A number that is given up without entries is closed first (`close`), so that a writer that was believed dead, and holds
entries of its own, records none under it: the next window records them.

*Public events follow the history.* After a crash between the two commits the newest window's events are not published;
the next run publishes them under the same number when it loads the history, before it does anything else. An entry that
only says that another capture instance is read changes no event, so it is not published.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.config.column_rules import without_hidden_defaults
from cdc_assets.config.settings import EventSettings, HistorySettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.core.schema import InstanceId
from cdc_assets.core.steps import step
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import FencedError, InvariantError, LakeConflictError
from cdc_assets.history.events import build_events
from cdc_assets.history.records import HistoryEntry, debezium_record, key_columns, parse_structure, structure_text
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.replacing import Fence
from cdc_assets.lake.system_topics import history_directory
from cdc_assets.lake.topics import TopicTables

_NO_NULL = False

SCHEMA = pa.schema(
    [
        pa.field("position", pa.string(), _NO_NULL),
        pa.field("database", pa.string(), _NO_NULL),
        pa.field("schema", pa.string(), _NO_NULL),
        pa.field("table", pa.string(), _NO_NULL),
        pa.field("type", pa.string(), _NO_NULL),
        pa.field("commit_lsn", pa.string(), _NO_NULL),
        pa.field("capture_instance", pa.string()),
        pa.field("instance_created", pa.string()),
        pa.field("change_table_id", pa.int64()),
        pa.field("object_id", pa.int64()),
        pa.field("primary_key", pa.list_(pa.string())),
        pa.field("columns", pa.list_(pa.string())),
        pa.field("snapshot", pa.string()),
        pa.field("record", pa.string(), _NO_NULL),
        pa.field("structure", pa.string(), _NO_NULL),
        pa.field("at", pa.timestamp("us", "UTC"), _NO_NULL),
        pa.field("window_id", pa.int64(), _NO_NULL),
    ]
)


class SchemaHistory:
    """Reads and writes the history of one capture; keeps it in memory, because it is small.

    Args:
        tables: the lake's Delta tables.
        events: form of events.
        settings: selection of recorded and published changes.
        connector: identity of the writer of events.
        fence: raises FencedError if another writer has taken over; None if nothing is written.
    """

    def __init__(
        self,
        tables: TopicTables,
        events: EventSettings,
        settings: HistorySettings,
        connector: ConnectorIdentity,
        fence: Fence | None = None,
    ) -> None:
        self.directory = history_directory(events.topic_prefix)
        self._tables = tables
        self._events = events
        self._settings = settings
        self._connector = connector
        self._fence = fence
        self._entries: dict[TableId, list[HistoryEntry]] = defaultdict(list)
        self._windows: dict[int, list[tuple[HistoryEntry | None, HistoryEntry]]] = {}

    def load(self) -> None:
        """Read all entries, and publish those left unpublished by a crash; only for the capture's single writer.

        Raises:
            LakeError: the table exists but cannot be read, or the topic cannot be written.
        """
        self._publish(max((window_id for window_id, _ in self.read()), default=0))

    def read(self) -> Sequence[tuple[int, HistoryEntry]]:
        """Read all entries, with the windows that wrote them.

        Raises:
            LakeError: the table exists but cannot be read.
        """
        self._entries.clear()
        self._windows.clear()
        handle = self._tables.open(self.directory)
        if handle is None:
            return []
        files = self._tables.location.existing(self.directory)
        paths = pa.table(handle.get_add_actions())["path"].to_pylist()
        try:
            rows = [row for path in paths for row in pq.read_table(path, filesystem=files, schema=SCHEMA).to_pylist()]
        except STORE_ERRORS as error:
            hint = "restore the missing file, or set snapshot.mode=recovery to rebuild it"
            raise trouble(f"The schema history {self.directory} cannot be read", error, hint) from error
        rows.sort(key=lambda row: (row["window_id"], row["position"]))
        entries = [(row["window_id"], self._entry(row)) for row in rows]
        for window_id, entry in entries:
            self._remember(entry, window_id)
        return entries

    def _entry(self, row: Mapping[str, Any]) -> HistoryEntry:
        """An entry; without the defaults of columns that are hidden by now, which were recorded before they were."""
        entry = _entry(row)
        return replace(entry, schema=without_hidden_defaults(entry.schema, self._events))

    def _remember(self, entry: HistoryEntry, window_id: int) -> None:
        previous = self.latest(entry.table)
        self._entries[entry.table].append(entry)
        self._windows.setdefault(window_id, []).append((previous, entry))

    def written(self, window_id: int) -> bool:
        """Whether the entries of a window are committed."""
        return window_id in self._windows

    def is_closed(self, window_id: int) -> bool:
        """Whether no entries can be recorded under a number, because some are, or because it was given up.

        Raises:
            LakeError: the table cannot be read.
        """
        return self.written(window_id) or self._tables.left_out(self.directory, window_id)

    def close(self, window_id: int) -> bool:
        """Make sure that nothing is recorded under a number any more; entries of another writer are read and published.

        Returns:
            Whether another writer had recorded some since this one read the history.

        Raises:
            LakeError: the lake cannot be written.
            LakeConflictError: other writers committed first too often.
        """
        if self.written(window_id):
            return False
        self._tables.ensure(self.directory, SCHEMA)
        if self._tables.leave_out(self.directory, window_id):
            return False
        self.read()
        self._publish(window_id)
        return self.written(window_id)

    def recorded(self, window_id: int) -> Sequence[tuple[HistoryEntry | None, HistoryEntry]]:
        """The entries of a window, each with its predecessor."""
        return self._windows.get(window_id, [])

    def entries(self, table: TableId) -> Sequence[HistoryEntry]:
        """All entries of a table, oldest first."""
        return self._entries.get(table, [])

    def latest(self, table: TableId) -> HistoryEntry | None:
        """The newest entry of a table, unless it was dropped."""
        entries = self._entries.get(table)
        return entries[-1] if entries and entries[-1].kind != "DROP" else None

    def of_instance(self, table: TableId, instance: InstanceId | None, lsn: Lsn | None = None) -> HistoryEntry | None:
        """The structure with which changes of a capture instance are decoded; entries before a DROP are ignored.

        An entry of another instance of the same name is unknown.

        Args:
            instance: one of its capture instances, or None for a table without.
            lsn: LSN of the first change: the result is the structure valid there, or the oldest of the instance. None
                returns the newest.
        """
        newest = list(itertools.takewhile(lambda entry: entry.kind != "DROP", reversed(self._entries.get(table, []))))
        matching = [entry for entry in newest if entry.identity == instance]
        valid = (entry for entry in matching if lsn is None or entry.lsn <= lsn)
        return next(valid, matching[-1] if matching else None)

    def commit(self, window_id: int, entries: Sequence[HistoryEntry]) -> bool:
        """Write a window's entries and their public events, once each.

        Returns:
            Whether entries were committed; False if there are none or they were committed before.

        Raises:
            FencedError: another writer has closed the number, or passed it without these entries.
            InvariantError: this one has passed it without them.
            LakeError: the lake cannot be written.
            LakeConflictError: another writer has just recorded others under it, which are known now; or other writers
                committed first too often.
        """
        if not entries:
            return False
        new = self._tables.reached(self.directory) < window_id and self._append(window_id, entries)
        if new:
            step("history-recorded")
            for entry in entries:
                self._remember(entry, window_id)
        elif not self._holds(window_id, entries):
            known = self.written(window_id)
            self.read()  # a run that was believed dead may have committed them meanwhile
            if self._tables.left_out(self.directory, window_id):
                raise FencedError(
                    f"{self.directory}: another run has taken over and closed number {window_id}. "
                    "Next: nothing, if a newer run is active; it records the structures with a later window."
                )
            if not self._holds(window_id, entries):
                if self._fence is not None:
                    self._fence()
                if self.written(window_id) and not known:
                    self._publish(window_id)
                    raise LakeConflictError(
                        f"{self.directory}: a run that was believed dead has just recorded other structures under number "
                        f"{window_id}. Next: nothing, it is tried again with those."
                    )
                raise InvariantError(
                    f"{len(entries)} structures cannot be recorded under number {window_id}, which {self.directory} has "
                    "passed. Next: run again, and report this."
                )
        self._publish(window_id)
        return new

    def _append(self, window_id: int, entries: Sequence[HistoryEntry]) -> bool:
        rows = [self._row(entry, number, window_id) for number, entry in enumerate(entries)]
        return self._commit(self.directory, pa.Table.from_pylist(rows, SCHEMA), window_id)

    def _holds(self, window_id: int, entries: Sequence[HistoryEntry]) -> bool:
        """Whether these entries are recorded under a number; the time of recording and the marker `last` may differ."""
        known = [(entry.kind, entry.schema, entry.captured, entry.identity) for _, entry in self.recorded(window_id)]
        return all((entry.kind, entry.schema, entry.captured, entry.identity) in known for entry in entries)

    def _publish(self, window_id: int) -> None:
        topic = self._events.topic_prefix
        news = [entry for previous, entry in self.recorded(window_id) if entry.is_news(previous)]
        if news and self._settings.publish and self._tables.reached(topic) < window_id:
            self._commit(topic, build_events(news, window_id, self._events, self._connector), window_id)

    def _commit(self, directory: str, rows: pa.Table, window_id: int) -> bool:
        metadata = {"window_id": str(window_id), "kind": "schema history"}
        return self._tables.commit(directory, rows.schema, self._write(directory, rows, window_id), window_id, metadata)

    def _write(self, directory: str, table: pa.Table, window_id: int) -> list[DataFile]:
        with TopicWriter(self._tables.location, directory, table.schema, window_id) as writer:
            writer.write(table.to_batches())
        return writer.files

    def _row(self, entry: HistoryEntry, number: int, window_id: int) -> dict[str, object]:
        return {
            "position": f"{Position(entry.lsn, 0, ZERO_LSN, 0)}s{number:08d}",
            "database": entry.table.database,
            "schema": entry.table.schema,
            "table": entry.table.table,
            "type": entry.kind,
            "commit_lsn": str(entry.lsn),
            "capture_instance": entry.instance,
            "instance_created": None if entry.made is None else entry.made.isoformat(),
            "change_table_id": entry.change_table_id,
            "object_id": entry.schema.object_id,
            "primary_key": key_columns(entry),
            "columns": [column.name for column in entry.columns()],
            "snapshot": entry.snapshot,
            "record": json.dumps(debezium_record(entry, self._events.topic_prefix), ensure_ascii=False),
            "structure": structure_text(entry),
            "at": entry.at,
            "window_id": window_id,
        }


def _entry(row: Mapping[str, Any]) -> HistoryEntry:
    """Inverse of `SchemaHistory._row`, except for the marker `last`, which only the snapshot that writes it knows."""
    schema, captured, hidden = parse_structure(row["structure"])
    created = row["instance_created"]
    return HistoryEntry(
        kind=row["type"],
        schema=schema,
        captured=captured,
        instance=row["capture_instance"],
        lsn=Lsn.parse(row["commit_lsn"]),
        at=row["at"],
        snapshot=row["snapshot"],
        made=None if created is None else datetime.fromisoformat(created),
        change_table_id=row["change_table_id"],
        hidden=hidden,
    )
