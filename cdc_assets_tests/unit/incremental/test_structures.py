"""Tables that change or go in the middle of an incremental snapshot (spec debezium-sqlserver §9.3), each on the stand-in."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeFullError
from cdc_assets.shared.progress import StreamSummary
from cdc_assets.signals.table import NewRows
from cdc_assets.signals.watch import SignalWatch
from cdc_assets_tests.unit.incremental.stories import CAPTURE, Nth, Once, X, ask, ids, orders, scans
from cdc_assets_tests.unit.signals.world import World, check_law, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'orders', @capture_instance = 'all'"


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_column_that_was_made_again_under_its_name_is_another_one(server: StandIn, tmp_path: Path) -> None:
    """Changes have no value of it, and neither have READs."""
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int NOT NULL, note varchar(20) NULL")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1, 'first')")
    world.run("snapshot")
    for statement in ("DROP COLUMN note", "ADD note varchar(20) NULL"):
        world.sql(f"ALTER TABLE dbo.orders {statement}")
    world.sql("UPDATE dbo.orders SET note = 'other', version = 2")
    server.agent.drain()
    world.run()
    ask(world, table)
    world.run()
    assert world.reads(table) == [{"id": 1, "version": 2, "note": None}]


@pytest.mark.long
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


@pytest.mark.long
def test_other_type_of_the_key_in_mid_snapshot_begins_anew(server: StandIn, tmp_path: Path) -> None:
    """As texts, most of these numbers are behind the greatest one."""
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, code int NOT NULL")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(800, 1100)))}")
    world.run("snapshot")
    ask(world, table, surrogate_key="code")
    alter = "ALTER TABLE dbo.orders ALTER COLUMN code varchar(10) NOT NULL"
    with listening(Once("reads-committed", lambda: world.sql(alter))):
        world.run()
    assert set(ids(world, table)) == set(range(800, 1100))
    assert scans(world) == ["SUCCEEDED"]


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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

    def read(watch: SignalWatch, database: str) -> NewRows:
        new = read_table(watch, database)
        seen.extend(row.signal.id for row in new.rows)
        return new

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


ANOTHER = CAPTURE.format("orders") + ", @capture_instance = N'another'"
DROP_FIRST = (
    "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'orders', @capture_instance = N'dbo_orders'"
)


@pytest.mark.long
@pytest.mark.parametrize("step", ["marker-written", "chunk-read", "signals-recorded", "window-planned"])
@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ((DROP_FIRST,), "has no capture instance any more"),
        ((ANOTHER, DROP_FIRST), "dbo_orders was dropped before it was completely read"),
        (
            (DROP_FIRST, "ALTER TABLE dbo.orders ADD extra int", CAPTURE.format("orders")),
            "dbo_orders was disabled and enabled again",
        ),
    ],
    ids=["dropped", "replaced", "made again"],
)
def test_an_instance_that_goes_in_mid_snapshot_ends_as_a_gap_or_the_end_of_the_table(
    server: StandIn, tmp_path: Path, statements: tuple[str, ...], reason: str, step: str
) -> None:
    world = World(server, str(tmp_path))
    table = orders(world, 300)
    ask(world, table)

    def change() -> None:
        for statement in statements:
            world.sql(statement)
        world.sql("UPDATE dbo.orders SET version = version + 1000")

    with listening(Once(step, change)):
        world.run()
    world.sql("INSERT INTO dbo.cdc_signal VALUES ('x', 'log', '{}')")
    server.agent.drain()
    world.run()
    state = world.state().tables[table]
    assert reason in state.reason
    assert state.status == ("failed" if len(statements) == 1 else "gap")
    assert not world.state().signals[DATABASE].unfinished
