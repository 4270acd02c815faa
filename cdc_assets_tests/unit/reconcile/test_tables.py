"""Tables with keys and rules of all kinds that are compared with the server, and mended."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_assets.config.settings import ColumnRule
from cdc_assets.errors import CaptureNotReadyError, InvalidValueError
from cdc_assets.reconcile import tasks
from cdc_assets.reconcile.progress import Pass
from cdc_assets.reconcile.run import Reconciler
from cdc_assets_tests.unit.reconcile.world import World
from mssql_standin.control import StandIn


@pytest.mark.long
def test_composite_keys_and_collations(server: StandIn, tmp_path: Path) -> None:
    columns = "code nvarchar(10) COLLATE Latin1_General_CI_AS NOT NULL, id int NOT NULL, v datetime2(7), PRIMARY KEY (code, id)"
    rows = "(N'a', 1, '2026-01-02 03:04:05.1234567'), (N'B', 1, NULL), (N'Straße', 2, '2026-01-02'), (N'z', 9, NULL)"
    world = World(server, str(tmp_path), columns, rows)
    world.change("UPDATE dbo.t SET code = N'A' WHERE code = N'a'")
    assert world.reconcile().differing == 0
    world.behind_the_log("UPDATE dbo.t SET v = '2020-01-01' WHERE code = N'straße'")
    found = world.reconcile(repair=True)
    assert [(one.kind, one.key) for one in found.first] == [("differs", {"code": "Straße", "id": "2"})]
    world.follow()
    world.follow()
    assert world.reconcile().differing == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["datetime2(7)", "datetimeoffset(7)"])
def test_rows_whose_keys_differ_by_100_ns_are_compared_and_mended(server: StandIn, tmp_path: Path, kind: str) -> None:
    rows = ", ".join(f"('2026-01-01 00:00:00.000001{at}', N'{at}')" for at in range(10))
    world = World(server, str(tmp_path), f"at {kind} NOT NULL PRIMARY KEY, note nvarchar(9)", rows)
    assert world.reconcile().differing == 0
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE at = '2026-01-01 00:00:00.0000013'")
    world.behind_the_log("DELETE FROM dbo.t WHERE at = '2026-01-01 00:00:00.0000015'")
    found = world.reconcile(repair=True)
    assert (found.rows, found.mirrored, found.differing, found.removed) == (9, 10, 2, 1)
    assert {one.kind: one.key["_key_at"] for one in found.first} == {
        "differs": "17672256000000013", "not on the server": "17672256000000015"}  # fmt: skip
    world.follow()
    world.follow()
    again = world.reconcile()
    assert (again.rows, again.mirrored, again.differing) == (9, 9, 0)
    assert sorted(world.notes()) == ["0", "1", "2", "4", "6", "7", "8", "9", "silent"]


def test_a_key_that_fits_no_event_is_not_compared(server: StandIn, tmp_path: Path) -> None:
    world = World(
        server, str(tmp_path), "at datetime2(7) NOT NULL PRIMARY KEY, note nvarchar(9)", "('2026-01-01', N'a')"
    )
    assert world.reconcile().differing == 0
    world.behind_the_log("INSERT INTO dbo.t VALUES ('9999-12-31', N'b'), ('9998-12-31', N'c')")
    with pytest.raises(InvalidValueError, match=r"time\.precision\.mode=isostring"):
        world.reconcile()


def test_a_table_whose_key_changes_between_two_groups_of_ranges_is_compared_anew(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another key the mirror cannot be cut as the server is, and rows that are there would be taken for rows that vanished."""
    monkeypatch.setattr("cdc_assets.adapters.sqlserver.ranges.MIN_ROWS_PER_RANGE", 10)
    columns = "id int NOT NULL, code int NOT NULL, note nvarchar(9), CONSTRAINT second_key UNIQUE (id)"
    world = World(server, str(tmp_path), columns, ", ".join(f"({at}, {100 - at}, N'{at}')" for at in range(60)))
    begun = world.reconcile(ranges=1, repair=True)
    assert (begun.done, begun.differing) == (1, 0)
    assert len(begun.ranges) > 1
    group, before = Reconciler._group, world.rows()

    def indexed(*asked: Any) -> Pass:
        if left:
            world.sql(left.pop())
        return group(*asked)

    left = ["CREATE UNIQUE INDEX first_key ON dbo.t (code)"]
    monkeypatch.setattr(Reconciler, "_group", indexed)
    with pytest.raises(CaptureNotReadyError, match="changed while it was compared"):
        world.reconcile(repair=True)
    assert not world.mirrors().catch_up()
    assert world.rows() == before
    again = world.reconcile(repair=True)
    assert (again.done, again.rows, again.differing, again.removed) == (len(again.ranges), 60, 0, 0)
    assert world.rows() == before


@pytest.mark.long
def test_tables_without_a_key(server: StandIn, tmp_path: Path) -> None:
    world = World(
        server,
        str(tmp_path),
        "a int, b nvarchar(10), big nvarchar(max)",
        "(1, N'x', N'X'), (1, N'x', N'X'), (2, NULL, NULL)",
    )
    world.change("INSERT INTO dbo.t VALUES (1, N'x', N'X')")
    assert world.reconcile().differing == 0
    world.behind_the_log("INSERT INTO dbo.t VALUES (2, NULL, NULL)")
    found = world.reconcile(repair=True)
    assert [(one.kind, one.server, one.mirror) for one in found.first] == [
        ("not in the mirror", {"rows": "2"}, {"rows": "1"})
    ]
    world.follow()
    world.follow()
    assert world.reconcile().differing == 0
    assert world.rows() == world.on_server("a, b, big")


@pytest.mark.long
def test_repair_makes_the_copies_of_a_row_equal_in_both_directions(server: StandIn, tmp_path: Path) -> None:
    world = World(
        server, str(tmp_path), "a int, b nvarchar(10)", "(1, N'x'), (1, N'x'), (1, N'x'), (2, NULL), (2, NULL)"
    )
    world.sql("INSERT INTO dbo.t VALUES (3, N'z')")
    world.follow()
    world.behind_the_log("DELETE FROM dbo.t WHERE a IN (1, 2)")
    world.behind_the_log("INSERT INTO dbo.t VALUES (1, N'x'), (3, N'z'), (4, N'new')")
    found = world.reconcile(repair=True)
    assert (found.differing, found.absent, found.removed) == (4, 1, 1)
    world.follow()
    world.follow()
    assert world.reconcile().differing == 0
    assert world.rows() == world.on_server("a, b")
    world.change("INSERT INTO dbo.t VALUES (2, NULL)")
    assert world.reconcile().differing == 0
    assert not world.mirrors().catch_up(anew=True)
    assert world.rows() == world.on_server("a, b")


@pytest.mark.long
def test_masked_columns_are_compared_and_shown_masked(server: StandIn, tmp_path: Path) -> None:
    rule = ColumnRule("mask", ("dbo.t.code", "dbo.t.secret"), 3)
    columns = "code nvarchar(10) NOT NULL PRIMARY KEY, secret nvarchar(20), n int"
    world = World(server, str(tmp_path), columns, "(N'k1', N's1', 1), (N'k2', N's2', 2)", column_rules=(rule,))
    world.behind_the_log("UPDATE dbo.t SET secret = N's3', n = 3 WHERE code = N'k2'")
    found = world.reconcile()
    [one] = found.first
    assert (one.key, one.server, one.mirror) == ({"_key_code": "(masked)"}, {"n": "3"}, {"n": "2"})
    [record] = (tmp_path / "shop.__reconciled").iterdir()
    assert "k2" not in repr(found) + record.read_text()
    world.reconcile(repair=True)
    world.follow()
    world.follow()
    assert world.reconcile().differing == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "statement"),
    [
        ("code nvarchar(10) NOT NULL PRIMARY KEY, n int", "UPDATE dbo.t SET n = 3 WHERE code = N'k2'"),
        ("code nvarchar(10), n int", "INSERT INTO dbo.t VALUES (N'k2', 2)"),
    ],
)
def test_no_text_of_a_hidden_column_lies_in_the_lake_for_a_repair(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str, statement: str
) -> None:
    rule = ColumnRule("mask", (r"dbo\.t\.code",), 3)
    world = World(server, str(tmp_path), columns, "(N'k1', 1), (N'k2', 2)", column_rules=(rule,))
    world.behind_the_log(statement)
    with monkeypatch.context() as patched:
        patched.setattr(Reconciler, "_is_queued", lambda *_: True)
        found = world.reconcile(repair=True)
    assert (found.waiting, found.keys) == (1, ())
    assert "k2" not in (tmp_path / "shop.__reconciled" / f"{world.topic}.json").read_text()
    world.reconcile(repair=True)
    [request] = (tmp_path / "shop.__signals").iterdir()
    assert "k2" not in request.read_text()
    world.follow()
    world.follow()
    assert world.reconcile().differing == 0


@pytest.mark.long
def test_rows_from_before_a_rule_are_shown_masked_too(server: StandIn, tmp_path: Path) -> None:
    columns = "code nvarchar(10) NOT NULL PRIMARY KEY, secret nvarchar(20), hidden int"
    world = World(server, str(tmp_path), columns, "(N'k1', N's1', 1234), (N'k2', N's2', 1234)")
    assert not world.mirrors().catch_up()
    rules = (ColumnRule("mask", (r"dbo\.t\.secret",), 3), ColumnRule("truncate", (r"dbo\.t\.code",), 1))
    events = replace(world.config.events, column_rules=rules, column_exclude=(r"dbo\.t\.hidden",))
    world.config = replace(world.config, events=events)
    world.behind_the_log("UPDATE dbo.t SET hidden = 5678 WHERE code = N'k2'")
    found = world.reconcile()
    assert found.differing
    assert not [text for text in ("k1", "k2", "s1", "s2", "1234", "5678") if text in repr(found.first)]


@pytest.mark.long
def test_rows_that_share_a_message_key_are_told(server: StandIn, tmp_path: Path) -> None:
    """A mirror has one of them, so it does not equal the server, though that one agrees with a row of it; no READ changes that."""
    world = World(
        server,
        str(tmp_path),
        "id int NOT NULL, note nvarchar(9)",
        "(1, N'a'), (1, N'b'), (1, N'b'), (2, N'c')",
        message_key_columns=("dbo.t:id",),
    )
    found = world.reconcile(repair=True)
    assert [(one.kind, one.key, one.server, one.mirror) for one in found.first] == [
        ("more than once on the server", {"id": "1"}, {"rows": "3"}, {"rows": "1"})
    ]
    assert (found.rows, found.mirrored, found.differing, found.shared) == (4, 2, 1, 1)
    assert (found.asked, found.removed, found.left) == (0, 0, 1)
    assert "1 keys have more than one row on the server" in found.summary
    assert "message.key.columns" in found.summary
    world.change("DELETE FROM dbo.t WHERE note = N'b'")
    assert [one.kind for one in world.reconcile(repair=True).first] == ["not in the mirror"]
    for _ in range(2):
        world.follow()
    assert world.reconcile().differing == 0
    assert world.rows() == world.on_server("id, note")


@pytest.mark.long
def test_a_row_that_is_read_in_two_of_its_versions_shares_its_message_key_with_none(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may move while it is read; not more often than it changes."""
    world = World(
        server,
        str(tmp_path),
        "id int NOT NULL, note nvarchar(9)",
        "(1, N'a'), (2, N'b')",
        message_key_columns=("dbo.t:id",),
    )
    staged = tasks.staged_batches
    times, changes = 2, iter(range(9))

    def moved(*given: Any) -> Iterator[pa.RecordBatch]:
        world.sql(f"UPDATE dbo.t SET note = N'{next(changes)}' WHERE id = 1")
        world.follow()
        batches = list(staged(*given))
        yield from batches
        for _ in range(times - 1):
            for batch in batches:
                yield batch.filter(pc.equal(batch["id"], 1))

    monkeypatch.setattr(tasks, "staged_batches", moved)
    assert world.reconcile().differing == 0
    times = 4
    assert [one.kind for one in world.reconcile().first] == ["more than once on the server"]
