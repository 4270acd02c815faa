"""The overview of a capture: manifest, lake and server, each read once and only when needed."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from cdc_assets.capture.selection import followed, included_by, unfit
from cdc_assets.capture.unmatched import Existing, Structures, Unmatched, find_unmatched
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.kept import kept
from cdc_assets.core.ran_on import RanOn
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.signal import SignalChannel
from cdc_assets.envelope.naming import topic_name
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import (
    LAKE_ERRORS,
    CdcError,
    ConfigurationError,
    DatabaseAwayError,
    DatabaseRestoredError,
    InvariantError,
    LoginError,
    PreflightError,
)
from cdc_assets.history.drift import Drift
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.audit import Loss, Turns
from cdc_assets.lake.foreign import ForeignCommit
from cdc_assets.lake.system_topics import is_numbered
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.ledger.fold import FOLDING
from cdc_assets.ledger.hindrances import Hindrances, RecordedHindrances
from cdc_assets.ledger.jobs import RecordedJobs
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.upkeep import doubled_versions
from cdc_assets.overview.drift import OverviewSource, drifts
from cdc_assets.overview.foreign import rewritten
from cdc_assets.overview.formatting import without_places
from cdc_assets.overview.server import DatabaseFacts, ask_database
from cdc_assets.overview.tables import (
    LEFT_OUT,
    NEXT_RUN,
    NOT_ENABLED,
    UNREAD,
    DatabaseOverview,
    Headroom,
    TableOverview,
    headroom_of,
    lag_of,
    of_database,
    verdict,
)
from cdc_assets.overview.work import Work
from cdc_assets.shared.losses import audited, other_name, owners, refuse_without_manifest, topic_of
from cdc_assets.signals.watch import channels_of

AUDIT_S = 1.0
"""Time limit in seconds for examining tables of the lake that seem right."""


class CaptureOverview:
    """A capture seen from outside at one moment; all answers are cached.

    Args:
        source: the capture's server; without one, tables are judged by the manifest and the lake only.
        adapters: signal channels that need an external client (Kafka); read only by `asked`.
        audit_s: time limit in seconds for examining tables of the lake that seem right; None examines all of them.
        turns: of somebody who looks again and again.

    Raises:
        LakeError: the manifest cannot be read.
    """

    def __init__(
        self,
        config: CaptureConfig,
        source: OverviewSource | None = None,
        adapters: Iterable[SignalChannel] = (),
        *,
        audit_s: float | None = AUDIT_S,
        turns: Turns | None = None,
    ) -> None:
        self.lake = TopicTables.of(config)
        self.config, self._asked, self.audit_s, self.turns = config, source, audit_s, turns or Turns()
        self._manifest = Manifest(self.lake, config.events.topic_prefix)
        self._rows = self._manifest.rows()
        self.state: CaptureState = FOLDING.state(self._rows)
        self._included, self._adapters = included_by(config), adapters
        self._facts: dict[str, DatabaseFacts] = {}
        self._tables_of = cache(lambda database: self._source.user_tables(database))
        """All user tables of a database, queried once."""

    @property
    def name(self) -> str:
        """Name of the capture."""
        return self.config.name

    @property
    def asks(self) -> bool:
        """Whether there is a server to query."""
        return self._asked is not None

    def rows(self) -> Sequence[Row]:
        """Rows of the manifest that are kept, in order."""
        return self._rows

    @property
    def ran_on(self) -> Mapping[str, RanOn]:
        """Where jobs have run, by kind: those of the newest run that had any of it.

        Raises:
            LakeError: it cannot be read.
        """
        return {**self.state.ran_on, **RecordedJobs(self.lake.location, self.config.events.topic_prefix).read()}

    @kept
    def requests(self) -> Mapping[str, SignalState]:
        """What signals have requested of databases that are read, and no run has finished."""
        signals = self.state.signals.items()
        return {name: one for name, one in signals if self.is_configured(name) and not self.state.log(name).restored}

    def includes(self, table: TableId) -> bool:
        """Whether the settings include a table; what is recorded of others is nobody's trouble any more."""
        return self._included(table)

    def is_read(self, database: str) -> bool:
        """Whether the settings include a table of a database that the manifest knows."""
        return any(table.database == database and self._included(table) for table in self.known)

    def is_configured(self, database: str) -> bool:
        """Whether the settings include a database."""
        return database.lower() in map(str.lower, self.config.connection.databases)

    @kept
    def hindrances(self) -> Mapping[str, Hindrances]:
        """Troubles that only runs can meet, by kind of work.

        Raises:
            LakeError: it cannot be read.
        """
        return RecordedHindrances(self.lake.location, self.config.events.topic_prefix).read()

    # ---- health --------------------------------------------------------------------------------------------------

    @kept
    def known(self) -> Mapping[TableId, TableState]:
        """Tables that the manifest knows.

        Raises:
            LakeError: the manifest is gone, while the lake has topics, or with the whole lake.
        """
        refuse_without_manifest(self.lake, self.state, self._manifest.directory, self.config)
        return self.state.tables

    @property
    def other_name(self) -> ConfigurationError | None:
        """Why runs are refused, if the settings give a topic another name than it has."""
        return other_name(self.state, self.config)

    @kept
    def losses(self) -> Sequence[Loss]:
        """What topics lack, except those of tables that the manifest already reports; the next run records it.

        Raises:
            LakeError: the lake cannot be read.
        """
        found = (
            audited(self.lake, self.state, self.config, seconds=self.audit_s, turns=self.turns) if self.known else {}
        )
        newer = "holds windows that the manifest does not know, which is an older one"
        losses = [result.loss for result in found.values() if result.loss is not None]
        known = {loss.directory for loss in losses}
        windows = {
            name: result.mark.window
            for name, result in found.items()
            if name not in known and result.mark and is_numbered(name, self.config)
        }
        if max(windows.values(), default=-1) < self.state.next_window:
            return losses
        next_window = self._manifest.read().next_window  # a run may have committed meanwhile
        return losses + [Loss(name, newer) for name, window in windows.items() if window >= next_window]

    @property
    def doubled(self) -> Sequence[ForeignCommit]:
        """Commits of other programs that put rows into topics, or former rows into mirrors, a second time.

        Raises:
            LakeError: the lake cannot be read.
        """
        return [commit for commit in self._rewritten if commit.kind != "unclear"]

    @property
    def unclear(self) -> Sequence[ForeignCommit]:
        """Commits of other programs that may have put rows into topics a second time, which the log does not show any more.

        Raises:
            LakeError: the lake cannot be read.
        """
        return [commit for commit in self._rewritten if commit.kind == "unclear"]

    @kept
    def _rewritten(self) -> Sequence[ForeignCommit]:
        lost = {loss.directory for loss in self.losses}
        marks = {name: mark for name, mark in self.state.marks.items() if name not in lost}
        topics = {topic_of(name) for name in self.state.marks}
        versions = doubled_versions(MirrorTables.of(self.config), topics, seconds=self.audit_s)
        return [*rewritten(self.lake, marks, whole=self.audit_s is None), *versions]

    @property
    def foreign(self) -> Sequence[str]:
        """What other programs have appended, removed or rewritten, as runs have found."""
        return [text for _, mark in sorted(self.state.marks.items()) for text in mark.foreign]

    @property
    def losses_of_no_table(self) -> Sequence[Loss]:
        """Losses of the schema history, transaction topics and the like, and of tables that have no state yet."""
        topics = owners(self.state, self.config)
        return [loss for loss in self.losses if topics.get(topic_of(loss.directory)) not in self.known]

    @kept
    def tables(self) -> Sequence[TableOverview]:
        """All captured tables with their problems, sorted by topic; with a server also tables that wait for a snapshot.

        Raises:
            CdcError: the lake cannot be read, or the server is away.
        """
        found = [self._overview_of(state) for state in self.known.values()]
        return sorted([*found, *self._not_snapshotted()], key=lambda table: (table.topic, table.table))

    @property
    def databases(self) -> Sequence[DatabaseOverview]:
        """Databases with captured tables, sorted by name."""
        names = sorted({table.database for table in self.known})
        left = {name: left.known for name, left in self.state.unpublished.items()}
        return [of_database(name, self.tables, self._facts_of(name), left.get(name)) for name in names]

    def _overview_of(self, state: TableState) -> TableOverview:
        table, facts = state.table, self._facts_of(state.table.database)
        topic = self._topic(table)
        losses = [loss for loss in self.losses if topic_of(loss.directory) == topic]
        included = self._included(table)
        is_back = state.status == "excluded" and included
        state = followed(
            state, included=included
        )  # what the settings leave out is not read, whether a run has recorded that or not
        status, reason = verdict(state, losses, facts, streams=self.streams)
        if is_back and status == "healthy":
            status, reason = "waiting", f"the settings include it again; {NEXT_RUN}"
        if not included and status == "failed":  # that it stopped is recorded, for when they include it again
            status, reason = "excluded", f"{LEFT_OUT} {reason}"
        return TableOverview(
            table=table,
            topic=topic,
            status=status,
            reason=reason,
            recorded=state,
            lag_s=lag_of(state.position, facts),
            headroom=headroom_of(state, facts) if facts and self.streams and included else None,
        )

    def _not_snapshotted(self) -> Sequence[TableOverview]:
        """Tables that the settings include and that were never captured; what is not enabled for capture waits for nothing."""
        if self._asked is None:
            return []
        found: dict[TableId, bool] = {}
        for database in self._asked.databases():
            facts = self.facts(database)
            if not facts.problem:
                found |= {table: table in facts.instances or not self.streams for table in self._tables_of(database)}
        new = {table: waits for table, waits in found.items() if table not in self.known and self._included(table)}
        refused = unfit(new, self.known, self.config)
        return [self._new(table, refused.get(table), waits=waits) for table, waits in new.items()]

    def _new(self, table: TableId, refused: CdcError | None, *, waits: bool) -> TableOverview:
        if refused is not None:
            return TableOverview(table, "", "failed", str(refused))
        topic = self._topic(table)
        if not waits:
            return TableOverview(table, topic, "not captured", NOT_ENABLED)
        if unread := self.state.unread.get(table):
            return TableOverview(table, topic, "failed", f"{UNREAD} {unread}")
        return TableOverview(table, topic, "waiting", NEXT_RUN)

    def _topic(self, table: TableId) -> str:
        return topic_name(table, self.config.events)

    def directories(self, topic: str) -> tuple[str, ...]:
        """Delta tables of a topic, oldest generation first; none if Delta cannot read them, which `losses` reports."""
        try:
            return tuple(self.lake.generations(topic)) if topic else ()
        except LAKE_ERRORS:
            return ()

    @kept
    def unmatched(self) -> Sequence[Unmatched]:
        """What matches nothing in lists of the settings; empty if there is no server, or a database cannot be captured now.

        Raises:
            CdcError: the lake cannot be read, or the server is away.
        """
        databases = self._asked.databases() if self._asked else ()
        if not databases or any(self.facts(database).problem for database in databases):
            return []
        tables = [table for database in databases for table in self._tables_of(database)]
        instances = [instance.name for database in databases for instance in self.facts(database).captured]
        captured = [table for table in tables if self._included(table)]
        return find_unmatched(
            self.config, Existing(tables, instances, Structures(self._recorded, self._source, captured))
        )

    @property
    def lacks_structures(self) -> str:
        """Of which tables that stream the schema history has no structure, so that every run ends; empty if of none.

        Raises:
            LakeError: the schema history cannot be read.
        """
        lacking = [
            table for table, state in sorted(self.known.items()) if state.goes_on and not self._history.entries(table)
        ]
        return f"is gone, or has no structure of {', '.join(map(str, lacking[:5]))}" if lacking else ""

    def _recorded(self) -> Iterable[TableSchema]:
        """Newest recorded structures of the captured tables."""
        newest = (self._history.latest(table) for table in self.known)
        return (entry.schema for entry in newest if entry is not None)

    # ---- what the server says ------------------------------------------------------------------------------------

    @property
    def _source(self) -> OverviewSource:
        if self._asked is None:
            raise InvariantError("The overview has no server, and only a server knows the answer. Next: report this.")
        return self._asked

    def facts(self, database: str) -> DatabaseFacts:
        """What the server reports about a database; the name is in the server's letter case.

        Raises:
            RetryableError: the server is away or busy.
        """
        if database not in self._facts:
            self._facts[database] = ask_database(self._source, self.config, self.state, database)
        return self._facts[database]

    def knows(self, database: str) -> bool:
        """Whether there is a server to query, and the database is configured; one that is gone in the settings' letter case."""
        return self._asked is not None and database.lower() in map(str.lower, self._asked.databases())

    def _facts_of(self, database: str) -> DatabaseFacts | None:
        """None if there is no server, or the database is no longer configured."""
        return self.facts(database) if self.knows(database) else None

    def _streaming(self) -> Sequence[str]:
        """Databases with a table that streams, and that the settings include."""
        return sorted(
            {state.table.database for state in self.known.values() if state.streams and self._included(state.table)}
        )

    def problems(self) -> Mapping[str, CdcError]:
        """Databases that are to be read but cannot be captured now, or were restored: those with streaming tables in the
        manifest, those of which a snapshot is in flight, and configured ones of which it knows no table yet, or excluded ones only:
        a new one may wait there.

        Raises:
            RetryableError: the server is away or busy.
        """
        captured = (table for table, state in self.known.items() if state.status != "excluded")
        known = {table.database.lower() for table in captured if self._included(table)}
        unread = [
            name for name in self._source.databases() if name.lower() not in known or name in self.state.snapshots
        ]
        found: dict[str, CdcError] = {}
        for name in sorted({*self._streaming(), *unread}):
            facts = self.facts(name)
            if facts.is_unknown:
                continue
            if facts.problem is not None:
                found[name] = facts.problem
            elif facts.restored:
                found[name] = DatabaseRestoredError(facts.restored)
        return found

    def unanswered(self) -> Mapping[str, str]:
        """Databases of which a replica answered that lags behind what was read, so that nothing is known of them, and what it lacks.

        Raises:
            RetryableError: the server is away or busy.
        """
        asked = {name: self.facts(name) for name in self._asked.databases()} if self._asked is not None else {}
        return {name: without_places(str(facts.problem)) for name, facts in asked.items() if facts.is_unknown}

    def capture_jobs(self) -> Sequence[CaptureJob]:
        """The capture job of every database with a streaming table of which something is known; with the reason if it cannot be read.

        Raises:
            RetryableError: the server is away or busy.
        """
        return self._jobs

    @kept
    def _jobs(self) -> Sequence[CaptureJob]:
        jobs: list[CaptureJob] = []
        for database in self._streaming():
            if self.facts(database).is_unknown:
                continue
            try:
                jobs.append(self._source.capture_job(database))
            except (DatabaseAwayError, LoginError, PreflightError) as error:
                jobs.append(CaptureJob(database, None, None, problem=str(error)))
        return jobs

    def headroom(self) -> Sequence[Headroom]:
        """Headroom of every streaming table that the settings include, sorted by table, except in databases that cannot be captured now
        (`problems`).

        Raises:
            RetryableError: the server is away or busy.
        """
        known = sorted(filter(self._included, self.known)) if self.streams else []
        rooms = [headroom_of(self.known[table], facts) for table in known if (facts := self._facts_of(table.database))]
        return [room for room in rooms if room is not None]

    def drifts(self) -> Sequence[Drift]:
        """Differences between streaming tables and the structure of their events, sorted by table.

        Raises:
            CdcError: the server or the lake cannot be read.
        """
        return self._drifts

    @kept
    def _drifts(self) -> Sequence[Drift]:
        return drifts(self._source, self._history, self.state, lambda database: self.facts(database).captured)

    @kept
    def _history(self) -> SchemaHistory:
        history = SchemaHistory(self.lake, self.config.events, self.config.history, ConnectorIdentity())
        self._entries = [entry for _, entry in history.read()]
        return history

    @property
    def history(self) -> Sequence[HistoryEntry]:
        """Entries of the schema history, in order.

        Raises:
            LakeError: it cannot be read.
        """
        self._history  # noqa: B018 - reads the entries
        return self._entries

    # ---- what a run would do -------------------------------------------------------------------------------------

    @property
    def streams(self) -> bool:
        """Whether the snapshot mode streams changes."""
        return rule_of(self.config.snapshot).streams

    @kept
    def work(self) -> Work:
        """What a run would have to do.

        Raises:
            LakeError: the manifest is gone, so it is not known.
        """
        self.known  # noqa: B018 - refuses
        config = self.config
        channels = channels_of(config, self._adapters)
        return Work(self.state, self._source, rule_of(config.snapshot), config, self._included, channels)
