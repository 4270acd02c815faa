"""A run that was believed dead wakes with structures that its successor records elsewhere, or not at all: each is recorded once."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.adoption.plan import AdoptedTable, AdoptionPlan
from cdc_assets.assembly.adoption import Adoption
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.steps import STEPS, listening
from cdc_assets.core.steps import step as reach
from cdc_assets.errors import LakeConflictError, QueryError
from cdc_assets.history.store import SchemaHistory
from cdc_assets.ledger.table_state import TableState
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.sleepers import woken_beside
from cdc_assets_tests.unit.streaming.tables import two_tables


def recorded(config: CaptureConfig) -> list[str]:
    rows = rows_of_topic(config, "shop.__schema_history")
    public = rows_of_topic(config, "shop")
    assert len(public) == len(rows)
    return sorted(f"{row['type']} {row['table']}" for row in rows)


def new_tables(path: Path, **changes: object) -> tuple[SimulatedServer, CaptureConfig, TableId, TableId]:
    """A server with two captured tables of which nothing was read yet."""
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=3)
    server.idle_tick()
    return server, make_config(str(path), **changes), lines, orders


def drop(server: SimulatedServer, table: TableId) -> None:
    server.disable(f"dbo_{table.table}")
    del server.schemas[table], server.rows[table]


@pytest.mark.parametrize("place", ["snapshot-complete", "snapshot-planned", "history-recorded"])
def test_structures_of_a_snapshot_that_the_successor_gives_up(tmp_path: Path, place: str) -> None:
    """One of its tables was dropped."""
    server, config, _, orders = new_tables(tmp_path)

    def succeed() -> None:
        drop(server, orders)
        make_capture(server, config).snapshot()

    woken_beside("snapshot-planned", place, make_capture(server, config).snapshot, succeed)
    make_capture(server, config).snapshot()
    assert recorded(config) == ["CREATE lines"]


def test_structures_of_a_snapshot_whose_number_was_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor dies while it gives the snapshot up, and the table is there again."""
    server, config, lines, _ = new_tables(tmp_path)
    with cut_at("snapshot-planned"), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot()
    kept = server.schemas.pop(lines)
    close = SchemaHistory.close

    def die_behind(history: SchemaHistory, number: int) -> bool:
        close(history, number)
        raise PowerCutError

    with monkeypatch.context() as patch:
        patch.setattr(SchemaHistory, "close", die_behind)
        with pytest.raises(PowerCutError):
            make_capture(server, config).snapshot()
    server.schemas[lines] = kept
    assert make_capture(server, config).snapshot().failed == ()
    assert recorded(config) == ["CREATE lines", "CREATE orders"]
    assert [event.key for event in events_of(config, lines)] == [1, 2, 3]


def altered(server: SimulatedServer, table: TableId) -> TableSchema:
    """Its structure with another last column."""
    schema = server.schemas[table]
    return replace(schema, columns=(*schema.columns[:-1], replace(schema.columns[-1], type_name="varchar", length=9)))


def test_structures_of_a_snapshot_that_the_successor_does_not_find_new(tmp_path: Path) -> None:
    """Its successor records nothing; then a column is altered, and only the run that wakes finds that."""
    server, config, _, orders = two_tables(tmp_path)
    before, then = server.schemas[orders], altered(server, orders)

    def again() -> None:
        make_capture(server, config).snapshot([orders])

    def alter(name: str) -> None:
        if name == "history-written":
            server.schemas[orders] = then
        elif name == "round-planned":  # the other one has ended
            server.schemas[orders] = before

    def succeed() -> None:
        with listening(alter):
            again()

    woken_beside("snapshot-planned", "round-planned", again, succeed)
    assert recorded(config) == ["CREATE lines", "CREATE orders"]


def test_structures_that_the_successor_records_otherwise(tmp_path: Path) -> None:
    """Who comes too late is told that another run has taken over, and not of a contradiction."""
    server, config, _, orders = new_tables(tmp_path)
    before, then = server.schemas[orders], altered(server, orders)

    def alter(name: str) -> None:
        if name == "history-recorded":
            server.schemas[orders] = then
        elif name == "history-written":  # the other one has ended
            server.schemas[orders] = before

    def succeed() -> None:
        with listening(alter):
            make_capture(server, config).snapshot()

    woken_beside("snapshot-planned", "history-written", make_capture(server, config).snapshot, succeed)
    assert recorded(config) == ["CREATE lines", "CREATE orders"]


def test_structures_of_a_snapshot_that_are_recorded_without_one_of_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that wakes does not see it for a moment: that table alone is planned again."""
    monkeypatch.setitem(STEPS, "structures-asked", "a run asks the server for structures")
    server, config, lines, orders = new_tables(tmp_path)
    ask, running, has_slept = server.table_schemas, threading.get_ident(), False

    def schemas(tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        if threading.get_ident() == running:
            reach("structures-asked")
        elif has_slept:
            return ask([table for table in tables if table != orders], known)
        return ask(tables, known)

    server.table_schemas = schemas  # type: ignore[method-assign]

    def succeed() -> None:
        nonlocal has_slept
        has_slept = True
        with pytest.raises(LakeConflictError, match="has just recorded other structures under number"):
            make_capture(server, config).snapshot()

    woken_beside("snapshot-planned", "structures-asked", make_capture(server, config).snapshot, succeed)
    assert make_capture(server, config).snapshot().failed == ()
    assert recorded(config) == ["CREATE lines", "CREATE orders"]
    for table in (lines, orders):
        assert [event.key for event in events_of(config, table)] == [1, 2, 3]


def test_structures_of_an_adoption_that_is_called_again(tmp_path: Path) -> None:
    server, config, lines, orders = new_tables(tmp_path)
    states = [
        TableState(
            table,
            server.schemas[table].object_id,
            instance.start_lsn,
            instance.name,
            made=instance.created,
            change_table_id=instance.change_table_id,
        )
        for table in (lines, orders)
        for instance in server.instances
        if instance.table == table
    ]
    plan = AdoptionPlan({}, {}, [AdoptedTable(state.table, state) for state in states])

    def adopt() -> None:
        capture = make_capture(server, config)
        capture.discover()
        Adoption(capture).record(plan)

    woken_beside("adoption-planned", "adoption-planned", adopt, adopt)
    assert recorded(config) == ["CREATE lines", "CREATE orders"]
    server.commit((orders, "insert", 10, "a"))
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, orders)] == [10]


def test_structures_that_a_run_records_while_its_successor_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes when its successor has found none recorded, and knows one of two."""
    monkeypatch.setitem(STEPS, "structures-asked", "a run asks the server for structures")
    server, config, lines, orders = two_tables(tmp_path)
    for table in (lines, orders):
        server.add_column(table, "extra")
        server.enable(table)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    ask, running = server.table_schema, threading.get_ident()

    def schema(table: TableId, known: Lsn = ZERO_LSN) -> TableSchema | None:
        if threading.get_ident() == running:
            if table.schema == "cdc":
                reach("structures-asked")
        elif table == orders:
            raise QueryError("The SELECT permission was denied.", 229)
        return ask(table, known)

    server.table_schema = schema  # type: ignore[method-assign]

    def succeed() -> None:
        with pytest.raises(LakeConflictError, match="has just recorded other structures under number"):
            make_capture(server, config).stream()

    woken_beside("window-planned", "structures-asked", make_capture(server, config).stream, succeed)
    assert make_capture(server, config).stream().troubled == ()
    assert recorded(config) == ["ALTER lines", "ALTER orders", "CREATE lines", "CREATE orders"]
    for table in (lines, orders):
        assert [event.key for event in events_of(config, table) if event.op == "c"] == [10]
        assert [event.after and "extra" in event.after for event in events_of(config, table) if event.op == "c"] == [
            True
        ]
