"""Who looks from outside never calls a table healthy that a run would find troubled, and says the same as the run."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.errors import CdcDisabledError, DatabaseAwayError, LakeError
from cdc_assets.overview import CaptureOverview, TableOverview
from cdc_assets.overview.checks.check import Verdict
from cdc_assets.overview.checks.sqlserver import headroom_result
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables

Spoil = Callable[[SimulatedServer, Path, TableId], None]


def clean_up(server: SimulatedServer, lake: Path, table: TableId) -> None:
    mark = server.commit((table, "insert", 90, "lost"))
    server.commit((table, "insert", 91, "kept"))
    server.change_tables["dbo_orders"] = [change for change in server.change_tables["dbo_orders"] if change.lsn > mark]
    server.instances = [
        replace(own, start_lsn=server.transactions[-1]) if own.table == table else own for own in server.instances
    ]


def replace_instance(server: SimulatedServer, lake: Path, table: TableId) -> None:
    server.disable("dbo_orders")
    server.enable(table, "dbo_orders_again")
    server.commit((table, "insert", 90, "new"))


def disable_table(server: SimulatedServer, lake: Path, table: TableId) -> None:
    server.disable("dbo_orders")
    server.idle_tick()


def restore(server: SimulatedServer, lake: Path, table: TableId) -> None:
    server.fork = RecoveryFork("B", None)
    server.idle_tick()


def remove_topic(server: SimulatedServer, lake: Path, table: TableId) -> None:
    shutil.rmtree(next(lake.glob("*.orders")))


def tables(config: object, server: SimulatedServer | None) -> dict[str, TableOverview]:
    return {found.table.table: found for found in CaptureOverview(config, server).tables}  # type: ignore[arg-type]


def headroom_of(seen: CaptureOverview) -> Verdict:
    """The check of what the server keeps."""
    return headroom_result(seen.headroom(), seen.problems(), streams=seen.streams)


@pytest.mark.parametrize(
    ("spoil", "status", "others", "by_server"),
    [
        (clean_up, "gap", "healthy", True),
        (replace_instance, "gap", "healthy", True),
        (disable_table, "failed", "healthy", True),
        (restore, "failed", "failed", True),
        (remove_topic, "gap", "healthy", False),
    ],
)
def test_table_is_troubled_before_a_run_finds_it_as_it_is_afterwards(
    tmp_path: Path, spoil: Spoil, status: str, others: str, by_server: bool
) -> None:
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((lines, "insert", 50, "a"), (orders, "insert", 50, "a"))
    make_capture(server, config).stream()
    before = CaptureOverview(config, server)
    assert {found.status for found in before.tables} == {"healthy"}
    assert (before.databases[0].complete_to, before.databases[0].troubled) == (server.transactions[-1], 0)
    assert before.databases[0].lag_s is not None
    assert headroom_of(before).passed

    spoil(server, tmp_path, orders)
    seen = CaptureOverview(config, server)
    found = {table.table.table: table for table in seen.tables}
    assert (found["orders"].status, found["lines"].status) == (status, others)
    assert "Next: " in found["orders"].reason
    assert seen.databases[0].troubled == (1 if others == "healthy" else 2)
    assert headroom_of(seen).passed == (not by_server)

    make_capture(server, config).stream()
    recorded = state_of(config).tables
    assert (recorded[orders].status, recorded[lines].status) == (status, others)
    assert {name: own.status for name, own in tables(config, None).items()} == {"orders": status, "lines": others}


@pytest.mark.parametrize("problem", [CdcDisabledError("capture is off"), DatabaseAwayError("it is offline")])
def test_database_that_cannot_be_asked_has_no_healthy_table_and_passes_no_check(
    tmp_path: Path, problem: CdcDisabledError | DatabaseAwayError
) -> None:
    server, config, _, _ = two_tables(tmp_path)
    make_capture(server, config).stream()
    server.troubles[DATABASE] = problem
    seen = CaptureOverview(config, server)
    assert [(found.status, str(problem) in found.reason) for found in seen.tables] == [("failed", True)] * 2
    result = headroom_of(seen)
    assert (result.passed, str(problem) in result.text) == (False, True)


def test_tables_that_wait_and_those_that_cannot_be_captured_are_shown(tmp_path: Path) -> None:
    server, config, _, _ = two_tables(tmp_path)
    server.create("new")
    server.create("or ders")
    server.create("or_ders")
    found = tables(config, server)
    assert [found[name].status for name in ("orders", "new", "or ders", "or_ders")] == [
        "healthy", "waiting", "waiting", "failed",
    ]  # fmt: skip


def test_new_instance_beside_the_old_one_is_no_trouble(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    server.enable(orders, "dbo_orders_again")
    server.commit((orders, "insert", 90, "new"))
    seen = CaptureOverview(config, server)
    assert {found.status for found in seen.tables} == {"healthy"}
    assert headroom_of(seen).passed


def test_capture_that_never_streams_needs_nothing_of_what_the_server_keeps(tmp_path: Path) -> None:
    server, config, _, _ = two_tables(tmp_path, mode="initial_only")
    server.disable("dbo_orders")
    seen = CaptureOverview(config, server)
    assert {found.status for found in seen.tables} == {"healthy"}
    result = headroom_of(seen)
    assert (result.passed, "the snapshot mode reads no log" in result.text) == (True, True)


def test_lake_without_its_manifest_passes_no_check(tmp_path: Path) -> None:
    server, config, _, _ = two_tables(tmp_path)
    shutil.rmtree(tmp_path / "shop.__windows")
    with pytest.raises(LakeError, match="is gone or empty"):
        CaptureOverview(config, server).headroom()


def test_what_the_server_keeps_is_not_known_while_no_table_streams(tmp_path: Path) -> None:
    server, config, _, orders = two_tables(tmp_path)
    server.disable("dbo_lines")
    disable_table(server, tmp_path, orders)
    make_capture(server, config).stream()
    result = headroom_of(CaptureOverview(config, server))
    assert (result.passed, result.is_error) == (False, False)
    assert "No table streams" in result.text
