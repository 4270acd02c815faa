"""What there is to publish: topics of a capture, and the windows that are complete.

*One order.* Windows of the log, rounds of snapshots, incremental rounds and schema changes all take their number from one counter.
Every row holds the number of the commit that brought it. So topics are published by that number: a number of a topic is
published once nothing can be committed to it under that number any more, or under one before it. Heartbeats and notifications have numbers
of their own, which grow with time.

*A database that holds back* (it is away in the middle of a round, or its snapshot cannot begin) holds back its own tables only: each topic of a
table has a number up to which it is complete (`Topic.complete`), by what is in flight of its database. Topics of the whole capture, those
of schema changes and of transactions, have rows of all databases under a number, so they wait for all.

*Among topics* there is an order only where none holds back: a window begins with its schema changes and ends with its transactions
(`Topic.rank`), as a connector sends them. A database that is ahead of another one has its rows published before the schema changes
that they follow, and before BEGIN and END of their transactions. These come when the other database continues. No record depends on that: each is
published with the structure that it has (`Structures`), and consumers of several topics see no order among them anyway.

*Every topic is there before its first number is complete*, for a publisher that has passed a number passes it in all topics. A table
has a state only at the end of its first snapshot, whose rounds are complete long before; so tables of snapshots in flight count, and
those that have READs of one that was given up (`CaptureState.early`). What the lake has of schema changes and transactions is published
whatever the settings say: a publisher may have other ones than the capture, or what it has not published was captured with former ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets.lake.commits import read_commit
from cdc_assets.lake.retained import Retained, retained
from cdc_assets.lake.system_topics import HISTORY, WINDOWS, manifest_directory, topics_of_capture
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.publish.divided import DividedRows, divided_rows
from cdc_assets.publish.offset import entry_of, has_other
from cdc_assets.publish.recorded import RecordedOffset
from cdc_assets.publish.rows import TopicRows
from cdc_assets.publish.shared import OwnRows, own_rows
from cdc_assets.publish.span import Span
from cdc_assets.publish.structures import Structures

_OF_ALL = (WINDOWS, HISTORY)
"""Tables that are no topics."""
_FIRST, _DATA, _LAST = 0, 1, 2
_RANKS = {"schema_changes": _FIRST, "transactions": _LAST}
_OWN_NUMBERS = ("heartbeat", "notifications")
_IN_FIRST_PARTITION = ("schema_changes", "heartbeat")
"""Topics of whose records the connector chooses the partition, whatever their keys are."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is published.

    Args:
        rank: its place among the topics of a window that is published in all of them: schema changes come before data.
        numbered: whether its commits have the numbers of windows.
        newest: greatest number that the manifest knows of; None if it does not know.
        complete: greatest number under which nothing of it is committed any more, nor under any before it.
        holds: what the topic still holds, as the manifest says.
        in_first_partition: whether all its records go into the first partition, and not where their keys lead.
        structures: what describes its rows; None if its table does.
        own_rows: what keeps the rows that this capture has written; None if no other writes there.
        database: whose rows it has; empty if there are several.
        divided: what keeps the rows after the LSNs of their databases; None if it has no rows of several.
    """

    name: str
    rank: int
    numbered: bool
    newest: int | None
    complete: int
    rows: TopicRows
    holds: Retained
    in_first_partition: bool = False
    structures: Structures | None = None
    own_rows: OwnRows | None = None
    database: str = ""
    divided: DividedRows | None = None

    @property
    def is_of_table(self) -> bool:
        """Whether it holds the events of a captured table."""
        return self.rank == _DATA

    def described(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Rows of it that are published, with the metadata of the structure that they have."""
        if self.structures is None or not len(batch):
            return (batch,)
        return self.structures.parts(self.name, batch)


class Feed:
    """Topics of a capture and their rows.

    Args:
        tables: the lake's Delta tables.
    """

    def __init__(self, config: CaptureConfig, tables: TopicTables) -> None:
        self._config, self._tables = config, tables
        self._manifest = Manifest(tables, config.events.topic_prefix)
        self._state = CaptureState()
        self._rows: dict[str, TopicRows] = {}
        self._structures = Structures(config, tables)

    def lake(self) -> str:
        """Identity of the manifest, as it was read last, which another lake does not have.

        Raises:
            LakeError: nothing was captured yet.
        """
        if self._manifest.identity:
            return self._manifest.identity
        handle = self._tables.open(self._manifest.directory)
        if handle is None:
            raise LakeError(
                f"Nothing captured yet in {self._tables.location.root}. Next: run `cdc-assets capture`, or turn on the sensor."
            )
        return str(handle.metadata().id)

    def read(self) -> tuple[int, Sequence[Topic]]:
        """The greatest number of a window that is complete in all topics, with all before it; and the topics.

        Raises:
            LakeError: the manifest cannot be read, or is not there.
            ConfigurationError: the settings give a topic another name than it has: what it holds would be passed over.
        """
        state = self._state = self._manifest.read()
        self._require_names(state)
        if not self._manifest.identity:  # nothing was captured, or the lake is gone: then it is no older copy
            self._tables.forget(self._manifest.directory)
            self.lake()
        self._structures.expect_more()
        return state.complete_window, self.topics(state)

    def _require_names(self, state: CaptureState) -> None:
        for table, entry in state.tables.items():
            name, former = topic_name(table, self._config.events), entry.directory.partition("@")[0]
            if former and name != former:
                raise ConfigurationError(
                    "topic name",
                    name,
                    f"{former}, which has the events of {table}",
                    "set topic.delimiter and topic.sanitize.pattern as the capture has them",
                )

    def unfinished(self, span: Span) -> str:
        """How far a range is complete in the lake as it was read last, and what holds it; empty if it is up to its end.

        A range up to an LSN is complete once each table that continues is, and no snapshot in flight brings READs with an LSN of it.
        """
        state = self._state
        held = f", and held back by {state.held_by}" if state.held_by else ""
        if span.last is not None and state.complete_window < span.last:
            return f"window {state.complete_window}{held}"
        places = [str(entry.position) for entry in state.tables.values() if entry.goes_on]
        lows = [str(entry.low) for run in state.snapshots.values() for entry in run.tables]
        reached = min(places, default=span.until)
        if span.until and (reached < span.until or min(lows, default="~") <= span.until):
            return f"commit LSN {min([reached, *lows])}{held}"
        return ""

    def entry(self) -> str:
        """The newest entry of the manifest that was read: its number and time, which an entry of another copy does not have."""
        return entry_of(self._manifest.seen[-1]) if self._manifest.seen else ""

    def is_continued(self, entry: str, rows: Iterable[Mapping[str, Any]] | None = None) -> bool:
        """Whether the manifest that was read is an older copy than one with this entry (`start`).

        Args:
            rows: those of the manifest that another has read.

        Raises:
            LakeError: it cannot be read.
        """
        found = has_other(self._manifest.seen if rows is None else rows, entry)
        return self.recorded().is_refused(entry) if found is None else found

    def topics(self, state: CaptureState) -> Sequence[Topic]:
        """The topics of a capture in this state, in the order in which a window's are published."""
        newest = _newest(state)
        complete, databases = self._complete(state), self._databases(state)
        of_table = {topic_name(table, self._config.events): table.database for table in _tables(state)}
        only = databases[0] if len(databases) == 1 else ""
        ranks = dict.fromkeys(complete, _DATA)
        own, first, shared = set[str](), set[str](), dict[str, OwnRows | None]()
        divided = dict[str, DividedRows | None]()
        for kind, topic in topics_of_capture(self._config, newest.keys() - complete.keys()).items():
            shared[topic], divided[topic] = own_rows(kind, self._config), divided_rows(kind, databases)
            if kind not in _OF_ALL:
                ranks[topic] = _RANKS.get(kind, _LAST)
            if kind in _OWN_NUMBERS:
                own.add(topic)
            if kind in _IN_FIRST_PARTITION:
                first.add(topic)
        found = [
            Topic(
                name,
                rank,
                name not in own,
                newest.get(name),
                complete.get(name, state.complete_window),
                self._rows_of(name),
                state.retained.get(name, Retained()),
                name in first,
                self._structures if rank == _DATA else None,
                shared.get(name),
                of_table.get(name, only),
                divided.get(name),
            )
            for name, rank in ranks.items()
        ]
        return sorted(found, key=lambda topic: (topic.rank, topic.name))

    def databases(self) -> Sequence[str]:
        """Names of the databases that the lake has tables of, as it was read last, and of those that are to be captured."""
        return self._databases(self._state)

    def _databases(self, state: CaptureState) -> Sequence[str]:
        named = [*(table.database for table in _tables(state)), *self._config.connection.databases]
        found: dict[str, str] = {}
        for name in named:
            found.setdefault(name.lower(), name)
        return sorted(found.values())

    def _complete(self, state: CaptureState) -> dict[str, int]:
        """Up to which number each topic of a table is complete."""
        numbers: dict[str, int] = {}
        found: dict[str, int] = {}
        for table in _tables(state):
            if (database := table.database) not in numbers:
                numbers[database] = state.complete_window_of(database)
            name = topic_name(table, self._config.events)
            found[name] = min(numbers[database], found.get(name, numbers[database]))
        return found

    def with_holds(self, topic: Topic) -> Topic:
        """A topic with what it holds as its table says now, not as the manifest said when it was read.

        Raises:
            LakeError: the table cannot be read.
        """
        return replace(topic, holds=retained(self._tables, topic.name))

    def changed_topics(self, state: CaptureState) -> set[str]:
        """Topics with commits behind the marked ones, if only by upkeep."""
        location = self._tables.location
        return {
            directory.partition("@")[0]
            for directory, mark in state.marks.items()
            if not mark.timed and read_commit(location, directory, mark.version + 1) is not None
        }

    def commit_stamp(self) -> int | None:
        """A number that changes with each commit of the manifest, at the cost of a system call; None where there is none."""
        location = self._tables.location
        if not location.is_local:
            return None
        commits = Path(location.root) / manifest_directory(self._config.events.topic_prefix) / "_delta_log"
        try:
            return commits.stat().st_mtime_ns
        except OSError:
            return None

    @property
    def drops_events(self) -> bool:
        """Whether topics lose old events, for which retention must know how far they are published."""
        return bool(self._config.lake.topic_hours)

    def recorded(self) -> RecordedOffset:
        """Where the lake records how far topics are published."""
        return RecordedOffset(self._tables.location, self._config.events.topic_prefix)

    def forget(self) -> None:
        """Open tables again the next time; reads nothing now, since the lake may be away."""
        self._tables.forget_all()

    def _rows_of(self, name: str) -> TopicRows:
        return self._rows.setdefault(name, TopicRows(self._tables, name))


def _tables(state: CaptureState) -> Iterator[TableId]:
    """All tables that may have events in the lake."""
    yield from state.tables
    yield from state.early
    for run in state.snapshots.values():
        yield from (entry.table for entry in run.tables)


def _newest(state: CaptureState) -> dict[str, int]:
    """Greatest number of a commit by topic, over its generations."""
    found: dict[str, int] = {}
    for directory, mark in state.marks.items():
        topic, at, number = directory.rpartition("@")
        name = topic if at and number.isdigit() else directory
        found[name] = max(found.get(name, -1), mark.window)
    return found
