"""Records an adoption: the tables' structures and positions.

*Why it is right.* Structures must be in the schema history before a run finds positions without them, and a number of
a commit may be used once. So the tables are recorded as not ready together with the use of a number, and their structures are
written under it. Then the tables are recorded with their positions, all databases in one row.

| crash after | next call of adopt | a capture meanwhile |
|---|---|---|
| nothing | begins | takes its first snapshot |
| the first row, or the structures | begins again, with the next number; writes no structure a second time | reads nothing of these tables, and says why; begins with others |
| the second row | refuses: it is done | continues at the positions |

The tables are not read before the second row, so no event can be written twice. Nor can a structure: a call that was believed
dead writes its own before the next call closes its number, which then finds them, or not at all.
"""

from collections.abc import Collection, Iterator

from cdc_assets.adoption.plan import AdoptionPlan
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import InvalidValueError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import CaptureState, TableRead
from cdc_assets.ledger.table_state import INTERRUPTED, TableState
from cdc_assets.shared.instances import instance_of
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.server import Server
from cdc_assets.streaming.structures import WindowStructures


def captured_before(state: CaptureState) -> set[TableId]:
    """Tables that are not adopted, because they have events of this capture, or may have; they stay in topics when their table's
    position is forgotten."""
    reading = {entry.table for run in state.snapshots.values() for entry in run.tables}
    return {table for table, entry in state.tables.items() if not entry.is_half_adopted} | state.early.keys() | reading


def refuse_captured(state: CaptureState, prefix: str, root: str, planned: Collection[TableId] = ()) -> None:
    """Check that nothing was captured before; or, where an adoption was interrupted, nothing of the tables that are adopted.

    Args:
        planned: tables that are to be adopted.

    Raises:
        InvalidValueError: the lake has a capture of this topic prefix, or events of one; or something is in flight.
    """
    if any(entry.is_half_adopted for entry in state.tables.values()):
        if held := state.held_by:  # it has a number in the schema history, which an adoption passes
            raise InvalidValueError(
                "adoption", held, "nothing in flight", "let a run finish it (`cdc-assets capture`), then adopt again"
            )
        if known := sorted(captured_before(state).intersection(planned)):
            raise InvalidValueError(
                "adoption",
                ", ".join(map(str, known)),
                "tables that a run has not captured meanwhile",
                "adopt again; it leaves them as they are",
            )
        return
    if state.tables or state.snapshots or state.pending:
        raise InvalidValueError(
            "topic.prefix",
            prefix,
            f"one without a capture in {root}; this one has {len(state.tables)} tables with positions of its own",
            "continue it with `cdc-assets capture`, or choose another lake.path or topic.prefix",
        )
    if state.early:
        raise InvalidValueError(
            "topic.prefix",
            prefix,
            f"one without events in {root}; this one may have events of {', '.join(map(str, sorted(state.early)))}, "
            "without a position",
            "move the capture away with `cdc-assets reset --capture --yes`, then adopt",
        )


def record(plan: AdoptionPlan, server: Server, lake: Lake, ledger: Ledger) -> None:
    """Record what is planned; the capture must be claimed.

    Raises:
        InvalidValueError: nothing is adopted, or something was captured meanwhile.
        FencedError: another writer has taken over.
        CdcError: the server cannot be read, or the lake cannot be written.
    """
    if not plan.states:
        raise InvalidValueError(
            "adoption", "no table", "a captured table that continues at the position", "see the plan's notes"
        )
    planned = [state.table for state in plan.states]
    refuse_captured(ledger.state, lake.events.topic_prefix, lake.tables.location.root, planned)
    number = ledger.state.next_window
    if number > 1:  # an adoption that was interrupted may still write structures
        lake.history.close(number - 1)
    entries = [entry for entry in _structures(plan, server, lake, ledger) if not _is_written(lake, entry)]
    for entry in entries:
        lake.destination(entry)
    unready = [state.stopped(INTERRUPTED) for state in plan.states]
    ledger.manifest.adopt(ledger.clock.now(), unready, number + 1)
    lake.record(number, entries)
    ledger.manifest.adopt(ledger.clock.now(), plan.states)


def _structures(plan: AdoptionPlan, server: Server, lake: Lake, ledger: Ledger) -> Iterator[HistoryEntry]:
    """The present structure of each table's instance; it fits rows of any age."""
    structures, now = WindowStructures(server, lake, ledger), ledger.clock.now()
    for state in plan.states:
        read = _read(state)
        instance = _instance(server, read)
        schema = structures.arriving(read, instance)
        yield HistoryEntry(
            "ALTER" if lake.history.latest(state.table) else "CREATE",
            schema,
            instance.columns,
            instance.name,
            read.after.next(),
            now,
            made=instance.created,
            change_table_id=instance.change_table_id,
            hidden=lake.hidden(schema, instance.columns),
        )


def _is_written(lake: Lake, entry: HistoryEntry) -> bool:
    """Whether an adoption that was interrupted has written a structure; it fits rows of any age, so any place will do."""
    known = lake.history.latest(entry.table)
    return known is not None and known.identity == entry.identity and known.same_structure(entry)


def _read(state: TableState) -> TableRead:
    """A reading of nothing: the server may have captured nothing behind the position yet."""
    assert state.position is not None and state.instance is not None  # noqa: S101, PT018 - plans have both
    return TableRead(
        state.table,
        state.instance,
        state.position,
        state.position,
        made=state.made,
        change_table_id=state.change_table_id,
    )


def _instance(server: Server, read: TableRead) -> CaptureInstance:
    found = instance_of(read, server.instances(read.table.database, refresh=False)[read.table])
    assert found is not None  # noqa: S101 - the plan was made of it
    return found
