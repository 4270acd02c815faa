"""Compares mirrors with the server, some key ranges at a time, beside the stream.

*One group of ranges.* The mirror's LSN is noted, tasks read the ranges from the server and compare them with the mirror
(`tasks`). Where all agree, they do at that LSN or a later one, and no time was lost. Otherwise the mirror must pass
the read: until it has everything that was committed before it (`capture.moment`). If the login may not see what the capture job
does, and nothing is committed, that takes `mirror.reconcile.settle.ms`.
Then a row that differs counts only if the mirror has had it so at no LSN since (`compare`). Differences that remain are
compared once more by a second read of the ranges, because a statement that reads while rows move may miss one. So what
is reported is neither in flight nor an accident of reading, and no lock is held, no isolation level is needed.

*Ranges* are those by which the table was snapshotted. If its leading key is an integer or a date, mirror and server are
cut in the same places, so any number of ranges can be compared by itself. Otherwise only the server can order the
values: then all ranges are one group.

| a crash after | the next comparison |
|---|---|
| reading, comparing | compares the group again; staged rows are removed when it begins |
| the record of rows that go from the mirror | compares the group again; the mirror's next step takes them, in any process |
| the record of the group | continues after it; keys that are to be read again are recorded with it |
| the request for READ events, at the end | may request a second time: a READ too many changes nothing |

Of two comparisons of one table the second waits for its turn (`turn`).
The request is one for all groups, because a table that is queued for an incremental snapshot is not queued again.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.capture_runner import CaptureRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.partitions import ranges_wanted
from cdc_assets.core.ports import BulkSource, Clock, KeyRange, Source, TaskRunner
from cdc_assets.core.ranges import fit
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import LAKE_ERRORS, CaptureNotReadyError, FencedError, LakeConflictError, PreflightError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.jobs import RecordedJobs
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.reconcile.compare import MAX_CHANGED
from cdc_assets.reconcile.differences import Candidates, candidates_of, settled
from cdc_assets.reconcile.progress import Comparisons, Pass, Record
from cdc_assets.reconcile.repair import MAX_KEYS, Repair, request
from cdc_assets.reconcile.subject import Subject, subject_of
from cdc_assets.reconcile.tasks import compare, read
from cdc_assets.reconcile.turn import Turn, Turns
from cdc_assets.shared.moment import Moment

log = logging.getLogger(__name__)

_POLL_S = 0.5
_FIRST_POLL_S = 0.05
"""Of a wait; each pause is twice as long as the one before, since most waits are short and there is one for each group."""
_ATTEMPTS = 10
_READS = 6

OnGroup = Callable[[TableId, Pass], None]


def _ignore(table: TableId, found: Pass) -> None:
    del table, found


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is wanted of a comparison.

    Args:
        ranges: number of key ranges; None for all that are left of the pass.
        repair: whether READ events of differing rows are requested.
        anew: whether a pass that is not complete is given up.
        timeout_s: seconds for which the mirror may take to pass a read, or another comparison of the table to end.
    """

    ranges: int | None = None
    repair: bool = False
    anew: bool = False
    timeout_s: float = 600.0


class Reconciler:
    """Compares mirrors of one capture with the server.

    Args:
        source: control plane.
        bulk: data plane.
        mirrors: brought to where the topics are while this waits for them.
    """

    def __init__(
        self,
        config: CaptureConfig,
        source: Source,
        bulk: BulkSource,
        runner: TaskRunner,
        clock: Clock,
        mirrors: CaptureMirrors,
    ) -> None:
        self._config, self._source, self._bulk = config, source, bulk
        self._runner, self._clock, self._mirrors = CaptureRunner(runner, config.name), clock, mirrors
        self._topics = TopicTables.of(config)
        self._record = Record(Location.of(config.lake), config.events.topic_prefix)
        self._turns = Turns(Location.of(config.lake), config.events.topic_prefix, clock)
        self._jobs = RecordedJobs(Location.of(config.lake), config.events.topic_prefix)
        self.account = self._runner.account
        """Where its jobs ran."""

    def reconcile(self, table: TableId, wishes: Wishes, on_group: OnGroup = _ignore) -> Pass:
        """Compare a table, or some of its key ranges: those after the ones that were compared last.

        Args:
            on_group: called after each group of ranges.

        Returns:
            The pass over the table's ranges, of which these are a part.

        Raises:
            PreflightError: the table is not streamed, or its mirror lacks changes.
            CaptureNotReadyError: the mirror did not pass the read in time, or another comparison of the table did not end.
            CdcError: the server or the lake failed.
        """
        with self._turns.taken(topic_name(table, self._config.events), wishes.timeout_s) as turn:
            return self._reconciled(table, wishes, turn, on_group)

    def _reconciled(self, table: TableId, wishes: Wishes, turn: Turn, on_group: OnGroup) -> Pass:
        self._follow(table)
        subject = self._subject(table)
        known = self._record.read(subject.topic)
        current = self._begun(subject, known, wishes)
        Folder(subject.compared.location, subject.compared.staging).drop()
        whole = subject.column is None
        end = len(current.ranges)
        if wishes.ranges is not None and not whole:
            end = min(end, current.done + wishes.ranges)
        size = end if whole else max(1, self._runner.parallelism)
        while current.done < end:
            chosen = current.ranges[current.done : min(current.done + size, end)]
            current = current.and_also(self._group(table, chosen, wishes, turn, len(current.keys)))
            turn.require()
            self._require_same(table, current)
            known = Comparisons(current, current if current.ended else known.complete)
            self._record.write(subject.topic, known)
            self._jobs.write("reconcile", self.account)
            on_group(table, current)
        if wishes.repair and current.waiting and not self._is_queued(table):
            turn.require()
            request(self._config, Repair(subject.schema, subject.text_columns, current.keys, current.spans))
            current = replace(current, asked=current.asked + current.waiting, waiting=0, keys=(), spans=())
            known = Comparisons(current, current if current.ended else known.complete)
            self._record.write(subject.topic, known)
        return current

    def _is_queued(self, table: TableId) -> bool:
        """Whether an incremental snapshot of the table is still to be done: another request for it would be ignored."""
        signals = self._state().signals.get(table.database)
        queued = signals is not None and any(entry.table == table for entry in signals.queue)
        if queued:
            log.warning(
                "An incremental snapshot of %s is still running, so no second one is requested. Next: when it is done, "
                "run reconcile --repair again.",
                table,
            )
        return queued

    def _begun(self, subject: Subject, known: Comparisons, wishes: Wishes) -> Pass:
        """The pass to continue, or a new one."""
        newest = known.newest
        schema = subject.schema
        same = newest is not None and newest.object_id == schema.object_id and fit(newest.ranges, schema)
        made = self._made(subject.topic)
        if newest is not None and same and newest.made == made and not (newest.ended or wishes.anew):
            return newest
        before = newest.left if newest is not None and same else 0
        began = self._clock.now().isoformat()
        return Pass(schema.object_id, self._ranges(subject), began=began, before=before, made=made)

    def _made(self, topic: str) -> str:
        made = self._mirrors.states()[topic].made
        return made.isoformat() if made is not None else ""

    def _require_same(self, table: TableId, current: Pass) -> None:
        """Check that the mirror is still the one of which earlier ranges were compared.

        Raises:
            CaptureNotReadyError: it was rebuilt meanwhile.
        """
        if self._made(topic_name(table, self._config.events)) != current.made:
            raise CaptureNotReadyError(
                f"The mirror of {table} was rebuilt while it was compared, so nothing is known of the new one. Next: compare again; the "
                "comparison starts over."
            )

    def _ranges(self, subject: Subject) -> tuple[KeyRange, ...]:
        known = self._table(subject.schema.table)
        if known.object_id == subject.schema.object_id and fit(known.ranges, subject.schema):
            return known.ranges
        rows = self._source.row_counts([subject.schema])[subject.schema.table]
        wanted = ranges_wanted(rows, self._config.snapshot.partitions)
        return tuple(self._source.key_ranges(subject.schema, rows, wanted))

    # ---- one group -----------------------------------------------------------------------------------------------

    def _group(self, table: TableId, ranges: Sequence[KeyRange], wishes: Wishes, turn: Turn, named: int) -> Pass:
        """Compare some ranges.

        Args:
            named: number of keys that are to be read again already.
        """
        since, found = self._differing(table, ranges, wishes, turn)
        subject = found.subject
        made = Pass(
            subject.schema.object_id,
            (),
            len(ranges),
            found.rows,
            found.mirrored,
            found.count,
            found.absent,
            first=tuple(found.shown()),
            lsn=since,
            at=self._clock.now().isoformat(),
            doubled=len(found.doubled),
            shared=len(found.shared - found.doubled),
        )
        if wishes.repair and found.absent:
            turn.require()
            made = replace(made, removed=self._removed(table, since, found))
        if not wishes.repair or not found.present:
            return made
        if found.more > found.more_absent or not subject.tells or len(found.texts) + named > MAX_KEYS:
            return replace(made, waiting=found.present, spans=tuple(ranges))
        return replace(made, waiting=found.present, keys=tuple(found.texts))

    def _differing(
        self, table: TableId, ranges: Sequence[KeyRange], wishes: Wishes, turn: Turn
    ) -> tuple[str, Candidates]:
        """What two reads in a row have found that is not in flight, and the LSN that the mirror had before the last one.

        Of a leaf with very many differing rows only the first are checked. If all of these are in flight, nothing is known of the
        others, so the read counts for nothing.

        Raises:
            CaptureNotReadyError: so many rows change all the time.
        """
        earlier: Candidates | None = None
        for _ in range(_READS):
            since, found = self._compared(table, ranges, turn)
            found = self._settled(table, since, found, wishes)
            if earlier is not None:
                found = found.also_in(earlier)
            if not found.is_open and (earlier is not None or not found.any):
                return since, found
            earlier = None if found.is_open else found
        raise CaptureNotReadyError(
            f"More than {MAX_CHANGED:,} rows of a leaf of {table} were changed during each of {_READS} comparisons, so it is not known which "
            "others differ. Next: compare again when less is written, or with fewer key ranges (--ranges)."
        )

    def _removed(self, table: TableId, since: str, found: Candidates) -> int:
        """Remove rows from the mirror that the server lacks; how many."""
        keys = found.absent_keys
        for _ in range(_ATTEMPTS if keys.num_rows else 0):
            with suppress(FencedError):  # a run keeps the mirror at this moment
                removed = self._mirrors.remove(table, since, keys, found.subject.window)
                self._follow(table)
                return removed
            self._clock.sleep(_POLL_S)
        return 0

    def _compared(self, table: TableId, ranges: Sequence[KeyRange], turn: Turn) -> tuple[str, Candidates]:
        """What differs right now, in flight or not, and the LSN that the mirror had before."""
        self._runner.get_ready()
        subject = self._subject(table)
        _require_fit(subject, ranges)
        leaves = subject.leaves(self._mirrors.tables)
        server_time = self._source.server_time()
        low = Lsn.parse(subject.lsn)
        bounds = tuple(leaf.bound for leaf in leaves)
        former = self._state().log(table.database).former
        self._source.leave_forks(table.database, former)
        bulk = self._bulk.reaching(table.database, low, captured=False, left=former)
        tasks = [subject.read_task(entry, low, server_time, bounds, bulk) for entry in ranges]
        try:
            pieces = tuple(
                piece for made in self._runner.run(read, tasks, Job("reconcile", f"read: {table}")) for piece in made
            )
            chosen = subject.compare_tasks(self._mirrors.tables, leaves, pieces, ranges)
            results = self._runner.run(compare, chosen, Job("reconcile", f"compared: {table}"))
        finally:
            with suppress(*LAKE_ERRORS):
                turn.require()  # else what is staged there is its successor's
                Folder(subject.compared.location, subject.compared.staging).drop()
        return subject.lsn, candidates_of(subject, results)

    def _settled(self, table: TableId, since: str, found: Candidates, wishes: Wishes) -> Candidates:
        """Candidates that the mirror has at no LSN since."""
        if not found.any:
            return found
        self._wait(table, wishes)
        return settled(found, since, self._mirrors.tables, self._runner)

    def _wait(self, table: TableId, wishes: Wishes) -> None:
        """Wait until the mirror has passed everything that was committed until now."""
        moment, begun = (
            Moment(self._source, self._clock, table.database, self._config.mirror.settle_s),
            self._clock.elapsed(),
        )
        pause_s = _FIRST_POLL_S
        while True:
            self._follow(table)
            reached = Lsn.parse(self._lsn(table) or str(ZERO_LSN))
            if moment.is_passed(reached):
                return
            waited = (self._clock.elapsed() - begun).total_seconds()
            if waited > wishes.timeout_s:
                raise CaptureNotReadyError(
                    f"The mirror of {table} has reached {reached} and did not catch up with the read of {waited:.0f} s ago, so changes "
                    "in flight look like differences. Next: let the capture run (in Dagster, or cdc-assets capture), "
                    "then compare again; it continues where it was."
                )
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S)

    # ---- what is known -------------------------------------------------------------------------------------------

    def _follow(self, table: TableId) -> None:
        """Bring the mirror to where its topic is.

        Raises:
            CdcError: it cannot follow.
        """
        with suppress(FencedError, LakeConflictError):  # a run keeps it at this moment
            for error in self._mirrors.catch_up([table]).values():
                raise error

    def _lsn(self, table: TableId) -> str:
        return self._mirrors.states().get(topic_name(table, self._config.events), MirrorState()).lsn

    def _state(self) -> CaptureState:
        return Manifest(self._topics, self._config.events.topic_prefix).read()

    def _table(self, table: TableId) -> TableState:
        state = self._state().tables.get(table)
        if state is None:
            raise PreflightError(
                f"{table} is not captured any more: the capture was reset, or the table forgotten, since the comparison began. Next: let the "
                "capture read it again, then compare."
            )
        return state

    def _subject(self, table: TableId) -> Subject:
        """What is known of a table now.

        Raises:
            PreflightError: the table is not streamed, or its mirror lacks changes.
        """
        state, topic = self._table(table), topic_name(table, self._config.events)
        mirror = self._mirrors.states().get(topic)
        if not state.streams:
            raise PreflightError(
                f"{table} is not streamed, so its mirror cannot follow the server: {state.reason or state.status}. "
                "Next: let the capture read it again, then compare."
            )
        if mirror is None or mirror.step == 0:
            raise PreflightError(f"{table} has no mirror yet. Next: cdc-assets mirror {table.within_database}.")
        if mirror.gaps:
            raise PreflightError(
                f"The mirror of {table} lacks changes that were lost, so it differs. Next: cdc-assets capture --table "
                f"{table.within_database} reads the table again."
            )
        schema = self._source.table_schema(table, state.position or ZERO_LSN)
        if schema is None or schema.object_id != state.object_id:
            raise PreflightError(
                f"{table} is gone, or was created again. Next: let the capture find out, then compare again."
            )
        return subject_of(self._config, self._topics, self._mirrors, state, schema, mirror)


def _require_fit(subject: Subject, ranges: Sequence[KeyRange]) -> None:
    """Check that mirror and server are cut by the column by which the ranges were made; by another one, or none, the mirror has rows
    that are in none of them on the server.

    Raises:
        CaptureNotReadyError: the table's key was changed since.
    """
    if ranges[0].column is not None and not fit(ranges, subject.schema):  # one that no column bounds is the whole table
        raise CaptureNotReadyError(
            f"The key of {subject.schema.table} changed while it was compared, so its ranges are no longer those of the table. Next: compare "
            "again; the comparison starts over."
        )
