"""Tables that the settings leave out from one run to the next, and let in again later."""

from pathlib import Path

import pytest

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.identifiers import TableId
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.snapshot.world import World
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn


class Pair:
    """A capture of two tables, both with a first snapshot.

    Args:
        server: empty.
        path: of the lake.
    """

    def __init__(self, server: StandIn, path: Path) -> None:
        self.world = World(server, str(path))
        self.orders, self.lines = self.world.make("orders", 2), self.world.make("lines", 2)
        self.world.snapshot()
        self._key = 10

    def insert(self) -> int:
        """One row into both tables in one transaction; its key."""
        self._key += 1
        values = f"VALUES ({self._key}, 'new')"
        self.world.sql(f"BEGIN TRAN; INSERT INTO dbo.orders {values}; INSERT INTO dbo.lines {values}; COMMIT")
        return self._key

    def leave_out_lines(self) -> None:
        self.world.properties["table.include.list"] = "dbo.orders"

    def let_in_lines(self) -> None:
        del self.world.properties["table.include.list"]

    def created(self, table: TableId) -> list[int]:
        return [event["after"]["id"] for event in self.world.events(table) if event["op"] == "c"]

    def status(self) -> str:
        with self.world.capture() as capture:
            return capture.state().tables[self.lines].status

    def has_news(self) -> bool:
        """Whether the sensor would start a run."""
        with SqlServerSource.of(self.world.config) as source:
            return bool(CaptureOverview(self.world.config, source).work.unread_databases())


@pytest.fixture
def pair(server: StandIn, tmp_path: Path) -> Pair:
    return Pair(server, tmp_path)


@pytest.mark.long
def test_table_that_is_left_out_rests_and_continues_from_its_position(pair: Pair) -> None:
    first = pair.insert()
    pair.world.stream()
    pair.leave_out_lines()
    second = pair.insert()
    assert pair.world.stream().troubled == ()
    assert (pair.created(pair.orders), pair.created(pair.lines)) == ([first, second], [first])
    assert pair.status() == "excluded"
    assert not pair.has_news()

    pair.let_in_lines()
    assert pair.has_news(), "what came meanwhile is read, though nothing is new"
    assert pair.world.stream().troubled == ()
    assert (pair.created(pair.orders), pair.created(pair.lines)) == ([first, second], [first, second])
    assert (pair.status(), pair.has_news()) == ("healthy", False)


def test_what_was_cleaned_up_while_a_table_was_left_out_is_a_gap(pair: Pair) -> None:
    pair.leave_out_lines()
    pair.insert()
    pair.insert()
    pair.world.stream()
    pair.world.sql(
        "DECLARE @l binary(10) = sys.fn_cdc_get_max_lsn(); "
        "EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_lines', @low_water_mark = @l"
    )
    pair.let_in_lines()
    [trouble] = pair.world.stream().troubled
    assert (trouble.table, trouble.status) == (pair.lines, "gap")
    pair.leave_out_lines()
    assert pair.world.stream().troubled == (), "whoever leaves it out does not want to hear of it"


@pytest.mark.long
@pytest.mark.parametrize("step", ["window-planned", "files-written", "table-committed:1", "table-committed:2"])
def test_window_in_flight_is_finished_for_a_table_that_is_left_out_since(pair: Pair, step: str) -> None:
    name, _, times = step.partition(":")
    keys = [pair.insert()]
    with cut_at(name, int(times or 1)), pytest.raises(PowerCutError):
        pair.world.stream()
    pair.leave_out_lines()
    keys.append(pair.insert())
    pair.world.stream()
    assert (pair.created(pair.orders), pair.created(pair.lines)) == (keys, keys[:1])
    pair.let_in_lines()
    pair.world.stream()
    assert pair.created(pair.lines) == keys


@pytest.mark.long
def test_snapshot_by_hand_keeps_the_position_of_a_table_that_is_left_out(pair: Pair) -> None:
    pair.leave_out_lines()
    key = pair.insert()
    pair.world.stream()
    assert pair.world.snapshot([pair.lines]).tables == (pair.lines,)
    assert pair.world.reads(pair.lines) == [1, 2, 1, 2, key]
    pair.let_in_lines()
    pair.world.stream()
    assert pair.created(pair.lines) == [key]


@pytest.mark.long
def test_end_of_a_table_that_is_left_out_is_reported_when_it_is_let_in_again(pair: Pair) -> None:
    pair.leave_out_lines()
    pair.insert()
    pair.world.stream()
    pair.world.sql(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'lines', @capture_instance = N'all'"
    )
    pair.world.sql("INSERT INTO dbo.orders VALUES (99, 'x')")
    assert pair.world.stream().troubled == ()
    dropped = [
        row["table"] for row in rows_of_topic(pair.world.config, "shop.__schema_history") if row["type"] == "DROP"
    ]
    assert dropped == []
    pair.let_in_lines()
    [trouble] = pair.world.stream().troubled
    assert (trouble.table, trouble.status) == (pair.lines, "failed")
