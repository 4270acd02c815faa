"""Columns that settings leave out of events, or mask, for a while: the mirror stops before they are shown again, until the table was read."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import ColumnRule
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.core.steps import listening
from cdc_assets.envelope.plan import EXCLUDED, ConnectorIdentity
from cdc_assets.errors import MirrorError
from cdc_assets.history import store
from cdc_assets.history.records import HistoryEntry, parse_structure, structure_text
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.signal_state import RoundReads
from cdc_assets.mirror.altered import changes
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.needs import NeedsOfMirrors
from cdc_assets.signals.requests import ask, compose
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered, started
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

COLUMN = ("dbo.t.v",)
RULES: dict[str, dict[str, Any]] = {
    "exclude": {"column_exclude": COLUMN},
    "include": {"column_include": ("dbo.t.id", "dbo.t.w")},
    "mask": {"column_rules": (ColumnRule("mask", COLUMN, 3),)},
    "truncate": {"column_rules": (ColumnRule("truncate", COLUMN, 1),)},
    "hash": {"column_rules": (ColumnRule("hash_v2", COLUMN, algorithm="SHA-256", salt="x"),)},
}
KEYED = "id int NOT NULL PRIMARY KEY, v varchar(9), w int"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def set_rule(world: World, **rules: Any) -> None:
    plain = {"column_exclude": (), "column_include": (), "column_rules": ()}
    world.config = replace(world.config, events=replace(world.config.events, **{**plain, **rules}))


def change(world: World, number: int) -> None:
    world.execute(f"INSERT INTO dbo.t VALUES ({number}, 'value {number}', {number})")
    world.capture()


def asked(server: StandIn, tmp_path: Path) -> World:
    """A capture that is to read its table in chunks by a rule."""
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    world.execute("CREATE TABLE dbo.signals (id varchar(64), type varchar(64), data varchar(max))")
    world.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'signals', @role_name = NULL")
    signals = replace(world.config.signals, collections=(TableId(DATABASE, "dbo", "signals"),))
    world.config = replace(world.config, signals=signals)
    world.capture()
    set_rule(world, **RULES["mask"])
    ask(world.config, compose("some", "execute-snapshot", [rf"{DATABASE}\.dbo\.t"]))
    server.agent.start()
    return world


@pytest.mark.long
@pytest.mark.parametrize("looks", ["always", "late", "anew"])
@pytest.mark.parametrize("rule", RULES)
def test_a_column_that_is_shown_again_is_waited_for(server: StandIn, tmp_path: Path, rule: str, looks: str) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES[rule])
    change(world, 2)
    change(world, 3)
    assert world.follow() is None
    shown = world.rows()
    assert len(shown) == 3
    set_rule(world)
    if looks == "always":  # no event has come since then
        assert "column v is no longer" in str(world.follow())
        assert world.rows() == shown
    change(world, 4)
    if looks == "always":
        for _ in range(2):
            assert "column v is no longer" in str(world.follow())
            assert world.rows() == shown
    world.read_again()
    change(world, 5)
    for _ in range(2):
        assert world.follow(anew=looks == "anew") is None
        assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


def test_a_table_that_is_read_again_at_once_needs_no_event(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    assert world.follow() is None
    set_rule(world)
    world.read_again()
    world.capture()
    for _ in range(2):
        assert world.follow() is None
        assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))
    change(world, 3)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


@pytest.mark.long
def test_what_was_read_by_the_former_settings_makes_nothing_good(server: StandIn, tmp_path: Path) -> None:
    """A snapshot that is ahead of the changes, which come by other settings."""
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    world.execute("INSERT INTO dbo.t VALUES (3, 'value 3', 3)")
    world.read_again()
    set_rule(world)
    world.capture()
    assert "column v is no longer left out of events" in str(world.follow())
    change(world, 4)
    assert "column v is no longer left out of events" in str(world.follow())
    world.read_again()
    change(world, 5)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_settings_under_which_no_event_came_and_columns_that_are_hidden_from_now_on(
    server: StandIn, tmp_path: Path, rule: str
) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES[rule])
    world.capture()
    assert world.follow() is None
    set_rule(world)
    change(world, 2)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))
    set_rule(world, **RULES[rule])
    change(world, 3)
    assert world.follow() is None
    assert [row["v"] for row in world.rows() if row["id"] < 3] == ["value 1", "value 2"]


@pytest.mark.long
def test_a_column_that_was_never_shown_before(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    set_rule(world, **RULES["exclude"])
    world.execute("INSERT INTO dbo.t VALUES (1, 'value 1', 1)")
    world.capture("snapshot")
    world.mirror()
    set_rule(world)
    change(world, 2)
    assert isinstance(world.follow(), MirrorError)
    world.read_again()
    change(world, 3)
    assert world.follow() is None
    assert sorted((row["id"], row["v"]) for row in world.rows()) == sorted(world.execute("SELECT id, v FROM dbo.t"))


@pytest.mark.long
@pytest.mark.parametrize("step", ["history-written", "files-written", "table-committed"])
@pytest.mark.parametrize("number", [2, 3])
def test_settings_that_change_while_a_window_is_in_flight(
    server: StandIn, tmp_path: Path, step: str, number: int
) -> None:
    """The first window by the rule, which has recorded it, and the next one, which has not."""
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    for earlier in range(2, number):
        change(world, earlier)
    with cut_at(step), pytest.raises(PowerCutError):
        change(world, number)
    set_rule(world)
    world.capture()
    assert "column v is no longer left out of events" in str(world.follow())
    world.execute("INSERT INTO dbo.t VALUES (9, 'value 9', 9)")
    world.capture()
    assert "column v is no longer left out of events" in str(world.follow())
    world.read_again()
    change(world, 10)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


@pytest.mark.long
def test_rows_that_only_an_incremental_snapshot_has_read_by_the_rule(server: StandIn, tmp_path: Path) -> None:
    world = asked(server, tmp_path)
    for _ in range(3):
        world.capture()
    world.follow()
    assert [row["v"] for row in world.rows()] == ["***"]
    set_rule(world)
    world.capture()
    assert "column v is no longer masked in events" in str(world.follow())
    world.read_again()
    change(world, 2)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


@pytest.mark.long
def test_public_schema_changes_and_windows_without_other_settings_say_nothing(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    published = DeltaTable(str(world.lake / "shop")).to_pyarrow_table().num_rows
    for number, rule in enumerate(("exclude", "exclude", "", "", "exclude"), 2):
        set_rule(world, **RULES.get(rule, {}))
        change(world, number)
    world.read_again()
    found = DeltaTable(str(world.lake / "shop.__schema_history")).to_pyarrow_table().sort_by("window_id")
    assert [parse_structure(text)[2] for text in found["structure"].to_pylist()] == [
        (),
        (("v", "exclude"),),
        (),
        (("v", "exclude"),),
    ]
    assert DeltaTable(str(world.lake / "shop")).to_pyarrow_table().num_rows == published


def test_a_history_without_what_was_hidden_stops_no_mirror() -> None:
    columns = Column("id", "int", 1), Column("v", "varchar", 2, length=9)
    for key in ((), ("id",)):
        schema = TableSchema(TableId(DATABASE, "dbo", "t"), 1, columns, key)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        old = HistoryEntry("CREATE", schema, ("id", "v"), "i", Lsn.from_int(1), at)
        hidden = replace(old, kind="ALTER", lsn=Lsn.from_int(2), hidden=(("v", EXCLUDED),))
        shown = replace(hidden, lsn=Lsn.from_int(3), hidden=())
        assert changes([old, hidden], ()) == changes([old, old, shown], ()) == []
        assert [number for number, _ in changes([old, hidden, shown], ())] == [2]


@pytest.mark.long
def test_compaction_of_a_topic_without_a_mirror_waits_for_no_reading(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    set_rule(world)
    change(world, 3)
    for enabled in (True, False):
        config = replace(world.config, mirror=replace(world.config.mirror, enabled=enabled))
        found = NeedsOfMirrors(config, LocalRunner(1), SystemClock()).describe(TableId(DATABASE, "dbo", "t"), TOPIC)
        assert isinstance(found, str) == enabled


@pytest.mark.long
@pytest.mark.parametrize("rule", ["exclude", "mask"])
def test_rows_of_a_table_without_a_key_are_named_otherwise(server: StandIn, tmp_path: Path, rule: str) -> None:
    world = started(server, tmp_path, "id int, v varchar(9), w int", "(1, 'a', 1)", "(2, 'b', 2)")
    for rules in (RULES[rule], {}):
        set_rule(world, **rules)
        world.execute("UPDATE dbo.t SET w = w + 10 WHERE id = 1")
        world.capture()
        assert "column v" in str(world.follow())
        world.read_again()
        world.execute("UPDATE dbo.t SET w = w + 10 WHERE id = 2")
        world.capture()
        assert world.follow() is None
        names = "id, w" if rules else "id, v, w"
        found = [{name: row[name] for name in names.split(", ")} for row in world.rows()]
        assert ordered(found) == ordered(world.on_server(names))


@pytest.mark.long
@pytest.mark.parametrize("again", ["condition", "condition, altered", "without a key"])
def test_a_snapshot_of_some_rows_makes_nothing_good(server: StandIn, tmp_path: Path, again: str) -> None:
    columns = "id int, v varchar(9), w int" if again == "without a key" else KEYED
    world = started(server, tmp_path, columns, "(1, 'value 1', 1)", "(7, 'value 7', 7)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    world.read_again()
    assert world.follow() is None
    set_rule(world)
    if "altered" in again:
        world.execute("ALTER TABLE dbo.t ALTER COLUMN w bigint")
    table = rf"{DATABASE}\.dbo\.t"
    conditions = {table: "SELECT * FROM dbo.t WHERE id = 7"}
    ask(world.config, compose("some", "execute-snapshot", [table], snapshot="blocking", conditions=conditions))
    for _ in range(2):
        world.capture()
        assert "column v" in str(world.follow())
    change(world, 5)
    assert "column v" in str(world.follow())
    world.read_again()
    change(world, 6)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


def end_with_reads(world: World) -> RoundReads:
    """A run that ends once READs are recorded, and nothing else about them."""
    found: list[RoundReads] = []

    def cut(step: str) -> None:
        if step == "signals-recorded":
            manifest = Manifest(TopicTables.of(world.config), world.config.events.topic_prefix).read()
            found.extend(state.reads for state in manifest.signals.values() if state.reads is not None)
            if found:
                raise PowerCutError

    for _ in range(4):
        if not found:
            with listening(cut), suppress(PowerCutError):
                world.capture()
    return found[0]


@pytest.mark.parametrize("rule", ["mask", ""])
def test_a_run_that_ends_before_it_records_what_reads_show(server: StandIn, tmp_path: Path, rule: str) -> None:
    world = asked(server, tmp_path)
    end_with_reads(world)
    set_rule(world, **RULES.get(rule, {}))
    world.capture()
    if rule:
        assert world.follow() is None
        assert [row["v"] for row in world.rows()] == ["***"]
    set_rule(world)
    world.capture()
    assert "column v is no longer masked in events" in str(world.follow())


@pytest.mark.long
def test_reads_whose_number_has_passed_are_read_again(server: StandIn, tmp_path: Path) -> None:
    """Another database has recorded structures meanwhile."""
    world = asked(server, tmp_path)
    reads = end_with_reads(world)
    config = world.config
    topics = TopicTables.of(config)
    history = SchemaHistory(topics, config.events, config.history, ConnectorIdentity())
    other = TableSchema(TableId("other", "dbo", "t"), 1, (Column("id", "int", 1),), ())
    history.load()
    history.commit(
        reads.window_id + 1, [HistoryEntry("CREATE", other, ("id",), "i", Lsn.from_int(1), datetime.now(UTC))]
    )
    for _ in range(3):
        world.capture()
    assert world.follow() is None
    assert [row["v"] for row in world.rows()] == ["***"]
    set_rule(world)
    world.capture()
    assert "column v is no longer masked in events" in str(world.follow())


@pytest.mark.long
def test_a_table_that_was_altered_in_front_of_a_snapshot_that_is_ahead(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    world.execute("INSERT INTO dbo.t VALUES (3, 'value 3', 3)")
    world.execute("ALTER TABLE dbo.t ALTER COLUMN w bigint")
    world.execute("INSERT INTO dbo.t VALUES (5, 'value 5', 3)")
    world.read_again()
    set_rule(world)
    change(world, 4)
    world.capture()
    assert "column v is no longer left out of events" in str(world.follow())
    world.read_again()
    change(world, 6)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


@pytest.mark.long
@pytest.mark.parametrize("rule", ["mask", "truncate", "hash", "exclude"])
def test_a_column_of_the_key(server: StandIn, tmp_path: Path, rule: str) -> None:
    """Keys hold it as it is, rows do not."""
    rules = {"column_exclude": ("dbo.t.id",)}
    if rule != "exclude":
        rules = {"column_rules": tuple(replace(one, columns=("dbo.t.id",)) for one in RULES[rule]["column_rules"])}
    world = World(server, tmp_path / "lake", "id varchar(9) NOT NULL PRIMARY KEY, v varchar(9), w int")
    set_rule(world, **rules)
    world.execute("INSERT INTO dbo.t VALUES ('aa', 'value 1', 1), ('ab', 'value 2', 2)")
    world.capture("snapshot")
    world.mirror()
    set_rule(world)
    change(world, 3)
    if rule != "exclude":
        assert "column id is no longer" in str(world.follow())
        world.read_again()
        world.capture()
    assert world.follow() is None
    found = [{name: row[name] for name in ("id", "v", "w")} for row in world.rows()]
    assert ordered(found) == ordered(world.on_server("id, v, w"))


@pytest.mark.long
def test_a_hash_of_another_spelling_is_the_same(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    for number, name in enumerate(("SHA-256", "sha-256"), 2):
        set_rule(world, column_rules=(ColumnRule("hash_v2", COLUMN, algorithm=name, salt="x"),))
        change(world, number)
        assert world.follow() is None
    set_rule(world, column_rules=(ColumnRule("hash_v2", COLUMN, algorithm="SHA-256", salt="y"),))
    change(world, 4)
    assert "column v is no longer hashed in events as before" in str(world.follow())


def test_settings_that_change_after_the_number_of_a_window_was_closed(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    world.execute("INSERT INTO dbo.t VALUES (2, 'value 2', 2)")
    for _ in range(2):  # its repetition has closed it
        with cut_at("history-written"), pytest.raises(PowerCutError):
            world.capture()
    set_rule(world, **RULES["exclude"])
    world.capture()
    assert world.follow() is None
    assert [row["v"] for row in world.rows()] == ["value 1", None]
    set_rule(world)
    change(world, 3)
    assert "column v is no longer left out of events" in str(world.follow())


def test_settings_that_change_together_with_the_capture_instance(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    world.execute("INSERT INTO dbo.t VALUES (2, 'value 2', 2)")
    world.execute("ALTER TABLE dbo.t ADD x int")
    world.second_instance()
    world.execute("INSERT INTO dbo.t VALUES (3, 'value 3', 3, 3)")
    set_rule(world, **RULES["exclude"])
    world.capture()
    published = DeltaTable(str(world.lake / "shop")).to_pyarrow_table().sort_by("window_id")["value"].to_pylist()
    found = [[column["name"] for column in one["tableChanges"][0]["table"]["columns"]] for one in published]
    assert found == [["id", "v", "w"], ["id", "v", "w", "x"]]


@pytest.mark.long
@pytest.mark.parametrize("rule", ["mask", "exclude"])
def test_a_quiet_table_of_which_an_earlier_version_has_recorded_nothing(
    server: StandIn, tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    world.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    world.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
    set_rule(world, **RULES[rule])
    world.execute("INSERT INTO dbo.t VALUES (1, 'value 1', 1)")
    with monkeypatch.context() as patch:
        patch.setattr(store, "structure_text", lambda entry: structure_text(replace(entry, hidden=None)))
        world.capture("snapshot")
    world.mirror()
    for number in range(2):
        world.execute(f"INSERT INTO dbo.u VALUES ({number})")
        world.capture()
        assert world.follow() is None
    entries = DeltaTable(str(world.lake / "shop.__schema_history")).to_pyarrow_table().num_rows
    assert entries == 3
    set_rule(world)
    change(world, 2)
    assert "column v is no longer" in str(world.follow())


def test_how_far_mirrors_have_come_is_read_once(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    world.execute(f"CREATE TABLE dbo.u ({KEYED})")
    world.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
    set_rule(world, column_exclude=("dbo..*.v",))
    for table in "tu":
        world.execute(f"INSERT INTO dbo.{table} VALUES (1, 'value 1', 1)")
    world.capture("snapshot")
    set_rule(world)
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    read: list[Mapping[str, MirrorState]] = []

    def states() -> Mapping[str, MirrorState]:
        read.append({})
        return {}

    monkeypatch.setattr(mirrors, "states", states)
    found, troubles = mirrors.found()
    assert len(found) == len(troubles) == 2
    assert len(read) == 1
