"""Rows that get another message key in a table without a key of its own: only events with the former key have what later ones omit."""

import time

import pytest
from deltalake import DeltaTable

from cdc_assets.errors import UnknownRowError
from cdc_assets.mirror import apply
from cdc_assets_tests.unit.mirror import changing_keys
from cdc_assets_tests.unit.mirror.changing_keys import COLUMNS, change, compacting
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered

world = changing_keys.world


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE dbo.t SET id = 7 WHERE id = 1",),
        ("DELETE FROM dbo.t WHERE id = 2", "UPDATE dbo.t SET id = 2 WHERE id = 1"),
        ("UPDATE dbo.t SET id = 7 WHERE id = 1", "UPDATE dbo.t SET note = 'z' WHERE id = 7"),
        ("UPDATE dbo.t SET id = 7 WHERE id = 1", "DELETE FROM dbo.t WHERE id = 7"),
    ],
)
def test_a_mirror_stops_before_a_row_whose_values_are_not_known(world: World, statements: tuple[str, ...]) -> None:
    """Also if another row had the new key, or the row has changed or gone since; until the table was read again."""
    before = ordered(world.rows())
    change(world, *statements)
    for anew in (False, True):
        assert isinstance(world.follow(anew=anew), UnknownRowError)
        assert ordered(world.rows()) == before
    world.read_again()
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server(COLUMNS))
    change(world, "UPDATE dbo.t SET note = 'later'")
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server(COLUMNS))


@pytest.mark.long
def test_a_mirror_that_stops_again_has_the_rows_that_were_read_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is not rebuilt again and again."""
    change(world, "UPDATE dbo.t SET id = 7 WHERE id = 1")
    assert isinstance(world.follow(), UnknownRowError)
    world.read_again()
    read = ordered(world.on_server(COLUMNS))
    change(world, "UPDATE dbo.t SET id = 8 WHERE id = 2")
    assert isinstance(world.follow(), UnknownRowError)
    assert ordered(world.rows()) == read
    folds, fold = [], apply.folded
    monkeypatch.setattr(apply, "folded", lambda *given: (folds.append(given), fold(*given))[1])
    assert isinstance(world.follow(), UnknownRowError)
    assert (len(folds), ordered(world.rows())) == (1, read)
    world.read_again()
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server(COLUMNS))


def test_it_follows_where_events_have_all_values(world: World) -> None:
    change(
        world,
        "UPDATE dbo.t SET id = 7, big = N'C' WHERE id = 1",
        "UPDATE dbo.t SET note = 'z' WHERE id = 7",
        "BEGIN TRAN; UPDATE dbo.t SET id = 8 WHERE id = 2; DELETE FROM dbo.t WHERE id = 8; COMMIT",
        "INSERT INTO dbo.t VALUES (2, 'again', N'D')",
        "DELETE FROM dbo.t WHERE id = 2",
        "INSERT INTO dbo.t VALUES (2, 'again', NULL)",
    )
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server(COLUMNS))


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dbo.t SET id = id + 1, big = big + N'!'",
        "UPDATE dbo.t SET id = 3 - id, big = big + N'!'",
        "BEGIN TRAN; UPDATE dbo.t SET id = id + 1, big = big + N'!'; UPDATE dbo.t SET id = id + 1, big = big + N'!'; COMMIT",
    ],
)
def test_rows_get_the_keys_of_others_in_one_statement(world: World, statement: str) -> None:
    """A row has its new key before the row that had it gives it up; also in a mirror that is made of what compaction has left."""
    compacting(world, mirrored=True)
    change(world, "INSERT INTO dbo.t VALUES (3, 'z', N'C')")
    change(world, statement)
    expected = ordered(world.on_server(COLUMNS))
    assert world.follow() is None
    assert ordered(world.rows()) == expected
    for _ in range(3):
        time.sleep(0.5)
        change(world, "INSERT INTO dbo.t VALUES (20, 'q', N'Q')", "DELETE FROM dbo.t WHERE id = 20")
        assert world.follow() is None
    world.capture()
    assert world.follow(anew=True) is None
    assert ordered(world.rows()) == expected


@pytest.mark.long
def test_a_mirror_stops_where_a_statement_moves_rows_and_omits_values(world: World) -> None:
    before = ordered(world.rows())
    change(world, "UPDATE dbo.t SET id = id + 1")
    assert isinstance(world.follow(), UnknownRowError)
    assert ordered(world.rows()) == before


@pytest.mark.long
@pytest.mark.parametrize("mirrored", [True, False])
def test_compaction_keeps_the_only_event_with_a_value(world: World, mirrored: bool) -> None:
    compacting(world, mirrored=mirrored)
    change(world, "UPDATE dbo.t SET id = 7 WHERE id = 1")
    for number in range(10, 13):
        change(world, f"INSERT INTO dbo.t VALUES ({number}, 'q', N'Q')")
        if mirrored:
            world.follow()
        time.sleep(0.5)
    world.capture()
    events = DeltaTable(str(world.lake / TOPIC)).to_pyarrow_table(columns=["key", "value"]).to_pylist()
    assert "A" in [event["value"]["after"]["big"] for event in events if event["value"] and event["value"]["after"]]
