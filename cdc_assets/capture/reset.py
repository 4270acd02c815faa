"""Forgets what a capture knows of some tables, or of all, so that the next run starts over with them.

*A table.* One row of the manifest removes its state; before that row nothing has changed, after it `snapshot.mode`
applies as to a table that was never captured. Its topic keeps its events. READs of the new snapshot sort after them,
because a snapshot's low watermark is not below a position that was read on the same recovery fork; so a table of a
restored database, and one that something in flight refers to, is refused. The same row remembers where the topic ends
and what it lacks (`EarlyReads`), so changes up to the new snapshot are reported as a gap, and former gaps stay. The topic is compared
before with what it must hold, and by each run until the table has a state again.

*A whole capture.* Its Delta tables are moved to `<lake>/__reset/<prefix>-<time>/`: the schema history first, without
which no run works, and the manifest last, whose claim fences other writers; then a new manifest begins. After a crash in between
runs end with an error until the reset is repeated, which moves what is left and begins the new manifest.

*One writer.* The newest claim in the manifest names its process. While that process lives, or may live on another host, a
reset is refused; with `fence` it is not, and that process ends at its next commit.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_assets.capture.new_lake import NewLake
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import Clock
from cdc_assets.core.processes import host_of, is_gone, is_here, number_of, own_process
from cdc_assets.core.steps import step
from cdc_assets.envelope.naming import topic_name
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.folder import MOVED_TO
from cdc_assets.lake.owners import refuse_unread, tables_of
from cdc_assets.lake.system_topics import history_directory, manifest_directory
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.losses import Losses, clear_topic, owners, topic_of
from cdc_assets.system_topics.notifications import Notifier

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Removal:
    """What a reset of a whole capture moves.

    Args:
        directories: in the order in which they are moved.
        target: folder that they are moved to.
        unread: those of them that cannot be read, and are the capture's by their names.
    """

    directories: tuple[str, ...]
    target: str
    unread: tuple[str, ...] = ()


class Reset:
    """Resets one capture; reads only the lake, not the server.

    Args:
        others: Delta tables that commit under other names and belong to the capture, such as its mirrors.
    """

    def __init__(self, config: CaptureConfig, clock: Clock, others: Sequence[DeltaTables] = ()) -> None:
        self._config, self._clock, self._others = config, clock, others
        self._prefix = config.events.topic_prefix
        self._tables = TopicTables.of(config)
        notifier = Notifier(self._tables, config.notifications, self._prefix)
        self._manifest = Manifest(self._tables, self._prefix, notifier)

    def named(self, names: Sequence[str]) -> list[TableState]:
        """Captured tables named `schema.table` or `db.schema.table`, ignoring letter case.

        Raises:
            ConfigurationError: a name matches no captured table.
            LakeError: the manifest cannot be read.
        """
        states = self._manifest.read().tables
        chosen: list[TableState] = []
        for name in names:
            found = [table for table in states if name.lower() in (table.within_database.lower(), str(table).lower())]
            if not found:
                known = ", ".join(map(str, sorted(states))) or "a captured table, and there is none"
                raise ConfigurationError("table", name, f"one of {known}", "write it as schema.table")
            chosen += [states[table] for table in found]
        return chosen

    def check(self, tables: Sequence[TableId] = (), *, fence: bool = False) -> None:
        """Check that nothing prevents the reset; without tables, of the whole capture.

        Raises:
            LakeError: a run is, or may be, active, or something in flight refers to a table.
        """
        state = self._manifest.read()
        if not fence:
            _refuse_active(state)
        _refuse_in_flight(state, tables)

    def forget(self, tables: Sequence[TableId], *, fence: bool = False) -> None:
        """Forget the positions of tables.

        Raises:
            LakeError: as `check`; or the topic of one of them cannot be made readable again.
            FencedError: another run claimed the capture at the same moment.
        """
        self.check(tables, fence=fence)
        state = self._manifest.claim(self._clock.now())
        _refuse_in_flight(state, tables)  # a run may have begun in between; from now on none commits
        self._losses().before_commit(tables)  # what is lost is known while they have a state
        state = self._manifest.state
        for table in tables:
            if state.tables[table].status != "healthy":
                clear_topic(self._tables, topic_name(table, self._config.events), self._manifest.require_writer)
        for database, left in state.unpublished.items():
            if lacking := sorted({str(read.table) for read in left.reads if read.table in tables}):
                log.warning(
                    "BEGIN and END of transactions of database %s in (%s, %s] will be published without the events of %s.",
                    database, left.known, left.until, ", ".join(lacking),
                )  # fmt: skip
        self._manifest.forget(self._clock.now(), tables)

    def _losses(self) -> Losses:
        events, connector = self._config.events, ConnectorIdentity()
        history = SchemaHistory(self._tables, events, self._config.history, connector, self._manifest.require_writer)
        ledger = Ledger(self._manifest, self._clock)
        return Losses(ledger, Lake(self._tables, history, events, connector), self._config)

    def removal(self) -> Removal:
        """What a reset of the whole capture would move.

        Raises:
            LakeError: the lake is an object store, where folders cannot be moved; or it has a table that cannot be read, of which it is
                not known whose it is.
        """
        location = self._tables.location
        history, manifest = history_directory(self._prefix), manifest_directory(self._prefix)
        # a comparison that is half done would be continued with the next mirror, as if that had been compared
        records = (f"{self._prefix}.__{name}" for name in ("signals", "reconciled", "jobs"))
        own = {history, manifest, *records}
        held, unread = tables_of(self._tables, self._others)
        named = [name for name in unread if name not in own and self._is_named(name)]
        refuse_unread(self._tables, [name for name in unread if name not in {*own, *named}])
        found = {*held, *named, *own.intersection(location.directories())}
        rank = {history: 0, manifest: 2}
        ordered = tuple(sorted(found, key=lambda name: (rank.get(name, 1), name)))
        if not location.is_local:
            raise LakeError(
                f"The folders of capture {self._prefix} cannot be moved within {location.root}, an object store. Next: stop "
                f"all runs and move these with the store's own tool, the last one last: {', '.join(ordered)}; or choose "
                "another topic.prefix or lake.path."
            )
        target = f"{location.root}/{MOVED_TO}/{self._prefix}-{self._clock.now():%Y%m%dT%H%M%S}"
        return Removal(ordered, target, tuple(named))

    def has_moved(self) -> bool:
        """Whether a reset has moved a manifest of the capture, so that a lake without its tables is no other one."""
        place = Path(self._tables.location.uri(MOVED_TO))
        return any(place.glob(f"*/{manifest_directory(self._prefix)}"))

    def _is_named(self, directory: str) -> bool:
        """Whether a folder is named as the tables of this capture are."""
        state = self._manifest.read()
        known = {topic_of(name) for name in state.marks} | owners(state, self._config).keys()
        return directory.startswith(f"{self._prefix}.") or topic_of(directory) in known

    def move_away(self, removal: Removal, *, fence: bool = False) -> None:
        """Move all tables of the capture away.

        Raises:
            LakeError: as `check`; or they cannot be moved.
            FencedError: another run claimed the capture at the same moment.
        """
        self.check(fence=fence)
        if manifest_directory(self._prefix) in removal.directories:
            self._manifest.claim(self._clock.now())
        try:
            if removal.directories:
                Path(removal.target).mkdir(parents=True)
            for name in removal.directories:
                Path(self._tables.location.uri(name)).rename(Path(removal.target) / name)
                step("table-moved")
            NewLake.of(self._config).begin()
        except OSError as error:
            raise LakeError(
                f"The capture could not be moved to {removal.target}: {error}. Next: correct that and repeat the reset; "
                "until then no run works."
            ) from error


def _refuse_active(state: CaptureState) -> None:
    writer = state.writer
    if not writer or writer == own_process() or is_gone(writer):
        return
    if is_here(writer):
        raise LakeError(
            f"A run of this capture is active: process {number_of(writer)}. Next: end it (in Dagster stop the sensor "
            "first), then repeat the reset."
        )
    raise LakeError(
        f"The last run of this capture was on host {host_of(writer)}; whether it is active cannot be seen from here. Next: make "
        "sure that it has ended and repeat the reset with --fence, which also ends it at its next commit."
    )


def _refuse_in_flight(state: CaptureState, tables: Sequence[TableId]) -> None:
    for table in tables:
        if reason := _obstacle(state, table):
            raise LakeError(f"{table} cannot be reset: {reason}.")


def _obstacle(state: CaptureState, table: TableId) -> str:
    """What prevents forgetting a table; empty if nothing."""
    finish = "Next: let a run finish it (cdc-assets capture), then repeat the reset"
    if state.log(table.database).restored:
        return (
            "its database was restored, so READs could sort before what is in the lake. Next: request its snapshot "
            "(cdc-assets capture --table), which begins a new history"
        )
    if state.in_flight(table.database) is not None:
        return f"a window of {table.database} is in flight. {finish}"
    run, signals = state.snapshots.get(table.database), state.signals.get(table.database)
    if run is not None and table in [entry.table for entry in run.tables]:
        return f"a snapshot of it is in flight. {finish}"
    if signals is not None and table in [entry.table for entry in signals.queue]:
        return f"an incremental snapshot of it is queued. {finish}, or stop it (cdc-assets signal stop-snapshot)"
    return ""
