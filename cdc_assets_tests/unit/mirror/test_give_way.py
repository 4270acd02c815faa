"""A row gives way to another one that gets its key in the same commit, if the message key is the only one; and in no other one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import EventsDroppedError
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.fold import Void, fold_keyed
from cdc_assets.mirror.needs import NeedsOfMirrors
from cdc_assets.mirror.rewrite import by_key
from cdc_assets_tests.unit.mirror import changing_keys
from cdc_assets_tests.unit.mirror.changing_keys import COLUMNS, change, compacting
from cdc_assets_tests.unit.mirror.histories import KEYED, lsn
from cdc_assets_tests.unit.mirror.world import World, ordered

world = changing_keys.world
SHAPE = replace(KEYED, own_key=False)
SPANS = ((lsn(10), lsn(20)),)
"""While rows are read, commits count from the end of that on."""

Event = tuple[int, str, str]
"""Number of its commit, operation, and a value; all of one key."""


def events_of(events: Sequence[Event]) -> pa.Table:
    names = SHAPE.events.names
    rows = []
    for place, (commit, operation, value) in enumerate(events):
        given = {"id": 5, "a": value or None, "big": value or None, names[4]: operation, names[6]: False}
        rows.append({**given, names[3]: f"{lsn(commit)}{place:020d}"})
    return pa.Table.from_pylist(rows, schema=SHAPE.events)


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([(10, "r", "x"), (11, "c", "x"), (13, "d", "")], []),
        ([(10, "r", "x"), (11, "d", ""), (12, "c", "y"), (13, "d", ""), (14, "c", "z")], ["z"]),
        ([(10, "r", "x"), (11, "c", "y"), (11, "d", "")], ["y"]),
    ],
)
def test_commits_in_a_reading_are_apart(events: Sequence[Event], left: list[str]) -> None:
    found = fold_keyed(SHAPE, SHAPE.no_rows(), by_key(SHAPE, events_of(events), SPANS))
    assert found.rows["a"].to_pylist() == left


def test_a_row_takes_no_value_of_one_that_had_its_key_before() -> None:
    events = events_of([(10, "r", "z"), (11, "c", "n"), (11, "d", ""), (12, "c", "z")])
    omitted = events.set_column(6, SHAPE.events.field(6), pa.array([False, False, False, True]))
    found = fold_keyed(SHAPE, SHAPE.no_rows(), by_key(SHAPE, omitted, SPANS))
    assert (found.rows["big"].to_pylist(), found.unknown) == ([None], lsn(20))


def test_a_reading_that_began_before_a_loss_proves_no_row_after_it() -> None:
    events = by_key(SHAPE, events_of([(8, "r", "x"), (12, "c", "n"), (12, "d", "")]), ((lsn(8), lsn(20)),))
    assert fold_keyed(SHAPE, SHAPE.no_rows(), events, Void(lsn(10), lsn(20))).rows.num_rows == 0


def test_a_row_that_may_have_gone_in_a_loss_gives_no_way() -> None:
    rows = fold_keyed(SHAPE, SHAPE.no_rows(), by_key(SHAPE, events_of([(5, "r", "x")]))).rows
    later = by_key(SHAPE, events_of([(12, "c", "n"), (12, "d", "")]))
    assert fold_keyed(SHAPE, rows, later, Void(lsn(10), lsn(20))).rows.num_rows == 0


@pytest.mark.parametrize(
    ("values", "left"),
    [
        (("x", "n", "n"), []),
        (("x", "n", "x"), ["n"]),
        (("x", "n", "q"), ["n"]),
        (("x", "x", "x"), ["x"]),
    ],
    ids=["it went in the loss", "it moves", "it was changed in the loss", "rows alike"],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_values_show_whether_a_row_has_lived_through_a_loss_that_no_reading_makes_good(
    values: tuple[str, str, str], left: list[str], at_once: bool
) -> None:
    events = events_of([(5, "r", values[0]), (12, "c", values[1]), (12, "d", values[2])])
    before = events.slice(0, 1 - at_once)
    rows = fold_keyed(SHAPE, SHAPE.no_rows(), by_key(SHAPE, before)).rows
    found = fold_keyed(SHAPE, rows, by_key(SHAPE, events.slice(1 - at_once)), doubt=lsn(10)).rows
    assert found["a"].to_pylist() == left
    assert fold_keyed(SHAPE, rows, by_key(SHAPE, events.slice(1 - at_once)), doubt=lsn(5)).rows.num_rows == 1


@pytest.mark.long
@pytest.mark.parametrize("apart", [True, False])
def test_a_mirror_after_a_loss_that_no_reading_makes_good(world: World, apart: bool) -> None:
    """A row that had gone, whose key came and went in one transaction, is gone; others that exchange keys later are there."""
    world.config = replace(world.config, streaming=replace(world.config.streaming, gap_policy="ignore"))
    world.execute("INSERT INTO dbo.t VALUES (3, 'z', N'C')")
    world.capture()
    assert world.follow() is None
    world.execute("DELETE FROM dbo.t WHERE id = 2")
    world.server.agent.drain()
    world.execute("INSERT INTO dbo.t VALUES (4, 'q', N'D')")
    world.server.agent.drain()
    mark = "DECLARE @l binary(10) = sys.fn_cdc_get_max_lsn(); "
    world.execute(f"{mark}EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_t', @low_water_mark = @l")
    world.capture()
    if apart:
        assert world.follow() is None
    change(world, "BEGIN TRAN; INSERT INTO dbo.t VALUES (2, 'n', N'N'); DELETE FROM dbo.t WHERE id = 2; COMMIT")
    if apart:
        assert world.follow() is None
    change(world, "UPDATE dbo.t SET id = 4 - id, big = big + N'!' WHERE id < 4")
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server(COLUMNS))


@pytest.mark.long
def test_a_topic_that_an_earlier_version_has_compacted_makes_no_mirror_until_its_table_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has dropped the events that are not the last ones of their keys."""
    without = world.config
    compacting(world, mirrored=True)
    change(world, "INSERT INTO dbo.t VALUES (3, 'z', N'C')")
    change(world, "UPDATE dbo.t SET id = id + 1, big = big + N'!'")
    expected = ordered(world.on_server(COLUMNS))
    own_of: Callable[[NeedsOfMirrors, TableId, str], object] = NeedsOfMirrors.describe

    def described(needs: NeedsOfMirrors, table: TableId, topic: str) -> object:
        found, _ = CaptureMirrors(needs._config, needs._runner, needs._clock).found([table])
        return replace(found[0].description, altered="") if found else own_of(needs, table, topic)

    with monkeypatch.context() as earlier:
        earlier.setattr(NeedsOfMirrors, "describe", described)
        for _ in range(3):
            time.sleep(0.5)
            change(world, "INSERT INTO dbo.t VALUES (20, 'q', N'Q')", "DELETE FROM dbo.t WHERE id = 20")
            assert world.follow() is None
        world.capture()
    assert isinstance(world.follow(anew=True), EventsDroppedError)
    assert ordered(world.rows()) == expected
    world.config = without
    world.read_again()
    assert world.follow(anew=True) is None
    assert ordered(world.rows()) == expected
