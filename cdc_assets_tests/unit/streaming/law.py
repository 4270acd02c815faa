"""The law: a topic table holds every change once, in order, up to its position; what it lacks is marked."""

from collections.abc import Iterator

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets_tests.unit.streaming.lake_reader import Event, events_of
from cdc_assets_tests.unit.streaming.simulation import Change, Row, SimulatedServer

Expected = tuple[str, str | None, int, Row | None, Row | None]
"""Position, operation, key, before, after."""


def state_of(config: CaptureConfig) -> CaptureState:
    return Manifest(TopicTables(Location.of(config.lake), config.name), "shop").read()


def check(server: SimulatedServer, config: CaptureConfig, made: list[CaptureInstance]) -> None:
    """Compare every table's events with the server's log.

    Args:
        server: with its whole history.
        config: of the capture.
        made: all capture instances ever made, as they were then.
    """
    state = state_of(config)
    assert not state.pending
    for table, entry in state.tables.items():
        check_table(server, config, table, entry, [instance for instance in made if instance.table == table])


def check_table(
    server: SimulatedServer, config: CaptureConfig, table: TableId, entry: TableState, made: list[CaptureInstance]
) -> None:
    streamed = [event for event in events_of(config, table) if event.op != "r"]
    assert entry.snapshot_lsn is not None
    assert entry.position is not None
    if entry.status == "healthy":
        assert all(change.lsn <= entry.position for change in server.history if change.table == table)
    else:
        assert entry.reason
        if entry.status == "gap":
            assert entry.gap_after == entry.position
            assert entry.gap_until is not None
            assert entry.gap_until > entry.position
    wanted = [
        change
        for change in server.history
        if change.table == table
        and entry.snapshot_lsn < change.lsn <= entry.position
        and not _in_gap(change.lsn, entry)
    ]
    assert [_seen(event) for event in streamed] == list(_expected(wanted, made))


def _in_gap(lsn: Lsn, entry: TableState) -> bool:
    """Whether a change is marked as lost."""
    return any(after < lsn <= until for after, until in entry.gaps)


def _seen(event: Event) -> Expected:
    return event.position, event.op, event.key, event.before, event.after


def _expected(changes: list[Change], made: list[CaptureInstance]) -> Iterator[Expected]:
    before: Row | None = None
    for change in changes:
        place = f"{change.lsn}/{change.command:08x}/{change.seqval}/{change.operation}"
        row = _visible(change, made)
        key = int(str(change.row["id"]))
        if change.operation == 3:
            before = row
        elif change.operation == 4:
            yield place, "u", key, before, row
        elif change.operation == 2:
            yield place, "c", key, None, row
        else:
            yield place, "d", key, row, None
            yield place + "t", None, key, None, None


def _visible(change: Change, made: list[CaptureInstance]) -> Row:
    """The row with the columns of the instance that serves this LSN."""
    serving = [instance for instance in made if instance.start_lsn <= change.lsn]
    return {name: change.row.get(name) for name in serving[-1].columns}
