"""Tables that are altered while their rows wait to be read.

A column may be gone, with values that were logged before, behind a snapshot that has not got it. And a window that is repeated may be
unable to record a structure, because its number is closed: another table's was recorded, or a repeat found none to be recorded.
"""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import refusing, started, stream_until


def drop_column(server: SimulatedServer, table: TableId, column: str, *, captured: bool) -> None:
    """What DROP COLUMN does; `captured` if the capture job has come to it."""
    schema = server.schemas[table]
    server.schemas[table] = replace(schema, columns=tuple(each for each in schema.columns if each.name != column))
    for row in server.rows[table].values():
        row.pop(column)
    if captured:
        note_altered(server, table)


def note_altered(server: SimulatedServer, table: TableId) -> None:
    """What the capture job does when it comes to the statement."""
    lsn = server.tick()
    server.altered |= {instance.name: lsn for instance in server.instances if instance.table == table}
    server.instances = [
        replace(instance, altered=lsn) if instance.table == table else instance for instance in server.instances
    ]


def with_a_second_instance(path: Path) -> tuple[SimulatedServer, CaptureConfig, TableId, TableId]:
    """Of a table with a column that the first instance has not got."""
    server, config, lines, orders = started(path)
    server.add_column(orders, "gone")
    server.enable(orders)
    server.commit((orders, "insert", 20, "a"))
    server.rows[orders][20]["gone"] = "value"
    server.commit((orders, "update", 20, "b"))
    return server, config, lines, orders


def values(config: CaptureConfig, table: TableId) -> list[tuple[str | None, object]]:
    """Of the column, in the changes since the second instance."""
    found = [event for event in events_of(config, table) if event.key == 20 and event.op != "r"]
    return [(event.op, (event.after or {}).get("gone")) for event in found]


@pytest.mark.long
@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("step", ["", "history-recorded", "files-written", "table-committed"])
def test_values_arrive_also_before_the_capture_job_has_come_to_the_statement(
    tmp_path: Path, captured: bool, step: str
) -> None:
    server, config, _, orders = with_a_second_instance(tmp_path)
    drop_column(server, orders, "gone", captured=captured)
    make_capture(server, config).snapshot([orders])
    stream_until(server, config, step)
    assert make_capture(server, config).stream().troubled == ()
    note_altered(server, orders)
    server.commit((orders, "update", 20, "c"))
    assert make_capture(server, config).stream().troubled == ()
    assert values(config, orders) == [("c", None), ("u", "value"), ("u", None)]


@pytest.mark.long
@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("step", ["history-written", "files-written", "table-committed"])
def test_a_repeat_that_can_record_no_structure_leaves_the_table_to_the_next_window(
    tmp_path: Path, captured: bool, step: str
) -> None:
    """Another table's structure was recorded under the number, and that of this one could not be read."""
    server, config, lines, orders = with_a_second_instance(tmp_path)
    drop_column(server, orders, "gone", captured=captured)
    make_capture(server, config).snapshot([orders])
    server.add_column(lines, "more")
    server.enable(lines)
    server.commit((lines, "insert", 11, "b"))
    read, server.table_schema = server.table_schema, refusing(server, orders)  # type: ignore[method-assign]
    stream_until(server, config, step)
    server.table_schema = read  # type: ignore[method-assign]
    assert make_capture(server, config).stream().troubled == ()
    assert values(config, orders) == [("c", None), ("u", "value")]
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10, 11]


def widen(server: SimulatedServer, table: TableId) -> None:
    """Give its key a type that the rows arrive in from now on."""
    server.kinds["id"] = pa.int64()
    for known in (server.schemas, server.stored):
        for name, schema in known.items():
            columns = tuple(replace(each, type_name="bigint") if each.name == "id" else each for each in schema.columns)
            if schema.object_id == server.schemas[table].object_id:
                known[name] = replace(schema, columns=columns)
    note_altered(server, table)


@pytest.mark.parametrize("step", ["history-written", "files-written"])
def test_a_type_that_changes_before_a_repeat_that_can_record_no_structure(tmp_path: Path, step: str) -> None:
    server, config, lines, orders = started(tmp_path)
    server.commit((orders, "insert", 20, "a"), (lines, "insert", 11, "a"))
    for _ in range(2):  # the second attempt closes the number
        stream_until(server, config, step)
    widen(server, orders)
    assert make_capture(server, config).stream().troubled == ()
    assert [event.key for event in events_of(config, orders) if event.op == "c"] == [10, 20]
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [10, 11]
