"""What the tables of incremental snapshots are walked along (spec debezium-sqlserver §9.3), each on the stand-in."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cdc_assets.config.settings import ColumnRule, EventSettings, NotificationSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.core.steps import listening
from cdc_assets.envelope.plan import plan_events
from cdc_assets.errors import LakeError
from cdc_assets.incremental import rounds as incremental_round
from cdc_assets.incremental.chunked_table import chunked_table
from cdc_assets.lake import presence, topics
from cdc_assets.ledger.signal_state import QueuedTable
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets_tests.unit.incremental.stories import CAPTURE, Once, X, ask, ids, orders, scans
from cdc_assets_tests.unit.signals.world import World, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn


@pytest.mark.long
def test_surrogate_key_with_the_same_value_often_and_null(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("log", "kind int NULL, note varchar(20) NULL")
    rows = [f"{number % 5 or 'NULL'}, 'n{number}'" for number in range(200)]
    world.sql(f"INSERT INTO dbo.log VALUES {values(*rows)}")
    world.run("snapshot")
    ask(world, table, surrogate_key="kind")

    def change() -> None:
        world.sql("UPDATE dbo.log SET note = 'changed' WHERE note = 'n7'")

    with listening(Once("chunk-read", change)):
        world.run()
    notes = [row["note"] for row in world.reads(table)]
    assert sorted(note for note in notes if note != "changed") == sorted(f"n{n}" for n in range(200) if n != 7)
    assert scans(world) == ["SUCCEEDED"]


@pytest.mark.long
@pytest.mark.parametrize("when", ["before they are recorded", "when they are recorded"])
def test_rows_whose_files_are_lost_are_not_committed_but_read_again(
    server: StandIn, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_LATE_S", 0.0)
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, note varchar(10)")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {X}' for n in range(50)))}")
    world.run("snapshot")
    ask(world, table)
    topic = tmp_path / f"shop.{table}"
    kept = set(topic.glob("*.parquet"))

    def lose() -> None:
        for path in set(topic.glob("*.parquet")) - kept:
            path.unlink()

    if when == "before they are recorded":
        found = presence.require_files

        def lose_and_look(*places: Any) -> None:
            lose()
            found(*places)

        with monkeypatch.context() as patch:
            patch.setattr(topics, "require_files", lose_and_look)
            with pytest.raises(LakeError, match="not shared"):
                world.run()
    else:

        def crash(_: str) -> None:
            states = world.state().signals.values()
            if any(state.reads is not None and state.reads.files for state in states):
                raise KeyboardInterrupt

        with listening(crash), pytest.raises(KeyboardInterrupt):
            world.run()
        assert set(topic.glob("*.parquet")) > kept
        lose()
    world.run()
    assert ids(world, table) == list(range(50))
    assert scans(world) == ["SUCCEEDED"]


@pytest.mark.long
def test_bad_surrogate_keys_are_reported_and_later_signals_work(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int, doc xml NULL")
    world.sql("INSERT INTO dbo.orders (id, version) VALUES (1, 1)")
    world.run("snapshot")
    ask(world, table, own_id="missing", surrogate_key="nothing")
    ask(world, table, own_id="unordered", surrogate_key="doc")
    world.run()
    ask(world, table, own_id="doc", surrogate_key="doc")
    world.run()
    ask(world, table, own_id="good", surrogate_key="version")
    world.run()
    assert scans(world) == ["SKIPPED", "SKIPPED", "SUCCEEDED"]
    assert ids(world, table) == [1]


def test_rows_are_not_told_by_a_computed_key_of_which_changes_hold_nothing() -> None:
    table = TableId(DATABASE, "dbo", "orders")
    columns = (Column("id", "int", 1, nullable=False), Column("twice", "int", 2, nullable=False, computed=True))
    schema = TableSchema(table, 7, columns, ("twice",))
    settings = EventSettings("shop", message_key_columns=("dbo.orders:id",))
    lake, source = Mock(), Mock()
    plan = plan_events(schema, ("id", "twice"), settings, connector=Mock())
    lake.destination.return_value = plan, "shop.orders"
    source.table_schema.return_value = schema
    state = CaptureState({table: TableState(table, 7, Lsn.from_int(1), "dbo_orders")})
    chunked = chunked_table(state, source, lake, QueuedTable(table, "s1"))
    assert (chunked.identity, chunked.unique) == ((0,), True)


@pytest.mark.long
def test_unique_index_over_nullable_columns(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    world.sql("CREATE TABLE dbo.pairs (a int NULL, b varchar(10) COLLATE Latin1_General_CI_AS NULL, note int)")
    world.sql("CREATE UNIQUE INDEX pairs_key ON dbo.pairs (a, b)")
    world.sql(CAPTURE.format("pairs"))
    table = TableId(DATABASE, "dbo", "pairs")
    keys = [(a, b) for a in (None, 1, 2) for b in [None, *(f"K{n}" for n in range(40))]]
    rows = ["{}, {}, 1".format("NULL" if a is None else a, "NULL" if b is None else f"'{b}'") for a, b in keys]
    world.sql(f"INSERT INTO dbo.pairs VALUES {values(*rows)}")
    world.run("snapshot")
    ask(world, table, surrogate_key="a")
    world.run()
    ask(world, table, own_id="s2")

    def change() -> None:
        world.sql("UPDATE dbo.pairs SET note = 2 WHERE a IS NULL AND b IS NULL OR a = 1 AND b IS NULL")

    with listening(Once("chunk-read", change)):
        world.run()
    found = [(row["a"], row["b"]) for row in world.reads(table)]
    assert sorted(found[: len(keys)], key=str) == sorted(keys, key=str)
    assert sorted(found[len(keys) :], key=str) == sorted(set(keys) - {(None, None), (1, None)}, key=str)


@pytest.mark.long
def test_message_keys_and_conditions_of_each_table(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    events = replace(world.config.events, message_key_columns=("dbo.parts:place",))
    world.config = replace(world.config, events=events)
    parts = world.make("parts", "place varchar(10) NOT NULL, qty int")
    things = world.make("things", "id int PRIMARY KEY, qty int")
    rows = [f"'p{n % 7}', {n}" for n in range(70)]
    world.sql(f"INSERT INTO dbo.parts VALUES {values(*rows)}")
    world.sql(f"INSERT INTO dbo.things VALUES {values(*(f'{n}, {n}' for n in range(70)))}")
    world.run("snapshot")
    conditions = [
        {"data-collection": str(parts), "filter": "qty >= 10"},
        {"data-collection": str(things), "filter": "qty < 10 OR qty >= 60"},
    ]
    ask(world, parts, things, additional_conditions=conditions)
    world.run()
    assert ids(world, parts, "qty") == list(range(10, 70))
    assert ids(world, things, "qty") == [*range(10), *range(60, 70)]
    keys = {event["key"]["place"] for event in world.events(parts)}
    assert keys == {f"p{n}" for n in range(7)}


KEY_TYPES = {
    "decimal(20,4)": "{n}.0625",
    "money": "{n}.25",
    "bigint": "{n}000000007",
    "float": "{n}.1",
    "date": "'20{n}-01-01'",
    "datetime": "'2024-01-01T00:00:00.0{n}'",
    "datetime2(7)": "'2024-01-01T00:00:00.00000{n}'",
    "datetimeoffset(7)": "'2024-01-01T00:00:00.00000{n} +05:30'",
    "time(7)": "'00:00:00.00000{n}'",
    "uniqueidentifier": "'{n}000000-0000-4000-8000-0000000000{n}'",
    "char(8)": "'k{n}'",
    "nvarchar(20)": "N'Ω{n}'",
    "varchar(20) COLLATE Latin1_General_BIN2": "'K{n}'",
    "varbinary(8)": "0x{n}FF",
    "bit": "{n} % 2",
}


@pytest.mark.long
def test_keys_of_every_type_are_read_in_order_and_compared_exactly(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    tables, types = [], list(KEY_TYPES.items())
    for number in range(0, len(types), 5):
        part = types[number : number + 5]
        keys = ", ".join(f"k{place} {name} NOT NULL" for place, (name, _) in enumerate(part))
        tables.append(world.make(f"t{number}", f"{keys}, n int NOT NULL, PRIMARY KEY (k4, k3, k2, k1, k0, n)"))
        rows = [", ".join(form.replace("{n}", str(n)) for _, form in part) + f", {n}" for n in range(11, 99)]
        world.sql(f"INSERT INTO {tables[-1].within_database} VALUES {values(*rows)}")
    world.run("snapshot")
    ask(world, *tables)

    def change() -> None:
        for table in tables:
            world.sql(f"UPDATE {table.within_database} SET n = -n WHERE n IN (20, 90)")

    with listening(Once("chunk-read", change)):
        world.run()
    for table in tables:
        found = [row["n"] for row in world.reads(table)]
        assert sorted(n for n in found if n > 0 and n not in (20, 90)) == [
            n for n in range(11, 99) if n not in (20, 90)
        ]
        assert (20 in found, 90 in found) == (False, False)
    assert scans(world) == ["SUCCEEDED"] * len(tables)


@pytest.mark.long
def test_wide_rows_make_small_rounds(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_round, "ROUND_BYTES", 30_000)
    world = World(server, str(tmp_path), chunk_rows=4)
    table = world.make("docs", "id int PRIMARY KEY, text varchar(max)")
    rows = [f"{n}, REPLICATE('x', 1000)" for n in range(100)]
    world.sql(f"INSERT INTO dbo.docs VALUES {values(*rows)}")
    world.run("snapshot")
    ask(world, table)
    world.run()
    assert ids(world, table) == list(range(100))
    assert sum(kind == "IN_PROGRESS" for kind, _ in world.notes()) >= 100 / 30


@pytest.mark.long
def test_slow_reading_makes_small_rounds(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_round, "ROUND_S", 1e-9)
    world = World(server, str(tmp_path), chunk_rows=4)
    table = orders(world, 300)
    ask(world, table)
    world.run()
    assert ids(world, table) == list(range(1, 301))
    assert sum(kind == "IN_PROGRESS" for kind, _ in world.notes()) >= (300 - 64 * 4) / 4


def twins(world: World) -> TableId:
    """A table without a key whose rows are told apart by a column that is not captured; two of them are alike."""
    world.sql("CREATE TABLE dbo.twins (kind int, note varchar(9), hidden int)")
    world.sql(f"{CAPTURE.format('twins')}, @captured_column_list = N'kind, note'")
    world.sql("INSERT INTO dbo.twins VALUES (1, 'x', 1), (1, 'x', 2), (2, 'y', 3)")
    world.server.agent.drain()
    world.run("snapshot")
    return TableId(DATABASE, "dbo", "twins")


@pytest.mark.long
def test_an_unchanged_twin_of_a_changed_row_is_read(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = twins(world)
    ask(world, table, surrogate_key="kind")
    with listening(Once("chunk-read", lambda: world.sql("DELETE FROM dbo.twins WHERE hidden = 1"))):
        world.run()
    assert scans(world) == ["SUCCEEDED"]
    assert sorted((row["kind"], row["note"]) for row in world.reads(table)) == [(1, "x"), (2, "y")]


@pytest.mark.long
def test_a_table_without_a_key_that_changes_faster_than_it_is_read_is_given_up(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cdc_assets.incremental.snapshot._MAX_REPEATS", 2)
    world = World(server, str(tmp_path))
    table = twins(world)
    ask(world, table, surrogate_key="kind")

    def change(name: str) -> None:
        if name == "chunk-read":
            world.sql("INSERT INTO dbo.twins VALUES (1, 'x', 9)")

    with listening(change):
        world.run()
    assert scans(world) == ["SKIPPED"]
    assert world.reads(table) == []
    [told] = [text for text in map(str, rows_of_topic(world.config, "notes")) if "SKIPPED" in text]
    for text in (told, caplog.text):
        assert "rows equal to those being read changed during each of" in text


def test_rows_that_are_alike_must_be_in_one_chunk(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = twins(world)
    ask(world, table, surrogate_key="hidden")
    world.run()
    assert scans(world) == ["NO_PRIMARY_KEY"]


@pytest.mark.long
def test_notifications_and_logs_hide_keys_that_rules_hide(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(server, str(tmp_path))
    rules = (ColumnRule("hash_v2", (r"dbo\.people\.ssn",), algorithm="SHA-256", salt="s"),)
    world.config = replace(
        world.config,
        events=replace(world.config.events, column_rules=rules, column_exclude=(r"dbo\.people\.born",)),
        notifications=NotificationSettings(("sink", "log"), "notes"),
    )
    table = world.make("people", "ssn varchar(20), born int, n int, PRIMARY KEY (ssn, born, n)")
    rows = [f"'078-05-{n}', 19471111{n}, {n}" for n in range(10, 20)]
    world.sql(f"INSERT INTO dbo.people VALUES {values(*rows)}")
    world.run("snapshot")
    ask(world, table)
    with caplog.at_level(logging.INFO):
        world.run()
    assert scans(world) == ["SUCCEEDED"]
    notes = [dict(row["value"]["additional_data"]) for row in rows_of_topic(world.config, "notes")]
    assert "(masked),(masked),19" in [data.get("last_processed_key") for data in notes]
    told = repr(notes) + caplog.text
    assert "IN_PROGRESS" in told
    assert not [text for text in ("078-05", "19471111") if text in told]
