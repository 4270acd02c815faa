"""Mirrors of tables whose rows no snapshot has read at first."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError
from cdc_assets.lake.events import EventFile
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.steps import Target, is_overtaken, next_step
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.mirror.world import TOPIC, World
from mssql_standin.control import StandIn


def lsn_text(number: int) -> str:
    return str(Lsn.from_int(number))


@pytest.mark.long
@pytest.mark.parametrize("columns", ["a int primary key, n int", "a int, n int"])
def test_a_mirror_is_right_from_where_the_rows_were_read(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, columns: str
) -> None:
    world = World(server, tmp_path / "lake", columns)
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, mode="no_data"))

    def follow() -> tuple[MirrorState, MirrorReader]:
        world.capture()
        world.mirror()
        mirrors = mirrors_of(str(world.lake))
        state = mirrors.states()[TOPIC]
        return state, MirrorReader.of(mirrors.tables, TOPIC, state)

    world.execute("INSERT INTO dbo.t VALUES (1, 1), (2, 2), (3, 3)")
    world.capture("snapshot")
    world.execute("UPDATE dbo.t SET n = 5 WHERE a = 2")
    early, reader = follow()
    assert reader.as_of(Lsn.parse(early.lsn)).num_rows == 1
    assert "No snapshot has read the rows" in caplog.text
    world.execute("DELETE FROM dbo.t WHERE a = 3")
    world.read_again()
    late, reader = follow()
    assert early.lsn < late.begin <= late.lsn
    assert reader.as_of(Lsn.parse(late.lsn)).num_rows == 2
    with pytest.raises(InvalidValueError, match="does not have all rows"):
        reader.as_of(Lsn.parse(early.lsn))
    world.execute("DELETE FROM dbo.t")
    assert follow()[0].begin == late.begin


@pytest.mark.parametrize(("read", "begin"), [("", ""), (lsn_text(3), lsn_text(5))], ids=["unread", "read"])
def test_events_that_compaction_has_left_are_all_rows_only_of_a_table_that_was_read(read: str, begin: str) -> None:
    target = Target(lsn_text(9), read, 4, (), (), rows_from=lsn_text(5))
    file = EventFile(0, "f", 1, f"{lsn_text(5)}/0", f"{lsn_text(9)}/0")
    step = next_step(TOPIC, MirrorState(), target, [file], "key int64: a int32 00", anew=True)
    assert step is not None
    assert step.begin == begin
    assert not is_overtaken(step, target)
    later = replace(target, complete_after=lsn_text(9), rows_from=lsn_text(9))
    assert is_overtaken(step, later) == bool(begin), "it says nothing of LSNs before its end"
    assert is_overtaken(step, replace(target, complete_after=lsn_text(10), rows_from=lsn_text(10)))


def test_a_mirror_of_a_table_that_was_read_without_rows_is_right_from_there(server: StandIn, tmp_path: Path) -> None:
    """There is no READ that a step would take."""
    world = World(server, tmp_path / "lake", "a int primary key, n int")
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, mode="no_data"))
    world.execute("INSERT INTO dbo.t VALUES (1, 1)")
    world.capture("snapshot")
    world.execute("DELETE FROM dbo.t")
    world.capture()
    world.mirror()
    assert not mirrors_of(str(world.lake)).states()[TOPIC].begin
    world.read_again()
    world.capture()
    world.mirror()
    state = mirrors_of(str(world.lake)).states()[TOPIC]
    assert "" < state.begin <= state.lsn
