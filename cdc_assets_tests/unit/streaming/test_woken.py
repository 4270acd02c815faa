"""A run that was believed dead wakes in mid-window, after its successor has left tables behind; and settings that change
while a window is in flight: each event is there once."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance, Column
from cdc_assets.core.steps import listening
from cdc_assets.errors import DatabaseAwayError
from cdc_assets.ledger.manifest import Manifest
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer, plain_schema
from cdc_assets_tests.unit.streaming.sleepers import asleep_at, woken_beside
from cdc_assets_tests.unit.streaming.tables import two_tables

STEPS = ["window-planned", "history-written", "files-written", "table-committed", "transactions-committed"]


def created(config: CaptureConfig, table: TableId) -> list[int]:
    return [event.key for event in events_of(config, table) if event.op == "c"]


def transactions(config: CaptureConfig, *topics: str) -> list[str]:
    rows = [row for topic in topics or ("shop.transaction",) for row in rows_of_topic(config, topic)]
    return sorted(f"{row['value']['status']} {row['value']['id']}" for row in rows)  # type: ignore[index]


@pytest.mark.parametrize("step", STEPS)
def test_table_that_the_successor_left_behind(tmp_path: Path, step: str) -> None:
    """It was altered while the successor read it."""
    server, config, lines, orders = two_tables(tmp_path, transaction_metadata=True)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))

    def succeed() -> None:
        server.altered["dbo_orders"] = server.history[-1].lsn
        successor = make_capture(server, config)
        with cut_at("window-complete"), pytest.raises(PowerCutError):
            successor.stream()
        server.altered.clear()

    asleep_at(step, succeed, lambda: make_capture(server, config).stream())
    server.commit((orders, "insert", 11, "b"))
    assert make_capture(server, config).stream().troubled == ()
    assert (created(config, orders), created(config, lines)) == ([10, 11], [10])
    assert state_of(config).tables[orders].position == server.history[-1].lsn
    told = transactions(config)
    assert len(told) == len(set(told)) == 4


def test_table_that_was_left_behind_stays_behind_in_later_repeats(tmp_path: Path) -> None:
    """The successor died before its window was complete: its own successor could read the table."""
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    with cut_at("window-planned"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.altered["dbo_orders"] = server.history[-1].lsn
    with cut_at("table-committed"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.altered.clear()
    assert make_capture(server, config).stream().troubled == ()
    assert (created(config, orders), created(config, lines)) == ([10], [10])


def test_table_that_was_committed_is_not_left_behind(tmp_path: Path) -> None:
    """It was altered after its commit, and before the run that made it was repeated."""
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    with cut_at("table-committed", 2), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.schemas[orders] = replace(server.schemas[orders], columns=())  # its structure cannot be read
    server.altered["dbo_orders"] = server.history[-1].lsn
    make_capture(server, config).stream()
    assert state_of(config).tables[orders].position == server.history[-1].lsn
    assert (created(config, orders), created(config, lines)) == ([10], [10])


class TwoDatabases(SimulatedServer):
    """A server with two databases and one log."""

    def databases(self) -> Sequence[str]:
        return ["SalesDb", "Other"]

    def user_tables(self, database: str) -> Sequence[TableId]:
        return sorted(table for table in self.schemas if table.database == database)

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        return [
            instance for instance in super().capture_instances(database, known) if instance.table.database == database
        ]

    def low_water_marks(self, database: str) -> Mapping[str, Lsn]:
        return {instance.name: instance.start_lsn for instance in self.capture_instances(database)}

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        mine = {change.lsn for change in self.history if change.table.database == database}
        found = [lsn for lsn in self.transactions if lsn in mine and (after is None or lsn > after)]
        found = found[:limit] if limit else found
        return found[-1] if found else None


def two_databases(path: Path, **changes: object) -> tuple[TwoDatabases, CaptureConfig, TableId, TableId]:
    """A server with a captured table in each of two databases, snapshotted."""
    server = TwoDatabases()
    orders, other = server.create("orders", rows=1), TableId("Other", "dbo", "y")
    server.schemas[other] = replace(plain_schema("y", 901), table=other)
    server.rows[other] = {1: {"id": 1, "note": "one"}}
    server.enable(other, "other_y")
    server.idle_tick()
    config = make_config(str(path), **changes)
    connection = replace(config.connection, databases=("SalesDb", "Other"))
    config = dataclasses.replace(config, connection=connection)
    make_capture(server, config).snapshot()
    return server, config, orders, other


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS[:-1])
@pytest.mark.parametrize("metadata", [False, True])
def test_database_that_the_successor_gave_up(tmp_path: Path, step: str, metadata: bool) -> None:
    server, config, orders, other = two_databases(tmp_path, transaction_metadata=metadata)
    server.commit((orders, "insert", 6, "six"))
    server.commit((other, "insert", 6, "six"))

    def succeed() -> None:
        server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")
        make_capture(server, config).stream()
        server.troubles.clear()

    asleep_at(step, succeed, lambda: make_capture(server, config).stream())
    server.commit((other, "insert", 7, "seven"))
    assert make_capture(server, config).stream().troubled == ()
    assert (created(config, orders), created(config, other)) == ([6], [6, 7])


def test_window_of_an_instance_with_the_same_columns_is_not_read_again(tmp_path: Path) -> None:
    """Its database went away between the window's commit and its completion."""
    server, config, orders, other = two_databases(tmp_path)
    server.enable(other, "other_y2")
    server.commit((other, "insert", 5, "five"))
    make_capture(server, config).stream()
    server.disable("other_y")
    server.commit((orders, "insert", 6, "six"), (other, "insert", 6, "six"))
    with cut_at("table-committed", 2), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, config).stream()
    server.troubles.clear()
    server.commit((other, "insert", 7, "seven"))
    make_capture(server, config).stream()
    assert created(config, other) == [5, 6, 7]
    assert state_of(config).tables[other].gaps == ()


@pytest.mark.parametrize("step", ["window-planned", "files-written", "table-committed", "window-complete"])
def test_setting_that_changes_a_type_while_a_window_is_in_flight(tmp_path: Path, step: str) -> None:
    server = SimulatedServer()
    orders = server.create("orders", captured=False, rows=1)
    schema = server.schemas[orders]
    server.schemas[orders] = replace(schema, columns=(*schema.columns, Column("at", "datetime", 3, length=8)))
    server.kinds["at"] = pa.timestamp("us")
    server.rows[orders][1]["at"] = None
    server.enable(orders)
    server.idle_tick()
    make_capture(server, make_config(str(tmp_path))).snapshot()
    server.commit((orders, "insert", 5, "five"))
    with cut_at(step), pytest.raises(PowerCutError):
        make_capture(server, make_config(str(tmp_path))).stream()
    changed = make_config(str(tmp_path), time_mode="microseconds")
    assert make_capture(server, changed).stream().troubled == ()
    server.commit((orders, "insert", 6, "six"))
    make_capture(server, changed).stream()
    assert created(changed, orders) == [5, 6]
    assert state_of(changed).tables[orders].directory == "shop.SalesDb.dbo.orders@2"


def test_setting_that_changes_a_type_before_a_database_is_given_up(tmp_path: Path) -> None:
    """What its window has committed is where the plan says, not where the settings would have it now."""
    server, config, orders, other = two_databases(tmp_path)
    schema = server.schemas[other]
    server.schemas[other] = replace(schema, columns=(*schema.columns, Column("at", "datetime", 3, length=8)))
    server.kinds["at"] = pa.timestamp("us")
    server.rows[other][1]["at"] = None
    server.enable(other, "other_y2")
    server.idle_tick()
    make_capture(server, config).stream()
    server.disable("other_y")
    server.commit((orders, "insert", 6, "six"), (other, "insert", 6, "six"))
    with cut_at("table-committed", 2), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    changed = replace(config, events=replace(config.events, time_mode="microseconds"))
    server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, changed).stream()
    server.troubles.clear()
    server.commit((other, "insert", 7, "seven"))
    assert make_capture(server, changed).stream().troubled == ()
    assert (created(changed, orders), created(changed, other)) == ([6], [6, 7])


@pytest.mark.parametrize("step", STEPS)
def test_transaction_topic_that_is_renamed_while_a_window_is_in_flight(tmp_path: Path, step: str) -> None:
    server, config, lines, orders = two_tables(tmp_path, transaction_metadata=True)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    with cut_at(step), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    renamed = make_config(str(tmp_path), transaction_metadata=True, transaction_topic="tx")
    make_capture(server, renamed).stream()
    server.commit((orders, "insert", 11, "b"))
    make_capture(server, renamed).stream()
    assert transactions(config) == [f"{status} {server.history[0].lsn}" for status in ("BEGIN", "END")]
    assert len(transactions(config, "shop.tx")) == 2


def test_transaction_topic_that_is_renamed_while_a_database_is_given_up(tmp_path: Path) -> None:
    server, config, orders, other = two_databases(tmp_path, transaction_metadata=True)
    server.commit((orders, "insert", 6, "six"))
    server.commit((other, "insert", 6, "six"))
    with cut_at("transactions-committed"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    renamed = make_config(str(tmp_path), transaction_metadata=True, transaction_topic="tx")
    renamed = replace(renamed, connection=config.connection)
    server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")
    make_capture(server, renamed).stream()
    server.troubles.clear()
    server.commit((orders, "insert", 7, "seven"))
    make_capture(server, renamed).stream()
    told = transactions(config, "shop.transaction", "shop.tx")
    assert len(told) == len(set(told)) == 6


def test_round_of_a_snapshot_that_the_successor_gave_up(tmp_path: Path) -> None:
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path))

    def succeed() -> None:
        server.disable("dbo_lines")
        del server.schemas[lines], server.rows[lines]
        make_capture(server, config).snapshot()

    asleep_at("round-written", succeed, lambda: make_capture(server, config).snapshot())
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3]
    assert events_of(config, lines) == []


def patient(config: CaptureConfig) -> CaptureConfig:
    """Settings of a run that lives until troubles have passed."""
    return replace(config, streaming=replace(config.streaming, idle_timeout_s=100.0))


def recorded(config: CaptureConfig) -> list[str]:
    return sorted(f"{row['type']} {row['table']}" for row in rows_of_topic(config, "shop.__schema_history"))


def test_structure_of_a_table_that_the_successor_left_behind(tmp_path: Path) -> None:
    """Its ALTER is recorded once, by the window that reads it."""
    server, config, lines, orders = two_tables(tmp_path)
    server.add_column(orders, "extra")
    server.enable(orders)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    whole = server.schemas[orders]

    def succeed() -> None:
        del server.schemas[orders]  # its structure cannot be read the first time
        with listening(lambda name: server.schemas.update({orders: whole}) if name == "history-written" else None):
            make_capture(server, patient(config)).stream()

    woken_beside("window-planned", "window-complete", make_capture(server, config).stream, succeed)
    make_capture(server, config).stream()
    assert recorded(config).count("ALTER orders") == 1
    assert (created(config, orders), created(config, lines)) == ([10], [10])


def test_structure_of_a_database_that_the_successor_gave_up(tmp_path: Path) -> None:
    server, config, orders, other = two_databases(tmp_path)
    server.add_column(other, "extra")
    server.enable(other, "other_y2")
    server.commit((orders, "insert", 6, "six"))
    server.commit((other, "insert", 6, "six"))
    server.meanwhile = lambda seconds: server.troubles.clear() if seconds > 40 else None

    def succeed() -> None:
        server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")
        make_capture(server, patient(config)).stream()

    woken_beside("window-planned", "window-complete", make_capture(server, config).stream, succeed)
    make_capture(server, config).stream()
    assert recorded(config).count("ALTER y") == 1
    assert (created(config, orders), created(config, other)) == ([6], [6])


def test_end_of_a_table_that_the_successor_records(tmp_path: Path) -> None:
    """The successor completes the window that has nothing but the DROP, before it finds the table gone."""
    server, config, _, orders = two_tables(tmp_path)
    server.disable("dbo_orders")
    del server.schemas[orders], server.rows[orders]
    server.idle_tick()
    first, successor = make_capture(server, config), make_capture(server, config)
    woken_beside("window-planned", "window-complete", first.stream, successor.stream)
    assert recorded(config).count("DROP orders") == 1


def test_structure_that_a_repeat_could_not_record(tmp_path: Path) -> None:
    """The repeat dies before its window is complete, and the structure can be read again."""
    server, config, lines, orders = two_tables(tmp_path)
    server.add_column(orders, "extra")
    server.enable(orders)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    with cut_at("window-planned"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    whole = server.schemas.pop(orders)
    with cut_at("history-written"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.schemas[orders] = whole
    assert make_capture(server, config).stream().troubled == ()
    assert recorded(config).count("ALTER orders") == 1
    assert (created(config, orders), created(config, lines)) == ([10], [10])


@pytest.mark.parametrize("step", ["files-written", "table-committed"])
def test_transactions_of_a_database_that_the_successor_gave_up(tmp_path: Path, step: str) -> None:
    """The run wakes before the successor has committed those of the other database, and would publish those of both."""
    server, config, orders, other = two_databases(tmp_path, transaction_metadata=True)
    server.commit((orders, "insert", 6, "six"))
    server.commit((other, "insert", 6, "six"))

    def succeed() -> None:
        server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")
        make_capture(server, config).stream()

    woken_beside(step, "window-complete", make_capture(server, config).stream, succeed)
    server.troubles.clear()
    make_capture(server, config).stream()
    told = transactions(config)
    assert len(told) == len(set(told)) == 4
    assert (created(config, orders), created(config, other)) == ([6], [6])


@pytest.mark.parametrize(("step", "times"), [("files-written", 1), ("table-committed", 1), ("table-committed", 2)])
def test_run_that_dies_while_it_gives_up_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    """The number is taken in the topic of transactions, and the manifest does not say so yet."""
    server, config, orders, other = two_databases(tmp_path, transaction_metadata=True)
    server.commit((orders, "insert", 6, "six"))
    server.commit((other, "insert", 6, "six"))
    with cut_at(step, times), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    server.troubles["Other"] = DatabaseAwayError("Database Other is offline.")

    def die(*_: object, **__: object) -> None:
        raise PowerCutError

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "complete", die)
        with pytest.raises(PowerCutError):
            make_capture(server, config).stream()
    server.troubles.clear()
    assert make_capture(server, config).stream().troubled == ()
    told = transactions(config)
    assert len(told) == len(set(told)) == 4
    assert (created(config, orders), created(config, other)) == ([6], [6])
