"""Rows with large values that are updated while they are read, by events that omit these values."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.incremental.changed import moved
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.unit.incremental.stories import CAPTURE, Nth, Once, ask, ids, scans
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.signals.world import World, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

OMITTING = "UPDATE dbo.docs SET version = version + 1 WHERE id = 5"


def documents(server: StandIn, path: Path) -> World:
    """Ten rows that no snapshot has read."""
    world = World(server, str(path), chunk_rows=100)
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, mode="no_data"))
    world.make("docs", "id int PRIMARY KEY, version int, body varchar(max)")
    world.sql(f"INSERT INTO dbo.docs VALUES {values(*(f'{n}, {n}, {n}00' for n in range(1, 11)))}")
    server.agent.drain()
    world.run("snapshot")
    return world


def asked(world: World, meanwhile: Callable[[], object]) -> dict[int, list[str | None]]:
    """Ask for a snapshot, and do something while rows are read; returns bodies in events by key, in order."""
    table = TableId(DATABASE, "dbo", "docs")
    ask(world, table)
    world.meanwhile = meanwhile  # type: ignore[assignment]
    world.run()
    found: dict[int, list[str | None]] = {}
    for event in world.events(table):
        if event["value"] and (row := event["value"]["after"]):
            found.setdefault(row["id"], []).append(row["body"])
    return found


@pytest.mark.long
@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize(
    "columns", ["id int PRIMARY KEY", "id int, part varchar(9) DEFAULT 'a', PRIMARY KEY (part, id)"]
)
def test_a_row_that_is_updated_during_each_read_gets_a_read_with_its_large_values(
    server: StandIn, tmp_path: Path, skips: bool, columns: str
) -> None:
    rest = "version int, at datetime2, price decimal(9, 2), other varchar(max), body xml, twice AS version * 2"
    world = World(server, str(tmp_path), chunk_rows=100)
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, mode="no_data"))
    world.config = replace(world.config, events=replace(world.config.events, skip_unchanged=skips))
    table = world.make("docs", f"{columns}, {rest}")
    rows = values(*(f"{n}, {n}, '2026-01-0{n}', {n}.5, NULL, '<b>{n}00</b>'" for n in range(1, 10)))
    world.sql(f"INSERT INTO dbo.docs (id, version, at, price, other, body) VALUES {rows}")
    server.agent.drain()
    world.run("snapshot")
    ask(world, table)
    world.meanwhile = lambda: world.sql(OMITTING)

    def after_the_read(name: str) -> None:
        if name == "chunk-read":
            world.sql(f"{OMITTING}; UPDATE dbo.docs SET price = 7 WHERE id > 4 AND id < 7")

    with listening(after_the_read):
        world.run()
    assert scans(world) == ["SUCCEEDED"]
    reads = {row["id"]: row for row in world.reads(table)}
    assert sorted(reads) == list(range(1, 10))
    kept = [(row["body"], row["other"], row["at"] - reads[1]["at"]) for _, row in sorted(reads.items())]
    assert kept == [(f"<b>{n}00</b>", None, (n - 1) * 86_400 * 10**9) for n in range(1, 10)]
    newest: dict[int, tuple[object, ...]] = {}
    for event in world.events(table):
        row = event["value"]["after"]
        newest[row["id"]] = tuple(row[name] for name in ("version", "price", "twice"))
    assert newest == {n: tuple(row[name] for name in ("version", "price", "twice")) for n, row in reads.items()}
    assert (reads[5]["version"], reads[6]["version"], reads[7]["twice"], reads[5]["twice"]) == (7, 6, 14, None)


@pytest.mark.long
def test_a_row_that_may_have_been_inserted_again_is_read_again(server: StandIn, tmp_path: Path) -> None:
    """Its insert and its deletion are skipped, so its changes do not show that its large values are others."""
    world = documents(server, tmp_path)
    world.config = replace(world.config, events=replace(world.config.events, skipped_operations=frozenset("cd")))
    again = "DELETE FROM dbo.docs WHERE id = 5; INSERT INTO dbo.docs VALUES (5, 0, 'other')"
    with listening(Once("chunk-read", lambda: world.sql(f"{again}; {OMITTING}"))):
        bodies = asked(world, lambda: None)
    assert scans(world) == ["SUCCEEDED"]
    assert bodies[5] == ["__debezium_unavailable_value", "other"]


def test_images_of_updates_that_move_a_row_to_another_key() -> None:
    identity = [pa.array([1, 5, 5, 5, 0, 5, 5]), pa.array(["a", "a", "a", "a", "a", None, "a"])]
    found = moved(pa.array([2, 3, 4, 3, 4, 3, 4], pa.int32()), identity)
    assert found.to_pylist() == [False, False, False, True, True, True, True]


@pytest.mark.long
def test_rows_whose_message_key_repeats_are_read_again(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), chunk_rows=100)
    world.config = replace(
        world.config,
        snapshot=replace(world.config.snapshot, mode="no_data"),
        events=replace(world.config.events, message_key_columns=("dbo.docs:id",)),
    )
    table = world.make("docs", "id int NOT NULL, version int, body varchar(max)")
    world.sql("INSERT INTO dbo.docs VALUES (5, 1, 'a'), (5, 2, 'b')")
    server.agent.drain()
    world.run("snapshot")
    ask(world, table)
    with listening(Once("chunk-read", lambda: world.sql("UPDATE dbo.docs SET version = 9 WHERE version = 2"))):
        world.run()
    assert scans(world) == ["SUCCEEDED"]
    assert sorted((row["version"], row["body"]) for row in world.reads(table)) == [(1, "a"), (9, "b")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "of_row"),
    [
        (f"{OMITTING}; UPDATE dbo.docs SET body = 'new' WHERE id = 5", ["__debezium_unavailable_value", "new"]),
        ("UPDATE dbo.docs SET body = NULL WHERE id = 5", [None]),
        (f"{OMITTING}; DELETE FROM dbo.docs WHERE id = 5", ["__debezium_unavailable_value"]),
        (f"{OMITTING.replace('5', '11')}; INSERT INTO dbo.docs VALUES (11, 11, 'x')", ["500"]),
    ],
)
def test_others_are_not(server: StandIn, tmp_path: Path, change: str, of_row: list[str | None]) -> None:
    world = documents(server, tmp_path)
    reads: list[None] = []

    def meanwhile() -> None:
        if not reads:
            world.sql(change)
        reads.append(None)

    bodies = asked(world, meanwhile)
    assert (scans(world), len(reads)) == (["SUCCEEDED"], 1)
    assert bodies[5] == of_row


@pytest.mark.long
@pytest.mark.parametrize("kind", ["computed", "dropped"])
def test_a_large_column_of_which_no_change_holds_a_value_makes_no_round_useless(
    server: StandIn, tmp_path: Path, kind: str
) -> None:
    world = documents(server, tmp_path)
    if kind == "computed":
        world.sql("ALTER TABLE dbo.docs ADD twice AS CAST(id AS varchar(max))")
        world.sql("ALTER TABLE dbo.docs DROP COLUMN body")
        world.sql(CAPTURE.format("docs") + ", @capture_instance = N'docs2'")
        server.agent.drain()
    else:
        world.sql("ALTER TABLE dbo.docs DROP COLUMN body")
    world.run()
    table = TableId(DATABASE, "dbo", "docs")
    ask(world, table)
    world.meanwhile = lambda: world.sql(OMITTING)
    world.run()
    assert scans(world) == ["SUCCEEDED"]
    assert ids(world, table) == [n for n in range(1, 11) if n != 5]


@pytest.mark.long
def test_a_table_whose_rows_get_large_values_and_omit_them_during_each_read_is_given_up(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cdc_assets.incremental.snapshot._MAX_REPEATS", 2)
    world = documents(server, tmp_path)
    bodies = asked(world, lambda: world.sql(f"UPDATE dbo.docs SET body = body + 'x' WHERE id = 5; {OMITTING}"))
    assert scans(world) == ["SKIPPED"]
    assert bodies == {5: [body for n in (1, 2, 3) for body in ("500" + n * "x", "__debezium_unavailable_value")]}
    assert "Rows got large values during each of 3 reads, and then updates that omit large values" in caplog.text


@pytest.mark.long
def test_a_row_whose_key_changed_has_its_large_value_in_an_event(server: StandIn, tmp_path: Path) -> None:
    world = documents(server, tmp_path)
    bodies = asked(world, Nth(1, lambda: world.sql("UPDATE dbo.docs SET id = 0 WHERE id = 5")))
    assert scans(world) == ["SUCCEEDED"]
    assert 5 not in bodies
    assert bodies[0][-1] == "500"


@pytest.mark.long
def test_a_mirror_gets_the_large_values_of_a_column_that_was_captured_late(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), chunk_rows=100)
    table = world.make("t", "id int PRIMARY KEY, w int")
    world.sql("INSERT INTO dbo.t VALUES (1, 1), (2, 2)")
    world.run("snapshot")
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    assert not mirrors.catch_up()
    world.sql("ALTER TABLE dbo.t ADD body varchar(max)")
    world.sql("UPDATE dbo.t SET body = 'text'")
    world.sql(CAPTURE.format("t") + ", @capture_instance = N'dbo_t2'")
    world.sql("UPDATE dbo.t SET w = 3 WHERE id = 2")
    server.agent.drain()
    world.run()
    ask(world, table)
    world.meanwhile = Nth(1, lambda: world.sql("UPDATE dbo.t SET w = 9 WHERE id = 1"))
    world.run()
    assert not mirrors.catch_up()
    rows = MirrorReader(mirrors_of(str(tmp_path)).tables, f"shop.{table}").current().to_pylist()
    assert sorted((row["id"], row["w"], row["body"]) for row in rows) == [(1, 9, "text"), (2, 3, "text")]


@pytest.mark.long
@pytest.mark.parametrize("key", ["PRIMARY KEY", "NOT NULL"])
def test_a_text_that_is_set_to_null_does_not_come_back_if_unchanged_rows_are_skipped(
    server: StandIn, tmp_path: Path, key: str
) -> None:
    """Both images hold NULL, and only the update mask shows that the new one means it."""
    world = World(server, str(tmp_path), chunk_rows=100)
    world.config = replace(
        world.config,
        snapshot=replace(world.config.snapshot, mode="no_data"),
        events=replace(world.config.events, skip_unchanged=True),
    )
    table = world.make("docs", f"id int {key}, body text")
    world.sql("INSERT INTO dbo.docs VALUES (5, 'a'), (6, 'b')")
    server.agent.drain()
    world.run("snapshot")
    ask(world, table, surrogate_key="id")
    with listening(Once("chunk-read", lambda: world.sql("UPDATE dbo.docs SET body = NULL WHERE id = 5"))):
        world.run()
    assert scans(world) == ["SUCCEEDED"]
    assert {row["id"]: row["body"] for event in world.events(table) if (row := event["value"]["after"])} == {
        5: None,
        6: "b",
    }


@pytest.mark.long
def test_a_message_key_that_updates_may_omit_is_not_what_rows_are_known_by(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), chunk_rows=100)
    world.config = replace(
        world.config,
        snapshot=replace(world.config.snapshot, mode="no_data"),
        events=replace(world.config.events, message_key_columns=("dbo.docs:body",)),
    )
    table = world.make("docs", "id int NOT NULL, version int, body varchar(max)")
    world.sql("INSERT INTO dbo.docs VALUES (5, 1, 'a'), (6, 2, 'b')")
    server.agent.drain()
    world.run("snapshot")
    ask(world, table, surrogate_key="id")
    with listening(Once("chunk-read", lambda: world.sql("UPDATE dbo.docs SET version = 7 WHERE id = 5"))):
        world.run()
    assert scans(world) == ["SUCCEEDED"]
    assert sorted((row["version"], row["body"]) for row in world.reads(table)) == [(2, "b"), (7, "a")]
