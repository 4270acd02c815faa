"""A table that cannot be read fails alone."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyExtent, KeyRange
from cdc_assets.core.schema import TableSchema
from cdc_assets.errors import CdcError, ConnectionLostError, QueryError, ServerBusyError
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def three(path: Path, **changes: object):  # type: ignore[no-untyped-def]
    server = SimulatedServer()
    tables = [server.create(name, rows=40) for name in ("a", "b", "c")]
    server.idle_tick()
    return server, make_config(str(path), **changes), tables


def refuse(server: SimulatedServer, table: TableId, after: int, error: Exception) -> None:
    """Refuse statements that read a table, but the first few."""
    seen = 0

    def before_read(statement: str) -> None:
        nonlocal seen
        if f"FROM [{table.database}].[dbo].[{table.table}]" in statement:
            seen += 1
            if seen > after:
                raise error

    server.before_read = before_read


@pytest.mark.long
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("error", [QueryError("refused", 208), ServerBusyError("locked")])
def test_others_are_read_and_the_failed_one_is_due_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, after: int, error: Exception
) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.tasks._PAUSE_S", 0.0)
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 10)  # several slices and rounds
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)
    server, config, tables = three(tmp_path, partitions=4)
    bad, good = tables[place], [table for table in tables if table != tables[place]]
    refuse(server, bad, after, error)

    done = make_capture(server, config).snapshot()

    assert done.tables == tuple(good)
    [trouble] = done.failed
    assert (trouble.table, type(error).__name__ in trouble.reason) == (bad, True)
    assert set(state_of(config).tables) == set(good)
    reads = [event for table in good for event in events_of(config, table)]
    assert sorted(event.key for event in reads) == sorted([*range(1, 41)] * 2)
    markers = [event.marker for table in tables for event in events_of(config, table)]
    assert markers.count("last") == 1
    assert markers.count("first") == 1

    server.commit((good[0], "insert", 100, "new"), (bad, "insert", 100, "new"))
    summary = make_capture(server, config).stream()
    assert (summary.rows[good[0]], summary.waiting) == ({"c": 1}, (bad,))
    server.before_read = lambda statement: None
    assert make_capture(server, config).snapshot().tables == (bad,)
    assert {event.key for event in events_of(config, bad)} == {*range(1, 41), 100}


@pytest.mark.parametrize("error", [ConnectionLostError("gone"), ServerBusyError("deadlock")])
def test_table_whose_reading_breaks_off_is_read_again_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: CdcError
) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.tasks._PAUSE_S", 0.0)
    server, config, tables = three(tmp_path)
    asked: Counter[str] = Counter()

    def before_read(statement: str) -> None:
        for table in tables:
            if f"FROM {table.quoted}" in statement and "rows */" in statement:
                asked[table.table] += 1
                if table.table == "b" and asked["b"] < 3:
                    raise error

    server.before_read = before_read
    assert make_capture(server, config).snapshot().tables == tuple(tables)
    assert asked == {"a": 1, "b": 3, "c": 1}
    assert sorted(event.key for event in events_of(config, tables[1])) == list(range(1, 41))


def test_table_that_cannot_be_cut_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config, (a, b, c) = three(tmp_path)
    cut = server.key_ranges

    def key_ranges(schema: TableSchema, rows: int, slices: int, extent: KeyExtent | None = None) -> Sequence[KeyRange]:
        if schema.table == b:
            raise QueryError("The SELECT permission was denied", 229)
        return cut(schema, rows, slices)

    monkeypatch.setattr(server, "key_ranges", key_ranges)
    done = make_capture(server, config).snapshot()
    assert done.tables == (a, c)
    assert [trouble.table for trouble in done.failed] == [b]


def test_gap_that_cannot_be_mended_is_tried_once_in_a_run(tmp_path: Path) -> None:
    server, config, (a, b, _) = three(tmp_path, gap_policy="resnapshot")
    make_capture(server, config).snapshot()
    server.commit((a, "insert", 50, "lost"))
    server.clean_up(server.commit((b, "insert", 50, "kept")))
    asked: list[str] = []

    def before_read(statement: str) -> None:
        if "rows */" in statement and "[a]" in statement:
            asked.append(statement)
            raise QueryError("refused", 229)

    server.before_read = before_read
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, trouble.status, len(asked)) == (a, "gap", 1)
    server.before_read = lambda statement: None
    assert make_capture(server, config).stream().troubled == ()


def test_failure_outlives_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 10)
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)
    monkeypatch.setattr("cdc_assets.snapshot.rounds._ROUND_SLICES", 1)
    server, config, (a, b, c) = three(tmp_path, partitions=4)
    refuse(server, b, 1, QueryError("refused", 208))
    rounds = 0

    def stop(_: object) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_capture(server, config, on_progress=stop).snapshot()
    server.before_read = lambda statement: None
    done = make_capture(server, config).snapshot()
    assert done.tables == (a, c, b), "what was resumed, then what failed before"
    assert done.failed == ()
    assert {event.key for event in events_of(config, b)} == set(range(1, 41))
