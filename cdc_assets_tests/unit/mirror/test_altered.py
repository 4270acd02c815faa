"""Columns and keys that change rows without an event: the mirror stays right before it until the table was read again."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.spans import before
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered, started
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

INEXACT = [
    ("decimal(10, 4)", "decimal(10, 2)", "1.2350"),
    ("float", "int", "1.7"),
    ("datetime2(7)", "datetime2(0)", "'2026-01-01 01:02:05.6789123'"),
    ("time(7)", "time(0)", "'03:04:05.6789123'"),
    ("bit", "varchar(5)", "1"),
    ("money", "varchar(20)", "1.2345"),
    ("varchar(9)", "char(5)", "'a'"),
    ("varchar(9) COLLATE Latin1_General_CI_AS", "varchar(9) COLLATE Cyrillic_General_CI_AS", "'a'"),
    ("varchar(9) COLLATE Latin1_General_100_CI_AS_SC_UTF8", "varchar(9) COLLATE Latin1_General_100_CI_AS", "'a'"),
]
EXACT = [
    ("int", "bigint", "7"),
    ("bigint", "nvarchar(20)", "-7"),
    ("date", "datetime2(3)", "'2026-01-01'"),
    ("decimal(10, 2)", "decimal(14, 4)", "1.25"),
    ("nvarchar(9)", "nvarchar(max)", "N'a'"),
    ("datetime2(3)", "datetime2(6)", "'2026-01-01 01:02:05.678'"),
    ("varchar(9) COLLATE Latin1_General_CI_AS", "varchar(20) COLLATE Latin1_General_100_CI_AS_SC_UTF8", "'a'"),
    ("varchar(9) COLLATE Latin1_General_CI_AS", "varchar(9) COLLATE Latin1_General_CS_AS", "'a'"),
    ("varchar(9) COLLATE Latin1_General_CI_AS", "nvarchar(9) COLLATE Cyrillic_General_CI_AS", "'a'"),
]
ENDED = [
    ("decimal(10, 4)", "decimal(10, 2)", ("1.2350", "NULL"), {1: Decimal("1.2350")}),
    ("float", "int", ("1.7", "2"), {1: "1.7"}),
    ("float", "real", ("1.23456789012", "0.5"), {1: 1.23456789012}),
    ("nvarchar(9)", "int", ("N'007'", "N'8'"), {1: "007"}),
    (
        "datetime2(3)",
        "date",
        ("'2026-01-01 10:20:30.5'", "'2026-01-02'"),
        {1: datetime(2026, 1, 1, 10, 20, 30, 500_000)},  # noqa: DTZ001 - without zone, as the column
    ),
    ("varbinary(9)", "varchar(9)", ("0x41FF", "NULL"), {1: "0x41FF"}),
]
"""Types, values of two rows, and the versions that the change ends: of values that the new type does not hold as they are."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize(("old", "new", "value"), INEXACT)
def test_a_type_that_changes_values_is_waited_for(
    server: StandIn, tmp_path: Path, old: str, new: str, value: str, anew: bool
) -> None:
    world = started(server, tmp_path, f"id int NOT NULL PRIMARY KEY, v {old}", f"(1, {value})", f"(2, {value})")
    world.execute("DELETE FROM dbo.t WHERE id = 2")
    world.capture()
    expected = world.on_server("id, v")
    world.execute(f"ALTER TABLE dbo.t ALTER COLUMN v {new}")
    world.execute("INSERT INTO dbo.t VALUES (3, NULL)")
    world.capture()
    for _ in range(2):
        reason = world.follow(anew=anew)
        assert "column v became" in str(reason)
        assert len(world.rows()) == len(expected) == 1
        assert world.rows()[0]["v"] is not None
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (4, NULL)")
    world.capture()
    assert world.follow(anew=anew) is None
    of_server = [row | {"v": str(row["v"])} if isinstance(row["v"], time) else row for row in world.on_server("id, v")]
    assert ordered(world.rows()) == ordered(of_server)


@pytest.mark.long
@pytest.mark.parametrize(("old", "new", "values", "ended"), ENDED)
def test_a_version_that_ends_with_its_type_keeps_its_value(
    server: StandIn, tmp_path: Path, old: str, new: str, values: tuple[str, str], ended: dict[int, object]
) -> None:
    rows = [f"({number}, {value})" for number, value in enumerate(values, 1)]
    world = started(server, tmp_path, f"id int NOT NULL PRIMARY KEY, v {old}", *rows)
    earlier = CaptureMirrors(world.config, LocalRunner(2), SystemClock()).states()[TOPIC].lsn
    world.execute(f"ALTER TABLE dbo.t ALTER COLUMN v {new}")
    world.execute("INSERT INTO dbo.t VALUES (3, NULL)")
    world.capture()
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (4, NULL)")
    world.capture()
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    assert {row["id"]: row["v"] for row in world.versions()} == ended
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    as_of = MirrorReader.of(mirrors.tables, TOPIC, mirrors.states()[TOPIC]).as_of(Lsn.parse(earlier)).to_pylist()
    assert {row["id"]: row["v"] for row in as_of}.items() >= ended.items()
    world.execute("UPDATE dbo.t SET v = NULL WHERE id < 3")
    world.capture()
    assert world.follow() is None
    assert {row["id"] for row in world.versions() if row["v"] is not None} >= {1}


@pytest.mark.long
def test_several_changes_are_made_good_by_one_reading(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, "id int NOT NULL PRIMARY KEY, v float", "(1, 1.7)")
    for number, kind in enumerate(("int", "smallint"), 2):
        world.execute(f"ALTER TABLE dbo.t ALTER COLUMN v {kind}")
        world.execute(f"INSERT INTO dbo.t VALUES ({number}, {number})")
        world.capture()
        assert "column v became int from float" in str(world.follow())
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (4, 4)")
    world.capture()
    for _ in range(2):
        assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


@pytest.mark.long
def test_what_lies_between_a_change_and_the_reading_is_not_known(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, "id int NOT NULL PRIMARY KEY, v float", "(1, 1.7)")
    world.execute("ALTER TABLE dbo.t ALTER COLUMN v int")
    world.execute("INSERT INTO dbo.t VALUES (2, 2)")
    world.capture()
    world.read_again()
    world.execute("DELETE FROM dbo.t WHERE id = 1")
    world.capture()
    assert world.follow() is None
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    ((low, high),) = mirrors.states()[TOPIC].spans
    reader = MirrorReader.of(mirrors.tables, TOPIC, mirrors.states()[TOPIC])
    for lsn in (low, before(high)):
        with pytest.raises(InvalidValueError, match=f"one before {low} or from {high} on"):
            reader.as_of(Lsn.parse(lsn))
    assert [sorted(reader.as_of(Lsn.parse(lsn))["id"].to_pylist()) for lsn in (before(low), high)] == [[1], [1, 2]]


def test_what_lies_in_a_gap_that_is_ignored_is_not_known(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = started(server, tmp_path, "id int NOT NULL PRIMARY KEY", "(1)")
    world.config = replace(world.config, streaming=replace(world.config.streaming, gap_policy="ignore"))
    for number in (2, 3):
        world.execute(f"INSERT INTO dbo.t VALUES ({number})")
        server.agent.drain()
    mark = "DECLARE @l binary(10) = sys.fn_cdc_get_max_lsn(); "
    world.execute(f"{mark}EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_t', @low_water_mark = @l")
    world.capture()
    assert world.follow() is None
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    state = mirrors.states()[TOPIC]
    reader, ((after, until),) = MirrorReader.of(mirrors.tables, TOPIC, state), state.gaps
    for lsn in (str(Lsn.parse(after).next()), before(until)):
        with pytest.raises(InvalidValueError, match="or changes were lost"):
            reader.as_of(Lsn.parse(lsn))
    assert reader.as_of(Lsn.parse(after))["id"].to_pylist() == [1]
    assert "lacks the changes" not in caplog.text
    assert sorted(reader.as_of(Lsn.parse(state.lsn))["id"].to_pylist()) == [1, 3]
    assert f"lacks the changes in ({after}, {until}]" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("how", ["asked", "lost"])
def test_a_mirror_that_is_made_anew_before_it_has_come_to_a_change_begins_behind_that(
    server: StandIn, tmp_path: Path, how: str
) -> None:
    """What was read again tells all rows, whatever the mirror had come to."""
    world = started(server, tmp_path, "id int NOT NULL PRIMARY KEY, v float", "(1, 1.7)")
    world.execute("INSERT INTO dbo.t VALUES (2, 2.5)")
    world.capture()
    world.execute("ALTER TABLE dbo.t ALTER COLUMN v int")
    world.capture()
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (3, 3)")
    world.capture()
    if how == "lost":
        shutil.rmtree(tmp_path / "lake" / f"{TOPIC}.__current")
    assert world.follow(anew=how == "asked") is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


@pytest.mark.long
@pytest.mark.parametrize("change", ["ADD c int NOT NULL CONSTRAINT df DEFAULT 5", "DROP COLUMN b"])
def test_a_column_that_comes_to_a_table_without_a_key_or_leaves_it(
    server: StandIn, tmp_path: Path, change: str
) -> None:
    """Events name rows by all columns, and rows that were read before have others."""
    world = started(server, tmp_path, "a nvarchar(9), n int, b int", "(N'x', 1, 1)", "(N'y', 2, 2)")
    world.execute(f"ALTER TABLE dbo.t {change}")
    world.second_instance()
    world.capture()
    world.execute("UPDATE dbo.t SET n = n + 10 WHERE n = 1")
    world.capture()
    assert "a table without a key, which changed rows without an event" in str(world.follow())
    assert sorted(row["n"] for row in world.rows()) == [1, 2]
    world.read_again()
    world.execute("UPDATE dbo.t SET n = n + 10")
    world.capture()
    for _ in range(2):
        assert world.follow() is None
    names = "a, n, c" if change.startswith("ADD") else "a, n"
    found = [{name: row[name] for name in names.split(", ")} for row in world.rows()]
    assert ordered(found) == ordered(world.on_server(names))


@pytest.mark.long
@pytest.mark.parametrize(("old", "new", "value"), EXACT)
def test_a_wider_type_is_followed(server: StandIn, tmp_path: Path, old: str, new: str, value: str) -> None:
    world = started(server, tmp_path, f"id int NOT NULL PRIMARY KEY, v {old}", f"(1, {value})")
    world.execute(f"ALTER TABLE dbo.t ALTER COLUMN v {new}")
    world.execute("INSERT INTO dbo.t VALUES (3, NULL)")
    world.capture()
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


@pytest.mark.long
@pytest.mark.parametrize("late", [False, True])
def test_a_column_that_is_another_one_of_the_same_name(server: StandIn, tmp_path: Path, late: bool) -> None:
    """A mirror that looks only after the table was read again comes to the same."""
    world = started(
        server, tmp_path, "id int NOT NULL PRIMARY KEY, a nvarchar(9), b int", "(1, N'x', 1)", "(2, N'y', 2)"
    )
    world.execute("UPDATE dbo.t SET b = 3 WHERE id = 2")
    world.execute("ALTER TABLE dbo.t DROP COLUMN a")
    world.execute("ALTER TABLE dbo.t ADD a nvarchar(9)")
    world.second_instance()
    world.execute("INSERT INTO dbo.t (id, a, b) VALUES (3, N'z', 3)")
    world.capture()
    world.capture()
    if not late:
        assert "column a was dropped and added again" in str(world.follow())
        assert {row["id"]: row["a"] for row in world.rows()} == {1: "x", 2: "y"}
    world.read_again()
    world.capture()
    assert world.follow() is None
    assert ordered([{name: row[name] for name in ("id", "a", "b")} for row in world.rows()]) == ordered(
        world.on_server("id, a, b")
    )


@pytest.mark.long
def test_a_column_of_which_another_one_that_is_not_captured_has_the_name(server: StandIn, tmp_path: Path) -> None:
    """What was recorded of the former one stays."""
    world = started(server, tmp_path, "id int NOT NULL PRIMARY KEY, a nvarchar(9), b int", "(1, N'x', 1)")
    world.execute("UPDATE dbo.t SET b = 2 WHERE id = 1")
    world.capture()
    world.execute("ALTER TABLE dbo.t DROP COLUMN a")
    world.second_instance()
    world.execute("ALTER TABLE dbo.t ADD a datetime2(3)")
    world.execute("INSERT INTO dbo.t (id, b) VALUES (3, 3)")
    world.capture()
    world.capture()
    assert world.follow() is None
    assert {row["id"]: row["a"] for row in world.rows()} == {1: "x", 3: None}


@pytest.mark.long
def test_a_table_that_gets_a_key(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, "a nvarchar(9), n int", "(N'x', 1)", "(N'y', 2)", "(N'z', 3)")
    world.execute("ALTER TABLE dbo.t ADD id int IDENTITY NOT NULL")
    world.execute("ALTER TABLE dbo.t ADD CONSTRAINT pk PRIMARY KEY (id)")
    world.second_instance()
    world.execute("INSERT INTO dbo.t (a, n) VALUES (N'q', 4)")
    world.capture()
    world.capture()
    assert "its key became id" in str(world.follow())
    assert sorted(row["n"] for row in world.rows()) == [1, 2, 3]
    world.read_again()
    world.execute("UPDATE dbo.t SET n = n + 10")
    world.capture()
    assert world.follow() is None
    assert ordered([{name: row[name] for name in ("id", "a", "n")} for row in world.rows()]) == ordered(
        world.on_server("id, a, n")
    )


@pytest.mark.long
def test_a_table_that_gets_its_key_by_a_property_is_read_again(server: StandIn, tmp_path: Path) -> None:
    """An update of what is its key now says nothing of the row that was there; a removal was of one of several rows alike."""
    world = World(server, tmp_path / "lake", "a int, note nvarchar(9)")
    world.execute("INSERT INTO dbo.t VALUES (1, N'x'), (2, N'y'), (2, N'z')")
    world.capture("snapshot")
    world.mirror()
    for statement in ("UPDATE dbo.t SET a = 5 WHERE a = 1", "DELETE FROM dbo.t WHERE note = N'z'"):
        world.execute(statement)
    world.capture()
    before = ordered(world.rows())
    world.config = replace(world.config, events=replace(world.config.events, message_key_columns=("dbo.t:a",)))
    assert "message.key.columns" in str(world.follow())
    world.execute("INSERT INTO dbo.t VALUES (7, N'w')")
    world.capture()
    assert "read the table again" in str(world.follow())
    assert ordered(world.rows()) == before, "nothing moves until then"
    world.read_again()
    world.execute("UPDATE dbo.t SET a = 9 WHERE a = 2")
    world.capture()
    for anew in (False, True):
        world.mirror(anew=anew)
        assert ordered(world.rows()) == ordered(world.on_server("a, note"))


@pytest.mark.long
def test_a_table_that_loses_the_key_of_a_property_is_read_again(server: StandIn, tmp_path: Path) -> None:
    """READs carry an earlier LSN than that of the rows, so without a key a READ and its row's INSERT would be two rows."""
    world = World(server, tmp_path / "lake", "a int NOT NULL, note nvarchar(9)")
    keyless = world.config
    world.config = replace(keyless, events=replace(keyless.events, message_key_columns=("dbo.t:a",)))
    world.execute("INSERT INTO dbo.t VALUES (1, N'x')")
    world.capture("snapshot")
    world.mirror()
    before = ordered(world.rows())
    world.config = keyless
    world.execute("INSERT INTO dbo.t VALUES (7, N'w')")
    world.capture()
    assert "message.key.columns" in str(world.follow())
    assert ordered(world.rows()) == before, "nothing moves until then"
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (7, N'w')")
    world.capture()
    for anew in (False, True):
        world.mirror(anew=anew)
        assert ordered(world.rows()) == ordered(world.on_server("a, note"))
