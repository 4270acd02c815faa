"""Special cases of incremental snapshots (spec debezium-sqlserver §9.3), each on the stand-in."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from cdc_assets.capture.progress import StreamSummary
from cdc_assets.config.settings import FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.signal import Signal
from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeError, LakeFullError
from cdc_assets.incremental import rounds as incremental_round
from cdc_assets.lake import presence, topics
from cdc_assets.lake.location import Location
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.table import Row
from cdc_assets.signals.watch import SignalWatch
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.unit.signals.world import World, check_law, values
from cdc_assets_tests.unit.streaming.child import DATABASE

X = "'x'"
CAPTURE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


class Once:
    """Does something at the n-th time of a step."""

    def __init__(self, step: str, action: Callable[[], object], number: int = 1) -> None:
        self.step, self.action, self.left = step, action, number

    def __call__(self, name: str) -> None:
        self.left -= name == self.step
        if name == self.step and self.left == 0:
            self.action()


class Nth(Once):
    """Does something at the n-th call, by whichever thread."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        super().__init__("", action, number)
        self._lock = Lock()

    def __call__(self, name: str = "") -> None:
        with self._lock:
            super().__call__(name)


def ask(world: World, *tables: TableId, own_id: str = "s1", **more: object) -> None:
    world.signal(own_id, "execute-snapshot", data_collections=[str(table) for table in tables], **more)


def orders(world: World, rows: int = 100) -> TableId:
    """A table of some rows that were read once."""
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, rows + 1)))}")
    world.run("snapshot")
    return table


def scans(world: World) -> list[str]:
    """How the tables' scans ended."""
    return [status for kind, status in world.notes() if kind == "TABLE_SCAN_COMPLETED"]


def ids(world: World, table: TableId, name: str = "id") -> list[Any]:
    return sorted((row[name] for row in world.reads(table)), key=lambda value: (value is not None, value))


# ---- what a table is walked along ------------------------------------------------------------------------------------


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


def test_slow_reading_makes_small_rounds(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_round, "ROUND_S", 1e-9)
    world = World(server, str(tmp_path), chunk_rows=4)
    table = orders(world, 300)
    ask(world, table)
    world.run()
    assert ids(world, table) == list(range(1, 301))
    assert sum(kind == "IN_PROGRESS" for kind, _ in world.notes()) >= (300 - 64 * 4) / 4


# ---- what happens to a round in flight ---------------------------------------------------------------------------------


def test_stop_and_pause_while_a_round_is_in_flight(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = orders(world, 300)
    ask(world, table)
    with listening(Once("chunk-read", lambda: world.signal("s2", "stop-snapshot", type="incremental"))):
        world.run()
    assert world.reads(table) == []
    ask(world, table, own_id="s3")
    with listening(Once("chunk-read", lambda: world.signal("s4", "pause-snapshot", type="incremental"))):
        world.run()
    assert 0 < len(world.reads(table)) < 300
    world.signal("s5", "resume-snapshot", type="incremental")
    world.run()
    assert ids(world, table) == list(range(1, 301))


def test_a_table_that_somebody_locks_is_read_later_and_the_stream_continues(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    streaming = replace(world.config.streaming, retry_wait_s=0.0)
    world.config = replace(
        world.config, snapshot=replace(world.config.snapshot, lock_timeout_ms=50), streaming=streaming
    )
    table, other = orders(world), world.make("other", "id int PRIMARY KEY")
    world.run("snapshot")
    with server.connect(DATABASE) as blocker:
        rounds: list[int] = []

        def play(name: str) -> None:
            if name != "marker-written":
                return
            rounds.append(len(world.events(other)))
            if len(rounds) == 1:
                blocker.execute("BEGIN TRANSACTION; SELECT COUNT(*) FROM dbo.orders WITH (TABLOCKX, HOLDLOCK)")
                world.sql("INSERT INTO dbo.other VALUES (1)")
                server.agent.drain()
            elif len(rounds) == 2:
                blocker.execute("ROLLBACK")

        ask(world, table)
        with listening(play):
            world.run()
    assert rounds[:2] == [0, 1]
    assert ids(world, table) == list(range(1, 101))


def test_a_quiet_table_is_read_with_the_columns_of_its_second_instance(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = orders(world)
    world.run("snapshot")
    world.sql("ALTER TABLE dbo.orders ADD state varchar(9) NOT NULL DEFAULT 'open'")
    world.sql(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL, "
        "@capture_instance = N'dbo_orders_v2'"
    )
    ask(world, table)
    world.run()
    assert [row["state"] for row in world.reads(table)] == ["open"] * 100


def test_a_stop_by_another_channel_beats_the_error_of_what_it_stops(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), poll_interval_s=0.0)
    table = orders(world)
    inbox = Inbox(Location.of(world.config.lake), "shop")

    def stop() -> None:
        world.sql("DROP TABLE dbo.orders")
        inbox.put(Signal("s2", "stop-snapshot", '{"type": "incremental"}'))

    ask(world, table)
    with listening(Once("marker-written", stop)):
        world.run()
    assert world.reads(table) == []
    assert [kind for kind, _ in world.notes()] == ["STARTED", "ABORTED"]


def test_databases_have_signal_tables_and_rounds_of_their_own(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    both = replace(world.config.connection, databases=(DATABASE, "Other"))
    signals = replace(
        world.config.signals, collections=(*world.config.signals.collections, TableId("Other", "dbo", "ask"))
    )
    filters = FilterSettings(
        also=frozenset(str(name).lower() for name in signals.collections), table_exclude=("dbo.cdc_.*", "dbo.ask")
    )
    world.config = replace(world.config, connection=both, signals=signals, filters=filters)
    server.execute("CREATE DATABASE Other")
    world.sql("EXEC sys.sp_cdc_enable_db", "Other")
    world.make("ask", "id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL", "Other")
    tables = [orders(world), world.make("orders", "id int PRIMARY KEY, version int", "Other")]
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, 81)))}", "Other")
    world.run("snapshot")
    ask(world, tables[0])
    text = json.dumps({"data-collections": [str(tables[1])]})
    world.sql(f"INSERT INTO dbo.ask VALUES ('o1', 'execute-snapshot', '{text}')", "Other")

    def change() -> None:
        world.sql("UPDATE dbo.orders SET version = 1000 WHERE id = 1")
        world.sql("UPDATE dbo.orders SET version = 1000 WHERE id = 2", "Other")

    with listening(Once("chunk-read", change, 2)):
        world.run()
    assert scans(world) == ["SUCCEEDED", "SUCCEEDED"]
    assert set(range(2, 101)) <= set(ids(world, tables[0]))
    assert {1, *range(3, 81)} <= set(ids(world, tables[1]))
    check_law(world, tables[0], {n: n if n > 1 else 1000 for n in range(1, 101)})
    check_law(world, tables[1], {n: n if n != 2 else 1000 for n in range(1, 81)})


def test_stop_of_one_table_continues_with_the_next(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    other = world.make("others", "id int PRIMARY KEY")
    world.sql("INSERT INTO dbo.others VALUES (1), (2)")
    table = orders(world)
    ask(world, table, other)

    def stop() -> None:
        world.signal("s2", "stop-snapshot", type="incremental", data_collections=[str(table)])

    with listening(Once("chunk-read", stop)):
        world.run()
    assert world.reads(table) == []
    assert ids(world, other) == [1, 2]


DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'orders', @capture_instance = 'all'"


@pytest.mark.parametrize(
    ("step", "end", "status"),
    [
        ("marker-written", "EXEC sp_rename 'dbo.orders', 'renamed'", "UNKNOWN_SCHEMA"),
        ("chunk-read", "EXEC sp_rename 'dbo.orders', 'renamed'", "UNKNOWN_SCHEMA"),
        ("chunk-read", "DROP TABLE dbo.orders", "UNKNOWN_SCHEMA"),
        ("chunk-read", DISABLE, "SKIPPED"),
    ],
)
def test_table_that_goes_in_mid_snapshot(server: StandIn, tmp_path: Path, end: str, status: str, step: str) -> None:
    world = World(server, str(tmp_path))
    other = world.make("others", "id int PRIMARY KEY")
    world.sql("INSERT INTO dbo.others VALUES (1)")
    table = orders(world, 300)
    ask(world, table, other)
    with listening(Once(step, lambda: world.sql(end))):
        world.run()
    assert scans(world) == [status, "SUCCEEDED"]
    assert ids(world, other) == [1]
    assert not world.state().signals[DATABASE].queue


def test_second_capture_instance_while_a_round_is_in_flight(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = orders(world)
    ask(world, table)

    def change() -> None:
        world.sql("ALTER TABLE dbo.orders ADD extra int")
        world.sql(CAPTURE.format("orders") + ", @capture_instance = N'orders2'")
        world.sql("UPDATE dbo.orders SET extra = id, version = 1000 + id")

    with listening(Once("chunk-read", change)):
        world.run()
    rows = {row["id"]: row for row in world.reads(table)}
    assert sorted(rows) == list(range(1, 101))
    assert all(row["extra"] == row["id"] for row in rows.values())
    check_law(world, table, {number: 1000 + number for number in range(1, 101)})


def test_column_dropped_in_mid_snapshot_is_null(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int, note datetime2(7) NULL, must varchar(5) NOT NULL")
    filled = [f"{n}, {n}, '2024-01-01', 'x'" for n in range(100)]
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*filled)}")
    world.run("snapshot")
    ask(world, table)
    with listening(Once("chunk-read", lambda: world.sql("ALTER TABLE dbo.orders DROP COLUMN note, must"))):
        world.run()
    rows = {row["id"]: row for row in world.reads(table)}
    assert sorted(rows) == list(range(100))
    assert rows[99]["note"] is None
    assert scans(world) == ["SUCCEEDED"]


@pytest.mark.parametrize(
    ("alter", "kept"),
    [
        ("DROP COLUMN note", ("x", None)),
        ("DROP COLUMN note, qty", ("x", None)),
        ("ADD extra int NOT NULL DEFAULT 5", ("x",)),
        ("ALTER COLUMN qty varchar(20) NULL", ("x",)),
        ("ALTER COLUMN note nvarchar(max) NULL", ("x",)),
    ],
)
def test_structure_changes_while_rows_are_read(
    server: StandIn, tmp_path: Path, alter: str, kept: tuple[str | None, ...]
) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int, note varchar(9) NULL, qty int NULL")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}, {X}, 1' for n in range(300)))}")
    world.run("snapshot")
    ask(world, table)
    world.meanwhile = Nth(3, lambda: world.sql(f"ALTER TABLE dbo.orders {alter}"))
    world.run()
    notes = {row["id"]: row["note"] for row in world.reads(table)}
    assert sorted(notes) == list(range(300))
    assert set(notes.values()) == set(kept)
    assert [*scans(world), world.notes()[-1][0]] == ["SUCCEEDED", "COMPLETED"]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"surrogate_key": "qty"}, "SKIPPED"),
        ({"additional_condition": "qty > 0"}, "SQL_EXCEPTION"),
        ({}, "SUCCEEDED"),
    ],
)
def test_column_that_the_snapshot_itself_needs_is_dropped_while_rows_are_read(
    server: StandIn, tmp_path: Path, more: dict[str, object], status: str
) -> None:
    world = World(server, str(tmp_path))
    other = world.make("others", "id int PRIMARY KEY")
    world.sql("INSERT INTO dbo.others VALUES (1)")
    table = world.make("orders", "id int PRIMARY KEY, version int, qty int NULL")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}, {n + 1}' for n in range(300)))}")
    world.run("snapshot")
    ask(world, table, **more)
    ask(world, other, own_id="s2")
    world.meanwhile = Nth(3, lambda: world.sql("ALTER TABLE dbo.orders DROP COLUMN qty"))
    summary = world.run()
    assert scans(world) == [status, "SUCCEEDED"]
    ends = [kind for kind, _ in world.notes() if kind in ("ABORTED", "COMPLETED")]
    assert ends == [*([] if status == "SUCCEEDED" else ["ABORTED"]), "COMPLETED"]
    assert isinstance(summary, StreamSummary)
    assert [(trouble.table, status in trouble.reason) for trouble in summary.unread] == (
        [] if status == "SUCCEEDED" else [(table, True)]
    )


def test_other_key_in_mid_snapshot_begins_anew(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    world.config = replace(world.config, events=replace(world.config.events, message_key_columns=("dbo.orders:id",)))
    table = world.make("orders", "id int NOT NULL, version int NOT NULL")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {1000 - n}' for n in range(200)))}")
    world.run("snapshot")
    ask(world, table)
    with listening(
        Once("reads-committed", lambda: world.sql("CREATE UNIQUE INDEX by_version ON dbo.orders (version)"))
    ):
        world.run()
    assert set(ids(world, table)) == set(range(200))
    assert scans(world) == ["SUCCEEDED"]


def test_clean_up_during_a_round(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = orders(world)
    ask(world, table)

    def clean_up() -> None:
        """Changes behind the open marker are streamed, then removed, while the close marker is on its way."""
        server.agent.cleanup(DATABASE, "dbo_orders", server.execute(
            "SELECT sys.fn_cdc_get_max_lsn()", database=DATABASE
        )[0][0])  # fmt: skip

    world.sql("UPDATE dbo.orders SET version = 1001 WHERE id = 1")
    with listening(Once("window-complete", clean_up, 3)):
        world.run()
    assert scans(world) == ["SUCCEEDED"]
    check_law(world, table, {number: number if number > 1 else 1001 for number in range(1, 101)})
    assert set(ids(world, table)) == set(range(1, 101))


def test_updates_without_a_visible_change_leave_the_read(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    events = replace(world.config.events, skip_unchanged=True, column_exclude=("dbo.orders.hidden",))
    world.config = replace(world.config, events=events)
    table = world.make("orders", "id int PRIMARY KEY, version int, hidden int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}, 0' for n in range(1, 31)))}")
    world.run("snapshot")
    ask(world, table)

    def change() -> None:
        world.sql("UPDATE dbo.orders SET hidden = 1 WHERE id < 10; UPDATE dbo.orders SET version = 1003 WHERE id = 3")

    with listening(Once("chunk-read", change)):
        world.run()
    assert ids(world, table) == [number for number in range(1, 31) if number != 3]
    check_law(world, table, {number: 1003 if number == 3 else number for number in range(1, 31)})


def test_markers_are_kept_while_something_else_waits_for_room(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(server, str(tmp_path))
    orders = world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1), (2, 1)")
    streaming = replace(world.config.streaming, idle_timeout_s=1.0, max_duration_s=120.0, retry_wait_s=0.1)
    world.config = replace(world.config, streaming=streaming)
    ask(world, orders)
    seen: list[str] = []
    read_table = SignalWatch.read_table

    def read(watch: SignalWatch, database: str) -> list[Row]:
        rows = read_table(watch, database)
        seen.extend(row.signal.id for row in rows)
        return rows

    def turn(*_: object) -> bool:
        if any(name.endswith("-close") for name in seen):
            seen.clear()
            seen.append("refused")
            raise LakeFullError("full")
        return False

    monkeypatch.setattr(SignalWatch, "read_table", read)
    monkeypatch.setattr("cdc_assets.signals.structures.GivenStructures.turn", turn)
    summary = world.run()
    assert isinstance(summary, StreamSummary)
    assert (summary.ended, "refused" in seen) == ("idle", True)
    assert sorted(row["id"] for row in world.reads(orders)) == [1, 2]
