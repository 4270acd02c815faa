"""Which capture instance holds which part of a table's log.

A table has at most two instances. The *newest* one holds the
changes from its `start_lsn` on; earlier changes come from the older one. So
the hand-over is exactly at the newer instance's start LSN, also inside a window
(spec sqlserver-cdc §1.4 no. 34): each change is read from one instance only,
and none is left out.

The newest one is that with the greater `start_lsn`. It is the *low-water mark* below which rows
are gone, and the clean-up job moves it forward; but it moves all marks to the same LSN, and leaves
those that are greater, so it never turns their order round. Two with equal marks hold the same
changes; of these the one that was made later is the newest. Creation time comes second, because it is the server's local
time, which goes back by an hour each autumn. Both can mislead: by a call of `sys.sp_cdc_cleanup_change_table` for the older instance
only, or a clock that was set back. So of two instances that the schema history knows, the one that it has known for longer
is the older: a table never goes back to an instance that it has left.
A snapshot records the newest instance while the stream may be before an older one that nobody has recorded yet. So where what was
recorded later is valid from an earlier LSN, marks and times tell after all.

A *gap* is what no instance has: changes after `position` and before the low
water mark of the instance that should hold them. Bounds are exclusive at the
lower end, so the first change wanted is `position + 1`, and a mark at or below
that is no gap.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cdc_assets.config.filters import Names
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance, InstanceId
from cdc_assets.errors import ConfigurationError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.ledger.state import TableRead
from cdc_assets.ledger.table_state import TableState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes in (after, until] can no longer be read."""

    table: TableId
    after: Lsn
    until: Lsn


def by_table(found: Iterable[CaptureInstance], settings: StreamingSettings) -> dict[TableId, list[CaptureInstance]]:
    """Capture instances by table, in the order in which they are found, without those that the settings leave out or cannot
    judge."""
    include = Names("internal.capture.instance.include.list", settings.instance_include)
    exclude = Names("internal.capture.instance.exclude.list", settings.instance_exclude)
    chosen: dict[TableId, list[CaptureInstance]] = {}
    for instance in found:
        if _is_wanted(instance.name, include, exclude):
            chosen.setdefault(instance.table, []).append(instance)
    return chosen


def _is_wanted(name: str, include: Names, exclude: Names) -> bool:
    try:
        return include.match(name) if include else not exclude.match(name)
    except ConfigurationError as error:  # concerns one instance; the others continue
        _warn_once(f"Capture instance {name} is left out: {error}")
        return False


@lru_cache(maxsize=1000)
def _warn_once(message: str) -> None:
    log.warning("%s", message)


def before(lsn: Lsn) -> Lsn:
    """The greatest LSN below another one."""
    return Lsn.from_int(int(lsn) - 1) if lsn > ZERO_LSN else ZERO_LSN


def by_age(instances: Sequence[CaptureInstance], recorded: Sequence[HistoryEntry] = ()) -> list[CaptureInstance]:
    """Instances of a table, oldest first.

    Args:
        recorded: its structures in the schema history, oldest first.
    """
    first: dict[InstanceId | None, tuple[int, Lsn]] = {}
    for place, entry in enumerate(recorded):
        first.setdefault(entry.identity, (place, entry.lsn))
    if all(instance.identity in first for instance in instances):
        found = sorted(instances, key=lambda instance: first[instance.identity][0])
        lsns = [first[instance.identity][1] for instance in found]
        if lsns == sorted(lsns):
            return found
    return sorted(instances, key=lambda instance: instance.age)


def newest(instances: Sequence[CaptureInstance]) -> CaptureInstance | None:
    """The newest instance, of a table's instances by age; its columns are the table's current structure."""
    return instances[-1] if instances else None


def reads_of(table: TableId, instances: Sequence[CaptureInstance], after: Lsn, until: Lsn) -> list[TableRead]:
    """The reads that cover the changes in (after, until], in order; adjacent and without overlap.

    Args:
        instances: capture instances of this table by age, at least one.
        after: exclusive lower bound.
        until: inclusive upper bound, not below `after`.
    """
    *older, last = instances
    start = before(last.start_lsn)
    if older and start >= until:
        return reads_of(table, older, after, until)
    earlier = reads_of(table, older, after, start) if older and start > after else []
    begin = start if earlier else after
    read = TableRead(table, last.name, begin, until, made=last.created, change_table_id=last.change_table_id)
    return [*earlier, read] if begin < until else earlier


def instance_of(read: TableRead, instances: Sequence[CaptureInstance]) -> CaptureInstance | None:
    """The instance that a read was planned for; None if it is gone, even if another one has its name."""
    return next((instance for instance in instances if instance.identity == read.identity), None)


def gap_of(reads: Sequence[TableRead], marks: Mapping[str, Lsn]) -> Gap | None:
    """The first part of the reads that is no longer on the server; None if all is.

    Args:
        reads: reads of one table, in the order of the log.
        marks: low-water mark of each instance; taken after the data were read if the data are to be trusted.
    """
    for read in reads:
        mark = marks.get(read.instance)
        if mark is not None and before(mark) > read.after:
            return Gap(read.table, read.after, before(mark))
    return None


def gap_behind(state: TableState, instances: Sequence[CaptureInstance]) -> Gap | None:
    """Changes after a table's position that no capture instance has any more; None if it has no instance or position.

    It does not matter how far the log is: what was committed before the newest instance began is in no other one, also while
    nothing was committed since.

    Args:
        state: the table's state in the manifest.
        instances: the table's capture instances now.
    """
    return None if state.position is None else gap_after(state.table, state.position, instances)


def gap_after(table: TableId, position: Lsn, instances: Sequence[CaptureInstance]) -> Gap | None:
    """The same for any LSN."""
    last = newest(instances)
    if last is None:
        return None
    reads = reads_of(table, instances, position, max(position.next(), last.start_lsn))
    return gap_of(reads, {instance.name: instance.start_lsn for instance in instances})


def clip(read: TableRead, after: Lsn, until: Lsn) -> TableRead | None:
    """The part of a read that lies in (after, until], or None."""
    low, high = max(read.after, after), min(read.until, until)
    return dataclasses.replace(read, after=low, until=high) if low < high else None
