"""Databases that have something new at the same time: one job, one number, exact for each of them whatever dies."""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job
from cdc_assets.core.steps import listening
from cdc_assets.errors import ServerBusyError
from cdc_assets_tests.contract.two import HERE, THERE, Two, reasons
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of

STEPS = (
    "window-planned",
    "history-written",
    "files-written",
    "table-committed",
    "transactions-committed",
    "window-complete",
)
CHANGES = [("c", 11), ("c", 12), ("d", 11)]
TOLD = Counter({(str(table), events): 1 for table in (HERE, THERE) for events in (1, 2)})
"""Transactions by the tables and the number of events that their END tells."""


@pytest.fixture
def both(two: Two, tmp_path: Path) -> Two:
    """Two databases with transaction metadata, each with two transactions that nobody has read."""
    streaming = replace(two.config.streaming, max_iteration_transactions=0)
    events = replace(two.config.events, transaction_metadata=True)
    two.config = replace(two.config, events=events, streaming=streaming, lake=LakeSettings(str(tmp_path / "told")))
    two.run("snapshot")
    for table in (HERE, THERE):
        two.server.execute("INSERT INTO dbo.orders VALUES (11), (12)", database=table.database)
        two.server.execute("DELETE FROM dbo.orders WHERE id = 11", database=table.database)
    two.server.agent.drain()
    return two


def streamed(two: Two, table: TableId) -> list[tuple[str, int]]:
    """Operation and key of each change, in order; tombstones are left out."""
    rows: list[dict[str, Any]] = sorted(
        rows_of_topic(two.config, f"shop.{table}"), key=lambda row: str(row["position"])
    )
    found = [(row["value"]["op"], row["key"]["id"]) for row in rows if row["value"]]
    return [(op, key) for op, key in found if op != "r"]


def told(two: Two) -> Counter[tuple[str, int]]:
    """Ends of transactions; each has its begin, or None is among them."""
    values: list[dict[str, Any]] = [row["value"] for row in rows_of_topic(two.config, "shop.transaction")]  # type: ignore[misc]
    ends = [value for value in values if value["status"] == "END"]
    assert Counter(value["id"] for value in values if value["status"] == "BEGIN") == Counter(end["id"] for end in ends)
    counted = [(own["data_collection"], own["event_count"]) for end in ends for own in end["data_collections"]]
    assert len(counted) == len(ends), "a transaction is of one database"
    return Counter(counted)


def jobs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Filled with the databases of each job's tasks."""
    found: list[list[str]] = []
    run = LocalRunner.run

    def note(runner: LocalRunner, function: Callable[[Any], Any], tasks: Sequence[Any], job: Job) -> list[Any]:
        found.append(sorted({task.database for task in tasks}))
        return run(runner, function, tasks, job)

    monkeypatch.setattr(LocalRunner, "run", note)
    return found


@pytest.mark.long
def test_databases_share_a_job_and_the_rows_of_the_manifest(both: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    found = jobs(monkeypatch)
    both.run()
    assert found == [["Here", "There"]]
    rows = sorted(rows_of_topic(both.config, "shop.__windows"), key=lambda row: int(str(row["sequence"])))
    assert [row["event"] for row in rows if row["kind"] == "stream"] == ["planned", "complete"]
    assert (streamed(both, HERE), streamed(both, THERE), told(both)) == (CHANGES, CHANGES, TOLD)


@pytest.mark.long
def test_each_database_has_bounds_and_a_watermark_of_its_own(both: Two) -> None:
    for key in range(20, 30):
        both.server.execute(f"INSERT INTO dbo.orders VALUES ({key})", database=THERE.database)
    both.server.agent.drain()
    with pytest.raises(PowerCutError), cut_at("window-planned"):
        both.run()
    windows = {window.database: window for window in state_of(both.config).pending}
    assert len({window.window_id for window in windows.values()}) == 1
    both.run()
    state = state_of(both.config)
    for database, window in windows.items():
        assert state.watermark(database) == window.until == window.bounds[-1]
    assert windows["Here"].until != windows["There"].until


@pytest.mark.long
def test_windows_of_a_turn_share_the_rows_of_one(two: Two) -> None:
    two.config = replace(
        two.config, streaming=replace(two.config.streaming, window_rows=4, max_iteration_transactions=0)
    )
    for _ in range(10):
        two.insert(HERE, THERE)
    two.run()
    rows = sorted(rows_of_topic(two.config, "shop.__windows"), key=lambda row: int(str(row["sequence"])))
    assert [row["rows"] for row in rows if (row["event"], row["kind"]) == ("complete", "stream")] == [8, 4, 4, 4]


@pytest.mark.parametrize(("step", "times"), [*[(step, 1) for step in STEPS], ("table-committed", 2)])
def test_every_change_once_whatever_step_is_the_last(both: Two, step: str, times: int) -> None:
    with pytest.raises(PowerCutError), cut_at(step, times):
        both.run()
    for table in (HERE, THERE):
        both.server.execute("INSERT INTO dbo.orders VALUES (13)", database=table.database)
    both.server.agent.drain()
    assert reasons(both.run()) == {}
    for table in (HERE, THERE):
        assert streamed(both, table) == [*CHANGES, ("c", 13)]
    assert told(both) == TOLD + Counter({(str(table), 1): 1 for table in (HERE, THERE)})


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_database_that_goes_offline_at_any_step_costs_the_other_nothing(both: Two, step: str) -> None:
    left: list[str] = []

    def away(name: str) -> None:
        if name == step and not left:
            left.append(name)
            both.offline()

    with listening(away):
        both.run()
    assert left
    assert streamed(both, HERE) == CHANGES
    both.online()
    assert reasons(both.run()) == {}
    assert (streamed(both, HERE), streamed(both, THERE), told(both)) == (CHANGES, CHANGES, TOLD)


@pytest.mark.parametrize(
    ("step", "times"),
    [("files-written", 1), ("table-committed", 1), ("table-committed", 2), ("transactions-committed", 1)],
)
def test_a_database_that_is_offline_after_a_crash(both: Two, step: str, times: int) -> None:
    with pytest.raises(PowerCutError), cut_at(step, times):
        both.run()
    both.offline()
    both.run()
    assert streamed(both, HERE) == CHANGES
    both.online()
    assert reasons(both.run()) == {}
    assert (streamed(both, HERE), streamed(both, THERE), told(both)) == (CHANGES, CHANGES, TOLD)


@pytest.fixture
def with_lines(both: Two) -> Two:
    """One database has a second table, and a transaction that changed both."""
    both.server.execute("CREATE TABLE dbo.lines (id int NOT NULL PRIMARY KEY)", database=THERE.database)
    both.server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'lines', @role_name = NULL",
        database=THERE.database,
    )
    both.run("snapshot")
    both.run()
    both.server.execute(
        "BEGIN TRAN; INSERT INTO dbo.orders VALUES (21); INSERT INTO dbo.lines VALUES (21), (22); COMMIT",
        database=THERE.database,
    )
    both.server.execute("INSERT INTO dbo.orders VALUES (21)", database=HERE.database)
    both.server.agent.drain()
    return both


def ends_of(two: Two) -> list[dict[str, int]]:
    """Events by table as each END tells them, newest transactions of both databases last."""
    values: list[dict[str, Any]] = [row["value"] for row in rows_of_topic(two.config, "shop.transaction")]  # type: ignore[misc]
    ends = sorted((value for value in values if value["status"] == "END"), key=lambda value: str(value["id"]))
    return [{own["data_collection"]: own["event_count"] for own in end["data_collections"]} for end in ends]


@pytest.mark.long
@pytest.mark.parametrize(
    ("times", "again"),
    [(1, None), (2, "files-written"), (1, "table-committed"), (3, None), (3, "transactions-committed")],
)
def test_transactions_whose_tables_were_committed_are_published_when_their_database_is_back(
    with_lines: Two, times: int, again: str | None
) -> None:
    before = ends_of(with_lines)
    with pytest.raises(PowerCutError), cut_at("table-committed", times):
        with_lines.run()
    with_lines.offline()
    with_lines.run()
    with_lines.online()
    if again is not None:
        with contextlib.suppress(PowerCutError), cut_at(again):
            with_lines.run()
    assert reasons(with_lines.run()) == {}
    lines = replace(THERE, table="lines")
    found = ends_of(with_lines)
    assert len(found) == len(before) + 2
    assert {str(THERE): 1, str(lines): 2} in found
    for table, key in ((HERE, 21), (THERE, 21), (lines, 22)):
        assert streamed(with_lines, table)[-1] == ("c", key)
    rows = [*rows_of_topic(with_lines.config, f"shop.{THERE}"), *rows_of_topic(with_lines.config, f"shop.{lines}")]
    blocks = [row["value"]["transaction"] for row in rows if row["value"] and row["key"]["id"] in (21, 22)]  # type: ignore[index]
    assert sorted(block["total_order"] for block in blocks) == [1, 2, 3]


@pytest.mark.long
def test_transactions_that_can_never_be_published_are_named(with_lines: Two) -> None:
    with pytest.raises(PowerCutError), cut_at("table-committed", 3):
        with_lines.run()
    with_lines.server.execute("EXEC sys.sp_cdc_disable_db", database=THERE.database)
    with_lines.run()
    assert "BEGIN and END of its transactions in (" in state_of(with_lines.config).tables[THERE].reason


def test_a_crash_between_giving_one_window_up_and_committing_the_other(both: Two) -> None:
    completed: list[str] = []

    def away(name: str) -> None:
        if name == "history-written" and not completed:
            both.offline()
        if name == "window-complete":
            completed.append(name)
            raise PowerCutError(name)

    with pytest.raises(PowerCutError), listening(away):
        both.run()
    [left] = state_of(both.config).pending
    assert left.database == HERE.database
    assert streamed(both, HERE) == []
    both.online()
    assert reasons(both.run()) == {}
    assert (streamed(both, HERE), streamed(both, THERE), told(both)) == (CHANGES, CHANGES, TOLD)


@pytest.mark.long
@pytest.mark.parametrize("step", [None, "files-written", "table-committed"])
def test_a_database_that_is_busy_costs_the_other_nothing(both: Two, step: str | None) -> None:
    if step is not None:
        with pytest.raises(PowerCutError), cut_at(step):
            both.run()
    both.server.faults.deadlock(matching="FROM [There].cdc.[dbo_orders_CT] AS [ct]", times=10_000)
    with pytest.raises(ServerBusyError):
        both.run()
    assert streamed(both, HERE) == CHANGES
    both.server.faults.clear()
    assert reasons(both.run()) == {}
    assert (streamed(both, HERE), streamed(both, THERE), told(both)) == (CHANGES, CHANGES, TOLD)
