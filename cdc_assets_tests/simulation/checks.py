"""The law at the end of a history, and where something is called healthy."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.asked import TurnClock
from cdc_assets_tests.simulation.shared import Shared
from cdc_assets_tests.unit.streaming.law import state_of

_ANY: Final = ((ZERO_LSN, Lsn(b"\xff" * 10)),)
"""Lost changes of which nobody may know yet."""


class Checks(Shared):
    """Holds the lake, mirrors and broker against the server."""

    def remember(self) -> None:
        """What topics hold now; READs are held against the server at once."""
        for table in [*self.tables, *self.signal_tables]:
            self._remember_topic(table)
        self._check_newly_published()

    def note_begin(self) -> None:
        """A snapshot is complete: the capture of its tables has begun."""
        for table, entry in state_of(self.config).tables.items():
            if entry.position is not None:
                self.begun.setdefault(table.database, {}).setdefault(table, entry.position)

    def remember_before(self, name: str) -> None:
        """What a topic holds before files of it are replaced, which may be as soon as they have come."""
        for table in [*self.tables, *self.signal_tables]:
            if self.topic(table) == name.partition("@")[0]:
                try:
                    self._remember_topic(table)
                except AssertionError as wrong:  # the actor at work would take it for an error of its own
                    self.scheduler.accused.append(str(wrong))

    def _remember_topic(self, table: TableId) -> None:
        stamp = self.files.stamp(self.lake, self.topic(table))
        if self._stamps.get(table) == stamp:
            return
        self._stamps[table] = stamp
        known, topic = self.ever.setdefault(table, set()), law.Topic(self.lake, self.topic(table), self.files)
        fresh = [row for row in topic.rows if row["position"] not in known]
        known |= set(topic.positions)
        self.windows.setdefault(table, {}).update((row["position"], row["window_id"]) for row in fresh)
        reads = law.reads_of(fresh)
        self.lost.setdefault(table, set()).update(law.check_columns(self.server, table, fresh))
        if table not in self.touched:
            law.check_reads(self.server, table, reads)
            if table in self.tables and table not in self.server.keyless:
                law.check_read_columns(self.server, table, fresh)
        incremental = {(lsn, row) for (lsn, _, is_so), rows in reads.items() if is_so for row in rows}
        self.reads.setdefault(table, set()).update(incremental)
        if read := [at for at, _, is_so in reads if not is_so]:
            self.read_from[table] = min([*read, self.read_from.get(table, read[0])])

    def _check_newly_published(self) -> None:
        """A mirror is right where it has just said so; it may be made anew before the end."""
        fresh, doubted = set[str](), {self.topic(table) for table in self.doubted}
        for name, *place in law.published_of(self.lake, self.files):
            ever, lsn_and_begin = self.published.setdefault(name, set()), (place[0], place[1])
            if name not in doubted and lsn_and_begin not in ever:
                ever.add(lsn_and_begin)
                fresh.add(name)
        states = self.mirrors().states() if fresh else {}
        for table in self.tables:
            name = self.topic(table)
            known = states.get(name) if name in fresh and table not in self.touched else None  # it may be gone by now
            is_unread = known is not None and not known.begin and table in self.delivered
            if known is not None and known.pending is None and not known.gaps and not is_unread:
                versions = law.versions_of(self.lake, name, self.files)
                law.check_mirror(self.server, versions, table, [known.lsn], f"{table} now", _ANY)

    def check_mirrors_healthy(self, known: Mapping[str, MirrorState]) -> None:
        """What is called healthy has no mirror that lacks rows where it says to be right, unless that is told to be a gap.

        Args:
            known: mirrors when somebody began to look; what others have moved since is not meant.
        """
        state, states = state_of(self.config), self.mirrors().states()
        for table in self.tables:
            entry, mirror = state.tables.get(table), known.get(self.topic(table))
            if entry is None or mirror is None or not mirror.begin or mirror != states.get(self.topic(table)):
                continue
            is_told = any(after < Lsn.parse(mirror.lsn) <= until for after, until in entry.gaps)
            if mirror.pending is None and not (is_told or mirror.gaps or table in self.touched):
                versions = law.versions_of(self.lake, self.topic(table), self.files)
                law.check_mirror(self.server, versions, table, [mirror.lsn], f"healthy, and {table}")

    def mirrors(self) -> CaptureMirrors:
        return CaptureMirrors(self.config, LocalRunner(1), TurnClock(self.server, self.scheduler))

    def check(self) -> None:
        """The law."""
        state, mirrors = state_of(self.config), self.mirrors().states()
        for table in self.tables:
            entry = state.tables[table]
            about = f"{table} ({entry.status}, {entry.position}, gaps {entry.gaps}, {entry.reason})"
            assert entry.status == "healthy", about
            self.check_events(table, entry, about)
            if table not in self.touched:
                self.check_mirror(table, entry, mirrors[self.topic(table)], about)
            law.check_published(self.cluster, self.topic(table), self.ever[table], about)
        for table in self.signal_tables:
            self.check_events(table, state.tables[table], f"{table} ({state.tables[table].status})")
            law.check_published(self.cluster, self.topic(table), self.ever[table], str(table))
        self.check_healthy(self.server.now, self.server.ends, self.lost)

    def check_events(self, table: TableId, entry: TableState, about: str) -> None:
        """Every change is there, or marked as missing; together they make the server's rows."""
        topic = law.Topic(self.lake, self.topic(table), self.files)
        topic.check_once(about)
        if self.config.lake.topic_policy == "delete":
            self._check_kept(table, topic, about)
        first = self.read_from.get(table) or entry.snapshot_lsn or self._first(table)
        assert entry.position is not None
        wanted, held = law.changes_of(self.server, table, first, entry.position), self._held_of(table)
        missing = [at for at in wanted if at not in held]
        unmarked = [at for at in missing if not law.is_told(at, entry.gaps)]
        assert not unmarked, f"{about}: lacks {unmarked[:5]}, which no gap tells"
        if table not in self.hurt:
            assert not missing, f"{about}: lacks {missing[:5]}"
        newest = max([change.lsn for change in self.server.history if change.table == table], default=entry.position)
        assert newest <= entry.position, f"{about}: changes up to {newest} are not read"
        self.check_told(table, entry, self.lost[table], about)
        if self.config.lake.topic_hours == 0 and not self._is_special(table):
            since = max((str(until) for _, until in entry.gaps), default="")  # the table was read again there
            left = self.left.get(table, set())  # READs may lie at the very end of what a restore took
            rows = law.fold(
                [row for row in topic.rows if row["position"][:22] >= since and row["position"] not in left],
                entry.position,
            )
            had = dict(iter(self.server.rows_at(table, entry.position)))
            assert rows == had, f"{about}: the fold is {rows}, the table was {had}"

    def _first(self, table: TableId) -> Lsn:
        """Where the changes begin of a table of which no rows are read."""
        return max(self.server.first_start(table), self.begun.get(table.database, {}).get(table, ZERO_LSN))

    def check_told(self, table: TableId, entry: TableState, lost: Collection[str], about: str) -> None:
        """Events whose changes a restore has taken from the server are marked as such."""
        untold = sorted(at for at in lost if not law.is_told(at, entry.gaps))
        assert not untold, f"{about}: holds {untold[:5]}, which the server has no more, and no gap tells"

    def _held_of(self, table: TableId) -> set[str]:
        """Positions of events that a topic ever held, or another reader has delivered, but for those whose changes the server has
        no more."""
        return (self.ever.get(table, set()) - self.lost.get(table, set())) | self.delivered.get(table, set())

    def _check_kept(self, table: TableId, topic: law.Topic, about: str) -> None:
        """What a topic does not say to have dropped, it holds."""
        folder = self.lake / self.topic(table)
        after = law.dropped_up_to(folder, self.files) if folder.exists() else ""
        gone = sorted(at for at in self.ever[table].difference(topic.positions) if at[:22] > after)
        assert not gone, f"{about}: {gone[:5]} are gone, and the topic says that only those up to {after or 'none'} are"

    def _is_special(self, table: TableId) -> bool:
        """Whether events of a table have no fold by its key."""
        return table in self.signal_tables or table in self.server.keyless or table in self.touched

    def check_mirror(self, table: TableId, entry: TableState, known: MirrorState, about: str) -> None:
        """The mirror is the table, at each LSN that it has ever published since it was made anew last, also if a snapshot was
        still reading then."""
        assert known.lsn >= str(entry.position), f"{about}: the mirror is behind"
        ever = {*self.published[self.topic(table)], (known.lsn, known.begin)}
        published = sorted({lsn for lsn, begin in ever if begin == known.begin or lsn >= known.begin})
        if table in self.doubted:  # who did not know yet what was lost has said so there
            published = [lsn for lsn in published if lsn == known.lsn or not law.is_told(lsn, entry.gaps)]
        versions = law.versions_of(self.lake, self.topic(table), self.files)
        law.check_mirror(self.server, versions, table, published, about, entry.gaps)

    def check_healthy(self, at: datetime, captured: Mapping[str, Lsn], lost: Mapping[TableId, Collection[str]]) -> None:
        """What is called healthy at a moment has every change that was committed two minutes before it and is captured, and tells what
        the server has no more.

        Args:
            lost: positions of what it had no more at that moment.
        """
        due = at - timedelta(minutes=2)
        state = state_of(self.config)
        for table in self.tables:
            first = state.tables.get(table)
            if first is None or first.snapshot_lsn is None:
                continue
            self.check_told(table, first, lost.get(table, ()), f"healthy, and {table}")
            now = law.Topic(self.lake, self.topic(table), self.files).positions
            held = {*now, *self.ever.get(table, ())} - self.lost.get(table, set())
            for change in self.server.history:
                if change.table != table or change.operation == 3 or change.lsn <= first.snapshot_lsn:
                    continue
                if self.server.times[table.database, change.lsn] > due or change.lsn > captured[table.database]:
                    continue
                place = law.place_of(change)
                assert place in held, f"healthy, and {table} lacks {place}"
