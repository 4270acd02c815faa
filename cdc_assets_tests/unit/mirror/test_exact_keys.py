"""Keys that differ by 100 ns: two rows in every form of events that tells them apart, and no mirror in one that does not."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.config.settings import EventSettings, TimeMode
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.core.schema import Column
from cdc_assets.envelope.reads import first_read
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.events import EventFile
from cdc_assets.mirror import capture, describe, steps
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.exact_keys import exact_files
from cdc_assets.mirror.natural import EXACT, converter
from cdc_assets.mirror.steps import Target
from cdc_assets.typemap.exact import coarse_by
from cdc_assets.typemap.mapping import map_column
from cdc_assets_tests.unit.mirror.world import TOPIC, World, content
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

TABLE = TableId(DATABASE, "dbo", "t")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - without zone, as the columns
TICKS = [int((datetime(*moment) - EPOCH) / timedelta(microseconds=1)) * 10 + digit  # noqa: DTZ001 - likewise
         for moment in ((1969, 7, 20, 20, 17, 40, 123456), (2026, 1, 2), (1700, 2, 28), (2200, 3, 1, 0, 0, 0, 1))
         for digit in (0, 1, 9)]  # fmt: skip
OFFSET = pa.struct([pa.field("ticks", pa.int64()), pa.field("minutes", pa.int32())])


@pytest.mark.parametrize("mode", get_args(TimeMode))
def test_every_form_that_holds_all_digits_gives_the_same_key(mode: TimeMode) -> None:
    for kind, values, wanted in (
        ("datetime2", pa.array([*TICKS, None]), [*TICKS, None]),
        (
            "datetimeoffset",
            pa.array([{"ticks": one, "minutes": zone} for one in TICKS for zone in (0, 330, -60)], OFFSET),
            [one for one in TICKS for _ in range(3)],
        ),
    ):
        mapped = map_column(Column("c", kind, 1, scale=7), EventSettings("shop", time_mode=mode))
        assert mapped is not None
        field = mapped.connect.to_field("c")
        if not coarse_by(mapped.column, field):
            assert converter(field, EXACT)(mapped.convert(values)).to_pylist() == wanted


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path / "lake", "at datetime2(7) NOT NULL PRIMARY KEY, note nvarchar(9)")
        rows = ", ".join(f"('2026-01-01 00:00:00.000001{digit}', N'{digit}')" for digit in range(8))
        made.execute(f"INSERT INTO dbo.t VALUES {rows}")
        made.capture("snapshot")
        yield made


def write(world: World, *statements: str) -> None:
    for statement in statements:
        world.execute(statement.replace("@", "'2026-01-01 00:00:00.000001"))
    world.capture()


def notes(world: World) -> list[str]:
    return sorted(row["note"] for row in world.rows())


def on_server(world: World) -> list[str]:
    return sorted(note for (note,) in world.execute("SELECT note FROM dbo.t"))


def in_mode(world: World, mode: TimeMode) -> None:
    world.config = replace(world.config, events=replace(world.config.events, time_mode=mode))


def read_again(world: World) -> None:
    with SqlServerSource(world.config.connection) as source:
        bulk = MssqlBulkSource(world.config.connection)
        Capture(world.config, source, bulk, LocalRunner(2), SystemClock()).snapshot([TABLE])


def refusal(world: World) -> str:
    return str(CaptureMirrors(world.config, LocalRunner(2), SystemClock()).catch_up().get(TOPIC, ""))


@pytest.mark.long
def test_each_change_finds_its_own_row(world: World) -> None:
    world.mirror()
    write(world, "UPDATE dbo.t SET note = N'new' WHERE at = @3'", "DELETE FROM dbo.t WHERE at = @5'")
    world.mirror()
    assert notes(world) == on_server(world) == ["0", "1", "2", "4", "6", "7", "new"]


def test_a_mirror_whose_keys_were_made_by_another_rule_is_made_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(describe, "is_cut", lambda column: False)
        world.mirror()
        assert notes(world) == ["7"]
    world.mirror()
    assert notes(world) == on_server(world)


@pytest.mark.long
def test_events_of_shortened_keys_count_for_nothing(world: World) -> None:
    """What they told is known again when the table was read in a form with every digit."""
    world.mirror()
    state = CaptureMirrors(world.config, LocalRunner(2), SystemClock()).states()[TOPIC]
    in_mode(world, "connect")
    write(world, "UPDATE dbo.t SET note = N'new' WHERE at = @3'", "DELETE FROM dbo.t WHERE at = @5'")
    assert "time.precision.mode" in refusal(world)
    in_mode(world, "isostring")
    write(world, "UPDATE dbo.t SET note = N'newer' WHERE at = @4'")
    assert "time.precision.mode" in refusal(world), "the table was not read again"
    assert CaptureMirrors(world.config, LocalRunner(2), SystemClock()).states()[TOPIC] == state
    read_again(world)
    write(world, "INSERT INTO dbo.t VALUES (@8', N'8')")
    for anew in (False, True):
        world.mirror(anew=anew)
        assert notes(world) == on_server(world) == ["0", "1", "2", "6", "7", "8", "new", "newer"]


@pytest.mark.long
def test_a_mirror_that_begins_behind_events_of_shortened_keys(world: World) -> None:
    in_mode(world, "connect")
    write(world, "DELETE FROM dbo.t WHERE at = @5'")
    assert "time.precision.mode" in refusal(world)
    in_mode(world, "adaptive")
    read_again(world)
    write(world, "UPDATE dbo.t SET note = N'new' WHERE at = @3'")
    world.mirror()
    assert notes(world) == on_server(world)


def join_files(world: World) -> None:
    """As housekeeping does, or another program by OPTIMIZE: what a name has told of a window is gone."""
    for directory in (world.lake / TOPIC, world.lake / f"{TOPIC}@2"):
        table = DeltaTable(str(directory))
        table.optimize.compact()
        assert len(table.file_uris()) == 1


def end_of(world: World, generation: str) -> str:
    """LSN of the newest event in one of the topic's tables."""
    found = DeltaTable(str(world.lake / f"{TOPIC}{generation}")).to_pyarrow_table(columns=["position"])["position"]
    return str(max(found.to_pylist())[:LSN_WIDTH])


@pytest.mark.combinations
@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_joined_files_tell_as_much_as_those_that_they_are_made_of(
    world: World, monkeypatch: pytest.MonkeyPatch, goes_on: bool, is_recorded: bool
) -> None:
    """Though the table was read again at the LSN of the last event of a shortened key, and files hold events of before and of after it."""
    world.mirror()
    in_mode(world, "connect")
    write(world, "DELETE FROM dbo.t WHERE at = @5'")
    write(world, "UPDATE dbo.t SET note = N'new' WHERE at = @3'")
    in_mode(world, "adaptive")
    if not is_recorded:  # by an earlier version
        state = steps.target_of
        monkeypatch.setattr(capture, "target_of", lambda known, *given: state(replace(known, snapshot_id=None), *given))
    assert "time.precision.mode" in refusal(world), "the table was not read again"
    read_again(world)
    assert end_of(world, "") == end_of(world, "@2")
    if goes_on:
        write(world, "INSERT INTO dbo.t VALUES (@8', N'8')", "DELETE FROM dbo.t WHERE at = @1'")
    join_files(world)
    for anew in (False, True):
        world.mirror(anew=anew)
        assert notes(world) == on_server(world)


@pytest.mark.long
def test_a_reading_with_shortened_keys_at_the_lsn_of_an_exact_one_counts_for_nothing(world: World) -> None:
    world.mirror()
    in_mode(world, "connect")
    read_again(world)
    in_mode(world, "adaptive")
    write(world, "UPDATE dbo.t SET note = N'new' WHERE at = @3'")
    DeltaTable(str(world.lake / TOPIC)).optimize.compact()
    assert "time.precision.mode" in refusal(world)
    read_again(world)
    DeltaTable(str(world.lake / TOPIC)).optimize.compact()
    world.mirror()
    assert notes(world) == on_server(world)


def test_bounds_that_another_program_has_cut_are_not_believed() -> None:
    """Nor that a file goes on for ever of which it has told none."""
    read, reads = "00000027:00000a98:0003", first_read("00000027:00000a98:0003", 4)
    change, coarse_read = f"{read}/00000002/{read}/1", f"{read}/ffffffff/00000004:0000/7"
    later = "00000027:00000a98:0004/00000001/00000027:00000a98:0004/1"
    error = ConfigurationError("time.precision.mode", "connect", "another", "set it")
    target = Target(read, read, 9, reads=reads)
    for told, true, is_over in (
        (change, change, True),
        (coarse_read, coarse_read, True),
        (f"{read}/ffffffff/\U0010ffff", coarse_read, True),
        ("00000027:0\U0010ffff", change, True),
        ("~", change, True),
        ("~", first_read(read, 4), False),
        ("~", later, False),
        (later, later, False),
        (f"{read}/ffffffff/\U0010ffff", first_read(read, 4), False),
    ):
        files = [EventFile(0, "exact", 1, reads, reads), EventFile(1, "coarse", 1, "", told)]

        def newest_in(file: EventFile, until: str, true: str = true) -> str:
            assert file.path == "coarse"
            return true

        if is_over:
            assert exact_files(target, files, {1: error}, 0, newest_in) == (
                replace(target, starts=(read,)),
                (files[0],),
            )
        else:
            with pytest.raises(ConfigurationError):
                exact_files(target, files, {1: error}, 0, newest_in)


@pytest.mark.long
def test_a_later_reading_of_the_table_takes_no_history(world: World) -> None:
    in_mode(world, "connect")
    write(world, "DELETE FROM dbo.t WHERE at = @5'")
    in_mode(world, "adaptive")
    read_again(world)
    world.mirror()
    write(world, "UPDATE dbo.t SET note = N'new' WHERE at = @3'")
    world.mirror()
    before = content(world.lake)
    assert len(before[1]) == 1
    read_again(world)
    world.mirror()
    assert content(world.lake) == before
