"""What the lake says of a capture by an engine: its topics, what is wrong with them, and up to where it is complete."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.history import History, newest_structure
from cdc_assets.connectors.engine.ledger import FOLDING, BatchLedger, BatchState
from cdc_assets.connectors.engine.losses import RESTORE, audited, lost
from cdc_assets.connectors.engine.source import LogPoint, recorded_point
from cdc_assets.connectors.engine.staging import history_directory
from cdc_assets.connectors.engine.topics import table_of, topic_named, topics_of_tables
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.kept import kept
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.errors import LakeError
from cdc_assets.lake.audit import Turns
from cdc_assets.lake.foreign import scan_foreign
from cdc_assets.lake.known import refuse_if_known
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.fenced_log import Row

AUDIT_S = 1.0
"""Time limit in seconds, because somebody waits for the answer."""


@dataclass(frozen=True, slots=True)
class EngineTopic:
    """A topic of a table.

    Args:
        directories: its generations, oldest first.
        batch_id: the last batch that it must hold.
        trouble: what is wrong with it; empty if nothing is.
    """

    topic: str
    table: TableId
    directories: Sequence[str]
    batch_id: int
    trouble: str = ""


class EngineOverview:
    """Reads the ledger and the topic tables; writes and claims nothing.

    Args:
        audit_s: time limit in seconds for examining tables that seem right; None examines all of them.
        turns: of somebody who looks again and again.
    """

    def __init__(
        self,
        config: EngineConfig,
        audit_s: float | None = AUDIT_S,
        turns: Turns | None = None,
    ) -> None:
        self.config, self._audit_s, self._turns = config, audit_s, turns or Turns()
        self.lake = TopicTables(Location.of(config.lake), config.topic_prefix, config.lake)

    @kept
    def rows(self) -> Sequence[Row]:
        """The ledger's newest rows in order.

        Raises:
            LakeError: it cannot be read, or is gone with the whole lake.
        """
        ledger = BatchLedger(self.lake, self.config.topic_prefix)
        if not (rows := ledger.rows()):
            refuse_if_known(self.lake.location, ledger.directory, self.lake.capture)
        return rows

    @kept
    def state(self) -> BatchState:
        """What the ledger says.

        Raises:
            LakeError: it cannot be read.
        """
        return FOLDING.state(self.rows)

    @property
    def known(self) -> bool:
        """Whether anything was captured yet."""
        return self.state.next_batch > 0

    @property
    def is_over(self) -> bool:
        """Whether all is read that is to be: the mode of snapshots reads no log, and a snapshot is recorded only when it is complete."""
        return not self.config.streams and self.state.pending is None and bool(self.state.offsets)

    @property
    def point(self) -> LogPoint | None:
        """Up to which place of the log the lake is complete for sure; None if the connector's offset does not show it.

        A batch that is planned counts only when it is in its tables.
        """
        return None if self.state.pending is not None else recorded_point(self.state)

    @kept
    def topics(self) -> Sequence[EngineTopic]:
        """Topics of tables, by name."""
        batches = self._batches()
        found = []
        for topic in topics_of_tables(batches, self.config):
            own = [directory for directory in batches if directory.partition("@")[0] == topic]
            trouble = next((text for directory in own if (text := self.losses.get(directory))), "")
            found.append(
                EngineTopic(topic, table_of(topic, self.config), own, max(batches[name] for name in own), trouble)
            )
        return found

    @property
    def structures(self) -> Mapping[str, TableSchema]:
        """Structures of tables by topic, as far as their newest events show it."""
        found = {}
        for topic in self.topics:
            for directory in self.lake.generations(topic.topic)[-1:]:
                handle = self.lake.open(directory)
                schema = pa.schema(handle.schema().to_arrow()) if handle else pa.schema([])
                key = tuple(field.name for field in _struct(schema, "key"))
                found[topic.topic] = TableSchema(topic.table, 0, _columns(schema), key)
        return found

    def _batches(self) -> Mapping[str, int]:
        """The last batch of each directory; that of one that is planned and new is -1."""
        planned = self.state.pending.files if self.state.pending else ()
        return dict.fromkeys(planned, -1) | dict(self.state.tables)

    @kept
    def queue(self) -> Sequence[tuple[TableId, str]]:
        """Tables that wait for an incremental snapshot, by the connector's offset, and the key that the first has reached.

        The key is in the connector's own form, so it is reported only that there is one.
        """
        found: list[tuple[TableId, str]] = []
        for offset in self.state.offsets.values():
            try:
                collections = json.loads(offset.get("incremental_snapshot_collections") or "[]")
                names = [str(entry["incremental_snapshot_collections_id"]) for entry in collections]
            except (ValueError, TypeError, KeyError):  # of a connector that records it in another form
                continue
            reached = "(known to the connector)" if offset.get("incremental_snapshot_primary_key") else ""
            own = (table_of(topic_named(name, self.config), self.config) for name in names)
            found += [(table, "" if number else reached) for number, table in enumerate(own)]
        return found

    @kept
    def last_ddl(self) -> tuple[TableId, str, str, datetime] | None:
        """Table, kind, place and time of the newest structure in the connector's schema history; None if it has none."""
        directory = history_directory(self.config.topic_prefix)
        if directory not in self.state.tables or directory in self.losses:
            return None
        history = History(self.lake, self.config.topic_prefix)
        return newest_structure(history.read(self.state.tables[directory])) or newest_structure(history.read())

    @kept
    def losses(self) -> Mapping[str, str]:
        """What the lake lacks, or holds twice, by directory."""
        found = lost(audited(self.lake, self.state, self._audit_s, self._turns))
        for directory, batch_id in self.state.tables.items():
            try:
                reached = self.lake.reached(directory)
            except LakeError as error:
                found[directory] = str(error)
                continue
            if reached < batch_id:
                holds = f"no later one than {reached}" if reached >= 0 else "none"
                found[directory] = (
                    f"The table {directory} must hold batch {batch_id}, and holds {holds}: it was removed or replaced. "
                    f"Next: {RESTORE}."
                )
            elif directory in found:
                continue
            elif doubled := [one for one in scan_foreign(self.lake, directory, -1).commits if one.kind == "doubled"]:
                found[directory] = doubled[0].trouble
        return found


def _columns(schema: pa.Schema) -> tuple[Column, ...]:
    after = _struct(_struct(schema, "value"), "after")
    return tuple(Column(field.name, str(field.type), number, field.nullable) for number, field in enumerate(after, 1))


def _struct(parent: Iterable[pa.Field], name: str) -> Sequence[pa.Field]:
    """The fields of a structure; none if there is no such one."""
    own = next((field.type for field in parent if field.name == name), None)
    return list(own) if own is not None and pa.types.is_struct(own) else []
