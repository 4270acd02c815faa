"""The mirrors of a capture: which there are, and what is known of each."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial

import pyarrow as pa

from cdc_assets.config.filters import Names
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.capture_runner import CaptureRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.core.ran_on import JobAccount
from cdc_assets.core.signal import signal_table
from cdc_assets.envelope.naming import topic_name
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import CdcError, ConfigurationError, FencedError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.audit import Turns
from cdc_assets.lake.events import EventFile
from cdc_assets.lake.placeholders import placeholders
from cdc_assets.lake.reading import newest_position
from cdc_assets.lake.retained import retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.lake.watch import ForeignWatch
from cdc_assets.ledger.hindrances import RecordedHindrances
from cdc_assets.ledger.jobs import RecordedJobs
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.mirror.altered import followed, stops, with_present
from cdc_assets.mirror.apply import Mirrors
from cdc_assets.mirror.audit import seen_losses
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.describe import describe
from cdc_assets.mirror.exact_keys import exact_files
from cdc_assets.mirror.isolation import attempted
from cdc_assets.mirror.ledger import MirrorLedger, MirrorState
from cdc_assets.mirror.missing_rows import MAX_MISSING, MissingRows
from cdc_assets.mirror.steps import Target, is_behind, target_of
from cdc_assets.mirror.upkeep import tidy
from cdc_assets.mirror.work import MirroredTable, StepReport

log = logging.getLogger(__name__)

ALL = "The mirrors"
"""What cannot continue if no mirror can."""
_AUDIT_S = 0.1
"""Seconds for examining the tables of mirrors that are where their topics are; others each time."""
_PASSES = 8
"""Structures of a table that a mirror passes in one call, each with a pass of its own; the next call continues."""


def _ignore(report: StepReport) -> None:
    del report


def check_settings(config: CaptureConfig) -> None:
    """Check that mirrors can be right.

    Raises:
        ConfigurationError: events that they need are skipped.
    """
    if skipped := config.events.skipped_changes:
        raise ConfigurationError(
            "skipped.operations", ",".join(skipped), "no operation that changes rows, since there are mirrors (mirror.enabled)",
            "remove it, or set mirror.enabled to false",
        )  # fmt: skip


def has_mirror(config: CaptureConfig, table: TableId) -> bool:
    """Whether the settings give a table a mirror."""
    return config.mirror.enabled and _is_listed(config, table)


def _is_listed(config: CaptureConfig, table: TableId) -> bool:
    """Whether a table is one of those that have a mirror if mirrors are kept; rows of signal tables are requests."""
    names = Names("mirror.table.include.list", config.mirror.include)
    is_signals = signal_table(config.signals.collections, table.database, [table]) is not None
    return not is_signals and (not names or bool(names.match(table.within_database, str(table))))


class CaptureMirrors:
    """Keeps the mirrors of one capture.

    Args:
        on_step: called after each step of a mirror.
        account: where their jobs are counted; of a run that opens them several times.

    Raises:
        ConfigurationError: see `check_settings`.
    """

    def __init__(
        self,
        config: CaptureConfig,
        runner: TaskRunner,
        clock: Clock,
        *,
        on_step: Callable[[StepReport], None] = _ignore,
        account: JobAccount | None = None,
    ) -> None:
        check_settings(config)
        own = CaptureRunner(runner, config.name, account)
        self._config, self._runner, self._clock = config, own, clock
        self._topics = TopicTables.of(config)
        self.tables = MirrorTables.of(config)
        self.account = own.account
        """Where the mirrors' jobs ran."""
        prefix = config.events.topic_prefix
        self._ledger = MirrorLedger(self.tables.tables, prefix)
        self._manifest = Manifest(self._topics, prefix)
        self._watch = ForeignWatch(self.tables.tables, own, self._ledger.require_writer)
        self._moved: set[str] = set()
        jobs = RecordedJobs(self.tables.location, prefix)

        def note(report: StepReport) -> None:
            self._moved.add(report.topic)
            jobs.write("mirror", self.account)
            on_step(report)

        self._mirrors = Mirrors(self._topics, self.tables, self._ledger, own, clock, note)

    def catch_up(
        self,
        wanted: Sequence[TableId] | None = None,
        *,
        anew: bool = False,
        should_end: Callable[[], bool] = lambda: False,
        suspected: Collection[TableId] = (),
    ) -> Mapping[str, CdcError]:
        """Bring mirrors to where their topics are; then remove what was replaced long ago.

        Args:
            wanted: tables; None takes all that have a mirror by the settings.
            anew: whether they are rebuilt from their topics.
            should_end: asked between two steps.
            suspected: tables whose mirrors may lack something, which is examined whatever time it takes.

        Returns:
            Topics whose mirror could not follow, with the reason.

        Raises:
            ConfigurationError: a wanted table is not captured.
            FencedError: another writer has taken over.
            LakeError: the lake cannot be read or written.
        """
        began, tried = self._clock.now(), list[str]()
        topics = {topic_name(table, self._config.events) for table in suspected}
        try:
            for _ in range(_PASSES):
                found, troubles = self.found(wanted)
                # if it is to end already, no step is tried, and nothing is known of what hindered the last one
                tried = [] if should_end() else [table.topic for table in found]
                troubles |= self._mirrors.catch_up(found, anew=anew, should_end=should_end, suspected=topics)
                anew = False
                if should_end() or not any(one.is_partial and one.topic not in troubles for one in found):
                    break
        except FencedError:
            raise
        except CdcError as error:
            self._record({ALL: error}, [], began)
            raise
        self._record(troubles, tried, began)
        try:
            fence = self._ledger.require_writer
            tidy(self.tables, self._config.lake, self._runner, fence, self._watch, sorted(self._moved))
            self._ledger.vacuum_if_folded(Upkeep(self.tables.tables, self._config.lake))
        except FencedError:  # who has taken over tidies the tables
            pass
        except Exception:
            log.exception("The tables of mirrors could not be tidied; it is tried again after a later step.")
        self._moved.clear()
        return troubles

    def _record(self, troubles: Mapping[str, CdcError], asked: Sequence[str], began: datetime) -> None:
        """Record which mirrors cannot follow, for looks from outside; what is known of the others stays."""
        record = RecordedHindrances(self._topics.location, self._config.events.topic_prefix)
        record.update("mirrors", troubles, {ALL, *asked}, began, self._clock.now())

    def remove(self, table: TableId, lsn: str, keys: pa.Table, window: int | None = None) -> int:
        """Remove rows that the server lacks, though no event says so; to be taken with the mirror's next step.

        Args:
            lsn: that the mirror had reached before the server was read: events behind it win.
            keys: values of the columns of the mirror's key.
            window: that it had read: READs of later ones win, too; None if READs at that LSN do not.

        Returns:
            Number of rows that go: not more than can be kept.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the ledger cannot be written.
        """
        topic = topic_name(table, self._config.events)
        state = self._ledger.claim().get(topic, MirrorState())
        rows: int = min(keys.num_rows, MAX_MISSING - sum(absence.rows for absence in state.absences))
        if rows > 0 and state.step:
            now = self._clock.now()
            absence = MissingRows.of(lsn, int(now.timestamp() * 1_000_000), keys.slice(0, rows), window)
            self._ledger.record_absence(now, topic, absence)
            return rows
        return 0

    def states(self) -> Mapping[str, MirrorState]:
        """How far each mirror has come, by topic.

        Raises:
            LakeError: it cannot be read.
        """
        return self._ledger.read()

    def named(self, names: Sequence[str]) -> list[TableId]:
        """Captured tables named `schema.table`, `db.schema.table` or by their topic, as reports name mirrors, ignoring letter case.

        Raises:
            ConfigurationError: a name matches no captured table.
            LakeError: the manifest cannot be read.
        """
        tables, chosen = sorted(self._manifest.read().tables), list[TableId]()
        known_as = {
            table: {one.lower() for one in (table.within_database, str(table), topic_name(table, self._config.events))}
            for table in tables
        }
        for name in names:
            found = [table for table in tables if name.lower() in known_as[table]]
            if not found:
                known = ", ".join(map(str, tables)) or "none is captured yet"
                raise ConfigurationError("table", name, f"one of {known}", "write it as schema.table")
            chosen += found
        return chosen

    def captured(self, wanted: Collection[TableId]) -> list[TableId]:
        """Those of some tables that have been captured.

        Raises:
            LakeError: the manifest cannot be read.
        """
        return [table for table in sorted(self._manifest.read().tables) if table in wanted]

    def behind(self, turns: Turns | None = None) -> list[str]:
        """Topics that are ahead of their mirrors, or whose mirrors lack data; of these as many are examined each time as there is time for.

        Args:
            turns: of somebody who looks again and again, who finds again what lacked data before.

        Raises:
            LakeError: the lake cannot be read.
        """
        states, captured = self.states(), self._manifest.read()
        tables = {topic_name(table, self._config.events): table for table in self._chosen(captured, None)}
        found = {
            topic
            for topic, table in tables.items()
            if is_behind(states.get(topic, MirrorState()), captured.tables[table], captured.readings.get(table, ()))
        }
        others = tables.keys() - found
        lost = seen_losses(self.tables, self.states, others, seconds=_AUDIT_S, turns=turns or Turns())
        return [topic for topic in tables if topic in found or topic in lost]

    def found(
        self, wanted: Sequence[TableId] | None = None, *, only_keys: bool = False
    ) -> tuple[list[MirroredTable], dict[str, CdcError]]:
        """Tables with a mirror and what is known of them; and topics of which none can be made, with the reason.

        Args:
            only_keys: whether it is of no account which values events show.
        """
        state = self._manifest.read()
        entries = self._entries()
        states = cache(self.states)
        found: list[MirroredTable] = []
        troubles: dict[str, CdcError] = {}
        for table in self._chosen(state, wanted):
            topic = topic_name(table, self._config.events)
            known = entries.get(table, ())
            if only_keys:
                known = [replace(entry, hidden=None) for entry in known]
            one = attempted(topic, troubles, partial(self._found, table, topic, state, known, states))
            if one is not None:
                found.append(one)
                troubles |= {topic: one.halt} if one.halt is not None else {}
        return found, troubles

    def _found(
        self,
        table: TableId,
        topic: str,
        state: CaptureState,
        known: Sequence[HistoryEntry],
        states: Callable[[], Mapping[str, MirrorState]],
    ) -> MirroredTable | None:
        """What is known of a table; None if it has no events yet."""
        drops = [entry.lsn for entry in known if entry.kind == "DROP"]
        readings, entry = state.readings.get(table, ()), state.tables[table]
        target = target_of(entry, _readable(state, table), drops, readings)
        generations = {name: self._schema(name) for name in self._topics.generations(topic)}
        if target is None or not generations:
            return None
        if entry.reads_all is None:  # recorded by an earlier version
            target = replace(target, reads_all=not self._config.snapshot.override_of(table))
        own = _newest_life(known)
        former = [entry for entry in known if entry not in own and entry.kind != "DROP"]

        if own and known[-1].kind != "DROP":
            own = with_present(own, self._config.events, target)
        found = stops(own, self._config.events.message_key_columns, entry.skipped)

        def described(reached: MirrorState) -> MirroredTable:
            known = followed(topic, own, found, target, reached)
            return self._described(topic, generations, known, former, target.position)

        unmade = MirrorState()
        one = described(states().get(topic, unmade) if found else unmade)
        return replace(one, newest=described(unmade)) if one.is_partial else one

    def _described(
        self,
        topic: str,
        generations: Mapping[str, pa.Schema],
        known: tuple[list[HistoryEntry], Target, CdcError | None],
        former: Sequence[HistoryEntry],
        position: str,
    ) -> MirroredTable:
        """A table with the structures that its mirror follows.

        Args:
            known: see `followed`.
            position: commit LSN up to which the topic is complete.
        """
        own, target, halt = known
        about = describe(topic, generations, own, self._config.events, former)
        about = about.with_placeholders([placeholders(self._topics, name) for name in generations])
        files = self._files(list(generations))
        holds = retained(self._topics, topic)  # after the files: what is dropped is announced before it goes
        target = replace(target, complete_after=holds.after, rows_from=holds.rows if about.shape.own_key else "")
        is_partial = halt is None and target.position < position
        if (
            not about.shape.keyed
        ):  # what was read of it later was given up: its READs are of one moment, at which their LSN is
            target = replace(target, read_later=())

        def newest_in(file: EventFile, until: str) -> str:
            directory = about.generations[file.generation].directory
            return newest_position(self._topics.location, directory, file.path, until)

        target, files = exact_files(target, files, about.coarse, len(generations) - 1, newest_in)
        return MirroredTable(topic, about, target, files, is_partial, halt)

    def _chosen(self, state: CaptureState, wanted: Sequence[TableId] | None) -> list[TableId]:
        if wanted is not None:
            for table in wanted:
                if table not in state.tables:
                    raise ConfigurationError(
                        "table",
                        str(table),
                        f"a captured table: {', '.join(map(str, sorted(state.tables)))}",
                        "check its name",
                    )
            return list(wanted)
        return [table for table in sorted(state.tables) if _is_listed(self._config, table)]

    def _entries(self) -> dict[TableId, list[HistoryEntry]]:
        """The schema history by table, oldest first."""
        events = self._config.events
        history = SchemaHistory(self._topics, events, self._config.history, ConnectorIdentity())
        entries: dict[TableId, list[HistoryEntry]] = {}
        for _, entry in history.read():
            entries.setdefault(entry.table, []).append(entry)
        return entries

    def _schema(self, directory: str) -> pa.Schema:
        handle = self._topics.open(directory)
        assert handle is not None  # noqa: S101 - it is a generation that was opened just now
        return pa.schema(handle.schema().to_arrow())

    def _files(self, generations: Sequence[str]) -> tuple[EventFile, ...]:
        """Files of all generations of a topic."""
        found: list[EventFile] = []
        for number, directory in enumerate(generations):
            handle = self._topics.open(directory)
            if handle is None:
                continue
            actions = pa.table(handle.get_add_actions(flatten=True))
            for row in actions.to_pylist():
                least, greatest = row.get("min.position") or "", row.get("max.position") or "~"
                found.append(EventFile(number, row["path"], row["num_records"] or 0, least, greatest))
        return tuple(found)


def _newest_life(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Structures of a table after its last DROP, or those before it while it is gone."""
    drops = [at for at, entry in enumerate(entries) if entry.kind == "DROP"]
    if not drops:
        return list(entries)
    after = list(entries[drops[-1] + 1 :])
    if after:
        return after
    first = drops[-2] + 1 if len(drops) > 1 else 0
    return list(entries[first : drops[-1]])


def _readable(state: CaptureState, table: TableId) -> int:
    """Number of the newest window of which a mirror may know: none of the table's database before it is in flight, for the LSN that a
    step publishes is that of this database only. READs of a table are taken together, once all are committed.

    Those of a table without a key say how many copies of a row there are.
    """
    complete, run = state.complete_window_of(table.database), state.snapshots.get(table.database)
    is_read = run is not None and any(entry.table == table for entry in run.tables)
    return min(complete, run.snapshot_id - 1) if run is not None and is_read else complete
